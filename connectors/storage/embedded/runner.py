"""An embedded runner on its store: opened and closed, fed, and what it refuses to go on with."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from connectors import keyfile
from connectors.audit_chains import audit_of, heads_of, parse_entries
from connectors.embedded.rollback_mark import MarkFile
from connectors.embedded.sites_file import write_sites
from connectors.embedded.store import SqliteStore
from connectors.logs import report_shut
from connectors.site_metadata import site_metadata
from stream.errors import UsageError
from stream.pipeline import DEFAULTS, Options
from stream.policy.document import Policy, audiences_of
from stream.records import Message, Micros
from stream.runners.embedded import Embedded
from stream.runners.partition import Partition, ShutSites
from stream.schemas import rfc3339
from stream.sensing import watermark


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
        partition = Partition(policy, keys, options, accept_policy=accept_policy, shut_sites=ShutSites(report_shut))
        verify_store(store)
        runner = Embedded(partition, store, mark, keys, clock)
        runner.observers.append(lambda partition, _: store.operator_box.note(partition))
        runner.start()
        store.outboxes.prepare(sorted({audience for release in policy.release for audience in audiences_of(release)}))
        write_sites(folder / "private", site_metadata(policy))
        yield runner, store
        runner.stop()
    finally:
        store.close()


def verify_store(store: SqliteStore) -> None:
    """Follow a store's audit chains before it is written on; AuditError where an entry is missing or altered."""
    audit_of([heads_of(store.snapshot())]).chains(parse_entries(store.entries()))


def sensing_counters(runner: Embedded) -> Counter[str]:
    """Return what sensing has counted at all sites since the store began."""
    counted: Counter[str] = Counter()
    for state in runner.partition.sites.sensing().values():
        counted.update(state.counters)
    return counted


def newest_session(runner: Embedded) -> Micros:
    """Return the latest session that any source of the store has had, -1 before the first."""
    return max(
        (watermark.newest_session(state.clock) for state in runner.partition.sites.sensing().values()), default=-1
    )


def next_windows(runner: Embedded) -> dict[str, Micros]:
    """Return, for each site that has closed one, the window behind its last."""
    states = runner.partition.sites.sensing().items()
    return {site: state.next_tick for site, state in states if state.next_tick is not None}


def refuse_clock_behind(runner: Embedded, now: Micros, tolerance: Micros) -> None:
    """Refuse to listen with a clock that is behind what the store was made with by more than ``tolerance``.

    Raises:
        UsageError: what is heard now would be dropped as late until the clock has come as far again.
    """
    for site, state in sorted(runner.partition.sites.sensing().items()):
        until = watermark.reached(state.clock)
        if now < until - tolerance:
            msg = (
                f"clock: must have come as far as the store, got {rfc3339(now)}, but site {site} has reached "
                f"{rfc3339(until)}; set the clock right, or wait until then; 'tacet recover' says what else "
                "can be done"
            )
            raise UsageError(msg)


def refuse_older(runner: Embedded, path: Path, session: Micros) -> None:
    """Refuse a file that begins before what a source's last file or connector began with.

    Raises:
        UsageError: sensing would drop it whole, also what is new in it.
    """
    for site, state in sorted(runner.partition.sites.sensing().items()):
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
