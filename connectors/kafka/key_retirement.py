"""Lets a production key file step forward on Kafka: when every site of the policy is past a day, its key goes.

A site may be on a partition of another worker, so the snapshots of all partitions are looked at, never only
this worker's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from connectors.kafka.bounded import last_snapshots
from connectors.keyfile import FileKeys
from stream.keys import key_day_of
from stream.pipeline import Pipeline
from stream.policy.document import Policy
from stream.records import Micros
from stream.runners.snapshot import open_snapshot


async def forget_past_key_days(bootstrap: str, policy: Policy, keys: FileKeys) -> None:
    """Destroy the keys of all days that no site needs any more; does nothing while a site has not begun."""
    snapshots = await last_snapshots(bootstrap)
    held = [snapshot for snapshot in snapshots.values() if snapshot is not None]
    key_day = await asyncio.to_thread(oldest_key_day_needed, held, policy, keys)
    if key_day is not None:
        keys.forget_before(key_day)


def oldest_key_day_needed(snapshots: Iterable[bytes], policy: Policy, keys: FileKeys) -> int | None:
    """Return the oldest key day that some site of the policy still needs; None while one has not begun."""
    starts: dict[str, Micros] = {}
    for snapshot in snapshots:
        head, sites = open_snapshot(snapshot, keys.vault)
        ours = sites.keys() & policy.site.keys()
        if ours and (head["policy"] != policy.version or head.get("adopt", False)):  # not begun with yet
            return None
        for site in ours:
            pipeline = Pipeline(policy, site, keys)
            sense = pipeline.table.sense.decode(sites[site]["sense"])
            day = pipeline.table.attributes.decode(sites[site]["attributes"])
            start = pipeline.oldest_start(sense, day)
            if start is not None:
                starts[site] = start
    if set(starts) != set(policy.site):
        return None
    return min(key_day_of(start) for start in starts.values())
