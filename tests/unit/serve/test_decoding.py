"""What a released record says, and how much its fields may hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from connectors.records import record_fields
from connectors.records.bands import NoiseDistribution
from connectors.records.decoding import Series, Window, read_record
from stream.errors import DataError
from tests.unit.serve.released_history import MONDAY, TICK, revised, window


def test_a_later_attempt_comes_before_revisions_and_a_days_revision_before_an_hours() -> None:
    ranks = [
        Series("public", "occupancy", "dbh", "occupancy", attempt, revision).rank
        for attempt in (1, 2) for revision in ("", "1h", "1d")
    ]  # fmt: skip
    assert sorted(set(ranks)) == ranks
    assert [rank % 4 for rank in ranks] == [0, 1, 2] * 2, "which tells the history what is revised"


def test_a_revised_record_names_the_release_whose_values_it_has() -> None:
    _, read = read_record(revised(MONDAY + TICK, {"2011": 3}, span="1d"))
    assert isinstance(read, Window)
    assert (read.series.release, read.series.base, read.series.revision) == ("occupancy-revised", "occupancy", "1d")
    with pytest.raises(DataError, match="record: must be a private release"):
        read_record(revised(MONDAY + TICK, {"2011": 3}, span="2d"))


def test_the_noise_of_a_zone_is_one_draw() -> None:
    _, read = read_record(window(MONDAY + TICK, {"2011": 3}, half_width=3.0, scale=1.0))
    assert isinstance(read, Window)
    assert [cell.noise for cell in read.cells] == [NoiseDistribution("laplace", 1.0, 1)]


def test_a_denied_window_has_the_nodes_of_its_noise_and_one_of_people_those_that_it_lists() -> None:
    lists = {"counted": "people", "unknown": ["zone:2011", "building"]}
    for more, nodes in (({}, ("zone:2011", "zone:2065")), (lists, ("zone:2011", "building"))):
        _, read = read_record(window(MONDAY + TICK, None, more=more))
        assert isinstance(read, Window)
        assert (read.nodes, read.cells) == (nodes, ())


def test_a_record_of_another_audience_than_its_id_says_is_refused() -> None:
    other = window(MONDAY + TICK, {"2011": 3}).replace(b'"audience":"public"', b'"audience":"board"')
    with pytest.raises(DataError, match="record: must be a private release"):
        read_record(other)


@pytest.mark.parametrize(
    ("field", "largest", "beyond"),
    [
        (record_fields.count, 10**12, 10**12 + 1),
        (record_fields.count, -(10**12), -(10**12) - 1),
        (record_fields.draws, 10**6, 10**6 + 1),
        (record_fields.draws, 1, 0),
        (record_fields.size, 1e15, math.nextafter(1e15, math.inf)),
        (record_fields.size, 0, -1),
        (record_fields.scale, 1e-9, math.nextafter(1e-9, 0)),
        (record_fields.share, 1, math.nextafter(1, 2)),
        (record_fields.name, "x" * 400, "x" * 401),
        (record_fields.bound, "9999 visits", "10000 visits"),
        (record_fields.bound, "24h", "25h"),
        (record_fields.nano, "9" * 9 + "." + "9" * 30, "1" * 10),
        (record_fields.scalar, 1e15, math.nextafter(1e15, math.inf)),
    ],
)
def test_a_field_holds_so_much_and_no_more(field: Callable[[Any], Any], largest: Any, beyond: Any) -> None:
    field(largest)
    with pytest.raises(ValueError):
        field(beyond)
