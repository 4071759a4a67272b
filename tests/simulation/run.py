"""A run of a schedule: programs go through it, everything is mended, and the checker reads the final log."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import orjson

from stream.schemas import AUDIT, LEAKAGE, QUARANTINE
from tests.simulation import occupancy
from tests.simulation.checker import Record, Topics, problems
from tests.simulation.processes import Globals, Process, World, guarded
from tests.simulation.schedules import (
    AIMED,
    PACE,
    READERS,
    STARTS,
    WINDOWS,
    Event,
    Outcome,
    Schedule,
)

LIVENESS = 120.0
"""Seconds after the last fault within which every window must be out: the longest of the product's waits is 60 s."""
ENDING = 20.0
"""Seconds within which a worker that is told to stop has stopped."""
DELAYS = ("pause", "pause at", "starve")
"""Faults during which a worker cannot be expected to stop in time."""
STARVED = 300.0
"""Factor by which the callbacks of a process that starves take longer."""
TOPICS = Topics(AUDIT, LEAKAGE, QUARANTINE, occupancy.PRIVATE)
RESULTS = (AUDIT, LEAKAGE, QUARANTINE, *occupancy.PRIVATE)
KILLED = -9
End = Callable[[], None]


def nothing() -> None:
    """End nothing: the fault is over at once."""


class Run(ABC):
    """What the runs of both levels have in common."""

    own_globals: ClassVar[Globals] = {}

    def __init__(self, seed: int, events: Schedule, folder: Path, within: float | None = None) -> None:
        """Prepare a run; ``within`` so many seconds everything must be out, though faults last."""
        self.world = World(seed)
        self.world.trace.folder = folder
        self.events = events
        self._within = within
        self.key = folder / "key"
        self.processes: dict[str, Process] = {}
        self.faults: list[str] = []
        self._stopping = False
        self._told: list[Process] = []
        """Workers that were told to stop."""
        self._aims: dict[Any, Callable[[], bool]] = {}
        """Faults that wait for a moment."""
        self._restarted = {1}
        """Exit codes after which a program is started again."""
        self._machines: defaultdict[str, dict[str, float]] = defaultdict(dict)
        """By process, what is the matter with its machine: attributes that a process started there has."""

    # --- processes ------------------------------------------------------------------------------------

    @abstractmethod
    def _program(self, name: str) -> Coroutine[Any, Any, int]:
        """Return the program of a process."""

    def _start(self, name: str) -> None:
        process = self.processes[name] = Process(self.world, name, self._globals_of(name))
        process.ended = lambda: self._ended(process)
        for attribute, value in self._machines[name].items():
            setattr(process, attribute, value)
        process.start(lambda: self._program(name))

    def _globals_of(self, name: str) -> Globals:
        """Return what a process has for itself."""
        return self.own_globals

    def _ended(self, process: Process) -> None:
        """Start a program again that has ended by itself, as a supervisor does."""
        if self._stopping or process.exit_code == KILLED:
            return
        stopped = process in self._told and process.exit_code == 0
        if process.exit_code not in self._restarted and not stopped:
            self.faults.append(f"exit: {process.name} ended with {process.exit_code}: {process.failure!r}")
        self.world.after(1.0 + self.world.random.random(), lambda: self._restart(process))

    def _restart(self, process: Process) -> None:
        if not self._stopping and self.processes[process.name] is process and not process.alive:
            self._start(process.name)

    # --- faults ---------------------------------------------------------------------------------------

    def _begin(self, event: Event) -> None:
        name = event.target.partition(" ")[0]
        if name in READERS and name not in self.processes and not event.kind.endswith((*STARTS.values(), AIMED)):
            return  # it has not started
        self.world.log("fault", str(event))
        if event.kind.endswith(AIMED):
            self._aim(event)
            return
        end: End = getattr(self, "_" + event.kind.replace(" ", "_"))(event.target)
        self.world.after(event.length, end)

    @abstractmethod
    def _aim(self, event: Event) -> None:
        """Let a fault happen when its process comes to the moment that its target names."""

    def _strike(self, event: Event) -> bool:
        """Let an aimed fault happen; return whether the request, or its answer, is lost."""
        kind, process = event.kind.removesuffix(AIMED), event.target.split()[0]
        self.world.log("fault", f"{event.target}: {kind}")
        if kind == "lose":
            return True
        end: End = getattr(self, "_" + kind)(process)
        self.world.after(event.length, end)
        return kind == "kill"

    def _kill(self, target: str) -> End:
        process = self.processes[target]
        process.kill()
        return lambda: self._restart(process)

    def _stop(self, target: str) -> End:
        process = self.processes[target]
        self._told.append(process)
        process.signal(signal.SIGTERM)
        if not any(event.kind in DELAYS and target in event.target for event in self.events):
            self.world.after(ENDING, lambda: self._check_ended(process))
        return lambda: self._restart(process)

    def _check_ended(self, process: Process) -> None:
        if process.alive:
            self.faults.append(f"ending: {process.name} runs {ENDING:.0f} s after it was told to stop")

    def _pause(self, target: str) -> End:
        process = self.processes[target]
        process.pause()
        return process.resume

    def _starve(self, target: str) -> End:
        process = self.processes[target]
        process.slowness = STARVED
        return lambda: setattr(process, "slowness", 1.0)

    def _afflict(self, target: str, attribute: str, value: float, mended: float) -> End:
        """Change something of a machine, for whatever process runs there."""
        machine = self._machines[target]
        machine[attribute] = value
        setattr(self.processes[target], attribute, value)

        def mend() -> None:
            machine[attribute] = mended
            setattr(self.processes[target], attribute, mended)

        return mend

    # --- the run --------------------------------------------------------------------------------------

    @abstractmethod
    def _prepare(self) -> None:
        """Start everything."""

    @abstractmethod
    def _sent(self) -> bool:
        """Return whether all messages are in the log."""

    @abstractmethod
    def _visible(self, topic: str) -> int:
        """Return how many committed records a topic has."""

    @abstractmethod
    def _logs(self) -> Mapping[str, Sequence[Sequence[Record]]]:
        """Return the final records of the results."""

    @abstractmethod
    def _input(self) -> Mapping[int, occupancy.Log]:
        """Return the final records of the input."""

    def run(self) -> Outcome:
        """Run, and check."""
        with guarded(self.world):
            settled = self._play()
            logs, sent = self._logs(), self._input()
        self._close()
        begun = {
            (entry["site"], entry["window_end"]): entry["policy_version"]
            for partition in logs[AUDIT]
            for entry in (orjson.loads(each.value) for each in partition if each.value and each.committed)
        }
        found = [*self.faults, *self._judged(logs, lambda: self._expected(sent, begun))]
        trace = self.world.trace
        return Outcome(found, trace.digest(), trace.lines, self.world.now - 1000.0, settled, self.events)

    def _expected(self, sent: Mapping[int, occupancy.Log], begun: occupancy.Begun) -> dict[str, list[bytes]]:
        """Return what must be visible."""
        return occupancy.expected(sent, self.key, begun)

    @abstractmethod
    def _close(self) -> None:
        """Close what a killed process has left open."""

    def _judged(
        self, logs: Mapping[str, Sequence[Sequence[Record]]], expected: Callable[[], dict[str, list[bytes]]]
    ) -> list[str]:
        """Return what is wrong with the final log."""
        return problems(logs, TOPICS, expected())

    def _play(self) -> float:
        """Let everything happen; return how long it took after the last fault until all was out."""
        world = self.world
        self._prepare()
        begin = world.now
        for event in self.events:
            world.at(begin + event.at, lambda event=event: self._begin(event))  # type: ignore[misc]
        calm = max([event.at + event.length for event in self.events], default=0.0)
        if self._within is not None and not world.run(self._complete, self._within):
            self.faults.append(f"late: {self._late()} {self._within:g} s after the start")
        world.run(lambda: False, max(begin + calm + 0.1 - world.now, 0.0))
        self._aims.clear()
        world.log("faults", "are over")
        over = world.now
        if not world.run(self._complete, LIVENESS + WINDOWS * PACE):
            self.faults.append(f"stalled: {self._late()} {LIVENESS:.0f} s after the last fault")
        settled = world.now - over
        self._stop_all()
        return settled

    def _complete(self) -> bool:
        return self._sent() and self._left() <= 0

    def _late(self) -> str:
        """Return what is not complete."""
        return f"{self._left()} windows are not out"

    def _left(self) -> int:
        """Return how many windows are not out yet."""
        due = len(occupancy.SITES) * (WINDOWS + 1)
        return due - min(map(self._visible, occupancy.PRIVATE))

    def _stop_all(self) -> None:
        """Tell the workers, and who reads what they release, to stop."""
        self._stopping = True
        running = [process for name, process in self.processes.items() if name != "ingest" and process.alive]
        for process in running:
            process.signal(signal.SIGTERM)
        self.world.run(lambda: not any(process.alive for process in running), ENDING)
        self.faults += [
            f"ending: {process.name} ended with {process.exit_code} when it was told to stop"
            for process in running
            if process.exit_code not in (0, KILLED)  # SIGTERM kills what has only just started
        ]
