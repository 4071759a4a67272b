"""What one message, one message replaced and one device's day cost at a site with sessions, as printed and as attained.

Worst cases go through a connector and the pipeline up to its releases; true counts are read from the restricted topic.
Whatever is printed is an upper bound; where a test says ``==`` it is attained.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import pytest

from connectors.operations.policy.guarantee_figures import guarantee_figures
from connectors.operations.policy.guarantees import guarantee_lines, session_lines
from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.sighting import Kind, Sighting
from stream.pipeline import Options, Pipeline
from stream.records import DAY, HOUR, MINUTE, Micros, Published
from stream.release.count_guarantees import count_guarantees
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy, load_policy
from stream.schemas import OCCUPANCY, parse_record, parse_time
from tests.support.connector_course import heard, sent_by_step
from tests.support.small_building import SITE, access_point, laboratory, mac, policy_text

PLAIN = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
epsilon = { public = "1" }
"""
BY_DAY = """
[[release]]
name = "daily"
query = "count"
mechanism = "laplace"
unit = "device_day"
epsilon = { public = "2" }
"""
BEGINS = parse_time("2026-03-03T00:00:00Z")
"""Of a UTC day; on no tick beside it does the site's privacy day begin."""
ANNE, BEN = (bytes.fromhex(mac(device).replace(":", "")) for device in (0, 1))


def sessions(site: str = "", releases: str = PLAIN, tick: str = "5min") -> Policy:
    text = policy_text(releases=releases, site=f'presence = "sessions"\n{site}', tick=tick)
    return load_policy(text.replace('validity = "10min"\n', ""))


class Word(NamedTuple):
    """One message of a device."""

    time: Micros
    zone: str
    kind: Kind = Kind.ASSOCIATE
    client: bytes = ANNE


Cells = dict[tuple[str, str], int]


@pytest.fixture(autouse=True)
def without_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are looked at before any noise: releases and the account take nine tenths of the time."""
    monkeypatch.setattr(ReleaseStage, "step", lambda _, state, item: (state, []))


def counts(policy: Policy, words: Sequence[Word], *, bounded: bool = False) -> Cells:
    """Return every count of three days around: (window, zone) -> devices."""
    core, cells = Ingest.of_policy(policy, bytes(32)), Cells()
    pipeline = Pipeline(policy, SITE, laboratory(), Options(occupancy=True))
    states, steps = pipeline.initial(), range(BEGINS - DAY, BEGINS + 2 * DAY, MINUTE)
    sightings = [
        heard(time, Sighting(kind, client, bytes.fromhex(access_point(zone).replace(":", ""))))
        for time, zone, kind, client in sorted(words)
    ]
    for _, sent in sent_by_step(core, sightings, steps, grid=MINUTE):
        for message in sent:
            states, out = pipeline.step(states, message)
            for record in out:
                if isinstance(record, Published) and record.topic == OCCUPANCY:
                    body = parse_record(record.value)
                    found = body.get("bounded", {}) if bounded else body["counts"]
                    cells |= {(body["window_end"], zone): n for zone, n in found.items()}
    assert cells
    return cells


def differing(policy: Policy, one: Sequence[Word], other: Sequence[Word], *, bounded: bool = False) -> int:
    mine, others = (counts(policy, words, bounded=bounded) for words in (one, other))
    assert mine.keys() == others.keys()
    return sum(abs(mine[cell] - others[cell]) for cell in mine)


def printed(policy: Policy, unit: str) -> Fraction:
    [units] = [p.units for p in count_guarantees(policy) if p.reader == "public"]
    return Fraction(units[unit])


@pytest.mark.parametrize(("limit", "cells"), [("4h", 96), ("61min", 26), ("12h", 288)])
def test_one_message_attains_what_is_printed_for_it(limit: str, cells: int) -> None:
    policy = sessions(f'session_limit = "{limit}"\n')
    before = [Word(BEGINS - 1, "a")]
    assert differing(policy, [*before, Word(BEGINS, "b")], before) == printed(policy, "observation") == cells


def test_one_message_that_another_replaces_attains_twice_as_many() -> None:
    policy = sessions()
    before = [Word(BEGINS - 1, "a"), Word(BEGINS + 12 * HOUR - 1, "a")]
    here, there = ([*before, Word(time, "b")] for time in (BEGINS, BEGINS + 12 * HOUR))
    assert differing(policy, here, there) == printed(policy, "observation_moved") == 192


def test_an_end_of_a_stay_costs_no_more_than_a_message() -> None:
    policy = sessions()
    stay = [Word(BEGINS - 1, "a")]
    assert differing(policy, [*stay, Word(BEGINS, "a", Kind.LEAVE)], stay) == 48 < printed(policy, "observation")


def test_a_devices_utc_day_attains_what_is_printed_for_it() -> None:
    """It was there the evening before, all day long, and is heard for the last time just before midnight."""
    policy = sessions()
    evening = [Word(BEGINS - 1, "a")]
    day = [Word(BEGINS + at, "b") for at in (*range(0, DAY, 2 * HOUR), DAY - 1)]
    assert differing(policy, [*evening, *day], evening) == printed(policy, "device_day") == 288 + 2 * 48


def test_a_devices_day_that_another_devices_day_replaces_attains_twice_as_many() -> None:
    """Both were there the evening before, in two zones, and either is there all day long in one of the two worlds."""
    policy = sessions()
    evenings = [Word(BEGINS - 1, zone, client=client) for zone, client in (("a", ANNE), ("d", BEN))]
    here, there = (
        [*evenings, *(Word(BEGINS + at, zone, client=client) for at in (*range(0, DAY, 2 * HOUR), DAY - 1))]
        for zone, client in (("b", ANNE), ("c", BEN))
    )
    assert differing(policy, here, there) == printed(policy, "device_day_moved") == 768


def test_another_day_of_the_same_device_costs_less() -> None:
    """At each of its ticks a device is in one place, the evening's included."""
    policy = sessions()
    here, there = ([Word(BEGINS + at, zone) for at in (*range(0, DAY, 2 * HOUR), DAY - 1)] for zone in "bc")
    assert differing(policy, here, there) == 2 * (288 + 48) < printed(policy, "device_day_moved")


@pytest.mark.parametrize("limit", ["4h", "12h"])
def test_with_privacy_days_a_devices_day_changes_what_its_bound_says_and_no_other_day(limit: str) -> None:
    policy = sessions(f'session_limit = "{limit}"\nday_starts = "16:00"\ncontribution = "1d"\n', BY_DAY)
    begins = BEGINS  # 16:00 in Los Angeles
    evening = [Word(begins - 1, "a"), Word(begins, "a")]
    day = [Word(begins + at, "b") for at in (1, *range(2 * HOUR, DAY, 2 * HOUR), DAY)]
    for bounded in (True, False):
        assert differing(policy, [*evening, *day], evening, bounded=bounded) == DAY // (5 * MINUTE)


def test_stays_are_cut_where_the_day_starts_and_wait_for_a_message_of_the_new_day() -> None:
    policy = sessions('day_starts = "16:00"\ncontribution = "1d"\n', BY_DAY)
    found = counts(policy, [Word(BEGINS - HOUR, "a"), Word(BEGINS + HOUR, "a")])
    there = sorted(end for (end, zone), n in found.items() if n and zone == "a")
    assert (there[0], there[12], there[13]) == ("2026-03-02T23:00:00Z", "2026-03-03T00:00:00Z", "2026-03-03T01:00:00Z")


def test_without_privacy_days_a_stay_goes_on_over_midnight_and_counts_once() -> None:
    """Nothing is heard at midnight; then a message under the new name ends the stay under the old one."""
    policy = sessions()
    found = counts(
        policy, [Word(BEGINS - HOUR, "a"), Word(BEGINS + HOUR, "b"), Word(BEGINS + 2 * HOUR, "b", Kind.LEAVE)]
    )
    per_window: dict[str, int] = {}
    for (end, _), n in found.items():
        per_window[end] = per_window.get(end, 0) + n
    assert max(per_window.values()) == 1
    assert sum(per_window.values()) == 36, "three hours, from one message to the last"


# ---- what is said ----------------------------------------------------------------------------------------


def test_a_site_with_sessions_that_pays_by_the_window_says_what_one_message_costs() -> None:
    policy = sessions()
    [line] = session_lines(policy)
    assert line == (
        f"Site {SITE} counts sessions: one message of a device may count for 4 h after it, so it costs up to 96 "
        "epsilons of a release that is paid by the window, and 192 where another message takes its place."
    )
    assert line in guarantee_lines(policy, "public")
    assert line not in guarantee_lines(policy, "board"), "who gets no count pays nothing"
    assert guarantee_figures(policy).to_json()["sessions"] == {SITE: {"session_limit_seconds": 14_400, "windows": 48}}


def test_a_site_that_pays_by_the_day_or_counts_events_does_not_say_it() -> None:
    by_day = sessions('day_starts = "16:00"\ncontribution = "1d"\n', BY_DAY)
    assert not [*session_lines(by_day)]
    events = load_policy(policy_text(releases=PLAIN))
    assert not [*session_lines(events)]
    assert "sessions" not in guarantee_figures(events).to_json()
