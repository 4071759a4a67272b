"""The socket between 'tacet hooks' and an ingest: durable before answered, bounded in time, one sender."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.sources.ingest.ingest import CLOCKS_APART, GRID, WRONG_TIME
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.ingest.source_filter import UNKNOWN_SOURCE, AllowList
from connectors.sources.ingest_socket import client, listener
from connectors.sources.ingest_socket.client import IngestClient
from connectors.sources.ingest_socket.frames import (
    MOST_ROWS,
    Batch,
    FrameError,
    TimedSighting,
    batches,
    decode,
    decode_answer,
    encode_answer,
    encode_batch,
    encode_can_receive,
)
from connectors.sources.ingest_socket.listener import MALFORMED, SPAN
from stream.errors import UsageError
from stream.records import SECOND, Micros
from tests.support.patience import PATIENCE, until
from tests.support.receivers import Hands, Log
from tests.unit.hooks.cloud_requests import MIST, RADIO, house, ingesting, now

DEVICE, HERE = bytes.fromhex("3c0000000001"), bytes.fromhex("020000000001")


def row(at: Micros | None = None, device: bytes = DEVICE, kind: Kind = Kind.RUN, session: bytes = b"") -> TimedSighting:
    return TimedSighting(Sighting(kind, device, HERE, b"lobby", session=session), now() if at is None else at)


class Sender:
    """The other end of the socket, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, *rows: TimedSighting, source: str = MIST, number: int = 1) -> tuple[int, bool]:
        self.writer.write(encode_batch(Batch(number, source, rows)))
        return decode_answer(await self.reader.readline())


@asynccontextmanager
async def sending(path: Path) -> AsyncIterator[Sender]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        yield Sender(reader, writer)
    finally:
        writer.close()


async def test_rows_are_durable_before_they_are_acknowledged(tmp_path: Path) -> None:
    sink = Log()
    async with ingesting(tmp_path / "hooks", sink) as receiver, sending(tmp_path / "hooks") as sender:
        sink.gate.clear()
        query = asyncio.create_task(sender.ask(row()))
        await until(lambda: receiver.counters.accepted == 1)
        await asyncio.sleep(0.3)
        early = query.done()
        sink.gate.set()
        assert not early
        assert await query == (1, True)
        assert [kept.access_point for kept in sink.rows] == [RADIO]


def test_a_socket_has_its_path_for_an_address(tmp_path: Path) -> None:
    assert listener.SocketListener(tmp_path / "hooks", ()).address == (str(tmp_path / "hooks"), 0)


async def test_an_ingest_that_ends_without_having_stored_keeps_nothing(tmp_path: Path) -> None:
    class Broken(Log):
        async def append(self, message: Any) -> None:
            del message
            raise OSError("disk")

    sink = Broken()
    receiving = ingesting(tmp_path / "hooks", sink)
    receiver = await receiving.__aenter__()
    async with sending(tmp_path / "hooks") as sender:
        sender.writer.write(encode_batch(Batch(1, MIST, (row(),))))
        with pytest.raises(OSError, match="disk"):
            await receiver.wait()
        with pytest.raises(OSError, match="disk"):
            await receiving.__aexit__(None, None, None)
        assert await sender.reader.read() == b""


@pytest.mark.parametrize(
    ("age", "dropped"),
    [
        (SPAN + SECOND, {WRONG_TIME: 1}), (SPAN - 9 * SECOND, {}), (-CLOCKS_APART + 9 * SECOND, {}),
        (-CLOCKS_APART - 9 * SECOND, {WRONG_TIME: 1}),
    ],
)  # fmt: skip
async def test_times_are_limited_whatever_the_sender_reports(
    age: Micros, dropped: dict[str, int], tmp_path: Path
) -> None:
    sink = Log()
    async with ingesting(tmp_path / "hooks", sink) as receiver, sending(tmp_path / "hooks") as sender:
        before = now()
        assert await sender.ask(row(before - age)) == (1, True)
        assert {reason: n for reason, n in receiver.counters.dropped.items() if n} == dropped
        assert receiver.counters.check()
    assert all(before - CLOCKS_APART <= kept.time <= now() for kept in sink.rows)


async def test_an_old_row_expires_no_other_device(tmp_path: Path) -> None:
    """What the connector remembers of others follows from its clock, not from a row's time."""
    sink, clock = Log(), Hands()
    async with ingesting(tmp_path / "hooks", sink, clock) as receiver, sending(tmp_path / "hooks") as sender:
        await sender.ask(row())
        for number, age in enumerate((SPAN - SECOND, -CLOCKS_APART + SECOND), 2):
            await sender.ask(row(now() - age, bytes.fromhex("3c0000000002")), number=number)
        assert {key.address for key in receiver.state.devices["dbh"]} == {DEVICE, bytes.fromhex("3c0000000002")}


async def test_a_leave_ends_the_stay_of_its_own_session_alone(tmp_path: Path) -> None:
    sink = Log()
    async with ingesting(tmp_path / "hooks", sink) as receiver, sending(tmp_path / "hooks") as sender:
        await sender.ask(row(kind=Kind.ASSOCIATE, session=b"one"))
        await sender.ask(row(kind=Kind.LEAVE, session=b"two"))
        assert len(receiver.state.devices["dbh"]) == 1
        await sender.ask(row(kind=Kind.LEAVE, session=b"one"))
        assert not receiver.state.devices["dbh"]


async def test_rows_of_an_unknown_source_are_counted_and_dropped(tmp_path: Path) -> None:
    sink = Log()
    async with ingesting(tmp_path / "hooks", sink) as receiver, sending(tmp_path / "hooks") as sender:
        assert await sender.ask(row(), source="cloud:other") == (1, True)
        assert receiver.counters.dropped[UNKNOWN_SOURCE] == 1
    assert not sink.rows


async def test_where_there_is_no_room_the_sender_keeps_what_it_has(tmp_path: Path) -> None:
    sink = Log()
    rows = [row(device=bytes((2, 0, 0, 0, 1, number))) for number in range(8)]
    async with ingesting(tmp_path / "hooks", sink, capacity=4) as receiver, sending(tmp_path / "hooks") as sender:
        assert await sender.ask(*rows) == (1, False)
        assert receiver.counters.dropped["queue_full"] == 4
        assert receiver.counters.check()


async def test_there_is_one_sender_at_a_time(tmp_path: Path) -> None:
    async with ingesting(tmp_path / "hooks", Log()), sending(tmp_path / "hooks") as first:
        assert await first.ask() == (1, True)
        async with sending(tmp_path / "hooks") as second:
            assert await second.reader.read() == b""
        assert await first.ask(row()) == (1, True)


GOOD: dict[str, Any] = {"id": 1, "source": MIST, "rows": [["run", "3c0000000001", "020000000001", "", 5, ""]]}


def with_row(place: int, value: object) -> dict[str, Any]:
    changed = list(GOOD["rows"][0])
    changed[place] = value
    return GOOD | {"rows": [changed]}


@pytest.mark.parametrize(
    "document",
    [
        [], {}, {"hearing": 1}, GOOD | {"id": -1}, GOOD | {"id": True}, GOOD | {"more": 1}, GOOD | {"source": "a b"},
        GOOD | {"rows": [[]]}, GOOD | {"rows": GOOD["rows"] * (MOST_ROWS + 1)}, with_row(0, "restart"),
        with_row(0, ["run"]), with_row(1, "3c00"), with_row(1, "3C0000000001"), with_row(2, "02"), with_row(2, ""),
        with_row(3, "n" * 257), with_row(4, -1), with_row(4, 1.5), with_row(5, "0" * 66),
    ],
)  # fmt: skip
def test_a_line_that_is_not_whole_and_well_formed_is_refused(document: object) -> None:
    assert isinstance(decode(orjson.dumps(GOOD)), Batch)
    with pytest.raises(FrameError):
        decode(orjson.dumps(document))


async def test_a_sender_of_invalid_lines_is_disconnected_and_counted(tmp_path: Path) -> None:
    async with ingesting(tmp_path / "hooks", Log()) as receiver:
        for nonsense in (b"{}\n", b"x" * (1 << 21)):
            async with sending(tmp_path / "hooks") as sender:
                sender.writer.write(nonsense)
                with suppress(ConnectionResetError):
                    assert await sender.reader.read() == b""
        assert receiver.counters.dropped[MALFORMED] == 2
        assert receiver.counters.check()


def test_rows_are_divided_among_lines() -> None:
    parts = batches(MIST, [row()] * (2 * MOST_ROWS + 1), 7)
    assert [(part.number, len(part.rows)) for part in parts] == [(7, MOST_ROWS), (8, MOST_ROWS), (9, 1)]
    assert decode(encode_batch(parts[2])) == parts[2]


async def test_the_socket_is_for_its_owner_and_group_and_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "hooks"
    async with ingesting(path, Log()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with pytest.raises(UsageError, match="another process listens"):
            async with ingesting(path, Log()):
                pass
    assert not path.exists()


async def test_the_socket_of_a_killed_ingest_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "hooks"
    (await asyncio.start_unix_server(lambda *_: None, str(path))).close()
    if not path.exists():  # from Python 3.13 on a server takes its socket with it
        pytest.skip("nothing is left behind")
    async with ingesting(path, Log()), sending(path) as sender:
        assert await sender.ask(row()) == (1, True)


@pytest.mark.parametrize("path", ["nowhere/hooks", "x" * 200])
async def test_a_socket_that_cannot_be_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--hooks: must be a socket"):
        async with ingesting(tmp_path / path, Log()):
            pass


async def test_a_listener_can_receive_while_a_sender_is_connected_that_can(tmp_path: Path) -> None:
    async with ingesting(tmp_path / "hooks", Log()) as receiver:
        (entrance,) = receiver.listeners
        assert not entrance.can_receive
        async with sending(tmp_path / "hooks") as sender:
            await sender.ask()
            assert not entrance.can_receive
            for can_receive in (True, False, True):
                sender.writer.write(encode_can_receive(can_receive=can_receive))
                await sender.ask()
                assert entrance.can_receive is can_receive
        await until(lambda: not entrance.can_receive)


def test_while_nothing_can_be_received_no_coverage_is_confirmed() -> None:
    """The grid alone asks: what a heartbeat says must not depend on when somebody was seen."""
    ingest, start = house(), 1_000_000 * GRID
    state = ingest.initial(start)
    vouched = []
    for step, can_receive in enumerate((True, True, False, True, True, True), 1):
        at = start + step * GRID
        ingest.record_running(state, at, can_receive=can_receive)
        beat = ingest.poll(state, at + SECOND)[0]
        since = getattr(beat, "listened_since", None)
        vouched.append(since is not None and since < at - SECOND)
    assert vouched == [True, True, False, False, True, True]


async def test_a_link_finds_an_ingest_that_comes_later_and_one_that_comes_again(tmp_path: Path) -> None:
    sink, link = Log(), IngestClient(tmp_path / "hooks")
    running = asyncio.create_task(link.run())
    try:
        assert await link.hand_over(MIST, [row()]) is False
        for number in (1, 2):
            async with ingesting(tmp_path / "hooks", sink):
                await until(lambda: link.connected)
                assert await link.hand_over(MIST, [row(device=bytes((2, 0, 0, 0, 1, number)))]) is True
            await until(lambda: not link.connected)
        assert len(sink.rows) == 2
    finally:
        running.cancel()


async def test_a_client_reports_what_it_can_receive_and_numbers_batches_that_are_under_way(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            lines.append(orjson.loads(line))
            if len(numbers := [each["id"] for each in lines if "rows" in each]) == 2:
                writer.writelines(encode_answer(number, kept=True) for number in numbers)

    link = IngestClient(tmp_path / "hooks")
    async with await asyncio.start_unix_server(answer, tmp_path / "hooks"):
        running = asyncio.create_task(link.run())
        try:
            await until(lambda: len(lines) == 1)
            link.report_can_receive(can_receive=False)
            await until(lambda: len(lines) == 2)
            assert all(await asyncio.gather(link.hand_over(MIST, [row()]), link.hand_over(MIST, [row()])))
        finally:
            running.cancel()
            await asyncio.wait({running})
    assert lines[:2] == [{"hearing": True}, {"hearing": False}]


async def test_a_client_waits_for_no_answer_of_an_ingest_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_WITHIN", 10 * PATIENCE)
    asked = asyncio.Event()

    async def end_when_asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while b"rows" not in await reader.readline():
            pass
        asked.set()
        writer.close()

    link = IngestClient(tmp_path / "hooks")
    async with await asyncio.start_unix_server(end_when_asked, tmp_path / "hooks"):
        running = asyncio.create_task(link.run())
        try:
            await until(lambda: link.connected)
            assert await asyncio.wait_for(link.hand_over(MIST, [row()]), PATIENCE) is False
            assert asked.is_set()
        finally:
            running.cancel()


async def test_a_sender_that_reads_no_answers_is_not_read_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = 0

    def large(number: int, *, kept: bool) -> bytes:
        nonlocal given
        given += 1
        return orjson.dumps({"id": number, "kept": kept}) + b" " * (32 << 10) + b"\n"

    monkeypatch.setattr(listener, "encode_answer", large)
    query = 400
    async with ingesting(tmp_path / "hooks", Log()), sending(tmp_path / "hooks") as sender:
        sender.writer.write(b"".join(encode_batch(Batch(number, MIST, ())) for number in range(query)))
        await until(lambda: given > 0)
        for _ in range(2 * query):
            await asyncio.sleep(0)
        assert given < query // 4
        answers = [decode_answer(await sender.reader.readline()) for _ in range(query)]
        assert answers == [(number, True) for number in range(query)]


async def test_a_sender_that_reads_no_answers_for_too_long_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = b" " * (1 << 20) + b"\n"
    monkeypatch.setattr(listener, "encode_answer", lambda number, kept: answer)
    monkeypatch.setattr(listener, "ANSWERS_READ_WITHIN", 0.05, raising=False)
    async with ingesting(tmp_path / "hooks", Log()) as receiver, sending(tmp_path / "hooks") as sender:
        sender.writer.write(encode_can_receive(can_receive=True) + encode_batch(Batch(1, MIST, ())))
        await until(lambda: receiver.listeners[0].can_receive)
        await until(lambda: not receiver.listeners[0].can_receive)
    async with ingesting(tmp_path / "hooks", Log()) as receiver, sending(tmp_path / "hooks") as sender:
        sender.writer.write(encode_can_receive(can_receive=True))
        await until(lambda: receiver.listeners[0].can_receive)


def test_a_system_of_the_cloud_sends_nothing_by_itself() -> None:
    """It has no address, so no port but the socket streams_connected it."""
    allowed = AllowList(["cloud:mist", "10.2.0.5"])
    assert allowed.listed("10.2.0.5") == "10.2.0.5"
    assert allowed.listed("10.2.0.6") is None
    with pytest.raises(UsageError, match="at least one sender"):
        AllowList(["cloud:mist"])
