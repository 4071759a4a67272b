"""What services ask of others now and then: whatever comes instead of an answer, they go on, and are not ready."""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from connectors.keys import key_files
from connectors.monitoring.catalogue import SIZE_STEP
from connectors.monitoring.monitor import Monitor
from connectors.operations.monitoring import kafka, watches
from connectors.operations.monitoring.kafka import BrokerWatch, WorkerWatch
from connectors.operations.monitoring.watches import (
    is_working_time,
    watch_certificates,
    watch_key,
    watch_receiver,
    watch_secrets,
    watch_store,
)
from connectors.runtime.clock import AnchoredClock
from connectors.sources.ingest.ingest import OUTAGE, Ingest
from connectors.sources.ingest.queue import Counters
from connectors.sources.snmp.communities import CommunityFile
from connectors.storage.kafka.connection import SYSTEM
from connectors.storage.kafka.writers import KafkaWriterFactory
from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.errors import UsageError
from stream.keys import ForwardKeys
from stream.records import DAY, SECOND, Micros
from stream.schemas import AUDIT, parse_time
from tests.support.documents import ROOT
from tests.support.patience import within_patience
from tests.support.small_building import COUNTS, SITE, building, laboratory, messages, people
from tests.unit.monitoring.test_figures import shown

NOW = 1_700_000_000 * SECOND


def monitor() -> Monitor:
    return Monitor("run", building(), None, lambda: NOW)


def checks(made: Monitor) -> dict[str, bool]:
    made.run_checks()
    return made.health.checks()


@pytest.mark.parametrize("error", [ConnectionError(), UsageError("not allowed"), RuntimeError()])
async def test_a_broker_that_does_not_answer_ends_nothing(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Exception | None] = [error, None]
    query = asyncio.Event()

    async def names(servers: str) -> list[str]:
        assert servers == "broker:9092"
        if (failure := answers.pop(0)) is not None:
            raise failure
        query.set()
        await asyncio.sleep(0)
        return []

    monkeypatch.setattr(kafka, "topic_names", names)
    monkeypatch.setattr(kafka, "POLL_SECONDS", 0.01)
    made = monitor()
    watch = BrokerWatch(made, "broker:9092")
    assert checks(made) == {"broker": False}
    asking = asyncio.create_task(watch.poll())
    second = asyncio.create_task(query.wait())
    await asyncio.wait({asking, second}, return_when=asyncio.FIRST_COMPLETED)
    assert not asking.done()
    monkeypatch.setattr(kafka, "POLL_SECONDS", 1000.0)
    answers.append(None)
    while not checks(made)["broker"]:
        await asyncio.sleep(0.01)
    asking.cancel()


async def test_a_broker_check_that_is_cancelled_while_the_broker_answers_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """``asyncio.wait_for`` on Python 3.11 loses a cancellation that arrives together with the result."""

    async def names(_: str) -> list[str]:
        asyncio.get_running_loop().call_soon(polling.cancel)
        return []

    monkeypatch.setattr(kafka, "topic_names", names)
    polling = asyncio.create_task(BrokerWatch(monitor(), "broker:9092").poll())
    with pytest.raises(asyncio.CancelledError):
        await within_patience(polling, "the end of a cancelled task")


async def test_a_broker_check_that_is_cancelled_ends_although_its_client_raises_another_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = asyncio.Event()

    async def names(_: str) -> list[str]:
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("closed") from None
        return []

    monkeypatch.setattr(kafka, "topic_names", names)
    polling = asyncio.create_task(BrokerWatch(monitor(), "broker:9092").poll())
    await waiting.wait()
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within_patience(polling, "the end of a cancelled task")


def test_a_worker_is_not_ready_while_a_partition_that_it_was_given_is_not_open() -> None:
    made, opened = monitor(), [False]
    task_manager: Any = SimpleNamespace(
        tasks={}
    )  # none of what was assigned has opened: there is nothing that could have ended
    watch = WorkerWatch(made, building(), "broker:9092")
    watch.begin(task_manager, KafkaWriterFactory("broker:9092", fence="f"), lambda: True, lambda: opened[0])
    assert checks(made)["partitions"] is False
    opened[0] = True
    assert checks(made)["partitions"] is True


def test_a_worker_tells_what_its_open_partitions_have_committed() -> None:
    policy = building(releases=COUNTS)
    partition, others = PartitionEngine(policy, laboratory()), PartitionEngine(policy, laboratory())
    writers = KafkaWriterFactory("broker:9092", fence="f")
    made = Monitor("worker", policy, None, lambda: NOW)
    watch = WorkerWatch(made, policy, "broker:9092")
    assert watch.engine(3, partition) is partition
    assert watch.engine(4, others) is others
    tasks: Any = SimpleNamespace(tasks={3: None, 5: None})
    watch.begin(tasks, writers, lambda: True, lambda: True)
    committed = [
        record
        for offset, message in enumerate(messages(people(hours=1, devices=2), policy))
        for record in partition.process(offset, None, encode_message(message))
    ]
    (observe,) = writers.observers
    observe(committed)
    made.run_checks()
    entries = sum(record.topic == AUDIT for record in committed)
    assert shown(made.metrics, "tacet_ledger_entries") == {(SITE,): entries}
    assert sum(shown(made.metrics, "tacet_releases_total").values()) == entries > 0


@pytest.mark.parametrize("address", [None, ("127.0.0.1", 0)])
async def test_a_worker_whose_health_nobody_can_read_asks_no_broker(
    address: tuple[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def names(_: str) -> list[str]:
        asked.set()
        return []

    async def work() -> int:
        if address is not None:
            await asked.wait()
        for _ in range(10):  # whoever would ask has begun to
            await asyncio.sleep(0)
        return 7

    monkeypatch.setattr(kafka, "topic_names", names)
    with Monitor("worker", building(), address, lambda: NOW) as made:
        watch = WorkerWatch(made, building(), "broker:9092")
        assert await within_patience(asyncio.create_task(watch.during(work())), "the end of the work") == 7
    assert asked.is_set() == (address is not None)


@pytest.mark.parametrize("verb", ["worker", "ingest"])
def test_whoever_serves_no_webhooks_loads_no_web_server(verb: str) -> None:
    """Watching is the same module for all services."""
    source = f"import sys, connectors.cli.{verb}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", source], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "connectors.operations.monitoring.watches" in loaded
    assert not loaded & {"starlette", "uvicorn", "connectors.sources.cloud.service", "connectors.sources.polls.service"}


def test_a_key_is_well_while_it_can_be_read_and_its_oldest_day_has_an_age(tmp_path: Path) -> None:
    made, path = monitor(), tmp_path / "key"
    key_files.create(path, laboratory=False, first_day=NOW // DAY - 3)
    watch_key(made, path)
    assert checks(made) == {"key": True}
    assert shown(made.metrics, "tacet_key_epoch_age_seconds") == {(): (NOW - (NOW // DAY - 3) * DAY) / SECOND}
    path.chmod(0o644)
    for _ in range(watches.KEY_BEATS):
        made.run_checks()
    assert checks(made) == {"key": False}
    assert shown(made.metrics, "tacet_key_epoch_age_seconds") == {}


def test_the_oldest_day_of_an_ingests_key_is_that_of_its_data_keys(tmp_path: Path) -> None:
    made, path, whole = monitor(), tmp_path / "ingest", tmp_path / "key"
    key_files.create(whole, laboratory=False, first_day=NOW // DAY - 3)
    key_files.export(whole, "ingest", path)
    watch_key(made, path)
    assert checks(made) == {"key": True}
    assert shown(made.metrics, "tacet_key_epoch_age_seconds") == {(): (NOW - (NOW // DAY - 3) * DAY) / SECOND}


def test_a_laboratory_key_has_no_days_and_so_no_age(tmp_path: Path) -> None:
    made, path = monitor(), tmp_path / "key"
    key_files.create(path, laboratory=True)
    watch_key(made, path)
    assert checks(made) == {"key": True}
    assert shown(made.metrics, "tacet_key_epoch_age_seconds") == {}
    assert not isinstance(key_files.FileKeys(path).keys, ForwardKeys)


def test_a_certificate_lasts_as_long_as_the_first_of_its_file_and_one_that_is_gone_is_over(tmp_path: Path) -> None:
    made = Monitor("worker", building(), None, lambda: NOW)
    long, short, both, gone = (tmp_path / name for name in ("long", "short", "both", "gone"))
    long.write_bytes(certificate(days=90))
    short.write_bytes(certificate(days=3))
    both.write_bytes(long.read_bytes() + short.read_bytes())
    watch_certificates(made, page=long, kafka=both, kafka_ca=gone, system=SYSTEM, none=None)
    lasting = shown(made.metrics, "tacet_certificate_expiry_seconds")
    assert {name: round(seconds / 86400) for (name,), seconds in lasting.items()} == {
        "page": 90, "kafka": 3, "kafka_ca": 0,
    }  # fmt: skip


def certificate(days: int) -> bytes:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    now = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now).not_valid_after(now + dt.timedelta(days=days))
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_a_stores_room_is_that_of_all_its_files(tmp_path: Path) -> None:
    made = monitor()
    (tmp_path / "private").mkdir()
    for name in ("store.sqlite", "private/public.sqlite"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(SIZE_STEP)
    watch_store(made, tmp_path)
    assert shown(made.metrics, "tacet_store_size_bytes") == {(): 2 * SIZE_STEP}
    (free,), (size,) = (shown(made.metrics, f"tacet_disk_{what}_bytes").values() for what in ("free", "size"))
    assert 0 < free < size


def test_secrets_are_counted_as_they_are_read_anew_at_points_of_the_grid_alone(tmp_path: Path) -> None:
    """Whoever sends may let a file be read before: when that was is not told."""
    path = tmp_path / "communities"
    path.write_text("one\n")
    path.chmod(0o600)
    made, file = monitor(), CommunityFile(path)
    watch_secrets(made, [file])

    def told() -> dict[str, float]:
        return {labels[1]: n for labels, n in shown(made.metrics, "tacet_secrets_read_total").items()}

    assert told() == {"taken": 0, "refused": 0}
    path.write_text("one\nsecond\n")
    assert file.knows(b"second")
    for _ in range(watches.SECRETS_BEATS):
        assert told() == {"taken": 0, "refused": 0}
        made.run_checks()
    assert told() == {"taken": 1, "refused": 0}
    path.chmod(0o644)
    for _ in range(3 * watches.SECRETS_BEATS):
        made.run_checks()
    assert told() == {"taken": 1, "refused": 1}


BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("utc", "working"), [("06:59", False), ("07:00", True), ("16:59", True), ("17:00", False), ("23:30", False)]
)
def test_working_time_is_told_by_the_sites_own_clock(utc: str, working: bool) -> None:
    site = next(iter(building().site.values())).model_copy(
        update={"timezone": BERLIN, "working_hours": ("08:00", "18:00")}
    )
    assert is_working_time(site, parse_time(f"2026-01-15T{utc}:00Z")) is working, "Berlin is an hour ahead in winter"


class Heard:
    """What is watched of a receiver that has heard two datagrams."""

    counters = Counters(datagrams=2, accepted=2)
    clock = AnchoredClock(lambda: NOW, lambda: 0)
    state = Ingest.of_policy(building(), b"k" * 32).initial(NOW)


@pytest.mark.parametrize(
    ("late", "suspended", "found"),
    [
        (0, set(), {"feed": True, "intake": True}),
        (OUTAGE - 1, set(), {"feed": True, "intake": True}),
        (OUTAGE, set(), {"feed": False, "intake": True}),
        (0, {SITE}, {"feed": True, "intake": False}),
    ],
)
def test_a_receiver_is_ready_while_its_heartbeats_follow_the_clock(
    late: Micros, suspended: set[str], found: dict[str, bool]
) -> None:
    heard, made = Heard(), Monitor("ingest", building(), None, lambda: NOW)
    heard.state = replace(heard.state, grid=NOW, suspended=suspended)
    heard.clock = AnchoredClock(lambda: NOW + late, lambda: 0)
    watch_receiver(made, heard, building())  # type: ignore[arg-type]
    assert checks(made) == found


def test_it_is_told_how_far_a_receivers_clock_was_set() -> None:
    wall, made = [NOW], Monitor("ingest", building(), None, lambda: NOW)
    heard = Heard()
    heard.clock = AnchoredClock(lambda: wall[0], lambda: 0)
    watch_receiver(made, heard, building())  # type: ignore[arg-type]
    assert shown(made.metrics, "tacet_clock_offset_seconds") == {(): 0}
    wall[0] -= 2 * SECOND
    made.run_checks()
    assert shown(made.metrics, "tacet_clock_offset_seconds") == {(): -2}


def test_of_too_few_access_points_there_is_no_figure_that_could_say_that_nobody_comes() -> None:
    made = Monitor("ingest", building(), None, lambda: NOW)
    watch_receiver(made, Heard(), building())  # type: ignore[arg-type]
    assert shown(made.metrics, "tacet_datagrams_accepted_total") == {}
    assert {site for (site,) in shown(made.metrics, "tacet_working_time")} == set(building().site)
