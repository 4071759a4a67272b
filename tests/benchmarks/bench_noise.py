"""Noise draws: own keyed bulk draws against OpenDP's vector form (goal: 50 times faster per draw).

python tests/benchmarks/bench_noise.py [--json]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from fractions import Fraction
from time import perf_counter

import opendp.prelude as dp

from stream.mechanisms.noise import discrete_laplace, label

EPSILON, GOAL = Fraction(4, 5), 50
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
    return {
        "own_bulk_us": own * 1e6,
        "own_window_us": window * 1e6,
        "opendp_vector_us": theirs * 1e6,
        "ratio": theirs / own,
        "goal": GOAL,
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


if __name__ == "__main__":
    main()
