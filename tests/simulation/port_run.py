"""Runs at the port: partition tasks and engines over a simulated log behind the product's interface."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.simulation import occupancy, port
from tests.simulation.checker import Record
from tests.simulation.processes import Process
from tests.simulation.run import RESULTS, End, Run, nothing
from tests.simulation.schedules import (
    PACE,
    WINDOWS,
    WORKERS,
    Event,
    Schedule,
)


class PortRun(Run):
    """Partition tasks and engines over a simulated log."""

    def __init__(self, seed: int, events: Schedule, folder: Path, within: float | None = None) -> None:
        super().__init__(seed, events, folder, within)
        self.log = port.Log(self.world)
        self._aims = self.log.aims
        self.assignment = port.Assignment()
        self._waiting = occupancy.Movement(seed, WINDOWS).messages()

    def _program(self, name: str) -> Coroutine[Any, Any, int]:
        return port.worker(self.log, self.assignment, name, self.key)

    def _prepare(self) -> None:
        occupancy.create_key(self.key)
        for name in WORKERS:
            self._start(name)
        self._balance()
        self._send()

    def _ended(self, process: Process) -> None:
        super()._ended(process)
        self.world.after(occupancy.SESSION_TIMEOUT * self.world.random.random(), self._balance)

    def _restart(self, process: Process) -> None:
        super()._restart(process)
        self.world.after(0.5, self._balance)

    def _balance(self) -> None:
        """Give partitions to workers that are there, one each if there are enough."""
        there = [name for name, process in self.processes.items() if process.alive and not process.paused]
        for partition in range(occupancy.PARTITIONS):
            owner = there[partition % len(there)] if there else None
            if owner is not None and self.assignment.owners.get(partition) != owner:
                self.assignment.give(partition, owner)

    def _send(self) -> None:
        """Send a window; sometimes a message comes twice, because its acknowledgement was lost."""
        for message in self._waiting.pop(0):
            self.log.send(message)
            if self.world.random.random() < 0.05:
                self.log.send(message)
        if self._waiting:
            self.world.after(PACE, self._send)

    def _sent(self) -> bool:
        return not self._waiting

    def _close(self) -> None:
        """Nothing is open."""

    def _visible(self, topic: str) -> int:
        return sum(
            entry.committed
            for number in range(occupancy.PARTITIONS)
            for entry in self.log.partition(topic, number)
        )  # fmt: skip

    def _logs(self) -> Mapping[str, Sequence[Sequence[Record]]]:
        return {
            topic: [self.log.partition(topic, number) for number in range(occupancy.PARTITIONS)] for topic in RESULTS
        }

    def _input(self) -> Mapping[int, occupancy.Log]:
        return {
            number: [(one.offset, one.key, one.value, one.stamp) for one in messages]
            for number, messages in enumerate(self.log.input)
        }

    # --- faults ---------------------------------------------------------------------------------------

    def _aim(self, event: Event) -> None:
        process, moment = event.target.split()
        self.log.aims[process, moment] = lambda: self._strike(event)

    def _pause(self, target: str) -> End:
        end = super()._pause(target)
        self.world.after(occupancy.SESSION_TIMEOUT * self.world.random.random(), self._balance)

        def resume() -> None:
            end()
            self.world.after(0.5, self._balance)

        return resume

    def _lose_answers(self, target: str) -> End:
        self.log.lost = 0.1
        return lambda: setattr(self.log, "lost", 0.0)

    def _slow_log(self, target: str) -> End:
        self.log.latency = 0.4
        return lambda: setattr(self.log, "latency", 0.002)

    def _outage(self, target: str) -> End:
        self.log.available = False
        return lambda: setattr(self.log, "available", True)

    def _move(self, target: str) -> End:
        partition = int(target)
        other = next(name for name in WORKERS if name != self.assignment.owners.get(partition))
        self.assignment.give(partition, other)
        return nothing
