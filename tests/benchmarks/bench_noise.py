"""Noise draws: own keyed bulk draws against OpenDP's vector form (goals per draw: 50 times faster, Gaussian 20).

python tests/benchmarks/bench_noise.py [--json]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from fractions import Fraction
from time import perf_counter

import opendp.prelude as dp

from stream.mechanisms.gaussian import discrete_gaussian
from stream.mechanisms.noise import discrete_laplace
from stream.mechanisms.noise_labels import label

EPSILON, GOAL = Fraction(4, 5), 50
DEVIATION, GAUSSIAN_GOAL = Fraction("21.854"), 20
OWN, THEIRS, ZONES = 1_000_000, 50_000, 64
KEY = b"k" * 32


def seconds_per_draw(draw: Callable[[], object], n: int) -> float:
    """Return the best of five runs, after one to build tables."""
    draw()
    times = []
    for _ in range(5):
        start = perf_counter()
        draw()
        times.append(perf_counter() - start)
    return min(times) / n


def measured() -> dict[str, float]:
    """Return microseconds a draw, and the ratio."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    measurement, zeros = dp.m.make_laplace(*space, scale=1.25), [0] * THEIRS
    own = seconds_per_draw(lambda: discrete_laplace(KEY, label("bench"), EPSILON, OWN), OWN)
    window = seconds_per_draw(lambda: discrete_laplace(KEY, label("bench"), EPSILON, ZONES), ZONES)
    theirs = seconds_per_draw(lambda: measurement(zeros), THEIRS)
    laplace = {
        "own_bulk_us": own * 1e6,
        "own_window_us": window * 1e6,
        "opendp_vector_us": theirs * 1e6,
        "ratio": theirs / own,
        "goal": GOAL,
    }
    return laplace | gaussian()


def gaussian() -> dict[str, float]:
    """Return the same of discrete Gaussian noise, at the σ of a day at ε = 2."""
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    measurement, zeros = dp.m.make_gaussian(*space, scale=float(DEVIATION)), [0] * THEIRS
    own = seconds_per_draw(lambda: discrete_gaussian(KEY, label("bench"), DEVIATION**2, OWN), OWN)
    theirs = seconds_per_draw(lambda: measurement(zeros), THEIRS)
    return {
        "gaussian_own_bulk_us": own * 1e6,
        "gaussian_opendp_vector_us": theirs * 1e6,
        "gaussian_ratio": theirs / own,
        "gaussian_goal": GAUSSIAN_GOAL,
    }


def main() -> None:
    """Print the figures of one run."""
    report = measured()
    if "--json" in sys.argv:
        print(json.dumps(report))
        return
    print(f"own, bulk               {report['own_bulk_us']:8.3f} µs a draw")
    print(f"own, {ZONES} zones a label  {report['own_window_us']:8.3f} µs a draw")
    print(f"OpenDP, vector          {report['opendp_vector_us']:8.3f} µs a draw")
    print(f"ratio, bulk             {report['ratio']:8.0f} (goal {GOAL})")
    print(f"Gaussian: own, bulk     {report['gaussian_own_bulk_us']:8.3f} µs a draw")
    print(f"Gaussian: OpenDP        {report['gaussian_opendp_vector_us']:8.3f} µs a draw")
    print(f"Gaussian: ratio, bulk   {report['gaussian_ratio']:8.0f} (goal {GAUSSIAN_GOAL})")


if __name__ == "__main__":
    main()
