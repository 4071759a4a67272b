"""Where the lines of ``snmptrapd`` come in: it has checked communities and users, here the sender must be listed."""

from __future__ import annotations

from pathlib import Path

from connectors.intake.addresses import sender
from connectors.intake.admission import QUEUE_FULL, UNKNOWN_SOURCE, AllowList
from connectors.intake.pipe import PipeEntrance
from connectors.intake.sighting import Kind
from connectors.intake.waiting import Arrival
from connectors.snmp.ber import MALFORMED, MALFORMED_REASONS, MalformedTrap
from connectors.snmp.snmptrapd import LONGEST, NO_TRAP_LINE, notification
from connectors.snmp.traps import IGNORED_REASONS, decode
from stream.records import Micros


class ForwardedEntrance(PipeEntrance):
    """Traps as lines. An inform has been answered by snmptrapd, before what it said is durable."""

    reasons = (NO_TRAP_LINE, *MALFORMED_REASONS, UNKNOWN_SOURCE, *IGNORED_REASONS, QUEUE_FULL)
    everyday = frozenset({NO_TRAP_LINE, *IGNORED_REASONS})

    def __init__(self, path: Path, allow: AllowList) -> None:
        """Take the pipe (``-``: standard input), and who is heard."""
        super().__init__(path, LONGEST)
        self._allow = allow

    def hear(self, now: Micros, line: bytes | None) -> None:
        """Check one line, and queue what it says."""
        try:
            if line is None:
                raise MalformedTrap(MALFORMED)
            address, datagram = notification(line)
            host = sender(address)
            source = self._allow.listed(host)
            if source is None:
                self.room.drop(UNKNOWN_SOURCE)
                return
            trap = decode(datagram)
        except MalformedTrap as error:
            self.room.drop(error.reason)
            return
        if trap.kind is Kind.IGNORED:
            self.room.drop(trap.reason)
        else:
            self.room.take(Arrival(now, source, host, trap.sighting))
