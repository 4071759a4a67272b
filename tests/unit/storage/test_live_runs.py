"""Live runs: a recording cut to a range of windows, and an end on request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.runtime.clock import CLOCK_STEP
from connectors.runtime.signals import within
from connectors.sources.ingest.ingest import Ingest
from connectors.sources.recordings.observations import ObservationFile
from connectors.sources.snmp.sender import Association, encode_associate
from connectors.sources.snmp.traps import decode
from connectors.storage.embedded.reader import read_topic
from connectors.storage.embedded.runner import (
    FileSink,
    LiveSink,
    embedded,
    newest_session,
    next_windows,
    refuse_clock_behind,
    refuse_older,
    sensing_counters,
)
from stream.errors import UsageError
from stream.pipeline import DEFAULTS, Options, Pipeline
from stream.records import DAY, MINUTE, SECOND, Heartbeat, ObservationBatch, Published, Row
from stream.release.validation import Policy, load_policy
from stream.runners.embedded import Embedded
from stream.schemas import AUDIT, LEAKAGE, QUARANTINE, parse_record, rfc3339
from stream.sensing.occupancy import WINDOWS_AT_ONCE
from tests.support.patience import PATIENCE, waiting_for
from tests.support.small_building import (
    ATTRIBUTES,
    COUNTS,
    EVENING,
    SITE,
    access_point,
    laboratory,
    people,
    policy_text,
    run,
    write_csv,
)
from tests.support.virtual_loop import run_virtually, virtual_loop

HOUR = 60 * MINUTE
OTHER = f"{SITE}1"
RELEASES = COUNTS.split('[[release]]\nname = "smooth"', maxsplit=1)[0] + ATTRIBUTES


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("rows") / "rows.csv", people(hours=30, devices=8, sites=2))


def private(policy: Policy, site: str, log: Any, options: Options = DEFAULTS) -> list[Published]:
    """Return what a site publishes of a log."""
    made = run(Pipeline(policy, site, laboratory(), options), [item for item in log if item.site == site])
    return [out for out in made if isinstance(out, Published) and out.topic != LEAKAGE]


def log_of(file: Path, policy: Policy, first: int | None = None, last: int | None = None) -> Any:
    return ObservationFile(file, policy, bytes(32), since=first, until=last).messages()


@pytest.mark.parametrize(
    ("first", "last", "lateness"),
    [
        (EVENING + 14 * HOUR, None, "30s"),
        pytest.param(None, EVENING + 16 * HOUR, "20min", marks=pytest.mark.long),
        (EVENING + 14 * HOUR, EVENING + 16 * HOUR, "20min"),
        (EVENING + 14 * HOUR, EVENING + 14 * HOUR, "30s"),
        pytest.param(EVENING + 2 * HOUR, EVENING + 29 * HOUR, "30s", marks=pytest.mark.long),
        (EVENING + 80 * HOUR, None, "30s"),
    ],
)
def test_a_file_cut_to_its_windows_gives_what_a_replay_of_these_windows_gives(
    file: Path, first: int | None, last: int | None, lateness: str
) -> None:
    text = policy_text(RELEASES, sites=(SITE, f"{SITE}1")).replace('lateness = "30s"', f'lateness = "{lateness}"')
    policy = load_policy(text)
    cut = list(log_of(file, policy, first, last))
    made = 0
    for site in policy.site:
        whole = log_of(file, policy, last=last)  # as replay reads it
        wanted = private(policy, site, whole, Options(first_window=first, last_window=last))
        assert private(policy, site, cut) == wanted
        made += len(wanted)
    assert made or first == EVENING + 80 * HOUR


def test_rows_that_no_window_can_hold_are_not_sent(file: Path) -> None:
    policy = load_policy(policy_text(sites=(SITE, f"{SITE}1")))
    first, last = EVENING + 14 * HOUR, EVENING + 16 * HOUR
    cut = list(log_of(file, policy, first, last))
    times = [row.time for item in cut if isinstance(item, ObservationBatch) for row in item.rows]
    assert first - 10 * MINUTE < min(times) < first
    assert last - 30 * MINUTE < max(times) <= last
    marks = [item.watermark for item in cut if isinstance(item, Heartbeat)]
    assert (min(marks), max(marks)) == (first, last + 30 * SECOND + 1)


# --- ending ------------------------------------------------------------------------------------------------


async def test_work_that_hangs_is_waited_for_only_so_long_once_it_is_told_to_stop() -> None:
    stop = asyncio.Event()
    stop.set()

    async def hanging() -> None:
        await asyncio.Event().wait()

    async with waiting_for("the end of work that hangs"):
        assert not await within(0.05, hanging(), stop)
        assert await within(PATIENCE, asyncio.sleep(0.01), stop)


async def test_work_is_waited_for_as_long_as_nobody_says_stop() -> None:
    assert await within(0.001, asyncio.sleep(0.1), asyncio.Event())


async def test_what_fails_in_the_work_comes_out() -> None:
    async def fail() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await within(1.0, fail(), asyncio.Event())


# --- the clock and the store -----------------------------------------------------------------------------------


@pytest.fixture
def ahead(tmp_path: Path) -> Iterator[Embedded]:
    """A store of two sites, at one of which the last process had its clock 90 s ahead of ``EVENING``."""
    policy = load_policy(policy_text(RELEASES, sites=(SITE, OTHER)))
    key_files.create(tmp_path / "key", laboratory=True)
    with embedded(policy, tmp_path / "key", tmp_path / "store") as runner:
        for source in policy.site[SITE].sources:
            runner.process(Heartbeat(SITE, source, EVENING + 80 * SECOND, EVENING + 90 * SECOND, EVENING + 80 * SECOND))
        yield runner


def test_a_clock_behind_what_the_store_has_reached_is_refused_with_both_times(ahead: Embedded) -> None:
    with pytest.raises(UsageError) as refusal:
        refuse_clock_behind(ahead, EVENING, CLOCK_STEP)
    assert rfc3339(EVENING) in str(refusal.value)
    assert f"site {SITE} has reached {rfc3339(EVENING + 90 * SECOND)}" in str(refusal.value)


def test_a_clock_a_few_seconds_behind_the_store_goes_on_in_a_session_of_its_own(ahead: Embedded) -> None:
    now = EVENING + 85 * SECOND
    refuse_clock_behind(ahead, now, CLOCK_STEP)
    refuse_clock_behind(ahead, EVENING + 95 * SECOND, CLOCK_STEP)
    with pytest.raises(UsageError, match="clock: must not be behind the store"):
        refuse_clock_behind(ahead, now - 1, CLOCK_STEP)
    assert newest_session(ahead) == EVENING + 80 * SECOND


def test_a_session_ahead_of_the_clock_is_refused_too_although_nothing_has_come_so_far(ahead: Embedded) -> None:
    ahead.process(ObservationBatch(SITE, ahead.partition.policy.site[SITE].sources[0], EVENING + 900 * SECOND, 0, ()))
    with pytest.raises(UsageError, match=f"site {SITE} has reached {rfc3339(EVENING + 900 * SECOND)}"):
        refuse_clock_behind(ahead, EVENING + 100 * SECOND, CLOCK_STEP)


def begun(runner: Embedded, site: str, session: int, *, number: int = 0) -> None:
    """Let one of a site's sources begin a session, and say that it has nothing before it."""
    source = runner.partition.policy.site[site].sources[number]
    runner.process(Heartbeat(site, source, session, session, session))


def test_the_next_session_begins_after_those_of_all_sites(ahead: Embedded) -> None:
    begun(ahead, OTHER, EVENING - HOUR)
    assert newest_session(ahead) == EVENING + 80 * SECOND
    begun(ahead, OTHER, EVENING + HOUR)
    assert newest_session(ahead) == EVENING + HOUR


def test_a_file_that_begins_before_the_newest_session_of_any_source_is_refused(ahead: Embedded) -> None:
    newest = EVENING + 2 * MINUTE
    begun(ahead, SITE, newest, number=1)
    refuse_older(ahead, Path("rows.csv"), newest)
    with pytest.raises(
        UsageError, match=f"rows.csv: begins before the last window of site {SITE}, .* would be dropped"
    ):
        refuse_older(ahead, Path("rows.csv"), newest - 1)


def test_a_site_goes_on_with_the_window_after_the_last_that_it_has_closed(ahead: Embedded) -> None:
    assert next_windows(ahead) == {SITE: EVENING + 15 * MINUTE}


def test_what_is_accepted_after_the_clock_was_set_back_a_little_counts(ahead: Embedded) -> None:
    policy = ahead.partition.policy
    now = EVENING + 88 * SECOND
    core = Ingest.of_policy(policy, bytes(32))
    state = core.initial(now, newest_session(ahead))
    source = policy.site[SITE].sources[0]
    [radio, *_] = [point for zone in policy.site[SITE].zones for point in zone.access_points]
    datagram = encode_associate(
        Association(bytes.fromhex("3c0000000001"), bytes.fromhex(radio.replace(":", ""))), community=b"c", uptime=1
    )
    core.observe(state, now, source, source, decode(datagram).sighting)
    for message in (*core.poll(state, now + 60 * SECOND), *core.drain(state)):
        ahead.process(message)
    assert sensing_counters(ahead)["accepted"] == 1
    assert sensing_counters(ahead)["stale_session"] == 0


# --- many windows at once, and a signal amid them --------------------------------------------------------------


async def test_a_live_connector_that_is_told_to_stop_amid_many_windows_leaves_them_to_the_next_start(
    tmp_path: Path,
) -> None:
    policy = load_policy(policy_text(RELEASES))
    sources = policy.site[SITE].sources
    begin = [Heartbeat(SITE, source, 1, EVENING, 0) for source in sources]
    long_after = [Heartbeat(SITE, source, 1, EVENING + DAY, 0) for source in sources]
    after_it = Heartbeat(SITE, sources[0], 1, EVENING + DAY + 3 * HOUR, 0)
    key_files.create(tmp_path / "key", laboratory=True)
    stop = asyncio.Event()
    with embedded(policy, tmp_path / "key", tmp_path / "stopped") as runner:
        sink = LiveSink(runner, stop)
        for message in begin:
            await sink.append(message)
        stop.set()
        for message in (*long_after, after_it):
            await sink.append(message)
        assert runner.unfinished
        amid = runner.partition.counters.windows
        assert 0 < amid <= WINDOWS_AT_ONCE
    for name, messages in (("stopped", []), ("straight", [*begin, *long_after, after_it])):
        with embedded(policy, tmp_path / "key", tmp_path / name) as runner:
            for message in messages:
                runner.process(message)
    assert read_topic(tmp_path / "stopped", AUDIT) == read_topic(tmp_path / "straight", AUDIT)
    assert len(read_topic(tmp_path / "straight", AUDIT)) > amid


def test_windows_that_a_caller_has_left_close_before_the_next_message_is_read(tmp_path: Path) -> None:
    """Else its rows would still count in windows for which they are late."""
    policy = load_policy(policy_text(RELEASES))
    sources = policy.site[SITE].sources
    begin = [Heartbeat(SITE, source, 1, EVENING, 0) for source in sources]
    long_after = Heartbeat(SITE, sources[0], 1, EVENING + 5 * HOUR, 0)
    rows = tuple(Row(f"{device:016x}", access_point("a"), EVENING + 260 * MINUTE) for device in range(9))
    key_files.create(tmp_path / "key", laboratory=True)
    for name in ("left", "straight"):
        with embedded(policy, tmp_path / "key", tmp_path / name) as runner:
            for message in begin:
                runner.process(message)
            steps = runner.steps(long_after)
            next(steps)
            assert runner.unfinished
            if name == "straight":
                assert [*steps]
            runner.process(ObservationBatch(SITE, sources[0], 1, 0, rows))
            assert sensing_counters(runner)["late"] == len(rows)
    assert read_topic(tmp_path / "left", AUDIT) == read_topic(tmp_path / "straight", AUDIT) != []


@pytest.mark.parametrize("sink", [FileSink, LiveSink])
def test_windows_are_closed_one_behind_the_other_without_a_pause(ahead: Embedded, sink: Any) -> None:
    async def close_windows() -> float:
        begun = virtual_loop().time()
        for source in ahead.partition.policy.site[SITE].sources:
            message = Heartbeat(SITE, source, EVENING + 80 * SECOND, EVENING + HOUR, EVENING + 90 * SECOND)
            await sink(ahead, asyncio.Event()).append(message)
        return virtual_loop().time() - begun

    assert run_virtually(close_windows()) == 0
    assert next_windows(ahead) == {SITE: EVENING + HOUR}


# --- the time of receipt -----------------------------------------------------------------------------------------


def test_a_message_that_claims_too_much_is_refused_again_after_a_crash_whatever_the_clock_says_then(
    tmp_path: Path,
) -> None:
    policy = load_policy(policy_text(RELEASES))
    key_files.create(tmp_path / "key", laboratory=True)
    sources = policy.site[SITE].sources
    claims = [Heartbeat(SITE, source, 1, mark, 0) for mark in (EVENING, EVENING + 2 * HOUR) for source in sources]

    def crash() -> None:
        with embedded(policy, tmp_path / "key", tmp_path / "s", clock=lambda: EVENING) as runner:
            for message in claims:
                runner.process(message)
            assert runner.partition.sites.watermarks()[SITE] == EVENING
            raise InterruptedError

    with pytest.raises(InterruptedError):
        crash()
    with embedded(policy, tmp_path / "key", tmp_path / "s", clock=lambda: EVENING + DAY) as again:
        assert again.partition.sites.watermarks()[SITE] == EVENING
        assert again.partition.counters.windows == 0
    refused = [parse_record(value) for value in read_topic(tmp_path / "s", QUARANTINE)]
    assert [(each["reason"], each["place"]) for each in refused] == [("ahead", "watermark")] * len(sources)


def test_recordings_are_not_bounded_by_when_they_are_read(tmp_path: Path) -> None:
    policy = load_policy(policy_text(RELEASES))
    key_files.create(tmp_path / "key", laboratory=True)
    with embedded(policy, tmp_path / "key", tmp_path / "s", clock=lambda: EVENING - 365 * DAY) as runner:
        for source in policy.site[SITE].sources:
            runner.process(Heartbeat(SITE, source, 1, EVENING, 0), durable=False)
        assert runner.partition.sites.watermarks()[SITE] == EVENING
