"""The receiver on loopback: every datagram is accounted for, and no word is given before the append."""

import asyncio
import contextlib
import itertools
import random
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from connectors.runtime.clock import AnchoredClock, ClockStepError
from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.listeners import RECEIVE_BUFFER, Port
from connectors.sources.ingest.queue import QueuedSighting
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.ingest.sighting import Kind, Message, Sighting
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.communities import CommunityAuth
from connectors.sources.snmp.listener import TrapListener
from connectors.sources.snmp.sender import (
    Association,
    encode_associate,
    encode_keepalive,
    encode_notification,
    octets,
    send,
    varbind,
)
from stream.errors import UsageError
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import MINUTE, SECOND, Heartbeat, ObservationBatch
from tests.support import receivers
from tests.support.patience import PATIENCE, until, waiting_for, within_patience

RADIOS = [f"5c:52:1e:00:00:{n:02x}" for n in range(8)]
OCTETS = [bytes.fromhex(mac.replace(":", "")) for mac in RADIOS]
BASE: dict[str, Any] = {"community": b"c0mm", "uptime": 100}


class Log(receivers.Log):
    """A sink that may fail, too."""

    failure: Exception | None = None

    async def append(self, message: Message) -> None:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.messages.append(message)


SENDERS = CommunityAuth(AllowList(["127.0.0.1"]), [b"c0mm"])


def clock() -> AnchoredClock:
    return AnchoredClock(lambda: time.time_ns() // 1000, lambda: time.monotonic_ns() // 1000)


@asynccontextmanager
async def receiving(
    sink: Log, address: tuple[str, int] = ("127.0.0.1", 0), buffer: int = RECEIVE_BUFFER, **more: Any
) -> AsyncIterator[Receiver]:
    ingest = Ingest(
        access_points={mac: ("dbh", f"zone{n}") for n, mac in enumerate(RADIOS)},
        sites={"dbh": SiteLimits(("127.0.0.1",), 10 * MINUTE, 20_000, Pseudonyms.daily(bytes(32)))},
    )
    settings: dict[str, Any] = {
        "ingest": ingest,
        "sink": sink,
        "clock": clock(),
    }
    async with Receiver([TrapListener(address, SENDERS, buffer)], **(settings | more)) as receiver:
        yield receiver


def client(n: int) -> bytes:
    return bytes.fromhex("3c00") + n.to_bytes(4, "big")


async def post(receiver: Receiver, *datagrams: bytes, source: str = "127.0.0.1") -> int:
    return await send(((0, d) for d in datagrams), receiver.address, None, source=source)


@pytest.fixture
def controller() -> Iterator[socket.socket]:
    """A controller's socket, which hears answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        yield sock


def answers(sock: socket.socket) -> list[bytes]:
    heard = []
    try:
        while True:
            heard.append(sock.recv(65_535))
    except BlockingIOError:
        return heard


async def this_many_answers(sock: socket.socket, count: int) -> list[bytes]:
    heard: list[bytes] = []
    async with waiting_for(f"{count} answers"):
        while len(heard) < count:
            heard += answers(sock)
            await asyncio.sleep(0.005)
    return heard


async def test_every_datagram_is_accepted_once_or_dropped_for_one_reason() -> None:
    rng, sink = random.Random(7), Log()
    good = [encode_associate(Association(client(n), OCTETS[n % 8]), request_id=n, **BASE) for n in range(1, 401)]
    kinds = {
        "accepted": [*good, encode_keepalive(community=b"c0mm", uptime=1)],
        "truncated": [d[:-3] for d in good[:31]],
        "malformed": [d + b"\x00" for d in good[:17]],
        "bad_community": [
            encode_associate(Association(client(n), OCTETS[0]), community=b"wrong", uptime=1) for n in range(1, 24)
        ],
        "unknown_access_point": [
            encode_associate(Association(client(n), bytes(range(6))), **BASE) for n in range(1, 12)
        ],
        "no_client": [encode_associate(Association(bytes(6), OCTETS[0]), **BASE)] * 5,
        "no_access_point": [encode_associate(Association(client(1), bytes(6)), **BASE)] * 3,
        "unknown_trap": [encode_notification("1.3.6.1.4.1.99999.7", **BASE)] * 7,
        "not_an_observation": [encode_notification("1.3.6.1.4.1.14179.2.6.3.3", **BASE)] * 9,
        "unsupported_version": [good[0].replace(b"\x02\x01\x01\x04", b"\x02\x01\x03\x04", 1)] * 2,
    }
    sent = [d for datagrams in kinds.values() for d in datagrams]
    rng.shuffle(sent)
    async with receiving(sink) as receiver:
        await post(receiver, *sent)
        await post(receiver, *good[:13], source="127.0.0.2")
        await until(lambda: receiver.counters.datagrams == len(sent) + 13)
        assert receiver.counters.check()
    expected = {reason: len(datagrams) for reason, datagrams in kinds.items()} | {"unknown_source": 13}
    accepted = expected.pop("accepted")
    assert receiver.counters.accepted == accepted
    assert {r: n for r, n in receiver.counters.dropped.items() if n} == expected
    assert receiver.counters.check()
    assert len(sink.rows) == len(good)


async def test_a_repeated_sighting_is_collapsed_and_counted() -> None:
    sink = Log()
    async with receiving(sink) as receiver:
        await post(receiver, *[encode_associate(Association(client(1), OCTETS[0]), **BASE)] * 4)
        await until(lambda: receiver.counters.datagrams == 4)
    assert (receiver.counters.accepted, receiver.counters.dropped["collapsed"], len(sink.rows)) == (1, 3, 1)


async def test_a_clean_stop_loses_no_datagram_that_the_kernel_has_queued() -> None:
    sink = Log()
    async with receiving(sink) as receiver:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for n in range(1, 2_001):  # without giving the receiver a turn
            sock.sendto(encode_associate(Association(client(n), OCTETS[0]), **BASE), receiver.address)
        sock.close()
        assert receiver.counters.datagrams == 0
    assert receiver.counters.accepted == len(sink.rows) == 2_000
    assert receiver.counters.kernel_drops == 0


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
async def test_the_kernels_drops_are_counted_exactly(family: socket.AddressFamily, host: str) -> None:
    sink = Log()
    async with receiving(sink, address=(host, 0), buffer=20_000) as receiver:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            for n in range(1, 501):
                sock.sendto(encode_associate(Association(client(n), OCTETS[0]), **BASE), receiver.address)
            assert receiver.counters.kernel_drops > 0, "known before anything is read, and without another datagram"
    counters = receiver.counters
    assert counters.datagrams + counters.kernel_drops == 500
    assert counters.check()


async def test_where_the_kernel_lists_no_drops_there_are_none_until_a_datagram_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("connectors.sources.ingest.listeners._listed_drops", lambda _: None)
    async with receiving(Log()) as receiver:
        assert receiver.counters.kernel_drops == 0


async def test_a_port_that_has_been_stopped_reads_no_more() -> None:
    turns = []

    def read() -> int:
        turns.append(1)
        return 0

    port = Port(("127.0.0.1", 0), 20_000, read)
    port.open()
    port.stop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"late", port.address)
        for _ in range(3):
            await asyncio.sleep(0)
    port.close()
    assert turns == []


async def test_the_kernels_last_drops_are_counted_after_the_end() -> None:
    async with receiving(Log(), buffer=20_000) as receiver:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for n in range(1, 501):
                sock.sendto(encode_associate(Association(client(n), OCTETS[0]), **BASE), receiver.address)
    assert receiver.counters.kernel_drops > 0
    assert receiver.counters.datagrams + receiver.counters.kernel_drops == 500


async def test_a_stand_alone_access_point_is_known_by_its_address_also_at_a_socket_for_both_families() -> None:
    sink = Log()
    alone = Ingest(
        access_points={RADIOS[0]: ("dbh", "zone0")},
        sites={"dbh": SiteLimits(("127.0.0.1",), 10 * MINUTE, 100, Pseudonyms.daily(bytes(32)))},
        aliases={"127.0.0.1": RADIOS[0]},
    )
    joined = varbind("1.3.6.1.4.1.25053.2.1.2.15.0", octets(b"5c:52:e:12:34:56"))
    trap = encode_notification("1.3.6.1.4.1.25053.2.1.1.1", joined, **BASE)
    async with receiving(sink, address=("::", 0), ingest=alone) as receiver:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(trap, ("127.0.0.1", receiver.address[1]))
        await until(lambda: receiver.counters.datagrams == 1)
    assert receiver.counters.accepted == 1
    assert [row.access_point for row in sink.rows] == [RADIOS[0]]


async def test_a_port_in_use_is_reported_with_its_address() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        host, port = taken.getsockname()
        with pytest.raises(OSError, match=rf"cannot listen at {host}:{port} \(UDP\): Address already in use"):
            async with receiving(Log(), address=(host, port)):
                pass


async def test_the_community_is_compared_before_any_variable_is_read() -> None:
    broken = [encode_notification("1.3.6.1.4.1.99999.7", b"\x30\x80", community=c, uptime=1) for c in (b"no", b"c0mm")]
    async with receiving(Log()) as receiver:
        await post(receiver, *broken)
        await until(lambda: receiver.counters.datagrams == 2)
    assert {r: n for r, n in receiver.counters.dropped.items() if n} == {"bad_community": 1, "truncated": 1}


async def test_informs_that_wait_for_their_answers_hold_a_bounded_number_of_octets(
    monkeypatch: pytest.MonkeyPatch, controller: socket.socket
) -> None:
    """A sender that knows the community could otherwise have gigabytes held."""
    monkeypatch.setattr("connectors.sources.ingest.queue.ANSWER_OCTETS", 20_000)
    sink, stuffing = Log(), varbind("1.3.6.1.4.1.99999.1.0", octets(bytes(5_000)))
    informs = [stuffed_inform(n, stuffing) for n in range(1, 11)]
    async with receiving(sink) as receiver:
        sink.gate.clear()
        for inform in informs:
            controller.sendto(inform, receiver.address)
        await until(lambda: receiver.counters.datagrams == 10)
        dropped = receiver.counters.dropped["queue_full"]
        sink.gate.set()
        await until(lambda: receiver.counters.informs_answered == 4)
        controller.sendto(informs[-1], receiver.address)  # asked again, and there is room
        await until(lambda: receiver.counters.informs_answered == 5)
    assert dropped == 6, "more than 20,000 octets are held with the fourth"


def stuffed_inform(number: int, stuffing: bytes) -> bytes:
    base = "1.3.6.1.4.1.14179.2.6.2"
    where = varbind(f"{base}.34.0", octets(client(number))) + varbind(f"{base}.35.0", octets(OCTETS[0]))
    return encode_notification(
        "1.3.6.1.4.1.14179.2.6.3.53", where + stuffing, inform=True, request_id=number, **BASE
    )  # fmt: skip


async def test_a_buffer_smaller_than_requested_is_logged_with_the_setting_to_raise() -> None:
    with structlog.testing.capture_logs() as logs:
        async with receiving(Log(), buffer=2**30 - 1) as receiver:
            assert receiver.counters.receive_buffer < 2**30 - 1
    [entry] = [entry for entry in logs if entry["event"] == "receive_buffer_small"]
    assert entry["raise_with"] == "net.core.rmem_max"
    assert entry["log_level"] == "warning"


async def test_a_full_queue_drops_the_newest_and_leaves_informs_unanswered(controller: socket.socket) -> None:
    sink = Log()
    async with receiving(sink, capacity=10) as receiver:
        for n in range(1, 31):
            controller.sendto(
                encode_associate(Association(client(n), OCTETS[0]), inform=True, request_id=n, **BASE), receiver.address
            )
        await until(lambda: receiver.counters.datagrams == 30)
        dropped = receiver.counters.dropped["queue_full"]
        await until(lambda: receiver.counters.informs_answered == 10)
        assert receiver.counters.check()
        # The controller tries again, and is heard now.
        controller.sendto(
            encode_associate(Association(client(30), OCTETS[0]), inform=True, request_id=30, **BASE), receiver.address
        )
        await until(lambda: receiver.counters.informs_answered == 11)
    assert dropped == 20
    assert [row.device for row in sink.rows] == [
        Pseudonyms.daily(bytes(32)).name(client(n), sink.rows[0].time // (24 * 60 * MINUTE))
        for n in [*range(1, 11), 30]
    ]


async def test_an_inform_is_answered_only_after_its_batch_is_durable(controller: socket.socket) -> None:
    sink = Log()
    inform = encode_associate(Association(client(1), OCTETS[0]), inform=True, request_id=5, **BASE)
    async with receiving(sink) as receiver:
        sink.gate.clear()
        controller.sendto(inform, receiver.address)
        await until(lambda: receiver.counters.accepted == 1)
        await asyncio.sleep(0.6)
        controller.sendto(inform, receiver.address)
        await until(lambda: receiver.counters.dropped["duplicate_inform"] == 1)
        await asyncio.sleep(0.05)
        assert answers(controller) == []
        sink.gate.set()
        await until(lambda: receiver.counters.informs_answered == 1)
        assert len(sink.rows) == 1
        controller.sendto(inform, receiver.address)
        assert [b"\xa2" in answer for answer in await this_many_answers(controller, 2)] == [True, True]
    assert receiver.counters.dropped["duplicate_inform"] == 2
    assert len(sink.rows) == 1


async def test_an_inform_whose_append_fails_is_never_answered_and_the_failure_comes_out(
    controller: socket.socket,
) -> None:
    sink = Log()
    sink.failure = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):  # noqa: PT012
        async with receiving(sink) as receiver:
            controller.sendto(
                encode_associate(Association(client(1), OCTETS[0]), inform=True, **BASE), receiver.address
            )
            await within_patience(receiver.wait(), "the receiver to end")
    assert receiver.counters.informs_answered == 0
    assert answers(controller) == []


async def test_a_collapsed_inform_waits_for_the_sighting_that_it_repeats(controller: socket.socket) -> None:
    sink = Log()
    async with receiving(sink) as receiver:
        sink.gate.clear()
        for n in (1, 2):
            controller.sendto(
                encode_associate(Association(client(1), OCTETS[0]), inform=True, request_id=n, **BASE), receiver.address
            )
        await until(lambda: receiver.counters.dropped["collapsed"] == 1)
        await asyncio.sleep(0.4)
        assert answers(controller) == []
        sink.gate.set()
        await until(lambda: receiver.counters.informs_answered == 2)


async def test_informs_that_store_nothing_are_answered_so_that_they_are_not_sent_again(
    controller: socket.socket,
) -> None:
    async with receiving(Log()) as receiver:
        controller.sendto(encode_notification("1.3.6.1.4.1.14179.2.6.3.1", inform=True, **BASE), receiver.address)
        controller.sendto(
            encode_associate(Association(client(1), bytes(range(6))), inform=True, **BASE), receiver.address
        )
        await until(lambda: receiver.counters.informs_answered == 2)


async def test_a_site_with_too_many_devices_is_shut_with_an_alarm_and_its_informs_stay_unanswered(
    controller: socket.socket,
) -> None:
    sink = Log()
    small = Ingest(
        access_points={RADIOS[0]: ("dbh", "zone0")},
        sites={"dbh": SiteLimits(("127.0.0.1",), 10 * MINUTE, 2, Pseudonyms.daily(bytes(32)))},
    )
    with structlog.testing.capture_logs() as logs:
        async with receiving(sink, ingest=small) as receiver:
            for n in range(1, 7):
                inform = encode_associate(Association(client(n), OCTETS[0]), inform=True, **BASE | {"request_id": n})
                controller.sendto(inform, receiver.address)
            await until(lambda: receiver.counters.dropped["site_shut"] == 3)
            await until(lambda: receiver.counters.informs_answered == 3)
    alarms = [entry for entry in logs if entry["event"] == "site_shut"]
    assert [(entry["site"], entry["log_level"]) for entry in alarms] == [("dbh", "error")]
    assert "max_devices" in alarms[0]["reason"]
    assert receiver.counters.informs_answered == 3
    assert receiver.counters.check()
    devices = {row.device for row in sink.rows if row.access_point is not None}
    assert len(devices) == 3, "the device too many has been sent: the engine shuts the site by it"
    assert isinstance(sink.messages[-1], ObservationBatch)


async def test_an_inform_with_a_wrong_community_is_not_answered(controller: socket.socket) -> None:
    async with receiving(Log()) as receiver:
        for trap in ("1.3.6.1.4.1.14179.2.6.3.1", "1.3.6.1.4.1.8072.2.3.0.1"):
            controller.sendto(encode_notification(trap, inform=True, community=b"no", uptime=1), receiver.address)
        await until(lambda: receiver.counters.dropped["bad_community"] == 2)
        await asyncio.sleep(0.3)
        assert answers(controller) == []


async def test_heartbeats_come_on_the_grid_without_any_trap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.sources.ingest.ingest.GRID", 100_000)
    sink = Log()
    async with receiving(sink):
        await until(lambda: len(sink.messages) >= 4)
    marks = [m.watermark for m in sink.messages if isinstance(m, Heartbeat)]
    assert len(marks) == len(sink.messages)
    assert [b - a for a, b in itertools.pairwise(marks)] == [100_000] * (len(marks) - 1)
    assert all((mark + SECOND) % 100_000 == 0 for mark in marks)


async def test_a_heartbeat_never_overtakes_a_trap_that_waits_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.sources.ingest.ingest.GRID", 20_000)
    monkeypatch.setattr("connectors.sources.ingest.ingest.WATERMARK_LAG", 0)
    monkeypatch.setattr("connectors.sources.ingest.receiver.CHUNK", 7)
    sink = Log()
    async with receiving(sink) as receiver:
        for burst in range(20):
            await post(
                receiver,
                *(encode_associate(Association(client(100 * burst + n), OCTETS[0]), **BASE) for n in range(1, 51)),
            )
            await asyncio.sleep(0.01)
    watermark = 0
    for message in sink.messages:
        if isinstance(message, Heartbeat):
            watermark = message.watermark
        else:
            assert all(row.time >= watermark for row in message.rows)
    assert len(sink.rows) == 1000
    assert watermark > sink.rows[0].time


class Hands(AnchoredClock):
    """A clock that a test moves."""

    def __init__(self, time: int) -> None:
        self.time = time

    def now(self) -> int:
        return self.time


async def test_a_chunk_that_leaves_traps_in_the_queue_confirms_no_coverage_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("connectors.sources.ingest.receiver.CHUNK", 2)
    sink, hands = Log(), Hands(1_700_000_000 * SECOND)
    ingest = Ingest(
        access_points={RADIOS[0]: ("dbh", "zone0")},
        sites={"dbh": SiteLimits(("127.0.0.1",), 10 * MINUTE, 20_000, Pseudonyms.daily(bytes(32)))},
    )
    receiver = Receiver([], ingest=ingest, sink=sink, clock=hands)
    received = hands.time
    for n in range(1, 4):
        seen = Sighting(Kind.ASSOCIATE, client(n), OCTETS[0])
        receiver._queue.put(QueuedSighting(received, "127.0.0.1", "127.0.0.1", seen))
    hands.time += 20 * SECOND
    assert await receiver._chunk()
    assert all(m.watermark < received for m in sink.messages if isinstance(m, Heartbeat))
    assert not await receiver._chunk()
    assert max(m.watermark for m in sink.messages if isinstance(m, Heartbeat)) > received
    last_row = max(place for place, m in enumerate(sink.messages) if isinstance(m, ObservationBatch))
    assert all(m.watermark < received for m in sink.messages[:last_row] if isinstance(m, Heartbeat))


async def test_a_clock_that_was_set_stops_the_receiver() -> None:
    wall = [0]
    stepping = AnchoredClock(lambda: time.time_ns() // 1000 + wall[0], lambda: time.monotonic_ns() // 1000)
    with pytest.raises(ClockStepError):  # noqa: PT012
        async with receiving(Log(), clock=stepping) as receiver:
            wall[0] = 6 * SECOND
            await post(receiver, encode_associate(Association(client(1), OCTETS[0]), **BASE))
            await within_patience(receiver.wait(), "the receiver to end")


async def test_a_receiver_that_paused_confirms_no_coverage_of_the_pause() -> None:
    passed, sink = [0], Log()
    leaping = AnchoredClock(lambda: time.time_ns() // 1000 + passed[0], lambda: time.monotonic_ns() // 1000 + passed[0])

    def beats() -> list[Heartbeat]:
        return [message for message in sink.messages if isinstance(message, Heartbeat)]

    async with receiving(sink, clock=leaping) as receiver:
        started = receiver.state.listened_since
        passed[0] += 5 * SECOND
        await post(receiver, encode_associate(Association(client(1), OCTETS[0]), **BASE))
        await until(beats)
        before = len(beats())
        passed[0] += 200 * SECOND
        back = leaping.now()
        await post(receiver, encode_associate(Association(client(2), OCTETS[0]), **BASE))
        await until(lambda: beats()[-1].watermark > back - 10 * SECOND)
    assert {beat.listened_since for beat in beats()[:before]} == {started}
    [since] = {beat.listened_since for beat in beats()[before:]}
    assert since is not None
    assert back < since <= back + 10 * SECOND


@pytest.mark.parametrize("failure", [OSError("no buffer space"), RuntimeError("a fault")])
async def test_a_port_that_fails_ends_the_receiver(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    """Otherwise heartbeats would go on and vouch for time in which nothing was heard."""
    sink = Log()

    def fail(*_: object) -> None:
        raise failure

    with contextlib.suppress(type(failure)):
        async with receiving(sink) as receiver:
            await post(receiver, encode_associate(Association(client(1), OCTETS[0]), **BASE))
            await until(lambda: receiver.counters.accepted == 1)
            [entrance] = receiver.listeners
            assert isinstance(entrance, TrapListener)
            monkeypatch.setattr(entrance._port, "read", fail)
            await post(receiver, encode_associate(Association(client(2), OCTETS[0]), **BASE))
            ended = await asyncio.wait([asyncio.ensure_future(receiver.wait())], timeout=PATIENCE)
    assert [task.exception() for task in ended[0]] == [failure]


def test_without_communities_no_sender_is_accepted() -> None:
    with pytest.raises(UsageError, match="communities"):
        CommunityAuth(AllowList(["127.0.0.1"]), [])


async def test_nothing_of_a_trap_is_shown_by_the_receiver(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = Log()
    trap = encode_associate(
        Association(bytes.fromhex("3c0c0a0e0a0f"), OCTETS[0], user=b"canary.person", name=b"canary-ap"),
        inform=True,
        **BASE,
    )
    async with receiving(sink) as receiver:
        await post(receiver, trap, trap[:-1], trap + b"x")
        await until(lambda: receiver.counters.datagrams == 3)
        shown = (
            repr(receiver._queue.sightings)
            + repr(receiver._acknowledgements._by_batch)
            + repr(receiver)
            + repr(receiver.listeners)
        )
        shown += repr(list(receiver._acknowledgements.due(())))
    shown += repr(receiver.counters) + repr(sink.messages) + caplog.text + "".join(capsys.readouterr())
    for secret in ("canary", "c0mm", "3c0c0a0e0a0f", "3c:0c"):
        assert secret not in shown


async def test_the_sender_keeps_its_pace_and_its_order() -> None:
    sink = Log()
    async with receiving(sink) as receiver:
        timed = ((n * 20_000, encode_associate(Association(client(n), OCTETS[0]), **BASE)) for n in range(1, 11))
        began = time.monotonic()
        assert await send(timed, receiver.address, 2.0) == 10
        assert time.monotonic() - began > 0.09
        began = time.monotonic()
        await send(((0, b"x") for _ in range(100)), receiver.address, None, max_rate=1000)
        assert time.monotonic() - began > 0.09
        await until(lambda: receiver.counters.datagrams == 110)
    assert [row.device for row in sink.rows] == [
        Pseudonyms.daily(bytes(32)).name(client(n), sink.rows[0].time // (24 * 60 * MINUTE)) for n in range(1, 11)
    ]
