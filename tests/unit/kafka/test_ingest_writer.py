"""An ingest on a broker: what it sends and reports, which keys it lets go of, and what refuses it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from connectors.cli.ingest import FORGET_AFTER, _SourceWriter
from connectors.keys import key_files
from connectors.keys.key_files import IngestKeys
from connectors.monitoring.monitor import Monitor
from connectors.runtime.clock import wall_clock
from connectors.sources.recorded import FileSource
from connectors.sources.recordings.dialect import OWN
from connectors.storage.kafka.cluster import decide
from connectors.storage.kafka.topic_readers import end_offsets
from connectors.storage.kafka.topics import create_topics, topic_names
from stream.engine.cluster_state import engine_record
from stream.errors import UsageError
from stream.keys import key_day_of
from stream.release.validation import load_policy
from stream.schemas import OBSERVATIONS
from tests.acceptance.command_line import OBSERVATIONS as ROWS
from tests.acceptance.command_line import POLICY
from tests.support.any_broker import AnyBroker, on_any_broker

COUNTERS = """
[site.mall]
feed = "counts"
tick = "1min"
lateness = "40s"
zones = [{ id = "gate", capacity = 20 }, { id = "hall", capacity = 20 }]
[[audience]]
name = "public"
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
epsilon = { public = "0.1" }
"""
COUNTS = """\
window_end,zone,count
2026-03-02T12:00:00Z,gate,4
2026-03-02T12:00:00Z,hall,0
2026-03-02T12:01:00Z,gate,5
2026-03-02T12:01:00Z,hall,1
"""


async def ingest(
    broker: AnyBroker, folder: Path, *, policy: str = POLICY, rows: str = ROWS, address: tuple[str, int] | None = None,
    speed: float | None = None,
) -> tuple[_SourceWriter, Monitor]:  # fmt: skip
    """Return the ingest of a file, which has not begun, and its monitor; the first one makes key and topics."""
    read = load_policy(policy)
    if not (folder / "key").exists():
        key_files.create(folder / "key", laboratory=True)
    if not (folder / "rows.csv").exists():
        (folder / "rows.csv").write_text(rows)
        await create_topics(broker.bootstrap, topic_names(read), partitions=2)
    source = FileSource(folder / "rows.csv", speed, None, None, OWN, policy == COUNTERS)
    monitor = Monitor("ingest", read, address, wall_clock)
    return _SourceWriter(broker.bootstrap, source, read, IngestKeys(folder / "key"), monitor, None), monitor


async def sent(broker: AnyBroker) -> int:
    """Return how many messages the topic of observations has."""
    return sum((await end_offsets(broker.bootstrap, OBSERVATIONS)).values())


def checks(monitor: Monitor) -> dict[str, bool]:
    monitor.run_checks()
    return monitor.health.checks()


@on_any_broker
async def test_a_file_is_sent_to_its_end_and_its_rows_are_reported(
    broker: AnyBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer, _ = await ingest(broker, tmp_path)
    await writer.begin(take_over=False)
    await writer.pour(asyncio.Event())
    assert writer.complete
    assert await sent(broker) > 0
    writer.report(as_json=True)
    assert json.loads(capsys.readouterr().out)["rows"] == ROWS.count("\n") - 1


@on_any_broker
async def test_of_a_file_of_counts_each_window_is_sent(broker: AnyBroker, tmp_path: Path) -> None:
    writer, _ = await ingest(broker, tmp_path, policy=COUNTERS, rows=COUNTS)
    await writer.begin(take_over=False)
    await writer.pour(asyncio.Event())
    assert writer.complete
    assert await sent(broker) == 2


@on_any_broker
@pytest.mark.parametrize(("policy", "rows"), [(POLICY, ROWS), (COUNTERS, COUNTS)])
async def test_while_one_ingest_sends_another_one_of_the_same_sources_or_counters_is_refused(
    broker: AnyBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, rows: str
) -> None:
    monkeypatch.setattr("connectors.storage.kafka.source_leases.BEAT", 500_000)
    first, _ = await ingest(broker, tmp_path, policy=policy, rows=rows, speed=1)
    await first.begin(take_over=False)
    stop = asyncio.Event()
    sending = asyncio.create_task(first.pour(stop))
    second, _ = await ingest(broker, tmp_path, policy=policy)
    with pytest.raises(UsageError, match="another ingest sends for it"):
        await second.begin(take_over=False)
    stop.set()
    await sending


@on_any_broker
async def test_a_key_that_was_retired_is_refused_before_anything_is_sent(broker: AnyBroker, tmp_path: Path) -> None:
    writer, _ = await ingest(broker, tmp_path)
    ledger = IngestKeys(tmp_path / "key").ledger
    await decide(broker.bootstrap, lambda state: {"engine": engine_record(state, "new", ["1"], retired=[ledger])})
    with pytest.raises(UsageError, match=f"ledger {ledger} has ended, its key was retired"):
        await writer.begin(take_over=False)
    assert await sent(broker) == 0


@on_any_broker
async def test_data_keys_of_days_that_are_over_are_let_go_of(broker: AnyBroker, tmp_path: Path) -> None:
    today = key_day_of(wall_clock() - FORGET_AFTER)
    key_files.create(tmp_path / "all", laboratory=False, first_day=today - 3)
    key_files.export(tmp_path / "all", "ingest", tmp_path / "key")
    writer, _ = await ingest(broker, tmp_path)
    await writer.begin(take_over=False)
    await writer.pour(asyncio.Event())
    assert IngestKeys(tmp_path / "key").vault.first == today


@on_any_broker
@pytest.mark.parametrize("address", [("127.0.0.1", 9100), None])
async def test_an_ingest_that_is_asked_whether_it_is_ready_asks_its_broker(
    broker: AnyBroker, tmp_path: Path, address: tuple[str, int] | None
) -> None:
    writer, monitor = await ingest(broker, tmp_path, address=address, speed=600)
    await writer.begin(take_over=False)
    assert checks(monitor) == {"broker": False}
    await writer.pour(asyncio.Event())
    assert checks(monitor) == {"broker": address is not None}
