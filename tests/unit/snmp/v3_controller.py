"""A controller that speaks SNMPv3, and the gate that hears it; for the tests of both."""

from dataclasses import dataclass, field, replace
from typing import Any

from connectors.sources.snmp.ber import INFORM, SEQUENCE, TRAP_V2, encode_integer, tlv
from connectors.sources.snmp.sender import Association, encode_associate
from connectors.sources.snmp.traps import envelope
from connectors.sources.snmp.usm.engines import Engines
from connectors.sources.snmp.usm.messages import REPORTABLE, Claim, encode_context, encode_scoped
from connectors.sources.snmp.usm.protocols import Keys, sealed
from connectors.sources.snmp.usm.users import Source, User, Users
from connectors.sources.snmp.usm.verifier import OwnEngine, UsmVerifier
from stream.records import DAY, SECOND, Micros

ENGINE, OTHER_ENGINE, OWN = (
    bytes.fromhex(text) for text in ("800000090300f84f57abcdef", "80000009030001", "8000000005aa")
)
HOST, STRANGER = "10.2.0.5", "10.2.0.6"
NOON = 17_563 * DAY
AUTH, PRIVACY = "auth-canary-1", "priv-canary-2"
CLIENT, RADIO, PERSON = bytes.fromhex("5c520e123456"), bytes.fromhex("f84f57abcdef"), b"anne.canary@example.org"


def user(**more: Any) -> User:
    given = {"name": "tacet", "auth": "SHA-256", "auth_password": AUTH, "privacy_password": PRIVACY}
    return User.model_validate({key: value for key, value in (given | more).items() if value is not None}, strict=False)


def source(**more: Any) -> Source:
    return Source.model_validate({"address": HOST, "engines": [ENGINE.hex()]} | more, strict=False)


USERS = Users([user()], [source()])


def gate(users: Users = USERS, engines: Engines | None = None, **own: Any) -> UsmVerifier:
    return UsmVerifier(users, OwnEngine(OWN, 7, NOON)._replace(**own), engines or Engines(), 0)


def notification(request_id: int = 1, *, inform: bool = False) -> bytes:
    """The PDU of an association, as a controller sends it in version 2c too."""
    seen = Association(CLIENT, RADIO, user=PERSON)
    whole = encode_associate(seen, community=b"", uptime=77, request_id=request_id, inform=inform)
    around = envelope(whole)
    return tlv(INFORM if inform else TRAP_V2, whole[around.start : around.stop])


@dataclass
class Controller:
    """Whoever sends: what it says of itself is settable, so that it can lie."""

    engine: bytes = ENGINE
    name: bytes = b"tacet"
    boots: int = 3
    started: Micros = NOON - 1000 * SECOND
    users: Users = USERS
    salt: int = 0
    sent: list[bytes] = field(default_factory=list)

    def time(self, now: Micros) -> int:
        return (now - self.started) // SECOND

    def keys(self, **more: Any) -> Keys:
        return self.users.all_keys(self.name, self.engine)[0]._replace(**more)

    def trap(self, now: Micros, number: int = 1, **more: Any) -> bytes:
        """One trap; ``keys``, ``time``, ``boots``, ``pdu`` and ``flags`` may be given."""
        return self._send(now, notification(number), 0, more)

    def inform(self, now: Micros, number: int = 1, **more: Any) -> bytes:
        return self._send(now, notification(number, inform=True), REPORTABLE, more)

    def _send(self, now: Micros, pdu: bytes, flags: int, more: dict[str, Any]) -> bytes:
        self.salt += 1
        number = len(self.sent) + 1
        claim = Claim(
            more.get("number", number), more.get("flags", flags), self.engine, more.get("boots", self.boots),
            more.get("time", self.time(now)), self.name,
        )  # fmt: skip
        keys = more["keys"] if "keys" in more else self.keys()
        body = encode_scoped(encode_context(self.engine), more.get("pdu", pdu))
        self.sent.append(sealed(keys, claim, self.salt.to_bytes(8, "big"), body))
        return self.sent[-1]


def informing(**more: Any) -> Controller:
    """A controller that has asked who it sends to and what time it has there."""
    return replace(Controller(OWN, boots=7, started=NOON), **more)


DISCOVER = tlv(
    SEQUENCE,
    encode_integer(3)
    + tlv(SEQUENCE, encode_integer(1) + encode_integer(65_507) + b"\x04\x01\x04" + encode_integer(3))
    + tlv(4, tlv(SEQUENCE, b"\x04\x00\x02\x01\x00\x02\x01\x00\x04\x00\x04\x00\x04\x00"))
    + tlv(
        SEQUENCE,
        b"\x04\x00\x04\x00" + tlv(0xA0, encode_integer(5) + bytes.fromhex("020100020100") + tlv(SEQUENCE, b"")),
    ),
)
"""What a sender of informs asks first: who are you? (RFC 3414, section 4)"""
