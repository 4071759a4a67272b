"""Where observations come from, for ``tacet run`` and ``tacet ingest`` alike: a file, or what controllers send."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import structlog

from connectors import keyfile
from connectors.counters.gathering import Gathering, first_windows
from connectors.counters.topic import CountsTopic
from connectors.files.cells import CellRules
from connectors.files.counted import CountsFile
from connectors.files.dialect import OWN, Dialect
from connectors.files.observations import ObservationFile
from connectors.intake.clock import AnchoredClock, wall_clock
from connectors.intake.ingest import Ingest
from connectors.intake.receiver import Receiver
from connectors.intake.troubles import report_troubles
from connectors.intake.vouching import Pair
from connectors.live_sources import Live, uptime_start
from connectors.probes.asking import Asking
from connectors.probes.rounds import Rounds
from connectors.probes.snmp import provoke
from connectors.probes.way import Way
from connectors.signals import first_to_end
from connectors.sink import Sink
from stream.errors import UsageError
from stream.policy.document import Policy
from stream.policy.fields import is_cloud
from stream.records import SECOND, CountedWindow, Heartbeat, Message, Micros

log = structlog.get_logger("tacet.run")


@dataclass(frozen=True, slots=True)
class FileSource:
    """A recording, and the windows that it stands for."""

    path: Path
    speed: float | None = None
    """Times real time; None: as fast as it is taken."""
    since: Micros | None = None
    until: Micros | None = None
    dialect: Dialect = OWN
    counts: bool = False
    """Whether it holds what counters have counted, not who was where."""

    def opened(
        self, policy: Policy, pseudonym_key: bytes, progress: Callable[..., None] | None = None
    ) -> ObservationFile | CountsFile:
        """Return the file's messages; nothing is read yet."""
        if self.counts:
            return CountsFile(self.path, policy, since=self.since, until=self.until, progress=progress)
        return ObservationFile(
            self.path, policy, pseudonym_key, since=self.since, until=self.until, dialect=self.dialect,
            progress=progress,
        )  # fmt: skip


class TopicSource(NamedTuple):
    """A topic of Kafka to which people counters write, and the windows that are asked for."""

    kafka: str
    topic: str
    since: Micros | None = None
    until: Micros | None = None

    def opened(self, policy: Policy, session: Micros, next_windows: Mapping[str, Micros]) -> CountsTopic:
        """Return the topic's windows from the first on that is neither closed nor over; nothing is read yet."""
        rules = CellRules(policy)
        first = first_windows(rules, wall_clock(), self.since, next_windows)
        return CountsTopic(self.kafka, self.topic, Gathering(rules, session, first, self.until))


class Probing(NamedTuple):
    """Which sources are asked whether they are alive, and who is told beside the receiver."""

    asked: Mapping[Pair, Asking]
    told: Callable[..., None]
    """Takes site and source, and by keyword ``alive``, and ``at`` which point of the clock's grid it was asked."""
    provoked: Mapping[Pair, tuple[str, int]]
    """Host and port of those whose traps are proven by a wrong community."""

    def rounds(self, made: Receiver, clock: AnchoredClock) -> Rounds:
        """Return the rounds whose answers decide what a receiver vouches for."""

        def tell(pair: Pair, at: Micros, *, answered: bool) -> None:
            made.state.vouching.note(pair, at, answered=answered)
            self.told(pair, alive=answered, at=at)

        ways = {
            pair: Way(partial(provoke, *where), partial(made.refused, pair[1])) for pair, where in self.provoked.items()
        }
        return Rounds(self.asked, clock, tell, ways)


TURN = 0.005
"""Seconds after which a busy feeder lets the event loop look at signals."""


class FileTaker(Protocol):
    """Where a file's messages go."""

    async def append(self, message: Any) -> None:
        """Return when the message has been taken; it is of a kind that the file holds."""


async def feed_file(
    file: ObservationFile | CountsFile, sink: FileTaker, speed: float | None, stop: asyncio.Event
) -> bool:
    """Give a file's messages to a sink, ``speed`` times real time (None: as fast as it takes them).

    Returns whether the end was reached; it is not when ``stop`` is set, which is looked at every few
    milliseconds even where neither file nor sink ever waits.
    """
    first: Micros | None = None
    began = turn = time.monotonic()
    for message in file.steps():
        reached = _reached(message)
        if reached is not None:
            first = reached if first is None else first
            if speed is not None:
                due = began + (reached - first) / SECOND / speed
                await _sleep_until(due, stop)
        if time.monotonic() - turn > TURN:
            await asyncio.sleep(0)
            turn = time.monotonic()
        if stop.is_set():
            return False
        if message is not None:
            await sink.append(message)
    return True


def _reached(message: Message | None) -> Micros | None:
    """Return how far a message brings event time, None where it does not move it."""
    if isinstance(message, CountedWindow):
        return message.window_end
    return message.watermark if isinstance(message, Heartbeat) else None


async def _sleep_until(due: float, stop: asyncio.Event) -> None:
    wait = due - time.monotonic()
    if wait > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), wait)


@asynccontextmanager
async def receiver(
    live: Live,
    policy: Policy,
    pseudonym_key: bytes,
    sink: Sink,
    *,
    newest: Micros = -1,
    probing: Probing | None = None,
) -> AsyncIterator[Receiver]:
    """Listen for what the policy's sources send, in a session after the ``newest`` there was, and ask some of them."""
    sources = sorted({source for site in policy.site.values() for source in site.sources})
    clock = AnchoredClock(wall_clock, lambda: time.monotonic_ns() // 1000)
    made = Receiver(
        [source.entrance(sources) for source in live],
        ingest=Ingest.of_policy(policy, pseudonym_key, start=uptime_start(live)),
        sink=sink,
        clock=clock,
        newest=newest,
    )
    async with made:
        for entrance in made.entrances:
            log.info("listening", address=entrance.address[0], port=entrance.address[1])
        beside = [asyncio.create_task(report_troubles(made))]
        if probing is not None and uptime_start(live) is None:
            beside.append(asyncio.create_task(probing.rounds(made, clock).run()))
        try:
            yield made
        finally:
            for task in beside:
                task.cancel()


def check_uptime_clock(policy: Policy, key_file: Path) -> None:
    """Refuse the uptime clock outside a laboratory: there a controller would decide what time it is."""
    sources = {source for site in policy.site.values() for source in site.sources}
    if not keyfile.is_laboratory(key_file):
        msg = "--clock uptime: must go with a laboratory key"
        raise UsageError(msg)
    if foreign := sorted(source for source in sources if not _is_loopback(source)):
        msg = f"--clock uptime: every source of the policy must be on loopback, got {foreign[0]}"
        raise UsageError(msg)


def _is_loopback(source: str) -> bool:
    return not is_cloud(source) and ipaddress.ip_network(source).is_loopback


async def until_stopped(made: Receiver, stop: asyncio.Event) -> None:
    """Wait for a stop signal, or raise what ended the receiver."""
    await first_to_end(made.wait(), stop.wait())
