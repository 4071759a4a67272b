"""The types of the policy file's fields, and valid values."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, InvalidOperation, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
)

from stream.records import DAY, MINUTE, SECOND

NANO = 1_000_000_000
"""Ledger units in one epsilon."""
LARGEST_EPSILON = 100
"""Largest epsilon; beyond it a release would hide nothing."""
EVERYBODY = "all"
"""The name for all audiences together; no audience may have it."""

ReadText = Callable[[str], str]
"""Returns the text of a file that a policy names; ValueError with the rule if it cannot."""


def read_no_file(_: str) -> str:
    """Refuse every file, which is right for a policy that is no file itself."""
    msg = "must not name a file if the policy was not read from a file"
    raise ValueError(msg)


LONGEST_DAYS = 3660
"""Longest duration: ten years."""
_DURATION = re.compile(r"([0-9]+)\s*(ms|s|min|h|d)")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SHORT_DECIMAL = re.compile(r"([0-9]{1,20}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE]-?[0-9]{1,2})?")
_UNITS = {"ms": 1000, "s": SECOND, "min": MINUTE, "h": 60 * MINUTE, "d": DAY}


def parse_duration(text: Any) -> int:
    """Return microseconds for ``"5min"``, ``"30s"``, ``"500ms"``, ``"1h"`` or ``"1d"``."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        msg = "must be a duration such as '30s', '5min' or '1h'"
        raise ValueError(msg)
    unit = _UNITS[match[2]]
    digits = match[1].lstrip("0") or "0"
    if len(digits) > 20 or int(digits) * unit > LONGEST_DAYS * DAY:
        msg = f"must be at most {LONGEST_DAYS}d"
        raise ValueError(msg)
    return int(digits) * unit


def duration_text(duration: int) -> str:
    """Return a duration of whole minutes as a policy writes it: ``"12h"``, ``"90min"``."""
    hours, rest = divmod(duration, _UNITS["h"])
    return f"{duration // MINUTE}min" if rest else f"{hours}h"


DOCUMENT = {"document": True}
"""Context in which a policy is validated from its canonical document, where durations are microseconds."""


def _duration(value: Any, info: ValidationInfo) -> int:
    if info.context == DOCUMENT and type(value) is int and value <= LONGEST_DAYS * DAY:
        return value
    return parse_duration(value)


def parse_epsilon(text: Any) -> Fraction:
    """Return the exact fraction of a positive decimal string: at most nine decimals, at most 100."""
    exact = parse_spend(text)
    if exact > LARGEST_EPSILON:
        msg = f"must be at most {LARGEST_EPSILON}"
        raise ValueError(msg)
    return exact


def parse_spend(text: Any) -> Fraction:
    """Return the exact fraction of a positive decimal string with at most nine decimals."""
    if isinstance(text, Fraction):
        return text
    try:
        value = (
            Decimal(text) if isinstance(text, str) and len(text) <= 100 and _DECIMAL.fullmatch(text) else Decimal("nan")
        )
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite() or value <= 0:
        msg = "must be a positive decimal in quotes, such as '0.1'"
        raise ValueError(msg)
    exact = Fraction(value) if -9 <= value.adjusted() <= 12 else None  # a huge exponent makes a huge integer
    if exact is None or (exact * 10**9).denominator != 1:
        msg = "must have at most nine decimals and be below 10000000000000"
        raise ValueError(msg)
    return exact


_AMOUNT = re.compile(r"[0-9]{1,20}(\.[0-9]{1,60})?")


def parse_amount(text: object) -> Fraction:
    """Return the exact fraction of a decimal string in a record or entry; ValueError, also if it has an exponent."""
    if not isinstance(text, str) or not _AMOUNT.fullmatch(text):
        msg = "must be a decimal string without an exponent"
        raise ValueError(msg)
    return Fraction(text)


SMALLEST_DELTA, LARGEST_DELTA = Fraction(1, 10**10), Fraction(1, 100)
"""A larger delta would allow one device in a hundred to be revealed; the accountant cannot represent a smaller one."""


def parse_delta(text: Any) -> Fraction:
    """Return the exact fraction of a decimal string such as ``"1e-6"``, from 1e-10 to 0.01."""
    if isinstance(text, Fraction):
        return text
    exact = Fraction(Decimal(text)) if isinstance(text, str) and _SHORT_DECIMAL.fullmatch(text) else Fraction(0)
    if not SMALLEST_DELTA <= exact <= LARGEST_DELTA:
        msg = "must be a decimal in quotes from '1e-10' to '0.01', such as '1e-6'"
        raise ValueError(msg)
    return exact


def decimal_string(value: Fraction | float) -> str:
    """Return the decimal string of a fraction that has a finite one (``"0.1"``, ``"28.8"``, ``"0"``), or ``"inf"``."""
    infinite = isinstance(value, float) and value == math.inf
    return "inf" if infinite else _decimal_string(*value.as_integer_ratio())


@lru_cache(maxsize=4096)
def _decimal_string(numerator: int, denominator: int) -> str:
    """Return the decimal string of a fraction in lowest terms; cached, because a stream has few different ones."""
    with localcontext(prec=60):
        return format((Decimal(numerator) / Decimal(denominator)).normalize(), "f")


def worded(pattern: str, rule: str) -> Callable[[str], str]:
    """Return a function that checks a text against a pattern; it raises ValueError with the rule."""
    form = re.compile(pattern)

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(rule)
        return text

    return check


Name = Annotated[
    str,
    AfterValidator(
        worded(
            r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?",
            "must be a name of 1 to 64 lower-case letters, digits and inner hyphens, such as 'public'",
        )
    ),
]
Ident = Annotated[
    str,
    AfterValidator(
        worded(
            r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
            "must be a name of 1 to 63 letters, digits, points, hyphens and underscores, such as '2065'",
        )
    ),
]
Duration = Annotated[int, BeforeValidator(_duration), Field(gt=0)]
DurationOrNone = Annotated[int, BeforeValidator(_duration), Field(ge=0)]
"""A duration that may be 0."""
Epsilon = Annotated[Fraction, BeforeValidator(parse_epsilon), PlainSerializer(decimal_string)]
Delta = Annotated[Fraction, BeforeValidator(parse_delta), PlainSerializer(decimal_string)]
Spend = Annotated[Fraction, BeforeValidator(parse_spend), PlainSerializer(decimal_string)]
CLOCK_PATTERN = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00")
Clock = Annotated[str, AfterValidator(worded(CLOCK_PATTERN.pattern, "must be a time of day such as '08:00'"))]
TimeOfDay = Annotated[
    str, AfterValidator(worded("([01][0-9]|2[0-3]):[0-5][0-9]", "must be a time of day below 24:00 such as '04:00'"))
]
Mac = Annotated[
    str,
    AfterValidator(str.lower),
    AfterValidator(worded(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", "must be a radio address such as '5c:52:1e:00:20:65'")),
]


FEWEST_SHARED_BITS = 36
"""A base radio represents at most 4,096 addresses; an access point has a few dozen."""
_BASE_RADIO = re.compile(r"((?:[0-9a-f]{2}:){5}[0-9a-f]{2})/([0-9]{2})")


def base_range(text: str) -> tuple[int, int]:
    """Return the shared first bits of a base radio such as ``24:de:c6:cc:dd:e0/44``, and their number."""
    match = _BASE_RADIO.fullmatch(text)
    bits = int(match[2]) if match else 0
    address = int(match[1].replace(":", ""), 16) if match else 0
    if not FEWEST_SHARED_BITS <= bits < 48 or address & ((1 << 48 - bits) - 1):
        msg = (
            f"must be a radio address and the number of bits that its BSSIDs share, {FEWEST_SHARED_BITS} to 47, with "
            "zeros after these bits, such as '24:de:c6:cc:dd:e0/44'"
        )
        raise ValueError(msg)
    return address >> 48 - bits, bits


def _base_radio(value: Any) -> Any:
    text = value.lower() if isinstance(value, str) else ""
    base_range(text)
    return text


BaseRadio = Annotated[str, BeforeValidator(_base_radio)]


def listed(value: Any) -> Any:
    """Return a single name as a list with one element."""
    return (value,) if isinstance(value, str) else value


class Frozen(BaseModel):
    """A part of the policy: immutable, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


_CLOUD = re.compile(r"cloud:[a-z0-9](?:[a-z0-9-]{0,56}[a-z0-9])?")


def is_cloud(source: str) -> bool:
    """Whether a source is a cloud system, given by a name that the operator chose (``cloud:NAME``), not an address."""
    return _CLOUD.fullmatch(source) is not None


def refuse_repeats(rule: str, values: Any) -> None:
    """Raise ValueError with the rule and the first repeated value."""
    repeated = [value for value, n in Counter(values).items() if n > 1]
    if repeated:
        msg = f"{rule}, got {repeated[0]} twice"
        raise ValueError(msg)
