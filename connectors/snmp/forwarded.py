"""Where traps come in that another program has received: here, too, their sender must be listed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from connectors.intake.addresses import sender
from connectors.intake.admission import QUEUE_FULL, UNKNOWN_SOURCE, AllowList
from connectors.intake.followed import FollowedEntrance, FollowedLog, Told
from connectors.intake.pipe import PipeEntrance
from connectors.intake.sighting import Kind
from connectors.intake.waiting import Arrival
from connectors.snmp.admission import Renewed
from connectors.snmp.ber import MALFORMED, MALFORMED_REASONS, MalformedTrap
from connectors.snmp.reasons import BAD_COMMUNITY
from connectors.snmp.snmptrapd import LONGEST, NO_TRAP_LINE, notification, written_at
from connectors.snmp.telegraf import NO_TRAP_METRIC, metric
from connectors.snmp.traps import IGNORED_REASONS, decode
from stream.records import Micros

Read = Callable[[bytes], tuple[str, bytes]]
"""From what another program wrote to the sender's address and the trap, as a datagram; raises ``MalformedTrap``."""


def forwarded(
    content: bytes | None, read: Read, allow: AllowList, refusals: dict[str, Micros], now: Micros
) -> Told | str:
    """Return what a forwarded trap of a listed sender says, or why it is not taken.

    In ``refusals`` it is noted when a sender told that it was asked by somebody whom it refused.
    """
    try:
        if content is None:
            raise MalformedTrap(MALFORMED)
        address, datagram = read(content)
        host = sender(address)
        source = allow.listed(host)
        if source is None:
            return UNKNOWN_SOURCE
        trap = decode(datagram)
    except MalformedTrap as error:
        return error.reason
    if trap.tells_of_refusal:
        refusals[source] = now
    return trap.reason if trap.kind is Kind.IGNORED else Told(source, host, trap.sighting)


class ForwardedEntrance(PipeEntrance):
    """Traps as lines of a pipe. An inform has been answered by snmptrapd, before what it said is durable."""

    reasons = (NO_TRAP_LINE, *MALFORMED_REASONS, UNKNOWN_SOURCE, *IGNORED_REASONS, QUEUE_FULL)
    everyday = frozenset({NO_TRAP_LINE, *IGNORED_REASONS})

    def __init__(self, path: Path, allow: AllowList) -> None:
        """Take the pipe (``-``: standard input), and who is heard."""
        super().__init__(path, LONGEST)
        self._allow = allow

    def hear(self, now: Micros, line: bytes | None) -> None:
        """Check one line, and queue what it says."""
        told = forwarded(line, notification, self._allow, self.room.refusals, now)
        if isinstance(told, str):
            self.room.drop(told)
        else:
            self.room.take(Arrival(now, told.source, told.host, told.sighting))


class LoggedEntrance(FollowedEntrance):
    """Traps as lines of snmptrapd's log, each with the second in which it came."""

    reasons = ForwardedEntrance.reasons
    everyday = ForwardedEntrance.everyday

    def __init__(self, log: FollowedLog, allow: AllowList) -> None:
        """Take the log, and who is heard."""
        super().__init__(log)
        self._allow = allow

    def hear(self, now: Micros, content: bytes | None) -> Told | str:
        """Check one line."""
        told = forwarded(content, notification, self._allow, self.room.refusals, now)
        return told if isinstance(told, str) else told._replace(at=written_at(content or b""))


class CollectedEntrance(FollowedEntrance):
    """Traps as telegraf writes them, one a message. It checks no community, so that is done here."""

    reasons = (NO_TRAP_METRIC, *MALFORMED_REASONS, BAD_COMMUNITY, UNKNOWN_SOURCE, *IGNORED_REASONS, QUEUE_FULL)
    everyday = frozenset(IGNORED_REASONS)

    def __init__(self, log: FollowedLog, allow: AllowList, communities: Renewed | None) -> None:
        """Take the log, who is heard, and which communities are known; None: nothing but SNMPv3 counts."""
        super().__init__(log)
        self._allow, self._communities = allow, communities

    def hear(self, now: Micros, content: bytes | None) -> Told | str:
        """Check one message."""
        return forwarded(content, self._believed, self._allow, self.room.refusals, now)

    def _believed(self, content: bytes) -> tuple[str, bytes]:
        told = metric(content)
        if told.community is not None and not self._knows(told.community):
            raise MalformedTrap(BAD_COMMUNITY)
        return told.address, told.datagram

    def _knows(self, community: bytes) -> bool:
        if self._communities is None:
            return False
        self._communities.renew()
        return self._communities.knows(community)
