"""PeGaSus on a constant stream: error and group length do not depend on ε, and are known.

The figures are those of the published parameters (0.8 ε and 0.2 ε, θ = 5/ε_g), as a multiple of 1/ε.
Standard errors here are below 0.003, the tolerance is 0.02. Groups opened under a lucky threshold live for
hundreds of ticks, so the first ticks, where none can be that old yet, are left out.
"""

from fractions import Fraction

import numpy as np
import pytest

from stream.mechanisms.grouper import SMOOTHERS, Grouper, GroupItem, perturber_epsilon
from stream.mechanisms.noise import discrete_laplace
from stream.mechanisms.noise_labels import Context, label

F = Fraction
KEY = b"pegasus".ljust(32, b".")
ZONES, TICKS, SETTLED, COUNT = 1_000, 600, 300, 100_000
KNOWN = {"average": 0.806, "median": 0.772, "james-stein": 0.831}


def constant_stream(epsilon: Fraction) -> tuple[dict[str, float], float]:
    """Mean absolute error times ε for each smoother, and groups opened per step, once groups have settled."""
    grouper, counts = Grouper(ZONES, epsilon), np.full(ZONES, COUNT)
    state, starts = grouper.initial(), 0
    errors: dict[str, list[float]] = {name: [] for name in SMOOTHERS}
    for tick in range(TICKS):
        context = Context("dbh", "constant", tick, 1, tuple(map(str, range(3))))
        rho, nu = grouper.draw(KEY, context, state, counts)
        noise = discrete_laplace(KEY, label(tick), perturber_epsilon(epsilon), ZONES)
        opening, before = state.size == 0, state.size
        state, [groups] = grouper.step(state, GroupItem(counts, counts + noise, rho, nu))
        if tick < SETTLED:
            continue
        starts += int((opening | ((groups.size == 1) & (before > 0))).sum())
        for name, smoother in SMOOTHERS.items():
            numerator, denominator = smoother(groups)
            errors[name].append(np.abs(numerator / denominator - COUNT).mean())
    scaled = {name: float(np.mean(e)) * float(epsilon) for name, e in errors.items()}
    return scaled, starts / (ZONES * (TICKS - SETTLED))


@pytest.mark.parametrize("epsilon", [F("0.1"), pytest.param(F("0.02"), marks=pytest.mark.long)])
def test_constant_stream_has_the_known_errors_and_group_lengths(epsilon: Fraction) -> None:
    errors, groups_per_step = constant_stream(epsilon)
    assert errors == pytest.approx(KNOWN, abs=0.02)
    assert groups_per_step == pytest.approx(0.335, abs=0.02)
