"""Validators for the fields of records from outside: each checks type and bounds.

Records from an outbox or a topic enter the history, event streams and the page, so this module defines once what a
field may contain. Any other value raises ValueError, without the value in its text.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from stream.policy.fields import NANO, duration_text, parse_duration
from stream.records import DAY, LATEST, Micros
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
    """Return the number of draws that are summed."""
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
    """Return a Boolean."""
    if type(value) is not bool:
        raise ValueError
    return value


def name(value: Any) -> str:
    """Return a name for display: printable characters only, without line ends or changes of the text's direction."""
    if type(value) is not str or not value.isprintable() or not 0 < len(value) <= LONGEST_NAME:
        raise ValueError
    return value


def time(value: Any) -> Micros:
    """Return an instant from 1970 to 2255."""
    at = parse_time(name(value))
    if not 0 <= at < LATEST:
        raise ValueError
    return at


_VISITS = re.compile("([1-9][0-9]{0,3}) visits?")


def bound(value: Any) -> Micros | None:
    """Return for how much of a privacy day a device counts; None if the field is absent.

    A bound of n visits is -n, so that one column of numbers has both kinds of bounds.
    """
    visits = _VISITS.fullmatch(value) if isinstance(value, str) else None
    if visits is not None:
        return -int(visits[1])
    duration = None if value is None else parse_duration(name(value))
    if duration is not None and not 0 < duration <= DAY:
        raise ValueError
    return duration


def bound_text(bound: Micros) -> str:
    """Return a bound as records write it."""
    if bound < 0:
        return "1 visit" if bound == -1 else f"{-bound} visits"
    return duration_text(bound)


def nano(value: Any) -> int:
    """Return a charge in 1e-9 of an epsilon."""
    if type(value) is not str or not _DECIMAL.fullmatch(value):
        raise ValueError
    return int(Decimal(value) * NANO)


def scalar(value: Any) -> str | int | float | None:
    """Return the value of an attribute."""
    if value is None or (type(value) in (int, float) and math.isfinite(value) and abs(value) <= LARGEST_SIZE):
        return value  # type: ignore[no-any-return]
    return name(value)
