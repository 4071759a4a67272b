"""CloudEvents headers of private records depend on nothing about people."""

from __future__ import annotations

from functools import cache

import pytest

from connectors.storage.kafka.topics import topic_names
from connectors.storage.kafka.writers import headers_of
from stream.engine.outputs import OutputRecord, in_order
from stream.records import Published, ReleaseId
from stream.schemas import AUDIT, LEAKAGE, QUARANTINE, SNAPSHOT, parse_record
from tests.support.small_building import SITE, building, day_outputs, outputs_of, people

POLICY = building()


CROWD = people()


@cache
def of_crowd() -> tuple[OutputRecord, ...]:
    """Return the private records of the full building."""
    return tuple(private(day_outputs()))


def private(outputs: list[Published]) -> list[OutputRecord]:
    return [each for each in in_order(outputs) if each.topic.startswith("tacet.private.")]


def test_headers_say_what_the_record_says() -> None:
    kinds = set()
    for each in of_crowd():
        record, headers = parse_record(each.value), headers_of(each)
        read = {name: value.decode() for name, value in headers}
        assert list(read) == [
            "content-type", "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "ce_subject",
        ]  # fmt: skip
        assert (read["content-type"], read["ce_specversion"]) == ("application/json", "1.0")
        assert read["ce_id"] == record["release_id"]
        assert read["ce_source"] == f"/tacet/{SITE}"
        assert read["ce_time"] == record["window_end"]
        assert read["ce_subject"] == record["release"]
        assert read["ce_type"] == ("tacet.attribute.v1" if "attribute" in record else "tacet.count.v1")
        kinds.add(read["ce_type"])
    assert kinds == {"tacet.attribute.v1", "tacet.count.v1"}


@pytest.mark.parametrize("topic", [AUDIT, LEAKAGE, QUARANTINE, SNAPSHOT, "tacet.occupancy.v1"])
def test_only_private_records_have_them(topic: str) -> None:
    assert topic in topic_names(POLICY) or topic.endswith("occupancy.v1")
    assert headers_of(OutputRecord(topic, b"dbh", b"{}", 0, True, "7")) == []


def test_revised_values_are_an_event_of_the_window_with_which_they_come() -> None:
    identity = "dbh/occupancy-revised/public/2026-03-02T00:05:00Z/1h"
    topic, value = "tacet.private.public.occupancy-revised.v1", b'{"v":1,"revises":"dbh/occupancy"}'
    headers = dict(headers_of(OutputRecord(topic, b"dbh", value, 1_772_416_800_000, True, identity)))
    assert headers["ce_id"].decode() == identity
    assert headers["ce_time"] == b"2026-03-02T02:00:00Z"
    assert headers["ce_type"] == b"tacet.count.v1"


def test_headers_have_no_shape_that_depends_on_people() -> None:
    """A full building and one that two people have crossed, over the same time: the same headers, byte for byte."""
    full, empty = (
        [(each.topic, each.timestamp_ms, headers_of(each)) for each in records]
        for records in (of_crowd(), private(outputs_of(POLICY, [CROWD[0], CROWD[-1]])))
    )
    assert len(full) > 500
    assert full == empty


def test_headers_of_a_release_and_audience_are_of_one_size() -> None:
    sizes: dict[tuple[str, int], set[int]] = {}
    for each in of_crowd():
        zones = len(ReleaseId.parse(each.id).where)  # of attributes the zone's name is in it
        headers = headers_of(each)
        sizes.setdefault((each.topic, zones), set()).add(sum(len(name) + len(value) for name, value in headers))
    assert all(len(found) == 1 for found in sizes.values())
