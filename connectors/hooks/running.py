"""The service of ``tacet hooks``: a door for systems that send, readers of others, one way to the ingest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from connectors.hooks.app import application
from connectors.hooks.desk import REPLAYED, Counts, Desk
from connectors.hooks.hooks_file import Hook, HooksFile, HooksNow
from connectors.hooks.link import Link
from connectors.hooks.pulling import Puller
from connectors.hooks.replays import Replays
from connectors.intake.clock import AnchoredClock, wall_clock
from connectors.serve.guard import Names
from connectors.serve.server import Server, Tls, is_loopback, listening, server_of
from connectors.signals import first_to_end
from stream.errors import UsageError

EVERY = 60.0
"""Seconds between looks at what was refused."""
log = structlog.get_logger("tacet.hooks")


class Door(NamedTuple):
    """Where systems send."""

    listen: tuple[str, int]
    names: tuple[str, ...] = ()
    tls: Tls | None = None
    behind_proxy: bool = False


class Wanted(NamedTuple):
    """What is heard and read, where it goes, and what is kept of it."""

    file: HooksFile | HooksNow
    """As it was read once, or as it is now."""
    to: Path
    state: Path
    door: Door | None

    @property
    def systems(self) -> HooksFile:
        """What the file says."""
        return self.file.held if isinstance(self.file, HooksNow) else self.file

    def hook(self, name: str) -> Hook | None:
        """Return a system that sends, by its name."""
        if isinstance(self.file, HooksNow):
            return self.file.hook(name)
        return next((hook for hook in self.file.hook if hook.name == name), None)


def check(wanted: Wanted) -> None:
    """Raise UsageError unless the door fits what is to be heard, and hides it on its way."""
    door = wanted.door
    if (door is None) != (not wanted.systems.hook):
        raise UsageError("--listen: must be given where the file has a [[hook]], and only there")
    if door is None:
        return
    outside = not is_loopback(door.listen[0])
    if outside and door.tls is None and not door.behind_proxy:
        msg = f"--tls-cert: must be given with --listen {door.listen[0]}, or --behind-proxy where a proxy has TLS"
        raise UsageError(msg)
    if (outside or door.behind_proxy) and not door.names:
        raise UsageError("--name: must be given where others send, as they know it")


class Hooks:
    """The service; ``counts`` say what became of everything so far."""

    def __init__(self, wanted: Wanted) -> None:
        """Take what is wanted; UsageError where it does not fit, KeyFileError where its state cannot be used."""
        check(wanted)
        self._wanted = wanted
        self.clock = AnchoredClock(wall_clock, lambda: time.monotonic_ns() // 1000)
        self._link, self._replays = Link(wanted.to), Replays(wanted.state)
        self._desk = Desk(self._link, self._replays, self.clock.now)
        self._deaf = {stream.name for stream in wanted.systems.stream}

    @property
    def counts(self) -> Counts:
        """What became of each request and event, and of their rows."""
        return self._desk.counts

    @property
    def is_connected(self) -> bool:
        """Whether the ingest is there."""
        return self._link.connected

    @property
    def hears(self) -> bool:
        """Whether every stream is connected."""
        return not self._deaf

    async def run(self, stop: asyncio.Event, say: Callable[[str], None]) -> None:
        """Hear and read until told to stop; ``say`` is given where one may send."""
        self._link.tell(hearing=not self._deaf)
        work = [self._link.run(), self._desk.failed(), self._report(), self._run_on(), stop.wait(), *self._pullers()]
        try:
            if self._wanted.door is None:
                await first_to_end(*work)
            else:
                await self._serve(self._wanted.door, work, stop, say)
        finally:
            self._replays.close()

    def _pullers(self) -> list[Coroutine[Any, Any, None]]:
        def told(name: str) -> Callable[[bool], None]:
            def hearing(heard: bool) -> None:
                (self._deaf.discard if heard else self._deaf.add)(name)
                self._link.tell(hearing=not self._deaf)

            return hearing

        file, found = self._wanted.file, []
        for stream in self._wanted.systems.stream:
            key = partial(file.key, stream.name) if isinstance(file, HooksNow) else None
            found.append(Puller(stream, self._desk, self.clock.now, told(stream.name), key).run())
        return found

    async def _serve(
        self, door: Door, work: list[Coroutine[Any, Any, Any]], stop: asyncio.Event, say: Callable[[str], None]
    ) -> None:
        bound = listening(*door.listen)
        try:
            scheme = "https" if door.tls is not None or door.behind_proxy else "http"
            host, port = bound.getsockname()[:2]
            names = Names.of(door.names, port, scheme, behind_proxy=door.behind_proxy)
            server = server_of(application(self._wanted.hook, self._desk, names, self.clock.now), door.tls)
            for hook in self._wanted.systems.hook:
                say(f"{'http' if door.tls is None else 'https'}://{host}:{port}/hooks/{hook.name}")
            serving = server.serve([bound])
            await first_to_end(_served(server, serving, stop), *work)
        finally:
            bound.close()

    async def _run_on(self) -> None:
        """Look at the clock: one that was set ends the service, for it says what is new."""
        while True:
            self.clock.now()
            await asyncio.sleep(1)

    async def _report(self) -> None:
        told: dict[str, int] = {}
        while True:
            await asyncio.sleep(EVERY)
            for reason, number in self.counts.refused.items():
                new = number - told.get(reason, 0)
                if new and reason != REPLAYED:
                    told[reason] = number
                    log.warning("requests_refused", reason=reason, count=10 ** len(str(new - 1)) if new > 1 else 10)


async def _served(server: Server, serving: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    task, stopping = asyncio.create_task(serving), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        stopping.cancel()
        await task
