"""Sets of attributes in which one value implies another."""

import itertools
from typing import Any

import pytest

from stream.policy.attributes import ATTRIBUTES, AttributeRelease, DayShape
from stream.policy.sites import Site
from stream.release.attribute_guarantees import implications

SITE = Site.model_validate(
    {
        "sources": ["10.0.0.1"],
        "zones": [{"id": "a", "capacity": 1, "access_points": ["02:00:00:00:00:01"]}],
    }
)


def release(**sensitive: dict[str, object]) -> AttributeRelease:
    attributes = {name: {"epsilon": {"a": "1"}, "sensitive": rule} for name, rule in sensitive.items()}
    return AttributeRelease.model_validate({"name": "r", "query": "attributes", "attributes": attributes})


def test_late_arrival_that_may_be_shown_proves_a_low_level() -> None:
    found = list(implications(SITE, release(arrival={"before": "07:00"}, occupancy_level={"below": 0.3})))
    assert ("arrival", "15:05", "occupancy_level") in found


def test_each_of_two_attributes_can_prove_the_other_sensitive() -> None:
    found = list(implications(SITE, release(departure={"after": "20:00"}, arrival={"before": "12:00"})))
    assert [(f.shown, f.value, f.hidden) for f in found] == [
        ("departure", "00:00", "arrival"),
        ("arrival", "20:05", "departure"),
    ]


def test_usual_office_rules_give_nothing_away() -> None:
    rules = release(
        arrival={"after": "10:00"},
        departure={"before": "16:00"},
        breaks={"above": 2},
        occupancy_level={"below": 0.3},
    )
    assert list(implications(SITE, rules)) == []


def attributes_of(occupied: list[int], day: DayShape) -> dict[str, int]:
    gaps = [later - earlier - 1 for earlier, later in itertools.pairwise(occupied)]
    return {
        "arrival": occupied[0],
        "departure": occupied[-1],
        "breaks": sum(gap >= day.empty for gap in gaps),
        "occupancy_level": sum(day.begins <= tick < day.ends for tick in occupied),
    }


@pytest.mark.parametrize(
    "day",
    [
        DayShape(12, 4, 9, 1),
        DayShape(12, 0, 6, 2),
        DayShape(12, 3, 12, 3),
        DayShape(11, 4, 8, 3),
        DayShape(12, 5, 6, 2),
    ],
)
def test_reach_is_what_some_day_has_for_every_small_day(day: Any) -> None:
    """Every set of occupied ticks of a small day; a reach may not be too small or too large at its ends."""
    seen: dict[tuple[str, int, str], set[int]] = {}
    for mask in range(1, 1 << day.ticks):
        found = attributes_of([tick for tick in range(day.ticks) if mask >> tick & 1], day)
        for shown, hidden in itertools.permutations(found, 2):
            seen.setdefault((shown, found[shown], hidden), set()).add(found[hidden])
    for (shown, number, hidden), numbers in seen.items():
        logic = ATTRIBUTES[shown].logic
        assert logic is not None
        low, high = logic.reach[hidden](day, number)
        assert (low, high) == (min(numbers), max(numbers)), (shown, number, hidden)
