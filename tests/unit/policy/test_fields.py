"""Values of a policy at their bounds: what is accepted, and what the rule says of the next value."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from stream.policy.fields import (
    base_range,
    parse_amount,
    parse_delta,
    parse_duration,
    parse_epsilon,
    parse_spend,
)
from stream.records import DAY, MINUTE

ACCEPTED: list[tuple[Callable[[Any], object], str, object]] = [
    (parse_epsilon, "100", Fraction(100)),
    (parse_epsilon, "0.000000001", Fraction(1, 10**9)),
    (parse_epsilon, "1e-9", Fraction(1, 10**9)),
    (parse_spend, "9999999999999", Fraction(9999999999999)),
    (parse_amount, "0", Fraction(0)),
    (parse_amount, "28.8", Fraction(144, 5)),
    (parse_delta, "0.01", Fraction(1, 100)),
    (parse_delta, "1e-10", Fraction(1, 10**10)),
    (parse_duration, "3660d", 3660 * DAY),
    (parse_duration, "090 min", 90 * MINUTE),
    (base_range, "24:de:c6:cc:dd:e0/44", (0x24DEC6CCDDE, 44)),
    (base_range, "24:de:c6:cc:d0:00/36", (0x24DEC6CCD, 36)),
    (base_range, "24:de:c6:cc:dd:fe/47", (0x24DEC6CCDDFE >> 1, 47)),
]
REFUSED: list[tuple[Callable[[Any], object], Any, str]] = [
    (parse_epsilon, "100.000000001", "must be at most 100"),
    (parse_epsilon, "0", "must be a positive decimal"),
    (parse_epsilon, "-1", "must be a positive decimal"),
    (parse_epsilon, "nan", "must be a positive decimal"),
    (parse_epsilon, 1, "must be a positive decimal"),
    (parse_epsilon, "0.0000000001", "at most nine decimals"),
    (parse_spend, "1.0000000001", "at most nine decimals"),
    (parse_spend, "1e999999999", "be below 10000000000000"),
    (parse_amount, "1e3", "without an exponent"),
    (parse_amount, "-1", "without an exponent"),
    (parse_delta, "0.010000001", "from '1e-10' to '0.01'"),
    (parse_delta, "0.9e-10", "from '1e-10' to '0.01'"),
    (parse_delta, 1e-6, "from '1e-10' to '0.01'"),
    (parse_duration, "3661d", "must be at most 3660d"),
    (parse_duration, "5", "must be a duration"),
    (base_range, "24:de:c6:cc:dd:e1/44", "zeros after these bits"),
    (base_range, "24:de:c6:cc:c0:00/35", "36 to 47"),
    (base_range, "24:de:c6:cc:dd:e0/48", "36 to 47"),
]


@pytest.mark.parametrize(("read", "text", "value"), ACCEPTED)
def test_a_value_within_its_bounds_is_read_exactly(read: Callable[[Any], object], text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(("read", "text", "rule"), REFUSED)
def test_a_value_beyond_its_bounds_is_refused_by_its_rule(read: Callable[[Any], object], text: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        read(text)
