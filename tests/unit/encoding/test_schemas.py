"""Times and numbers as records have them, and what is a record."""

from __future__ import annotations

import math

import pytest

from stream.errors import DataError
from stream.records import MINUTE, SECOND
from stream.schemas import is_private, json_float, parse_record, parse_time, private_topic, rfc3339

MOMENT = 1_772_445_900 * SECOND
"""2026-03-02T10:05:00Z"""


@pytest.mark.parametrize(
    ("time", "text"), [(MOMENT, "2026-03-02T10:05:00Z"), (MOMENT + 250_000, "2026-03-02T10:05:00.250000Z")]
)
def test_a_time_is_written_in_utc_and_read_back(time: int, text: str) -> None:
    assert rfc3339(time) == text
    assert parse_time(text) == time


def test_a_time_of_another_zone_is_the_same_instant() -> None:
    assert parse_time("2026-03-02T11:05:00+01:00") == MOMENT
    assert parse_time("2026-03-02T10:05:00.0000009Z") == MOMENT, "less than a microsecond is cut off"
    assert parse_time("1969-12-31T23:59:00Z") == -MINUTE


@pytest.mark.parametrize("text", ["2026-03-02T10:05:00", "2026-03-02", "soon", "", "2026-13-02T10:05:00Z"])
def test_a_time_without_a_zone_or_that_is_none_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="must be an RFC 3339 time with a zone") as refused:
        parse_time(text)
    assert not text or text not in str(refused.value).replace("2026-03-02T10:05:00Z", "")


def test_infinity_is_a_word_and_other_numbers_stay() -> None:
    assert [json_float(each) for each in (math.inf, 1.5, 0.0, None)] == ["inf", 1.5, 0.0, None]


@pytest.mark.parametrize("value", [b"", b"[]", b"null", b'"text"', b"{", b"\xff"])
def test_what_is_no_object_is_no_record(value: bytes) -> None:
    with pytest.raises(DataError, match="record: must be a JSON object"):
        parse_record(value)


def test_topics_of_audiences_are_private_and_those_of_the_engine_are_not() -> None:
    assert private_topic("public", "floors") == "tacet.private.public.floors.v1"
    assert is_private(private_topic("public", "floors"))
    assert not is_private("tacet.audit.v1")
    assert parse_record(b'{"v": 1}') == {"v": 1}
