"""What may be tried: epsilons and salt lives, from the most private one on.

Epsilons have two digits and are some tenth apart (the E24 numbers of IEC 60063), so that next neighbours differ in
utility by more than runs of a day scatter. A salt life is the thesis' TTL: the shorter, the more private.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from stream.errors import UsageError
from stream.records import DAY, HOUR, MINUTE, SECOND, Micros

_E24 = (10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91)
DECADE = len(_E24)
EPSILONS = (*(Fraction(two) * Fraction(10) ** power for power in range(-6, 1) for two in _E24), Fraction(100))
"""From 0.00001 to 100, ascending."""
TTLS: tuple[Micros, ...] = (
    *(each * SECOND for each in (1, 2, 3, 5, 7, 10, 15, 20, 30, 45)),
    *(each * MINUTE for each in (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45)),
    *(each * HOUR for each in (1, 2, 3, 4, 6, 8, 12)),
    DAY,
)  # fmt: skip
"""From a second to a day, in microseconds, ascending."""


def payable(
    made: Callable[[Fraction], object], least: Fraction = EPSILONS[0], most: Fraction = EPSILONS[-1]
) -> tuple[Fraction, ...]:
    """Return the epsilons whose noise can be made: all from the first one on at which ``made`` raises no UsageError.

    Args:
        made: makes the noise of an epsilon.
        least: no smaller one is tried.
        most: no larger one is tried.
    """
    asked = [epsilon for epsilon in EPSILONS if least <= epsilon <= most]
    for first, epsilon in enumerate(asked):
        try:
            made(epsilon)
        except UsageError:
            continue
        return tuple(asked[first:])
    rule = "epsilon must buy noise that can be made, and be among those that are tried"
    raise UsageError(f"{rule}; none from {float(least):g} to {float(most):g} does")
