"""Rotation of production keys on Kafka.

**Key days** (``forget_past_key_days``): when every site of the policy is past a day, that day's key is destroyed. A
site may be on another worker's partition, so the snapshots of all partitions are read, never only this worker's.

**The end of a ledger** (``ClusterLedger``): a key is lost or stolen, and another key continues in the same topics:

1. Everything is checked, and nothing changed.
2. One record of the control topic gives the cluster to the new key. From then on no worker starts with the old one.
3. Each partition is fenced, so that earlier owners can write no more. One transaction writes its new state, the entries
   that were never released, and the beginning of the new ledger. On a partition that has messages and no state yet, it
   writes an empty state behind the messages, since the new key cannot read them.
4. The old key is destroyed.

After an interruption the same call resumes: steps that are done are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

import orjson
import stamina
from aiokafka.errors import KafkaError

from connectors.keys import key_files
from connectors.keys.key_files import FileKeys
from connectors.runtime.clock import wall_clock
from connectors.runtime.offload import offload
from connectors.storage.audit_chains import audit_of, heads_of, parse_entries
from connectors.storage.kafka.cluster import ENGINE_FENCE, checked, decide
from connectors.storage.kafka.topic_readers import end_offsets, last_snapshot, last_snapshots, read_range
from connectors.storage.kafka.writers import KafkaWriter, KafkaWriterFactory
from connectors.storage.retirement import LedgerContent
from stream.accounting.ledger import Entry
from stream.encoding import decode_message
from stream.engine.cluster_state import ClusterState
from stream.engine.key_rotation import (
    EndedLedger,
    PredecessorSpend,
    end_ledger,
    first_snapshot,
    ledger_start_record,
    refuse_retired,
    take_over,
)
from stream.engine.outputs import OutputRecord
from stream.engine.ports import FencedError, InterruptedWriteError, LossError
from stream.engine.snapshot import open_snapshot
from stream.errors import AuditError, KeyFileError, LaterVersionError, TacetError, UsageError
from stream.keys import fingerprint, key_day_of
from stream.pipeline import Pipeline
from stream.records import Micros
from stream.release.validation import Policy
from stream.schemas import AUDIT, OBSERVATIONS, parse_time

log = logging.getLogger(__name__)


async def forget_past_key_days(bootstrap: str, policy: Policy, keys: FileKeys) -> None:
    """Destroy the keys of all days that no site needs any more; does nothing while a site has not begun.

    If no broker answers, nothing is destroyed or raised: the caller asks again later.
    """
    try:
        snapshots = await last_snapshots(bootstrap)
    except (KafkaError, ConnectionError, TimeoutError) as error:
        log.info("keys of past days are kept, the snapshots were not read: %s", type(error).__name__)
        return
    present = [snapshot for snapshot in snapshots.values() if snapshot is not None]
    key_day = await offload(oldest_key_day_needed, present, policy, keys)
    if key_day is not None:
        keys.forget_before(key_day)


def oldest_key_day_needed(snapshots: Iterable[bytes], policy: Policy, keys: FileKeys) -> int | None:
    """Return the oldest key day that some site of the policy still needs; None while one has not begun."""
    starts: dict[str, Micros] = {}
    for snapshot in snapshots:
        head, sites = open_snapshot(snapshot, keys.vault)
        ours = sites.keys() & policy.site.keys()
        if ours and (head.policy != policy.version or head.is_adopted):  # not begun yet
            return None
        for site in ours:
            pipeline = Pipeline(policy, site, keys)
            sense = pipeline.stages.occupancy.decode(sites[site]["sense"])
            day = pipeline.stages.attributes.decode(sites[site]["attributes"])
            start = pipeline.oldest_start(sense, day)
            if start is not None:
                starts[site] = start
    if set(starts) != set(policy.site):
        return None
    return min(key_day_of(start) for start in starts.values())


TRIES = 5
"""Attempts to fence a partition: a running worker reopens it once more and then finds that the key has ended."""


class ClusterLedger:
    """The ledger of a cluster; it continues in the same topics (``EndingLedger``)."""

    def __init__(self, bootstrap: str) -> None:
        """No ingest may send to the cluster."""
        self._bootstrap = bootstrap
        self._control = ClusterState()
        self._ended: set[str] = set()

    def exclusive(self, keys: FileKeys, old_key: Path | None) -> AbstractContextManager[None]:
        """Return without a lock: writers are fenced partition by partition, and running ingests are refused."""
        del keys, old_key
        return nullcontext()

    async def read(self, keys: FileKeys, old_key: Path | None) -> LedgerContent:
        """Read every partition; AuditError or UsageError if one is not complete."""
        del old_key
        self._control = control = await checked(self._bootstrap)
        entries = [
            entry
            for partition in range(control.partitions or 0)
            for entry in (await _read_partition(self._bootstrap, partition, control)).entries
        ]
        refuse_retired(control, keys.ledger)
        self._ended = {str(entry["ledger"]) for entry in entries} | {ledger for ledger, _ in control.beginnings}
        return LedgerContent(entries, resumed=control.key == fingerprint(keys))

    async def hand_over(self, keys: FileKeys, old: FileKeys | None) -> int:
        """Give the cluster to the new key, then take over each partition."""
        ended = self._ended - {keys.ledger} | ({old.ledger} if old is not None else set())
        if not keys.laboratory:
            key_files.serve(keys.path, str(self._control.id))
        before, after = None if old is None else fingerprint(old), fingerprint(keys)
        control = await decide(
            self._bootstrap, lambda present: end_ledger(present, before, after, ended, now=wall_clock())
        )
        partitions = range(self._control.partitions or 0)
        return sum([await _take_over_with_retry(self._bootstrap, each, control, keys) for each in partitions])


class _PartitionContent(NamedTuple):
    """The present content of a partition."""

    snapshot: bytes | None
    entries: list[Entry]
    """Each entry once, each site's in order."""
    unread: list[bytes]
    """Those entries that belong to no committed transaction."""
    audit_end: int


async def _read_partition(bootstrap: str, partition: int, control: ClusterState) -> _PartitionContent:
    """Return the content of a partition; AuditError, LossError or UsageError if it is not whole."""
    try:
        snapshot = await last_snapshot(bootstrap, partition)
        written, end = await read_range(bootstrap, AUDIT, partition, 0, committed=False)
    except LossError as loss:
        msg = f"{loss}; put the topic back from a mirror first ('tacet recover --kafka')"
        raise UsageError(msg) from None
    committed, _ = await read_range(bootstrap, AUDIT, partition, 0)
    known = {(entry["site"], entry["sequence"]) for entry in parse_entries(committed)}
    entries: dict[tuple[str, int], tuple[Entry, bytes]] = {}
    for entry, value in zip(parse_entries(written), written, strict=True):
        first, _ = entries.setdefault((entry["site"], entry["sequence"]), (entry, value))
        if first != entry:
            raise AuditError(f"audit: site {entry['site']}: entry {entry['sequence']} must appear once")
    if entries and snapshot is None:
        msg = f"partition {partition}: must have the state that its ledger entries belong to ('tacet recover --kafka')"
        raise UsageError(msg)
    ordered = sorted(entries.items())
    audit_of([heads_of(snapshot)]).chains(entry for _, (entry, _) in ordered)
    unread = [value for name, (_, value) in ordered if name not in known]
    return _PartitionContent(snapshot, [entry for _, (entry, _) in ordered], unread, end)


async def _take_over_with_retry(bootstrap: str, partition: int, control: ClusterState, keys: key_files.FileKeys) -> int:
    taking = stamina.AsyncRetryingCaller(attempts=TRIES, timeout=None, wait_initial=1.0, wait_max=2.0)
    try:
        return await taking((FencedError, InterruptedWriteError), _take_over, bootstrap, partition, control, keys)
    except (FencedError, InterruptedWriteError):
        msg = f"partition {partition}: must be free to write to; stop all workers, then do the same again"
        raise TacetError(msg) from None


async def _take_over(bootstrap: str, partition: int, control: ClusterState, keys: key_files.FileKeys) -> int:
    """Begin the new ledger on a partition, unless it has begun; return how many entries are never released."""
    writer = await KafkaWriterFactory(bootstrap, fence=ENGINE_FENCE).acquire(partition)
    try:
        found = await _read_partition(bootstrap, partition, control)
        end = (await end_offsets(bootstrap, OBSERVATIONS))[partition]
        if found.snapshot is None:  # nothing to inherit; messages of the old key cannot be read
            if end > 0:
                policy = control.accepted()[-1].version
                state = first_snapshot(keys, policy, {}, next_offset=end, audit_offset=found.audit_end)
                await writer.commit([], state)
            return 0
        if await _has_begun(bootstrap, partition, found.snapshot, keys):
            return 0
        left = EndedLedger(found.snapshot, found.entries, control.accepted())
        takeover = take_over(left, keys, partition, next_offset=end, audit_offset=found.audit_end)
        await _write(writer, takeover, found.unread)
        return takeover.unreleased
    finally:
        await writer.close()


async def _has_begun(bootstrap: str, partition: int, snapshot: bytes, keys: key_files.FileKeys) -> bool:
    """Return whether this state belongs to the new ledger, with no later entry under an old key."""
    head, _ = open_snapshot(snapshot)
    if head.key != fingerprint(keys):
        return False
    try:
        unread, _ = await read_range(bootstrap, OBSERVATIONS, partition, head.next_offset)
        for value in unread:
            decode_message(value, keys.vault)
    except KeyFileError:
        return False
    except (LossError, LaterVersionError):
        return True
    return True


async def _write(writer: KafkaWriter, predecessor: PredecessorSpend, unread: Iterable[bytes]) -> None:
    """Write everything that another ledger inherits on a partition, in one transaction."""
    entries = [
        OutputRecord(AUDIT, str(entry["site"]).encode(), value, parse_time(entry["window_end"]) // 1000, True, "")
        for value in unread
        for entry in [orjson.loads(value)]
    ]
    await writer.commit(
        [*entries, *predecessor.accounts],
        predecessor.snapshot,
        control_records=ledger_start_record(predecessor.ledger_start),
    )
