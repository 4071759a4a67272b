"""Feeds a sink: every release at least once, under its id, from where the cursor stands.

A sink keeps what it has to know of the past in the cursor's ``notes``. They change only when a release has been
delivered, and before the cursor moves on: what is delivered again after a crash is known by its id, or left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from connectors.subscriber import Origin, Release, subscribe
from connectors.subscribing.cursor import Cursor
from stream.schemas import parse_time

Deliver = Callable[[Release], Awaitable[None]]
SAVE_EVERY = 1.0
"""Seconds between two saves of a cursor: after a crash what was delivered in between is delivered again."""


async def feed(
    source: Origin, cursor: Cursor, deliver: Deliver, begin: Deliver | None, *, until_end: bool = False
) -> None:
    """Deliver releases until cancelled, or to the present end.

    A new cursor begins at the present: ``begin`` takes the newest count of each site and release. Without ``begin``
    it begins at the first release kept.
    """
    if begin is not None and cursor.is_new:
        await _begin_at_present(source, cursor, begin)
        cursor.save()
    saving = asyncio.create_task(_saving(cursor))
    try:
        async with aclosing(subscribe(**source, cursor=cursor, until_end=until_end)) as records:
            async for record in records:
                await deliver(record)
    finally:
        saving.cancel()
        cursor.save()


async def _begin_at_present(source: Origin, cursor: Cursor, begin: Deliver) -> None:
    newest: dict[str, Release] = {}
    notes: dict[str, Any] = {}
    async with aclosing(subscribe(**source, cursor=cursor, until_end=True)) as records:
        async for record in records:
            if is_latest_count(record, notes):
                note_latest(record, notes)
                newest[_stream_of(record)] = record
    for record in newest.values():
        await begin(record)


async def _saving(cursor: Cursor) -> None:
    while True:
        await asyncio.sleep(SAVE_EVERY)
        cursor.save()


def is_latest_count(record: Release, notes: dict[str, Any]) -> bool:
    """Return whether a record is a count of a later window than any that was noted of its site and release.

    What is revised, or was released late, says nothing of the present; an attribute is of a day that is over.
    """
    if "attribute" in record or "revises" in record:
        return False
    before = notes.get("newest", {}).get(_stream_of(record))
    return before is None or parse_time(record["window_end"]) > parse_time(before)


def note_latest(record: Release, notes: dict[str, Any]) -> None:
    """Note how far a site's release has come."""
    notes.setdefault("newest", {})[_stream_of(record)] = record["window_end"]


def _stream_of(record: Release) -> str:
    return f"{record['site']}/{record['release']}"
