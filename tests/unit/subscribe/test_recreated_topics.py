"""A subscriber whose topic is deleted and created again between two reads is told before it is given anything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from connectors.storage.kafka.recreation import RecreationCheck
from connectors.subscribe import topics
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.topics import from_topics
from stream.errors import UsageError
from stream.schemas import private_topic, rfc3339
from tests.support.patience import within_patience
from tests.unit.kafka.logs_in_memory import Cluster, Log, let_read

AT = TopicPartition(private_topic("board", "occupancy"), 0)
ANEW = "must hold the next message, but was made anew"


def log_of(*numbers: int) -> Log:
    """Return a log with the records of these windows."""
    return Log({2 * place: record(number) for place, number in enumerate(numbers)})


def record(number: int) -> bytes:
    end = rfc3339(number * 300_000_000)
    body = {"release_id": f"east/occupancy/board/{end}", "site": "east", "release": "occupancy", "window_end": end}
    return orjson.dumps(body)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster({AT: log_of(*range(6))})
    let_read(monkeypatch, made)

    async def only(*_: object) -> dict[str, str]:
        return {"occupancy": AT.topic}

    async def not_grown(*_: object) -> None:
        pass

    monkeypatch.setattr(topics, "_topics_of", only)
    monkeypatch.setattr(topics, "refuse_grown", not_grown)
    return made


class Subscriber:
    """Notes what it is given, until it is told something."""

    def __init__(self, *, whole: bool = True, cursor: Cursor | None = None) -> None:
        self._reading = from_topics("servers", "board", None, whole=whole, after=None, cursor=cursor)
        self.given: list[Any] = []

    async def read(self, count: int) -> None:
        """Read until it has been given so many."""
        while len(self.given) < count:
            self.given.append(await within_patience(anext(self._reading), "what comes"))


@pytest.mark.parametrize("remembered", [False, True])
async def test_a_topic_that_is_longer_than_the_former_one(cluster: Cluster, tmp_path: Path, remembered: bool) -> None:
    subscriber = Subscriber(cursor=Cursor(tmp_path / "cursor") if remembered else None)
    await subscriber.read(7)  # the last one is the mark that all was read
    cluster.logs[AT].records[12] = record(6)
    await subscriber.read(8)
    cluster.logs[AT] = log_of(*range(20, 40))
    with pytest.raises(UsageError, match=ANEW):
        await subscriber.read(9)
    assert len(subscriber.given) == 8


async def test_a_topic_of_which_nothing_was_given(cluster: Cluster) -> None:
    subscriber = Subscriber(whole=False)
    await subscriber.read(1)
    cluster.logs[AT] = log_of(*range(20, 40))
    with pytest.raises(UsageError, match=ANEW):
        await subscriber.read(2)


async def test_a_topic_that_changes_while_its_records_are_read_for_the_first_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of its records had been read."""
    real, checks = RecreationCheck.recreated_before, 0

    async def recreated_before(self: RecreationCheck, batches: Any) -> str | None:
        nonlocal checks
        checks += 1
        if checks == 2:
            cluster.logs[AT] = log_of(*range(20, 40))
        return await real(self, batches)

    monkeypatch.setattr(RecreationCheck, "recreated_before", recreated_before)
    subscriber = Subscriber()
    with pytest.raises(UsageError, match=ANEW):
        await subscriber.read(1)
    assert subscriber.given == []


async def test_a_topic_from_which_nothing_comes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends where the former one ended; while a broker is away, it is asked the next time."""
    monkeypatch.setattr(topics, "LOOK_SECONDS", 0.0)
    real, answers = RecreationCheck.recreated, [KafkaConnectionError("away"), TimeoutError()]

    async def recreated(self: RecreationCheck) -> str | None:
        await asyncio.sleep(0)
        if answers:
            raise answers.pop()
        return await real(self)

    monkeypatch.setattr(RecreationCheck, "recreated", recreated)
    subscriber = Subscriber()
    await subscriber.read(7)
    cluster.logs[AT] = log_of(*range(20, 26))
    with pytest.raises(UsageError, match=ANEW):
        await subscriber.read(8)
    assert answers == []


async def test_a_cursor_knows_what_was_delivered_and_reading_goes_on_shortly_before_it(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "LOOK_BACK", 2)
    cursor = Cursor(tmp_path / "cursor")
    await Subscriber(cursor=cursor).read(7)
    cursor.save()
    assert Cursor(tmp_path / "cursor").settled(AT.topic, AT.partition) == cluster.logs[AT].end
    cluster.logs[AT].records[12] = record(6)
    fetches, later = cluster.fetches, Subscriber(cursor=Cursor(tmp_path / "cursor"))
    await later.read(1)
    assert later.given == [orjson.loads(record(6))]
    assert cluster.fetches - fetches <= 2, "two of the seven records are read at once"
