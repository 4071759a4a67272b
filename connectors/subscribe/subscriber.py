"""The subscriber's SDK: private releases as they come, each once, each site in window order.

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
from typing import Any, NotRequired, Required, TypedDict, Unpack

from connectors.subscribing.cursor import Cursor
from connectors.subscribing.order import CAUGHT_UP, Release
from connectors.subscribing.outbox import behind, from_outbox
from connectors.subscribing.service import from_service
from connectors.subscribing.sites import read_metadata
from connectors.subscribing.topics import from_topics
from stream.errors import UsageError

__all__ = ["From", "Home", "Origin", "Release", "read_metadata", "releases", "sites", "subscribe"]


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

    Of a window a site's attributes come before its counts, and these by the name of their release. What is
    on Kafka already comes by (window, site); what comes later as it arrives. A store, or a service, gives the
    order of arrival.

    Args:
        audience: whose outbox, topics or stream to read.
        store: folder of the embedded store (its outboxes are all that is opened).
        kafka: bootstrap servers; give one of ``store``, ``kafka`` and ``url``.
        url: address of a 'tacet serve', such as ``https://occupancy.example.org``. What breaks is begun again.
        token: lets this program into the service; none is needed where the audience is open.
        release: only this release; all of the audience's otherwise.
        from_start: begin with the first record kept, not with the next one to come.
        after: begin behind this release id, at its site; other sites begin at the start. On Kafka other releases
            do too, since they may have arrived later. In a service's one order everything before it is left out.
        cursor: begin where it stands, at every site; it moves on when the next release is asked for.
        until_end: stop at the end of what is there now.

    Raises:
        UsageError: not exactly one of ``store``, ``kafka`` and ``url``; no such store, audience or, on Kafka, release;
            a topic of it has another number of partitions than its cluster; the service does not let the token in;
            ``after`` is none of the releases that were there at the beginning; ``cursor`` with ``after``, or of
            another source.
        FinalityError: a release id came twice with different content.
    """
    if sum(home is not None for home in (store, kafka, url)) != 1:
        msg = "subscribe: must be given either a store, Kafka's bootstrap servers or the URL of a service"
        raise UsageError(msg)
    if cursor is not None and after is not None:
        msg = "cursor: must go without after; each says where to begin"
        raise UsageError(msg)
    whole = from_start or after is not None or cursor is not None
    if store is not None:
        wanted = release if after is None else None  # else the others are needed to find ``after``
        source = from_outbox(store, audience, wanted, whole=whole, cursor=cursor)
        source = source if after is None else behind(source, after)
    elif kafka is not None:
        source = from_topics(kafka, audience, release, whole=whole, after=after, cursor=cursor)
    else:
        source = from_service(url or "", audience, token, whole=whole, after=after, cursor=cursor)
    async with aclosing(source) as records:
        async for record in records:
            if record is not CAUGHT_UP:
                if release is None or record["release"] == release:
                    yield record
            elif until_end:
                return


class Home(TypedDict, total=False):
    """From where something is read: options of ``subscribe``, by the same names."""

    store: Path | None
    kafka: str | None
    url: str | None
    token: str | None


class Origin(Home):
    """Whose releases, and where they are read from: options of ``subscribe``, by the same names."""

    audience: Required[str]
    release: NotRequired[str | None]


class From(Origin):
    """What ``subscribe`` takes, by the same names."""

    from_start: NotRequired[bool]
    after: NotRequired[str | None]
    cursor: NotRequired[Cursor | None]
    until_end: NotRequired[bool]


def releases(**source: Unpack[From]) -> Generator[Release, None, None]:
    """Do as ``subscribe`` does, for a program without an event loop: wait for each release, and yield it.

    Left before its end, it is to be closed (``contextlib.closing``). UsageError when called within an event loop.
    """
    _refuse_loop("releases", "async for … in subscribe(…)")
    return _one_by_one(subscribe(**source))


def sites(**home: Unpack[Home]) -> dict[str, dict[str, Any]]:
    """Return what there is to know of each site, by its name (see ``read_metadata``); UsageError in an event loop."""
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
