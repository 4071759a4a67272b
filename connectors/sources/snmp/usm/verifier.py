"""Whether a message of SNMPv3 is genuine, new and secured as it must be, and what its sender is told; pure.

    engine known ─► user known ─► level ─► tag ─► time ─► not seen before ─► decrypted ─► a trap or an inform

The order is that of RFC 3414, section 3.2, so that nothing is learnt from a message, and nothing remembered of it,
before its tag is found to be right. A trap's sender is the authority over its time and asks for no answer; for an
inform the receiver is: its sender first asks who that is and what time it has there, by messages that are turned away
with a report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from connectors.snmp.ber import (
    INFORM,
    REPORT,
    SEQUENCE,
    TRAP_V2,
    UNSUPPORTED_PDU,
    MalformedTrap,
    encode_integer,
    encode_oid,
    tlv,
)
from connectors.snmp.reasons import (
    DISCOVERY,
    NOT_IN_TIME_WINDOW,
    SECURITY_LEVEL,
    UNDECIPHERABLE,
    UNKNOWN_ENGINE,
    UNKNOWN_USER,
    WRONG_TAG,
)
from connectors.snmp.traps import Envelope, answered
from connectors.snmp.usm.engines import MARK, WINDOW, Engines, Mark
from connectors.snmp.usm.messages import (
    PRIVATE,
    REPORTABLE,
    VERSION,
    Claim,
    Scoped,
    Secured,
    encode_context,
    encode_scoped,
    scoped,
    secured,
)
from connectors.snmp.usm.protocols import Keys, decrypted, is_genuine, sealed
from connectors.snmp.usm.users import Users
from stream.records import SECOND, Micros

_COUNTER_32 = 0x41
_STATISTICS = "1.3.6.1.6.3.15.1.1"
"""usmStats of SNMP-USER-BASED-SM-MIB: what a report names."""
_REPORTS = {
    SECURITY_LEVEL: 1,
    NOT_IN_TIME_WINDOW: 2,
    UNKNOWN_USER: 3,
    UNKNOWN_ENGINE: 4,
    WRONG_TAG: 5,
    UNDECIPHERABLE: 6,
}


class Own(NamedTuple):
    """The receiver as an engine of its own: an authority for those who send informs."""

    engine: bytes
    boots: int
    started: Micros

    def time(self, now: Micros) -> int:
        """Return the seconds since it started."""
        return (now - self.started) // SECOND


class Turned(NamedTuple):
    """A message that is not taken."""

    reason: str
    """One of ``V3_REASONS``."""
    report: bytes | None
    """What its sender is told, where it asked to be told."""


class Heard(NamedTuple):
    """A genuine notification; shown without what it says."""

    plain: bytes
    """The octets in which the notification lies, no longer encrypted."""
    around: Envelope
    """Where in them it lies, for ``traps.decode``."""
    repeated: bool
    """An inform, octet for octet, that was heard before: answered again, never taken twice."""
    head: Secured
    parts: Scoped
    mark: bytes
    keys: Keys
    """Under which it is genuine."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "Heard()"


@dataclass(slots=True)
class Gate:
    """What a receiver knows and remembers of SNMPv3; ``now`` is microseconds of one clock that cannot step back."""

    users: Users
    own: Own
    engines: Engines
    salt: int
    """Where the salts of answers begin: 64 bits that another start would hardly begin with."""
    _informs: dict[bytes, int] = field(default_factory=dict)
    """Marks of informs, with their time; after a restart all of them are out of the window."""

    def open(self, datagram: bytes, host: str, now: Micros) -> Heard | Turned:
        """Take a message from an address if it is what it must be.

        Raises ``MalformedTrap`` for what is no such message, or holds something else than a trap or an inform.
        """
        head = secured(datagram)
        reason = self._stranger(head, host)
        keys = None if reason is not None else self._genuine(datagram, head)
        if keys is None:
            return Turned(reason or WRONG_TAG, self._report(head, reason or WRONG_TAG, now, None))
        if (reason := self._late(head, now)) is not None:
            return Turned(reason, self._report(head, reason, now, keys))
        mark = datagram[head.tag : head.tag + MARK]
        mine = head.engine == self.own.engine
        repeated = self._seen(head, mark, now) if mine else False
        if not mine and (reason := self.engines.take(Mark(head.engine, head.boots, head.time, mark), now)):
            return Turned(reason, None)
        plain, parts = self._plain(datagram, head, keys)
        if parts is None:
            return Turned(UNDECIPHERABLE, self._report(head, UNDECIPHERABLE, now, None))
        if plain[parts.pdu] != (INFORM if mine else TRAP_V2):
            raise MalformedTrap(UNSUPPORTED_PDU)
        around = Envelope(VERSION, b"", plain[parts.pdu], parts.start, parts.stop)
        return Heard(plain, around, repeated, head, parts, mark, keys)

    def respond(self, heard: Heard, now: Micros) -> bytes:
        """Return the answer to an inform, secured as the inform was."""
        response = answered(heard.plain, heard.parts.pdu, heard.parts.start, heard.parts.stop)
        body = encode_scoped(heard.parts.context, bytes(response[heard.parts.pdu : heard.parts.stop]))
        keys = heard.keys if heard.head.flags & PRIVATE else heard.keys._replace(cipher=b"")
        return self._sealed(keys, heard.head, body, now)

    def forget(self, heard: Heard) -> None:
        """Let an inform that found no room be sent again as it was."""
        self._informs.pop(heard.mark, None)

    def _stranger(self, head: Secured, host: str) -> str | None:
        """Return what is wrong with the names in a header, if anything is."""
        if head.engine != self.own.engine and not self.users.knows(host, head.engine):
            return UNKNOWN_ENGINE if head.engine or not head.flags & REPORTABLE else DISCOVERY
        least = self.users.least(head.user)
        if least is None:
            return UNKNOWN_USER
        beyond = head.flags & PRIVATE and not self.users.has_privacy(head.user)
        return SECURITY_LEVEL if beyond or head.flags & least != least else None

    def _genuine(self, datagram: bytes, head: Secured) -> Keys | None:
        """Return those of its user's keys under which a message is genuine; None: under none."""
        all_keys = self.users.all_keys(head.user, head.engine)
        return next((keys for keys in all_keys if is_genuine(keys, datagram, head)), None)

    def _late(self, head: Secured, now: Micros) -> str | None:
        """Look at the time of a genuine message to this engine (RFC 3414, section 3.2, 7 a)."""
        if head.engine != self.own.engine:
            return None
        if head.boots == head.time == 0:
            return DISCOVERY  # its sender asks what time it is here (section 4)
        fits = head.boots == self.own.boots and abs(head.time - self.own.time(now)) <= WINDOW
        return None if fits else NOT_IN_TIME_WINDOW

    def _seen(self, head: Secured, mark: bytes, now: Micros) -> bool:
        """Note an inform; return whether it was heard before."""
        while self._informs:
            oldest = next(iter(self._informs))
            if self._informs[oldest] >= self.own.time(now) - WINDOW:
                break
            del self._informs[oldest]
        repeated = mark in self._informs
        self._informs.setdefault(mark, head.time)
        return repeated

    def _plain(self, datagram: bytes, head: Secured, keys: Keys) -> tuple[bytes, Scoped | None]:
        """Return the plain octets and the parts of their scoped PDU; None where they make no sense under the key."""
        if not head.flags & PRIVATE:
            return datagram, scoped(datagram, head.start, head.stop)
        if not head.salt:
            return b"", None
        plain = decrypted(keys, datagram, head)
        try:
            return plain, scoped(plain, 0, len(plain))
        except MalformedTrap:
            return b"", None

    def _report(self, head: Secured, reason: str, now: Micros, keys: Keys | None) -> bytes | None:
        """Tell the sender of a message that asks for it which rule it broke (RFC 3412, section 7.1, 3).

        What time it is here is told under the user's key, anything else without: its sender need not know a key yet.
        """
        genuine = keys is not None and reason in {NOT_IN_TIME_WINDOW, DISCOVERY}
        if not head.flags & REPORTABLE:
            return None
        if reason == DISCOVERY:
            reason = NOT_IN_TIME_WINDOW if genuine else UNKNOWN_ENGINE
        name = tlv(0x06, encode_oid(f"{_STATISTICS}.{_REPORTS[reason]}.0"))
        varbinds = tlv(SEQUENCE, tlv(SEQUENCE, name + encode_integer(1, _COUNTER_32)))
        body = encode_scoped(encode_context(self.own.engine), tlv(REPORT, encode_integer(0) * 3 + varbinds))
        return self._sealed(keys._replace(cipher=b"") if keys is not None else None, head, body, now)

    def _sealed(self, keys: Keys | None, head: Secured, body: bytes, now: Micros) -> bytes:
        self.salt = (self.salt + 1) % 2**64
        own = self.own
        claim = Claim(head.message_id, 0, own.engine, own.boots, own.time(now), head.user)
        return sealed(keys, claim, self.salt.to_bytes(8, "big"), body)
