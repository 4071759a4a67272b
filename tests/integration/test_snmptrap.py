"""Every profile, with traps and informs that net-snmp's own programs made, through a real socket.

The vendors' traps are built from their MIBs; of the profiles only Cisco AireOS has been compared with what a
real controller sent. Debian: ``apt-get install snmp``. ``TACET_REQUIRE_SNMPTRAP=1`` makes a missing program
a failure.
"""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from connectors.runtime.clock import AnchoredClock
from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.communities import CommunityAuth
from connectors.sources.snmp.listener import TrapListener
from connectors.sources.snmp.profiles import PROFILES
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, MINUTE
from tests.support.patience import until, within_patience
from tests.support.receivers import Log

pytestmark = pytest.mark.snmptrap

COMMUNITY = "integration-only"
E = "1.3.6.1.4.1"
CLIENT, RADIO = "5c520e123456", "f84f57abcdef"
MAC, TEXT_MAC = "f8:4f:57:ab:cd:ef", "5c:52:e:12:34:56"
INDEX = "92.82.14.18.52.86"
NAMES = Pseudonyms.daily(bytes(32))
KEPT, LEFT = None, "left"


@pytest.fixture(autouse=True)
def _programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [program for program in ("snmptrap", "snmpinform") if shutil.which(program) is None]
    if missing and os.environ.get("TACET_REQUIRE_SNMPTRAP") == "1":
        pytest.fail(f"net-snmp's {missing[0]} is required here and missing")
    if missing:
        pytest.skip(f"net-snmp's {missing[0]} is not installed (Debian: snmp)")
    monkeypatch.setenv("MIBS", "")
    monkeypatch.setenv("SNMPCONFPATH", str(tmp_path))
    monkeypatch.setenv("SNMP_PERSISTENT_DIR", str(tmp_path))


@asynccontextmanager
async def receiving(sink: Any, *, sessions: bool = False) -> AsyncIterator[Any]:
    ingest = Ingest(
        access_points={MAC: ("dbh", "2065")},
        sites={"dbh": SiteLimits(("127.0.0.1",), 10 * MINUTE, 100, NAMES, sessions=sessions)},
        aliases={"2065-clwa": MAC, "127.0.0.1": MAC},
    )
    clock = AnchoredClock(lambda: time.time_ns() // 1000, lambda: time.monotonic_ns() // 1000)
    async with Receiver(
        [TrapListener(("127.0.0.1", 0), CommunityAuth(AllowList(["127.0.0.1"]), [COMMUNITY.encode()]))],
        ingest=ingest, sink=sink, clock=clock,
    ) as receiver:  # fmt: skip
        yield receiver


async def run(program: Any, receiver: Any, *arguments: Any) -> Any:
    host, port = receiver.address
    child = await asyncio.create_subprocess_exec(program, *arguments[:-1], f"{host}:{port}", *arguments[-1])
    return await within_patience(child.wait(), program)


async def snmptrap(receiver: Any, trap: Any, varbinds: Any, version: str = "2c", community: Any = COMMUNITY) -> None:
    if version == "1":
        enterprise, _, number = trap.rpartition(".")
        head = [enterprise.removesuffix(".0"), "10.1.2.3", "6", number, "6000"]
    else:
        head = ["6000", trap]
    flat = [str(part) for bind in varbinds for part in bind]
    assert await run("snmptrap", receiver, "-v", version, "-c", community, [*head, *flat]) == 0


BSN, CLIENTS = f"{E}.14179.2.6", f"{E}.9.9.599.1.3.1.1"
IOS = f"{E}.9.9.273.1.5.1"
ARUBA, INSTANT = f"{E}.14823.2.3.1.11.1", f"{E}.14823.2.3.3.1.200"
ZD, HUAWEI, HIVE = f"{E}.25053.2.2", f"{E}.2011.6.139", f"{E}.26928.1.1.1.1"
COMWARE = {
    "comware-hh3c": f"{E}.25506.2.75.3",
    "comware-h3c": f"{E}.2011.10.2.75.3",
    "comware-hpn-icf": f"{E}.11.2.14.11.15.2.75.3",
}
AIREOS = [
    (f"{BSN}.2.35.0", "x", RADIO),
    (f"{BSN}.2.36.0", "i", 0),
    (f"{BSN}.2.43.0", "a", "0.0.0.0"),
    (f"{BSN}.2.34.0", "x", CLIENT),
    (f"{BSN}.2.39.0", "s", ""),
    (f"{E}.14179.2.2.1.1.3.0", "s", "5172a-clwa-2144"),
]
LWAPP = [
    (f"{CLIENTS}.1.0", "x", CLIENT),
    (f"{CLIENTS}.10.0", "a", "10.2.3.4"),
    (f"{CLIENTS}.27.0", "s", "someone"),
    (f"{CLIENTS}.28.0", "s", "eduroam"),
    (f"{CLIENTS}.8.0", "x", RADIO),
    (f"{E}.9.9.513.1.1.1.1.5.0", "s", "ap"),
]
INDEXED = [
    (f"{CLIENTS}.8.{INDEX}", "x", RADIO),
    (f"{CLIENTS}.27.{INDEX}", "s", "someone"),
    (f"{CLIENTS}.28.{INDEX}", "s", "eduroam"),
    (f"{E}.9.9.599.1.4.1.1.3.{INDEX}", "u", 12),
]


def ios(state: Any) -> Any:
    return [(f"{IOS}.1.7", "x", CLIENT), (f"{IOS}.6.7", "x", RADIO), (f"{IOS}.9.7", "i", state)]


def zonedirector(access_point: Any) -> Any:
    head = [(f"{ZD}.2.{n}.0", "s", "x") for n in range(1, 8)]
    return [
        *head,
        (f"{ZD}.2.15.0", "s", TEXT_MAC),
        (f"{ZD}.2.18.0", "s", access_point),
        (f"{ZD}.2.23.0", "s", "net"),
    ]


def aerohive(kind: Any, state: Any) -> Any:
    return [
        (f"{HIVE}.2.1.0", "x", RADIO),
        (f"{HIVE}.2.2.0", "s", "ap"),
        (f"{HIVE}.2.14.0", "i", kind),
        (f"{HIVE}.2.15.0", "x", CLIENT),
        (f"{HIVE}.2.10.0", "i", state),
    ]


HUAWEI_FIELDS = [
    (f"{HUAWEI}.13.3.3.1.1.1", "x", RADIO),
    (f"{HUAWEI}.18.1.2.1.1.1", "x", CLIENT),
    (f"{HUAWEI}.18.1.2.1.6.1", "i", 0),
    (f"{HUAWEI}.13.3.3.1.4.1", "s", "ap"),
    (f"{HUAWEI}.18.1.1.2.17.0", "s", "t"),
]


def aruba_voice(root: Any = ARUBA) -> Any:
    return [
        (f"{root}.1.60.0", "x", "07e2020110000000"),
        (f"{root}.1.93.0", "x", CLIENT),
        (f"{root}.1.94.0", "s", "ap"),
        (f"{root}.1.1.0", "x", RADIO),
    ]


def aruba_attributes(
    change: Any, root: Any = ARUBA, *, station: int = 52, where: Any = (("3", "x", RADIO), ("94", "s", "ap"))
) -> Any:
    """wlsxUserEntryAttributesChanged, its objects in the order of the MIB."""
    return [
        (f"{root}.1.60.0", "x", "07e2020110000000"),
        (f"{root}.1.51.0", "a", "10.2.3.4"),
        (f"{root}.1.{station}.0", "x", CLIENT),
        *((f"{root}.1.{column}.0", kind, value) for column, kind, value in where),
        (f"{root}.1.103.0", "i", change),
    ]


def aruba_user(root: Any = ARUBA) -> Any:
    """A user-entry trap: who, but not where."""
    return [(f"{root}.1.51.0", "a", "10.2.3.4"), (f"{root}.1.52.0", "x", CLIENT), (f"{root}.1.53.0", "s", "someone")]


NAMED = (("94", "s", "2065-CLWA"),)
ELSEWHERE = (("3", "x", "f84f57abcdea"), ("94", "s", "2065-clwa"))


def comware(root: Any, *where: Any) -> Any:
    return [(f"{root}.2.1.2.0", "x", CLIENT), *where]


CASES = {
    "cisco-aireos associate": (f"{BSN}.3.53", AIREOS, KEPT),
    "cisco-aireos disassociate": (f"{BSN}.3.1", AIREOS, LEFT),
    "cisco-aireos deauthenticate": (f"{BSN}.3.2", AIREOS, LEFT),
    "cisco-aireos authentication failed": (f"{BSN}.3.3", AIREOS, "not_an_observation"),
    "cisco-lwapp moved to run": (f"{E}.9.9.599.0.4", LWAPP, KEPT),
    "cisco-lwapp association statistics": (f"{E}.9.9.599.0.7", INDEXED, KEPT),
    "cisco-lwapp session": (f"{E}.9.9.599.0.8", INDEXED, KEPT),
    "cisco-lwapp associated": (f"{E}.9.9.599.0.9", LWAPP, KEPT),
    "cisco-lwapp roamed": (f"{E}.9.9.599.0.12", LWAPP, KEPT),
    "cisco-lwapp left": (f"{E}.9.9.599.0.6", INDEXED, LEFT),
    "cisco-lwapp removed": (f"{E}.9.9.599.0.3", LWAPP, LEFT),
    "cisco-lwapp deauthenticated": (f"{E}.9.9.599.0.10", LWAPP, LEFT),
    "cisco-ios associated": (f"{E}.9.9.273.1.4.1", ios(1), KEPT),
    "cisco-ios left": (f"{E}.9.9.273.1.4.1", ios(2), LEFT),
    "cisco-ios run": (f"{E}.9.9.273.1.4.1", ios(3), KEPT),
    "aruba voice client": (f"{ARUBA}.2.1215", aruba_voice(), KEPT),
    "aruba user created": (f"{ARUBA}.2.1219", aruba_attributes(1), KEPT),
    "aruba user changed": (f"{ARUBA}.2.1219", aruba_attributes(3), KEPT),
    "aruba user changed, as a voice client": (f"{ARUBA}.2.1219", aruba_attributes(3, station=93), KEPT),
    "aruba user changed, named in other case": (f"{ARUBA}.2.1219", aruba_attributes(3, where=NAMED), KEPT),
    "aruba user changed, named beside a strange radio": (f"{ARUBA}.2.1219", aruba_attributes(3, where=ELSEWHERE), KEPT),
    "aruba user deleted": (f"{ARUBA}.2.1219", aruba_attributes(2), LEFT),
    "aruba user entry": (f"{ARUBA}.2.1014", aruba_user(), "no_access_point"),
    "aruba user authenticated": (f"{ARUBA}.2.1016", aruba_user(), "no_access_point"),
    "aruba user entry gone": (f"{ARUBA}.2.1015", aruba_user(), "not_an_observation"),
    "aruba-instant user created": (f"{INSTANT}.2.1219", aruba_attributes(1, INSTANT), KEPT),
    "aruba-instant user changed, named": (f"{INSTANT}.2.1219", aruba_attributes(3, INSTANT, where=NAMED), KEPT),
    "aruba-instant user deleted": (f"{INSTANT}.2.1219", aruba_attributes(2, INSTANT), LEFT),
    "aruba-instant voice client": (f"{INSTANT}.2.1262", aruba_voice(INSTANT), KEPT),
    "ruckus-zonedirector join": (f"{ZD}.1.60", zonedirector("F8-4F-57-AB-CD-EF"), KEPT),
    "ruckus-zonedirector roam, named": (f"{ZD}.1.65", zonedirector("2065-clwa"), KEPT),
    "ruckus-zonedirector leaves": (f"{ZD}.1.63", zonedirector(MAC), LEFT),
    "ruckus-zonedirector roams out": (f"{ZD}.1.64", zonedirector("2065-clwa"), LEFT),
    "ruckus-standalone": (f"{E}.25053.2.1.1.1", [(f"{E}.25053.2.1.2.15.0", "s", TEXT_MAC)], KEPT),
    "ruckus-standalone leaves": (f"{E}.25053.2.1.1.2", [(f"{E}.25053.2.1.2.15.0", "s", TEXT_MAC)], LEFT),
    "huawei online": (f"{HUAWEI}.18.1.1.1.9", HUAWEI_FIELDS, KEPT),
    "huawei offline": (f"{HUAWEI}.18.1.1.1.10", HUAWEI_FIELDS, LEFT),
    "aerohive client up": (f"{HIVE}.1.4", aerohive(1, 1), KEPT),
    "aerohive client down": (f"{HIVE}.1.4", aerohive(1, 2), LEFT),
    "aerohive other link down": (f"{HIVE}.1.4", aerohive(2, 2), "not_an_observation"),
    "aerohive other link": (f"{HIVE}.1.4", aerohive(2, 1), "not_an_observation"),
}
for _vendor, _root in COMWARE.items():
    CASES |= {
        f"{_vendor} authorised": (f"{_root}.2.0.6", comware(_root, (f"{_root}.2.1.11.0", "x", RADIO)), KEPT),
        f"{_vendor} authorised, named": (
            f"{_root}.2.0.6", comware(_root, (f"{_root}.2.1.10.0", "s", "2065-clwa")), KEPT),
        f"{_vendor} roamed": (
            f"{_root}.2.0.7", comware(_root, (f"{_root}.1.2.1.1.0", "s", "7")), "no_access_point"),
        f"{_vendor} disassociated": (f"{_root}.2.0.5", comware(_root, (f"{_root}.2.1.11.0", "x", RADIO)), LEFT),
        f"{_vendor} disconnected": (f"{_root}.2.0.8", comware(_root, (f"{_root}.2.1.10.0", "s", "2065-clwa")), LEFT),
        f"{_vendor} disconnected somewhere": (f"{_root}.2.0.8", comware(_root), "no_access_point"),
    }  # fmt: skip


def test_every_vendors_profile_has_a_case() -> None:
    vendors = {profile.vendor for profile in PROFILES} - {"standard", "net-snmp"}
    assert vendors == {case.split()[0].rstrip(",") for case in CASES}


@pytest.mark.parametrize("version", ["1", "2c"])
@pytest.mark.parametrize("case", CASES)
async def test_a_trap_made_by_net_snmp(case: Any, version: Any) -> None:
    trap, varbinds, expected = CASES[case]
    sink = Log()
    async with receiving(sink, sessions=expected == LEFT) as receiver:
        await snmptrap(receiver, trap, varbinds, version)
        await until(lambda: receiver.counters.datagrams == 1)
    assert receiver.counters.check()
    if expected in (KEPT, LEFT):
        assert receiver.counters.accepted == 1
        *earlier, row = sink.rows  # in the first minutes of a UTC day it ends yesterday's name too
        assert row[:2] == (NAMES.name(bytes.fromhex(CLIENT), row.time // DAY), "-" * (expected == LEFT) + MAC)
        assert len(earlier) <= 1
        assert abs(row.time - time.time_ns() // 1000) < MINUTE
    else:
        assert {r: n for r, n in receiver.counters.dropped.items() if n} == {expected: 1}
        assert not sink.rows


@pytest.mark.parametrize(
    ("trap", "version"),
    [("1.3.6.1.6.3.1.1.5.1", "2c"), (f"{E}.8072.2.3.0.1", "2c"), (f"{E}.8072.2.3.0.1", "1")],
)
async def test_restarts_and_keep_alives_are_accepted_and_place_nobody(trap: Any, version: Any) -> None:
    sink = Log()
    async with receiving(sink) as receiver:
        await snmptrap(receiver, trap, [], version)
        await until(lambda: receiver.counters.accepted == 1)
    assert not sink.rows


async def test_a_wrong_community_is_refused() -> None:
    async with receiving(Log()) as receiver:
        await snmptrap(receiver, f"{BSN}.3.53", AIREOS, community="public")
        await until(lambda: receiver.counters.dropped["bad_community"] == 1)


async def test_snmpv3_is_counted_as_unsupported() -> None:
    async with receiving(Log()) as receiver:
        arguments = ("-v", "3", "-e", "8000000001020304", "-u", "bob", "-l", "noAuthNoPriv")
        await run("snmptrap", receiver, *arguments, ["6000", f"{BSN}.3.53"])
        await until(lambda: receiver.counters.dropped["unsupported_version"] == 1)


async def test_snmpinform_ends_well_only_after_the_append() -> None:
    sink = Log()
    flat = [str(part) for bind in AIREOS for part in bind]
    async with receiving(sink) as receiver:
        sink.gate.clear()
        inform = asyncio.create_task(
            run(
                "snmpinform",
                receiver,
                "-v",
                "2c",
                "-c",
                COMMUNITY,
                "-t",
                "1",
                "-r",
                "5",
                ["6000", f"{BSN}.3.53", *flat],
            )
        )
        await until(lambda: receiver.counters.accepted == 1)
        await until(lambda: receiver.counters.dropped["duplicate_inform"] >= 1)  # it asks again meanwhile
        assert not inform.done()
        assert not sink.rows
        sink.gate.set()
        assert await inform == 0
    assert len(sink.rows) == 1


async def test_snmpinform_fails_when_nothing_can_be_stored() -> None:
    sink = Log()
    flat = [str(part) for bind in AIREOS for part in bind]
    async with receiving(sink) as receiver:
        sink.gate.clear()
        arguments = ("-v", "2c", "-c", COMMUNITY, "-t", "1", "-r", "0", ["6000", f"{BSN}.3.53", *flat])
        assert await run("snmpinform", receiver, *arguments) == 1
        sink.gate.set()
