"""STUB. The noise that keeps a day within its price, exact for the adaptive stream (no zCDP, see the proof there).

mu² = sum over levels of D'² / sigma'²: a day added or removed is exactly as private as ONE value of a continuous
Gaussian of standard deviation 1 that is shifted by mu; a day replaced, or any part of a day: by 2 mu; m devices: by
m mu. A reader who has paid several days: their mu² add up.
"""

from __future__ import annotations

from fractions import Fraction

from stream.mechanisms.changes.factor import Factor


def changes_variances(
    epsilon: Fraction, delta: Fraction, factor: Factor, shares: tuple[Fraction, ...] = (Fraction(1),)
) -> tuple[Fraction, ...]:
    """Return sigma'² of each level, leaves first, in the factor's unit, for which a day costs (epsilon, delta)."""
    raise NotImplementedError


def squared_shift(factor: Factor, variances: tuple[Fraction, ...]) -> Fraction:
    """Return mu² of a day added or removed, all levels together: what the account adds up."""
    raise NotImplementedError
