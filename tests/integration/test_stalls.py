"""A worker opens what the group gives to it, however long that takes, or it ends with 1 and says why."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connectors.storage.kafka.topics import create_topics
from tests.integration.chain_engine import Topics
from tests.integration.chain_storm import PARTITIONS, start
from tests.integration.kafka_brokers import Broker
from tests.integration.storm import Worker
from tests.integration.test_strict_consumer import expected, heads, send, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
SESSION = 6.0
"""Seconds; Faust's own wait for an opening is 5 s longer."""
LONG = 22.0
"""Seconds for which an opening takes longer than any wait of Faust's or the group's."""
PATIENCE = 300.0
"""Seconds after which a test says what it waited for."""


class Held:
    """A worker and the folder by which its openings are held up."""

    def __init__(self, kafka: Broker, prefix: str, folder: Path, *more: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.log = folder, folder / "log"
        words = [kafka.bootstrap, prefix, str(SESSION), str(folder), *more]
        self.process: Worker = start("tests.integration.held_worker", *words, log=self.log)

    def said(self, text: str) -> bool:
        return self.log.exists() and text in self.log.read_text()

    async def until_it_says(self, text: str) -> None:
        await until(lambda: self.said(text), f"the worker to log {text!r}")

    async def ended(self) -> int:
        await until(lambda: self.process.poll() is not None, "the worker to end")
        return self.process.wait()


async def until(there: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while not there():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"waited {PATIENCE:.0f} s for {what}")


@pytest.fixture
async def topics(kafka: Broker, prefix: str) -> Topics:
    topics = Topics.of(prefix)
    await create_topics(kafka.bootstrap, topics, partitions=PARTITIONS)
    return topics


@pytest.fixture
def worker(kafka: Broker, prefix: str, tmp_path: Path) -> Iterator[Callable[..., Held]]:
    """Start workers; none of them outlives the test."""
    started: list[Held] = []

    def run(name: str, *more: str, held: bool = False) -> Held:
        (tmp_path / name).mkdir()
        if held:
            (tmp_path / name / "hold").touch()
        started.append(Held(kafka, prefix, tmp_path / name, *more))
        return started[-1]

    yield run
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.mark.parametrize("why", ["it is paused", "its opening is slow"])
async def test_who_takes_over_a_dead_workers_partitions_opens_them_however_long_that_takes(
    kafka: Broker, prefix: str, topics: Topics, worker: Callable[..., Held], why: str
) -> None:
    """Paused, it also loses its place in the group, and what it has begun to open is given to it again."""
    await send(kafka, topics.source, range(10))
    survivor, other = worker("survivor"), worker("other")
    for each in (survivor, other):
        await each.until_it_says("opened at offset")
    await wait_for(kafka, topics.private, 2)
    (survivor.folder / "hold").touch()
    other.process.kill()
    await until((survivor.folder / "opening").exists, "the survivor to open what the group gives to it")
    if why == "it is paused":
        survivor.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(LONG)
    survivor.process.send_signal(signal.SIGCONT)
    (survivor.folder / "hold").unlink()
    await send(kafka, topics.source, range(10, 20))
    await wait_for(kafka, topics.private, 4)
    survivor.process.terminate()
    assert await survivor.ended() == 0
    assert await heads(kafka, topics) == expected(range(20))


async def test_partitions_that_do_not_open_in_time_end_the_worker_with_1_and_it_says_which(
    topics: Topics, worker: Callable[..., Held]
) -> None:
    stuck = worker("stuck", "2", held=True)
    assert await stuck.ended() == 1
    said = "worker stopped: StalledError: partitions 0, 1, 2, 3 were assigned and have not opened within 2 s"
    assert stuck.said(said)


async def test_a_worker_told_to_stop_before_its_partitions_have_opened_ends_with_1(
    topics: Topics, worker: Callable[..., Held]
) -> None:
    stuck = worker("stuck", held=True)
    await stuck.until_it_says(f"partitions 0, 1, 2, 3 were assigned and have not opened for {SESSION:g} s")
    stuck.process.terminate()
    assert await stuck.ended() == 1
    assert stuck.said("StalledError: told to stop while partitions 0, 1, 2, 3 were assigned and had not opened for")


@pytest.mark.parametrize("task", ["Recovery._restart_recovery", "Fetcher._fetcher", "Conductor._subscriber"])
async def test_a_task_of_fausts_that_ends_by_itself_ends_the_worker_with_1_and_is_named(
    topics: Topics, worker: Callable[..., Held], task: str
) -> None:
    """Faust goes on without it, in the group, and does nothing."""
    maimed = worker("maimed", "3600", task)
    await maimed.until_it_says("Worker ready")
    (maimed.folder / "cancel").touch()
    assert await maimed.ended() == 1
    assert maimed.said("worker stopped: ")
