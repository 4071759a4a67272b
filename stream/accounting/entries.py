"""The numbers of a model, read one entry at a time, so that an error can point at the entry.

Every reader takes a value from outside (JSON, TOML or a caller), the name of its place (``joint[0][1]``)
and the range it must lie in, and returns floats or an array. A model is an argument, so its values may
appear in an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray

from stream.errors import UsageError

Floats = NDArray[np.float64]

#: Probabilities that should sum to one may miss it by this much (decimals written with six places).
SUM_TOLERANCE = 1e-6


def number(value: object, where: str, *, low: float = -math.inf, high: float = math.inf, finite: bool = True) -> float:
    """Return ``value`` as a float within [low, high].

    The string ``"inf"`` stands for infinity and passes only when ``finite`` is false.

    Raises:
        UsageError: not a number, not in range, or infinite where that has no meaning.
    """
    if isinstance(value, str) and value == "inf":
        value = math.inf
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UsageError(f"{where} must be a number, got {value!r}")
    try:
        result = float(value)
    except OverflowError:
        raise UsageError(f"{where} must be a number that a double can hold") from None
    if math.isnan(result) or (finite and math.isinf(result)):
        raise UsageError(f"{where} must be a finite number, got {result}")
    if not low <= result <= high:
        raise UsageError(f"{where} must lie in [{low:g}, {high:g}], got {result!r}")
    return result


def positive(value: object, where: str, *, finite: bool = True) -> float:
    """Return ``value`` as a float above 0; the other rules are those of ``number``."""
    result = number(value, where, finite=finite)
    if result <= 0:
        raise UsageError(f"{where} must be positive, got {result!r}")
    return result


def whole(value: object, where: str, *, low: int = 0, high: int | None = None) -> int:
    """Return ``value`` as an integer of at least ``low`` and at most ``high``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UsageError(f"{where} must be a whole number, got {value!r}")
    result = int(value)
    if result < low or (high is not None and result > high):
        limit = f"at least {low}" if high is None else f"{low} to {high}"
        raise UsageError(f"{where} must be {limit}, got {result}")
    return result


def items(values: object, where: str, length: int | None = None) -> list[object]:
    """Return the entries of a list, a tuple or an array; ``length`` is how many there must be."""
    if isinstance(values, np.ndarray) and values.ndim > 0:
        values = list(values)
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence):
        raise UsageError(f"{where} must be a list, got {values!r}")
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


def wholes(values: object, where: str, length: int) -> NDArray[np.int64]:
    """Return a list of ``length`` integers that are 0 or more as an array."""
    entries = items(values, where, length)
    return np.array([whole(v, f"{where}[{i}]") for i, v in enumerate(entries)], dtype=np.int64)


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
