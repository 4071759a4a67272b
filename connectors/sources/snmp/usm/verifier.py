"""Verifies SNMPv3 messages, and builds reports to their senders; pure.

    engine known ─► user known ─► level ─► tag ─► time ─► not seen before ─► decrypted ─► a trap or an inform

The order is that of RFC 3414, section 3.2, so that nothing is learnt from a message, and nothing remembered of it,
before its tag is verified. A trap's sender is the authority over its time and expects no answer. For an inform the
receiver is the authority: the sender first discovers the receiver's engine and time, with messages that are answered
with a report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from connectors.sources.snmp.ber import (
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
from connectors.sources.snmp.drop_reasons import (
    DISCOVERY,
    NOT_IN_TIME_WINDOW,
    SECURITY_LEVEL,
    UNDECIPHERABLE,
    UNKNOWN_ENGINE,
    UNKNOWN_USER,
    WRONG_TAG,
)
from connectors.sources.snmp.traps import Envelope, answered
from connectors.sources.snmp.usm.engines import MARK, WINDOW, Engines, Mark
from connectors.sources.snmp.usm.messages import (
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
from connectors.sources.snmp.usm.protocols import Keys, decrypted, is_genuine, sealed
from connectors.sources.snmp.usm.users import Users
from stream.records import SECOND, Micros

_COUNTER_32 = 0x41
_STATISTICS = "1.3.6.1.6.3.15.1.1"
"""usmStats of SNMP-USER-BASED-SM-MIB: the counters that a report names."""
_REPORTS = {
    SECURITY_LEVEL: 1,
    NOT_IN_TIME_WINDOW: 2,
    UNKNOWN_USER: 3,
    UNKNOWN_ENGINE: 4,
    WRONG_TAG: 5,
    UNDECIPHERABLE: 6,
}


class OwnEngine(NamedTuple):
    """The receiver as an engine of its own: the authority for senders of informs."""

    engine: bytes
    boots: int
    started: Micros

    def time(self, now: Micros) -> int:
        """Return the seconds since it started."""
        return (now - self.started) // SECOND


class RejectedMessage(NamedTuple):
    """A message that is not accepted."""

    reason: str
    """One of ``V3_REASONS``."""
    report: bytes | None
    """The report to its sender, if the message requests one."""


class VerifiedMessage(NamedTuple):
    """A genuine notification; its repr hides the content."""

    plain: bytes
    """The decrypted octets that contain the notification."""
    around: Envelope
    """The position of the notification in them, for ``traps.decode``."""
    repeated: bool
    """An inform that was already received, octet for octet: acknowledged again, never accepted twice."""
    head: Secured
    parts: Scoped
    mark: bytes
    keys: Keys
    """The keys under which it is genuine."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "VerifiedMessage()"


@dataclass(slots=True)
class UsmVerifier:
    """A receiver's knowledge of SNMPv3; ``now`` is microseconds of one clock that cannot step back."""

    users: Users
    own: OwnEngine
    engines: Engines
    salt: int
    """First salt of responses: 64 random bits, which another start is unlikely to repeat."""
    _informs: dict[bytes, int] = field(default_factory=dict)
    """Marks of informs, with their time; after a restart all of them are outside the time window."""

    def open(self, datagram: bytes, host: str, now: Micros) -> VerifiedMessage | RejectedMessage:
        """Accept a message from an address if it passes all checks.

        Raises ``MalformedTrap`` for a datagram that is not such a message, or contains neither a trap nor an inform.
        """
        head = secured(datagram)
        reason = self._rejection(head, host)
        keys = None if reason is not None else self._genuine(datagram, head)
        if keys is None:
            return RejectedMessage(reason or WRONG_TAG, self._report(head, reason or WRONG_TAG, now, None))
        if (reason := self._late(head, now)) is not None:
            return RejectedMessage(reason, self._report(head, reason, now, keys))
        mark = datagram[head.tag : head.tag + MARK]
        mine = head.engine == self.own.engine
        repeated = self._is_repeated(head, mark, now) if mine else False
        if not mine and (reason := self.engines.accept(Mark(head.engine, head.boots, head.time, mark), now)):
            return RejectedMessage(reason, None)
        plain, parts = self._plain(datagram, head, keys)
        if parts is None:
            return RejectedMessage(UNDECIPHERABLE, self._report(head, UNDECIPHERABLE, now, None))
        if plain[parts.pdu] != (INFORM if mine else TRAP_V2):
            raise MalformedTrap(UNSUPPORTED_PDU)
        around = Envelope(VERSION, b"", plain[parts.pdu], parts.start, parts.stop)
        return VerifiedMessage(plain, around, repeated, head, parts, mark, keys)

    def respond(self, message: VerifiedMessage, now: Micros) -> bytes:
        """Return the response to an inform, with the inform's security."""
        response = answered(message.plain, message.parts.pdu, message.parts.start, message.parts.stop)
        body = encode_scoped(message.parts.context, bytes(response[message.parts.pdu : message.parts.stop]))
        keys = message.keys if message.head.flags & PRIVATE else message.keys._replace(cipher=b"")
        return self._sealed(keys, message.head, body, now)

    def forget(self, message: VerifiedMessage) -> None:
        """Forget an inform that found no space in the queue, so that it may be sent again unchanged."""
        self._informs.pop(message.mark, None)

    def _rejection(self, head: Secured, host: str) -> str | None:
        """Return why a header is rejected: its engine, its user or its security level; None if it is not."""
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
        """Check the time of a genuine message to this engine (RFC 3414, section 3.2, 7 a)."""
        if head.engine != self.own.engine:
            return None
        if head.boots == head.time == 0:
            return DISCOVERY  # its sender discovers this engine's time (section 4)
        fits = head.boots == self.own.boots and abs(head.time - self.own.time(now)) <= WINDOW
        return None if fits else NOT_IN_TIME_WINDOW

    def _is_repeated(self, head: Secured, mark: bytes, now: Micros) -> bool:
        """Record an inform; return whether it was already received."""
        while self._informs:
            oldest = next(iter(self._informs))
            if self._informs[oldest] >= self.own.time(now) - WINDOW:
                break
            del self._informs[oldest]
        repeated = mark in self._informs
        self._informs.setdefault(mark, head.time)
        return repeated

    def _plain(self, datagram: bytes, head: Secured, keys: Keys) -> tuple[bytes, Scoped | None]:
        """Return the plain octets and the parts of their scoped PDU; None if the key does not decrypt them to one."""
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
        """Return a report with the broken rule to a sender that requests one (RFC 3412, section 7.1, 3).

        A report of the time is authenticated with the user's key, any other is not: its sender need not know a key yet.
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
