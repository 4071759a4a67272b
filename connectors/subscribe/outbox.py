"""An audience's releases from its outbox in an embedded store, in the order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from pathlib import Path

from connectors.runtime.offload import offload
from connectors.storage.embedded.reader import has_outbox, last_number, read_outbox, release_at
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.order import Arrival, Mark, Release, by_release, unseen
from stream.errors import UsageError
from stream.schemas import parse_record, private_topic

POLL_SECONDS = 0.2
_EVERY = "*"
"""Name in a cursor for all releases of the audience together."""


async def from_outbox(
    store: Path, audience: str, release: str | None, *, whole: bool, cursor: Cursor | None
) -> AsyncGenerator[Release | Mark, None]:
    """Yield the outbox's records, of one release or all, then ``CAUGHT_UP``, then those that are added.

    ``whole`` starts at the first record, or at the cursor's settled offset; otherwise at the present end.
    """
    if not await offload(has_outbox, store, audience):
        msg = f"audience {audience}: must be an audience of this store, but {store} has no outbox for it"
        raise UsageError(msg)
    topic = private_topic(audience, release or _EVERY)
    last = last_number(store, audience)
    if cursor is not None:
        cursor.belong_to("store")
        for each in cursor.topics():
            if each.split(".")[2] == audience:
                cursor.refuse_other(each, 0, 0, partial(release_at, store, audience))
    seen = last if not whole else 0 if cursor is None else cursor.settled(topic, 0) - 1
    caught_up = False
    while True:
        rows = read_outbox(store, audience, seen, release)
        arrived = [_arrival(audience, number, parse_record(value)) for number, value in rows]
        async for record in unseen(by_release(arrived), cursor):
            yield record
        seen = max((one.offset for one in arrived), default=seen)
        if cursor is not None:
            cursor.mark_delivered(topic, 0, seen + 1, max((one.cursor_entry for one in arrived), default=None))
        if not caught_up:
            caught_up = True
            yield Mark.CAUGHT_UP
        if not rows:
            await asyncio.sleep(POLL_SECONDS)


def _arrival(audience: str, number: int, record: Release) -> Arrival:
    return Arrival(private_topic(audience, record["release"]), 0, number, record)


async def behind(source: AsyncGenerator[Release | Mark, None], after: str) -> AsyncGenerator[Release | Mark, None]:
    """Skip a site's records up to and including a release; UsageError if that release is not there."""
    skipping: str | None = after
    async with aclosing(source) as records:
        async for record in records:
            if record is Mark.CAUGHT_UP:
                if skipping is not None:
                    raise not_stored(skipping)
                yield Mark.CAUGHT_UP
            elif skipping is not None and record["site"] == skipping.partition("/")[0]:
                if record["release_id"] == skipping:
                    skipping = None
            else:
                yield record


def not_stored(after: str) -> UsageError:
    """Return the error for a release that is not stored, so that reading cannot start after it."""
    return UsageError(f"--after: must be a release id of this audience that is still kept, got {after!r}")
