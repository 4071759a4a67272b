"""Sources of records: a store, a replayed day, and Kafka; and what is refused of each."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from aiokafka import AIOKafkaProducer

from connectors.http.limits import AllowedHosts
from connectors.runtime.clock import wall_clock
from connectors.runtime.signals import first_to_end
from connectors.serve import topics
from connectors.serve.history.release_history import START
from connectors.serve.indexer import BATCH, played
from connectors.serve.playback import Playback
from connectors.serve.service import Service
from connectors.serve.startup import ServeConfig, feeds, open_service
from connectors.storage.embedded.reader import last_number, outboxes
from connectors.storage.kafka.client import close, partition_of
from connectors.storage.kafka.topics import create_topics
from stream.errors import DataError, FinalityError, UsageError
from stream.records import SECOND
from stream.schemas import LEAKAGE, parse_record, parse_time, private_topic
from tests.acceptance.command_line import command
from tests.acceptance.serve.services import FIRST, POLICY, complete, ends, eventually, records, served, wanted
from tests.integration.kafka_topics import delete_topics
from tests.support.any_broker import AnyBroker, on_any_broker
from tests.support.patience import PATIENCE, until

# --- a store that may not be opened -----------------------------------------------------------------------------


@pytest.fixture
def boxes_only(folder: Path, tmp_path: Path) -> Path:
    """The folder without the store: outboxes alone."""
    shutil.copytree(folder / "store" / "private", tmp_path / "store" / "private")
    shutil.copy(folder / "policy.toml", tmp_path)
    return tmp_path


def test_it_serves_without_a_store_beside_the_outboxes(boxes_only: Path) -> None:
    with served(wanted(boxes_only, account=True, operator=True)) as running, running.browser() as client:
        complete(client, boxes_only, "facilities")
        assert client.get("/api/v1/latest?audience=facilities&site=east").status_code == 200
        eventually(lambda: len(client.get("/api/v1/account").json()["sites"]) == 2)
    assert not (boxes_only / "store" / "store.sqlite").exists()


def test_a_store_that_it_may_not_open_is_not_opened(boxes_only: Path) -> None:
    """A file in the store's place that is none: who opened it would fail."""
    (boxes_only / "store" / "store.sqlite").write_bytes(b"\xff" * 4096)
    (boxes_only / "store" / "store.sqlite").chmod(0)
    with served(wanted(boxes_only)) as running, running.browser() as client:
        complete(client, boxes_only, "public")


def test_it_writes_nothing_into_the_outboxes(boxes_only: Path) -> None:
    def held() -> dict[str, list[Any]]:
        return {name: records(boxes_only, name) for name in ("facilities", "public", "_account", "_operator")}

    before = held()
    with served(wanted(boxes_only)) as running, running.browser() as client:
        complete(client, boxes_only, "facilities")
    assert held() == before


@pytest.mark.parametrize("missing", ["public", "_account", "_operator"])
def test_an_outbox_that_is_not_there_is_said(boxes_only: Path, missing: str) -> None:
    (boxes_only / "store" / "private" / f"{missing}.sqlite").unlink()
    query = wanted(boxes_only, account=True, operator=True)
    with pytest.raises(UsageError, match=missing.removeprefix("_")), served(query):
        pass


def test_the_boxes_of_roles_are_no_audiences(folder: Path) -> None:
    assert [name for name, _ in outboxes(folder / "store")] == ["facilities", "public"]
    assert sorted(path.stem for path in (folder / "store" / "private").glob("*.sqlite")) == [
        "_account", "_operator", "facilities", "public",
    ]  # fmt: skip


# --- its index --------------------------------------------------------------------------------------------------


@contextmanager
def indexed(folder: Path, index: Path) -> Iterator[httpx.Client]:
    with served(wanted(folder, index=index)) as running, running.browser() as client:
        yield client


def behind_an_index(folder: Path, boxes_only: Path, tmp_path: Path, change: str) -> Path:
    """Return an index of all that was released, behind which an outbox has been changed."""
    (tmp_path / "index").mkdir(mode=0o700)
    index = tmp_path / "index" / "history"
    with indexed(folder, index) as client:
        complete(client, folder, "public")
    with sqlite3.connect(boxes_only / "store" / "private" / "public.sqlite") as connection:
        connection.execute(change)
    connection.close()
    return index


def test_an_index_of_another_store_is_refused(folder: Path, boxes_only: Path, tmp_path: Path) -> None:
    index = behind_an_index(folder, boxes_only, tmp_path, "DELETE FROM records WHERE seq > 5")
    with pytest.raises(UsageError, match="--index"):
        ends(wanted(boxes_only, index=index))


def test_a_record_that_was_published_otherwise_stops_the_service(
    folder: Path, boxes_only: Path, tmp_path: Path
) -> None:
    index = behind_an_index(
        folder,
        boxes_only,
        tmp_path,
        'UPDATE records SET value = CAST(replace(value, \'"spend":"0.5"\', \'"spend":"0.6"\') AS BLOB)',
    )
    with pytest.raises(FinalityError):
        ends(wanted(boxes_only, index=index))


@pytest.mark.parametrize(
    "change", ["DELETE FROM records", "UPDATE records SET value = CAST(replace(value, '0.5', '0.6') AS BLOB)"]
)
def test_an_outbox_that_becomes_another_one_meanwhile_stops_the_service(
    folder: Path, boxes_only: Path, change: str
) -> None:
    """A history put together of two stores would be one of neither."""
    box = boxes_only / "store" / "private" / "public.sqlite"
    with pytest.raises(UsageError, match=r"the outbox of public in .* must only grow, but it was replaced"):
        served_until_it_ends(folder, boxes_only, lambda: replaced(box, change))


def served_until_it_ends(folder: Path, boxes: Path, meanwhile: Callable[[], None]) -> None:
    with served(wanted(boxes)) as running, running.browser() as client:
        complete(client, folder, "public")
        meanwhile()
        eventually(lambda: running.problem is not None)


def replaced(box: Path, change: str) -> None:
    """Put another outbox in the place of one, as a copy of files does that is put back."""
    other = Path(shutil.copy(box, box.with_suffix(".other")))
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute(change)
    other.replace(box)


def test_a_record_in_an_outbox_that_is_not_its_own_stops_the_service_and_is_shown_to_nobody(
    folder: Path, boxes_only: Path
) -> None:
    def foist() -> None:
        stray = records(folder, "facilities")[0]
        with closing(sqlite3.connect(boxes_only / "store" / "private" / "public.sqlite")) as box, box:
            values = (last_number(boxes_only / "store", "public") + 1, "stray", "occupancy", "east", 0, stray)
            box.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", values)

    with pytest.raises(DataError, match="outbox:public: must contain only records of audience public"):
        served_until_it_ends(folder, boxes_only, foist)


# --- a play -----------------------------------------------------------------------------------------------------


def test_a_play_gives_records_when_its_clock_has_reached_them(folder: Path) -> None:
    now = [0.0]
    whole = played(folder / "store", ("public",), 1.0)
    playing = Playback(whole.records, speed=100.0, clock=lambda: now[0])
    first = playing.due(BATCH)
    assert [parse_time(parse_record(v)["window_end"]) <= playing.at() for v in first] == [True] * len(first)
    now[0] = 36.0
    second = playing.due(BATCH)
    assert playing.at() == playing.start + round((playing.end - playing.start) * 3 / 8) + 3600 * SECOND
    assert len(second) == 4, "windows of a quarter of an hour"
    assert {parse_time(parse_record(v)["window_end"]) for v in second} <= set(range(FIRST, playing.at() + 1, SECOND))
    now[0] = 1e9
    assert first + second + playing.due(BATCH) == [value for _, value in playing.records]
    assert playing.at() == playing.end
    assert playing.due(BATCH) == []


def test_a_play_that_goes_back_begins_anew_and_streams_end(folder: Path) -> None:
    with served(wanted(folder, play=1.0)) as running, running.browser() as client:
        state = client.get("/api/v1/playback").json()
        assert state["speed"] == 1.0
        eventually(lambda: bool(rows(client)))
        with client.stream("GET", "/api/v1/stream?audience=public") as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("id: ")
            early = {"at": "2026-03-02T01:00:00Z", "paused": True}
            assert client.post("/api/v1/playback", json=early).json()["at"] == early["at"]
            assert '{"why":"rewound"}' in "".join(lines)
        eventually(lambda: {row["end"] for row in rows(client)} == {early["at"]})
        assert client.post("/api/v1/playback", json={"speed": 0}).status_code == 422
        assert client.post("/api/v1/playback", json={"at": state["end"]}).json()["at"] == state["end"]
        complete(client, folder, "public")


def rows(client: httpx.Client) -> list[dict[str, Any]]:
    return list(client.get("/api/v1/latest?audience=public&site=east").json()["rows"])


def test_nothing_is_played_where_there_is_nothing(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "store" / "private", tmp_path / "store" / "private")
    with sqlite3.connect(tmp_path / "store" / "private" / "public.sqlite") as connection:
        connection.execute("DELETE FROM records")
    connection.close()
    with pytest.raises(UsageError, match="--play"):
        played(tmp_path / "store", ("public",), 1.0)


# --- the command ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_the_command_serves_until_it_is_told_to_stop(folder: Path, number: signal.Signals) -> None:
    started = subprocess.Popen(
        command(["serve", "--store", folder / "store", "--policy", folder / "policy.toml", "--audience", "public",
                 "--listen", "127.0.0.1:0"]),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert started.stdout is not None
    line = started.stdout.readline()
    address, _, link = line.removeprefix("Open ").strip().partition("#link=")
    eventually(lambda: httpx.get(f"{address}healthz").status_code == 200)
    started.send_signal(number)
    out, problem = started.communicate(timeout=PATIENCE)
    assert started.returncode == 0, problem
    assert link not in out + problem, "it is said once, on standard output, and never logged"


# --- Kafka ------------------------------------------------------------------------------------------------------


async def written(kafka: AnyBroker, folder: Path) -> None:
    """Write what the outboxes have to topics, each record twice, as workers that were killed do."""
    boxes = {name: records(folder, name) for name in ("facilities", "public")}
    where = [(private_topic(name, parse_record(v)["release"]), v) for name, box in boxes.items() for v in box]
    where += [(LEAKAGE, value) for value in records(folder, "_account")]
    await create_topics(kafka.bootstrap, {topic for topic, _ in where}, partitions=2)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    for topic, value in [*where, *where]:
        site = orjson.loads(value)["site"]
        await producer.send(topic, value, key=site.encode(), partition=partition_of(site, 2))
    await producer.stop()


@on_any_broker
async def test_what_topics_hold_is_read_and_goes_on_after_a_restart(
    broker: AnyBroker, folder: Path, tmp_path: Path
) -> None:
    """Each record once, though each lies there twice."""
    await written(broker, folder)
    (tmp_path / "index").mkdir(mode=0o700)
    query = wanted(folder, store=None, kafka=broker.bootstrap, index=tmp_path / "index" / "history", account=True)
    published = {audience: sorted(records(folder, audience)) for audience in ("facilities", "public")}

    async def whole(service: Service) -> None:
        for audience, values in published.items():
            await until(lambda audience=audience, values=values: len(held(service, audience)) >= len(values), every=0.1)  # type: ignore[misc]
        await until(lambda: len(service.account.newest()) == 2, every=0.1)

    for _ in range(2):
        with open_service(query, wall_clock, AllowedHosts(frozenset())) as service:
            await first_to_end(whole(service), *feeds(query, service))
            assert {audience: sorted(held(service, audience)) for audience in published} == published


def held(service: Service, audience: str) -> list[bytes]:
    """Return the records of an audience that a service's index has, in order."""
    return [value for _, value in service.history.since(audience, START, 10_000)]


@on_any_broker
async def test_an_audience_without_a_topic_is_said(broker: AnyBroker, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nobodys-own"):
        await index_topics(of_one_audience(broker, tmp_path, "nobodys-own"), 1, asyncio.Event().wait)


async def sent(broker: AnyBroker, topic: str, values: Iterable[bytes]) -> None:
    """Make a topic of one partition with some records."""
    await create_topics(broker.bootstrap, {topic}, partitions=1)
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    try:
        await producer.start()
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)
    finally:  # also where the service ends first and this is cancelled: its tasks would keep the event loop open
        await close(producer)


async def index_topics(query: ServeConfig, count: int, then: Callable[[], Awaitable[object]]) -> None:
    """Follow topics as a service of one audience does, without HTTP, until the index holds so many records and what
    comes then has ended; raise what ends it before.
    """
    (audience,) = query.audiences

    async def meanwhile(service: Service) -> None:
        while len(service.history.since(audience, START, count)) < count:
            await asyncio.sleep(0.05)
        await then()

    with open_service(query, wall_clock, AllowedHosts(frozenset())) as service:
        await first_to_end(meanwhile(service), *feeds(query, service))


async def indexed_until_its_topic_changes(
    broker: AnyBroker, folder: Path, given: list[bytes], change: Callable[[], Awaitable[None]]
) -> None:
    """Index an audience that one test alone has, so that what becomes of its topic concerns no other."""
    audience = parse_record(given[0])["audience"]
    await sent(broker, private_topic(audience, "occupancy"), given)

    async def then() -> None:
        await change()
        await asyncio.Event().wait()

    await index_topics(of_one_audience(broker, folder, audience), len(given), then)


def of_audience(folder: Path, audience: str, count: int) -> list[bytes]:
    return [value.replace(b"public", audience.encode()) for value in records(folder, "public")[:count]]


@pytest.mark.parametrize("garbage", [b"", b"\xff\x00 no JSON", b'{"release_id": "x"}'], ids=["empty", "bytes", "other"])
@on_any_broker
async def test_what_is_no_record_in_a_private_topic_stops_the_service_and_is_found_by_its_name(
    broker: AnyBroker, folder: Path, tmp_path: Path, garbage: bytes
) -> None:
    audience = f"garbled-{len(garbage)}"
    topic, given = private_topic(audience, "occupancy"), of_audience(folder, audience, 3)
    with pytest.raises(DataError, match=f"{topic}/0: "):
        await indexed_until_its_topic_changes(broker, tmp_path, given, lambda: sent(broker, topic, [garbage]))


@on_any_broker
async def test_a_topic_that_is_made_anew_while_it_is_served_stops_the_service(
    broker: AnyBroker, folder: Path, tmp_path: Path
) -> None:
    """A history put together of two topics would be one of neither."""
    topic, given = private_topic("torn", "occupancy"), of_audience(folder, "torn", 9)
    with pytest.raises(UsageError, match="was recreated or truncated"):
        await indexed_until_its_topic_changes(broker, tmp_path, given, lambda: made_anew(broker, topic, given[:2]))


async def made_anew(broker: AnyBroker, topic: str, values: list[bytes]) -> None:
    await delete_topics(broker.bootstrap, [topic])
    await sent(broker, topic, values)


@on_any_broker
async def test_a_topic_that_was_made_anew_behind_an_index_and_has_grown_past_it_is_refused(
    broker: AnyBroker, folder: Path, tmp_path: Path
) -> None:
    """The service went on from an offset at which another release lay, and never had those before it."""
    topic, given = private_topic("sewn", "occupancy"), of_audience(folder, "sewn", 12)
    query = of_one_audience(broker, tmp_path, "sewn")
    await sent(broker, topic, given[:4])
    await index_topics(query, 4, lambda: asyncio.sleep(0))
    await made_anew(broker, topic, given[4:])
    with pytest.raises(UsageError, match=f"--index: must belong to this cluster's {topic}"):
        await index_topics(query, 12, asyncio.Event().wait)


@on_any_broker
async def test_a_service_outlives_an_outage_of_the_brokers_and_says_how_old_its_figures_are(
    broker: AnyBroker, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with 1 in an outage of 20 s, although its index had the history."""
    for name, seconds in (("topics.LOOK_SECONDS", 0.5), ("broker_contact.PROBE_SECONDS", 0.1)):
        monkeypatch.setattr(f"connectors.serve.{name}", seconds)
    failed = spied(monkeypatch, topics, "follow_private")
    given = of_audience(folder, "outliving", 12)
    topic, query = private_topic("outliving", "occupancy"), of_one_audience(broker, tmp_path, "outliving")
    await sent(broker, topic, given[:6])

    async def outlives(service: Service) -> None:
        await until(lambda: held(service, "outliving") == given[:6], every=0.1)
        assert service.outage_seconds() is None
        await broker.kill()
        await until(lambda: len(failed) >= 2, every=0.1)
        await until(lambda: service.outage_seconds() is not None, every=0.1)
        assert held(service, "outliving") == given[:6], "what was read before the outage is there"
        await broker.recover()
        await sent(broker, topic, given[6:])
        await until(lambda: held(service, "outliving") == given, every=0.1)
        await until(lambda: service.outage_seconds() is None, every=0.1)

    async def of_its_index_alone(service: Service) -> None:
        await until(lambda: service.outage_seconds() is not None, every=0.1)
        assert held(service, "outliving") == given

    with open_service(query, wall_clock, AllowedHosts(frozenset())) as service:
        await first_to_end(outlives(service), *feeds(query, service))
    await broker.kill()
    try:
        with open_service(query, wall_clock, AllowedHosts(frozenset())) as service:
            await first_to_end(of_its_index_alone(service), *feeds(query, service))
        another = replace(query, index=tmp_path / "index" / "another")
        with open_service(another, wall_clock, AllowedHosts(frozenset())) as service, pytest.raises(ConnectionError):
            await first_to_end(*feeds(another, service))
    finally:
        await broker.recover()


def spied(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[BaseException]:
    """Return the errors by which a function ends, from now on."""
    errors: list[BaseException] = []
    function = getattr(module, name)

    async def spy(*given: Any) -> None:
        try:
            await function(*given)
        except BaseException as error:
            errors.append(error)
            raise

    monkeypatch.setattr(module, name, spy)
    return errors


def policy_of(audience: str) -> str:
    """Return the policy with another audience for the public."""
    return POLICY.replace("public = true\n", "").replace("public", audience)


def of_one_audience(broker: AnyBroker, folder: Path, audience: str) -> ServeConfig:
    (folder / "policy.toml").write_text(policy_of(audience))
    (folder / "index").mkdir(mode=0o700, exist_ok=True)
    index = folder / "index" / "history"
    return wanted(folder, store=None, kafka=broker.bootstrap, index=index, audiences=(audience,))
