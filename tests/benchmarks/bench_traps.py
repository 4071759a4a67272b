"""Own trap receiver against pysnmp's, in one run: CPU a trap, and loss at 40,000 traps a second.

    python tests/benchmarks/bench_traps.py [--json]

Each receiver is a process of its own behind a loopback socket. Own: socket, decode, allow-list, community,
collapse, names, batches, a sink that forgets. pysnmp: NotificationReceiver with a callback that counts; it
neither checks senders nor makes anything of what it decoded.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from connectors.runtime.clock import AnchoredClock
from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.ingest.sighting import Message
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.communities import CommunityAuth
from connectors.sources.snmp.listener import TrapListener
from connectors.sources.snmp.sender import Association, encode_associate, send
from stream.pseudonyms.derivation import Pseudonyms

COMMUNITY = b"bench"
GOAL_RATIO = 45
RADIOS = [f"5c:52:1e:00:00:{n:02x}" for n in range(64)]


def datagrams(count: int) -> list[bytes]:
    """2,000 devices, each at another access point every time: nothing is collapsed."""
    return [
        encode_associate(
            Association(
                bytes.fromhex(f"02000000{n % 2000:04x}"),
                bytes.fromhex(RADIOS[(n // 2000 + n) % 64].replace(":", "")),
                user=b"someone@example.org",
                address=b"\x0a\x02\x03\x04",
                name=b"5172a-clwa-2144",
            ),
            community=COMMUNITY,
            uptime=n,
            request_id=n + 1,
        )
        for n in range(count)
    ]


class Forget:
    def __init__(self) -> None:
        self.rows = 0

    async def append(self, message: Message) -> None:
        self.rows += len(getattr(message, "rows", ()))


async def own() -> None:
    ingest = Ingest(
        access_points={mac: ("site", f"zone{n}") for n, mac in enumerate(RADIOS)},
        sites={"site": SiteLimits(("127.0.0.1",), 600_000_000, 20_000, Pseudonyms.daily(bytes(32)))},
    )
    clock = AnchoredClock(lambda: time.time_ns() // 1000, lambda: time.monotonic_ns() // 1000)
    sink = Forget()
    receiver = Receiver(
        [TrapListener(("127.0.0.1", 0), CommunityAuth(AllowList(["127.0.0.1"]), [COMMUNITY]))],
        ingest=ingest, sink=sink, clock=clock,
    )  # fmt: skip
    async with receiver:
        await measure(receiver.address[1], lambda: receiver.counters.datagrams)
    counters = receiver.counters
    assert counters.check()
    assert sink.rows == counters.accepted
    print(json.dumps({"kept": counters.accepted, "kernel": counters.kernel_drops, "rcvbuf": counters.receive_buffer}))


async def pysnmp() -> None:
    from pysnmp.carrier.asyncio.dgram import udp
    from pysnmp.entity import config, engine
    from pysnmp.entity.rfc3413 import ntfrcv

    snmp, seen = engine.SnmpEngine(), itertools.count()
    transport = udp.UdpAsyncioTransport().open_server_mode(("127.0.0.1", 0))
    config.add_transport(snmp, udp.DOMAIN_NAME, transport)
    config.add_v1_system(snmp, "area", COMMUNITY.decode())
    ntfrcv.NotificationReceiver(snmp, lambda *_: next(seen))
    await asyncio.sleep(0.2)
    port = transport.transport.get_extra_info("sockname")[1]
    await measure(port, lambda: next(seen))
    print("{}")


async def measure(port: int, heard: Any) -> None:
    """Tell the port, wait for the word, tell how many were heard and the CPU time it took."""
    print(port, flush=True)
    loop = asyncio.get_running_loop()
    start = time.process_time()
    await loop.run_in_executor(None, sys.stdin.readline)
    print(json.dumps({"heard": heard(), "cpu": time.process_time() - start}), flush=True)


def run(which: str, traps: list[bytes], rate: int, seconds: float) -> dict[str, float]:
    """Offer ``rate`` a second to a fresh receiver; return what it heard and took."""
    child = subprocess.Popen(
        [sys.executable, __file__, which], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    port = int(child.stdout.readline())
    offered = int(rate * seconds)
    timed: Iterator[tuple[int, bytes]] = ((n * 1_000_000 // rate, traps[n % len(traps)]) for n in range(offered))
    began = time.perf_counter()
    asyncio.run(send(timed, ("127.0.0.1", port), 1.0, max_rate=1e9))
    took = time.perf_counter() - began
    time.sleep(0.5)
    child.stdin.write("\n")
    child.stdin.flush()
    result: dict[str, float] = json.loads(child.stdout.readline()) | json.loads(child.stdout.readline())
    child.stdin.close()
    child.wait(10)
    return result | {"offered": offered, "rate": offered / took, "us": result["cpu"] / result["heard"] * 1e6}


def main() -> None:
    traps = datagrams(20_000)
    theirs = run("pysnmp", traps, 1_000, 3)
    same = run("own", traps, 1_000, 3)
    storm = run("own", traps, 40_000, 4)
    report = {
        "pysnmp_us": theirs["us"], "own_us_at_1000": same["us"], "own_us_at_40000": storm["us"],
        "ratio_at_1000": theirs["us"] / same["us"], "ratio": theirs["us"] / storm["us"], "goal": GOAL_RATIO,
        "offered_per_s": storm["rate"], "offered": storm["offered"], "heard": storm["heard"],
        "lost": storm["offered"] - storm["heard"], "kernel_drops": storm["kernel"],
        "core_share": storm["cpu"] * 40_000 / storm["heard"], "machine_load": os.getloadavg()[0],
        "pysnmp_lost": theirs["offered"] - theirs["heard"],
    }  # fmt: skip
    if "--json" in sys.argv:
        print(json.dumps(report))
        return
    for name, value in report.items():
        print(f"{name:18} {value:12,.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["own"]:
        asyncio.run(own())
    elif sys.argv[1:2] == ["pysnmp"]:
        asyncio.run(pysnmp())
    else:
        main()
