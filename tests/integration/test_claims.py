"""A source has one ingest: twins, take-over, sessions that never go back, and clocks that disagree."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from connectors.keys import key_files
from connectors.storage.kafka.cluster import found_cluster, read
from connectors.storage.kafka.message_sink import KafkaSink
from connectors.storage.kafka.source_leases import ClockApartError, DisplacedError, SourceLeases, wall
from connectors.storage.kafka.topics import create_topics, topic_names
from stream.errors import UsageError
from stream.records import MINUTE, Heartbeat
from stream.release.validation import load_policy
from tests.acceptance.command_line import POLICY, command
from tests.integration.kafka_brokers import Broker
from tests.integration.kafka_topics import clear_topics
from tests.support.any_broker import AnyBroker, on_any_broker
from tests.support.patience import waiting_for, within_patience

PAIRS = [("east", "127.0.0.1"), ("west", "127.0.0.1")]
PARTITIONS = 4


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.storage.kafka.source_leases.BEAT", 500_000)


async def begun(broker: AnyBroker | Broker) -> str:
    """Begin a cluster; return its bootstrap servers."""
    await clear_topics(broker.bootstrap)
    await create_topics(broker.bootstrap, topic_names(load_policy(POLICY)), partitions=PARTITIONS)
    await found_cluster(broker.bootstrap, PARTITIONS)
    return broker.bootstrap


@on_any_broker
async def test_a_twin_is_refused_while_the_first_lives(broker: AnyBroker) -> None:
    bootstrap = await begun(broker)
    first, twin = SourceLeases(bootstrap, PAIRS), SourceLeases(bootstrap, PAIRS[:1])
    await first.start(PARTITIONS)
    living = asyncio.create_task(first.renew())
    with pytest.raises(UsageError, match=r"another ingest sends for it.*--take-over"):
        await twin.start(PARTITIONS)
    assert not living.done()
    living.cancel()
    await first.stop()
    await twin.stop()


@on_any_broker
async def test_take_over_ends_the_other_loudly_and_later_sessions_win(broker: AnyBroker) -> None:
    bootstrap = await begun(broker)
    first, heir = SourceLeases(bootstrap, PAIRS), SourceLeases(bootstrap, PAIRS[:1])
    session = await first.start(PARTITIONS)
    living = asyncio.create_task(first.renew())
    assert await heir.start(PARTITIONS, take_over=True) > session
    with pytest.raises(DisplacedError, match=r"source 127.0.0.1 of site east: another ingest has taken it"):
        await within_patience(living, "the first to find out")
    await first.stop()
    await heir.stop()


@on_any_broker
async def test_what_ended_well_is_free_at_once_and_a_session_never_goes_back(broker: AnyBroker) -> None:
    bootstrap = await begun(broker)
    first = SourceLeases(bootstrap, PAIRS)
    session = await first.start(PARTITIONS)
    await first.stop()
    assert (await read(bootstrap)).beats == {}, "nobody waits until a lease expires"
    behind = SourceLeases(bootstrap, PAIRS, clock=lambda: wall() - MINUTE // 2)
    assert await within_patience(behind.start(PARTITIONS), "a claim") == session + 1
    await behind.stop()


@on_any_broker
async def test_a_session_is_later_than_any_in_the_log(broker: AnyBroker) -> None:
    bootstrap = await begun(broker)
    sink = KafkaSink(bootstrap)
    await sink.start()
    ahead = wall() + 10 * MINUTE
    await sink.append(Heartbeat("east", "127.0.0.1", ahead, 0, 0))
    await sink.append(Heartbeat("east", "10.9.9.9", ahead + MINUTE, 0, 0))  # not one of its sources
    await sink.stop()
    claims = SourceLeases(bootstrap, PAIRS)
    assert await claims.start(PARTITIONS) == ahead + 1
    await claims.stop()


@on_any_broker
async def test_a_recording_keeps_its_session_and_is_refused_where_all_of_it_would_be_dropped(broker: AnyBroker) -> None:
    bootstrap = await begun(broker)
    for session in (1000, 1000, 2000):
        claims = SourceLeases(bootstrap, PAIRS)
        assert await claims.start(PARTITIONS, session=session) == session
        await claims.stop()
    old = SourceLeases(bootstrap, PAIRS)
    with pytest.raises(UsageError, match="recording: must not begin before what its sources sent last"):
        await old.start(PARTITIONS, session=1500)
    await old.stop()


@pytest.mark.parametrize(("ahead", "said"), [(2 * MINUTE, "ahead"), (-2 * MINUTE, "behind")])
@on_any_broker
async def test_a_clock_that_is_not_the_brokers_stops_loudly(broker: AnyBroker, ahead: int, said: str) -> None:
    bootstrap = await begun(broker)
    claims = SourceLeases(bootstrap, PAIRS, clock=lambda: wall() + ahead)
    with pytest.raises(ClockApartError, match=rf"clock: must agree with the broker's within 60 s, is 1\d\d s {said}"):
        await claims.start(PARTITIONS)
    await claims.stop()


@pytest.mark.kafka
@pytest.mark.long
async def test_of_two_ingests_the_displaced_one_exits_1_and_the_refused_one_2(kafka: Broker, tmp_path: Path) -> None:
    bootstrap = await begun(kafka)
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "communities").write_text("s3cret\n")
    (tmp_path / "communities").chmod(0o600)
    key_files.create(tmp_path / "key", laboratory=True)
    words = ["ingest", "--kafka", bootstrap, "--policy", str(tmp_path / "policy.toml")]
    words += ["--key-file", str(tmp_path / "key"), "--udp", "127.0.0.1:0"]
    env = {"TACET_SNMP_COMMUNITIES_FILE": str(tmp_path / "communities"), "PATH": ""}
    started: list[subprocess.Popen[str]] = []

    def start(*more: str) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(command([*words, *more]), env=env, stderr=subprocess.PIPE, text=True))
        return started[-1]

    async def line(process: subprocess.Popen[str], said: str) -> None:
        assert process.stderr is not None
        async with waiting_for(f"a line that says {said!r}"):
            while said not in (text := await asyncio.to_thread(process.stderr.readline)):
                assert text, "it ended before"

    try:
        first = start()
        await line(first, "listening")
        refused = start()
        assert await asyncio.to_thread(refused.wait, 60) == 2
        assert "another ingest sends for it" in (refused.stderr.read() if refused.stderr else "")
        heir = start("--take-over")
        await line(first, "another ingest has taken it")
        assert await asyncio.to_thread(first.wait, 30) == 1
        assert heir.poll() is None
        heir.terminate()
        assert await asyncio.to_thread(heir.wait, 30) == 0
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
