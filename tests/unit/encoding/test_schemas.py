"""Times and numbers as records have them, and what is a record."""

from __future__ import annotations

import math

import pytest

from stream.errors import DataError
from stream.records import MINUTE, SECOND
from stream.schemas import (
    RECORD_KINDS,
    AttributeRecord,
    CountRecord,
    event_type,
    is_private,
    json_float,
    parse_record,
    parse_time,
    private_topic,
    record_kind,
    rfc3339,
)

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


ATTRIBUTE = AttributeRecord(
    release_id="dbh/day/board/2026-03-02/2065/arrival", site="dbh", audience="board", release="day",
    window_start="2026-03-02T00:00:00Z", window_end="2026-03-03T00:00:00Z", day="2026-03-02", zone="2065",
    attribute="arrival", released=False, reason=None, mechanism="osdprr", epsilon="1", spend="1", coverage=1.0,
    policy_version="p", laboratory=False,
)  # fmt: skip


def test_a_record_is_written_with_its_version_and_the_fields_that_were_given() -> None:
    written = parse_record(ATTRIBUTE.to_bytes())
    assert (written["v"], next(iter(written)), "value" in written) == (1, "v", False)
    assert parse_record(ATTRIBUTE.showing("09:05").to_bytes())["value"] == "09:05"
    assert parse_record(ATTRIBUTE.showing(None).to_bytes())["value"] is None


def test_a_record_without_a_lag_is_no_revision() -> None:
    assert (CountRecord.model_fields["lag"].default, CountRecord.model_fields["revises"].default) == (0, "")


def test_the_kind_of_a_private_record_follows_from_a_field_that_no_other_has() -> None:
    fields = {
        "attribute": "attribute", "above": "threshold", "band": "people", "forecast": "forecast", "values": "count",
    }  # fmt: skip
    assert {name: record_kind({name: None}) for name in fields} == fields
    assert set(fields.values()) == set(RECORD_KINDS)
    assert event_type("people") == "tacet.people.v1"
