"""Sessions, connector and engine together: who is counted, for how long, and how much one message can change.

Messages, ends of stays and their loss are drawn from fixed seeds, so no test can alarm falsely. Connectors and engines
begin anew now and then, over midnight UTC, when pseudonyms change.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from connectors.sources.ingest.sighting import Kind
from stream.records import MINUTE, SECOND
from tests.support.session_worlds import (
    BEGIN,
    CLIENTS,
    END,
    LIMIT,
    RADIOS,
    SITES,
    TICK,
    UNLISTED,
    ZONES,
    Course,
    Heard,
    Windows,
    counted,
    differing,
    drawn,
    drawn_course,
    heard,
    server_restarts,
)

MOST = 2 * LIMIT // TICK
"""Counts of a site that one message can change where it is added or removed."""
QUIET = Course(dict.fromkeys(("10.2.0.5", "10.2.0.6"), ()), ())


def expected(messages: list[Heard], sites: tuple[str, ...] = SITES) -> Windows:
    """Count each device where its last message put it, unless it left that access point since or the limit is over.

    Messages come at once, and each device stays in one site.
    """
    found = Windows()
    for site in sites:
        for tick in range(BEGIN, END + LIMIT + 2 * TICK, TICK):
            counts = Counter[str]()
            for client in CLIENTS:
                radio, since = "", 0
                for each in messages:
                    if each.client == client and each.came <= tick:
                        if each.kind is not Kind.LEAVE:
                            radio, since = each.radio, each.came
                        elif each.radio == radio:
                            radio = ""
                if radio and RADIOS[radio][0] == site and tick < since + LIMIT:
                    counts[RADIOS[radio][1]] += 1
            found[site, tick] = tuple(counts[zone] for zone in ZONES)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_everybody_is_counted_once_where_the_last_message_puts_them(seed: int) -> None:
    rng = random.Random(seed)
    mine = [each for each in drawn(rng, late=False) if RADIOS[each.radio][0] == SITES[0]]
    mine = list({(each.came, each.client): each for each in mine}.values())  # of one moment the order is the source's
    found, truth = counted(mine, drawn_course(rng)), expected(mine)
    assert found == {key: truth[key] for key in found}
    assert sum(map(sum, found.values())) > 20


@pytest.mark.parametrize(
    ("seed", "taken"),
    [*((seed, 10) for seed in range(3)), *(pytest.param(seed, 25, marks=pytest.mark.long) for seed in range(12))],
)
def test_one_message_changes_counts_until_the_limit_and_no_more_of_them_than_promised(seed: int, taken: int) -> None:
    """Messages come late and out of order, go to other sites and to nowhere; access servers restart."""
    rng = random.Random(100 + seed)
    messages, restarts, course = drawn(rng), server_restarts(rng), drawn_course(rng)
    whole, most = counted([*messages, *restarts], course), 0
    for place in rng.sample(range(len(messages)), taken):
        removed = messages[place]
        changed = differing(whole, counted([*messages[:place], *messages[place + 1 :], *restarts], course))
        for site in SITES:
            ticks = [tick for where, tick in changed if where == site]
            assert len(ticks) <= MOST
            assert all(removed.came - removed.age <= tick < removed.came + LIMIT for tick in ticks)
            most = max(most, len(ticks))
    assert most > 0


@pytest.mark.parametrize("seed", range(6))
def test_nobody_is_counted_for_longer_than_the_limit_whatever_is_lost(seed: int) -> None:
    rng = random.Random(200 + seed)
    messages, course = drawn(rng), drawn_course(rng)
    left = [each for each in [*messages, *server_restarts(rng)] if rng.random() < 0.7]
    for (_, tick), counts in counted(left, course).items():
        placing = (each for each in left if each.kind is Kind.ASSOCIATE and each.radio != UNLISTED)
        alive = {each.client for each in placing if each.came - each.age <= tick < each.came + LIMIT}
        assert sum(counts) <= len(alive)


def test_a_message_attains_what_it_can_change() -> None:
    """It ends a stay that would have lasted as long, and begins one elsewhere."""
    at, (lobby, room) = BEGIN + 2 * TICK, (radio for radio in RADIOS if radio[-1] in "02")
    before = [heard(at - 1, CLIENTS[0], lobby)]
    added = counted([*before, heard(at, CLIENTS[0], room)], QUIET)
    assert len(differing(added, counted(before, QUIET))) == MOST
    later = at + 2 * LIMIT
    before += [heard(later - 1, CLIENTS[0], lobby)]
    there, then = ([*before, heard(when, CLIENTS[0], room)] for when in (at, later))
    assert len(differing(counted(there, QUIET), counted(then, QUIET))) == 2 * MOST, "replaced by another message"


def test_a_late_end_of_an_earlier_stay_ends_nothing_and_one_of_the_last_stay_does() -> None:
    at, (one, other) = BEGIN + 2 * TICK, (radio for radio in RADIOS if radio[-1] in "02")
    came = [heard(at, CLIENTS[0], one), heard(at + MINUTE, CLIENTS[0], other)]
    stop = heard(at + 6 * MINUTE, CLIENTS[0], one, Kind.LEAVE)
    assert not differing(counted([*came, stop], QUIET), counted(came, QUIET))
    went = heard(at + 6 * MINUTE, CLIENTS[0], other, Kind.LEAVE)
    assert differing(counted([*came, went], QUIET), counted(came, QUIET)) == [
        (SITES[0], at + n * TICK) for n in range(2, 1 + LIMIT // TICK)
    ]


def test_an_interim_after_its_stop_opens_again() -> None:
    at, radio = BEGIN + 2 * TICK, next(iter(RADIOS))
    came, stop = heard(at, CLIENTS[0], radio), heard(at + MINUTE, CLIENTS[0], radio, Kind.LEAVE)
    interim = heard(at + 2 * MINUTE, CLIENTS[0], radio)
    found = counted([came, stop, interim], QUIET)
    assert [sum(found[SITES[0], at + n * TICK]) for n in range(6)] == [1, 1, 1, 1, 1, 0]


def test_a_restart_of_an_access_server_ends_its_stays_and_no_others() -> None:
    at, (one, other) = BEGIN + 2 * TICK, (radio for radio in RADIOS if radio[-1] in "04")
    here, there = heard(at, CLIENTS[0], one), heard(at, CLIENTS[1], other)
    restart = Heard(at + MINUTE, here.source, Kind.RESTART, nas=here.nas)
    found = counted([here, there, restart], QUIET)
    assert [[sum(found[site, at + n * TICK]) for n in range(2)] for site in SITES] == [[1, 0], [1, 1]]


@pytest.mark.parametrize("late", [2, 20 * SECOND])
def test_a_message_from_before_a_restart_that_comes_after_it_is_ended_too(late: int) -> None:
    at, radio = BEGIN + 2 * TICK, next(iter(RADIOS))
    restart = Heard(at + late // 2, heard(at, CLIENTS[0], radio).source, Kind.RESTART, nas=b"one")
    found = counted([restart, heard(at + late, CLIENTS[0], radio, age=late)], QUIET)
    assert [sum(found[SITES[0], at + n * TICK]) for n in range(2)] == [1, 0]


@pytest.mark.parametrize("away", [UNLISTED, "5c:52:1e:00:00:04"])
def test_who_goes_to_another_site_or_to_where_no_site_is_is_gone_here(away: str) -> None:
    at, radio = BEGIN + 2 * TICK, "5c:52:1e:00:00:00" if away != UNLISTED else "5c:52:1e:00:00:01"
    found = counted([heard(at, CLIENTS[0], radio), heard(at + MINUTE, CLIENTS[0], away)], QUIET)
    assert [sum(found[SITES[0], at + n * TICK]) for n in range(2)] == [1, 0]
    assert sum(found[SITES[1], at + TICK]) == (away != UNLISTED)


def test_a_late_stop_of_an_earlier_session_at_the_same_access_point_ends_the_stay_until_the_next_message() -> None:
    """As docs/sources.md says: session ids decide nothing, so no chain of sessions carries a message further."""
    radio, client = next(iter(RADIOS)), CLIENTS[0]
    begun = BEGIN + 4 * MINUTE
    messages = [heard(begun + minutes * MINUTE, client, radio, kind) for minutes, kind in (
        (0, Kind.ASSOCIATE), (2, Kind.ASSOCIATE), (3, Kind.LEAVE), (12, Kind.RUN),
    )]  # fmt: skip
    found = {tick - BEGIN: sum(counts) for (site, tick), counts in counted(messages, QUIET).items() if site == "dbh"}
    assert [found[minutes * MINUTE] for minutes in (5, 10, 15, 20)] == [1, 0, 0, 1]
