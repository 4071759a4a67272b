"""Event streams without a server: what wakes them, what ends them, and what a reader beyond the limit is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from connectors.http.responses import RefusalError
from connectors.serve.access import Access, Principal, TokenFile, audience_role
from connectors.serve.event_streams import EventStream, Streams
from connectors.serve.history.release_history import START, ReleaseHistory
from connectors.serve.reader_limits import STREAMS
from stream.records import DAY
from stream.schemas import parse_record
from tests.support.patience import within_patience
from tests.unit.serve.released_history import CLOCKS, MONDAY, TICK, window

ROLES = frozenset([audience_role("public")])
RECORDS = [window(MONDAY + n * TICK, {"2011": n}) for n in range(1, 4)]


class Ground:
    """Streams of some readers, each with a token of their own."""

    def __init__(self, folder: Path) -> None:
        self.tokens = TokenFile(folder / "tokens")
        self.access = Access(ROLES, clock=lambda: MONDAY, tokens=self.tokens)
        self.history = ReleaseHistory(None, CLOCKS)
        self.streams = Streams(self.access, self.history)

    def open(self, name: str, after: str = START) -> Events:
        who = self.access.by_token(self.tokens.add(name, ROLES, MONDAY + DAY))
        assert who is not None
        return Events(self.streams.open(who, "public", after))

    def publish(self, *records: bytes) -> None:
        self.history.add(records, {})
        self.streams.publish("public", [(parse_record(record)["release_id"], record) for record in records])


class Events:
    """What a stream sends."""

    def __init__(self, stream: EventStream) -> None:
        self._events = stream.body_iterator

    async def next(self) -> tuple[str, bytes]:
        """Return name and data of the next event."""
        text = cast(bytes, await within_patience(anext(aiter(self._events)), "the next event"))
        parts = dict(line.split(b": ", 1) for line in text.splitlines() if line)
        return parts[b"event"].decode(), parts[b"data"]

    async def waits(self) -> asyncio.Task[tuple[str, bytes]]:
        """Return the next event to come, when the stream waits for it."""
        task = asyncio.create_task(self.next())
        await turns()
        return task


async def turns() -> None:
    """Let all that can go on without a thread do so."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


async def begun(ground: Ground, name: str) -> Events:
    events = ground.open(name)
    assert (await events.next())[0] == "ready"
    return events


async def test_a_release_wakes_every_stream_of_its_audience(ground: Ground) -> None:
    ground.publish(RECORDS[0])
    streams = [await begun(ground, name) for name in ("ann", "bob")]
    for events in streams:
        assert await events.next() == ("release", RECORDS[0])
    waiting = [await events.waits() for events in streams]
    ground.publish(*RECORDS[1:])
    await turns()
    assert all(each.done() for each in waiting)
    assert [await each for each in waiting] == [("release", RECORDS[1])] * 2
    assert [await events.next() for events in streams] == [("release", RECORDS[2])] * 2


async def test_a_reader_that_keeps_up_is_given_releases_from_memory(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def since(audience: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        asked.append(after)
        return []

    monkeypatch.setattr(ground.history, "since", since)
    ground.publish(*RECORDS)
    events = ground.open("ann", parse_record(RECORDS[0])["release_id"])
    given = [await events.next() for _ in range(3)]
    assert given == [("ready", b"{}"), ("release", RECORDS[1]), ("release", RECORDS[2])]
    assert asked == []


async def test_a_stream_ends_when_its_token_is_revoked_and_others_go_on(ground: Ground) -> None:
    ground.publish(RECORDS[0])
    ann, bob = [await begun(ground, name) for name in ("ann", "bob")]
    for events in (ann, bob):
        await events.next()
    ended, waiting = await ann.waits(), await bob.waits()
    ground.streams.sweep()
    await turns()
    assert not ended.done()
    ground.tokens.revoke("ann")
    ground.streams.sweep()
    await turns()
    assert ended.done()
    assert await ended == ("end", b'{"why":"revoked"}')
    ground.publish(RECORDS[1])
    assert await waiting == ("release", RECORDS[1])


async def test_streams_end_when_the_service_stops(ground: Ground) -> None:
    ground.publish(RECORDS[0])
    events = await begun(ground, "ann")
    await events.next()
    ended = await events.waits()
    ground.streams.stop("shutdown")
    await turns()
    assert ended.done()
    assert await ended == ("end", b'{"why":"shutdown"}')
    with pytest.raises(RefusalError) as refused:
        ground.open("bob")
    assert (refused.value.status, refused.value.retry) == (503, 5)


async def test_streams_end_when_the_history_begins_anew_and_may_be_opened_again(ground: Ground) -> None:
    ground.publish(RECORDS[0])
    events = await begun(ground, "ann")
    await events.next()
    ended = await events.waits()
    ground.history = ReleaseHistory(None, CLOCKS)
    ground.streams.restart(ground.history)
    await turns()
    assert ended.done()
    assert await ended == ("end", b'{"why":"rewound"}')
    assert len(ground.streams) == 0
    ground.publish(RECORDS[1])
    again = await begun(ground, "bob")
    assert await again.next() == ("release", RECORDS[1])


def test_who_has_all_their_streams_is_told_when_to_come_again(ground: Ground) -> None:
    who = Principal("ann", ROLES)
    for _ in range(STREAMS.each):
        ground.streams.open(who, "public", START)
    with pytest.raises(RefusalError) as refused:
        ground.streams.open(who, "public", START)
    assert (refused.value.status, refused.value.retry) == (429, 5)
