"""Authentication of a listed sender's datagram: a trap, or the reason against."""

from __future__ import annotations

from typing import NamedTuple

from connectors.sources.snmp.ber import MalformedTrap
from connectors.sources.snmp.communities import CommunityAuth
from connectors.sources.snmp.drop_reasons import (
    BAD_COMMUNITY,
    SECURITY_LEVEL,
    UNKNOWN_ENGINE,
    UNKNOWN_USER,
    V3_REQUIRED,
    WRONG_TAG,
)
from connectors.sources.snmp.traps import Trap, decode, envelope, respond
from connectors.sources.snmp.usm.messages import is_v3
from connectors.sources.snmp.usm.receiver import V3
from connectors.sources.snmp.usm.verifier import RejectedMessage, VerifiedMessage
from stream.records import Micros


class AuthenticatedTrap(NamedTuple):
    """A notification that its sender was allowed to send; its repr hides the content."""

    trap: Trap
    datagram: bytes
    message: VerifiedMessage | None = None
    """The verified message, if it came over SNMPv3."""

    def __repr__(self) -> str:
        """Show nothing but the trap, whose repr shows no device."""
        return f"AuthenticatedTrap({self.trap!r})"

    @property
    def repeated(self) -> bool:
        """Whether it is a copy, octet for octet, of an inform: acknowledged again if the first was accepted, never
        accepted itself.
        """
        return self.message is not None and self.message.repeated


class TrapAuthenticator:
    """Authenticates senders: by community and, over SNMPv3, by the USM verifier."""

    def __init__(self, senders: CommunityAuth, v3: V3 | None = None) -> None:
        self._senders, self._v3 = senders, v3

    def read(self, datagram: bytes, host: str, now: Micros) -> AuthenticatedTrap | RejectedMessage:
        """Return the notification in a datagram from an address, or why it is rejected. Never raises."""
        try:
            if self._v3 is None:
                around = envelope(datagram)
            elif is_v3(datagram):
                return _secured(self._v3, datagram, host, now)
            else:
                around = envelope(datagram)
                if not self._senders.any_community or self._v3.verifier.users.requires_v3(host):
                    return RejectedMessage(V3_REQUIRED, None)
            if not self._senders.share(around.community):
                return RejectedMessage(BAD_COMMUNITY, None)
            return AuthenticatedTrap(decode(datagram, around), datagram)
        except MalformedTrap as error:
            return RejectedMessage(error.reason, None)

    def respond(self, trap: AuthenticatedTrap, now: Micros) -> bytes:
        """Return the response to an inform, in its version and with its security."""
        if self._v3 is None or trap.message is None:
            return respond(trap.datagram)
        return self._v3.verifier.respond(trap.message, now)

    def forget(self, trap: AuthenticatedTrap) -> None:
        """Forget an inform that found no space in the queue, so that its sender's copy counts as new."""
        if self._v3 is not None and trap.message is not None:
            self._v3.verifier.forget(trap.message)

    def renew(self) -> None:
        """Drop communities and users that were removed from their files, and add new ones."""
        self._senders.renew()
        if self._v3 is not None:
            self._v3.verifier.users.renew()

    def keep(self) -> None:
        """Store replay protection durably; no message that was read may count before."""
        if self._v3 is not None:
            self._v3.keep()


MAY_BE_NEW = frozenset({UNKNOWN_ENGINE, UNKNOWN_USER, SECURITY_LEVEL, WRONG_TAG})
"""Reasons of rejection that a reload of the users' file may resolve; nothing was remembered of such senders."""


def _secured(v3: V3, datagram: bytes, host: str, now: Micros) -> AuthenticatedTrap | RejectedMessage:
    message = v3.verifier.open(datagram, host, now)
    if isinstance(message, RejectedMessage) and message.reason in MAY_BE_NEW and v3.verifier.users.renew():
        message = v3.verifier.open(datagram, host, now)
    if isinstance(message, RejectedMessage):
        return message
    return AuthenticatedTrap(decode(message.plain, message.around), datagram, message)
