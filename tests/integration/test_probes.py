"""Sources that are asked whether they are alive: net-snmp's own agent, a web server, an echo; and what comes of it.

Debian: ``apt-get install snmpd``. ``TACET_REQUIRE_SNMPTRAP=1`` makes a missing program a failure.
"""

import asyncio
import datetime as dt
import hashlib
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from connectors.runtime.clock import AnchoredClock
from connectors.sources import live
from connectors.sources.live import Probing, UdpSource
from connectors.sources.probes import methods, scheduler
from connectors.sources.probes.methods import (
    ByCommunity,
    ByUser,
    Echo,
    Head,
    ProbeAnswer,
    ProbeMethod,
    check_allowed,
    declared,
    provoke,
)
from connectors.sources.probes.scheduler import ProbeScheduler, TrapPath
from connectors.sources.snmp.usm.users import Source, Users
from stream.errors import UsageError
from stream.records import HOUR, MINUTE, Heartbeat
from stream.release.validation import Policy, load_policy
from tests.support.net_snmp import HOST, snmpd
from tests.support.patience import until, waiting_for
from tests.support.receivers import Log
from tests.support.small_building import SITE, policy_text
from tests.unit.snmp.v3_controller import AUTH, PRIVACY, user

COMMUNITY, ENGINE = b"read-only", "80000000010a0b0c"


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never answers is waited for; what answers does so whenever it comes to it."""
    monkeypatch.setattr(methods, "WAIT", 0.2)


def users(engines: tuple[str, ...] = (ENGINE,), **more: Any) -> Users:
    return Users([user(**more)], [Source.model_validate({"address": HOST, "engines": engines}, strict=False)])


@asynccontextmanager
async def agent(folder: Path, tag: str = "SHA-256", cipher: str = "AES", more: str = "") -> AsyncIterator[int]:
    """net-snmp's agent on loopback; its port."""
    settings = (
        f"rocommunity {COMMUNITY.decode()} {HOST}\n"
        f"exactEngineID 0x{ENGINE}\ncreateUser tacet {tag} {AUTH} {cipher} {PRIVACY}\nrouser tacet priv\n{more}"
    )
    async with snmpd(folder, settings) as port:
        await until_it_answers(ByCommunity(HOST, port, COMMUNITY))
        yield port


async def until_it_answers(asked: ProbeMethod) -> ProbeAnswer:
    async with waiting_for("an answer of the agent"):
        while (answer := await asked.probe()) is None:
            await asyncio.sleep(0.05)
    return answer


PAIR = ("dbh", "10.2.0.5")


def policy(more: str = "") -> Policy:
    """The building's, with one source on loopback and its probe."""
    text = re.sub(r"sources = \[.*?\]", f'sources = ["{HOST}"]', policy_text())
    return load_policy(f"{text}\n[[site.{SITE}.probe]]\nsource = '{HOST}'\nby = 'snmp'\n{more}")


class TestSnmp:
    pytestmark = pytest.mark.snmptrap

    async def test_an_agent_tells_its_uptime(self, tmp_path: Path) -> None:
        async with agent(tmp_path) as port:
            first = await until_it_answers(ByCommunity(HOST, port, COMMUNITY))
            again = await until_it_answers(ByUser(HOST, port, users(), "tacet"))
            assert first.uptime is not None
            assert again.uptime is not None
            assert again.uptime >= first.uptime

    @pytest.mark.parametrize(("tag", "cipher"), [("SHA", "AES"), ("SHA-512", "AES-256")])
    async def test_it_is_asked_under_every_strength(self, tmp_path: Path, tag: str, cipher: str) -> None:
        names = {"SHA": "SHA-1", "AES": "AES-128"}
        async with agent(tmp_path, tag, cipher) as port:
            given = users(auth=names.get(tag, tag), privacy=names.get(cipher, cipher))
            query = ByUser(HOST, port, given, "tacet")
            assert await until_it_answers(query)
            assert await until_it_answers(query), "and again, by what was learnt"

    async def test_who_has_no_key_or_another_engine_is_not_believed(self, tmp_path: Path) -> None:
        async with agent(tmp_path) as port:
            for given in (
                users(auth_password="another password"), users(privacy_password="another password"),
                users(engines=("80000000010a0b0d",)),
            ):  # fmt: skip
                assert await ByUser(HOST, port, given, "tacet").probe() is None
            assert await ByCommunity(HOST, port, b"wrong").probe() is None
            assert await until_it_answers(ByUser(HOST, port, users(engines=()), "tacet"))

    async def test_an_agent_that_has_gone_does_not_answer_and_one_that_is_replaced_does(self, tmp_path: Path) -> None:
        async with agent(tmp_path) as port:
            query = ByUser(HOST, port, users(), "tacet")
            assert await until_it_answers(query)
        assert await query.probe() is None
        assert await ByCommunity(HOST, port, COMMUNITY).probe() is None


class TestTheWayOfTraps:
    """A trap that a wrong community provokes comes here, or it does not."""

    pytestmark = pytest.mark.snmptrap

    @pytest.mark.parametrize("sent", [True, False])
    async def test_an_agent_that_sends_its_traps_here_proves_it(self, tmp_path: Path, sent: bool) -> None:
        given = [UdpSource((HOST, 0), (COMMUNITY,))]
        async with live.receiver(given, policy(), bytes(32), Log()) as made:
            host, port = made.address
            sink = f"authtrapenable 1\ntrap2sink {host}:{port} {COMMUNITY.decode()}\n" if sent else ""
            async with agent(tmp_path, more=sink) as asked_at:
                way = TrapPath(partial(provoke, HOST, asked_at), partial(made.last_refusal, HOST))
                assert await way.step(5 * HOUR + MINUTE) is None
                assert await way.step(hour := made._clock.now() // HOUR * HOUR) is None
                await until_it_answers(ByCommunity(HOST, asked_at, COMMUNITY))  # after the wrong one
                await until(
                    lambda: not sent or made.last_refusal(HOST) is not None, "a trap of the agent that is refused"
                )
                assert await way.step(hour + MINUTE) is sent
                assert await way.step(hour + 2 * MINUTE) is None

    async def test_operators_are_told_once_whenever_it_is_lost_or_found(self) -> None:
        received = iter([None, 1 * HOUR, 9 * HOUR, 1 * HOUR])  # an old one proves nothing
        hours: list[int] = []

        async def asked() -> None:
            hours.append(0)

        rounds_ = ProbeScheduler(
            {PAIR: Played(*[ProbeAnswer(n * 6_000) for n in range(999)])}, clock(), lambda *_, answered: None,
            {PAIR: TrapPath(asked, lambda: next(received))},
        )  # fmt: skip
        with structlog.testing.capture_logs() as lines:
            for minute in range(5 * 60, 8 * 60 + 2):
                await rounds_.probe_all(minute * MINUTE)
        assert len(hours) == 4
        assert [line["event"] for line in lines] == ["trap_way_lost", "trap_way_found", "trap_way_lost"]


def certificate(folder: Path, name: str = "wlc.example.org") -> tuple[Path, str]:
    """Write a key with its own certificate; return the file and the certificate's SHA-256."""
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(named).issuer_name(named).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now).not_valid_after(now + dt.timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, *form) + made.public_bytes(serialization.Encoding.PEM)
    path = folder / "server.pem"
    path.write_bytes(text)
    return path, hashlib.sha256(made.public_bytes(serialization.Encoding.DER)).hexdigest()


class TestHttps:
    @asynccontextmanager
    async def server(self, folder: Path, says: bytes = b"HTTP/1.1 404 Not Found\r\n\r\n") -> AsyncIterator[Any]:
        path, digest = certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(says)
            writer.close()

        server = await asyncio.start_server(serve, HOST, 0, ssl=context)
        async with server:
            yield server.sockets[0].getsockname()[1], digest, path

    async def test_a_server_with_the_known_certificate_is_alive_whatever_it_says_of_the_page(
        self, tmp_path: Path
    ) -> None:
        async with self.server(tmp_path) as (port, digest, _):
            assert await Head(HOST, port, None, digest).probe() == ProbeAnswer()

    async def test_another_certificate_or_a_name_nobody_vouches_for_is_not_believed(self, tmp_path: Path) -> None:
        async with self.server(tmp_path) as (port, _, _):
            assert await Head(HOST, port, None, "0" * 64).probe() is None
            assert await Head(HOST, port, "wlc.example.org", None).probe() is None

    async def test_a_name_that_a_trusted_authority_signed_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with self.server(tmp_path) as (port, _, path):
            monkeypatch.setenv("SSL_CERT_FILE", str(path))
            assert await Head(HOST, port, "wlc.example.org", None).probe() == ProbeAnswer()
            assert await Head(HOST, port, "other.example.org", None).probe() is None

    async def test_what_is_no_web_server_is_not_alive(self, tmp_path: Path) -> None:
        async with self.server(tmp_path, b"SSH-2.0-x\r\n") as (port, digest, _):
            assert await Head(HOST, port, None, digest).probe() is None
        assert await Head(HOST, port, None, digest).probe() is None


class TestIcmp:
    """A kernel's echo, played by the other end of a pair of sockets: not every machine allows the real one."""

    @pytest.mark.parametrize(
        ("kind", "change", "alive"), [(b"\0", 0, True), (b"\x08", 0, False), (b"\0", 1, False), (b"\x03", 0, False)]
    )
    async def test_an_echo_of_what_was_sent_is_an_answer(
        self, monkeypatch: pytest.MonkeyPatch, kind: bytes, change: int, alive: bool
    ) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        here.setblocking(False)
        there.setblocking(False)
        monkeypatch.setattr(methods, "_socket", lambda _: here)

        async def echo() -> None:
            loop = asyncio.get_running_loop()
            while True:
                received = await loop.sock_recv(there, 1000)
                assert received[:2] == b"\x08\0"
                await loop.sock_sendall(there, kind + received[1:-1] + bytes([received[-1] ^ change]))

        playing = asyncio.create_task(echo())
        try:
            assert (await Echo(HOST).probe() == ProbeAnswer()) is alive
        finally:
            playing.cancel()
            there.close()

    def test_where_the_kernel_does_not_allow_it_that_is_said_at_the_start(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(*_: object) -> socket.socket:
            raise PermissionError

        monkeypatch.setattr(methods, "_socket", refused)
        with pytest.raises(UsageError, match=r"net\.ipv4\.ping_group_range"):
            check_allowed(HOST)


class Played:
    """A source that answers as told, one answer a question."""

    def __init__(self, *answers: ProbeAnswer | None) -> None:
        self.answers = list(answers)

    async def probe(self) -> ProbeAnswer | None:
        return self.answers.pop(0)


def clock() -> AnchoredClock:
    return AnchoredClock(lambda: time.time_ns() // 1000, lambda: time.monotonic_ns() // 1000)


class TestRounds:
    async def test_changes_are_told_to_operators_once(self) -> None:
        reported: list[tuple[int, bool]] = []
        played = Played(
            None, None, ProbeAnswer(6_000), ProbeAnswer(12_000), ProbeAnswer(50), ProbeAnswer(None), ProbeAnswer(12_050)
        )

        def tell(pair: object, at: int, *, answered: bool) -> None:
            assert pair == PAIR
            reported.append((at // MINUTE, answered))

        asking_all = ProbeScheduler({PAIR: played}, clock(), tell)
        with structlog.testing.capture_logs() as lines:
            for minute in range(7):
                await asking_all.probe_all(minute * MINUTE)
        assert reported == [(0, False), (1, False), *((minute, True) for minute in range(2, 7))]
        assert [line["event"] for line in lines] == ["source_silent", "source_answers", "source_restarted"]
        assert all(line["address"] == PAIR[1] for line in lines)

    async def test_they_begin_at_points_of_the_grid_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(scheduler, "PROBE_GRID", 50_000)
        reported: list[int] = []

        def tell(_: object, at: int, *, answered: bool) -> None:
            reported.append(at)

        running = asyncio.create_task(ProbeScheduler({PAIR: Played(*[None] * 999)}, clock(), tell).run())
        while len(reported) < 3:
            await asyncio.sleep(0.01)
        running.cancel()
        assert {at % 50_000 for at in reported} == {0}
        assert reported == sorted(set(reported))


class TestDeclared:
    def test_what_a_probe_needs_must_be_there(self) -> None:
        with pytest.raises(UsageError, match=rf"site\.{SITE}\.probe: .* needs TACET_SNMP_PROBE_COMMUNITY_FILE"):
            declared(policy(), None, None)
        for given in (None, users(name="other")):
            with pytest.raises(UsageError, match=r"user must be one of the file .*, got 'tacet'"):
                declared(policy('user = "tacet"\n'), given, COMMUNITY)
        assert set(declared(policy('user = "tacet"\n'), users(), None)) == {(SITE, HOST)}
        assert set(declared(policy(), None, COMMUNITY)) == {(SITE, HOST)}

    async def test_a_source_that_is_probed_is_vouched_for_by_its_answers_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The whole connector: heartbeats of a source that is silent vouch for nothing, of one that answers they do."""
        for answers in (None, ProbeAnswer(1)):
            found = await self.heartbeats(answers, monkeypatch)
            assert any(beat.listened_since is not None for beat in found) is (answers is not None)

    async def heartbeats(self, answer: ProbeAnswer | None, monkeypatch: pytest.MonkeyPatch) -> list[Heartbeat]:
        """Return what is sent while three questions are asked."""
        monkeypatch.setattr(scheduler, "PROBE_GRID", 1_000_000)
        query = {(SITE, HOST): Played(*[answer] * 999)}
        log, reported = Log(), list[bool]()

        def probed(pair: tuple[str, str], *, alive: bool, at: int) -> None:
            assert (pair, at % 1_000_000) == ((SITE, HOST), 0)
            reported.append(alive)

        given, probing = [UdpSource((HOST, 0), (COMMUNITY,))], Probing(query, probed, {})
        async with live.receiver(given, policy(), bytes(32), log, probing=probing) as made:
            while len(reported) < 3:
                await asyncio.sleep(0.01)
            log.messages += made._ingest.poll(made.state, made._clock.now() + 10_000_000)
        assert set(reported) == {answer is not None}
        return [message for message in log.messages if isinstance(message, Heartbeat)]
