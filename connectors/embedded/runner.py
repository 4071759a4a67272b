"""The runners behind ``tacet run`` and ``tacet ingest``: a receiver or a file, into a store or Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import structlog

from connectors import keyfile
from connectors.embedded.rollback_mark import MarkFile
from connectors.embedded.store import SqliteStore
from connectors.files.observations import ObservationFile
from connectors.reports.books import audit_of, heads_of, parse_entries
from connectors.snmp.admission import AllowList
from connectors.snmp.clock import CLOCK_STEP, AnchoredClock, wall_clock
from connectors.snmp.ingest import Ingest, Message, Sink
from connectors.snmp.receiver import Receiver
from connectors.snmp.troubles import tell_troubles
from stream.errors import UsageError
from stream.pipeline import DEFAULTS, Options
from stream.policy.document import Policy, audiences_of
from stream.records import SECOND, Heartbeat, Micros
from stream.runners.embedded import Embedded
from stream.runners.partition import Partition
from stream.schemas import rfc3339

TURN = 0.005
"""Seconds after which a busy feeder lets the event loop look at signals."""
log = structlog.get_logger("tacet.run")


@contextmanager
def embedded(
    policy: Policy, key_file: Path, folder: Path, options: Options = DEFAULTS, *,
    accept_policy: bool = False, clock: Callable[[], Micros] | None = None,
) -> Iterator[Embedded]:  # fmt: skip
    """Open a store with its pipeline, take up where it left off, and close it; commits on a clean end.

    ``clock`` stamps live messages with their receive time.
    """
    with opened(policy, key_file, folder, options, accept_policy=accept_policy, clock=clock) as (runner, _):
        yield runner


@contextmanager
def opened(
    policy: Policy, key_file: Path, folder: Path, options: Options = DEFAULTS, *,
    accept_policy: bool = False, clock: Callable[[], Micros] | None = None,
) -> Iterator[tuple[Embedded, SqliteStore]]:  # fmt: skip
    """Do the same, and give the store too."""
    keys = keyfile.FileKeys(key_file)
    store = SqliteStore(folder)
    try:
        mark = MarkFile(key_file, store.id, laboratory=keys.laboratory)
        partition = Partition(policy, keys, options, accept_policy=accept_policy, alarm=tell_shut)
        verify_store(store)
        runner = Embedded(partition, store, mark, keys, clock)
        runner.start()
        store.prepare(sorted({audience for release in policy.release for audience in audiences_of(release)}))
        yield runner, store
        runner.stop()
    finally:
        store.close()


def verify_store(store: SqliteStore) -> None:
    """Follow the chains of a store that is about to be written on; AuditError where an entry is missing or altered."""
    audit_of([heads_of(store.snapshot())]).chains(parse_entries(store.entries()))


def tell_shut(site: str) -> None:
    """Raise the alarm for a site that has shut at ``max_devices``."""
    log.error(
        "site closed", site=site,
        reason="more devices than max_devices: 'tacet recover --reopen' (Kafka: 'tacet worker --reopen') lets it go on",
    )  # fmt: skip


def refuse_unknown(policy: Policy, reopened: Iterable[str]) -> None:
    """Refuse to reopen a site that the policy does not have."""
    for site in reopened:
        if site not in policy.site:
            msg = f"--reopen: must name a site of the policy ({', '.join(policy.site)}), got {site!r}"
            raise UsageError(msg)


def sensing_counters(runner: Embedded) -> Counter[str]:
    """Return what sensing has counted at all sites since the store began."""
    counted: Counter[str] = Counter()
    for state in runner.partition.sensing().values():
        counted.update(state.counters)
    return counted


def newest_session(runner: Embedded) -> Micros:
    """Return the latest session that any source of the store has had, -1 before the first."""
    states = runner.partition.sensing().values()
    return max((progress.session for state in states for progress in state.clock.progress.values()), default=-1)


def refuse_clock_behind(runner: Embedded, now: Micros) -> None:
    """Refuse to listen with a clock that is behind what the store was made with.

    Raises:
        UsageError: what is heard now would be dropped as late until the clock has come as far again.
    """
    for site, state in sorted(runner.partition.sensing().items()):
        marks = [progress.session for progress in state.clock.progress.values()]
        reached = max(*marks, state.clock.watermark or 0, 0)
        if now < reached - CLOCK_STEP:
            msg = (
                f"clock: must have come as far as the store, got {rfc3339(now)}, but site {site} has reached "
                f"{rfc3339(reached)}; set the clock right, or wait until then; 'tacet recover' says what else "
                "can be done"
            )
            raise UsageError(msg)


def refuse_older(runner: Embedded, path: Path, session: Micros) -> None:
    """Refuse a file that begins before what a source's last file or connector began with.

    Raises:
        UsageError: sensing would drop it whole, also what is new in it.
    """
    for site, state in sorted(runner.partition.sensing().items()):
        newest = max((progress.session for progress in state.clock.progress.values()), default=session)
        if session < newest:
            msg = (
                f"{path}: begins before what site {site} had last, so that all of it would be dropped; "
                "'tacet backfill' releases windows that were passed over"
            )
            if state.next_tick is not None and state.next_tick >= newest:
                msg += f", and --from {rfc3339(state.next_tick)} goes on where the store is"
            raise UsageError(msg)


class FileSink:
    """Gives a file's messages to an embedded runner; the file is their durable copy."""

    def __init__(self, runner: Embedded, stop: asyncio.Event) -> None:
        self._runner, self._stop = runner, stop

    async def append(self, message: Message) -> None:
        """Process one message without keeping it; told to stop, leave windows that it closes to the next run."""
        for _ in self._runner.steps(message, durable=False):
            await asyncio.sleep(0)
            if self._stop.is_set():
                return


class LiveSink:
    """Gives a live connector's messages to an embedded runner."""

    def __init__(self, runner: Embedded, stop: asyncio.Event) -> None:
        self._runner, self._stop = runner, stop

    async def append(self, message: Message) -> None:
        """Make one message durable and process it.

        A heartbeat after a long outage closes thousands of windows. Told to stop amid them, it leaves the rest
        and all messages after it to the next start.
        """
        if self._stop.is_set() and self._runner.unfinished:
            self._runner.keep(message)
            return
        for _ in self._runner.steps(message):
            await asyncio.sleep(0)
            if self._stop.is_set():
                return


async def feed_file(file: ObservationFile, sink: Sink, speed: float | None, stop: asyncio.Event) -> bool:
    """Give a file's messages to a sink, ``speed`` times real time (None: as fast as it takes them).

    Returns whether the end was reached; it is not when ``stop`` is set, which is looked at every few
    milliseconds even where neither file nor sink ever waits.
    """
    first: Micros | None = None
    began = turn = time.monotonic()
    for message in file.steps():
        if isinstance(message, Heartbeat):
            first = message.watermark if first is None else first
            if speed is not None:
                due = began + (message.watermark - first) / SECOND / speed
                await _sleep_until(due, stop)
        if time.monotonic() - turn > TURN:
            await asyncio.sleep(0)
            turn = time.monotonic()
        if stop.is_set():
            return False
        if message is not None:
            await sink.append(message)
    return True


async def _sleep_until(due: float, stop: asyncio.Event) -> None:
    wait = due - time.monotonic()
    if wait > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), wait)


@asynccontextmanager
async def receiver(
    address: tuple[str, int], policy: Policy, pseudonym_key: bytes, sink: Sink, communities: tuple[bytes, ...],
    *, start: Micros | None = None, newest: Micros = -1,
) -> AsyncIterator[Receiver]:  # fmt: skip
    """Listen for traps from the policy's sources, in a session after the ``newest`` there was.

    ``start`` switches to the laboratory's uptime clock.
    """
    sources = sorted({source for site in policy.site.values() for source in site.sources})
    clock = AnchoredClock(wall_clock, lambda: time.monotonic_ns() // 1000)
    made = Receiver(
        address,
        ingest=Ingest.of_policy(policy, pseudonym_key, start=start),
        sink=sink,
        allow=AllowList(sources),
        communities=communities,
        clock=clock,
        newest=newest,
    )
    async with made:
        log.info("listening", address=made.address[0], port=made.address[1])
        telling = asyncio.create_task(tell_troubles(made))
        try:
            yield made
        finally:
            telling.cancel()


def check_uptime_clock(policy: Policy, key_file: Path) -> None:
    """Refuse the uptime clock outside a laboratory: there a controller would decide what time it is."""
    sources = {source for site in policy.site.values() for source in site.sources}
    if not keyfile.is_laboratory(key_file):
        msg = "--clock uptime: must go with a laboratory key"
        raise UsageError(msg)
    if foreign := sorted(source for source in sources if not ipaddress.ip_network(source).is_loopback):
        msg = f"--clock uptime: every source of the policy must be on loopback, got {foreign[0]}"
        raise UsageError(msg)


@asynccontextmanager
async def stop_signals() -> AsyncIterator[asyncio.Event]:
    """Give an event that SIGTERM or SIGINT sets, in place of ending the process."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def until_stopped(made: Receiver, stop: asyncio.Event) -> None:
    """Wait for a stop signal, or raise what ended the receiver."""
    waiting = [asyncio.create_task(made.wait()), asyncio.create_task(stop.wait())]
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in waiting:
            task.cancel()


async def within(seconds: float, work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Do the work; from the stop signal on wait no longer than ``seconds``. Return whether it was done."""
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    await asyncio.wait({doing}, timeout=seconds)
    if doing.done():
        doing.result()
    return doing.done()
