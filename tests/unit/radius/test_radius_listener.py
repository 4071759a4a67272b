"""Accounting on loopback: each request is taken once or counted as what it is, and answered when it is durable."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from connectors.runtime.clock import AnchoredClock
from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.radius.clients import Client, ClientFile, Clients, read_clients
from connectors.sources.radius.listener import AccountingListener
from stream.errors import KeyFileError, UsageError
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import MINUTE, SECOND
from tests.support.patience import until, waiting_for
from tests.support.receivers import Hands, Log
from tests.unit.radius.accounting_requests import (
    OFF,
    OLD_SECRET,
    ON,
    SECRET,
    STOP,
    USER,
    attributes,
    packet,
    request,
    status_server,
)

RADIO, PROXY = "02:00:00:00:00:01", "127.0.0.3"
CLIENTS = """
[[client]]
address = "127.0.0.1"
secrets = ["a-secret-of-16-octets", "the-secret-before-that"]

[[client]]
address = "127.0.0.2/32"
secrets = ["a-secret-of-16-octets"]
event_timestamp = "required"

[[client]]
address = "127.0.0.3"
secrets = ["a-secret-of-16-octets"]
sources = { wlc-west = "10.2.0.5" }

[[client]]
address = "127.0.0.4"
secrets = ["a-secret-of-16-octets"]
"""


def clients_file(folder: Path, text: str = CLIENTS) -> Path:
    path = folder / "clients.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


@asynccontextmanager
async def receiving(
    folder: Path,
    sink: Log,
    clock: AnchoredClock | None = None,
    text: str = CLIENTS,
    sources: tuple[str, ...] = ("127.0.0.1", "127.0.0.2", "10.2.0.5"),
    **more: Any,
) -> AsyncIterator[Receiver]:
    limits = SiteLimits(sources, 10 * MINUTE, 1000, Pseudonyms.daily(bytes(32)), 30 * SECOND)
    clients = Clients(ClientFile(clients_file(folder, text)), sources)
    async with Receiver(
        [AccountingListener(("127.0.0.1", 0), clients)],
        ingest=Ingest(access_points={RADIO: ("dbh", "lobby")}, sites={"dbh": limits}),
        sink=sink, clock=clock or Hands(), **more,
    ) as receiver:  # fmt: skip
        yield receiver


class Controller:
    """A controller's socket, at an address of its own."""

    def __init__(self, host: str) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((host, 0))
        self.socket.setblocking(False)

    def send(self, receiver: Receiver, *datagrams: bytes) -> None:
        for datagram in datagrams:
            self.socket.sendto(datagram, receiver.address)

    def heard(self) -> list[bytes]:
        answers = []
        while True:
            try:
                answers.append(self.socket.recv(4096))
            except BlockingIOError:
                return answers

    async def this_many(self, count: int) -> list[bytes]:
        received: list[bytes] = []
        async with waiting_for(f"{count} answers"):
            while len(received) < count:
                received += self.heard()
                await asyncio.sleep(0.005)
        return received


@pytest.fixture
def at() -> Iterator[Callable[[str], Controller]]:
    made: list[Controller] = []

    def controller(host: str = "127.0.0.1") -> Controller:
        made.append(Controller(host))
        return made[-1]

    yield controller
    for one in made:
        one.socket.close()


def settled(receiver: Receiver, datagrams: int) -> bool:
    return receiver.counters.datagrams == datagrams and receiver.counters.waiting == 0


def dropped(receiver: Receiver) -> dict[str, int]:
    assert receiver.counters.check()
    return {reason: n for reason, n in receiver.counters.dropped.items() if n}


async def test_each_request_is_counted_once_as_what_it_is(tmp_path: Path, at: Callable[..., Controller]) -> None:
    sink, now = Log(), time.time_ns() // 10**9
    async with receiving(tmp_path, sink) as receiver:
        at().send(
            receiver,
            request(identifier=1), request(identifier=1),
            request(identifier=2, calling="3c0000000002", secret=OLD_SECRET),
            request(identifier=3, secret=b"a-guess-of-sixteen-octets"), request(identifier=4)[:-2],
            request(identifier=5, called="02-00-00-00-00-09"), request(identifier=6, calling="anne"),
            request(identifier=7, called="", nas=""), request(identifier=8, calling="3c0000000003", delay=31),
            request(identifier=9, calling="3c0000000004", timestamp=now - 40),
            request(identifier=10, calling="3c0000000004", timestamp=now + 10_000),
            request(ON, identifier=11), request(OFF, identifier=12), status_server(), status_server(tagged=False),
            request(STOP, identifier=13, session="other"), packet(attributes(status=9), identifier=14), b"\x01" * 20,
        )  # fmt: skip
        at("127.0.0.2").send(
            receiver, request(identifier=1), request(identifier=2, timestamp=now + 20, calling="3c0000000005")
        )
        at(PROXY).send(
            receiver, request(identifier=1, calling="3c0000000006"), request(nas="wlc-east"), request(nas="")
        )
        at("127.0.0.4").send(receiver, request())
        at("127.0.0.5").send(receiver, request())
        await until(lambda: receiver.counters.datagrams == 25)
        await until(lambda: receiver.counters.waiting == 0)
    assert dropped(receiver) == {
        "duplicate_request": 1, "bad_authenticator": 1, "truncated": 1, "unknown_access_point": 1, "no_client": 1,
        "no_access_point": 1, "wrong_time": 3, "bad_message_authenticator": 1, "no_stay": 1, "not_an_observation": 1,
        "unsupported_code": 1, "no_timestamp": 1, "unknown_nas": 2, "unknown_source": 2,
    }  # fmt: skip
    assert receiver.counters.accepted == 7
    assert sorted(batch.source for batch in sink.batches) == ["10.2.0.5", "127.0.0.1", "127.0.0.2"]
    assert len(sink.rows) == 4


async def test_a_request_is_answered_when_it_is_durable_and_its_copies_after_that(
    tmp_path: Path, at: Callable[..., Controller]
) -> None:
    sink, controller = Log(), at()
    async with receiving(tmp_path, sink) as receiver:
        sink.gate.clear()
        controller.send(receiver, request(), request())
        await until(lambda: receiver.counters.dropped["duplicate_request"] == 1 and receiver.counters.accepted == 1)
        await asyncio.sleep(0.4)
        early = controller.heard()
        sink.gate.set()
        assert early == []
        await until(lambda: receiver.counters.requests_answered == 1)
        controller.send(receiver, request())
        await until(lambda: receiver.counters.requests_answered == 2)
        first, second = await controller.this_many(2)
    assert first == second
    assert len(sink.rows) == 1


BLOCK = """
[[client]]
address = "127.0.0.0/24"
secrets = ["a-secret-of-16-octets"]
"""


async def test_a_copy_from_another_address_of_the_client_is_a_copy(
    tmp_path: Path, at: Callable[..., Controller]
) -> None:
    sink = Log()
    async with receiving(tmp_path, sink, text=BLOCK, sources=("127.0.0.0/24",)) as receiver:
        for number, host in enumerate(("127.0.0.1", "127.0.0.2", "127.0.0.3"), 1):
            at(host).send(receiver, request())
            await until(lambda: settled(receiver, number))  # noqa: B023
        assert dropped(receiver) == {"duplicate_request": 2}
    assert len(sink.rows) == 1


async def test_only_genuine_requests_are_answered_even_if_nothing_is_stored(
    tmp_path: Path, at: Callable[..., Controller]
) -> None:
    controller, stranger = at(), at("127.0.0.5")
    async with receiving(tmp_path, Log()) as receiver:
        controller.send(receiver, request(secret=b"a-guess-of-sixteen-octets"), status_server(tagged=False))
        stranger.send(receiver, request())
        controller.send(
            receiver, request(ON, identifier=1), status_server(2), request(identifier=3, called="02-00-00-00-00-09"),
            packet(attributes(status=9), identifier=4), request(identifier=5, delay=2**32 - 1),
        )  # fmt: skip
        await until(lambda: receiver.counters.requests_answered == 5)
        assert sorted(answer[1] for answer in await controller.this_many(5)) == [1, 2, 3, 4, 5]
        assert stranger.heard() == []


async def test_a_request_that_finds_no_room_is_not_answered_and_new_when_it_comes_again(
    tmp_path: Path, at: Callable[..., Controller]
) -> None:
    controller = at()
    async with receiving(tmp_path, Log(), capacity=1) as receiver:
        controller.send(receiver, request(identifier=1), request(identifier=2, calling="3c0000000002"))
        await until(lambda: receiver.counters.dropped["queue_full"] == 1)
        await until(lambda: receiver.counters.requests_answered == 1)
        controller.send(receiver, request(identifier=2, calling="3c0000000002"))
        await until(lambda: receiver.counters.requests_answered == 2)
    assert receiver.counters.accepted == 2


async def test_a_request_with_a_time_is_never_new_again_and_one_without_is_when_it_has_been_forgotten(
    tmp_path: Path, at: Callable[..., Controller]
) -> None:
    """The memory outlasts every age that is taken, so that a recorded request with Event-Timestamp is of no use."""
    sink, hands, controller = Log(), Hands(), at()
    started = time.time_ns() // 10**9
    timed, untimed = request(identifier=1, timestamp=started + 20), request(identifier=2, calling="3c0000000002")
    async with receiving(tmp_path, sink, hands) as receiver:
        for count, added in enumerate((0, 20 * SECOND, 100 * SECOND, 299 * SECOND, 310 * SECOND), start=1):
            hands.added = added
            controller.send(receiver, timed, untimed)
            await until(partial(settled, receiver, 2 * count))
    assert dropped(receiver) == {"duplicate_request": 6, "wrong_time": 1}
    assert receiver.counters.accepted == 3
    assert len(sink.rows) == 3


async def test_nothing_of_a_request_is_shown(
    tmp_path: Path, at: Callable[..., Controller], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = Log()
    async with receiving(tmp_path, sink) as receiver:
        sink.gate.clear()
        at().send(receiver, request(), request()[:-1], request(identifier=2, calling="canary"))
        await until(lambda: receiver.counters.datagrams == 3)
        await until(lambda: receiver.counters.accepted == 1)
        shown = repr(receiver._acknowledgements._by_batch) + repr(receiver.listeners) + repr(receiver._queue.sightings)
        sink.gate.set()
    shown += repr(receiver.counters) + repr(sink.messages) + caplog.text + "".join(capsys.readouterr())
    for secret in ("canary", "3C-00", "3c00", SECRET.decode(), USER.decode()):
        assert secret not in shown


# ---- the file of clients ---------------------------------------------------------------------------------


def test_secrets_come_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = clients_file(tmp_path)
    first, *others = read_clients(path)
    assert first.octets == (SECRET, OLD_SECRET)
    assert len(others) == 3
    assert SECRET.decode() not in repr(first)
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match="chmod 600"):
        read_clients(path)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "client: "),
        ("[[client]]\naddress = '10.2.0.5'\nsecrets = []", r"client.1.secrets: .* at least 1 item"),
        (
            "[[client]]\naddress = '10.2.0.5'\nsecrets = ['testing123']",
            r"client.1.secrets.1: must have at least 16 octets",
        ),
        (
            "[[client]]\naddress = '10.2.0.5'\nsecrets = ['canary-canary-aa', 'canary-canary-bb', 'canary-canary-cc']",
            "at most 2 items",
        ),
        ("[[client]]\naddress = 'wlc'\nsecrets = ['canary-canary-aa']", "address or a CIDR block .* got 'wlc'"),
        ("[[client]]\naddress = '10.2.0.5'\nsecret = 'canary-canary-aa'", "client.1.secrets: field required"),
        ("[[client]]\nsecrets = [canary-canary-aa]", "must be TOML, is not at line 2"),
    ],
)
def test_a_file_that_breaks_a_rule_is_refused_without_a_secret(tmp_path: Path, text: str, rule: str) -> None:
    with pytest.raises(KeyFileError, match=rule) as refused:
        read_clients(clients_file(tmp_path, text))
    assert "canary" not in str(refused.value)
    assert "testing" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["", CLIENTS + CLIENTS, CLIENTS.replace('"10.2.0.5"', '"10.9.9.9"'), CLIENTS.replace("of-16-octets", "16")],
    ids=["empty", "twice", "foreign source", "short"],
)
async def test_while_a_changed_file_breaks_a_rule_the_secrets_before_count(
    tmp_path: Path, at: Callable[..., Controller], text: str
) -> None:
    async with receiving(tmp_path, Log()) as receiver:
        with capture_logs() as lines:
            clients_file(tmp_path, text)
            sender = at()
            sender.send(receiver, request(1), request(2))
            await until(lambda: settled(receiver, 2))
    assert [line["log_level"] for line in lines if "clients" in line["event"]] == ["warning"]
    assert SECRET.decode() not in str(lines)
    assert dropped(receiver).get("bad_authenticator", 0) == 0


async def test_secrets_change_while_it_listens_and_two_count_meanwhile(
    tmp_path: Path, at: Callable[..., Controller]
) -> None:
    new, other = b"a-secret-that-is-new-now", CLIENTS.replace(', "the-secret-before-that"', "")
    async with receiving(tmp_path, Log()) as receiver:
        sender, count = at(), 0
        for text, taken in (
            (other, {SECRET}),
            (other.replace(f'["{SECRET.decode()}"]', f'["{new.decode()}", "{SECRET.decode()}"]'), {SECRET, new}),
            (other.replace(SECRET.decode(), new.decode()), {new}),
        ):
            clients_file(tmp_path, text)
            for secret in (SECRET, new):
                before = receiver.counters.dropped["bad_authenticator"]
                count += 1
                sender.send(receiver, request(count, secret=secret))
                await until(partial(settled, receiver, count))
                assert (receiver.counters.dropped["bad_authenticator"] == before) is (secret in taken)


def test_a_proxy_sends_for_sources_of_the_policy_and_the_narrowest_client_counts() -> None:
    wide, narrow = (Client(address=block, secrets=(SECRET.decode(),)) for block in ("10.2.0.0/16", "10.2.0.5"))
    stored = Clients([wide, narrow], ["10.2.0.0/16"])
    assert [found[0] for found in map(stored.find, ("10.2.0.5", "10.2.9.9")) if found] == [narrow, wide]
    assert stored.find("10.3.0.1") is None
    proxy = Client(address="10.9.0.1", secrets=(SECRET.decode(),), sources={"wlc": "10.3.0.1"})
    with pytest.raises(UsageError, match=r"client 10.9.0.1/32: sources: .* got '10.3.0.1'"):
        Clients([proxy], ["10.2.0.0/16"])
    with pytest.raises(UsageError, match="once"):
        Clients([wide, wide], ["10.2.0.0/16"])


def test_every_reason_of_the_entrance_is_counted_apart() -> None:
    made = AccountingListener(
        ("127.0.0.1", 0), Clients([Client(address="10.2.0.5", secrets=("x" * 16,))], ["10.2.0.5"])
    )
    assert len(set(made.reasons)) == len(made.reasons)
    assert made.harmless < set(made.reasons)
