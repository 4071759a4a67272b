"""Pseudonyms by privacy day: when connectors change them, cut batches, and forget keys."""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from connectors.operations.policy.guarantee_figures import guarantee_figures
from connectors.sources.ingest.ingest import GRID, Ingest
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.recordings.observations import ObservationFile
from stream.pipeline import Pipeline
from stream.policy.privacy_days import PrivacyDays
from stream.pseudonyms.derivation import Pseudonyms, names_by_site
from stream.records import DAY, MINUTE, SECOND, Heartbeat, Micros, ObservationBatch, OccupancyWindow, Rejected, Row
from stream.release.validation import Policy
from stream.schemas import parse_time
from tests.support.day_policies import day_site
from tests.support.small_building import SITE, SOURCES, Seen, access_point, building, laboratory, mac, people, write_csv

KEY = bytes(range(32))
DAILY = day_site()
POLICY = building(site=DAILY)
DAYS = PrivacyDays("04:00", "America/Los_Angeles")
TURN = parse_time("2026-03-03T04:00:00-08:00")
NAMES = names_by_site(POLICY, KEY)[SITE]
ANNE = bytes.fromhex(mac(0).replace(":", ""))
Message = ObservationBatch | Heartbeat


def named(time: Micros, who: bytes = ANNE) -> str:
    return NAMES.name(who, NAMES.epoch(time))


# ---- names ---------------------------------------------------------------------------------------------


def test_a_name_is_of_its_site_and_privacy_day() -> None:
    epoch_key = hmac.new(KEY, b"tacet pseudonym v1 privacy day dbh/2026-03-02", hashlib.sha256).digest()
    assert named(TURN) == hmac.new(epoch_key, ANNE, hashlib.sha256).hexdigest()[:16]


def test_names_change_where_the_privacy_day_starts_and_not_at_midnight() -> None:
    assert named(TURN - DAY + 1) == named(TURN // DAY * DAY) == named(TURN)
    assert named(TURN) != named(TURN + 1) == named(TURN + DAY)


def test_no_name_is_given_at_two_sites_nor_as_that_of_a_utc_day() -> None:
    policy = building(site=DAILY, sites=(SITE, "ics"))
    day = DAYS.at(TURN).number
    names = [*names_by_site(policy, KEY).values(), Pseudonyms.daily(KEY), Pseudonyms.rotating(KEY, DAY)]
    assert len({each.name(ANNE, day) for each in names}) == 4


def test_sites_without_privacy_days_share_names_of_utc_days() -> None:
    policy = building(sites=(SITE, "ics"))
    names = {each.name(ANNE, 20_000) for each in names_by_site(policy, KEY).values()}
    assert names == {Pseudonyms.daily(KEY).name(ANNE, 20_000)}
    assert names_by_site(policy, KEY)[SITE].day(TURN) is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "daily"),
        ({"head": '[pseudonym]\nttl = "1h"\n'}, {"ttl_seconds": 3600}),
        ({"site": DAILY}, {"day_starts": {SITE: "04:00"}}),
    ],
)
def test_what_is_promised_says_when_names_change(changes: dict[str, str], told: Any) -> None:
    policy = building(**changes)
    assert guarantee_figures(policy).to_json()["pseudonyms"] == told


# ---- live ----------------------------------------------------------------------------------------------


class Live:
    """An ingest and its state."""

    def __init__(self, start: Micros) -> None:
        self.core = Ingest.of_policy(POLICY, KEY)
        self.state = self.core.initial(start)

    def hear(self, time: Micros, zone: str = "a", who: bytes = ANNE) -> str | None:
        radio = bytes.fromhex(access_point(zone).replace(":", ""))
        seen = Sighting(Kind.ASSOCIATE, who, radio)
        return self.core.observe(self.state, time, SOURCES[0], SOURCES[0], seen).dropped

    def poll(self, time: Micros) -> list[Message]:
        return self.core.poll(self.state, time)

    def batches(self) -> list[ObservationBatch]:
        return [each for each in self.core.drain(self.state) if isinstance(each, ObservationBatch)]


def test_an_ingest_cuts_its_batch_where_the_day_starts_and_ends_the_old_name_behind_it() -> None:
    live = Live(TURN - MINUTE)
    live.hear(TURN)
    live.hear(TURN + 1)
    before, after = live.batches()
    radio = access_point("a")
    assert (before.epoch, before.rows) == (DAYS.at(TURN), ((named(TURN), radio, TURN),))
    assert after.epoch == DAYS.at(TURN + 1)
    assert after.rows == ((named(TURN), None, TURN + 1), (named(TURN + 1), radio, TURN + 1))
    assert (before.sequence, after.sequence) == (0, 1)


def test_an_ingest_does_not_cut_at_midnight() -> None:
    midnight = TURN // DAY * DAY
    live = Live(midnight - MINUTE)
    for time in (midnight - 1, midnight, midnight + 10 * SECOND):
        live.hear(time, "ab"[time % 2])
    [batch] = live.batches()
    assert {row.device for row in batch.rows} == {named(midnight)}


def test_a_sighting_of_a_new_day_is_never_taken_for_a_copy_of_one_of_the_day_before() -> None:
    live = Live(TURN - MINUTE)
    assert [live.hear(TURN + at) for at in (0, 1, 2)] == [None, None, "collapsed"]


def heard(times: Sequence[tuple[Micros, str]], others: Sequence[tuple[Micros, str, bytes]]) -> list[Row]:
    """Return the rows that an ingest sends of one device, amid others and its own clock."""
    live = Live(TURN - 40 * MINUTE)
    rows: list[Row] = []
    events = sorted([*((time, zone, ANNE) for time, zone in times), *others])
    for time, zone, who in [*events, (TURN + 2 * 60 * MINUTE, "a", b"nobody")]:
        for message in live.poll(time):
            rows += message.rows if isinstance(message, ObservationBatch) else []
        live.hear(time, zone, who)
    mine = {named(TURN), named(TURN + 1)}
    return [row for row in rows if row.device in mine]


@pytest.mark.parametrize("seed", range(12))
def test_what_an_ingest_makes_of_a_device_is_the_same_whoever_else_is_there(seed: int) -> None:
    """Its last sighting and its place are forgotten by the clock, never because others were heard."""
    rng = random.Random(seed)
    mine = [(TURN + rng.randrange(-30 * MINUTE, 30 * MINUTE), rng.choice("ab")) for _ in range(12)]
    mine += [(time + rng.choice([1, 4, 5, 600, 601]) * SECOND, zone) for time, zone in mine]
    others = [
        (time + rng.randrange(-GRID, GRID), rng.choice("abcd"), rng.randbytes(6))
        for time, _ in mine
        for _ in range(rng.randrange(4))
    ]
    assert heard(mine, others) == heard(mine, [])


# ---- recordings ----------------------------------------------------------------------------------------


def played(path: Path, seen: Sequence[Seen], policy: Policy = POLICY) -> list[Message]:
    return list(ObservationFile(write_csv(path, seen), policy, KEY).messages())


def test_a_recording_is_cut_and_named_as_an_ingest_does_it(tmp_path: Path) -> None:
    seen = [Seen(TURN + at, mac(0), access_point("a")) for at in (0, 1)]
    before, after = (each for each in played(tmp_path / "seen.csv", seen) if isinstance(each, ObservationBatch))
    live = Live(TURN - MINUTE)
    for row in seen:
        live.hear(row.time)
    assert [(each.epoch, each.rows) for each in (before, after)] == [(each.epoch, each.rows) for each in live.batches()]


@pytest.mark.parametrize("seed", range(6))
def test_what_a_recording_makes_of_a_device_is_the_same_whoever_else_is_in_it(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    times = [TURN + rng.randrange(-30 * MINUTE, 30 * MINUTE) for _ in range(8)]
    mine = [Seen(TURN - 60 * MINUTE, mac(0), access_point("a"))]
    mine += [Seen(time, mac(0), access_point(rng.choice("ab"))) for time in times]
    others = [
        Seen(time + rng.randrange(-GRID, GRID), mac(rng.randrange(1, 9)), access_point("c")) for time in times * 5
    ]
    found = [
        [
            row
            for each in log
            if isinstance(each, ObservationBatch)
            for row in each.rows
            if row.device in {named(TURN), named(TURN + 1)}
        ]
        for log in (played(tmp_path / "alone.csv", mine), played(tmp_path / "amid.csv", sorted([*mine, *others])))
    ]
    assert found[0] == found[1]
    assert len(found[0]) >= len(mine)


@pytest.mark.parametrize("day_starts", ["04:00", "00:00", "16:15"])
def test_the_engine_takes_every_row_of_a_recording_and_bounds_every_day_of_it(tmp_path: Path, day_starts: str) -> None:
    policy = building(site=DAILY.replace("04:00", day_starts).replace("8h", "30min"))
    log = played(tmp_path / "seen.csv", people(hours=60, devices=8), policy)
    sense = Pipeline(policy, SITE, laboratory()).stages.occupancy
    state, out = sense.initial(), []
    for item in log:
        state, made = sense.step(state, item)
        out += made
    assert not [each for each in out if isinstance(each, Rejected)]
    assert {*state.counters} == {"rows", "accepted"}
    windows = [each for each in out if isinstance(each, OccupancyWindow)]
    by_day: dict[Any, int] = {}
    for window in windows:
        assert window.bounded is not None
        assert all(bounded <= count for bounded, count in zip(window.bounded, window.counts, strict=True))
        by_day[window.privacy_day] = by_day.get(window.privacy_day, 0) + sum(window.bounded)
    assert len(by_day) >= 3
    assert all(one.end == other.start for one, other in pairwise(by_day))
    assert max(by_day.values()) == 8 * 2, "of eight people two windows each"


def test_the_engine_quarantines_what_an_ingest_with_another_time_zone_names(tmp_path: Path) -> None:
    other = building(site=DAILY.replace("04:00", "05:00"))
    sense = Pipeline(POLICY, SITE, laboratory()).stages.occupancy
    state = sense.initial()
    for item in played(tmp_path / "seen.csv", people(hours=20, devices=4), other):
        state, _ = sense.step(state, item)
    assert state.counters["accepted"] == 0
    assert state.counters["epoch"] == state.counters["rows"] > 0
