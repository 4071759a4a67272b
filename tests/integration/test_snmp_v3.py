"""SNMPv3 through a real socket: net-snmp's own programs and pysnmp on the other side, and those who would deceive.

Debian: ``apt-get install snmp``. ``TACET_REQUIRE_SNMPTRAP=1`` makes a missing program a failure.
"""

import asyncio
import os
import shutil
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pysnmp.hlapi.v3arch import asyncio as pysnmp
from pysnmp.proto.rfc1902 import OctetString

from connectors.runtime.clock import AnchoredClock
from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.communities import CommunityAuth
from connectors.sources.snmp.listener import TrapListener
from connectors.sources.snmp.sender import Association, encode_associate
from connectors.sources.snmp.usm.receiver import V3Files
from connectors.sources.snmp.usm.users import Source, User, Users
from stream.errors import KeyFileError
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import MINUTE, SECOND
from tests.support.patience import PATIENCE, until, within_patience
from tests.support.receivers import Log
from tests.unit.snmp.v3_controller import AUTH, PRIVACY, Controller, user

HOST, COMMUNITY = "127.0.0.1", "integration-only"
ENGINE, STRANGE = "8000000001020304", "8000000001020305"
RADIO = "f8:4f:57:ab:cd:ef"
BSN = "1.3.6.1.4.1.14179.2.6"
TAGS = {"SHA-1": "SHA", "SHA-256": "SHA-256", "SHA-384": "SHA-384", "SHA-512": "SHA-512"}
CIPHERS = {"AES-128": "AES", "AES-256": "AES-256"}
PAIRS = [(tag, cipher) for tag in TAGS for cipher in CIPHERS if (tag, cipher) != ("SHA-1", "AES-256")]


def users(also_v2c: bool = False, **more: Any) -> Users:
    given: dict[str, Any] = {"address": HOST, "engines": [ENGINE], "also_v2c": also_v2c}
    return Users([user(**more)], [Source.model_validate(given, strict=False)])


@asynccontextmanager
async def receiving(folder: Path, sink: Log, given: Users | None = None, **more: Any) -> AsyncIterator[Receiver]:
    ingest = Ingest(
        access_points={RADIO: ("dbh", "2065")},
        sites={"dbh": SiteLimits((HOST,), 10 * MINUTE, 1000, Pseudonyms.daily(bytes(32)))},
    )
    senders = CommunityAuth(AllowList([HOST]), more.pop("communities", [COMMUNITY.encode()]), or_v3=True)
    entrance = TrapListener((HOST, 0), senders, v3=V3Files(given or users(), folder / "state"))
    clock = AnchoredClock(lambda: time.time_ns() // 1000, lambda: time.monotonic_ns() // 1000)
    async with Receiver([entrance], ingest=ingest, sink=sink, clock=clock, **more) as receiver:
        yield receiver


def dropped(receiver: Receiver) -> dict[str, int]:
    assert receiver.counters.check()
    return {reason: n for reason, n in receiver.counters.dropped.items() if n}


def now() -> int:
    return time.time_ns() // 1000


def controller(given: Users | None = None, **more: Any) -> Controller:
    """A controller of ours, which can be made to lie."""
    return Controller(bytes.fromhex(ENGINE), users=given or users(), started=now() - 1000 * SECOND, **more)


async def post(receiver: Receiver, *datagrams: bytes) -> None:
    """Send, and wait until all was heard."""
    before = receiver.counters.datagrams
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for datagram in datagrams:
            sock.sendto(datagram, receiver.address)
    await until(lambda: receiver.counters.datagrams == before + len(datagrams))


class TestNetSnmp:
    pytestmark = pytest.mark.snmptrap

    @pytest.fixture(autouse=True)
    def _programs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        missing = [program for program in ("snmptrap", "snmpinform") if shutil.which(program) is None]
        if missing and os.environ.get("TACET_REQUIRE_SNMPTRAP") == "1":
            pytest.fail(f"net-snmp's {missing[0]} is required here and missing")
        if missing:
            pytest.skip(f"net-snmp's {missing[0]} is not installed (Debian: snmp)")
        monkeypatch.setenv("MIBS", "")
        monkeypatch.setenv("SNMPCONFPATH", str(tmp_path / "net-snmp"))
        monkeypatch.setenv("SNMP_PERSISTENT_DIR", str(tmp_path / "net-snmp"))

    async def send(self, program: str, receiver: Receiver, client: Any = 1, **more: Any) -> int:
        """Run one of the programs; ``tag``, ``cipher``, ``level``, ``name``, ``auth``, ``engine`` may be given."""
        tag, cipher = TAGS[more.get("tag", "SHA-256")], CIPHERS[more.get("cipher", "AES-128")]
        secure = ["-a", tag, "-A", more.get("auth", AUTH), "-x", cipher, "-X", PRIVACY]
        options = ["-v", "3", "-u", more.get("name", "tacet"), "-l", more.get("level", "authPriv"), *secure]
        options += (
            ["-e", more.get("engine", ENGINE)] if program == "snmptrap" else ["-t", "1", "-r", more.get("r", "5")]
        )
        binds = [f"{BSN}.2.35.0", "x", RADIO.replace(":", ""), f"{BSN}.2.34.0", "x", f"5c520e{client:06x}"]
        host, port = receiver.address
        child = await asyncio.create_subprocess_exec(
            program, *options, f"{host}:{port}", "6000", f"{BSN}.3.53", *binds, stderr=asyncio.subprocess.DEVNULL
        )
        return await within_patience(child.wait(), program)

    @pytest.mark.parametrize(("tag", "cipher"), PAIRS)
    async def test_a_trap_and_an_inform_are_taken(self, tmp_path: Path, tag: str, cipher: str) -> None:
        sink = Log()
        async with receiving(tmp_path, sink, users(auth=tag, privacy=cipher)) as receiver:
            assert await self.send("snmptrap", receiver, 1, tag=tag, cipher=cipher) == 0
            assert await self.send("snmpinform", receiver, 2, tag=tag, cipher=cipher) == 0
            await until(lambda: receiver.counters.accepted == 2)
            assert set(dropped(receiver)) == {"discovery"}
        assert len(sink.rows) == 2

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"auth": "another password"}, "wrong_tag"),
            ({"name": "mallory"}, "unknown_user"),
            ({"level": "noAuthNoPriv"}, "security_level"),
            ({"level": "authNoPriv"}, "security_level"),
            ({"engine": STRANGE}, "unknown_engine"),
        ],
    )
    async def test_a_trap_that_is_not_as_it_must_be_is_counted_as_that(
        self, tmp_path: Path, change: dict[str, str], reason: str
    ) -> None:
        sink = Log()
        async with receiving(tmp_path, sink) as receiver:
            await self.send("snmptrap", receiver, **change)
            await until(lambda: receiver.counters.datagrams == 1)
            assert dropped(receiver) == {reason: 1}
        assert sink.rows == []

    @pytest.mark.parametrize(
        "change",
        [{"auth": "another password"}, {"name": "mallory"}, {"level": "noAuthNoPriv"}, {"level": "authNoPriv"}],
    )
    async def test_an_inform_that_is_not_as_it_must_be_fails(self, tmp_path: Path, change: dict[str, str]) -> None:
        sink = Log()
        async with receiving(tmp_path, sink) as receiver:
            assert await self.send("snmpinform", receiver, r="0", **change) == 1
        assert sink.rows == []

    async def test_an_inform_is_answered_only_after_the_append(self, tmp_path: Path) -> None:
        sink = Log()
        async with receiving(tmp_path, sink) as receiver:
            sink.gate.clear()
            inform = asyncio.create_task(self.send("snmpinform", receiver, r="20"))
            await until(lambda: dropped(receiver).get("duplicate_inform", 0) >= 1)  # it asks again meanwhile
            assert not inform.done()
            assert sink.rows == []
            sink.gate.set()
            assert await inform == 0
        assert len(sink.rows) == 1

    async def test_a_sender_of_informs_goes_on_after_a_restart(self, tmp_path: Path) -> None:
        """It is given the receiver's new boots when it asks: its own program keeps none."""
        for start in (1, 2):
            sink = Log()
            async with receiving(tmp_path, sink) as receiver:
                assert await self.send("snmpinform", receiver) == 0
            assert len(sink.rows) == 1, start


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
class TestPysnmp:
    """A second, unrelated implementation."""

    async def send(self, receiver: Receiver, kind: str, **more: Any) -> Any:
        engine = pysnmp.SnmpEngine(OctetString(hexValue=ENGINE))
        secrets = pysnmp.UsmUserData(
            "tacet", more.get("auth", AUTH), PRIVACY,
            authProtocol=pysnmp.usmHMAC384SHA512AuthProtocol, privProtocol=pysnmp.usmAesCfb256Protocol,
        )  # fmt: skip
        binds = [
            pysnmp.ObjectType(pysnmp.ObjectIdentity(f"{BSN}.2.{column}.0"), OctetString(hexValue=value))
            for column, value in ((35, RADIO.replace(":", "")), (34, "5c520e000009"))
        ]
        try:
            return await pysnmp.send_notification(
                engine,
                secrets,
                await pysnmp.UdpTransportTarget.create(receiver.address, timeout=int(PATIENCE), retries=0),
                pysnmp.ContextData(),
                kind,
                pysnmp.NotificationType(pysnmp.ObjectIdentity(f"{BSN}.3.53")).add_varbinds(*binds),
            )
        finally:
            engine.close_dispatcher()

    async def test_a_trap_and_an_inform_are_taken(self, tmp_path: Path) -> None:
        sink = Log()
        async with receiving(tmp_path, sink, users(auth="SHA-512", privacy="AES-256")) as receiver:
            for kind in ("trap", "inform"):
                problem, *_ = await self.send(receiver, kind)
                assert problem is None
            await until(lambda: receiver.counters.accepted + dropped(receiver).get("collapsed", 0) == 2)
        assert len(sink.rows) == 1  # the same device at the same place

    async def test_a_wrong_password_is_told(self, tmp_path: Path) -> None:
        async with receiving(tmp_path, Log(), users(auth="SHA-512", privacy="AES-256")) as receiver:
            problem, *_ = await self.send(receiver, "inform", auth="another password")
            assert "digest" in str(problem).lower()
            assert dropped(receiver)["wrong_tag"] == 1


class TestDeception:
    """What a recorded or forged message comes to; a genuine one beside it is heard."""

    async def test_a_replay_is_counted_once_also_after_a_restart(self, tmp_path: Path) -> None:
        sender, log = controller(), Log()
        datagram = sender.trap(now())
        async with receiving(tmp_path, log) as receiver:
            await post(receiver, datagram, datagram)
            assert dropped(receiver) == {"replayed": 1}
        async with receiving(tmp_path, log) as receiver:
            await post(receiver, datagram)
            assert dropped(receiver) == {"replayed": 1}
        assert len(log.rows) == 1

    async def test_what_was_taken_is_on_the_disk_before_anything_is_made_of_it(self, tmp_path: Path) -> None:
        """The receiver is looked at as a crash would leave it, while the sink has not even begun."""
        sender, log = controller(), Log()
        datagram, crashed = sender.trap(now()), tmp_path / "crashed"
        crashed.mkdir()
        async with receiving(tmp_path, log) as receiver:
            log.gate.clear()
            await post(receiver, datagram)
            for part in tmp_path.glob("state*"):
                shutil.copy(part, crashed / part.name)
            log.gate.set()
        async with receiving(crashed, log) as receiver:
            await post(receiver, datagram)
            assert dropped(receiver) == {"replayed": 1}

    async def test_where_it_cannot_be_put_on_the_disk_nothing_is_taken_and_the_receiver_ends(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise KeyFileError("state: disk full; free space and start again")

        ended: list[Receiver] = []

        async def listen(log: Log) -> None:
            async with receiving(tmp_path, log) as receiver:
                ended.append(receiver)
                monkeypatch.setattr("connectors.sources.snmp.usm.receiver.EngineFile.keep", full)
                await post(receiver, controller().trap(now()))
                await receiver.wait()

        log = Log()
        with pytest.raises(KeyFileError, match="disk full"):
            await listen(log)
        assert log.rows == []
        assert ended[0].counters.accepted == 0

    async def test_old_boots_old_time_a_forged_tag_and_half_a_message_are_counted_as_what_they_are(
        self, tmp_path: Path
    ) -> None:
        sender, log = controller(), Log()
        at = now()
        genuine = sender.trap(at)
        forged = bytearray(sender.trap(at, 2))
        forged[-1] ^= 1
        lies = [
            sender.trap(at, 3, boots=2), sender.trap(at - 200 * SECOND, 4), bytes(forged), sender.trap(at, 5)[:-9],
            controller(users(name="mallory"), name=b"mallory").trap(at), sender.trap(at, keys=None),
        ]  # fmt: skip
        async with receiving(tmp_path, log) as receiver:
            await post(receiver, genuine, *lies)
            assert dropped(receiver) == {
                "not_in_time_window": 2, "wrong_tag": 1, "truncated": 1, "unknown_user": 1, "security_level": 1,
            }  # fmt: skip
        assert len(log.rows) == 1

    async def test_an_inform_recorded_earlier_is_answered_again_and_never_taken_again(self, tmp_path: Path) -> None:
        log = Log()
        async with receiving(tmp_path, log) as receiver:
            entrance: Any = receiver.listeners[0]
            own = entrance._authenticator._v3.verifier.own
            sender = Controller(own.engine, boots=own.boots, started=own.started, users=users())
            datagram = sender.inform(now())
            await post(receiver, datagram)
            await until(lambda: receiver.counters.informs_answered == 1)
            await post(receiver, datagram)
            assert dropped(receiver) == {"duplicate_inform": 1}
            assert receiver.counters.informs_answered == 2
            entrance._informs._seen.clear()  # as after the minute for which they are remembered
            await post(receiver, datagram)
            assert dropped(receiver) == {"duplicate_inform": 1, "replayed": 1}
        async with receiving(tmp_path, log) as receiver:
            await post(receiver, datagram)
            assert dropped(receiver) == {"not_in_time_window": 1}
        assert len(log.rows) == 1

    @pytest.mark.parametrize(("also_v2c", "communities"), [(False, [COMMUNITY.encode()]), (True, [])])
    async def test_nobody_falls_back_to_a_community(
        self, tmp_path: Path, also_v2c: bool, communities: list[bytes]
    ) -> None:
        v2c = bytes.fromhex("302902010104") + bytes([len(COMMUNITY)]) + COMMUNITY.encode()
        v2c += bytes.fromhex("a7120201010201000201003007300506012b0500")
        log = Log()
        async with receiving(tmp_path, log, users(also_v2c), communities=communities) as receiver:
            await post(receiver, v2c[:1] + bytes([len(v2c) - 2]) + v2c[2:])
            assert dropped(receiver) == {"v3_required": 1}

    async def test_a_source_that_is_being_changed_over_is_heard_both_ways(self, tmp_path: Path) -> None:
        seen = Association(bytes.fromhex("5c520e000001"), bytes.fromhex(RADIO.replace(":", "")))
        log = Log()
        async with receiving(tmp_path, log, users(True)) as receiver:
            old = encode_associate(seen, community=COMMUNITY.encode(), uptime=1)
            await post(receiver, controller(users(True)).trap(now()), old)
            assert dropped(receiver) == {}
        assert len(log.rows) == 2

    async def test_without_users_every_v3_message_is_unsupported(self, tmp_path: Path) -> None:
        ingest = Ingest(access_points={}, sites={})
        clock = AnchoredClock(now, now)
        entrance = TrapListener((HOST, 0), CommunityAuth(AllowList([HOST]), [b"c"]))
        async with Receiver([entrance], ingest=ingest, sink=Log(), clock=clock) as receiver:
            await post(receiver, controller().trap(now()))
            assert dropped(receiver) == {"unsupported_version": 1}


def test_a_user_is_shown_without_its_passwords() -> None:
    shown = repr(User.model_validate({"name": "x", "auth_password": AUTH, "privacy_password": PRIVACY}))
    assert AUTH not in shown
    assert PRIVACY not in shown
