"""When a cluster's key is lost or stolen: its ledger ends, and another key's goes on. The rules, which are pure.

One record decides it, and there is no way back: from then on no worker begins with the old key, and none takes a
partition; no ingest of the old key is let in, and those that run have lost their sources. Each partition is taken over
after that, one transaction each, so whoever is interrupted begins again and goes on.
"""

from __future__ import annotations

from collections.abc import Collection

from stream.accounting.beginnings import Beginning
from stream.errors import UsageError
from stream.records import Micros
from stream.runners.agreement import OTHER_KEY, SILENT, Control, Records, engine_record, record

NOBODY = "retired"
"""Stands for the ingest of a source whose ingest had an old key: it gives no sign of life."""


def end_ledger(control: Control, old: str | None, new: str, ended: Collection[str], *, now: Micros) -> Records:
    """Let a cluster go on with another key; nothing is to be written where it does already.

    Args:
        control: what stands.
        old: fingerprint of the key whose ledger ends; None where it is lost.
        new: fingerprint of the key that goes on.
        ended: ids of the ledgers that end, as key and entries name them.
        now: by the broker's clock, as near as it is known.

    Raises:
        UsageError: the cluster has another key, none yet, or an ingest sends still.
    """
    if control.key == new:
        return {}
    if control.key is None:
        raise UsageError("key: must have a ledger to end, but no worker has begun on this cluster")
    if old not in (None, control.key):
        raise UsageError(OTHER_KEY)
    if alive := sum(beat > now - SILENT for beat in control.beats.values()):
        msg = f"ingest: must be stopped before a key is retired, {alive} of them gave a sign of life just now"
        raise UsageError(msg)
    retired = [*control.retired, *sorted(set(ended) - set(control.retired))]
    claims = {
        f"source/{site}/{source}": record(ingest=NOBODY, session=held.session)
        for (site, source), held in control.claims.items()
    }
    return {"engine": engine_record(control, new, control.versions, retired=retired)} | claims


def refuse_retired(control: Control, ledger: str) -> None:
    """Raise UsageError for a key whose ledger has ended."""
    if ledger in control.retired:
        msg = f"key: ledger {ledger} has ended, its key was retired; use the key of the ledger that goes on"
        raise UsageError(msg)


def refuse_other_key(control: Control, key: str, ledger: str) -> None:
    """Raise UsageError where the cluster goes on with another key since a worker began."""
    refuse_retired(control, ledger)
    if control.key not in (None, key):
        raise UsageError(OTHER_KEY)


def begins(beginning: Beginning) -> Records:
    """Return what is written where a ledger takes a partition over."""
    return {f"ledger/{beginning.ledger}/{beginning.partition}": record(**beginning.document())}
