"""A followed log counts as read when its content is durable, and is read again otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import ClassVar

import pytest

from connectors.sources.ingest import followed_logs
from connectors.sources.ingest.followed_logs import FollowedLine, FollowedListener, Piece
from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.queue import QUEUE_FULL, STOPPING, Counters, IngestQueue
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.ingest.sighting import Kind, Sighting
from stream.errors import DataError
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import MINUTE, SECOND, Micros
from tests.support.patience import until, within_patience
from tests.support.receivers import Hands, Log, SlowLog

RADIO, SOURCE = bytes.fromhex("020000000001"), "10.2.0.5"
NEAR, FAR = b"near", b"far"


class Written:
    """A log in memory, of two parts."""

    name = "written"

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.kept: list[dict[Hashable, int]] = []
        self.refusing = self.away = False
        self.failure: Exception | None = None

    def write(self, content: bytes, part: int = 0, at: Micros | None = None) -> None:
        end = 1 + sum(piece.part == part for piece in self.pieces)
        self.pieces.append(Piece(part, end, content, at))
        self._left.append(self.pieces[-1])

    async def open(self) -> None:
        self._left: list[Piece] = []

    async def read(self, most: int) -> tuple[Sequence[Piece], bool]:
        await asyncio.sleep(0.001)
        if self.failure is not None:
            raise self.failure
        found, self._left = self._left[:most], self._left[most:]
        return found, not self.away and not self._left

    async def store_positions(self, positions: Mapping[Hashable, int]) -> bool:
        if not self.refusing:
            self.kept.append(dict(positions))
        return not self.refusing

    async def close(self) -> None:
        pass

    def reached(self) -> dict[Hashable, int]:
        return {part: end for kept in self.kept for part, end in kept.items()}


class Entrance(FollowedListener):
    """Each message is the number of a device."""

    reasons: ClassVar[tuple[str, ...]] = ("nobody",)
    harmless: ClassVar[frozenset[str]] = frozenset()

    def decode(self, now: Micros, content: bytes | None) -> FollowedLine | str:
        if content is None or not content.isdigit():
            return "nobody"
        return FollowedLine(SOURCE, SOURCE, Sighting(Kind.ASSOCIATE, int(content).to_bytes(6, "big"), RADIO))


@asynccontextmanager
async def receiving(
    log: Written, sink: Log, *, room: int = 1000, most: int = 1000, hands: Hands | None = None
) -> AsyncIterator[Receiver]:
    limits = SiteLimits((SOURCE,), 10 * MINUTE, most, Pseudonyms.daily(bytes(32)), 30 * SECOND)
    ingest = Ingest(access_points={RADIO.hex(":"): ("dbh", "lobby")}, sites={"dbh": limits})
    async with Receiver([Entrance(log)], ingest=ingest, sink=sink, clock=hands or Hands(), capacity=room) as receiver:
        yield receiver


def test_a_piece_is_shown_without_its_content() -> None:
    assert repr(Piece("traps", 7, b"canary")) == "Piece(traps, 7)"


async def test_the_position_moves_only_past_durable_pieces() -> None:
    log, sink = Written(), Log()
    async with receiving(log, sink) as receiver:
        log.write(b"x")
        await until(lambda: log.reached() == {0: 1})
        sink.gate.clear()
        log.write(b"7")
        log.write(b"x")
        await until(lambda: receiver.counters.accepted == 1)
        await asyncio.sleep(0.05)
        early = log.reached()
        sink.gate.set()
        assert early == {0: 1}, "what could be dropped at once lies behind what is not durable"
        await until(lambda: log.reached() == {0: 3})
    assert len(sink.rows) == 1
    assert receiver.counters.check()


async def test_parts_do_not_wait_for_each_other() -> None:
    log, sink = Written(), Log()
    async with receiving(log, sink):
        sink.gate.clear()
        log.write(b"7", part=0)
        log.write(b"x", part=1)
        await until(lambda: log.reached() == {1: 1})
        sink.gate.set()


async def test_a_clean_end_keeps_all_that_it_made_durable() -> None:
    log, sink = Written(), Log()
    async with receiving(log, sink) as receiver:
        for number in range(50):
            log.write(str(number).encode())
        await until(lambda: receiver.counters.datagrams == 50)
    assert (len(sink.rows), log.reached()) == (50, {0: 50})


async def test_a_place_that_could_not_be_kept_is_kept_later() -> None:
    log, sink = Written(), Log()
    async with receiving(log, sink):
        log.refusing = True
        log.write(b"x")
        await asyncio.sleep(0.05)
        log.refusing = False
        await until(lambda: log.reached() == {0: 1})


async def test_the_log_waits_where_there_is_no_room() -> None:
    log, sink = Written(), Log()
    async with receiving(log, sink, room=10) as receiver:
        for number in range(200):
            log.write(str(number).encode())
        await until(lambda: receiver.counters.accepted == 200)
        assert receiver.counters.dropped[QUEUE_FULL] == 0
    assert len(sink.rows) == 200


async def test_what_there_was_no_time_for_at_the_end_is_read_again() -> None:
    log, hands = Written(), Hands()
    sink = SlowLog(hands)
    async with receiving(log, sink, room=5000, most=9000, hands=hands) as receiver:
        sink.gate.clear()
        for number in range(5000):
            log.write(str(number).encode())
        await until(lambda: receiver.counters.datagrams == 5000)
        sink.gate.set()
    assert receiver.counters.dropped[STOPPING] > 1000
    assert log.reached() == {0: len(sink.rows)} == {0: 5000 - receiver.counters.dropped[STOPPING]}


async def test_of_a_shut_site_nothing_more_counts_as_read() -> None:
    log, sink = Written(), Log()
    async with receiving(log, sink, most=2) as receiver:
        for number in range(5):
            log.write(str(number).encode())
        await until(lambda: receiver.counters.dropped["site_shut"] > 0)
        log.write(b"x")
        await until(lambda: receiver.counters.datagrams == 6)
    assert log.reached().get(0, 0) <= 3, "what the shut site did not take is read again"


@pytest.mark.parametrize(("ago", "back"), [(0, 0), (20, 20), (31, None), (-10, 0)])
async def test_a_sighting_is_dated_back_to_when_the_log_says(ago: int, back: int | None) -> None:
    log, sink = Written(), Log()
    async with receiving(log, sink) as receiver:
        now = receiver.clock.now()
        log.write(b"7", at=now - ago * SECOND)
        await until(lambda: receiver.counters.accepted + receiver.counters.dropped["wrong_time"] == 1)
    times = [row.time for row in sink.rows]
    assert len(times) == (back is not None)
    assert all(abs(time - (now - (back or 0) * SECOND)) < 2 * SECOND for time in times)


def accepted(counters: Counters, number: int) -> bool:
    return counters.accepted == number


async def test_what_is_read_twice_says_the_same_twice() -> None:
    """After a crash before its place was kept: the rows are those of the first time, to the microsecond."""
    rows = []
    at = Hands().now() - 5 * SECOND
    for _ in range(2):
        log, sink = Written(), Log()
        async with receiving(log, sink) as receiver:
            log.write(b"7", at=at)
            counters = receiver.counters
            await until(partial(accepted, counters, 1))
        rows.append(sink.rows)
    assert rows[0] == rows[1] != []


async def test_an_hours_backlog_counts_nobody() -> None:
    log, sink = Written(), Log()
    async with receiving(log, sink) as receiver:
        for number in range(20):
            log.write(str(number).encode(), at=receiver.clock.now() - 3600 * SECOND)
        await until(lambda: receiver.counters.dropped["wrong_time"] == 20)
        await until(lambda: log.reached() == {0: 20})
    assert sink.rows == []


async def test_while_it_has_not_all_been_read_lately_nothing_is_vouched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    log, sink = Written(), Log()
    monkeypatch.setattr(followed_logs, "BEHIND", 0.05)
    async with receiving(log, sink) as receiver:
        (entrance,) = receiver.listeners
        await until(lambda: entrance.can_receive)
        log.away = True
        await until(lambda: not entrance.can_receive)
        log.away = False
        await until(lambda: entrance.can_receive)


async def test_a_log_that_cannot_be_read_on_ends_the_receiver() -> None:
    log, sink = Written(), Log()
    with pytest.raises(DataError, match="gone"):
        await read_on(log, sink)


async def read_on(log: Written, sink: Log) -> None:
    async with receiving(log, sink) as receiver:
        log.failure = DataError("gone")
        await receiver.wait()


@pytest.mark.parametrize("failure", [None, DataError("topic traps: cannot be read any more")])
async def test_a_log_that_loses_a_cancellation_ends_with_its_listener(failure: Exception | None) -> None:
    """A client of Kafka may end a cancelled request with a result or with another error."""

    class LosesCancellation(Written):
        reads = 0
        lost = 0

        async def read(self, most: int) -> tuple[Sequence[Piece], bool]:
            self.reads += 1
            try:
                return await super().read(most)
            except asyncio.CancelledError:
                self.lost += 1
                if self.lost > 1:  # so that a listener that goes on ends with the test
                    raise
                if failure is not None:
                    raise failure from None
                return [], False

    log = LosesCancellation()
    listener = Entrance(log)
    queue = IngestQueue(Hands(), ())
    await listener.open(queue)
    await until(lambda: log.reads > 0)
    await within_patience(listener.close(), "the end of the listener")
    assert queue.failure is None
