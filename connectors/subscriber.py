"""The subscriber's SDK: private releases as they come, each once, each site in window order.

async for release in subscribe(store=Path("store"), audience="facilities"):
    print(release["window_end"], release["values"])
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from connectors import kafka as log
from connectors.store import read_outbox
from stream.errors import UsageError
from stream.schemas import parse_record

Release = dict[str, Any]
POLL_SECONDS = 0.2


async def subscribe(
    *,
    audience: str,
    store: Path | None = None,
    kafka: str | None = None,
    release: str | None = None,
    from_start: bool = False,
    after: str | None = None,
    until_end: bool = False,
) -> AsyncGenerator[Release, None]:
    """Yield releases for one audience, from an embedded store or from Kafka.

    Args:
        audience: whose outbox or topics to read.
        store: folder of the embedded store (its outboxes are all that is opened).
        kafka: bootstrap servers; give this or ``store``.
        release: only this release; all of the audience's otherwise.
        from_start: begin with the first record kept, not with the next one to come.
        after: begin behind this release id, at its site; other sites begin at the start.
        until_end: stop at the end of what is there now.

    Raises:
        UsageError: neither or both of ``store`` and ``kafka``; or, with ``until_end``, no such ``after``.
        FinalityError: a release id came twice with different content.
    """
    if (store is None) == (kafka is None):
        msg = "subscribe: must be given either a store or Kafka's bootstrap servers"
        raise UsageError(msg)
    if store is not None:
        source = _from_store(store, audience, whole=from_start or after is not None, until_end=until_end)
    else:
        assert kafka is not None  # noqa: S101
        source = _from_kafka(kafka, audience, release, whole=from_start or after is not None, until_end=until_end)
    skipping = after
    async with aclosing(source) as records:
        async for record in records:
            if skipping is not None and record["site"] == skipping.partition("/")[0]:
                if record["release_id"] == skipping:
                    skipping = None
                continue
            if release is None or record["release"] == release:
                yield record
    if skipping is not None:
        msg = f"--after: must be a release id of this audience, got {skipping!r}"
        raise UsageError(msg)


async def _from_store(store: Path, audience: str, *, whole: bool, until_end: bool) -> AsyncGenerator[Release, None]:
    if not await asyncio.to_thread(store.is_dir):
        msg = f"{store}: must be a store made by 'tacet run'"
        raise UsageError(msg)
    seen = 0 if whole else max((seq for seq, _ in read_outbox(store, audience, 0)), default=0)
    while True:
        rows = read_outbox(store, audience, seen)
        for seq, value in rows:
            seen = seq
            yield parse_record(value)
        if until_end:
            return
        if not rows:
            await asyncio.sleep(POLL_SECONDS)


async def _from_kafka(
    kafka: str, audience: str, release: str | None, *, whole: bool, until_end: bool
) -> AsyncGenerator[Release, None]:
    pattern = re.compile(
        rf"tacet\.private\.{re.escape(audience)}\.{re.escape(release) if release else '[a-z0-9-]+'}\.v1"
    )
    topics = [name for name in await log.topics(kafka) if pattern.fullmatch(name)]
    if not topics:
        msg = f"audience {audience}: must have a private topic on this cluster"
        raise UsageError(msg)
    queue: asyncio.Queue[Release | None] = asyncio.Queue(maxsize=1000)

    async def follow(topic: str) -> None:
        async for record in log.consume(kafka, topic, from_start=whole, until_end=until_end):
            await queue.put(parse_record(record.value))
        await queue.put(None)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(follow(topic)) for topic in topics]
        open_topics = len(topics)
        try:
            while open_topics:
                record = await queue.get()
                if record is None:
                    open_topics -= 1
                else:
                    yield record
        finally:
            for task in tasks:
                task.cancel()
