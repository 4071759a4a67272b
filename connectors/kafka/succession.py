"""The end of a ledger on Kafka: its key is lost or stolen, and another key goes on in the same topics.

First all is looked at, and nothing changed. Then one record of the control topic gives the cluster to the new key: from
there on nobody begins with the old one. Then each partition is taken, which fences whoever still writes there, and one
transaction writes its new state, entries that were never released, and where the new ledger begins. Last the old key is
destroyed. Whoever is interrupted begins again with the same words: what is done is passed by.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import stamina

from connectors import keyfile
from connectors.audit_chains import audit_of, heads_of, parse_entries
from connectors.intake.clock import wall_clock
from connectors.kafka.bounded import end_offsets, last_snapshot, read_range
from connectors.kafka.control import checked, decide
from connectors.kafka.joining import FENCE
from connectors.kafka.writers import KafkaJournal, KafkaWriter
from stream.errors import AuditError, KeyFileError, LaterVersionError, TacetError, UsageError
from stream.keys import fingerprint
from stream.messages import decode_message
from stream.runners.agreement import Control
from stream.runners.contract import FencedError, InterruptedWriteError, LossError
from stream.runners.emitted import Emitted
from stream.runners.retirement import begins, end_ledger, refuse_retired
from stream.runners.snapshot import open_snapshot
from stream.runners.succession import Left, Taken, taken_over
from stream.schemas import AUDIT, OBSERVATIONS, parse_time

TRIES = 5
"""So often a partition is taken: a worker that runs still takes it back once, and then finds that it may not."""


class Retired(NamedTuple):
    """What a ledger has ended with, and what goes on."""

    ledger: str
    """Public id of the new ledger."""
    entries: int
    """How many entries its budgets and its account begin with."""
    unreleased: int
    """How many of them were charged just now at their worst, and are never released."""


async def retire(bootstrap: str, new_key: Path, old_key: Path | None) -> Retired:
    """Let another key go on with what the old one spent; done again after a crash it goes on.

    Args:
        bootstrap: the cluster's servers; no ingest may send to it.
        new_key: a key that nothing was made with.
        old_key: the cluster's key, which is destroyed; None where it is lost.

    Raises:
        UsageError: a key is not what it must be, or an ingest sends still.
        AuditError: the books of a partition are not whole.
    """
    control, keys = await checked(bootstrap), keyfile.FileKeys(new_key)
    _ = keys.vault
    old = None if old_key is None else _old(old_key, keys)
    partitions = range(control.partitions or 0)
    found = [entry for each in partitions for entry in (await _left(bootstrap, each, control)).entries]
    _refuse_key(control, keys, found)
    ended = {str(entry["ledger"]) for entry in found} | {ledger for ledger, _ in control.beginnings}
    ended = ended - {keys.ledger} | ({old.ledger} if old is not None else set())
    if not keys.laboratory:
        keyfile.serve(new_key, str(control.id))
    before, after = None if old is None else fingerprint(old), fingerprint(keys)
    control = await decide(bootstrap, lambda present: end_ledger(present, before, after, ended, now=wall_clock()))
    unreleased = sum([await _patiently_taken(bootstrap, each, control, keys) for each in partitions])
    if old_key is not None:
        keyfile.retire(old_key, keys.ledger)
    return Retired(keys.ledger, len(found), unreleased)


class _Found(NamedTuple):
    """A partition as it stands."""

    snapshot: bytes | None
    entries: list[dict[str, Any]]
    """Each entry once, each site's in order."""
    unread: list[bytes]
    """Those of them that are of no committed transaction."""
    audit_end: int


async def _left(bootstrap: str, partition: int, control: Control) -> _Found:
    """Return what is on a partition; AuditError, LossError or UsageError where it is not whole."""
    try:
        snapshot = await last_snapshot(bootstrap, partition)
        written, end = await read_range(bootstrap, AUDIT, partition, 0, committed=False)
    except LossError as loss:
        msg = f"{loss}; put the topic back from a mirror first ('tacet recover --kafka')"
        raise UsageError(msg) from None
    committed, _ = await read_range(bootstrap, AUDIT, partition, 0)
    known = {(entry["site"], entry["sequence"]) for entry in parse_entries(committed)}
    entries: dict[tuple[str, int], tuple[dict[str, Any], bytes]] = {}
    for entry, value in zip(parse_entries(written), written, strict=True):
        first, _ = entries.setdefault((entry["site"], entry["sequence"]), (entry, value))
        if first != entry:
            raise AuditError(f"audit: site {entry['site']}: entry {entry['sequence']} must be there once")
    if entries and snapshot is None:
        msg = f"partition {partition}: must have the state that its ledger entries belong to ('tacet recover --kafka')"
        raise UsageError(msg)
    ordered = sorted(entries.items())
    audit_of([heads_of(snapshot)]).chains(entry for _, (entry, _) in ordered)
    unread = [value for name, (_, value) in ordered if name not in known]
    return _Found(snapshot, [entry for _, (entry, _) in ordered], unread, end)


def _old(path: Path, new: keyfile.FileKeys) -> keyfile.FileKeys | None:
    """Return the keys that end; None where they were destroyed in favour of the new ones before."""
    if (follower := keyfile.follower(path)) is not None:
        if follower != new.ledger:
            raise UsageError(f"--new-key: must be that of ledger {follower}, for which {path} was retired")
        return None
    old = keyfile.FileKeys(path)
    if old.ledger == new.ledger:
        raise UsageError("--new-key: must be a new key, got that of the ledger which is to end")
    return old


def _refuse_key(control: Control, keys: keyfile.FileKeys, entries: Iterable[dict[str, Any]]) -> None:
    """Raise UsageError for a key that something was made with, or that would hide what is a laboratory's."""
    refuse_retired(control, keys.ledger)
    if control.key != fingerprint(keys) and any(entry["ledger"] == keys.ledger for entry in entries):
        raise UsageError("--new-key: must be a new key, got one whose ledger has entries here")
    if any(entry["laboratory"] != keys.laboratory for entry in entries):
        kind = "production" if keys.laboratory else "laboratory"
        raise UsageError(f"--new-key: must be a {kind} key, as the old one was")


async def _patiently_taken(bootstrap: str, partition: int, control: Control, keys: keyfile.FileKeys) -> int:
    taking = stamina.AsyncRetryingCaller(attempts=TRIES, timeout=None, wait_initial=1.0, wait_max=2.0)
    try:
        return await taking((FencedError, InterruptedWriteError), _take, bootstrap, partition, control, keys)
    except (FencedError, InterruptedWriteError):
        msg = f"partition {partition}: must be free to write to; stop all workers, then do the same again"
        raise TacetError(msg) from None


async def _take(bootstrap: str, partition: int, control: Control, keys: keyfile.FileKeys) -> int:
    """Let the new ledger begin on a partition, unless it has; return how many entries are never released."""
    writer = await KafkaJournal(bootstrap, fence=FENCE).take(partition)
    try:
        found = await _left(bootstrap, partition, control)
        end = (await end_offsets(bootstrap, OBSERVATIONS))[partition]
        if found.snapshot is None or await _has_begun(bootstrap, partition, found.snapshot, keys):
            return 0
        left = Left(found.snapshot, found.entries, control.accepted())
        taken = taken_over(left, keys, partition, next_offset=end, audit_offset=found.audit_end)
        await _write(writer, taken, found.unread)
        return taken.unreleased
    finally:
        await writer.close()


async def _has_begun(bootstrap: str, partition: int, snapshot: bytes, keys: keyfile.FileKeys) -> bool:
    """Whether the new ledger goes on from this state: it is its own, and nothing behind it is under an old key."""
    head, _ = open_snapshot(snapshot)
    if head["key"] != fingerprint(keys):
        return False
    try:
        unread, _ = await read_range(bootstrap, OBSERVATIONS, partition, head["next"])
        for value in unread:
            decode_message(value, keys.vault)
    except KeyFileError:
        return False
    except (LossError, LaterVersionError):
        return True
    return True


async def _write(writer: KafkaWriter, taken: Taken, unread: Iterable[bytes]) -> None:
    """Write all that another ledger takes over on a partition, or nothing of it."""
    entries = [
        Emitted(AUDIT, str(entry["site"]).encode(), value, parse_time(entry["window_end"]) // 1000, True, "")
        for value in unread
        for entry in [orjson.loads(value)]
    ]
    await writer.commit([*entries, *taken.accounts], taken.snapshot, agreed=begins(taken.beginning))
