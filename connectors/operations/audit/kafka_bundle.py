"""Read the audit bundle of a cluster."""

from __future__ import annotations

import asyncio

from connectors.operations.audit.verification import AuditBundle
from connectors.storage.audit_chains import Heads, heads_of, parse_entries
from connectors.storage.kafka.client import NotAllowedError
from connectors.storage.kafka.cluster import read
from connectors.storage.kafka.topic_readers import last_snapshots, topic_names
from connectors.storage.kafka.topic_tail import by_sequence, consume
from connectors.subscribe.order import Release
from connectors.subscribe.subscriber import subscribe
from stream.engine.cluster_state import ClusterState
from stream.schemas import AUDIT, CONTROL, is_private


def kafka_bundle(servers: str, *, records: bool = False) -> AuditBundle:
    """Return a cluster's audit bundle; ``records`` also reads the published records."""
    return asyncio.run(cluster_bundle(servers, records=records))


async def cluster_bundle(servers: str, *, records: bool = False) -> AuditBundle:
    """Do the same in an event loop."""
    states = await _states(servers)  # first: the entries must reach them
    values = [r.value async for r in consume(servers, AUDIT, until_end=True, identity=by_sequence)]
    published = await _published(servers) if records else None  # last: a charge and its record are one transaction
    control = await read(servers) if CONTROL in await topic_names(servers) else ClusterState()
    documents = [accepted.document for accepted in sorted(control.policies.values(), key=lambda each: each.order)]
    return AuditBundle(
        list(parse_entries(values)),
        states or [],
        published,
        policies=documents,
        beginnings=list(control.beginnings.values()),
        states_read=states is not None,
    )


async def _published(servers: str) -> list[Release]:
    """Return the private records of all audiences."""
    names = [name.split(".") for name in await topic_names(servers) if is_private(name)]
    return [
        record
        for audience in sorted({parts[2] for parts in names})
        async for record in subscribe(audience=audience, kafka=servers, from_start=True, until_end=True)
    ]


async def _states(servers: str) -> list[Heads] | None:
    """Return the heads of the audit chains in the states; None if this user, such as an auditor, may not read the
    states."""
    try:
        return [heads_of(snapshot) for snapshot in (await last_snapshots(servers)).values()]
    except NotAllowedError:
        return None
