"""Asking for sysUpTime: only an answer to this very question, genuine where it can be, is read."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from connectors.sources.probes import methods
from connectors.sources.probes.methods import ByCommunity, ByUser, Echo, Head, ProbeAnswer
from connectors.sources.snmp.ber import RESPONSE, SEQUENCE, TIME_TICKS, encode_integer, encode_oid, tlv
from connectors.sources.snmp.polling import (
    Agent,
    discovered_agent,
    discovery_request,
    question,
    secured_answer,
    secured_question,
    uptime,
)
from connectors.sources.snmp.usm.messages import Claim, encode_context, encode_scoped, scoped, secured
from connectors.sources.snmp.usm.protocols import Keys, sealed
from connectors.sources.snmp.usm.users import Users
from connectors.sources.snmp.usm.verifier import RejectedMessage, UsmVerifier
from tests.unit.snmp.v3_controller import ENGINE, HOST, NOON, OTHER_ENGINE, USERS, gate, user

AGENT, USER, NUMBER, SALT = Agent(ENGINE, 3, 1000), b"tacet", 4711, bytes(8)
KEYS = USERS.all_keys(USER, ENGINE)[0]


def response(
    number: int = NUMBER, value: int = 12_345, oid: str = "1.3.6.1.2.1.1.3.0", status: int = 0, tag: int = RESPONSE
) -> bytes:
    bind = tlv(SEQUENCE, tlv(6, encode_oid(oid)) + encode_integer(value, TIME_TICKS))
    return tlv(tag, encode_integer(number) + encode_integer(status) + encode_integer(0) + tlv(SEQUENCE, bind))


def plain(pdu: bytes, community: bytes = b"c0mm", version: int = 1) -> bytes:
    return tlv(SEQUENCE, encode_integer(version) + tlv(4, community) + pdu)


def answer(pdu: bytes, agent: Agent = AGENT, keys: object = KEYS, number: int = NUMBER) -> bytes:
    claim = Claim(number, 0, agent.engine, agent.boots, agent.time, USER)
    return sealed(keys, claim, SALT, encode_scoped(encode_context(agent.engine), pdu))  # type: ignore[arg-type]


def test_a_question_is_a_get_request_for_sysuptime() -> None:
    written = "3025 020101 0404 63306d6d a01a 02021267 020100 020100 300e 300c 0608 2b06010201010300 0500"
    assert question(b"c0mm", NUMBER) == bytes.fromhex(written)


def test_the_answer_to_a_question_is_read() -> None:
    assert uptime(plain(response()), b"c0mm", NUMBER) == 12_345
    assert uptime(plain(response(value=2**32 - 1)), b"c0mm", NUMBER) == 2**32 - 1
    assert secured_answer(KEYS, AGENT, answer(response()), NUMBER) == 12_345


def test_anything_else_is_no_answer() -> None:
    wrong = [
        plain(response(), b"other"), plain(response(number=NUMBER + 1)), plain(response(status=2)),
        plain(response(oid="1.3.6.1.2.1.1.5.0")), plain(response(tag=0xA0)), plain(response(), version=0),
        plain(response()) + b"\0", question(b"c0mm", NUMBER), b"", b"\x30",
    ]  # fmt: skip
    assert {uptime(each, b"c0mm", NUMBER) for each in wrong} == {None}
    lies = [
        answer(response(), keys=None), answer(response(), keys=KEYS._replace(cipher=b"")),
        answer(response(), keys=USERS.all_keys(USER, OTHER_ENGINE)[0]),
        answer(response(), AGENT._replace(engine=OTHER_ENGINE)),
        answer(response(), number=NUMBER + 1), answer(response(number=NUMBER + 1)), b"",
    ]  # fmt: skip
    assert {secured_answer(KEYS, AGENT, each, NUMBER) for each in lies} == {None}


def test_every_changed_bit_of_a_genuine_answer_is_noticed_and_none_raises() -> None:
    datagram, open_ = answer(response()), plain(response())
    for bit in range(8 * len(datagram)):
        changed = bytearray(datagram)
        changed[bit // 8] ^= 1 << bit % 8
        assert secured_answer(KEYS, AGENT, bytes(changed), NUMBER) is None
        discovered_agent(bytes(changed), NUMBER)
    for cut in range(len(open_)):
        assert uptime(open_[:cut], b"c0mm", NUMBER) is None
        uptime(open_[:cut] + b"\xff" + open_[cut + 1 :], b"c0mm", NUMBER)


def reported(at: UsmVerifier, datagram: bytes) -> bytes:
    came = at.open(datagram, HOST, NOON)
    assert isinstance(came, RejectedMessage)
    assert came.report is not None
    return came.report


def test_a_discovered_agent_reports_its_engine_and_time() -> None:
    """The receiver's own gate answers such questions, so it is asked."""
    at = gate()
    report = reported(at, discovery_request(NUMBER))
    agent = discovered_agent(report, NUMBER)
    assert agent is not None
    assert agent.engine == at.own.engine
    assert discovered_agent(report, NUMBER + 1) is None
    keys = USERS.all_keys(USER, agent.engine)[0]
    blank = Agent(agent.engine, 0, 0)
    query = secured_question(keys, blank, USER, NUMBER, SALT)
    report = reported(at, query)
    assert secured_answer(keys, blank, report, NUMBER) == Agent(agent.engine, 7, 0)


def test_a_question_over_snmpv3_shows_nothing_but_who_asks() -> None:
    query = secured_question(KEYS, AGENT, USER, NUMBER, SALT)
    assert encode_oid("1.3.6.1.2.1.1.3.0") not in query
    head = secured(discovery_request(NUMBER))
    assert (head.engine, head.user, head.tag_size) == (b"", b"", 0)
    assert scoped(discovery_request(NUMBER), head.start, head.stop)


async def test_while_its_password_is_changed_an_agent_is_asked_by_both_and_first_by_the_one_that_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    users = Users([user(auth_password="the-new-password"), user()])
    asking, (new, old) = ByUser("127.0.0.1", 161, users, "tacet"), users.all_keys(b"tacet", ENGINE)
    query: list[Keys] = []

    async def introduction() -> bytes:
        return ENGINE

    async def told(agent: Agent, keys: Keys) -> int | None:
        query.append(keys)
        return 77 if keys == old else None

    monkeypatch.setattr(asking, "_discovered_engine", introduction)
    monkeypatch.setattr(asking, "_question", told)
    assert await asking.probe() == ProbeAnswer(77)
    assert await asking.probe() == ProbeAnswer(77)
    assert query == [new, old, old]


@pytest.mark.parametrize(("host", "request_type", "reply_type"), [("192.0.2.1", 8, 0), ("2001:db8::1", 128, 129)])
async def test_an_echo_is_answered_by_the_reply_of_its_own_version_with_its_own_octets(
    monkeypatch: pytest.MonkeyPatch, host: str, request_type: int, reply_type: int
) -> None:
    replies: list[Callable[[bytes], bytes | None]] = [
        lambda sent: sent,
        lambda sent: bytes([reply_type]) + sent[1:-1] + bytes([sent[-1] ^ 1]),
        lambda _: None,
    ]
    asked = list[bytes]()

    async def exchange(_: object, sent: bytes) -> Any:
        asked.append(sent)
        return replies[(len(asked) - 1) % len(replies)](sent)

    monkeypatch.setattr(methods, "exchange", exchange)
    monkeypatch.setattr(methods, "_socket", lambda _: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    assert await Echo(host).probe() is None
    assert [(sent[0], sent[1], int.from_bytes(sent[6:8], "big")) for sent in asked] == [
        (request_type, 0, number) for number in (1, 2, 3)
    ]
    replies[0] = lambda sent: bytes([reply_type]) + sent[1:]
    assert await Echo(host).probe() == ProbeAnswer()
    assert len(asked) == 4


async def test_a_source_that_is_silent_is_asked_three_times_and_a_web_server_is_given_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, given, timeout = list[bytes](), list[float | None](), asyncio.timeout

    async def exchange(_: object, sent: bytes) -> None:
        asked.append(sent)

    async def answered(_: Head) -> ProbeAnswer:
        return ProbeAnswer()

    def noted(seconds: float | None) -> asyncio.Timeout:
        given.append(seconds)
        return timeout(None)

    monkeypatch.setattr(methods, "exchange", exchange)
    assert await ByCommunity("127.0.0.1", 161, b"c0mm").probe() is None
    assert len(asked) == 3
    monkeypatch.setattr(Head, "_probe", answered)
    monkeypatch.setattr(asyncio, "timeout", noted)
    assert await Head("127.0.0.1", 443, None, None).probe() == ProbeAnswer()
    assert given == [3 * methods.WAIT] == [4.5]
