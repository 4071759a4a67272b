"""Deterministic processes: virtual time, pause, kill, starvation, and guards against chance."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest
from anyio import CancelScope
from mode.timers import Timer

from tests.simulation.network import Incoming, Network
from tests.simulation.processes import START, Process, SimulationError, World, guarded


def run(
    main: Callable[[], Coroutine[Any, Any, int]], meanwhile: Callable[[World, Process], None] | None = None
) -> Process:
    """Run one process to its end, at most for a minute of virtual time."""
    world = World(1)
    with guarded(world):
        process = Process(world, "one")
        process.start(main)
        if meanwhile is not None:
            meanwhile(world, process)
        world.run(lambda: process.exit_code is not None, 60.0)
    return process


def test_time_passes_only_when_something_is_due() -> None:
    seen: list[float] = []

    async def main() -> int:
        begin = time.monotonic()
        await asyncio.sleep(30.0)
        seen.extend((time.monotonic() - begin, time.time() - START))
        return 0

    assert run(main).exit_code == 0
    assert seen == pytest.approx([30.0, 30.0], abs=0.01)


def test_a_paused_process_runs_overdue_timers_when_it_goes_on() -> None:
    woken: list[float] = []

    async def main() -> int:
        async def sleep(seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append(time.monotonic() - 1000.0)

        await asyncio.gather(sleep(1.0), sleep(3.0), sleep(5.0))
        return 0

    def pause(world: World, process: Process) -> None:
        world.after(2.0, process.pause)
        world.after(12.0, process.resume)

    run(main, pause)
    assert woken == pytest.approx([1.0, 12.0, 12.0], abs=0.01)


def test_nothing_of_a_killed_process_runs_and_no_finally_does() -> None:
    said: list[str] = []

    async def main() -> int:
        try:
            await asyncio.sleep(10.0)
        finally:
            if asyncio.get_running_loop().is_running():
                said.append("finally")
        return 0

    process = run(main, lambda world, process: world.after(1.0, process.kill))
    assert process.exit_code == -9
    assert said == []


def test_nothing_of_a_world_outlives_it(caplog: pytest.LogCaptureFixture) -> None:
    """What is collected later says so in the middle of another test."""
    left = []

    class Service:
        async def work(self) -> None:
            try:
                with CancelScope():
                    await asyncio.Event().wait()
            finally:
                left.append(asyncio.get_event_loop().create_task(self.stop()))  # as mode's services do
                left.clear()

        async def stop(self) -> None:
            await asyncio.Event().wait()

    seen: list[weakref.ref[Service]] = []

    async def main() -> int:
        service = Service()
        seen.append(weakref.ref(service))
        task = asyncio.create_task(service.work())
        await asyncio.sleep(1.0)
        try:
            raise ValueError
        except ValueError:
            logging.getLogger("connectors").exception("%s has an error", service)
        assert not task.done()
        return 0

    assert run(main).exit_code == 0
    assert [reference() for reference in seen] == [None]
    assert "ValueError" in caplog.text


def test_a_server_that_has_not_heard_of_a_closed_connection_keeps_nothing_of_the_process() -> None:
    class Server:
        listening = True
        connections: ClassVar[list[Incoming]] = []

        def accepted(self, connection: Incoming) -> None:
            self.connections.append(connection)

        def received(self, connection: Incoming, data: bytes) -> None: ...

        def closed(self, connection: Incoming) -> None: ...

    class Client(asyncio.Protocol):
        """The process's end."""

    world, seen = World(1), []
    network = Network(world)
    network.listeners["server"] = Server()

    async def main() -> int:
        transport, protocol = await asyncio.get_running_loop().create_connection(Client, "server", 1)
        seen.append(weakref.ref(protocol))
        network.cut_link("one", "server")
        transport.write(b"late")
        transport.close()
        await asyncio.sleep(1.0)
        return 0

    with guarded(world):
        process = Process(world, "one")
        process.start(main)
        world.run(lambda: process.exit_code is not None, 60.0)
    assert process.exit_code == 0
    assert [connection.open for connection in Server.connections] == [True]
    assert [reference() for reference in seen] == [None]


def test_a_process_that_starves_is_late() -> None:
    late: list[float] = []

    async def main() -> int:
        async def work() -> None:
            for _ in range(100):
                await asyncio.sleep(0)

        begin = time.monotonic()
        await asyncio.gather(*(work() for _ in range(10)))
        late.append(time.monotonic() - begin)
        return 0

    run(main)
    run(main, lambda world, process: setattr(process, "slowness", 300.0))
    assert late[0] < 0.2
    assert late[1] > 2.0


def test_a_signal_calls_the_handler_and_an_exit_ends_the_process_only() -> None:
    async def main() -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: os._exit(3))
        await asyncio.sleep(50.0)
        return 0

    assert run(main, lambda world, process: world.after(1.0, lambda: process.signal(signal.SIGTERM))).exit_code == 3


def test_a_clock_that_is_a_default_is_simulated_too() -> None:
    """With the machine's clock in mode's timers, a busy machine would change the order of what happens."""
    epochs: list[float] = []

    async def main() -> int:
        epochs.append(Timer(1.0).epoch)
        return 0

    before = Timer(1.0).epoch
    run(main)
    assert epochs == pytest.approx([1000.0], abs=1.0)
    assert Timer(1.0).epoch >= before


def test_a_module_that_is_loaded_in_a_world_has_the_true_time_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whatever is loaded late by one test would fail in the next ones."""
    (tmp_path / "loaded_late.py").write_text(
        "from socket import create_connection\nfrom time import monotonic, perf_counter\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    async def main() -> int:
        assert import_module("loaded_late").monotonic() == pytest.approx(1000.0, abs=1.0)
        return 0

    assert run(main).exit_code == 0
    late = sys.modules.pop("loaded_late")
    assert (late.create_connection, late.monotonic, late.perf_counter) == (
        socket.create_connection, time.monotonic, time.perf_counter
    )  # fmt: skip


def test_chance_and_time_follow_from_the_seed_and_exist_only_in_processes() -> None:
    def drawn() -> list[object]:
        found: list[object] = []

        async def main() -> int:
            found.extend((secrets.token_hex(8), os.urandom(4), random.random(), time.time_ns()))
            return 0

        run(main)
        return found

    assert drawn() == drawn() != []
    with guarded(World(1)), pytest.raises(SimulationError):
        time.time()
    assert time.time() > START


@pytest.mark.parametrize(
    "forbidden",
    [
        lambda: threading.Thread(target=print).start(),
        lambda: socket.create_connection(("127.0.0.1", 1)),
        lambda: asyncio.get_running_loop().run_in_executor(None, print),
    ],
    ids=["thread", "socket", "executor"],
)
def test_threads_and_sockets_are_refused(forbidden: Callable[[], object]) -> None:
    async def main() -> int:
        forbidden()
        return 0

    assert isinstance(run(main).failure, SimulationError)
