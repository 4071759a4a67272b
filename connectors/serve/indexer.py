"""Read released records into the history, and wake the event streams.

Each source is resumed from the position that the history has stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import orjson

from connectors.runtime.offload import offload
from connectors.serve.playback import Playback, arrival_time
from connectors.serve.service import Service
from connectors.storage.embedded.reader import ACCOUNT_OUTBOX, OPERATOR_OUTBOX, has_outbox, read_outbox, release_at
from stream.errors import DataError, UsageError
from stream.schemas import parse_record

POLL_SECONDS = 0.5
BATCH = 2000
"""Records added at once."""


class Indexer:
    """Adds records to the history and publishes the new ones to the event streams."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def position(self, source: str) -> int:
        """Return the position up to which a source was read; 0 at first."""
        return self._service.history.position(source) or 0

    def last(self, source: str) -> str | None:
        """Return the id of the last record read from a source; None at first."""
        return self._service.history.last(source)

    async def add(self, records: Sequence[bytes], positions: Mapping[str, int]) -> None:
        """Add records, each once.

        Raises:
            FinalityError: a stored record has other bytes.
            DataError: one of them is not a private record; the message names the source.
        """
        service = self._service
        async with service.query_lock:
            try:
                new = await offload(service.history.add, records, positions)
            except DataError as error:
                raise DataError(f"{', '.join(positions) or 'play'}: {error}") from None
            service.laboratory = service.laboratory or any(of_laboratory(value) for value in records[-1:])
            service.drop_cache()
            for audience, given in by_audience(new).items():
                service.streams.publish(audience, given)


def of_laboratory(record: bytes) -> bool:
    """Return whether a record was made with a laboratory key."""
    return parse_record(record).get("laboratory") is True


def own(audience: str, source: str, records: Sequence[bytes]) -> Sequence[bytes]:
    """Return the records unchanged; DataError if one of them belongs to another audience."""
    try:
        others = any(type(value) is not bytes or parse_record(value).get("audience") != audience for value in records)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    if others:
        raise DataError(f"{source}: must contain only records of audience {audience}")
    return records


def by_audience(records: Iterable[bytes]) -> dict[str, list[tuple[str, bytes]]]:
    """Return (id, record) by audience, in the order of arrival."""
    found: dict[str, list[tuple[str, bytes]]] = {}
    for value in records:
        body = orjson.loads(value)
        found.setdefault(body["audience"], []).append((body["release_id"], value))
    return found


def refuse_absent(store: Path, outboxes: Iterable[str]) -> None:
    """Refuse a store without an outbox for a served role.

    Raises:
        UsageError: there is no store, or it has no such outbox.
    """
    for outbox in outboxes:
        if not has_outbox(store, outbox):
            roles = {ACCOUNT_OUTBOX: "--account or --operator", OPERATOR_OUTBOX: "--operator"}
            what = roles.get(outbox, f"--audience {outbox}")
            msg = f"{what}: must have an outbox in {store}; the next 'tacet run' with this store creates it"
            raise UsageError(msg)


async def follow_outbox(store: Path, audience: str, index: Indexer) -> None:
    """Read what an audience's outbox contains, then what is added; returns only by an error.

    Raises:
        UsageError: the history was made from another store, or the outbox was replaced.
        FinalityError: a record differs from the one in the history.
        DataError: a record belongs to another audience, or is not a private record.
    """
    source, last = f"outbox:{audience}", None
    position = await offload(index.position, source)
    await _refuse_other(store, audience, position, await offload(index.last, source))
    while True:
        rows = await _after(store, audience, max(0, position - 1))  # the last record again, to detect another store
        if last is not None and rows[:1] != [last]:
            msg = f"--store: the outbox of {audience} in {store} must only grow, but it was replaced"
            raise UsageError(msg)
        if rows and rows[-1] != last:
            position, _ = last = rows[-1]
            await index.add(own(audience, source, [value for _, value in rows]), {source: position})
        if len(rows) < BATCH:
            await asyncio.sleep(POLL_SECONDS)


async def _refuse_other(store: Path, audience: str, position: int, last: str | None) -> None:
    """Raise UsageError unless the record that was read last still has its number in the outbox."""
    if last is not None and await offload(release_at, store, audience, position) != last:
        msg = (
            f"--index: must belong to {store}, whose outbox of {audience} no longer contains the record that was read "
            f"last at {position}: the store was recreated, or is another one; delete the index and start again"
        )
        raise UsageError(msg)


PLAYED_EVERY = 0.2
"""Seconds between two checks of a playback."""


def played(store: Path, audiences: Iterable[str], speed: float) -> Playback:
    """Return a playback of some audiences' outboxes; UsageError if they are empty."""
    stored = [(name, [value for _, value in read_outbox(store, name, 0)]) for name in audiences]
    records = [(arrival_time(value), value) for name, values in stored for value in own(name, f"outbox:{name}", values)]
    if not records:
        msg = f"--play: must have records to play, but {store} has no releases for these audiences yet"
        raise UsageError(msg)
    return Playback(sorted(records, key=lambda record: record[0]), speed)


async def follow_play(playing: Playback, index: Indexer) -> None:
    """Add the records that a playback has reached."""
    while True:
        while due := playing.due(BATCH):
            await index.add(due, {})
        await asyncio.sleep(PLAYED_EVERY)


async def _after(store: Path, outbox: str, position: int) -> list[tuple[int, bytes]]:
    return await offload(lambda: read_outbox(store, outbox, position, most=BATCH))


async def follow_records(store: Path, outbox: str, on_records: Callable[[Iterable[bytes]], None]) -> None:
    """Keep a view of an outbox up to date."""
    position = 0
    while True:
        rows = await _after(store, outbox, position)
        if rows:
            position = rows[-1][0]
            on_records([value for _, value in rows])
        if len(rows) < BATCH:
            await asyncio.sleep(POLL_SECONDS)
