"""Simulated brokers with a feed, and workers that a test starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from stream.release.validation import Policy
from stream.schemas import AUDIT
from tests.simulation import occupancy
from tests.simulation.checker import problems
from tests.simulation.processes import Process, guarded
from tests.simulation.run import TOPICS
from tests.simulation.schedules import WORKERS
from tests.simulation.wire_run import WireRun


class Scenario(WireRun):
    """Simulated brokers with a feed, and workers whose openings a test can hold up."""

    def __init__(self, folder: Path) -> None:
        super().__init__(1, [], folder)
        self.held: dict[str, Container[int]] = {}
        """By worker, the partitions whose openings wait."""

    def prepare(self) -> None:
        """Create topics and key, and start the ingest."""
        operator = Process(self.world, "operator", occupancy.GLOBALS)

        async def main() -> int:
            occupancy.create_key(self.key)
            return await occupancy.create(self.cluster.bootstrap)

        operator.start(main)
        assert self.world.run(lambda: operator.exit_code == 0, 60.0)
        self._start("ingest")

    def worker(
        self, name: str, policy: Policy = occupancy.POLICY, *, key: Path | None = None, later: bool = False,
        accept_policy: bool = False, again: int | None = None, open_timeout: float = 3600.0,
        held: Container[int] = (),
    ) -> Process:  # fmt: skip
        """Start a worker, of the mechanism version to come if ``later``; openings of partitions that are held wait."""
        self.held[name] = held
        if later:
            self._upgrading = True
            self._upgraded.update(WORKERS)

        async def hold(partition: int) -> None:
            while partition in self.held[name]:
                self.world.trace.lines.append(f"{name} opens {partition}")
                await asyncio.sleep(0.1)

        own = occupancy.globals_of_a_later_version() if later else occupancy.GLOBALS
        process = self.processes[name] = Process(self.world, name, own)
        process.start(
            lambda: occupancy.worker(
                self.cluster.bootstrap, key or self.key, policy, accept_policy=accept_policy, again=again,
                open_timeout=open_timeout, hold=hold,
            )
        )  # fmt: skip
        return process

    def _key_files(self) -> list[Path]:
        return [self.key]

    def until(self, there: Callable[[], bool], seconds: float = 300.0) -> None:
        """Let time pass until something is there."""
        assert self.world.run(there, seconds), "\n".join(self.world.trace.lines[-40:])

    def says(self, text: str) -> bool:
        return any(text in line for line in self.world.trace.lines)

    def begun(self) -> dict[tuple[str, str], str]:
        """Return under which version of the policy each window was released."""
        entries = [orjson.loads(each.value or b"{}") for each in self._shown(AUDIT)]
        return {(entry["site"], entry["window_end"]): entry["policy_version"] for entry in entries}

    def check(self) -> list[str]:
        """Return what is wrong with the final log."""
        expected = occupancy.expected(self._input(), self.key, self.begun(), versions=self._versions())
        return problems(self._logs(), TOPICS, expected)


@contextmanager
def prepared(folder: Path) -> Iterator[Scenario]:
    """A cluster to which an ingest sends."""
    made = Scenario(folder)
    with guarded(made.world):
        made.prepare()
        yield made
