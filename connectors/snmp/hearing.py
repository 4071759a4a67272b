"""What a listed sender's datagram says: a trap of any version, or why it is turned away and with which words."""

from __future__ import annotations

from typing import NamedTuple

from connectors.snmp.admission import Senders
from connectors.snmp.ber import MalformedTrap
from connectors.snmp.reasons import (
    BAD_COMMUNITY,
    SECURITY_LEVEL,
    UNKNOWN_ENGINE,
    UNKNOWN_USER,
    V3_REQUIRED,
    WRONG_TAG,
)
from connectors.snmp.traps import Trap, decode, envelope, respond
from connectors.snmp.usm.gate import Heard, Turned
from connectors.snmp.usm.listening import V3
from connectors.snmp.usm.messages import is_v3
from stream.records import Micros


class Said(NamedTuple):
    """A notification that its sender was entitled to; shown without what it says."""

    trap: Trap
    datagram: bytes
    heard: Heard | None = None
    """How it came over SNMPv3."""

    def __repr__(self) -> str:
        """Show nothing but the trap, which shows nobody."""
        return f"Said({self.trap!r})"

    @property
    def repeated(self) -> bool:
        """A copy, octet for octet, of an inform: answered again if the first was taken, never taken itself."""
        return self.heard is not None and self.heard.repeated


class Hearing:
    """Who is believed: those who know a community and, over SNMPv3, those whom the gate lets in."""

    def __init__(self, senders: Senders, v3: V3 | None = None) -> None:
        self._senders, self._v3 = senders, v3

    def read(self, datagram: bytes, host: str, now: Micros) -> Said | Turned:
        """Return what a datagram from an address says, or why that does not count. Never raises."""
        try:
            if self._v3 is None:
                around = envelope(datagram)
            elif is_v3(datagram):
                return _secured(self._v3, datagram, host, now)
            else:
                around = envelope(datagram)
                if not self._senders.any_community or self._v3.gate.users.demanded_of(host):
                    return Turned(V3_REQUIRED, None)
            if not self._senders.share(around.community):
                return Turned(BAD_COMMUNITY, None)
            return Said(decode(datagram, around), datagram)
        except MalformedTrap as error:
            return Turned(error.reason, None)

    def respond(self, said: Said, now: Micros) -> bytes:
        """Return the answer to an inform, in its version and secured as it was."""
        if self._v3 is None or said.heard is None:
            return respond(said.datagram)
        return self._v3.gate.respond(said.heard, now)

    def forget(self, said: Said) -> None:
        """Take an inform that found no room as not heard: the copy that its sender sends is as good as new."""
        if self._v3 is not None and said.heard is not None:
            self._v3.gate.forget(said.heard)

    def renew(self) -> None:
        """Let go of communities and users that their files have no more, and take up those that are new there."""
        self._senders.renew()
        if self._v3 is not None:
            self._v3.gate.users.renew()

    def keep(self) -> None:
        """Make durable what is never to be heard again; nothing of what was read may count before."""
        if self._v3 is not None:
            self._v3.keep()


MAY_BE_NEW = frozenset({UNKNOWN_ENGINE, UNKNOWN_USER, SECURITY_LEVEL, WRONG_TAG})
"""Why somebody is turned away whom the file of users may know by now; nothing was remembered of them."""


def _secured(v3: V3, datagram: bytes, host: str, now: Micros) -> Said | Turned:
    heard = v3.gate.open(datagram, host, now)
    if isinstance(heard, Turned) and heard.reason in MAY_BE_NEW and v3.gate.users.renew():
        heard = v3.gate.open(datagram, host, now)
    if isinstance(heard, Turned):
        return heard
    return Said(decode(heard.plain, heard.around), datagram, heard)
