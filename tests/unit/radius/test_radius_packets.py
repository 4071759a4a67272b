"""What an accounting request is, what it says, and what answers it; pyrad has a second opinion."""

from __future__ import annotations

from typing import Any

import pytest
from pyrad.packet import AcctPacket, Packet

from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.radius.decoder import RefusedPacket, Request, account, read, respond
from stream.records import SECOND
from tests.unit.radius.accounting_requests import (
    INTERIM,
    NETWORK,
    OFF,
    OLD_SECRET,
    ON,
    SECRET,
    START,
    STOP,
    USER,
    accounting,
    attribute,
    attributes,
    packet,
    request,
    status_server,
)

ANNE, RADIO = bytes.fromhex("3c0000000001"), bytes.fromhex("020000000001")
NOW = 1_790_000_000 * SECOND


def refusal(datagram: bytes, *secrets: bytes) -> str:
    with pytest.raises(RefusedPacket) as refused:
        read(datagram, secrets or (SECRET,))
    assert str(refused.value) == f"datagram refused: {refused.value.reason}"
    return refused.value.reason


def said(status: int = START, **more: Any) -> Sighting:
    return account(read(request(status, **more), (SECRET,)), NOW).sighting


def ignored(**more: Any) -> str:
    return account(read(packet(attributes(**more)), (SECRET,)), NOW).reason


# ---- who may say it --------------------------------------------------------------------------------------


def test_a_request_is_genuine_under_its_secret_and_under_the_one_before_while_both_are_valid() -> None:
    assert read(request(), (SECRET,)).secret == SECRET
    assert read(request(secret=OLD_SECRET), (SECRET, OLD_SECRET)).secret == OLD_SECRET
    assert refusal(request(secret=OLD_SECRET)) == "bad_authenticator"


@pytest.mark.parametrize("place", [1, 4, 19, 25, -1])
def test_a_request_of_which_one_octet_was_changed_is_not_genuine(place: int) -> None:
    forged = bytearray(request())
    forged[place] ^= 1
    assert refusal(bytes(forged)) == "bad_authenticator"


def test_a_message_authenticator_is_checked_wherever_there_is_one() -> None:
    tagged = packet(accounting(), tagged=True)
    assert read(tagged, (OLD_SECRET, SECRET)).secret == SECRET
    wrong = packet(attribute(80, bytes(16)) + accounting())
    assert refusal(wrong) == "bad_message_authenticator"
    assert refusal(packet(attribute(80, bytes(15)) + accounting())) == "malformed"
    assert refusal(packet(attribute(80, bytes(16)) * 2 + accounting())) == "malformed"


def test_a_status_server_request_needs_a_message_authenticator() -> None:
    query = read(status_server(), (OLD_SECRET, SECRET))
    assert account(query, NOW).sighting == Sighting(Kind.KEEPALIVE)
    assert refusal(status_server(tagged=False)) == "bad_message_authenticator"
    assert refusal(status_server(secret=OLD_SECRET)) == "bad_message_authenticator"


# ---- what is one -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (b"", "truncated"),
        (request()[:19], "truncated"),
        (request()[:-1], "truncated"),
        (b"\x01" + request()[1:], "unsupported_code"),
        (b"\x05" + request()[1:], "unsupported_code"),
        (request()[:2] + b"\x00\x13" + request()[4:], "malformed"),
        (request()[:2] + b"\x10\x01" + request()[4:] + bytes(5000), "malformed"),
        (packet(b"\x28"), "malformed"),
        (packet(b"\x28\x01\x28"), "malformed"),
        (packet(b"\x28\x00"), "malformed"),
        (packet(b"\x28\x07\x00\x00\x00\x01"), "malformed"),
        (packet(attribute(40, b"\x01")), "malformed"),
        (packet(attributes(status=1) + attributes(status=2)), "malformed"),
    ],
)
def test_other_packets_are_refused_for_one_reason(datagram: bytes, reason: str) -> None:
    assert refusal(datagram) == reason


def test_octets_behind_the_declared_length_are_padding() -> None:
    assert read(request() + b"\x00anything", (SECRET,)).attributes == read(request(), (SECRET,)).attributes


def test_a_request_without_status_says_nothing_that_could_be_answered() -> None:
    with pytest.raises(RefusedPacket, match="malformed"):
        account(read(packet(attributes(calling="3c0000000001")), (SECRET,)), NOW)


def test_users_networks_and_all_attributes_but_the_kept_ones_stay_in_the_decoder() -> None:
    found = read(request(multi_session="canary"), (SECRET,))
    assert set(found.attributes) == {40, 31, 30, 44, 32}
    assert repr(found) == "Request(code 4)"
    shown = repr(found) + repr(account(found, NOW)) + str(account(found, NOW).sighting)
    for secret in (USER, b"canary", b"3C-00", b"020000000001", SECRET):
        assert secret not in account(found, NOW).sighting
        assert secret.decode() not in shown
    assert NETWORK not in b"".join(part for part in account(found, NOW).sighting if isinstance(part, bytes))


# ---- what it says ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [(START, Kind.ASSOCIATE), (INTERIM, Kind.RUN), (STOP, Kind.LEAVE), (ON, Kind.RESTART), (OFF, Kind.RESTART)],
)
def test_the_status_says_whether_a_device_has_come_is_there_or_has_left(status: int, kind: Kind) -> None:
    assert said(status).kind is kind


@pytest.mark.parametrize("status", [0, 9, 15, 2**32 - 1])
def test_other_statuses_give_no_sighting(status: int) -> None:
    assert ignored(status=status, calling="3c0000000001", called="020000000001") == "not_an_observation"


@pytest.mark.parametrize(
    "written",
    ["3C-00-00-00-00-01", "3c:00:00:00:00:01", "3c00.0000.0001", "3C0000000001", "3c0000-000001", "3c:0:0:0:0:1"],
)
def test_a_device_is_known_in_every_spelling(written: str) -> None:
    assert said(calling=written).client == ANNE


@pytest.mark.parametrize("written", ["", "anne", "00-00-00-00-00-00", "01-00-5e-00-00-01", "+49 30 1234567", "3C-00"])
def test_an_address_that_is_no_stations_is_no_client(written: str) -> None:
    assert ignored(status=1, calling=written, called="020000000001") == "no_client"


@pytest.mark.parametrize(
    "written",
    [
        "02-00-00-00-00-01:eduroam", "02-00-00-00-00-01", "02:00:00:00:00:01:eduroam", "020000000001:cafe",
        "0200.0000.0001:a:b", "020000-000001:cafe net", "02-00-00-00-00-01;cafe", "2:0:0:0:0:1:cafe",
    ],
)  # fmt: skip
def test_an_access_point_is_known_in_every_spelling_and_without_its_network(written: str) -> None:
    assert (said(called=written).access_point, said(called=written).name) == (RADIO, b"wlc-west")


def test_an_access_point_that_is_named_is_known_by_its_name() -> None:
    assert said(called="lobby-2:eduroam")[2:4] == (b"", b"lobby-2")
    assert said(called="lobby1")[2:4] == (b"", b"lobby1"), "six characters are no address"
    assert said(called="", nas="lobby-2")[2:4] == (b"", b"lobby-2")
    alone = packet(attributes(status=1, calling="3c0000000001", nas_ip=0x0A020005))
    assert account(read(alone, (SECRET,)), NOW).sighting[2:4] == (b"", b"10.2.0.5")
    assert ignored(status=1, calling="3c0000000001") == "no_access_point"


@pytest.mark.parametrize(
    ("told", "age"),
    [
        ({}, 0),
        ({"delay": 7}, 7),
        ({"timestamp": NOW // SECOND - 9}, 9),
        ({"timestamp": NOW // SECOND - 9, "delay": 7}, 9),
        ({"timestamp": NOW // SECOND - 7, "delay": 9}, 9),
        ({"timestamp": NOW // SECOND + 5, "delay": 9}, -5),
        ({"timestamp": 0}, NOW // SECOND),
        ({"delay": 2**32 - 1}, 2**32 - 1),
    ],
)
def test_its_age_is_what_delay_or_timestamp_say_and_the_older_of_both(told: dict[str, int], age: int) -> None:
    assert said(**told).age == age * SECOND


def test_a_stay_is_identified_by_the_session_and_its_sender() -> None:
    assert said().session == said(STOP).session != b""
    assert len({said().session, said(session="5A40").session, said(nas="wlc-east").session}) == 3
    assert said(nas="wlc", session="west5A3F").session != said(nas="wlcwest", session="5A3F").session
    assert said(session="").session == b""


@pytest.mark.parametrize("status", [START, INTERIM, STOP])
def test_a_server_that_restarts_is_the_one_that_reported(status: int) -> None:
    assert said(status).nas == said(ON).nas == said(OFF).nas != b""
    assert said(ON, nas="wlc-east").nas != said(status).nas
    assert said(ON, nas="").nas == b"", "without a name it ends nothing"
    assert said(ON, delay=7).age == 7 * SECOND


# ---- what answers it -------------------------------------------------------------------------------------


def reply_to(datagram: bytes, secret: bytes = SECRET) -> tuple[Packet, bytes]:
    """Return a request as pyrad makes it of the octets, and the answer to it."""
    return AcctPacket(packet=datagram, secret=secret), respond(read(datagram, (secret,)))


@pytest.mark.parametrize(
    "datagram",
    [request(), packet(accounting(), tagged=True), status_server()],
    ids=["plain", "tagged", "status-server"],
)
def test_another_implementation_takes_the_answer_for_genuine(datagram: bytes) -> None:
    query, answer = reply_to(datagram)
    reply = query.CreateReply(packet=answer)
    assert (reply.code, reply.id) == (5, query.id)
    assert query.VerifyReply(reply, answer, enforce_ma=datagram != request())
    assert query.VerifyAcctRequest()


def test_an_answer_repeats_the_proxies_words_in_their_order_and_nothing_else() -> None:
    body = attributes(proxy=b"first") + accounting() + attributes(proxy=b"") + attributes(proxy=b"second")
    answer = respond(read(packet(body), (SECRET,)))
    assert answer[20:] == attributes(proxy=b"first") + attributes(proxy=b"") + attributes(proxy=b"second")
    assert respond(read(request(), (SECRET,)))[20:] == b""


def test_the_same_request_has_the_same_answer() -> None:
    again: Request = read(request(), (SECRET,))
    assert respond(again) == respond(read(request(), (OLD_SECRET, SECRET)))


# ---- logins ----------------------------------------------------------------------------------------------


def test_a_login_is_read_only_where_it_is_asked_for() -> None:
    body = accounting(user="Anne@example.org") + attribute(89, b"\x01opaque")
    assert (said(user="anne").user_name, said(user="anne").cui) == (b"", b"")
    for kind, user_name, cui in ((1, b"Anne@example.org", b""), (89, b"", b"\x01opaque")):
        heard = account(read(packet(body), (SECRET,), [kind]), NOW).sighting
        assert (heard.user_name, heard.cui) == (user_name, cui)
        assert "Anne" not in repr(heard)


def test_two_logins_in_one_request_contradict_each_other() -> None:
    body = accounting(user="anne") + attribute(1, b"bert")
    assert account(read(packet(body), (SECRET,)), NOW).sighting.client == ANNE, "unread where nobody counts logins"
    with pytest.raises(RefusedPacket):
        read(packet(body), (SECRET,), [1])
