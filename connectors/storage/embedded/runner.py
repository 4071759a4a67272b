"""Run the embedded engine on a store; refuse inputs that would be lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from connectors.keys import key_files
from connectors.runtime.logs import report_suspended_site
from connectors.storage.audit_chains import audit_of, heads_of, parse_entries
from connectors.storage.embedded.rollback_mark import MarkFile, one_run
from connectors.storage.embedded.store import SqliteStore
from connectors.storage.site_metadata import site_metadata, write_sites
from stream.engine.partition import PartitionEngine
from stream.engine.site_engines import OverflowPolicy
from stream.errors import UsageError
from stream.pipeline import DEFAULTS, Options
from stream.policy.document import audiences_of
from stream.records import Message, Micros
from stream.release.validation import Policy
from stream.runners.embedded import Embedded
from stream.schemas import rfc3339
from stream.sensing import watermark


@contextmanager
def embedded(
    policy: Policy, key_file: Path, folder: Path, options: Options = DEFAULTS, *,
    accept_policy: bool = False, clock: Callable[[], Micros] | None = None,
) -> Iterator[Embedded]:  # fmt: skip
    """Open a store with its pipeline, resume at its last state, and close it; commits on a clean end.

    ``clock`` stamps live messages with their receive time.
    """
    with opened(policy, key_file, folder, options, accept_policy=accept_policy, clock=clock) as (runner, _):
        yield runner


@contextmanager
def opened(
    policy: Policy, key_file: Path, folder: Path, options: Options = DEFAULTS, *,
    accept_policy: bool = False, clock: Callable[[], Micros] | None = None,
) -> Iterator[tuple[Embedded, SqliteStore]]:  # fmt: skip
    """Do the same, and yield the store too."""
    keys = key_files.FileKeys(key_file)
    with closing(SqliteStore(folder)) as store, one_run(key_file, folder, laboratory=keys.laboratory) as lock:
        mark = MarkFile(key_file, store.id, laboratory=keys.laboratory, lock=lock)
        partition = PartitionEngine(
            policy, keys, options, accept_policy=accept_policy, overflow=OverflowPolicy(report_suspended_site)
        )
        verify_store(store)
        runner = Embedded(partition, store, mark, keys, clock)
        runner.observers.append(lambda partition, _: store.operator_outbox.note(partition))
        runner.start()
        store.outboxes.prepare(sorted({audience for release in policy.release for audience in audiences_of(release)}))
        write_sites(folder / "private", site_metadata(policy))
        yield runner, store
        runner.stop()


def verify_store(store: SqliteStore) -> None:
    """Verify a store's audit chains before anything is written; AuditError if an entry is missing or altered."""
    audit_of([heads_of(store.snapshot())]).chains(parse_entries(store.entries()))


def sensing_counters(runner: Embedded) -> Counter[str]:
    """Return the counters of sensing, summed over all sites since the store was created."""
    counted: Counter[str] = Counter()
    for state in runner.partition.sites.sensing().values():
        counted.update(state.counters)
    return counted


def newest_session(runner: Embedded) -> Micros:
    """Return the latest session of any source of the store, -1 before the first."""
    return max(
        (watermark.newest_session(state.clock) for state in runner.partition.sites.sensing().values()), default=-1
    )


def next_windows(runner: Embedded) -> dict[str, Micros]:
    """Return, for each site that has closed a window, the next window."""
    return runner.partition.due()


def refuse_clock_behind(runner: Embedded, now: Micros, tolerance: Micros) -> None:
    """Refuse to listen if the clock is more than ``tolerance`` behind the event time that a site has reached.

    Raises:
        UsageError: messages received now would be dropped as late until the clock has caught up.
    """
    for site, state in sorted(runner.partition.sites.sensing().items()):
        until = watermark.present_time(state.clock)
        if now < until - tolerance:
            msg = (
                f"clock: must not be behind the store, got {rfc3339(now)}, but site {site} has reached "
                f"{rfc3339(until)}; correct the clock, or wait until then; 'tacet recover' lists other remedies"
            )
            raise UsageError(msg)


def refuse_older(runner: Embedded, path: Path, session: Micros) -> None:
    """Refuse a file that begins before the beginning of a source's last file or connector session.

    Raises:
        UsageError: sensing would drop the whole file, including what is new in it.
    """
    for site, state in sorted(runner.partition.sites.sensing().items()):
        newest = max((progress.session for progress in state.clock.progress.values()), default=session)
        if session < newest:
            msg = (
                f"{path}: begins before the last window of site {site}, so all of it would be dropped; 'tacet "
                "backfill' releases windows that were missed"
            )
            if state.next_tick is not None and state.next_tick >= newest:
                msg += f", and --from {rfc3339(state.next_tick)} continues where the store ends"
            raise UsageError(msg)


class FileSink:
    """Passes a file's messages to an embedded runner; the file is their durable copy."""

    def __init__(self, runner: Embedded, stop: asyncio.Event) -> None:
        self._runner, self._stop = runner, stop

    async def append(self, message: Message) -> None:
        """Process one message without storing it. After a stop, the windows that it closes are left to the next run."""
        for _ in self._runner.steps(message, durable=False):
            await asyncio.sleep(0)
            if self._stop.is_set():
                return


class LiveSink:
    """Passes a live connector's messages to an embedded runner."""

    def __init__(self, runner: Embedded, stop: asyncio.Event) -> None:
        self._runner, self._stop = runner, stop

    async def append(self, message: Message) -> None:
        """Store one message durably and process it.

        A heartbeat after a long outage closes thousands of windows. If a stop is requested meanwhile, the remaining
        windows and all later messages are left to the next start.
        """
        if self._stop.is_set() and self._runner.unfinished:
            self._runner.enqueue(message)
            return
        for _ in self._runner.steps(message):
            await asyncio.sleep(0)
            if self._stop.is_set():
                return
