"""Inputs that need no receiver: recordings, and counts of people counters in files and topics."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from connectors.runtime.clock import wall_clock
from connectors.sources.counters.files import CountsFile
from connectors.sources.counters.topic import CountsTopic
from connectors.sources.counters.windows import WindowCollector, first_windows
from connectors.sources.recordings.dialect import OWN, Dialect
from connectors.sources.recordings.observations import ObservationFile
from connectors.sources.recordings.rows import CellRules
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.records import SECOND, CountedWindow, Heartbeat, Message, Micros


@dataclass(frozen=True, slots=True)
class FileSource:
    """A recording, and the windows that it covers."""

    path: Path
    speed: float | None = None
    """Multiple of real time; None: as fast as the sink accepts."""
    since: Micros | None = None
    until: Micros | None = None
    dialect: Dialect = OWN
    counts: bool = False
    """Whether it contains counts of people counters instead of observations."""

    def opened(
        self, policy: PolicyDocument, pseudonym_key: bytes, progress: Callable[..., None] | None = None
    ) -> ObservationFile | CountsFile:
        """Return the file's messages; nothing is read yet."""
        refuse_opt_outs(policy)
        refuse_logins(policy)
        if self.counts:
            return CountsFile(self.path, policy, since=self.since, until=self.until, progress=progress)
        return ObservationFile(
            self.path, policy, pseudonym_key, since=self.since, until=self.until, dialect=self.dialect,
            progress=progress,
        )  # fmt: skip


class TopicSource(NamedTuple):
    """A Kafka topic to which people counters write, and the requested windows."""

    kafka: str
    topic: str
    since: Micros | None = None
    until: Micros | None = None

    def opened(self, policy: PolicyDocument, session: Micros, next_windows: Mapping[str, Micros]) -> CountsTopic:
        """Return the topic's windows from the first one that is neither closed nor over; nothing is read yet."""
        rules = CellRules(policy)
        first = first_windows(rules, wall_clock(), self.since, next_windows)
        return CountsTopic(self.kafka, self.topic, WindowCollector(rules, session, first, self.until))


def refuse_opt_outs(policy: PolicyDocument) -> None:
    """Raise UsageError if a site uses opt-outs: a recording may contain devices that are on the list."""
    used = [name for name, site in policy.site.items() if site.opt_out == "list"]
    if used:
        msg = f"site {used[0]}: must have opt_out = 'none' to release a recording; only live sources are checked"
        raise UsageError(msg)


def refuse_logins(policy: PolicyDocument) -> None:
    """Raise UsageError if a site counts logins: a recording contains none."""
    used = [name for name, site in policy.site.items() if site.counts_logins]
    if used:
        msg = f"site {used[0]}: must have identity = 'device' to release a recording, which contains no logins"
        raise UsageError(msg)


YIELD_AFTER = 0.005
"""Seconds of work after which passing on a file yields to the event loop, which handles signals."""


class MessageSink(Protocol):
    """Receives a file's messages."""

    async def append(self, message: Any) -> None:
        """Return when the message is accepted; it is of the kind that the file contains."""


async def pass_file(
    file: ObservationFile | CountsFile, sink: MessageSink, speed: float | None, stop: asyncio.Event
) -> bool:
    """Pass a file's messages to a sink at ``speed`` times real time (None: as fast as it accepts them).

    Returns whether the end was reached. It is not if ``stop`` is set, which is checked every few milliseconds even if
    neither file nor sink ever waits.
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
        if time.monotonic() - turn > YIELD_AFTER:
            await asyncio.sleep(0)
            turn = time.monotonic()
        if stop.is_set():
            return False
        if message is not None:
            await sink.append(message)
    return True


def _reached(message: Message | None) -> Micros | None:
    """Return the event time that a message reaches, None if it does not advance it."""
    if isinstance(message, CountedWindow):
        return message.window_end
    return message.watermark if isinstance(message, Heartbeat) else None


async def _sleep_until(due: float, stop: asyncio.Event) -> None:
    wait = due - time.monotonic()
    if wait > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await stop.wait()
