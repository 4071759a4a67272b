"""The decoder: what it reads out of a datagram, and that nothing else comes out."""

import contextlib
import random
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sources.ingest.addresses import access_point_name, mac
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.snmp import ber
from connectors.sources.snmp.ber import (
    MALFORMED,
    MALFORMED_REASONS,
    NO_TRAP_OID,
    TOO_MANY_VARBINDS,
    TRUNCATED,
    UNSUPPORTED_PDU,
    UNSUPPORTED_VERSION,
    MalformedTrap,
    encode_integer,
    encode_oid,
    tlv,
)
from connectors.sources.snmp.profiles import AUTHENTICATION_FAILURE, ENTERPRISES
from connectors.sources.snmp.sender import (
    Association,
    encode_associate,
    encode_cold_start,
    encode_keepalive,
    encode_notification,
    octets,
    varbind,
)
from connectors.sources.snmp.traps import (
    NO_ACCESS_POINT,
    NO_CLIENT,
    NOT_AN_OBSERVATION,
    UNKNOWN_TRAP,
    Trap,
    decode,
    envelope,
    respond,
)

CLIENT, RADIO = bytes.fromhex("5c520e123456"), bytes.fromhex("f84f57abcdef")
AIRESPACE = f"{ENTERPRISES}.14179.2.6"
NAME_COLUMN = f"{ENTERPRISES}.14179.2.2.1.1.3.0"
LWAPP = f"{ENTERPRISES}.9.9.599"
BASE: dict[str, Any] = {"community": b"tr4ps", "uptime": 4_075_268_204, "request_id": 77}


def aireos(number: int | str, *varbinds: bytes, **more: Any) -> bytes:
    return encode_notification(f"{AIRESPACE}.3.{number}", b"".join(varbinds), **(BASE | more))


def column(number: int, value: bytes) -> bytes:
    return varbind(f"{AIRESPACE}.2.{number}.0", value)


def uci_line(number: int) -> bytes:
    """The trap of UC Irvine's public feed, in the order in which the controller really sent it.

    35, 36, 37, 43, 34, 39, name: the MIB has 43, 39, 34. Empty user name, no address yet, reason 2, and an
    uptime of 471 days. Client and radio are whole here, the published line is cut.
    """
    return aireos(
        number,
        column(35, octets(RADIO)), column(36, encode_integer(0)), column(37, encode_integer(2)),
        column(43, tlv(0x40, bytes(4))), column(34, octets(CLIENT)), column(39, octets(b"")),
        varbind(NAME_COLUMN, octets(b"5172a-clwa-2144")),
    )  # fmt: skip


# ---- what a real controller sent -----------------------------------------------------------------------


def test_the_real_aireos_disassociation_says_which_access_point_the_client_left() -> None:
    trap = decode(uci_line(1))
    assert (trap.kind, trap.vendor, trap.client, trap.access_point, trap.name) == (
        Kind.LEAVE, "cisco-aireos", CLIENT, RADIO, b"5172a-clwa-2144",
    )  # fmt: skip
    assert trap.uptime == 4_075_268_204


def test_the_same_varbinds_as_an_association_place_the_client_at_the_radio() -> None:
    trap = decode(uci_line(53))
    assert (trap.kind, trap.client, trap.access_point, trap.name) == (
        Kind.ASSOCIATE, CLIENT, RADIO, b"5172a-clwa-2144",
    )  # fmt: skip
    assert (trap.version, trap.inform, trap.request_id) == (2, False, 77)
    assert trap.sighting == Sighting(Kind.ASSOCIATE, CLIENT, RADIO, b"5172a-clwa-2144", uptime=4_075_268_204)
    assert envelope(uci_line(53)).community == b"tr4ps"


def test_fields_are_found_by_identifier_in_every_order() -> None:
    parts = [
        column(35, octets(RADIO)), column(36, encode_integer(1)), column(43, tlv(0x40, b"\x0a\x02\x03\x04")),
        column(34, octets(CLIENT)), column(39, octets(b"someone")), varbind(NAME_COLUMN, octets(b"ap")),
    ]  # fmt: skip
    rng = random.Random(3)
    for _ in range(50):
        rng.shuffle(parts)
        trap = decode(aireos(53, *parts))
        assert (trap.client, trap.access_point, trap.name) == (CLIENT, RADIO, b"ap")


@pytest.mark.parametrize("number", [3, 4, 52])
def test_failing_is_no_observation(number: int) -> None:
    assert decode(uci_line(number)).reason == NOT_AN_OBSERVATION


VENDORS_ENDS: dict[str, tuple[str, bytes]] = {
    "cisco-aireos": (f"{AIRESPACE}.3.2", column(34, octets(CLIENT)) + column(35, octets(RADIO))),
    "cisco-lwapp": (
        f"{LWAPP}.0.6", varbind(f"{LWAPP}.1.3.1.1.8." + ".".join(map(str, CLIENT)), octets(RADIO)),
    ),
    "cisco-ios": (
        f"{ENTERPRISES}.9.9.273.1.4.1",
        varbind(f"{ENTERPRISES}.9.9.273.1.5.1.1.7", octets(CLIENT))
        + varbind(f"{ENTERPRISES}.9.9.273.1.5.1.6.7", octets(RADIO))
        + varbind(f"{ENTERPRISES}.9.9.273.1.5.1.9.7", encode_integer(2)),
    ),
    "aruba": (
        f"{ENTERPRISES}.14823.2.3.1.11.1.2.1219",
        varbind(f"{ENTERPRISES}.14823.2.3.1.11.1.1.52.0", octets(CLIENT))
        + varbind(f"{ENTERPRISES}.14823.2.3.1.11.1.1.3.0", octets(RADIO))
        + varbind(f"{ENTERPRISES}.14823.2.3.1.11.1.1.103.0", encode_integer(2)),
    ),
    "ruckus-zonedirector": (
        f"{ENTERPRISES}.25053.2.2.1.63",
        varbind(f"{ENTERPRISES}.25053.2.2.2.15.0", octets(b"5c:52:0e:12:34:56"))
        + varbind(f"{ENTERPRISES}.25053.2.2.2.18.0", octets(b"f8:4f:57:ab:cd:ef")),
    ),
    "huawei": (
        f"{ENTERPRISES}.2011.6.139.18.1.1.1.10",
        varbind(f"{ENTERPRISES}.2011.6.139.13.3.3.1.1.1", octets(RADIO))
        + varbind(f"{ENTERPRISES}.2011.6.139.18.1.2.1.1.1", octets(CLIENT)),
    ),
    "comware-hh3c": (
        f"{ENTERPRISES}.25506.2.75.3.2.0.5",
        varbind(f"{ENTERPRISES}.25506.2.75.3.2.1.2.0", octets(CLIENT))
        + varbind(f"{ENTERPRISES}.25506.2.75.3.2.1.11.0", octets(RADIO)),
    ),
    "aerohive": (
        f"{ENTERPRISES}.26928.1.1.1.1.1.4",
        varbind(f"{ENTERPRISES}.26928.1.1.1.1.2.14.0", encode_integer(1))
        + varbind(f"{ENTERPRISES}.26928.1.1.1.1.2.10.0", encode_integer(2))
        + varbind(f"{ENTERPRISES}.26928.1.1.1.1.2.15.0", octets(CLIENT))
        + varbind(f"{ENTERPRISES}.26928.1.1.1.1.2.1.0", octets(RADIO)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("vendor", VENDORS_ENDS)
def test_a_trap_that_a_device_left_names_its_access_point(vendor: str) -> None:
    """By their MIBs; ``tests/integration/test_snmptrap.py`` has all of them, made by net-snmp."""
    oid, varbinds = VENDORS_ENDS[vendor]
    trap = decode(encode_notification(oid, varbinds, **BASE))
    assert (trap.vendor, trap.kind, trap.client, trap.access_point) == (vendor, Kind.LEAVE, CLIENT, RADIO)


# ---- forms of the same thing ---------------------------------------------------------------------------


def test_version_1_is_the_same_trap_under_its_rfc_3584_identifier() -> None:
    one, two = (decode(encode_associate(Association(CLIENT, RADIO), version=v, **BASE)) for v in (1, 2))
    assert (one.version, one.request_id) == (1, 0)
    assert one._replace(version=2, request_id=77) == two
    assert decode(aireos("0.53", column(34, octets(CLIENT)), column(35, octets(RADIO)))).kind is Kind.ASSOCIATE


def test_the_station_is_in_the_index_if_lwapp_has_no_other_field_for_it() -> None:
    index = ".".join(map(str, CLIENT))
    datagram = encode_notification(
        f"{LWAPP}.0.7",
        varbind(f"{LWAPP}.1.3.1.1.8.{index}", octets(RADIO))
        + varbind(f"{LWAPP}.1.3.1.1.27.{index}", octets(b"someone")),
        **BASE,
    )
    trap = decode(datagram)
    assert (trap.kind, trap.client, trap.access_point) == (Kind.ASSOCIATE, CLIENT, RADIO)


@pytest.mark.parametrize("index", ["1.2.3.4.5", "1.2.3.4.5.6.7", "6.1.2.3.4.5.6", "300.1.2.3.4.5", "0"])
def test_an_index_that_is_not_six_octets_is_no_station(index: str) -> None:
    datagram = encode_notification(f"{LWAPP}.0.7", varbind(f"{LWAPP}.1.3.1.1.8.{index}", octets(RADIO)), **BASE)
    assert decode(datagram).reason == NO_CLIENT


def test_a_large_lwapp_trap_of_75_varbinds_is_read() -> None:
    filler = b"".join(varbind(f"{LWAPP}.1.2.{n}.0", octets(b"x" * 20)) for n in range(1, 74))
    where = varbind(f"{LWAPP}.1.3.1.1.1.0", octets(CLIENT)) + varbind(f"{LWAPP}.1.3.1.1.8.0", octets(RADIO))
    trap = decode(encode_notification(f"{LWAPP}.0.11", filler + where, **BASE))
    assert (trap.kind, trap.client) == (Kind.RUN, CLIENT)


@pytest.mark.parametrize(
    "text",
    [
        CLIENT,
        b"5c:52:0e:12:34:56",
        b"5C:52:0E:12:34:56",
        b"5c:52:e:12:34:56",
        b"5c-52-0e-12-34-56",
        b"5c52.0e12.3456",
        b"5c52-0e12-3456",
        b"5c520e123456",
        b'"0x5c520e123456"',
        b"5c:52:0e:12:34:56\x00",
        b" 5c520e123456 ",
        b"5c 52 0e 12 34 56",
        b"5C 52 E 12 34 56 ",
        b"5c.52.0e.12.34.56",
        b"5c_52_0e_12_34_56",
        b"5c520e-123456",
        b"5c520e:123456",
        b"5c520e.123456",
        b"5c520e 123456",
        b"5c52 0e12 3456",
        b"5c:52:0e:12:34:56@lobby",
        b"5c520e123456@5th floor",
        b"lobby@5c:52:0e:12:34:56",
        b"0x5C520E123456",
        b"0X5c520e123456",
    ],
)
def test_all_text_forms_of_an_address(text: bytes) -> None:
    assert mac(text) == CLIENT


def test_six_octets_are_raw_even_when_they_can_be_read() -> None:
    assert mac(b"ABCDEF") == b"ABCDEF"


@pytest.mark.parametrize(
    "text",
    [
        b"5c:52-0e:12-34:56",
        b"5c520e12-3456",
        b"a@b",
        b"@",
        b"0" * 12 + b"@" * 60_000,
        b"",
        b"5c:52:0e:12:34",
        b"5c:52:0e:12:34:56:78",
        b"5g:52:0e:12:34:56",
        b"lobby",
        b"0x",
        b"123.456.789",
    ],
)
def test_other_texts_are_not_addresses(text: bytes) -> None:
    assert mac(text) is None


def test_an_access_point_with_address_and_name_has_both() -> None:
    base = f"{ENTERPRISES}.25053.2.2"
    client = varbind(f"{base}.2.15.0", octets(b"5c:52:e:12:34:56"))
    for written in (b"f8:4f:57:ab:cd:ef@lobby", b"lobby@f8:4f:57:ab:cd:ef"):
        trap = decode(encode_notification(f"{base}.1.60", client + varbind(f"{base}.2.18.0", octets(written)), **BASE))
        assert (trap.client, trap.access_point, trap.name) == (CLIENT, RADIO, b"lobby")


def test_a_name_that_no_access_point_can_have_is_dropped() -> None:
    """It would lie in memory with every trap that waits and every inform that was heard."""
    assert decode(encode_associate(Association(CLIENT, RADIO, name=b"n" * 256), **BASE)).name == b"n" * 256
    assert decode(encode_associate(Association(CLIENT, RADIO, name=b"n" * 257), **BASE)).name == b""


def test_names_are_printable_text_of_bounded_length() -> None:
    assert access_point_name("Hörsaal 3\x00".encode()) == "Hörsaal 3"
    assert [access_point_name(b) for b in (b"", b"\xff\xfe", b"a\nb", b"x" * 65)] == [None] * 4


@pytest.mark.parametrize("client", ["000000000000", "ffffffffffff", "01005e000001"])
def test_zeros_and_group_addresses_are_not_stations(client: str) -> None:
    assert decode(encode_associate(Association(bytes.fromhex(client), RADIO), **BASE)).reason == NO_CLIENT


def test_an_access_point_of_zeros_without_a_name_is_none() -> None:
    assert decode(encode_associate(Association(CLIENT, bytes(6)), **BASE)).reason == NO_ACCESS_POINT
    assert decode(encode_associate(Association(CLIENT, bytes(6), name=b"lobby"), **BASE)).name == b"lobby"


def test_keep_alives_restarts_and_strangers() -> None:
    for version in (1, 2):
        assert decode(encode_keepalive(version=version, community=b"c", uptime=6000))[0] is Kind.KEEPALIVE
        assert decode(encode_cold_start(version=version, community=b"c"))[0] is Kind.RESTART
    assert decode(encode_keepalive(community=b"c", uptime=2**32 + 5)).uptime == 5
    assert decode(encode_notification("1.3.6.1.4.1.99999.1", **BASE)).reason == UNKNOWN_TRAP


@pytest.mark.parametrize("version", [1, 2])
def test_only_authentication_failure_reports_a_refusal(version: int) -> None:
    trap = decode(encode_notification(AUTHENTICATION_FAILURE, **(BASE | {"version": version})))
    assert trap.reports_refusal
    assert trap.reason == NOT_AN_OBSERVATION
    for other in (uci_line(3), uci_line(53), encode_cold_start(community=b"c"), aireos(99)):
        assert not decode(other).reports_refusal


def test_long_lengths_of_up_to_four_octets_mean_the_same() -> None:
    def long(tag: int, content: bytes, octet_count: int) -> bytes:
        return bytes((tag, 0x80 | octet_count)) + len(content).to_bytes(octet_count, "big") + content

    for n in (1, 2, 3, 4):

        def bind(oid: str, value: bytes, n: int = n) -> bytes:
            return long(0x30, long(0x06, encode_oid(oid), n) + long(value[0], value[2:], n), n)

        binds = bind("1.3.6.1.6.3.1.1.4.1.0", tlv(0x06, encode_oid(f"{AIRESPACE}.3.53")))
        binds += bind(f"{AIRESPACE}.2.34.0", octets(CLIENT)) + bind(f"{AIRESPACE}.2.35.0", octets(RADIO))
        pdu = long(0xA7, encode_integer(1) + encode_integer(0) * 2 + long(0x30, binds, n), n)
        datagram = long(0x30, encode_integer(1) + long(0x04, b"c", n) + pdu, n)
        assert (decode(datagram).client, decode(datagram).uptime) == (CLIENT, None)


# ---- strictness ----------------------------------------------------------------------------------------


def reason(datagram: bytes) -> str:
    with pytest.raises(MalformedTrap) as refused:
        decode(datagram)
    assert refused.value.reason in MALFORMED_REASONS
    return refused.value.reason


GOOD = uci_line(53)


def v2(binds: bytes, version: int = 1, tag: int = 0xA7, beside: bytes = b"") -> bytes:
    head = encode_integer(1) + encode_integer(0) * 2
    return tlv(0x30, encode_integer(version) + octets(b"c") + tlv(tag, head + tlv(0x30, binds) + beside))


TRAP_OID = varbind("1.3.6.1.6.3.1.1.4.1.0", tlv(0x06, encode_oid(f"{AIRESPACE}.3.53")))


def test_the_whole_datagram_must_be_consumed() -> None:
    assert reason(GOOD + b"\x00") == MALFORMED
    for size in range(len(GOOD)):
        assert reason(GOOD[:size]) == TRUNCATED


@pytest.mark.parametrize(
    ("datagram", "why"),
    [
        (b"", TRUNCATED),
        (b"\x30\x80" + GOOD[3:] + b"\x00\x00", MALFORMED),  # indefinite
        (b"\x30\x85\x00\x00\x00\x00" + GOOD[2:], MALFORMED),  # length of five octets
        (b"\x3f\x81" + GOOD[2:], MALFORMED),  # tag of more than one octet
        (v2(TRAP_OID, version=3), UNSUPPORTED_VERSION),
        (v2(TRAP_OID, version=2), UNSUPPORTED_VERSION),
        (v2(TRAP_OID, tag=0xA2), UNSUPPORTED_PDU),
        (v2(TRAP_OID, version=0), UNSUPPORTED_PDU),
        (v2(b""), NO_TRAP_OID),
        (v2(TRAP_OID + tlv(0x30, tlv(0x06, b"\x2b\x80\x01") + b"\x05\x00")), MALFORMED),  # padded
        (v2(TRAP_OID + tlv(0x30, tlv(0x06, b"\x2b\x86") + b"\x05\x00")), MALFORMED),  # unfinished
        (v2(TRAP_OID + tlv(0x30, tlv(0x06, b"\x2b\x9f\xff\xff\xff\x7f") + b"\x05\x00")), MALFORMED),  # 2**32
        (v2(TRAP_OID + tlv(0x30, tlv(0x06, b"") + b"\x05\x00")), MALFORMED),
        (v2(TRAP_OID + tlv(0x30, tlv(0x06, b"\x2b\x06") + tlv(0x30, b""))), MALFORMED),  # nested
        (v2(TRAP_OID + tlv(0x30, tlv(0x06, b"\x2b\x06") + tlv(0x04, b"") + tlv(0x04, b""))), MALFORMED),
        (v2(TRAP_OID + tlv(0x30, tlv(0x06, b"\x2b\x06"))), TRUNCATED),
        (v2(TRAP_OID, beside=column(34, octets(CLIENT))), MALFORMED),
        (v2(TRAP_OID + tlv(0x30, b"") + TRAP_OID), TRUNCATED),  # another one follows what is missing
        (v2(varbind("1.3.6.1.6.3.1.1.4.1.0", octets(b"x"))), MALFORMED),
        (v2(TRAP_OID + varbind("1.3.6.1.2.1.1.3.0", encode_integer(5))), MALFORMED),
        (v2(TRAP_OID + varbind("1.3.6.1.2.1.1.3.0", tlv(0x43, b"\x01" + bytes(4)))), MALFORMED),
        (v2(TRAP_OID + column(34, octets(CLIENT)) + column(34, octets(RADIO))), MALFORMED),  # contradiction
    ],
)  # fmt: skip
def test_invalid_messages_are_refused_with_a_reason(datagram: bytes, why: str) -> None:
    assert reason(datagram) == why


def test_an_envelope_is_read_without_its_content() -> None:
    broken = v2(b"\x30\x80")
    assert envelope(broken).community == b"c"
    assert repr(envelope(broken)) == "Envelope()"
    assert reason(broken) == TRUNCATED
    for datagram in (
        b"",
        GOOD[:-1],
        GOOD + b"\x00",
        v2(TRAP_OID, version=3),
        v2(TRAP_OID, tag=0xA2),
        b"\x30\x03\x02\x01\x01",
    ):
        with pytest.raises(MalformedTrap) as refused:
            envelope(datagram)
        assert refused.value.reason == reason(datagram)


def test_an_index_of_any_length_is_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """159 bindings with long indices once cost 3 ms: half a thousand traps' worth."""
    walked = []

    def walk(oid: bytes) -> list[int]:
        walked.append(len(oid))
        return ber.sub_identifiers(oid)

    monkeypatch.setattr("connectors.sources.snmp.traps.sub_identifiers", walk)
    long_index = ".".join(["4294967295"] * 110)
    filler = varbind(f"{LWAPP}.1.3.1.1.99.{long_index}", b"\x05\x00") * 100
    indexed = varbind(f"{LWAPP}.1.3.1.1.8.{'.'.join(map(str, CLIENT))}", octets(RADIO))
    trap = decode(encode_notification(f"{LWAPP}.0.7", filler + indexed, **BASE))
    assert trap.client == CLIENT
    assert len(walked) == 1


def test_at_most_160_varbinds() -> None:
    filler = varbind("1.3.6.1.4.1.99999.1.0", b"\x05\x00")
    assert decode(v2(TRAP_OID + filler * 159)).kind is Kind.IGNORED
    assert reason(v2(TRAP_OID + filler * 160)) == TOO_MANY_VARBINDS


def test_a_hundred_thousand_nested_sequences_are_refused_without_recursion() -> None:
    nested = b""
    for _ in range(15_000):
        nested = tlv(0x30, nested)
    assert reason(nested) == MALFORMED


SHAPES = [
    GOOD,
    uci_line(1),
    encode_associate(Association(CLIENT, RADIO), version=1, **BASE),
    encode_associate(Association(CLIENT, RADIO, user=b"someone"), inform=True, **BASE),
    encode_keepalive(community=b"c", uptime=1),
    encode_notification(f"{LWAPP}.0.7", varbind(f"{LWAPP}.1.3.1.1.8.1.2.3.4.5.6", octets(RADIO)), **BASE),
]


def mutated(rng: Random) -> bytes:
    data = bytearray(rng.choice(SHAPES))
    for _ in range(rng.randint(1, 5)):
        place = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[place] = rng.randrange(256)
            case 1:
                data[place] ^= 1 << rng.randrange(8)
            case 2 if len(data) > 1:
                del data[place : place + rng.randint(1, 4)]
            case 3:
                data[place:place] = rng.randbytes(rng.randint(1, 4))
            case _:
                data[place] = rng.choice([0x00, 0x30, 0x7F, 0x80, 0x81, 0x84, 0xFF])
        if not data:
            break
    return bytes(data)


def test_forty_thousand_broken_datagrams_give_traps_or_malformed_trap_and_nothing_else() -> None:
    rng, refused, read = random.Random(20180201), 0, 0
    for n in range(40_000):
        datagram = mutated(rng) if n % 4 else rng.randbytes(rng.randrange(120))
        try:
            trap = decode(datagram)
        except MalformedTrap as error:
            refused += error.reason in MALFORMED_REASONS
            continue
        read += 1
        assert isinstance(trap, Trap)
        assert len(trap.client) in {0, 6}
        assert len(trap.access_point) in {0, 6}
        if trap.inform:
            assert len(respond(datagram)) == len(datagram)
    assert refused + read == 40_000
    assert min(refused, read) > 2_000


@given(st.binary(max_size=300))
def test_arbitrary_octets_are_refused_or_read(data: bytes) -> None:
    for start in (b"", b"\x30", GOOD[:20]):
        with contextlib.suppress(MalformedTrap):
            decode(start + data)


@given(st.integers(-(2**31), 2**31 - 1))
def test_integers_come_back(value: int) -> None:
    data = encode_integer(value)
    assert ber.integer(data, 0, len(data)) == (value, len(data))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_identifiers_come_back_and_are_well_formed(numbers: list[int]) -> None:
    encoded = b"".join(map(ber.encode_sub_identifier, numbers))
    ber.check_oid(encoded)
    assert ber.sub_identifiers(encoded) == numbers


# ---- informs -------------------------------------------------------------------------------------------


def test_the_answer_repeats_the_inform_as_a_response_without_error() -> None:
    inform = encode_associate(Association(CLIENT, RADIO), inform=True, **BASE)
    assert decode(inform).inform
    answer = respond(inform)
    changed = [n for n in range(len(inform)) if answer[n] != inform[n]]
    assert [(inform[n], answer[n]) for n in changed] == [(0xA6, 0xA2)]


def test_an_answer_never_carries_an_error_status() -> None:
    pdu = encode_integer(9) + encode_integer(5) + encode_integer(3) + tlv(0x30, TRAP_OID)
    inform = tlv(0x30, encode_integer(1) + octets(b"c") + tlv(0xA6, pdu))
    expected = tlv(0xA2, encode_integer(9) + encode_integer(0) * 2 + tlv(0x30, TRAP_OID))
    assert respond(inform) == tlv(0x30, encode_integer(1) + octets(b"c") + expected)
    with pytest.raises(MalformedTrap):
        respond(GOOD)


# ---- privacy -------------------------------------------------------------------------------------------


def test_names_addresses_networks_and_communities_are_neither_kept_nor_shown() -> None:
    person, ip, community = b"anne.canary@example.org", b"\x0a\x63\x07\xc6", b"canary-community"
    trap = decode(
        encode_associate(Association(CLIENT, RADIO, user=person, address=ip), **BASE | {"community": community})
    )
    stored = b"|".join(repr(value).encode() if not isinstance(value, bytes) else value for value in trap)
    assert person not in stored
    assert ip not in stored
    assert community not in stored
    cover = envelope(encode_associate(Association(CLIENT, RADIO), **BASE | {"community": community}))
    assert cover.community == community, "needed to be compared"
    for shown in (repr(trap), str(trap), f"{trap}", f"{[trap]}", repr(cover), f"{[cover]}"):
        assert "canary" not in shown
        for address in (CLIENT, RADIO):
            assert address.hex() not in shown
            assert repr(address) not in shown


def test_network_names_and_sessions_of_lwapp_are_not_kept() -> None:
    secrets = {28: b"canary-ssid", 38: b"canary-session", 27: b"canary-user"}
    binds = b"".join(varbind(f"{LWAPP}.1.3.1.1.{n}.0", octets(value)) for n, value in secrets.items())
    binds += varbind(f"{LWAPP}.1.3.1.1.1.0", octets(CLIENT)) + varbind(f"{LWAPP}.1.3.1.1.8.0", octets(RADIO))
    trap = decode(encode_notification(f"{LWAPP}.0.4", binds, **BASE))
    assert trap.client == CLIENT
    assert "canary" not in "".join(str(value) for value in tuple(trap))


def test_an_error_tells_a_reason_and_nothing_of_the_datagram() -> None:
    with pytest.raises(MalformedTrap) as refused:
        decode(GOOD[:-1])
    assert str(refused.value) == "datagram refused: truncated"
    assert refused.value.args == ("datagram refused: truncated",)
    assert refused.value.__cause__ is None


# --- headers ------------------------------------------------------------------------------------------


def outcome(read: Callable[[], tuple[int, int]]) -> tuple[int, int] | str:
    """Return where content lies, or why it does not."""
    try:
        return read()
    except MalformedTrap as error:
        return error.reason
    except IndexError:
        return "data ended"


@pytest.mark.parametrize("tail", [b"", b"\x00", b"\x03abc", b"\x00\x02ab", b"abcdef", b"\xff" * 4])
def test_a_header_ends_within_what_it_lies_in_however_its_length_is_written(tail: bytes) -> None:
    for first in range(256):
        data = bytes((ber.SEQUENCE, first)) + tail
        for end in range(1, len(data) + 1):
            got = outcome(partial(ber.header, data, 0, end, ber.SEQUENCE))
            assert got == outcome(partial(ber.length, data, 1, end))
            assert isinstance(got, str) or got[1] <= end
