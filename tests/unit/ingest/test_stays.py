"""Stays that a source ends, and events that a source dates back."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.sources.ingest.ingest import (
    CLOCKS_APART,
    COLLAPSED,
    MOST_AGE,
    NO_STAY,
    WRONG_TIME,
    Ingest,
    Outcome,
    SiteLimits,
)
from connectors.sources.ingest.sighting import Kind, Sighting
from stream.policy.privacy_days import PrivacyDays
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, MINUTE, SECOND, Micros, ObservationBatch, Row

NAMES = Pseudonyms.daily(bytes(range(32)))
LOBBY, LOBBY_TOO, ROOM = ("5c:52:1e:00:00:0" + n for n in "123")
WEST, EAST = "10.2.0.5", "10.2.0.6"
NOON = 17_563 * DAY + 12 * 60 * MINUTE
MIDNIGHT = NOON + DAY // 2
ANNE = bytes.fromhex("3c0000000001")
NAME = NAMES.name(ANNE, NOON // DAY)


class Connector:
    """A core with its state."""

    def __init__(self, lateness: Micros = 30 * SECOND, start: Micros = NOON) -> None:
        self.core = Ingest(
            access_points={LOBBY: ("dbh", "lobby"), LOBBY_TOO: ("dbh", "lobby"), ROOM: ("dbh", "room")},
            sites={"dbh": SiteLimits((WEST, EAST), 10 * MINUTE, 100, NAMES, lateness)},
        )
        self.state = self.core.initial(start)

    def hear(self, time: Micros, kind: Kind = Kind.RUN, radio: str = LOBBY, source: str = WEST, **more: Any) -> Outcome:
        seen = Sighting(kind, ANNE, bytes.fromhex(radio.replace(":", "")), **({"session": b"1"} | more))
        return self.core.observe(self.state, time, source, source, seen)

    def leave(self, time: Micros, **more: Any) -> str | None:
        return self.hear(time, Kind.LEAVE, **more).dropped

    def rows(self) -> list[Row]:
        batches = self.core.drain(self.state)
        return [row for batch in batches if isinstance(batch, ObservationBatch) for row in batch.rows]


# ---- who may end a stay ----------------------------------------------------------------------------------


def test_a_stop_ends_the_stay_of_its_own_session_and_access_point() -> None:
    c = Connector()
    c.hear(NOON)
    assert c.leave(NOON + MINUTE) is None
    assert c.rows() == [(NAME, LOBBY, NOON), (NAME, None, NOON + MINUTE)]
    assert c.leave(NOON + MINUTE) == NO_STAY, "once"


@pytest.mark.parametrize(
    "other",
    [{"session": b"2"}, {"session": b""}, {"radio": LOBBY_TOO}, {"radio": ROOM}, {"source": EAST}],
    ids=["session", "no session", "radio", "zone", "source"],
)
def test_no_other_stop_ends_it(other: dict[str, Any]) -> None:
    c = Connector()
    c.hear(NOON)
    assert c.leave(NOON + MINUTE, **other) == NO_STAY
    assert len(c.rows()) == 1


def test_a_stop_that_comes_after_the_device_has_gone_elsewhere_ends_nothing() -> None:
    c = Connector()
    c.hear(NOON)
    c.hear(NOON + MINUTE, radio=ROOM, session=b"2")
    assert c.leave(NOON + MINUTE + SECOND) == NO_STAY
    assert c.leave(NOON + 2 * MINUTE, radio=ROOM, session=b"2") is None


def test_a_sighting_without_a_session_is_no_stay_that_a_stop_could_end() -> None:
    c = Connector()
    c.hear(NOON, session=b"")
    assert c.leave(NOON + MINUTE, session=b"") == NO_STAY


def test_a_session_that_begins_within_the_collapse_is_not_ended_by_the_stop_of_the_one_before() -> None:
    c = Connector()
    c.hear(NOON)
    assert c.hear(NOON + 2 * SECOND, session=b"2").dropped == COLLAPSED
    assert c.leave(NOON + 3 * SECOND) == NO_STAY
    assert c.leave(NOON + MINUTE, session=b"2") is None


def test_a_device_that_left_and_came_back_at_once_is_seen_again() -> None:
    c = Connector()
    c.hear(NOON)
    c.leave(NOON + SECOND)
    assert c.hear(NOON + 2 * SECOND, session=b"2").dropped is None


def test_a_stop_of_a_stay_that_is_over_anyway_ends_nothing() -> None:
    c = Connector()
    c.hear(NOON)
    assert c.leave(NOON + 10 * MINUTE + 1) == NO_STAY


def test_a_stop_after_midnight_ends_both_names() -> None:
    c = Connector(start=MIDNIGHT - MINUTE)
    c.hear(MIDNIGHT - MINUTE)
    assert c.leave(MIDNIGHT + MINUTE) is None
    old, new = (NAMES.name(ANNE, MIDNIGHT // DAY + n) for n in (-1, 0))
    assert c.rows()[1:] == [(old, None, MIDNIGHT + MINUTE), (new, None, MIDNIGHT + MINUTE)]


# ---- when it happened ------------------------------------------------------------------------------------


def test_an_event_is_dated_back_by_its_age_but_no_further_than_lateness_nor_a_minute() -> None:
    for lateness, age, back in (
        (30 * SECOND, 7 * SECOND, 7 * SECOND),
        (30 * SECOND, 30 * SECOND, 30 * SECOND),
        (10 * SECOND, 20 * SECOND, 10 * SECOND),
        (0, 20 * SECOND, 0),
        (10 * MINUTE, 59 * SECOND, 59 * SECOND),
        (30 * SECOND, -20 * SECOND, 0),
    ):
        c = Connector(lateness)
        c.hear(NOON, age=age)
        assert c.rows() == [(NAME, LOBBY, NOON - back)]


@pytest.mark.parametrize(
    ("lateness", "age"),
    [
        (30 * SECOND, 30 * SECOND + 1),
        (0, CLOCKS_APART + 1),
        (10 * MINUTE, MOST_AGE + 1),
        (30 * SECOND, -CLOCKS_APART - 1),
        (30 * SECOND, 365 * DAY),
    ],
)
def test_what_is_said_to_be_older_or_to_come_is_refused_as_what_it_is(lateness: Micros, age: Micros) -> None:
    c = Connector(lateness)
    assert c.hear(NOON, age=age).dropped == WRONG_TIME
    assert c.leave(NOON, age=age) == WRONG_TIME
    assert c.rows() == []


def test_a_stop_is_never_before_the_last_sighting_of_its_stay() -> None:
    c = Connector()
    c.hear(NOON)
    assert c.leave(NOON + SECOND, age=20 * SECOND) is None
    assert c.rows() == [(NAME, LOBBY, NOON), (NAME, None, NOON)]


def test_an_event_from_before_midnight_does_not_bring_an_earlier_name_back() -> None:
    """Nobody may be counted under two names: it is dated at the beginning of the newer one."""
    c = Connector(start=MIDNIGHT - MINUTE)
    c.hear(MIDNIGHT + SECOND)
    c.hear(MIDNIGHT + 2 * SECOND, radio=ROOM, age=10 * SECOND)
    old, new = (NAMES.name(ANNE, MIDNIGHT // DAY + n) for n in (-1, 0))
    assert c.rows()[-2:] == [(old, None, MIDNIGHT), (new, ROOM, MIDNIGHT)]


def test_an_event_that_is_dated_back_before_another_leaves_that_one_the_last() -> None:
    c = Connector()
    c.hear(NOON, radio=ROOM, session=b"2")
    c.hear(NOON + SECOND, age=20 * SECOND)
    assert c.leave(NOON + MINUTE) == NO_STAY
    assert c.leave(NOON + MINUTE, radio=ROOM, session=b"2") is None


@pytest.mark.parametrize(
    "names",
    [
        NAMES,
        Pseudonyms.rotating(bytes(32), 7 * MINUTE),
        Pseudonyms.by_privacy_day(bytes(32), "dbh", PrivacyDays("04:00", "America/Los_Angeles")),
    ],
    ids=["daily", "rotating", "by privacy day"],
)
@pytest.mark.parametrize("at", [0, 1, 5 * MINUTE, 11 * 60 * MINUTE, 12 * 60 * MINUTE, 19 * 60 * MINUTE])
def test_an_epoch_begins_at_its_first_instant(names: Pseudonyms, at: Micros) -> None:
    first = names.begin(NOON + at)
    assert first <= NOON + at
    assert names.epoch(first) == names.epoch(NOON + at) != names.epoch(first - 1)
