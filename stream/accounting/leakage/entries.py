"""Parsing of a model's numbers, entry by entry, and arithmetic of odds.

Every reader takes a value from outside (JSON, TOML or a caller), the name of its place (``joint[0][1]``)
and the range in which it must lie, and returns floats or an array. A model is an argument, so its values may
appear in an error, shortened.

Entries have limits of size, so that sums, products and quotients of them stay within the range of doubles: a number is
0 or lies between ``SMALLEST`` and ``LARGEST`` in magnitude, a whole number is at most ``MOST``.

Odds are always sensitive : not sensitive, Pr(X = 0) / Pr(X = 1). An outcome multiplies them by a factor. Both may be
infinite.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray

from stream.errors import UsageError

Floats = NDArray[np.float64]

SUM_TOLERANCE = 1e-6
"""Tolerance for the sum of probabilities that should be one (decimals with six places)."""

SMALLEST, LARGEST = 1e-100, 1e50
"""Limits of magnitude of a model's numbers; a product of two over a third stays far from the limits of doubles."""

MOST = 10**9
"""The largest whole number of a model: queries, releases, nodes kept, released windows."""

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxlong, _SHORT.maxother = 3, 60, 40, 60


def shown(value: object) -> str:
    """Return a value for an error message: on one line, at most a few hundred characters."""
    try:
        return _SHORT.repr(value)
    except ValueError:
        return "a number of thousands of digits"


def number(
    value: object,
    where: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    finite: bool = True,
    any_size: bool = False,
) -> float:
    """Return ``value`` as a float within [low, high], 0 or of a magnitude in [SMALLEST, LARGEST].

    The string ``"inf"`` stands for infinity and is accepted only when ``finite`` is false. ``any_size`` removes the
    limits of magnitude, for computed numbers.

    Raises:
        UsageError: not a number, not in range, or infinite where that has no meaning.
    """
    if isinstance(value, str) and value == "inf":
        value = math.inf
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UsageError(f"{where} must be a number, got {shown(value)}")
    try:
        result = float(value)
    except OverflowError:
        raise UsageError(f"{where} must be at most {LARGEST:g} in magnitude, got {shown(value)}") from None
    if math.isnan(result) or (finite and math.isinf(result)):
        raise UsageError(f"{where} must be a finite number, got {result}")
    if not low <= result <= high:
        raise UsageError(f"{where} must lie in [{low:g}, {high:g}], got {result!r}")
    if not any_size and result != 0.0 and not math.isinf(result) and not SMALLEST <= abs(result) <= LARGEST:
        limits = f"0 or lie between {SMALLEST:g} and {LARGEST:g} in magnitude"
        raise UsageError(f"{where} must be {limits}, got {result!r}")
    return result


def positive(value: object, where: str, *, finite: bool = True) -> float:
    """Return ``value`` as a float above 0; the other rules are those of ``number``."""
    result = number(value, where, finite=finite)
    if result <= 0:
        raise UsageError(f"{where} must be positive, got {result!r}")
    return result


def integer(value: object, where: str, *, low: int = 0, high: int = MOST) -> int:
    """Return ``value`` as an integer of at least ``low`` and at most ``high``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UsageError(f"{where} must be a whole number, got {shown(value)}")
    result = int(value)
    if not low <= result <= high:
        raise UsageError(f"{where} must be {low} to {high}, got {shown(result)}")
    return result


def items(values: object, where: str, length: int | None = None) -> list[object]:
    """Return the entries of a list, a tuple or an array; ``length`` is how many there must be."""
    if isinstance(values, np.ndarray) and values.ndim > 0:
        values = list(values)
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence):
        raise UsageError(f"{where} must be a list, got {shown(values)}")
    if length is not None and len(values) != length:
        raise UsageError(f"{where} must have {length} entries, got {len(values)}")
    return list(values)


def vector(
    values: object,
    where: str,
    length: int | None = None,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    finite: bool = True,
) -> Floats:
    """Return a list of numbers within [low, high] as an array."""
    entries = items(values, where, length)
    return np.array(
        [number(v, f"{where}[{i}]", low=low, high=high, finite=finite) for i, v in enumerate(entries)],
        dtype=np.float64,
    )


def integers(values: object, where: str, length: int, *, low: int = 0) -> NDArray[np.int64]:
    """Return a list of ``length`` integers that are ``low`` or more as an array."""
    entries = items(values, where, length)
    return np.array([integer(v, f"{where}[{i}]", low=low) for i, v in enumerate(entries)], dtype=np.int64)


def tensor(values: object, where: str, shape: Sequence[int], *, low: float = -math.inf) -> Floats:
    """Return nested lists of exactly this shape as an array; entries are at least ``low``."""
    if not shape:
        return np.array(number(values, where, low=low), dtype=np.float64)
    entries = items(values, where, shape[0])
    return np.array([tensor(v, f"{where}[{i}]", shape[1:], low=low) for i, v in enumerate(entries)])


def distribution(values: Floats, where: str) -> Floats:
    """Return non-negative numbers that sum to one, with the rounding of their decimals divided out."""
    total = math.fsum(float(v) for v in values.flat)
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise UsageError(f"{where} must sum to 1, got {total!r}")
    return np.asarray(values / total, dtype=np.float64)


def square(values: object, where: str, *, low: float = -math.inf) -> Floats:
    """Return a list of n lists of n numbers as an array."""
    size = len(items(values, where))
    if size == 0:
        raise UsageError(f"{where} must not be empty")
    return tensor(values, where, (size, size), low=low)


def stochastic(values: object, where: str) -> Floats:
    """Return a square matrix whose every row is a probability distribution."""
    rows = square(values, where, low=0.0)
    return np.array([distribution(row, f"{where}[{i}]") for i, row in enumerate(rows)])


# Arithmetic of odds and factors.


def exp_or_inf(value: float) -> float:
    """Return e^value, infinity where a double cannot hold it."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def spent(epsilon: float, queries: int) -> float:
    """Return queries x epsilon; zero queries spend 0, even at infinite epsilon."""
    return 0.0 if queries == 0 else queries * epsilon


def posterior_odds(prior_odds: float, factor: float) -> float:
    """Return prior odds x factor; odds of 0 or infinity are certain and do not change."""
    odds = number(prior_odds, "prior_odds", low=0.0, finite=False, any_size=True)
    ratio = number(factor, "factor", low=0.0, finite=False, any_size=True)
    return odds if odds in (0.0, math.inf) else odds * ratio
