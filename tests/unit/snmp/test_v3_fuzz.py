"""Broken and hostile SNMPv3 messages: none is heard, none raises, and none is read that another decoder cannot read.

The other decoder is pysnmp's, on pyasn1. As many as wanted: ``python -m tests.unit.snmp.test_v3_fuzz 1000000``.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from pyasn1.codec.ber import decoder
from pyasn1.error import PyAsn1Error
from pyasn1.type import univ
from pyasn1.type.namedtype import NamedType, NamedTypes
from pysnmp.proto.mpmod.rfc3412 import HeaderData
from pysnmp.proto.secmod.rfc3414.service import UsmSecurityParameters

from connectors.sources.snmp.ber import MALFORMED_REASONS, SEQUENCE, MalformedTrap
from connectors.sources.snmp.drop_reasons import V3_REASONS
from connectors.sources.snmp.traps import decode
from connectors.sources.snmp.usm.messages import PRIVATE, is_v3, scoped, secured
from connectors.sources.snmp.usm.verifier import RejectedMessage, UsmVerifier
from stream.records import SECOND
from tests.unit.snmp.v3_controller import DISCOVER, HOST, NOON, PERSON, Controller, gate, informing, notification

BOUNDARIES = (0x00, 0x02, 0x04, 0x30, 0x7F, 0x80, 0x81, 0x84, 0xA6, 0xA7, 0xFF)


def shapes() -> tuple[bytes, ...]:
    """One message of each kind; all are genuine, so that one that is heard under the gate must be one of them."""
    sender, teller = Controller(), informing()
    plain = sender.keys(cipher=b"")
    return (
        DISCOVER, sender.trap(NOON), sender.trap(NOON, keys=plain), sender.trap(NOON, keys=None), teller.inform(NOON),
        teller.inform(NOON, keys=plain), teller.inform(NOON, boots=0, time=0), teller.inform(NOON, keys=None),
    )  # fmt: skip


SHAPES = shapes()


def mutated(rng: Random, whole: bytes) -> bytes:
    """Change up to four places, most of them in the header."""
    data = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        place = min(rng.randrange(len(data)), rng.randrange(len(data)))
        match rng.randrange(6):
            case 0:
                data[place] = rng.randrange(256)
            case 1:
                data[place] ^= 1 << rng.randrange(8)
            case 2:
                del data[place : place + rng.randint(1, 4)]
            case 3:
                data[place:place] = rng.randbytes(rng.randint(1, 4))
            case 4:
                data[place] = rng.choice(BOUNDARIES)
            case _:
                other = rng.choice(SHAPES)
                data[place:] = other[min(place, len(other)) :]
        if not data:
            return b"\0"
    return bytes(data)


class Message(univ.Sequence):  # type: ignore[misc]
    """A message whose last part is whatever it is: what is in it is no header."""

    componentType = NamedTypes(  # noqa: N815 - pyasn1's name
        NamedType("version", univ.Integer()),
        NamedType("globals", HeaderData()),
        NamedType("parameters", univ.OctetString()),
        NamedType("data", univ.Any()),
    )


class Context(univ.Sequence):  # type: ignore[misc]
    """A scoped PDU, whatever the PDU is."""

    componentType = NamedTypes(  # noqa: N815 - pyasn1's name
        NamedType("engine", univ.OctetString()), NamedType("name", univ.OctetString()), NamedType("pdu", univ.Any())
    )


MESSAGE, PARAMETERS, CONTEXT = Message(), UsmSecurityParameters(), Context()


def is_read_elsewhere(datagram: bytes) -> bool:
    """Whether pysnmp reads the header and its parameters, and pyasn1 what is around the PDU."""
    try:
        whole, rest = decoder.decode(datagram, asn1Spec=MESSAGE)
        _, behind = decoder.decode(bytes(whole["parameters"]), asn1Spec=PARAMETERS)
        data = bytes(whole["data"])
        _, beyond = decoder.decode(data, asn1Spec=CONTEXT if data[0] == SEQUENCE else univ.OctetString())
    except (PyAsn1Error, TypeError, IndexError):  # it raises the last two on malformed input as well
        return False
    return not (rest or behind or beyond)


def reads(datagram: bytes) -> bool:
    """Whether header and, where it is plain, scoped PDU and notification are taken by this project's decoders."""
    try:
        head = secured(datagram)
        if not head.flags & PRIVATE:
            scoped(datagram, head.start, head.stop)
    except MalformedTrap:
        return False
    return True


def fuzz_headers(count: int, seed: int) -> Counter[str]:
    """Return what became of changed messages; what is heard has to be one of those that were sent."""
    rng, became = random.Random(seed), Counter[str]()
    at = gate()
    for n in range(count):
        if n % 1000 == 0:
            at = gate()
        datagram = rng.randbytes(n % 97) if n % 50 == 0 else mutated(rng, rng.choice(SHAPES))
        read = reads(datagram)
        assert not read or (is_v3(datagram) and is_read_elsewhere(datagram)), datagram.hex()
        result = came(at, datagram)
        became[result] += 1
        assert result != "heard" or datagram in SHAPES, datagram.hex()
    return became


def came(at: UsmVerifier, datagram: bytes) -> str:
    try:
        received = at.open(datagram, HOST, NOON + SECOND)
        if isinstance(received, RejectedMessage):
            assert received.reason in V3_REASONS
            assert received.report is None or is_read_elsewhere(received.report)
            return received.reason
        trap = decode(received.plain, received.around)
    except MalformedTrap as error:
        return error.reason
    assert PERSON not in trap
    if trap.inform:
        assert is_read_elsewhere(at.respond(received, NOON + SECOND))
    return "heard"


def fuzz_contents(count: int, seed: int) -> Counter[str]:
    """Return what became of broken notifications that a real controller sealed."""
    rng, became = random.Random(seed), Counter[str]()
    senders: tuple[Callable[..., bytes], ...] = (Controller().trap, informing().inform)
    at = gate()
    for n in range(count):
        send, inform = senders[n % 2], n % 2 == 1
        pdu = mutated(rng, notification(n, inform=inform))
        options: dict[str, Any] = {"keys": Controller().keys()} if not inform else {}
        result = came(at, send(NOON, pdu=pdu, number=n, **options))
        became[result] += 1
    return became


def test_ten_thousand_changed_messages_are_refused_and_what_is_read_another_decoder_reads() -> None:
    became = fuzz_headers(10_000, 20261122)
    assert sum(became.values()) == 10_000
    assert set(became) <= {"heard", *MALFORMED_REASONS, *V3_REASONS}
    assert {"malformed", "truncated", "wrong_tag", "unknown_engine", "unknown_user", "discovery"} <= set(became)
    assert became["heard"] < 100  # a change that changes nothing


def test_two_thousand_broken_notifications_of_a_real_sender_are_refused_or_accepted() -> None:
    became = fuzz_contents(2_000, 20261122)
    assert became["heard"] > 100
    assert became["undecipherable"] > 100


if __name__ == "__main__":
    print(dict(fuzz_headers(int(sys.argv[1]), 1)), dict(fuzz_contents(int(sys.argv[1]) // 10, 1)))
