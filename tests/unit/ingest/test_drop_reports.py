"""Reports to the operator of dropped traps, minute by minute."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from connectors.keys.opt_outs import OptOutFile
from connectors.runtime.clock import AnchoredClock
from connectors.sources import live
from connectors.sources.ingest import receiver as troubles
from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.receiver import KERNEL, DropReport, Receiver
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.live import UdpSource, receiver
from connectors.sources.snmp.communities import CommunityAuth
from connectors.sources.snmp.listener import TrapListener
from connectors.sources.snmp.sender import Association, encode_associate
from tests.support.patience import until
from tests.support.small_building import building

UNKNOWN = "5c:52:1e:ff:ff:01"


def test_new_drops_are_told_once_and_as_a_range() -> None:
    report = DropReport()
    dropped = {"unknown_access_point": 3, "bad_community": 0, KERNEL: 101}
    assert list(report.new_drops(dropped, {})) == [
        {"event": "traps_dropped", "reason": "unknown_access_point", "count": "between 1 and 9"},
        {"event": "traps_dropped", "reason": KERNEL, "count": "between 100 and 999"},
    ]
    assert list(report.new_drops(dropped, {})) == []
    assert list(report.new_drops(dropped | {"bad_community": 11}, {})) == [
        {"event": "traps_dropped", "reason": "bad_community", "count": "between 10 and 99"}
    ]


@pytest.mark.parametrize(
    ("new", "count"), [(1, "between 1 and 9"), (9, "between 1 and 9"), (10, "between 10 and 99"),
                       (99, "between 10 and 99"), (100, "between 100 and 999"), (12_345, "between 10000 and 99999")],
)  # fmt: skip
def test_a_logged_count_lies_in_the_range_that_the_line_says(new: int, count: str) -> None:
    assert [line["count"] for line in DropReport().new_drops({KERNEL: new}, {})] == [count]


def test_an_unknown_access_point_is_told_once() -> None:
    report = DropReport()
    assert list(report.new_drops({}, {UNKNOWN: 5})) == [{"event": "unknown_access_point", "address": UNKNOWN}]
    assert list(report.new_drops({}, {UNKNOWN: 50})) == []


def test_what_is_dropped_every_day_is_no_trouble() -> None:
    made = Receiver(
        [TrapListener(("127.0.0.1", 0), CommunityAuth(AllowList(["127.0.0.1"]), [b"c"]))],
        ingest=Ingest.of_policy(building(), bytes(32)), sink=Nowhere(), clock=AnchoredClock(lambda: 0, lambda: 0),
    )  # fmt: skip
    harmless = {"collapsed": 10**6, "no_stay": 9, "duplicate_inform": 7, "no_client": 3}
    assert list(DropReport(made.harmless).new_drops(harmless | {"bad_community": 1}, {})) == [
        {"event": "traps_dropped", "reason": "bad_community", "count": "between 1 and 9"}
    ]


class Nowhere:
    """Takes everything."""

    async def append(self, message: object) -> None:
        """Keep nothing."""


async def test_a_receiver_that_keeps_running_tells_its_troubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(troubles, "EVERY", 0.01)
    trap = encode_associate(
        Association(bytes.fromhex("3c0000000001"), bytes.fromhex(UNKNOWN.replace(":", ""))), community=b"c0mm", uptime=1
    )
    with structlog.testing.capture_logs() as lines:
        source = UdpSource(("127.0.0.1", 0), (b"c0mm",))
        async with receiver([source], building(), bytes(32), Nowhere()) as made:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=made.address)
            transport.sendto(trap)
            await until(lambda: any(line["event"] == "unknown_access_point" for line in lines))
            transport.close()
    report = [line for line in lines if line["log_level"] == "warning" and line["event"] != "receive_buffer_small"]
    assert {"event": "unknown_access_point", "address": UNKNOWN, "log_level": "warning"} in report
    dropped = {"event": "traps_dropped", "reason": "unknown_access_point", "count": "between 1 and 9"}
    assert dropped | {"log_level": "warning"} in report
    assert "3c:00" not in str(lines)


class Unreadable(OptOutFile):
    """Opt-outs that cannot be read again, for a reason that nobody has thought of."""

    def __init__(self) -> None:
        pass

    def renew(self) -> bool:
        raise RuntimeError("the file of opt-outs")


async def test_work_beside_a_receiver_that_fails_ends_the_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opt-outs that are no longer read again would leave somebody counted who has opted out."""
    monkeypatch.setattr(live, "OPT_OUTS_READ_EVERY", 0.01)
    source = UdpSource(("127.0.0.1", 0), (b"c0mm",))

    async def running() -> None:
        async with (
            asyncio.timeout(10),
            receiver([source], building(), bytes(32), Nowhere(), opt_outs=Unreadable()) as made,
        ):
            await made.wait()

    with pytest.raises(RuntimeError, match="the file of opt-outs"):
        await running()
