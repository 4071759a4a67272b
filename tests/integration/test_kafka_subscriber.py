"""subscribe on Kafka: several topics of an audience as one stream, in the order that the store has."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic, RecordsToDelete

from connectors.storage.embedded.store import SqliteStore
from connectors.storage.kafka.client import MAX_RECORD, partition_of
from connectors.storage.kafka.topic_settings import topic_config
from connectors.storage.kafka.topics import create_topics
from connectors.storage.kafka.writers import EngineTopics, KafkaWriterFactory
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.subscriber import subscribe
from connectors.subscribe.topics import LOOK_BACK
from stream.engine.outputs import OutputRecord
from stream.errors import DataError, FinalityError, UsageError
from stream.records import DAY, MINUTE
from stream.schemas import AUDIT, QUARANTINE, SNAPSHOT, private_topic, rfc3339
from tests.integration.kafka_topics import administrator, create_as_given, delete_topics
from tests.integration.storm import records
from tests.support.any_broker import AnyBroker, on_any_broker
from tests.support.patience import waiting_for

SITES = ("east", "west")
PARTITIONS = 4
TICK = 5 * MINUTE
MIDNIGHT = 20_000 * DAY
WINDOWS = [MIDNIGHT + n * TICK for n in range(-40, 40)]
RUNS = 4


def count(site: str, release: str, audience: str, end: int) -> OutputRecord:
    name = f"{site}/{release}/{audience}/{rfc3339(end)}"
    body = {"release_id": name, "site": site, "release": release, "window_end": rfc3339(end), "pad": "x" * 3000}
    return OutputRecord(private_topic(audience, release), site.encode(), orjson.dumps(body), end // 1000, True, name)


def fact(site: str, audience: str, zone: int, attribute: str) -> OutputRecord:
    name = f"{site}/office-day/{audience}/1970-01-01/{zone}/{attribute}"
    body = {"release_id": name, "site": site, "release": "office-day", "window_end": rfc3339(MIDNIGHT),
            "attribute": attribute}  # fmt: skip
    topic = private_topic(audience, "office-day")
    return OutputRecord(topic, site.encode(), orjson.dumps(body), MIDNIGHT // 1000, True, name)


def log_of(audience: str) -> list[OutputRecord]:
    """What the pipeline gives out, in its order: of a window the day's attributes, then counts by policy."""
    outputs = []
    for end in WINDOWS:
        for site in SITES:
            if end == MIDNIGHT:
                outputs += [fact(site, audience, zone, each) for zone in range(4) for each in ("departure", "arrival")]
            outputs += [count(site, release, audience, end) for release in ("occupancy", "hourly")]
    return outputs


async def published(broker: AnyBroker, audience: str) -> list[OutputRecord]:
    """Write the log as workers do: each topic by itself, every record twice."""
    outputs = log_of(audience)
    await create_topics(broker.bootstrap, {out.topic for out in outputs}, partitions=PARTITIONS)
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    for out in [*outputs, *outputs]:
        partition = partition_of(out.key.decode(), PARTITIONS)
        await producer.send(out.topic, out.value, key=out.key, partition=partition, timestamp_ms=out.timestamp_ms)
    await producer.stop()
    return outputs


def stored(folder: Path, outputs: list[OutputRecord]) -> Path:
    store = SqliteStore(folder)
    store.commit(outputs, b"", 0)
    store.deliver()
    store.close()
    return folder


async def read(**options: Any) -> list[str]:
    return [record["release_id"] async for record in subscribe(until_end=True, **options)]


def at(site: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(f"{site}/")]


@on_any_broker
async def test_all_releases_of_an_audience_come_in_the_stores_order_in_every_run(
    broker: AnyBroker, prefix: str, tmp_path: Path
) -> None:
    store = stored(tmp_path / "store", await published(broker, prefix))
    wanted = await read(store=store, audience=prefix, from_start=True)
    assert len(wanted) == 2 * (2 * len(WINDOWS) + 8)
    runs = [await read(kafka=broker.bootstrap, audience=prefix, from_start=True) for _ in range(RUNS)]
    assert all(run == runs[0] for run in runs)
    for site in SITES:
        assert at(site, runs[0]) == at(site, wanted)
        day = [n for n, name in enumerate(at(site, wanted)) if "office-day" in name]
        assert day == list(range(80, 88)), "between the windows before midnight and those from midnight on"


@pytest.mark.parametrize("release", [None, "hourly", "office-day"])
@on_any_broker
async def test_behind_a_release_comes_what_the_store_has_behind_it_in_every_run(
    broker: AnyBroker, prefix: str, tmp_path: Path, release: str | None
) -> None:
    store = stored(tmp_path / "store", await published(broker, prefix))
    for end in (WINDOWS[10], MIDNIGHT - TICK, MIDNIGHT, WINDOWS[-1]):
        after = f"east/occupancy/{prefix}/{rfc3339(end)}"
        behind: dict[str, Any] = {"audience": prefix, "after": after, "release": release}
        wanted = await read(store=store, **behind)
        for _ in range(RUNS):
            found = await read(kafka=broker.bootstrap, **behind)
            again = [name for name in found if name not in set(wanted)]
            assert {name.split("/", 1)[0] for name in again} <= {"east"}
            assert not any("/occupancy/" in name for name in again), "of other releases only"
            assert [at(site, [n for n in found if n in set(wanted)]) for site in SITES] == [
                at(site, wanted) for site in SITES
            ]


@on_any_broker
async def test_topics_of_one_window_that_arrive_apart_are_all_given(
    broker: AnyBroker, prefix: str, tmp_path: Path
) -> None:
    """Of a window ``hourly`` stands before ``occupancy``, but here it comes when that has been read."""
    early = [count("east", "occupancy", prefix, WINDOWS[0])]
    late = [count("east", "hourly", prefix, end) for end in WINDOWS[:2]]
    await create_topics(broker.bootstrap, {out.topic for out in [*early, *late]}, partitions=PARTITIONS)
    file = tmp_path / "cursor"
    seen: list[list[str]] = []
    for outputs in (early, late, []):
        await put(broker, outputs)
        cursor = Cursor(file)
        seen.append(await read(kafka=broker.bootstrap, audience=prefix, cursor=cursor))
        cursor.save()
    assert seen == [[early[0].id], [out.id for out in late], []]
    assert await read(kafka=broker.bootstrap, audience=prefix, after=early[0].id) == [out.id for out in late]


@on_any_broker
async def test_a_topic_that_comes_windows_later_is_not_skipped_by_after(broker: AnyBroker, prefix: str) -> None:
    """One leader hung while the other's topic came: the last that was given says nothing of the former's."""
    early = [count("east", "occupancy", prefix, end) for end in WINDOWS[:3]]
    late = [count("east", "hourly", prefix, end) for end in WINDOWS[:3]]
    await create_topics(broker.bootstrap, {out.topic for out in [*early, *late]}, partitions=PARTITIONS)
    await put(broker, [*early, *late])
    assert await read(kafka=broker.bootstrap, audience=prefix, after=early[2].id) == [out.id for out in late]


async def trickled(broker: AnyBroker, outputs: list[OutputRecord], chance: random.Random) -> None:
    """Write the log slowly; each topic falls behind the others now and then, by a few windows."""
    waiting: defaultdict[str, list[OutputRecord]] = defaultdict(list)
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    for number, out in enumerate(outputs, 1):
        waiting[out.topic].append(out)
        for topic, queue in waiting.items():
            if number == len(outputs) or chance.random() < 0.1:
                for each in queue:
                    at = partition_of(each.key.decode(), PARTITIONS)
                    await producer.send(topic, each.value, key=each.key, partition=at, timestamp_ms=each.timestamp_ms)
                queue.clear()
        await asyncio.sleep(0.02)
    await producer.stop()


@pytest.mark.parametrize("by", ["cursor", "after"])
@on_any_broker
async def test_a_reader_that_is_killed_fifty_times_has_every_release_once_by_its_id(
    broker: AnyBroker, prefix: str, tmp_path: Path, by: str
) -> None:
    """What it had not saved comes again, under the same id; nothing is left out, and each topic keeps its order."""
    outputs, chance = log_of(prefix), random.Random(by)
    await create_topics(broker.bootstrap, {out.topic for out in outputs}, partitions=PARTITIONS)
    writing = asyncio.create_task(trickled(broker, outputs, chance))
    seen: list[str] = []
    for _ in range(50):
        cursor = Cursor(tmp_path / "cursor") if by == "cursor" else None
        begin: dict[str, Any] = {"after": seen[-1]} if by == "after" and seen else {"from_start": True}
        reading = subscribe(kafka=broker.bootstrap, audience=prefix, cursor=cursor, **begin)
        with suppress(TimeoutError):
            async with asyncio.timeout(chance.uniform(0.2, 1.0)):
                async for record in reading:
                    seen.append(record["release_id"])
                    if cursor is not None and chance.random() < 0.2:
                        cursor.save()
        await reading.aclose()
    await writing
    end: dict[str, Any] = {"after": seen[-1]} if by == "after" else {"cursor": Cursor(tmp_path / "cursor")}
    seen += await read(kafka=broker.bootstrap, audience=prefix, **end)
    once = list(dict.fromkeys(seen))
    assert sorted(once) == sorted(out.id for out in outputs)
    for place in {(out.topic, out.key) for out in outputs}:
        wanted = [out.id for out in outputs if (out.topic, out.key) == place]
        assert [name for name in once if name in set(wanted)] == wanted


@on_any_broker
async def test_a_record_that_was_given_but_not_come_back_for_comes_again(
    broker: AnyBroker, prefix: str, tmp_path: Path
) -> None:
    outputs = [count("east", "occupancy", prefix, end) for end in WINDOWS[:3]]
    await create_topics(broker.bootstrap, {outputs[0].topic}, partitions=PARTITIONS)
    await put(broker, outputs)
    cursor = Cursor(tmp_path / "cursor")
    reading = subscribe(kafka=broker.bootstrap, audience=prefix, cursor=cursor)
    assert [(await anext(reading))["release_id"] for _ in range(2)] == [out.id for out in outputs[:2]]
    await reading.aclose()
    cursor.save()
    again = Cursor(tmp_path / "cursor")
    assert await read(kafka=broker.bootstrap, audience=prefix, cursor=again) == [out.id for out in outputs[1:]]


async def put(broker: AnyBroker, outputs: list[OutputRecord]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    for out in outputs:
        partition = partition_of(out.key.decode(), PARTITIONS)
        await producer.send_and_wait(out.topic, out.value, key=out.key, partition=partition)
    await producer.stop()


@on_any_broker
async def test_what_comes_later_follows_what_was_there(broker: AnyBroker, prefix: str) -> None:
    await published(broker, prefix)
    following = subscribe(kafka=broker.bootstrap, audience=prefix, from_start=True)
    before = [(await anext(following))["release_id"] for _ in range(2 * (2 * len(WINDOWS) + 8))]
    later = [count("east", release, prefix, WINDOWS[-1] + TICK) for release in ("occupancy", "hourly")]
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    for out in later:
        await producer.send(out.topic, out.value, key=out.key, partition=partition_of("east", PARTITIONS))
    await producer.stop()
    async with waiting_for("what was released later"):
        came = [(await anext(following))["release_id"] for _ in later]
    await following.aclose()
    assert came == [later[1].id, later[0].id]
    assert not set(came) & set(before)


@on_any_broker
async def test_after_an_unknown_release_the_reader_is_told_so_and_does_not_wait_for_ever(
    broker: AnyBroker, prefix: str
) -> None:
    await published(broker, prefix)
    with pytest.raises(UsageError, match="--after: must be a release id of this audience"):
        async with waiting_for("a refusal"):
            [record async for record in subscribe(kafka=broker.bootstrap, audience=prefix, after="east/nothing")]


@on_any_broker
async def test_an_unknown_audience_or_release_is_refused(broker: AnyBroker, prefix: str) -> None:
    with pytest.raises(UsageError, match=f"audience {prefix}: must have a private topic"):
        await read(kafka=broker.bootstrap, audience=prefix)
    await published(broker, prefix)
    with pytest.raises(UsageError, match="release nosuch: must have a private topic"):
        await read(kafka=broker.bootstrap, audience=prefix, release="nosuch")


@on_any_broker
async def test_copies_that_contradict_each_other_are_one_error(broker: AnyBroker, prefix: str) -> None:
    topic = private_topic(prefix, "occupancy")
    outputs = [count("east", "occupancy", prefix, end) for end in (WINDOWS[0], WINDOWS[1])]
    other = outputs[0]._replace(value=outputs[0].value.replace(b"x" * 3000, b"y"))
    await create_topics(broker.bootstrap, [topic], partitions=PARTITIONS)
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    for out in [*outputs, other]:
        await producer.send_and_wait(topic, out.value, key=b"east", partition=0)
    await producer.stop()
    with pytest.raises(FinalityError, match="differs from an earlier record"):
        await read(kafka=broker.bootstrap, audience=prefix, from_start=True)


@pytest.mark.parametrize("value", [b"", b"{not json", b"[]", b"{}", b'{"release_id":"a"}'])
@on_any_broker
async def test_what_is_no_release_is_one_error_without_its_content(
    broker: AnyBroker, prefix: str, value: bytes
) -> None:
    topic = private_topic(prefix, "occupancy")
    await create_topics(broker.bootstrap, [topic], partitions=PARTITIONS)
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    await producer.send_and_wait(topic, value, key=b"east", partition=0)
    await producer.stop()
    with pytest.raises(DataError, match="must be"):
        await read(kafka=broker.bootstrap, audience=prefix, from_start=True)


# --- the time of a record --------------------------------------------------------------------------------


async def stamp(broker: AnyBroker, topic: str, partition: int) -> int:
    """Return the time in ms of a partition's last record, as any reader of the log sees it once it is committed."""
    async with waiting_for(f"a record on partition {partition} of {topic}"):
        while not (found := [r for r in await records(broker.bootstrap, topic) if r.partition == partition]):
            await asyncio.sleep(0.1)
    return found[-1].timestamp_ms


@on_any_broker
async def test_a_record_is_stamped_with_its_window_and_quarantine_with_the_present(
    broker: AnyBroker, prefix: str
) -> None:
    private = count("east", "occupancy", prefix, MIDNIGHT)
    refused = OutputRecord(QUARANTINE, b"unknown", b"{}", 0, False, "")
    await create_topics(broker.bootstrap, [private.topic, QUARANTINE, SNAPSHOT, AUDIT], partitions=PARTITIONS)
    writer = await KafkaWriterFactory(broker.bootstrap, fence=prefix).acquire(2)
    await writer.commit([private, refused], b"{}")
    await writer.close()
    assert await stamp(broker, private.topic, 2) == MIDNIGHT // 1000
    age = time.time() * 1000 - await stamp(broker, QUARANTINE, 2)
    assert abs(age) < 60_000, "the broker deletes a record seven days after its stamp"


@on_any_broker
async def test_the_largest_snapshot_that_is_allowed_can_be_written_and_read(broker: AnyBroker, prefix: str) -> None:
    topics = EngineTopics(snapshot=f"{prefix}-snapshot", audit=f"{prefix}-audit")
    await create_topics(broker.bootstrap, [topics.audit], partitions=1)
    await create_as_given(broker.bootstrap, NewTopic(topics.snapshot, 1, 1, topic_configs=topic_config(SNAPSHOT)))
    largest = random.Random(1).randbytes(MAX_RECORD)
    writer = await KafkaWriterFactory(broker.bootstrap, fence=prefix, topics=topics).acquire(0)
    await writer.commit([], largest)
    await writer.close()
    writer = await KafkaWriterFactory(broker.bootstrap, fence=prefix, topics=topics).acquire(
        0
    )  # waits for what was committed
    assert await writer.last_snapshot() == largest
    with pytest.raises(UsageError, match="its snapshot must be at most 16 MiB"):
        await writer.commit([], largest + b"x")
    await writer.close()


# --- going on without reading all of it again --------------------------------------------------------------


def counted_fetches(monkeypatch: pytest.MonkeyPatch, topic: str) -> list[int]:
    """Note how many records of a topic each answer of the broker hands to a reader."""
    from aiokafka import AIOKafkaConsumer

    fetched: list[int] = []
    real = AIOKafkaConsumer.getmany

    async def getmany(self: Any, *partitions: Any, **options: Any) -> Any:
        batches = await real(self, *partitions, **options)
        fetched.append(sum(len(batch) for partition, batch in batches.items() if partition.topic == topic))
        return batches

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", getmany)
    return fetched


@on_any_broker
async def test_going_on_fetches_what_is_new_and_a_little_before_it_and_not_the_topic_from_its_start(
    broker: AnyBroker, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A month of a release lies there: 8,640 windows of one site."""
    old = [count("east", "occupancy", prefix, MIDNIGHT + n * TICK) for n in range(8640)]
    old = [out._replace(value=out.value.replace(b"x" * 3000, b"x")) for out in old]
    new = [count("east", "occupancy", prefix, MIDNIGHT + n * TICK) for n in range(8640, 8650)]
    await create_topics(broker.bootstrap, {old[0].topic}, partitions=PARTITIONS)
    await put_together(broker, old)
    cursor = Cursor(tmp_path / "cursor")
    assert len(await read(kafka=broker.bootstrap, audience=prefix, cursor=cursor)) == len(old)
    cursor.save()
    await put_together(broker, [old[-1], *new])
    fetched = counted_fetches(monkeypatch, old[0].topic)
    again = await read(kafka=broker.bootstrap, audience=prefix, cursor=Cursor(tmp_path / "cursor"))
    assert again == [out.id for out in new], "a copy of the last one that was given is known as such"
    assert sum(fetched) == LOOK_BACK + 1 + len(new)


@on_any_broker
async def test_a_site_that_had_not_been_given_when_the_reader_was_killed_is_not_passed_over(
    broker: AnyBroker, prefix: str, tmp_path: Path
) -> None:
    """East and west lie in one partition, west before east; by their windows east comes first."""
    beside = partition_of("east", PARTITIONS)
    name = next(name for n in range(99) if partition_of(name := f"west{n}", PARTITIONS) == beside)
    west = [count(name, "occupancy", prefix, end) for end in WINDOWS[40:44]]
    east = [count("east", "occupancy", prefix, end) for end in WINDOWS[:4]]
    await create_topics(broker.bootstrap, {west[0].topic}, partitions=PARTITIONS)
    await put_together(broker, [*west, *east])
    cursor = Cursor(tmp_path / "cursor")
    reading = subscribe(kafka=broker.bootstrap, audience=prefix, cursor=cursor)
    assert [(await anext(reading))["release_id"] for _ in range(4)] == [out.id for out in east]
    await reading.aclose()
    cursor.save()
    again = await read(kafka=broker.bootstrap, audience=prefix, cursor=Cursor(tmp_path / "cursor"))
    assert again == [out.id for out in (east[3], *west)]


async def put_together(broker: AnyBroker, outputs: list[OutputRecord]) -> None:
    """Write without waiting for each answer."""
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    for out in outputs:
        partition = partition_of(out.key.decode(), PARTITIONS)
        await producer.send(out.topic, out.value, key=out.key, partition=partition)
    await producer.stop()


async def made_anew(broker: AnyBroker, topic: str, outputs: list[OutputRecord]) -> None:
    """Delete a topic, make it again, and let it hold these records."""
    await delete_topics(broker.bootstrap, [topic])
    await create_topics(broker.bootstrap, {topic}, partitions=PARTITIONS)
    await put_together(broker, outputs)


@on_any_broker
async def test_a_cursor_of_a_topic_that_was_made_anew_and_has_grown_past_it_is_refused_and_nothing_is_skipped(
    broker: AnyBroker, prefix: str, tmp_path: Path
) -> None:
    """It went on from an offset at which another release lay, and skipped all that lay before it."""
    old = [count("east", "occupancy", prefix, end) for end in WINDOWS[:20]]
    new = [count("east", "occupancy", prefix, end) for end in WINDOWS[20:60]]
    await create_topics(broker.bootstrap, {old[0].topic}, partitions=PARTITIONS)
    await put_together(broker, old)
    cursor = Cursor(tmp_path / "cursor")
    assert await read(kafka=broker.bootstrap, audience=prefix, cursor=cursor) == [out.id for out in old]
    cursor.save()
    await made_anew(broker, old[0].topic, new)
    with pytest.raises(
        UsageError, match=rf"must fit topic {old[0].topic}, which no longer contains .* Delete the file"
    ):
        await read(kafka=broker.bootstrap, audience=prefix, cursor=Cursor(tmp_path / "cursor"))
    (tmp_path / "cursor").unlink()
    again = await read(kafka=broker.bootstrap, audience=prefix, cursor=Cursor(tmp_path / "cursor"))
    assert again == [out.id for out in new]


@on_any_broker
async def test_records_that_were_deleted_before_a_subscriber_came_back_are_missed(
    broker: AnyBroker, prefix: str, tmp_path: Path
) -> None:
    outputs = [count("east", "occupancy", prefix, end) for end in WINDOWS[:40]]
    await create_topics(broker.bootstrap, {outputs[0].topic}, partitions=PARTITIONS)
    await put_together(broker, outputs[:20])
    cursor = Cursor(tmp_path / "cursor")
    await read(kafka=broker.bootstrap, audience=prefix, cursor=cursor)
    cursor.save()
    await put_together(broker, outputs[20:])
    place = TopicPartition(outputs[0].topic, partition_of("east", PARTITIONS))
    for kept, refused in ((20, False), (27, True)):  # what was given may go
        async with administrator(broker.bootstrap) as admin:
            await admin.delete_records({place: RecordsToDelete(before_offset=kept)})
        if refused:
            with pytest.raises(UsageError, match="begins at 27: 7 offsets were deleted before they were delivered"):
                await read(kafka=broker.bootstrap, audience=prefix, cursor=Cursor(tmp_path / "cursor"))
        else:
            wanted = [out.id for out in outputs[20:]]
            assert await read(kafka=broker.bootstrap, audience=prefix, cursor=Cursor(tmp_path / "cursor")) == wanted


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("records", "look"), [(0, 1e9), (20, 1.0), (40, 1e9)], ids=["ends before it", "ends there", "has grown past it"]
)
@on_any_broker
async def test_a_running_subscriber_says_in_words_that_its_topic_was_made_anew(
    broker: AnyBroker, prefix: str, monkeypatch: pytest.MonkeyPatch, records: int, look: float
) -> None:
    """It ended with the error of a library, or went on and skipped what lay before its place.

    What arrives is compared at once; where nothing arrives, the check of every 30 s shows it.
    """
    monkeypatch.setattr("connectors.subscribe.topics.LOOK_SECONDS", look)
    old = [count("east", "occupancy", prefix, end) for end in WINDOWS[:20]]
    new = [count("east", "occupancy", prefix, end) for end in WINDOWS[20 : 20 + records]]
    await create_topics(broker.bootstrap, {old[0].topic}, partitions=PARTITIONS)
    await put_together(broker, old)
    reading = subscribe(kafka=broker.bootstrap, audience=prefix, from_start=True)
    for _ in old:
        await anext(reading)
    await made_anew(broker, old[0].topic, new)
    with pytest.raises(UsageError, match=f"topic {old[0].topic}: must hold the next message, but was made anew"):
        await asyncio.wait_for(anext(reading), 300)  # until the client has asked the broker anew who leads


@pytest.mark.timeout(400)
@pytest.mark.parametrize("before", [0, 20])
@on_any_broker
async def test_a_subscriber_of_what_comes_says_that_its_topic_was_made_anew(
    broker: AnyBroker, prefix: str, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """It has been given nothing with which the topic could be compared."""
    monkeypatch.setattr("connectors.subscribe.topics.LOOK_SECONDS", 1e9)
    old = [count("east", "occupancy", prefix, end) for end in WINDOWS[:20]]
    new = [count("east", "occupancy", prefix, end) for end in WINDOWS[20:60]]
    await create_topics(broker.bootstrap, {old[0].topic}, partitions=PARTITIONS)
    await put_together(broker, old)
    place = TopicPartition(old[0].topic, partition_of("east", PARTITIONS))
    async with administrator(broker.bootstrap) as admin:
        await admin.delete_records({place: RecordsToDelete(before_offset=20 - before)})
    reading = subscribe(kafka=broker.bootstrap, audience=prefix)
    coming = asyncio.ensure_future(anext(reading))
    await asyncio.wait({coming}, timeout=5)
    await made_anew(broker, old[0].topic, new)
    with pytest.raises(UsageError, match=f"topic {old[0].topic}: must hold the next message, but was made anew"):
        await asyncio.wait_for(coming, 300)


@pytest.mark.parametrize("remembered", [False, True], ids=["without a cursor", "with a cursor"])
@on_any_broker
async def test_a_running_subscriber_gets_a_release_that_is_added_later_from_its_first_record_on(
    broker: AnyBroker, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: bool
) -> None:
    """It read the topics that there were when it began: of 290 records of a release that was added it got none."""
    monkeypatch.setattr("connectors.subscribe.topics.LOOK_SECONDS", 0.5)
    old = [count("east", "occupancy", prefix, end) for end in WINDOWS[:40]]
    added = [count("east", "hourly", prefix, end) for end in WINDOWS[20:40]]
    await create_topics(broker.bootstrap, {old[0].topic}, partitions=PARTITIONS)
    await put_together(broker, old[:10])
    cursor = Cursor(tmp_path / "cursor") if remembered else None
    reading = subscribe(kafka=broker.bootstrap, audience=prefix, from_start=True, cursor=cursor)
    given = [(await anext(reading))["release_id"] for _ in range(10)]
    await create_topics(broker.bootstrap, {added[0].topic}, partitions=PARTITIONS)
    await put_together(broker, [*old[10:30], *added])
    async with waiting_for("the releases of both topics"):
        while len(given) < 50:
            given.append((await anext(reading))["release_id"])
        await put_together(broker, old[30:])
        while len(given) < 60:
            given.append((await anext(reading))["release_id"])
    await reading.aclose()
    assert [name for name in given if "/occupancy/" in name] == [out.id for out in old]
    assert [name for name in given if "/hourly/" in name] == [out.id for out in added]
    if cursor is not None:
        cursor.save()
        again = await read(kafka=broker.bootstrap, audience=prefix, cursor=Cursor(tmp_path / "cursor"))
        assert again == [given[-1]], "the one that was not come back for"


@on_any_broker
async def test_a_subscriber_of_one_release_gets_none_that_is_added_later(
    broker: AnyBroker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.subscribe.topics.LOOK_SECONDS", 0.1)
    old = [count("east", "occupancy", prefix, end) for end in WINDOWS[:20]]
    await create_topics(broker.bootstrap, {old[0].topic}, partitions=PARTITIONS)
    await put_together(broker, old[:10])
    reading = subscribe(kafka=broker.bootstrap, audience=prefix, release="occupancy", from_start=True)
    given = [(await anext(reading))["release_id"] for _ in range(10)]
    added = count("east", "hourly", prefix, WINDOWS[0])
    await create_topics(broker.bootstrap, {added.topic}, partitions=PARTITIONS)
    await put_together(broker, [added])
    async with waiting_for("what comes after the added release"):
        for out in old[10:]:
            await put_together(broker, [out])
            given.append((await anext(reading))["release_id"])
    assert given == [out.id for out in old]


@on_any_broker
async def test_a_topic_that_comes_back_without_what_was_given_ends_a_running_subscriber(
    broker: AnyBroker, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was not there when the subscriber began is not a new one where its cursor has given of it."""
    monkeypatch.setattr("connectors.subscribe.topics.LOOK_SECONDS", 0.5)
    old = [count("east", release, prefix, end) for end in WINDOWS[:10] for release in ("occupancy", "hourly")]
    await create_topics(broker.bootstrap, {out.topic for out in old}, partitions=PARTITIONS)
    await put_together(broker, old)
    cursor = Cursor(tmp_path / "cursor")
    assert len(await read(kafka=broker.bootstrap, audience=prefix, cursor=cursor)) == len(old)
    cursor.save()
    await delete_topics(broker.bootstrap, [old[1].topic])
    reading = subscribe(kafka=broker.bootstrap, audience=prefix, cursor=Cursor(tmp_path / "cursor"))
    more = count("east", "occupancy", prefix, WINDOWS[10])
    await put_together(broker, [more])
    async with waiting_for("the one that was not given"):
        assert (await anext(reading))["release_id"] == more.id
    await create_topics(broker.bootstrap, {old[1].topic}, partitions=PARTITIONS)
    await put_together(broker, [count("east", "hourly", prefix, end) for end in WINDOWS[10:40]])
    with pytest.raises(UsageError, match=f"must fit topic {old[1].topic}, which no longer contains"):
        async with waiting_for("a refusal"):
            await to_its_end(reading)


@on_any_broker
async def test_a_running_subscriber_says_in_words_that_its_topic_was_shortened(broker: AnyBroker, prefix: str) -> None:
    """What it had still to give is gone: it says so, whichever topic of several it was."""
    old = [count("east", release, prefix, end) for end in WINDOWS for release in ("occupancy", "hourly")]
    await create_topics(broker.bootstrap, {out.topic for out in old}, partitions=PARTITIONS)
    await put_together(broker, old[:20])
    reading = subscribe(kafka=broker.bootstrap, audience=prefix, from_start=True)
    for _ in range(20):
        await anext(reading)
    await put_together(broker, old[20:])
    place = TopicPartition(old[1].topic, partition_of("east", PARTITIONS))
    async with administrator(broker.bootstrap) as admin:
        await admin.delete_records({place: RecordsToDelete(before_offset=len(WINDOWS))})
    with pytest.raises(
        UsageError, match=f"topic {place.topic}: must hold the next message, but was made anew or short"
    ):
        async with waiting_for("a refusal"):
            await to_its_end(reading)


@pytest.mark.parametrize("hangs", [False, True], ids=["is gone", "hangs"])
@on_any_broker
async def test_a_running_subscriber_outlives_an_outage_of_the_brokers(
    broker: AnyBroker, prefix: str, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.setattr("connectors.subscribe.topics.LOOK_SECONDS", 0.5)
    old = [count("east", "occupancy", prefix, end) for end in WINDOWS[:20]]
    await create_topics(broker.bootstrap, {old[0].topic}, partitions=PARTITIONS)
    await put_together(broker, old[:10])
    reading = subscribe(kafka=broker.bootstrap, audience=prefix, from_start=True)
    given = [(await anext(reading))["release_id"] for _ in range(10)]
    coming = asyncio.ensure_future(anext(reading))
    await (broker.hang if hangs else broker.kill)()
    ended, _ = await asyncio.wait({coming}, timeout=20)
    await broker.recover()
    assert not ended
    await put_together(broker, old[10:])
    async with waiting_for("what came after the outage"):
        given.append((await coming)["release_id"])
        while len(given) < 20:
            given.append((await anext(reading))["release_id"])
    assert given == [out.id for out in old]
    await reading.aclose()


async def to_its_end(reading: AsyncGenerator[Any, None]) -> None:
    async for _ in reading:
        pass
