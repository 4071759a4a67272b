"""The loop over a topic of counts: what it reads and when it hands on, with a stand-in for Kafka that can be away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import orjson
import pytest
import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from connectors.keys.data_keys import DataKeys
from connectors.sources.counters import topic as topic_module
from connectors.sources.counters.topic import PATIENCE, CountsTopic, check_topic, windows_behind
from connectors.sources.counters.windows import WindowCollector
from connectors.sources.ingest.receiver import EVERY
from connectors.sources.recordings.rows import CellRules
from connectors.storage.kafka.client import NotAllowedError, partition_of
from stream.encoding import encode_message
from stream.errors import UsageError
from stream.records import DAY, SECOND, CountedWindow, Micros
from stream.schemas import OBSERVATIONS, rfc3339
from stream.sensing.counter_feed import COUNTERS
from tests.support.patience import waiting_for, within_patience
from tests.unit.release.test_counter_sites import BEGIN, POLICY, SITE, TICK, window

END = BEGIN + POLICY.site[SITE].lateness
VAULT = DataKeys(BEGIN // DAY, bytes(32))
ONE = TopicPartition("counters", 0)


class Row(NamedTuple):
    value: bytes | None
    timestamp: int


def row(number: int, count: int = 3, when: Micros = 0) -> Row:
    body = {"window_end": rfc3339(BEGIN + number * TICK), "zone": "gate", "count": count}
    return Row(orjson.dumps(body), (when or BEGIN + number * TICK) // 1000)


class Broker:
    """A topic of one partition, which may be away."""

    def __init__(self, *rows: Row) -> None:
        self.rows = [*rows]
        self.troubles: list[Exception] = []
        """What the next questions are answered by."""
        self.opened, self.at, self.written_until = 0, 0, 1 << 62
        self._client = None

    def assignment(self) -> set[TopicPartition]:
        return {ONE}

    def assign(self, places: list[TopicPartition]) -> None:
        assert places == [ONE]

    def seek(self, at: TopicPartition, offset: int) -> None:
        self.at = offset

    async def position(self, at: TopicPartition) -> int:
        return self.at

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        if self.troubles:
            raise self.troubles.pop(0)
        return {ONE: sum(each.timestamp * 1000 <= self.written_until for each in self.rows)}

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        found = [number for number, each in enumerate(self.rows) if each.timestamp >= times[ONE]]
        return {ONE: type("Found", (), {"offset": found[0]}) if found else None}

    async def getmany(self, timeout_ms: int) -> dict[TopicPartition, list[Row]]:
        self.at += 1
        return {ONE: [self.rows[self.at - 1]]}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()

    @asynccontextmanager
    async def reader_of(_: str) -> AsyncIterator[Broker]:
        made.opened += 1
        yield made

    async def partitions_of(_: Any, name: str) -> list[int]:
        return [0]

    monkeypatch.setattr(topic_module, "reader_of", reader_of)
    monkeypatch.setattr(topic_module, "partitions_of", partitions_of)
    monkeypatch.setattr(topic_module, "POLL", 0.0)
    return made


class Clock:
    """Moves on by ``step`` each time it is looked at."""

    def __init__(self, now: Micros, step: Micros = 0) -> None:
        self.now, self.step = now, step

    def __call__(self) -> Micros:
        self.now += self.step
        return self.now


class Taken(list[CountedWindow]):
    """Takes windows, and calls ``after`` with each."""

    after: Callable[[CountedWindow], None] | None = None

    async def append(self, message: Any) -> None:  # type: ignore[override]
        super().append(message)
        if self.after is not None:
            self.after(message)


def gathering(windows: int) -> WindowCollector:
    return WindowCollector(CellRules(POLICY), BEGIN, {SITE: BEGIN}, BEGIN + (windows - 1) * TICK)


async def poured(broker: Broker, clock: Callable[[], Micros], windows: int) -> Taken:
    taken = Taken()
    made = CountsTopic("here:1", "counters", gathering(windows), clock=clock)
    async with waiting_for("the last window"):
        await made.deliver(taken, asyncio.Event())
    return taken


async def test_windows_are_delivered_by_the_clock_up_to_the_last_one(broker: Broker) -> None:
    broker.rows += [row(0), row(1, 4), row(2, 5)]
    clock = Clock(BEGIN, TICK // 8)

    def now() -> Micros:
        broker.written_until = clock()
        return broker.written_until

    assert await poured(broker, now, 3) == [window(0, 3), window(1, 4), window(2, 5)]


async def test_a_topic_that_does_not_exist_is_named_by_its_option(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def partitions_of(_: Any, name: str) -> list[int]:
        raise UsageError(f"topic {name}: does not exist")

    monkeypatch.setattr(topic_module, "partitions_of", partitions_of)
    with pytest.raises(UsageError, match=r"^--topic: topic counters: does not exist"):
        await poured(broker, Clock(BEGIN), 1)


async def test_nothing_is_closed_while_the_topic_cannot_be_read_and_then_nothing_is_missing(broker: Broker) -> None:
    broker.rows += [row(0), row(1, 4)]
    broker.troubles += [KafkaError(), TimeoutError(), ConnectionError()]
    with structlog.testing.capture_logs() as lines:
        assert await poured(broker, Clock(BEGIN + 5 * TICK), 2) == [window(0, 3), window(1, 4)]
    assert [line["event"] for line in lines] == ["topic not read"] * 3
    assert broker.opened == 4  # anew each time


async def test_rows_are_read_again_after_an_outage_without_harm(broker: Broker) -> None:
    broker.rows += [row(0), row(0), row(1, 4)]
    taken = Taken()
    made = CountsTopic("here:1", "counters", gathering(2), clock=Clock(END + 1))
    taken.after = lambda _: broker.troubles.append(KafkaError())
    stop = asyncio.Event()
    pouring = asyncio.create_task(made.deliver(taken, stop))
    while broker.opened < 2:
        await asyncio.sleep(0)
    made._clock = Clock(END + TICK + 1)
    taken.after = None
    await within_patience(pouring, "the source to end")
    assert taken == [window(0, 3), window(1, 4)]
    assert made.collector.dropped == {"incomplete": 2}, "the rows name one of two zones"


async def test_a_topic_that_may_not_be_read_ends_it(broker: Broker) -> None:
    broker.troubles.append(TopicAuthorizationFailedError())
    with pytest.raises(NotAllowedError, match="topic counters: must be open to this user"):
        await poured(broker, Clock(BEGIN), 1)


async def test_after_a_stop_no_window_is_delivered(broker: Broker) -> None:
    taken, stop = Taken(), asyncio.Event()
    taken.after = lambda _: stop.set()
    made = CountsTopic("here:1", "counters", gathering(5), clock=Clock(BEGIN + 50 * TICK))
    await within_patience(made.deliver(taken, stop), "the source to end")
    assert taken == [window(0)]


async def test_after_a_stop_a_broker_that_hangs_is_not_waited_for(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = asyncio.Event()

    async def hang(_: Any) -> None:
        stop.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(broker, "end_offsets", hang)
    made = CountsTopic("here:1", "counters", gathering(5), clock=Clock(BEGIN + 50 * TICK))
    await within_patience(made.deliver(Taken(), stop), "the source to end")


async def test_a_record_from_the_future_or_without_a_value_moves_nothing(broker: Broker) -> None:
    broker.rows += [row(0, 9, when=BEGIN + 900 * TICK), Row(None, BEGIN // 1000), row(0)]
    made = CountsTopic("here:1", "counters", gathering(1), clock=Clock(END + 1))
    taken = Taken()
    await within_patience(made.deliver(taken, asyncio.Event()), "the source to end")
    assert taken == [window(0, 3)]
    assert made.collector.dropped == {"late": 1, "bad_row": 1, "incomplete": 1}


async def test_drops_are_logged_by_reason_and_power_of_ten(broker: Broker) -> None:
    broker.rows += [Row(b"?", BEGIN // 1000)] * 12
    with structlog.testing.capture_logs() as lines:
        await poured(broker, Clock(BEGIN, int(EVERY) * SECOND), 1)
    (output,) = [line for line in lines if line["event"] == "count_rows_dropped"]
    assert (output["reason"], output["count"]) == ("bad_row", "between 10 and 99")


async def test_it_is_well_while_it_was_read_to_its_end_lately(broker: Broker) -> None:
    made = CountsTopic("here:1", "counters", gathering(1), clock=Clock(END + 1))
    assert not made.is_read
    await within_patience(made.deliver(Taken(), asyncio.Event()), "the source to end")
    assert made.is_read
    made._clock = Clock(END + 1 + int(PATIENCE) * SECOND)
    assert not made.is_read


async def test_a_restart_goes_on_after_the_last_window_of_each_site_that_the_log_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = CountedWindow("elsewhere", COUNTERS, BEGIN, BEGIN + 9 * TICK, ())
    tail = [encode_message(each, VAULT) for each in (window(1), window(4), window(2), other)] + [b"?"]

    async def read_tail(bootstrap: str, topic: str, partition: int, count: int) -> list[bytes]:
        assert (bootstrap, topic, partition) == ("here:1", OBSERVATIONS, partition_of(SITE, 8))
        return tail

    async def refused(*_: object) -> list[bytes]:
        raise NotAllowedError

    monkeypatch.setattr(topic_module, "read_tail", read_tail)
    assert await windows_behind("here:1", POLICY, 8) == {SITE: BEGIN + 5 * TICK}
    monkeypatch.setattr(topic_module, "read_tail", refused)
    assert await windows_behind("here:1", POLICY, 8) == {}


@pytest.mark.parametrize("name", ["tacet.observations.v1", "tacet.", "", ".", "..", "a b", "a/b", "é", "x" * 250])
def test_a_topic_of_our_own_or_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--topic: must be"):
        check_topic("--topic", name)
    check_topic("--topic", "people.counters-1")
