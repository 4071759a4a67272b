"""A receiver that is told to stop ends soon, however slow its sink; what it has no time for is counted as dropped."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.queue import STOPPING
from connectors.sources.ingest.receiver import LAST, Receiver
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.communities import CommunityAuth
from connectors.sources.snmp.listener import TrapListener
from connectors.sources.snmp.sender import Association, encode_associate
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import MINUTE, SECOND
from tests.support.patience import until
from tests.support.receivers import Hands, Log, SlowLog

RADIO = "5c:52:1e:00:00:00"
TRAPS = 6_000
"""As slowly as they are taken here, this many take half a minute."""


def associated(n: int, *, inform: bool = False) -> bytes:
    at = Association(bytes.fromhex("3c00") + n.to_bytes(4, "big"), bytes.fromhex(RADIO.replace(":", "")))
    return encode_associate(at, community=b"c0mm", uptime=100, request_id=n, inform=inform)


@asynccontextmanager
async def receiving(sink: Log, hands: Hands) -> AsyncIterator[Receiver]:
    limits = SiteLimits(("127.0.0.1",), 10 * MINUTE, 100_000, Pseudonyms.daily(bytes(32)))
    ingest = Ingest(access_points={RADIO: ("dbh", "zone")}, sites={"dbh": limits})
    entrance = TrapListener(("127.0.0.1", 0), CommunityAuth(AllowList(["127.0.0.1"]), [b"c0mm"]))
    async with Receiver([entrance], ingest=ingest, sink=sink, clock=hands) as receiver:
        yield receiver


@pytest.fixture
def controller() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        yield sock


async def filled(receiver: Receiver, controller: socket.socket, *, inform: bool) -> None:
    """Fill the queue while the sink is shut."""
    for n in range(1, TRAPS + 1):
        controller.sendto(associated(n, inform=inform), receiver.address)
        if not n % 100:
            await asyncio.sleep(0)
            await until(lambda n=n: receiver.counters.datagrams >= n)  # type: ignore[misc]


@pytest.mark.parametrize("inform", [False, True])
async def test_sightings_not_processed_in_time_are_dropped_counted_and_not_answered(
    controller: socket.socket, *, inform: bool
) -> None:
    hands = Hands()
    sink = SlowLog(hands)
    async with receiving(sink, hands) as receiver:
        sink.gate.clear()
        await filled(receiver, controller, inform=inform)
        reported = hands.added
        sink.gate.set()
    counters = receiver.counters
    assert reported == 0
    # One message under way, those within the time, and at most one batch of the only source behind it.
    assert hands.added <= LAST + 4 * 3 * SECOND
    assert counters.dropped[STOPPING] > 1_000
    assert counters.waiting == 0
    assert counters.check()
    assert counters.accepted == len(sink.rows) == TRAPS - counters.dropped[STOPPING]
    assert counters.informs_answered == (counters.accepted if inform else 0)
    assert [batch.sequence for batch in sink.batches] == list(range(len(sink.batches)))


async def test_a_stopped_receiver_processes_its_queue_for_five_seconds(controller: socket.socket) -> None:
    hands, each = Hands(), 11 * SECOND // 2
    sink = SlowLog(hands, each)
    async with receiving(sink, hands) as receiver:
        sink.gate.clear()
        await filled(receiver, controller, inform=False)
        sink.gate.set()
    # One message under way, one that begins within the five seconds, and one batch behind it.
    assert hands.added <= 3 * each


async def test_no_window_is_closed_over_what_was_dropped(controller: socket.socket) -> None:
    hands = Hands()
    sink = SlowLog(hands)
    async with receiving(sink, hands) as receiver:
        sink.gate.clear()
        await filled(receiver, controller, inform=False)
        received = hands.now()
        sink.gate.set()
    assert receiver.counters.dropped[STOPPING]
    assert all(beat.watermark < received for beat in sink.beats)


async def test_hours_without_heartbeats_do_not_delay_the_end(controller: socket.socket) -> None:
    hands = Hands()
    sink = SlowLog(hands)
    async with receiving(sink, hands) as receiver:
        sink.gate.clear()
        await until(lambda: receiver.state.open or controller.sendto(associated(1), receiver.address) == 0)
        hands.added += 60 * MINUTE  # 720 heartbeats are due
        sink.gate.set()
    assert hands.added - 60 * MINUTE <= LAST + 4 * 3 * SECOND
    assert len(sink.rows) == 1
    assert len(sink.beats) < 10


async def test_a_sink_that_is_fast_enough_loses_nothing(controller: socket.socket) -> None:
    hands, sink = Hands(), Log()
    async with receiving(sink, hands) as receiver:
        sink.gate.clear()
        await filled(receiver, controller, inform=True)
        sink.gate.set()
    assert receiver.counters.dropped[STOPPING] == 0
    assert receiver.counters.accepted == receiver.counters.informs_answered == len(sink.rows) == TRAPS


async def test_datagrams_sent_after_the_stop_are_not_received(controller: socket.socket) -> None:
    hands, sink = Hands(), Log()
    sent = 0

    async def go_on(receiver: Receiver) -> None:
        nonlocal sent
        while True:
            for _ in range(100):
                sent += 1
                controller.sendto(associated(sent), receiver.address)
            await asyncio.sleep(0)

    async with receiving(sink, hands) as receiver:
        for _ in range(1_000):
            sent += 1
            controller.sendto(associated(sent), receiver.address)
        sending = asyncio.create_task(go_on(receiver))
    before, received = 1_000, receiver.counters.datagrams
    sending.cancel()
    assert received == before == len(sink.rows)
