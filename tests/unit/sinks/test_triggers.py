"""When a webhook is called: not for noise, and not before it is sure."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.sinks.feed import Notes
from connectors.sinks.triggers import Trigger
from tests.support.released_store import count


def reported(trigger: Trigger, *records: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return (window, node, what is said besides) of every event, delivered as they come."""
    notes: Notes = {}
    found = []
    for record in records:
        for event in trigger.events(record, notes):
            output = [event.data[name] for name in ("previous", "side") if name in event.data]
            found.append((event.time[11:16], event.data["node"], *output))
        trigger.note(record, notes)
    return found


def values(*people: int | None, half_width: int = 3) -> list[dict[str, Any]]:
    return [count(n, None if v is None else {"a": v}, half_width=half_width) for n, v in enumerate(people)]


def test_on_every_release_the_record_itself_is_reported_under_its_own_id() -> None:
    record = count(1, None)
    (event,) = Trigger("release").events(record, {})
    assert (event.id, event.type, event.data) == (record["release_id"], "tacet.release", record)


def test_a_change_is_a_value_in_whose_band_the_last_reported_one_lies_no_more() -> None:
    """Half-width 3: 10 is known at first; 13 may be the same, 14 is not; from then on 14 is what is known."""
    found = reported(Trigger("change"), *values(10, 13, 14, 12, 11, 10))
    assert found == [("12:10", "zone:a", 10), ("12:25", "zone:a", 14)]


def test_a_threshold_is_crossed_when_the_whole_band_is_on_its_other_side() -> None:
    """At 20: 16 is below; up to 22 one cannot tell; 23 is above, and stays so until 16."""
    found = reported(Trigger("crossing", 20.0), *values(16, 18, 22, 23, 21, 17, 16, 22))
    assert found == [("12:15", "zone:a", "above"), ("12:30", "zone:a", "below")]


def test_where_it_begins_is_no_crossing_even_if_it_is_unsure_at_first() -> None:
    assert reported(Trigger("crossing", 20.0), *values(20, 30, 30)) == []


@pytest.mark.parametrize("trigger", [Trigger("change"), Trigger("crossing", 20.0)])
def test_denied_late_and_revised_windows_cause_no_event(trigger: Trigger) -> None:
    first, last, late = values(10, None, 40)[0], values(10, None, 11)[2], count(-5, {"a": 90})
    revision = count(3, {"a": 90}, release="occupancy-revised") | {"revises": "x", "lag": 1}
    assert reported(trigger, first, values(10, None)[1], late, revision, last) == []


def test_only_the_nodes_that_are_named_are_reported() -> None:
    records = [count(n, {"a": v, "b": v}) for n, v in enumerate((10, 30))]
    assert reported(Trigger("change", nodes=frozenset({"zone:b"})), *records) == [("12:05", "zone:b", 10)]


def test_an_event_has_the_same_id_and_data_whenever_it_is_reported() -> None:
    """A sink that was killed before it noted what it had delivered."""
    before: Notes = {}
    trigger, (first, second) = Trigger("change"), values(10, 30)
    trigger.note(first, before)
    again = [trigger.events(second, before) for _ in range(2)]
    assert again[0] == again[1]
    assert again[0][0].id == f"{second['release_id']}/zone:a/change"


def test_an_event_says_to_how_much_of_a_day_its_count_is_bounded() -> None:
    notes: Notes = {}
    first, second = (count(n, {"a": v}, bounded_to="2h") for n, v in enumerate((10, 30)))
    Trigger("change").note(first, notes)
    (event,) = Trigger("change").events(second, notes)
    assert event.data["bounded_to"] == "2h"
