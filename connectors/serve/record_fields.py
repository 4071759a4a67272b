"""The fields of a record from outside, each taken only as what it is: of its type, within its bounds.

Who writes to an outbox or a topic writes into a history, into event streams and onto a page. What a field may hold is
said here once; anything else is ValueError, and the value is not shown.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from stream.policy.fields import NANO
from stream.records import LATEST, Micros
from stream.schemas import parse_time

LARGEST_COUNT = 10**12
LARGEST_SIZE = 1e15
"""Of half-widths and scales of noise."""
SMALLEST_SCALE = 1e-9
MOST_DRAWS = 10**6
LONGEST_NAME = 400
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,30})?")


def count(value: Any) -> int:
    """Return a whole number of devices, which noise may have made negative."""
    if type(value) is not int or abs(value) > LARGEST_COUNT:
        raise ValueError
    return value


def draws(value: Any) -> int:
    """Return how many draws are summed."""
    if not 1 <= count(value) <= MOST_DRAWS:
        raise ValueError
    return int(value)


def size(value: Any) -> float:
    """Return a half-width."""
    if type(value) not in (int, float) or not 0 <= value <= LARGEST_SIZE:
        raise ValueError
    return float(value)


def scale(value: Any) -> float:
    """Return a scale of noise."""
    if not size(value) >= SMALLEST_SCALE:
        raise ValueError
    return float(value)


def share(value: Any) -> float:
    """Return a number in [0, 1]."""
    if not size(value) <= 1:
        raise ValueError
    return float(value)


def truth(value: Any) -> bool:
    """Return whether something is so."""
    if type(value) is not bool:
        raise ValueError
    return value


def name(value: Any) -> str:
    """Return a name that is shown to people: of printable characters, so none that ends a line or turns text around."""
    if type(value) is not str or not value.isprintable() or not 0 < len(value) <= LONGEST_NAME:
        raise ValueError
    return value


def time(value: Any) -> Micros:
    """Return an instant from 1970 to 2255."""
    at = parse_time(name(value))
    if not 0 <= at < LATEST:
        raise ValueError
    return at


def nano(value: Any) -> int:
    """Return what was spent, in 1e-9 of an epsilon."""
    if type(value) is not str or not _DECIMAL.fullmatch(value):
        raise ValueError
    return int(Decimal(value) * NANO)


def scalar(value: Any) -> str | int | float | None:
    """Return the value of an attribute."""
    if value is None or (type(value) in (int, float) and math.isfinite(value) and abs(value) <= LARGEST_SIZE):
        return value  # type: ignore[no-any-return]
    return name(value)
