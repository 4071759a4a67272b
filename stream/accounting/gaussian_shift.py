"""STUB. The price of a shift of Gaussian noise by mu standard deviations (mu² adds up over releases and days)."""

from __future__ import annotations

from fractions import Fraction

from stream.accounting.composition import Gaussian

CELLS = 256
"""Unit shifts by which a shift is written in accounts."""


def unit_shifts(squared: Fraction) -> Gaussian:
    """Return the noise of which ``CELLS`` values, each shifted by one, cost at least as much as a shift of mu.

    In a noise multiset: a day is ``{unit_shifts(mu²): CELLS}``, a day replaced or a part of one
    ``{unit_shifts(mu²): 4 * CELLS}``; devices go by ``group``.
    """
    raise NotImplementedError


def largest_shift(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return mu², rounded down, for which a shift of mu is (epsilon, delta)-private."""
    raise NotImplementedError


def epsilon_of(squared: Fraction, delta: Fraction) -> float:
    """Return the epsilon at delta of a shift of mu, rounded up; ``squared`` is mu² (4 mu² for a day replaced)."""
    raise NotImplementedError


def likely_loss_of(squared: Fraction, probability: Fraction) -> Fraction:
    """Return a loss that is exceeded, at any time of the day, with at most a probability; rounded up."""
    raise NotImplementedError
