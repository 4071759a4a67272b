"""The loop that feeds a sink and resumes from its cursor.

A sink stores what it needs to know of the past in the cursor's ``notes``. Notes change only after a release was
delivered, and before the cursor moves on. A release that is delivered again after a crash is recognised by its id, or
skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypedDict, cast

from connectors.subscribe.cursor import Cursor
from connectors.subscribe.order import Release
from connectors.subscribe.subscriber import Origin, subscribe
from stream.records import Micros
from stream.schemas import parse_time


class Notes(TypedDict, total=False):
    """What a sink stores of the past, as JSON in its cursor's file. Which fields are present depends on the sink."""

    newest: dict[str, str]
    """Site and release -> the end of the newest window."""
    retained: dict[str, str]
    """Topic -> the retained message (MQTT)."""
    told: dict[str, float | str | None]
    """Site, release and node -> the value or the side of a threshold that was last reported (webhooks, mail)."""
    lasting: dict[str, Micros]
    """Episode -> when it was mailed or put aside (mail)."""
    held: dict[str, list[Any]]
    """Episode -> its fields, until quiet hours are over (mail)."""
    reported: dict[str, str]
    """Site -> the month that was last reported (mail)."""


def notes_of(cursor: Cursor) -> Notes:
    """Return the notes in a cursor's file, for a sink to change."""
    return cast(Notes, cursor.notes)


Deliver = Callable[[Release], Awaitable[None]]
SAVE_EVERY = 1.0
"""Seconds between two saves of a cursor; after a crash, records delivered since the last save are delivered again."""


async def deliver_releases(
    source: Origin, cursor: Cursor, deliver: Deliver, begin: Deliver | None, *, until_end: bool = False
) -> None:
    """Deliver releases until cancelled, or up to the present end.

    A new cursor starts at the present: ``begin`` receives the newest count of each site and release. Without ``begin``
    it starts at the first stored release.
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
    notes: Notes = {}
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


def is_latest_count(record: Release, notes: Notes) -> bool:
    """Return whether a record is a count of a later window than any noted for its site and release.

    A revised or late record is not the present state, and an attribute belongs to a past day.
    """
    if "attribute" in record or "revises" in record:
        return False
    before = notes.get("newest", {}).get(_stream_of(record))
    return before is None or parse_time(record["window_end"]) > parse_time(before)


def note_latest(record: Release, notes: Notes) -> None:
    """Note the newest window of a site's release."""
    notes.setdefault("newest", {})[_stream_of(record)] = record["window_end"]


def _stream_of(record: Release) -> str:
    return f"{record['site']}/{record['release']}"
