"""Delivery has no holes and no repeats, and the snapshot alone says where to go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import IllegalStateError
from faust.types import TP

from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.topics import create_topics
from connectors.storage.kafka.worker import WorkerClients
from stream.engine.ports import LossError, UnexpectedCancellationError
from stream.runners.faust_app import HOLE_TRIES, StrictConsumer, StrictThread
from stream.runners.partition_tasks import TaskManager
from tests.integration.chain_engine import Topics, chain
from tests.integration.chain_storm import PARTITIONS, start
from tests.integration.kafka_brokers import Broker
from tests.integration.storm import Worker, records
from tests.support.patience import PATIENCE, waiting_for

# --- delivery, without a broker -------------------------------------------------------------------------


class FakeTask:
    partition = 0
    ended = False
    loss_error = None

    def __init__(self, fetch_offset: int, *, another_log: bool = False, hole: bool | LossError = False) -> None:
        self.fetch_offset = fetch_offset
        self._hole = hole
        self._another_log = another_log
        self.compared = 0

    async def check_same_log(self, bounds: Any) -> None:
        self.compared += 1
        if self._another_log:
            raise LossError("the topic was made anew")

    async def accept_hole(self, offset: int) -> bool:
        if isinstance(self._hole, LossError):
            raise self._hole
        return self._hole

    def end(self) -> None:
        self.ended = True


def consumer(task: FakeTask, *, begin: int = 0, full: int | None = None) -> Any:
    """A strict consumer with nothing around it; ``full`` is the offset for which there never is room."""
    strict: Any = object.__new__(StrictConsumer)
    given: list[tuple[int, int]] = []
    sought: list[int] = []
    after_loss: list[int] = []
    suspending = asyncio.Event()

    async def callback(message: Any) -> None:
        if message.offset == full:
            suspending.set()
            await asyncio.Event().wait()
        given.append((message.expected_offset, message.offset))
        if message.after_loss:
            after_loss.append(message.offset)

    async def wait_first(*waited: Any) -> Any:
        futures = {each: asyncio.ensure_future(each) for each in waited}
        await asyncio.wait(futures.values(), return_when=asyncio.FIRST_COMPLETED)
        done = [each for each, future in futures.items() if future.done()]
        for future in futures.values():
            future.cancel()
        return SimpleNamespace(done=done, results=[futures[each].result() for each in done])

    async def seek_wait(partitions: dict[TP, int]) -> None:
        sought.extend(partitions.values())

    async def earliest_offsets(*tps: TP) -> dict[TP, int]:
        return dict.fromkeys(tps, begin)

    strict.__dict__.update(
        callback=callback, wait_first=wait_first, seek_wait=seek_wait, earliest_offsets=earliest_offsets,
        given=given, sought=sought, after_loss=after_loss, flow_active=True, suspend_flow=suspending, _holes={},
        _task_manager=SimpleNamespace(tasks={0: task}), app=SimpleNamespace(consumer_generation_id=1),
    )  # fmt: skip
    return strict


def fetched(*offsets: int) -> list[Any]:
    return [
        SimpleNamespace(
            topic="t", partition=0, offset=offset, timestamp=0, timestamp_type=0,
            headers=(), key=b"", value=b"", checksum=None,
        )
        for offset in offsets
    ]  # fmt: skip


async def test_only_the_next_offset_is_handed_on_and_older_ones_are_dropped() -> None:
    task = FakeTask(5)
    strict = consumer(task)
    assert await strict._deliver(TP("t", 0), fetched(3, 4, 5, 6))
    assert strict.given == [(5, 5), (6, 6)]
    assert task.compared == 1


async def test_what_comes_again_from_another_log_is_a_loss_and_nothing_of_it_is_handed_on() -> None:
    """A topic made anew under a running worker is given to it from its beginning."""
    strict = consumer(FakeTask(5, another_log=True))
    with pytest.raises(LossError, match="made anew"):
        await strict._deliver(TP("t", 0), fetched(0, 1, 2, 3, 4, 5))
    assert strict.given == []


async def test_a_fetch_that_skips_is_dropped_and_fetched_again_from_the_expected_offset() -> None:
    task = FakeTask(5)
    strict = consumer(task)
    assert await strict._deliver(TP("t", 0), fetched(5, 8, 9))
    assert strict.given == [(5, 5)]
    assert strict.sought == [6]
    assert task.fetch_offset == 6


async def test_a_delivery_that_was_given_up_does_not_move_the_position() -> None:
    task = FakeTask(5)
    strict = consumer(task, full=6)
    assert not await strict._unless_suspended(strict._deliver(TP("t", 0), fetched(5, 6, 7)))
    assert task.fetch_offset == 6
    assert strict.given == [(5, 5)]


async def test_where_there_is_room_a_delivery_comes_to_its_end() -> None:
    task = FakeTask(5)
    strict = consumer(task)
    assert await strict._unless_suspended(strict._deliver(TP("t", 0), fetched(5, 6, 7)))
    assert task.fetch_offset == 8
    strict.flow_active = False
    assert not await strict._unless_suspended(strict._deliver(TP("t", 0), fetched(8)))


async def test_nothing_is_handed_on_for_an_ended_task_or_while_flow_is_stopped() -> None:
    task = FakeTask(5)
    strict = consumer(task)
    task.ended = True
    assert not await strict._deliver(TP("t", 0), fetched(5))
    task.ended, strict.flow_active = False, False
    assert not await strict._deliver(TP("t", 0), fetched(5))
    assert strict.given == []


async def test_messages_deleted_before_they_were_read_are_a_loss() -> None:
    """The task says how much is gone, and at what price it is gone on without (see its own tests)."""
    strict = consumer(FakeTask(5, another_log=True), begin=8)
    with pytest.raises(LossError):
        await strict._deliver(TP("t", 0), fetched(8))
    assert strict.given == []


async def test_a_hole_is_believed_only_when_the_broker_skips_it_again_and_again() -> None:
    strict = consumer(FakeTask(5))
    for _ in range(HOLE_TRIES - 1):
        await strict._deliver(TP("t", 0), fetched(7))
        assert strict.given == []
    await strict._deliver(TP("t", 0), fetched(7))
    assert (strict.given, strict.after_loss) == ([(5, 7)], [])


async def test_messages_that_are_gone_from_within_the_log_are_a_loss() -> None:
    task = FakeTask(5, hole=LossError("messages are gone"))
    strict = consumer(task)
    for _ in range(HOLE_TRIES - 1):
        await strict._deliver(TP("t", 0), fetched(7))
    with pytest.raises(LossError, match="messages are gone"):
        await strict._deliver(TP("t", 0), fetched(7))
    assert (strict.given, task.fetch_offset) == ([], 5)


async def test_the_first_message_after_a_loss_that_was_accepted_says_so() -> None:
    strict = consumer(FakeTask(5, hole=True))
    for _ in range(HOLE_TRIES):
        await strict._deliver(TP("t", 0), fetched(7, 8))
    assert (strict.given, strict.after_loss) == ([(5, 7), (8, 8)], [7])


# --- opening, without a broker --------------------------------------------------------------------------


def opener(
    *assigned: int, seek: Callable[[], None] = lambda: None, open_: Callable[[int], Awaitable[None]] | None = None
) -> Any:
    """A strict consumer to which the group has given these partitions."""
    strict: Any = object.__new__(StrictConsumer)
    nobody: Any = None
    task_manager = TaskManager(nobody, nobody, audit_topic="audit")

    async def opened(number: int, _bounds: Any) -> Any:
        await asyncio.sleep(0)
        if open_ is not None:
            await open_(number)
        task_manager.tasks[number] = task = FakeTask(5)  # type: ignore[assignment]
        return task

    async def seek_wait(_: Any) -> None:
        seek()

    task_manager.open = opened  # type: ignore[method-assign,assignment]
    task_manager.release = task_manager.tasks.clear  # type: ignore[method-assign]
    given = {TP("t", number) for number in assigned}
    strict.__dict__.update(
        _task_manager=task_manager, _holes={}, _lost={}, _opening=asyncio.Lock(), seek_wait=seek_wait, assigned=given,
        assignment=lambda: strict.assigned, flow_active=True, can_resume_flow=asyncio.Event(),
        suspend_flow=asyncio.Event(), app=SimpleNamespace(source="t", rebalancing=False),
    )  # fmt: skip
    return strict


async def test_every_assigned_partition_is_opened() -> None:
    strict = opener(0, 3)
    assert strict.unopened() == [0, 3]
    await strict.perform_seek()
    assert (sorted(strict._task_manager.tasks), strict.unopened()) == ([0, 3], [0, 3])
    strict.resume_flow()
    assert strict.unopened() == []


async def test_what_hands_nothing_on_is_not_open() -> None:
    """An ended task, a group that is not settled, and a flow that was not let go on."""
    strict = opener(0, 3)
    await strict.perform_seek()
    strict.resume_flow()
    strict._task_manager.tasks[3].ended = True
    assert strict.unopened() == [3]
    strict.flow_active = False
    assert strict.unopened() == [0, 3]
    strict.flow_active, strict.app.rebalancing = True, True
    assert strict.unopened() == [0, 3]


async def test_nothing_is_handed_on_before_all_is_open() -> None:
    """Faust empties its queues when it lets the flow go on: what was handed on before is lost, and the next not due.

    The flow goes on meanwhile where a rebalance has let the opening before it come to its end.
    """
    given: list[int] = []

    async def deliver(_: int) -> None:
        for number, task in list(strict._task_manager.tasks.items()):
            assert not await strict._deliver(TP("t", number), fetched(task.fetch_offset))

    async def hand_on(_: Any, __: Any, record: Any, ___: bool) -> None:
        given.append(record.offset)

    strict = opener(0, 3, open_=deliver)
    strict._enqueue = hand_on
    await strict.perform_seek()
    await deliver(0)
    assert (given, strict.can_resume_flow.is_set(), strict.suspend_flow.is_set()) == ([], False, True)


async def test_a_partition_that_is_taken_away_while_it_is_opened_is_no_fault() -> None:
    def taken_away() -> None:
        strict.assigned = set()
        raise IllegalStateError("Partition is not assigned")

    strict = opener(0, seek=taken_away)
    await strict.perform_seek()
    assert strict._task_manager.failure is None


async def test_a_position_that_cannot_be_set_ends_the_work() -> None:
    def refused() -> None:
        raise IllegalStateError("Partition is not assigned")

    strict = opener(0, seek=refused)
    with pytest.raises(IllegalStateError):
        await strict.perform_seek()
    assert isinstance(strict._task_manager.failure, IllegalStateError)


async def test_an_opening_that_nobody_has_cancelled_ends_the_work() -> None:
    """Faust's task that waits for it would end without a word."""

    async def cancelled(_: int) -> None:
        raise asyncio.CancelledError

    strict = opener(0, open_=cancelled)
    with pytest.raises(UnexpectedCancellationError):
        await asyncio.create_task(strict.perform_seek())
    assert isinstance(strict._task_manager.failure, UnexpectedCancellationError)


async def test_an_opening_that_a_rebalance_ends_is_no_fault() -> None:
    strict = opener(0)
    opening = asyncio.create_task(strict.perform_seek())
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait({opening})
    assert (opening.cancelled(), strict._task_manager.failure) == (True, None)


async def test_a_delivery_that_nobody_has_cancelled_ends_the_work() -> None:
    strict = opener(0)

    async def cancelled(**_: Any) -> None:
        raise asyncio.CancelledError

    strict.__dict__.update(_stopped=asyncio.Event(), _crashed=asyncio.Event(), _wait_next_records=cancelled)
    with pytest.raises(UnexpectedCancellationError):
        await asyncio.create_task(strict._drain_messages(SimpleNamespace(should_stop=False)))
    assert isinstance(strict._task_manager.failure, UnexpectedCancellationError)


async def test_a_task_of_aiokafkas_that_has_ended_is_named() -> None:
    """Without one of them nothing comes any more."""
    thread: Any = object.__new__(StrictThread)
    thread.app = SimpleNamespace(clients=WorkerClients())
    tasks = [asyncio.create_task(asyncio.Event().wait()) for _ in range(3)]
    thread._consumer = SimpleNamespace(
        _fetcher=SimpleNamespace(_fetch_task=tasks[0]), _coordinator=SimpleNamespace(_coordination_task=tasks[1]),
        _client=SimpleNamespace(_sync_task=tasks[2]),
    )  # fmt: skip
    assert thread.ended_tasks() == []
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert thread.ended_tasks() == [
        "aiokafka's fetcher", "aiokafka's group member", "aiokafka's look at the cluster"
    ]  # fmt: skip


# --- position, on a broker ------------------------------------------------------------------------------


async def send(broker: Broker, topic: str, numbers: range) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    try:
        for number in numbers:
            value, partition = orjson.dumps({"n": number}), partition_of("s", PARTITIONS)
            await producer.send_and_wait(topic, value, key=b"s", partition=partition)
    finally:
        await producer.stop()


async def wait_for(broker: Broker, topic: str, count: int) -> list[Any]:
    """Return the topic's records as soon as there are that many."""
    async with waiting_for(f"{count} records of {topic}"):
        while len(found := await records(broker.bootstrap, topic)) < count:
            await asyncio.sleep(0.2)
    return found


async def finish(process: Worker) -> int:
    process.terminate()
    return await asyncio.to_thread(process.wait, PATIENCE)


async def heads(broker: Broker, topics: Topics) -> list[tuple[str, str]]:
    bodies = [orjson.loads(record.value) for record in await records(broker.bootstrap, topics.private)]
    return [(body["release_id"], body["head"]) for body in bodies]


def expected(numbers: range) -> list[tuple[str, str]]:
    return [(release_id, head.hex()) for release_id, head in chain("s", numbers)]


@pytest.fixture
def worker(kafka: Broker, prefix: str, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start worker processes; none of them outlives the test."""
    started: list[Worker] = []

    def run(*options: str) -> Worker:
        arguments = [kafka.bootstrap, prefix, "10", *options]
        started.append(start("tests.integration.chain_worker", *arguments, log=tmp_path / "log"))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
async def topics(kafka: Broker, prefix: str) -> Topics:
    topics = Topics.of(prefix)
    await create_topics(kafka.bootstrap, topics, partitions=PARTITIONS)
    return topics


@pytest.mark.kafka
@pytest.mark.long
async def test_the_group_offset_is_not_believed(
    kafka: Broker, prefix: str, topics: Topics, tmp_path: Path, worker: Callable[..., Worker]
) -> None:
    await send(kafka, topics.source, range(10))
    first = worker()
    await wait_for(kafka, topics.private, 2)
    assert await finish(first) == 0
    await send(kafka, topics.source, range(10, 20))
    at = TopicPartition(topics.source, partition_of("s", PARTITIONS))
    meddler = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap, group_id=prefix, enable_auto_commit=False)
    await meddler.start()
    meddler.assign([at])
    assert await meddler.committed(at) == 10  # the worker's figure for lag displays
    await meddler.commit({at: 17})
    await meddler.stop()
    second = worker()
    await wait_for(kafka, topics.private, 4)
    assert await finish(second) == 0
    assert await heads(kafka, topics) == expected(range(20))


async def compact(broker: Broker, topic: str) -> None:
    """Let the broker compact a topic as soon and as often as it can."""
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01",
                "max.compaction.lag.ms": "100"}  # fmt: skip
    await configure(broker, topic, settings)


async def configure(broker: Broker, topic: str, settings: dict[str, str]) -> None:
    """Set a topic; what is left out is set back to what the broker has."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, settings)])
    await admin.close()


@pytest.mark.kafka
@pytest.mark.long
async def test_a_compacted_topic_stops_the_worker_and_accept_loss_goes_on(
    kafka: Broker, prefix: str, topics: Topics, tmp_path: Path, worker: Callable[..., Worker]
) -> None:
    await compact(kafka, topics.source)
    await send(kafka, topics.source, range(20))
    sent = 20
    async with waiting_for("the broker to compact a topic"):
        while len(kept := await records(kafka.bootstrap, topics.source)) == sent:
            await asyncio.sleep(1)
            await send(kafka, topics.source, range(sent, sent + 1))
            sent += 1
    first = worker()
    assert await asyncio.to_thread(first.wait, PATIENCE) == 1
    log = (tmp_path / "log").read_text()
    assert f"partition {partition_of('s', PARTITIONS)} of the observations: offset 0 is next, but" in log
    assert "are gone" in log
    assert "--accept-loss" in log
    assert await records(kafka.bootstrap, topics.private) == []

    await configure(kafka, topics.source, {"cleanup.policy": "delete"})  # or it goes on with what comes now
    worker("--accept-loss")
    await send(kafka, topics.source, range(sent, sent + 5))
    await wait_for(kafka, topics.private, 1)
    assert kept
    assert "accepted: partition" in (tmp_path / "log").read_text()
