"""A storm: workers killed or paused, and the broker killed, at random seeded instants, under load.

``storm`` lets loose the faults and waits until everything is out; ``exactly_once`` then compares a topic with
its reference. What is fed, how a worker is started and when all is out are given as functions, so that any
engine can stand in the storm.
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from connectors.storage.kafka.topic_tail import Record, consume
from tests.integration.kafka_brokers import Broker
from tests.support.patience import PATIENCE, waiting_for

Worker = subprocess.Popen[bytes]


def by_offset(record: Record) -> Hashable:
    """Identify every record by its place: nothing is a copy."""
    return record.partition, record.offset


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has been stopped by a signal."""
    state = re.search(r"^State:\s+(\S)", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    return state is not None and state[1] == "T"


@dataclass(frozen=True)
class Plan:
    """What the storm does."""

    seed: int
    faults: int
    workers: int = 2
    session_timeout: float = 6.0
    calm: tuple[float, float] = (2.0, 6.0)
    """Seconds between two faults."""
    pause: tuple[float, float] = (7.0, 12.0)
    """Seconds for which a worker is stopped: longer than the session timeout."""
    weights: Mapping[str, int] = field(default_factory=lambda: {"kill": 5, "pause": 3, "broker": 2})
    """How often of each fault: a worker killed, one paused, the broker killed, and the faults of the scenario."""
    fixed: Mapping[int, str] = field(default_factory=dict)
    """Faults that come at their number, whatever the weights."""
    rest: float = 0.0
    """Seconds under load after the last fault."""


Faults = Mapping[str, "Callable[[Field], Coroutine[Any, Any, None]]"]
"""Seconds within which a worker that is asked to end has ended."""


def answers_sigterm(process: Worker) -> bool:
    """Whether a process has come so far that it ends as it should when it is asked to; True if it has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return True
    caught = re.search(r"^SigCgt:\s+([0-9a-f]+)", status, re.MULTILINE)
    return process.poll() is not None or (caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1))


@dataclass
class Report:
    """What the storm did."""

    faults: Counter[str] = field(default_factory=Counter)
    deaths: int = 0
    """Workers that ended by themselves and were started again."""
    exits: list[int] = field(default_factory=list)
    """How the workers ended when they were asked to at the end."""
    seconds: float = 0.0
    copies: dict[str, int] = field(default_factory=dict)


class Field:
    """The workers and the broker, and what can be done to them."""

    def __init__(
        self,
        broker: Broker,
        plan: Plan,
        start_worker: Callable[[int], Worker],
        report: Report,
        *,
        more: Faults,
        alone: Faults,
    ) -> None:
        self._broker = broker
        self._plan = plan
        self._start = start_worker
        self._report = report
        self._more = more
        self._alone = alone
        self.random = random.Random(plan.seed)
        self.workers = [start_worker(number) for number in range(plan.workers)]
        self._busy = [False] * plan.workers
        self._longer: list[asyncio.Task[None]] = []
        """Faults that go on while others come."""
        self._deck: list[str] = []

    def mend(self) -> None:
        """Start workers again that ended by themselves."""
        for number, worker in enumerate(self.workers):
            if worker.poll() is not None and not self._busy[number]:
                self._report.deaths += 1
                self.workers[number] = self._start(number)

    async def fault(self) -> None:
        kind = self._plan.fixed.get(self._report.faults.total()) or self._next_kind()
        if kind in self._alone:
            await self.settle()
            await self._alone[kind](self)
        elif kind in self._more:
            self._longer.append(asyncio.create_task(self._more[kind](self)))
        elif kind == "broker":
            await self._kill_broker()
        elif not self.free():
            self._deck.insert(0, kind)
            return
        elif kind == "kill":
            await self._kill(self.random.choice(self.free()))
        else:
            self._longer.append(asyncio.create_task(self._pause(self.random.choice(self.free()))))
        self._report.faults[kind] += 1

    def free(self) -> list[int]:
        """Return the numbers of the workers to which nothing is being done."""
        return [number for number, busy in enumerate(self._busy) if not busy]

    def _next_kind(self) -> str:
        """Return the next of a shuffled deck, in which each kind is as often as its weight says."""
        if not self._deck:
            self._deck = [kind for kind, weight in self._plan.weights.items() for _ in range(weight)]
            if not self._broker.killable:
                self._deck = [kind for kind in self._deck if kind != "broker"]
            self.random.shuffle(self._deck)
        return self._deck.pop()

    @asynccontextmanager
    async def replaced(self, number: int, start: Callable[[int], Worker]) -> AsyncIterator[Worker]:
        """Kill a worker and start it in another way; nothing else is done to it meanwhile."""
        self._busy[number] = True
        self.workers[number].kill()
        await asyncio.to_thread(self.workers[number].wait)
        self.workers[number] = start(number)
        try:
            yield self.workers[number]
        finally:
            self._busy[number] = False

    @asynccontextmanager
    async def halted(self, start: Callable[[int], Worker] | None = None) -> AsyncIterator[None]:
        """End all workers as an operator does, and start them anew when what needs that is done."""
        await self.end()
        yield
        self.workers = [(start or self._start)(number) for number in range(len(self.workers))]

    async def pause_length(self) -> None:
        """Wait for as long as a paused worker sleeps."""
        await asyncio.sleep(self.random.uniform(*self._plan.pause))

    async def _kill(self, number: int) -> None:
        self._busy[number] = True
        self.workers[number].kill()
        await asyncio.to_thread(self.workers[number].wait)
        await asyncio.sleep(self.random.uniform(0.0, 2.0))
        self.workers[number] = self._start(number)
        self._busy[number] = False

    async def _pause(self, number: int) -> None:
        self._busy[number] = True
        worker = self.workers[number]
        worker.send_signal(signal.SIGSTOP)
        await self.pause_length()
        worker.send_signal(signal.SIGCONT)
        self._busy[number] = False

    async def _kill_broker(self) -> None:
        await asyncio.to_thread(self._broker.kill)
        await asyncio.sleep(self.random.uniform(0.2, 2.0))
        await asyncio.to_thread(self._broker.start)

    async def calm(self) -> None:
        await asyncio.sleep(self.random.uniform(*self._plan.calm))
        self.mend()

    async def settle(self) -> None:
        longer, self._longer = self._longer, []
        await asyncio.gather(*longer)

    def kill_all(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()

    async def end(self) -> list[int]:
        """Ask all workers to end, as soon as each can hear it; return how they ended."""
        for worker in self.workers:
            while not answers_sigterm(worker):
                await asyncio.sleep(0.1)
            worker.send_signal(signal.SIGTERM)
        return [await asyncio.to_thread(worker.wait, PATIENCE) for worker in self.workers]


async def storm(
    broker: Broker,
    plan: Plan,
    *,
    start_worker: Callable[[int], Worker],
    feed: Callable[[asyncio.Event], Awaitable[None]],
    complete: Callable[[], Awaitable[bool]],
    settling: float = 0.0,
    more: Faults | None = None,
    alone: Faults | None = None,
) -> Report:
    """Run workers under ``feed`` (which ends when its event is set) through the faults; return what happened.

    ``more`` are faults of the scenario, by their names in the plan; those in ``alone`` have the storm for
    themselves, for people mend them. After the last fault everything is let run until ``complete`` says that all is
    out, for ``settling`` seconds longer than any wait.
    """
    report, enough, started = Report(), asyncio.Event(), time.monotonic()
    scenario = Field(broker, plan, start_worker, report, more=more or {}, alone=alone or {})
    feeding = asyncio.ensure_future(feed(enough))
    try:
        while report.faults.total() < plan.faults:
            await scenario.calm()
            await scenario.fault()
        await scenario.settle()
        await asyncio.sleep(plan.rest)
        scenario.mend()  # who slept through a change of policy has ended when it woke
        enough.set()
        await feeding
        async with waiting_for("all that was sent to be out", settling):
            while not await complete():
                await asyncio.sleep(1.0)
                scenario.mend()
        report.exits = await scenario.end()
    finally:
        feeding.cancel()
        scenario.kill_all()
    report.seconds = time.monotonic() - started
    return report


async def records(bootstrap: str, topic: str) -> list[Record]:
    """Return everything that a topic holds, copies too."""
    return [record async for record in consume(bootstrap, topic, until_end=True, identity=by_offset)]


async def exactly_once(
    bootstrap: str, topic: str, identity: Callable[[Record], Hashable], reference: Mapping[Hashable, bytes]
) -> int:
    """Assert that a topic holds exactly the reference, each with its bytes; return how many copies."""
    found: defaultdict[Hashable, set[bytes]] = defaultdict(set)
    everything = await records(bootstrap, topic)
    for record in everything:
        found[identity(record)].add(record.value)
    missing = reference.keys() - found.keys()
    foreign = found.keys() - reference.keys()
    torn = [name for name, values in found.items() if len(values) > 1]
    wrong = [name for name, value in reference.items() if found.get(name, {value}) != {value}]

    def _differing(name: Hashable) -> dict[str, tuple[Any, Any]]:
        (there,), due = map(orjson.loads, found[name]), orjson.loads(reference[name])
        return {key: (there.get(key), due.get(key)) for key in due if there.get(key) != due.get(key)}

    assert not missing, f"{topic}: {len(missing)} of {len(reference)} are missing"
    assert not foreign, f"{topic}: {len(foreign)} were not expected"
    assert not torn, f"{topic}: {len(torn)} have copies that differ"
    assert not wrong, f"{topic}: {len(wrong)} differ from the reference, first {wrong[0]} in {_differing(wrong[0])}"
    return len(everything) - len(reference)
