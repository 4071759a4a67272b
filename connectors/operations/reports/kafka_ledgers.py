"""The books of a cluster, read whole."""

from __future__ import annotations

import asyncio

from connectors.audit_chains import Heads, heads_of, parse_entries
from connectors.kafka.bounded import last_snapshots, topic_names
from connectors.kafka.client import NotAllowedError
from connectors.kafka.control import read
from connectors.kafka.following import by_sequence, consume
from connectors.reports.books import Books
from connectors.subscriber import subscribe
from stream.runners.agreement import Control
from stream.schemas import AUDIT, CONTROL


def kafka_books(servers: str, *, records: bool = False) -> Books:
    """Return a cluster's books; ``records`` reads what was published too."""
    return asyncio.run(_kafka_books(servers, records=records))


async def _kafka_books(servers: str, *, records: bool) -> Books:
    names = [name.split(".") for name in await topic_names(servers) if name.startswith("tacet.private.")]
    published = [
        record
        for audience in (sorted({parts[2] for parts in names}) if records else ())
        async for record in subscribe(audience=audience, kafka=servers, from_start=True, until_end=True)
    ]
    states = await _states(servers)
    values = [r.value async for r in consume(servers, AUDIT, until_end=True, identity=by_sequence)]
    control = await read(servers) if CONTROL in await topic_names(servers) else Control()
    documents = [accepted.document for accepted in sorted(control.policies.values(), key=lambda each: each.order)]
    return Books(
        list(parse_entries(values)),
        states or [],
        published,
        all_kept=False,
        policies=documents,
        beginnings=list(control.beginnings.values()),
        states_read=states is not None,
    )


async def _states(servers: str) -> list[Heads] | None:
    """Return what the states know of the audit chains; None where states are closed to this user, as to any auditor."""
    try:
        return [heads_of(held) for held in (await last_snapshots(servers)).values()]
    except NotAllowedError:
        return None
