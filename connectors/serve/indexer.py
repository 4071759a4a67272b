"""Where released records come from: outboxes of a store, or topics. Each source is read on from where it was left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import anyio.to_thread
import orjson

from connectors.embedded.readings import ACCOUNT_BOX, OPERATOR_BOX, has_outbox, last_given, read_outbox
from connectors.serve.playback import Playback, came_at
from connectors.serve.service import Service
from stream.errors import DataError, UsageError
from stream.schemas import parse_record

POLL_SECONDS = 0.5
BATCH = 2000
"""Records taken in at once."""


class Intake:
    """Takes records into the history, and lets streams go on."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def position(self, source: str) -> int:
        """Return how far a source has been read; 0 at first."""
        return self._service.history.position(source) or 0

    async def take(self, records: Sequence[bytes], positions: Mapping[str, int]) -> None:
        """Keep records, each once.

        Raises:
            FinalityError: one is known with other bytes.
            DataError: one of them is no private record; where it was read is named.
        """
        service = self._service
        async with service.turn:
            try:
                new = await anyio.to_thread.run_sync(service.history.add, records, positions)
            except DataError as error:
                raise DataError(f"{', '.join(positions) or 'play'}: {error}") from None
            service.laboratory = service.laboratory or any(of_laboratory(value) for value in records[-1:])
            service.forget()
            for audience, given in by_audience(new).items():
                service.streams.publish(audience, given)


def of_laboratory(record: bytes) -> bool:
    """Return whether a record says that it was made with a laboratory key."""
    return parse_record(record).get("laboratory") is True


def own(audience: str, source: str, records: Sequence[bytes]) -> Sequence[bytes]:
    """Return an audience's records as they are; DataError where one of them is another's, wherever it came from."""
    try:
        others = any(type(value) is not bytes or parse_record(value).get("audience") != audience for value in records)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    if others:
        raise DataError(f"{source}: must hold records of audience {audience} alone")
    return records


def by_audience(records: Iterable[bytes]) -> dict[str, list[tuple[str, bytes]]]:
    """Return records with their ids by audience, in the order in which they came."""
    found: dict[str, list[tuple[str, bytes]]] = {}
    for value in records:
        body = orjson.loads(value)
        found.setdefault(body["audience"], []).append((body["release_id"], value))
    return found


def refuse_absent(store: Path, boxes: Iterable[str]) -> None:
    """Refuse a store that has no outbox for who is to be served.

    Raises:
        UsageError: there is no store, or no such outbox in it.
    """
    for box in boxes:
        if not has_outbox(store, box):
            what = {ACCOUNT_BOX: "--account or --operator", OPERATOR_BOX: "--operator"}.get(box, f"--audience {box}")
            msg = f"{what}: must have an outbox in {store}, which the next 'tacet run' on it makes"
            raise UsageError(msg)


async def follow_outbox(store: Path, audience: str, intake: Intake) -> None:
    """Take in what an audience's outbox holds and what comes; ends by an error only.

    Raises:
        UsageError: the history was made from another store, or the outbox has become another one.
        FinalityError: a record differs from what the history has of it.
        DataError: a record is another audience's, or none.
    """
    source, last = f"outbox:{audience}", None
    position = await anyio.to_thread.run_sync(intake.position, source)
    await _refuse_shorter(store, audience, position)
    while True:
        rows = await _after(store, audience, max(0, position - 1))  # the last one again: in another store it is another
        if last is not None and rows[:1] != [last]:
            msg = f"--store: the outbox of {audience} must only grow, but the one in {store} has become another"
            raise UsageError(msg)
        if rows and rows[-1] != last:
            position, _ = last = rows[-1]
            await intake.take(own(audience, source, [value for _, value in rows]), {source: position})
        if len(rows) < BATCH:
            await asyncio.sleep(POLL_SECONDS)


async def _refuse_shorter(store: Path, audience: str, position: int) -> None:
    if position > await anyio.to_thread.run_sync(last_given, store, audience):
        msg = (
            f"--index: must have been made from {store}, but has read further of {audience}; delete it and start again"
        )
        raise UsageError(msg)


PLAYED_EVERY = 0.2
"""Seconds between two looks at what has come in a play."""


def played(store: Path, audiences: Iterable[str], speed: float) -> Playback:
    """Return what the outboxes of some audiences hold, to be played; UsageError where that is nothing."""
    held = [(name, [value for _, value in read_outbox(store, name, 0)]) for name in audiences]
    records = [(came_at(value), value) for name, values in held for value in own(name, f"outbox:{name}", values)]
    if not records:
        msg = f"--play: must have something to play, {store} has given its audiences nothing yet"
        raise UsageError(msg)
    return Playback(sorted(records, key=lambda record: record[0]), speed)


async def follow_play(playing: Playback, intake: Intake) -> None:
    """Take in what a play has reached."""
    while True:
        due = playing.due()
        for first in range(0, len(due), BATCH):
            await intake.take(due[first : first + BATCH], {})
        await asyncio.sleep(PLAYED_EVERY)


async def _after(store: Path, box: str, seen: int) -> list[tuple[int, bytes]]:
    return await anyio.to_thread.run_sync(lambda: read_outbox(store, box, seen, most=BATCH))


async def follow_book(store: Path, box: str, take: Callable[[Iterable[bytes]], None]) -> None:
    """Keep a book up with its outbox."""
    seen = 0
    while True:
        rows = await _after(store, box, seen)
        if rows:
            seen = rows[-1][0]
            take([value for _, value in rows])
        if len(rows) < BATCH:
            await asyncio.sleep(POLL_SECONDS)
