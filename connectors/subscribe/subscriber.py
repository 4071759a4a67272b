"""The subscriber's SDK: private releases as they arrive, each once, each site in window order.

async for release in subscribe(store=Path("store"), audience="facilities"):
    print(release["window_end"], release["values"])

for release in releases(store=Path("store"), audience="facilities"):
    print(release["window_end"], release["values"])
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from pathlib import Path
from typing import NotRequired, Required, TypedDict, Unpack

from connectors.runtime.offload import offload
from connectors.storage.kafka import metadata
from connectors.storage.site_metadata import SiteMetadata, read_sites
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.order import Mark, Release
from connectors.subscribe.outbox import behind, from_outbox
from connectors.subscribe.service import from_service, sites_of_service
from connectors.subscribe.topics import from_topics
from stream.errors import UsageError

__all__ = ["Origin", "Release", "StorageOptions", "SubscribeOptions", "read_metadata", "releases", "sites", "subscribe"]


async def subscribe(
    *,
    audience: str,
    store: Path | None = None,
    kafka: str | None = None,
    url: str | None = None,
    token: str | None = None,
    release: str | None = None,
    from_start: bool = False,
    after: str | None = None,
    cursor: Cursor | None = None,
    until_end: bool = False,
) -> AsyncGenerator[Release, None]:
    """Yield releases for one audience, from an embedded store, from Kafka or from a service.

    Within a window, a site's attributes precede its counts, and counts are sorted by release name. Existing records on
    Kafka are yielded by (window, site), later ones as they arrive. A store or a service yields the order of arrival.

    Args:
        audience: whose outbox, topics or stream to read.
        store: folder of the embedded store; only its outboxes are opened.
        kafka: bootstrap servers; give one of ``store``, ``kafka`` and ``url``.
        url: address of a 'tacet serve', such as ``https://occupancy.example.org``. A broken connection is reopened.
        token: the token for the service; not needed if the audience is open.
        release: only this release; otherwise all of the audience's releases.
        from_start: start with the first stored record, not with the next one to arrive.
        after: start after this release id, at its site; other sites start at the beginning. On Kafka other releases
            do too, since they may have arrived later. In a service's single order, everything before it is skipped.
        cursor: resume from it, at every site; it advances when the next release is requested.
        until_end: stop at the present end.

    Raises:
        UsageError: not exactly one of ``store``, ``kafka`` and ``url``; no such store, audience or, on Kafka, release;
            a topic has another number of partitions than its cluster; the service does not accept the token; ``after``
            is not among the releases that existed at the start; ``cursor`` with ``after``, or of another source; a
            topic or store was recreated, or lacks records that the cursor has not delivered.
        FinalityError: a release id occurred twice with different content.
    """
    if sum(home is not None for home in (store, kafka, url)) != 1:
        msg = "subscribe: must be given either a store, Kafka's bootstrap servers or the URL of a service"
        raise UsageError(msg)
    if cursor is not None and after is not None:
        msg = "cursor: must not be given with after, because each sets the start"
        raise UsageError(msg)
    whole = from_start or after is not None or cursor is not None
    if store is not None:
        wanted = release if after is None else None  # ``after`` may be a record of another release
        source = from_outbox(store, audience, wanted, whole=whole, cursor=cursor)
        source = source if after is None else behind(source, after)
    elif kafka is not None:
        source = from_topics(kafka, audience, release, whole=whole, after=after, cursor=cursor)
    else:
        source = from_service(url or "", audience, token, whole=whole, after=after, cursor=cursor)
    async with aclosing(source) as records:
        async for record in records:
            if record is not Mark.CAUGHT_UP:
                if release is None or record["release"] == release:
                    yield record
            elif until_end:
                return


class StorageOptions(TypedDict, total=False):
    """The source of records: options of ``subscribe``, under the same names."""

    store: Path | None
    kafka: str | None
    url: str | None
    token: str | None


class Origin(StorageOptions):
    """The audience and the source: options of ``subscribe``, under the same names."""

    audience: Required[str]
    release: NotRequired[str | None]


class SubscribeOptions(Origin):
    """All options of ``subscribe``, under the same names."""

    from_start: NotRequired[bool]
    after: NotRequired[str | None]
    cursor: NotRequired[Cursor | None]
    until_end: NotRequired[bool]


async def read_metadata(
    *, store: Path | None = None, kafka: str | None = None, url: str | None = None, token: str | None = None
) -> dict[str, SiteMetadata]:
    """Return each site's metadata by its name, from the one source that is given; empty if it stores none.

    ``site``, ``name``, ``timezone``, ``tick_seconds``, and ``zones``: each with ``zone``, ``floor``, ``kind``,
    ``capacity`` and ``metadata``, the names that the policy assigns;
    where floors have names, ``floors``: each with ``floor`` and ``name``.
    """
    if store is not None:
        return await offload(read_sites, store / "private")
    if kafka is not None:
        return await metadata.read(kafka)
    return await sites_of_service(url or "", token)


def releases(**source: Unpack[SubscribeOptions]) -> Generator[Release, None, None]:
    """Like ``subscribe``, for a program without an event loop: block until each release, and yield it.

    Close it if it is not read to its end (``contextlib.closing``). UsageError when called within an event loop.
    """
    _refuse_loop("releases", "async for … in subscribe(…)")
    return _one_by_one(subscribe(**source))


def sites(**home: Unpack[StorageOptions]) -> dict[str, SiteMetadata]:
    """Return each site's metadata by its name (see ``read_metadata``); UsageError in an event loop."""
    _refuse_loop("sites", "await read_metadata(…)")
    return asyncio.run(read_metadata(**home))


def _refuse_loop(name: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    msg = f"{name}: must be called outside of an event loop; within one there is '{instead}'"
    raise UsageError(msg)


def _one_by_one(records: AsyncGenerator[Release, None]) -> Generator[Release, None, None]:
    async def coming() -> Release | None:
        return await anext(records, None)

    with asyncio.Runner() as runner:
        try:
            while (record := runner.run(coming())) is not None:
                yield record
        finally:
            runner.run(records.aclose())
