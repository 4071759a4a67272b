"""Lines that ``snmptrapd`` writes, read as the traps that they tell of; the lines here are such as it wrote."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from connectors.runtime.clock import AnchoredClock
from connectors.sources.ingest.followed_logs import FollowedLine, TailedFile
from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.queue import IngestQueue
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.ingest.sighting import Kind
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.ber import MALFORMED, MALFORMED_REASONS, MalformedTrap
from connectors.sources.snmp.collectors import SnmptrapdLogListener, SnmptrapdPipeListener
from connectors.sources.snmp.snmptrapd import NO_TRAP_LINE, notification, written_at
from connectors.sources.snmp.traps import NO_ACCESS_POINT, decode
from stream.errors import DataError
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import MINUTE, SECOND, Heartbeat, ObservationBatch
from tests.support.patience import until, within_patience
from tests.support.receivers import Hands

AIRESPACE, RADIO = ".1.3.6.1.4.1.14179.2.6", "02:00:00:00:00:01"
HEAD = "T|UDP: [127.0.0.1]:51513->[127.0.0.1]:11641|1795349901|0.0.0.0|.|0|0|"
WHO = f"{AIRESPACE}.2.34.0 = Hex-STRING: 3C 00 00 00 00 01 "
WHERE = f"{AIRESPACE}.2.35.0 = Hex-STRING: 02 00 00 00 00 01 "
V2 = HEAD + "\t".join((
    ".1.3.6.1.2.1.1.3.0 = Timeticks: (4138363) 11:29:43.63", f".1.3.6.1.6.3.1.1.4.1.0 = OID: {AIRESPACE}.3.53",
    WHO, WHERE,
    f"{AIRESPACE}.2.39.0 = Hex-STRING: 61 6E 6E 65 ", f"{AIRESPACE}.2.36.0 = INTEGER: 0",
    f"{AIRESPACE}.2.43.0 = IpAddress: 10.0.0.1", '.1.3.6.1.9.9.0 = ""', ".1.3.6.1.9.8.0 = Counter32: 5",
    ".1.3.6.1.9.6.0 = OID: .1.3.6", ".1.3.6.1.9.5.0 = NULL",
))  # fmt: skip
V1 = f"T|UDP: [10.2.0.5]:56668->[127.0.0.1]:11641|1795349901|10.1.2.3|{AIRESPACE}.3|6|.53|{WHO}\t{WHERE}"
START = "T|UDP: [10.2.0.5]:55921->[127.0.0.1]:11641|1795349902|10.1.2.3|.1.3.6.1.4.1.14179|0|0|"


def reason(line: str) -> str:
    with pytest.raises(MalformedTrap) as refused:
        notification(line.encode())
    return refused.value.reason


def test_a_line_is_the_trap_that_it_tells_of_in_both_versions() -> None:
    for line, host, uptime in ((V2, "127.0.0.1", 4138363), (V1, "10.2.0.5", None)):
        address, datagram = notification(line.encode())
        trap = decode(datagram)
        assert (address, trap.kind, trap.vendor, trap.uptime) == (host, Kind.ASSOCIATE, "cisco-aireos", uptime)
        assert (trap.client.hex(), trap.access_point.hex(":")) == ("3c0000000001", RADIO)
        assert b"anne" not in trap
    assert decode(notification(START.encode())[1]).kind is Kind.RESTART


def test_other_lines_are_skipped_and_broken_traps_refused() -> None:
    assert reason("NET-SNMP version 5.9.3") == NO_TRAP_LINE
    for broken in (
        "T|", V2.replace("Hex-STRING: 3C", "Hex-STRING: 3"), V2.replace("UDP: [127.0.0.1]", "UDP: 127.0.0.1"),
        V2.replace("UDP: [127.0.0.1]", "UDP: [127.0.0.300]"), V2.replace("(4138363)", "4138363"), V2 + "\tanything",
        V2.replace("INTEGER: 0", "INTEGER: up(0)"), V1.replace("|6|", "|7|"), V2.replace(".1.3.6.1.9.9.0", "iso.3"),
        V2.replace(".1.3.6.1.9.9.0", ".3.3.6.1.9.9.0"), V2.replace("3C 00", "3c 00"),
    ):  # fmt: skip
        assert broken != V2
        assert reason(broken) in MALFORMED_REASONS, broken


def test_the_time_of_a_line_is_that_of_its_trap() -> None:
    lines = (V2, V2.replace("1795349901", "soon"), "T|", f"N{V2[1:]}")
    assert [written_at(line.encode()) for line in lines] == [1_795_349_901 * SECOND, None, None, None]


def test_empty_values_and_separators_within_values_are_read() -> None:
    empty = decode(notification(V2.replace(WHERE, f'{AIRESPACE}.2.35.0 = ""').encode())[1])
    assert empty.reason == NO_ACCESS_POINT
    assert outcome(f"{V2}\t.1.3.6.1.9.4.0 = BITS: 80 a|b".encode()) == "read"


def test_text_that_is_not_in_hexadecimal_is_refused_because_it_could_hold_a_line() -> None:
    assert reason(V2.replace("Hex-STRING: 61 6E 6E 65 ", 'STRING: "anne"')) == "malformed"


def outcome(line: bytes) -> str:
    try:
        decode(notification(line)[1])
    except MalformedTrap as error:
        return error.reason
    return "read"


def test_thousands_of_broken_lines_are_refused_or_read() -> None:
    rng, became = random.Random(5), Counter[str]()
    for _ in range(5_000):
        line = bytearray(rng.choice((V1, V2, START)).encode())
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(2, len(line))
            match rng.randrange(3):
                case 0:
                    line[place] = rng.choice(b"0123456789ABCDEF|\t.=: \xff(")
                case 1:
                    del line[place : place + rng.randint(1, 5)]
                case _:
                    line[place:place] = rng.choice(line).to_bytes(1, "big") * rng.randint(1, 20)
        became[outcome(bytes(line))] += 1
    assert set(became) <= {"read", *MALFORMED_REASONS}
    assert 500 < became["read"] < 4_500


def test_a_line_of_the_log_is_as_old_as_its_trap() -> None:
    log = TailedFile(Path("traps.log"), Path("state"), 65_536, written_at)
    listener = SnmptrapdLogListener(log, AllowList(["127.0.0.1"]))
    listener.queue = IngestQueue(Hands(), listener.reasons)
    found = listener.decode(0, V2.encode())
    assert isinstance(found, FollowedLine)
    assert (found.source, found.at) == ("127.0.0.1", 1_795_349_901 * SECOND)
    assert [listener.decode(0, line) for line in (b"NET-SNMP", None)] == [NO_TRAP_LINE, MALFORMED]
    assert listener.address == (log.name, 0)


# ---- the pipe --------------------------------------------------------------------------------------------


class Log:
    def __init__(self) -> None:
        self.messages: list[Heartbeat | ObservationBatch] = []

    async def append(self, message: Heartbeat | ObservationBatch) -> None:
        self.messages.append(message)


@asynccontextmanager
async def receiving(path: Path, sink: Log) -> AsyncIterator[Receiver]:
    limits = SiteLimits(("127.0.0.1", "10.2.0.5"), 10 * MINUTE, 100, Pseudonyms.daily(bytes(32)))
    async with Receiver(
        [SnmptrapdPipeListener(path, AllowList(["127.0.0.1"]))],
        ingest=Ingest(access_points={RADIO: ("dbh", "2065")}, sites={"dbh": limits}), sink=sink,
        clock=AnchoredClock(lambda: time.time_ns() // 1000, lambda: time.monotonic_ns() // 1000),
    ) as receiver:  # fmt: skip
        yield receiver


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "traps"
    os.mkfifo(path)
    return path


async def test_lines_of_a_named_pipe_are_read_in_parts_and_after_its_writer_restarts(fifo: Path) -> None:
    sink, line = Log(), V2.encode() + b"\n"
    async with receiving(fifo, sink) as receiver:
        for text in (b"NET-SNMP version 5.9.3\n" + line[:50], line[50:] + V1.encode() + b"\n" + line[:9]):
            with fifo.open("wb", buffering=0) as writer:
                writer.write(text)
            await asyncio.sleep(0.05)
        with fifo.open("wb", buffering=0) as writer:
            await asyncio.to_thread(writer.write, b"\n" + b"x" * 65_537 + b"\n")  # more than a pipe holds
            await until(lambda: receiver.counters.datagrams == 5)
    assert receiver.counters.check()
    assert receiver.counters.accepted == 1
    assert {reason: n for reason, n in receiver.counters.dropped.items() if n} == {
        NO_TRAP_LINE: 1, "unknown_source": 1, "malformed": 2,
    }  # fmt: skip


async def test_a_clean_stop_takes_what_is_still_in_the_pipe(fifo: Path) -> None:
    sink = Log()
    async with receiving(fifo, sink) as receiver:
        with fifo.open("wb", buffering=0) as writer:
            writer.write(V2.encode() + b"\n")
    assert receiver.counters.accepted == 1


async def test_standard_input_that_ends_stops_the_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise heartbeats would go on and vouch for time in which nothing could be heard."""
    reader, writer = os.pipe()
    monkeypatch.setattr("connectors.sources.ingest.listeners.os.dup", lambda _: reader)
    with pytest.raises(DataError, match="its writer has ended"):  # noqa: PT012
        async with receiving(Path("-"), Log()) as receiver:
            os.write(writer, V2.encode() + b"\n")
            await until(lambda: receiver.counters.accepted == 1)
            os.close(writer)
            await within_patience(receiver.wait(), "the receiver to end")


async def test_a_path_that_is_no_pipe_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(V2)
    with pytest.raises(OSError, match=r"log: must be a pipe"):
        async with receiving(tmp_path / "log", Log()):
            pass
