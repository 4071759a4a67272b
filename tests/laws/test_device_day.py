"""One device's day, through the pipeline up to releases: how many counts it changes at most, and that this is said."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from stream.records import DAY, MINUTE
from stream.release.count_guarantees import count_guarantees
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy
from stream.schemas import OCCUPANCY, parse_record, parse_time
from tests.support.small_building import SITE, Seen, access_point, building, mac, outputs_of

PLAIN = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
epsilon = { public = "1" }
"""
BEGINS = parse_time("2026-03-03T00:00:00Z")
"""Of the UTC day whose observations are taken away."""
Sighting = tuple[int, str]
"""Time and zone of one device."""


def policy(tick: int, validity: int) -> Policy:
    made = building(releases=PLAIN, tick=f"{tick}min")
    site = made.site[SITE].model_copy(update={"validity": validity * MINUTE})
    return made.model_copy(update={"site": {SITE: site}})


@pytest.fixture(autouse=True)
def without_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are looked at before any noise: releases and the account take nine tenths of the time."""
    monkeypatch.setattr(ReleaseStage, "step", lambda _, state, item: (state, []))


def counts(made: Policy, seen: Sequence[Sighting]) -> dict[tuple[str, str], int]:
    """Return every count of three days around: (window, zone) -> devices."""
    anchors = [Seen(BEGINS + at, mac(1), access_point("d")) for at in (-DAY, 2 * DAY)]
    rows = sorted([*anchors, *(Seen(time, mac(0), access_point(zone)) for time, zone in seen)])
    outputs = outputs_of(made, rows, occupancy=True)
    windows = [parse_record(out.value) for out in outputs if getattr(out, "topic", "") == OCCUPANCY]
    return {(window["window_end"], zone): n for window in windows for zone, n in window["counts"].items()}


def changed(made: Policy, seen: Sequence[Sighting]) -> int:
    """Return how many counts differ without the day's sightings."""
    without = [row for row in seen if not BEGINS <= row[0] < BEGINS + DAY]
    one, other = counts(made, seen), counts(made, without)
    assert one.keys() == other.keys()
    return sum(abs(one[cell] - other[cell]) for cell in one)


def promised(made: Policy) -> Fraction:
    [units] = [p.units for p in count_guarantees(made) if p.reader == "public"]
    return Fraction(units["device_day"])


@pytest.mark.parametrize(("tick", "validity", "cells"), [(5, 10, 292), (1, 60, 1560), (15, 10, 98), (5, 12, 294)])
def test_a_devices_day_changes_as_many_counts_as_promised_when_it_was_there_the_evening_before(
    tick: Any, validity: Any, cells: Any
) -> None:
    made = policy(tick, validity)
    evening = [(BEGINS - 1, "a")]
    day = [(BEGINS + at, "b") for at in range(0, DAY, validity * MINUTE // 2)]
    assert changed(made, [*evening, *day, (BEGINS + DAY - 1, "b")]) == promised(made) == cells


def test_no_sightings_change_more_counts_than_promised() -> None:
    """A search at random for more: it cannot alarm falsely, for the bound is proved."""
    rng = random.Random(7)
    for _ in range(12):
        made = policy(rng.choice((5, 15, 60)), rng.choice((5, 10, 25, 60)))
        edges = [
            BEGINS + rng.choice((0, DAY)) + rng.randrange(-30, 60) * MINUTE + rng.randrange(-1, 2) for _ in "12345"
        ]
        inside = [BEGINS - DAY // 4 + rng.randrange(3 * DAY // 2) for _ in range(rng.choice((5, 80, 400)))]
        seen = [(time, rng.choice("abc")) for time in {*edges, *inside}]
        assert changed(made, seen) <= promised(made)
