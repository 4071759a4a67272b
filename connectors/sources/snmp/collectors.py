"""Listeners for traps that another program has received; their senders must be listed here, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from connectors.sources.ingest.addresses import sender
from connectors.sources.ingest.followed_logs import FollowedLine, FollowedListener, FollowedLog
from connectors.sources.ingest.listeners import PipeListener
from connectors.sources.ingest.queue import QUEUE_FULL, QueuedSighting
from connectors.sources.ingest.sighting import Kind
from connectors.sources.ingest.source_filter import UNKNOWN_SOURCE, AllowList
from connectors.sources.snmp.ber import MALFORMED, MALFORMED_REASONS, MalformedTrap
from connectors.sources.snmp.communities import Renewed
from connectors.sources.snmp.drop_reasons import BAD_COMMUNITY
from connectors.sources.snmp.snmptrapd import LONGEST, NO_TRAP_LINE, notification, written_at
from connectors.sources.snmp.telegraf import NO_TRAP_METRIC, metric
from connectors.sources.snmp.traps import IGNORED_REASONS, decode
from stream.records import Micros

Read = Callable[[bytes], tuple[str, bytes]]
"""Returns the sender's address and the trap, as a datagram, of another program's line; raises ``MalformedTrap``."""


def forwarded(
    content: bytes | None, read: Read, allow: AllowList, refusals: dict[str, Micros], now: Micros
) -> FollowedLine | str:
    """Return the sighting in a forwarded trap of a listed sender, or why it is dropped.

    ``refusals`` records when a sender reported a query that it refused.
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
    if trap.reports_refusal:
        refusals[source] = now
    return trap.reason if trap.kind is Kind.IGNORED else FollowedLine(source, host, trap.sighting)


class SnmptrapdPipeListener(PipeListener):
    """Traps as lines of a pipe. snmptrapd has already acknowledged informs, before their sightings are durable."""

    reasons = (NO_TRAP_LINE, *MALFORMED_REASONS, UNKNOWN_SOURCE, *IGNORED_REASONS, QUEUE_FULL)
    harmless = frozenset({NO_TRAP_LINE, *IGNORED_REASONS})

    def __init__(self, path: Path, allow: AllowList) -> None:
        """Set the pipe (``-``: standard input), and the allowed senders."""
        super().__init__(path, LONGEST)
        self._allow = allow

    def on_line(self, now: Micros, line: bytes | None) -> None:
        """Check one line, and enqueue its sighting."""
        line_or_reason = forwarded(line, notification, self._allow, self.queue.refusals, now)
        if isinstance(line_or_reason, str):
            self.queue.drop(line_or_reason)
        else:
            self.queue.put(QueuedSighting(now, line_or_reason.source, line_or_reason.host, line_or_reason.sighting))


class SnmptrapdLogListener(FollowedListener):
    """Traps as lines of snmptrapd's log, each with the second of its receipt."""

    reasons = SnmptrapdPipeListener.reasons
    harmless = SnmptrapdPipeListener.harmless

    def __init__(self, log: FollowedLog, allow: AllowList) -> None:
        """Set the log, and the allowed senders."""
        super().__init__(log)
        self._allow = allow

    def decode(self, now: Micros, content: bytes | None) -> FollowedLine | str:
        """Check one line."""
        line_or_reason = forwarded(content, notification, self._allow, self.queue.refusals, now)
        return (
            line_or_reason
            if isinstance(line_or_reason, str)
            else line_or_reason._replace(at=written_at(content or b""))
        )


class TelegrafListener(FollowedListener):
    """Traps as telegraf writes them, one per message. telegraf checks no community, so this listener does."""

    reasons = (NO_TRAP_METRIC, *MALFORMED_REASONS, BAD_COMMUNITY, UNKNOWN_SOURCE, *IGNORED_REASONS, QUEUE_FULL)
    harmless = frozenset(IGNORED_REASONS)

    def __init__(self, log: FollowedLog, allow: AllowList, communities: Renewed | None) -> None:
        """Set the log, the allowed senders, and the known communities; None: only SNMPv3 is accepted."""
        super().__init__(log)
        self._allow, self._communities = allow, communities

    def decode(self, now: Micros, content: bytes | None) -> FollowedLine | str:
        """Check one message."""
        return forwarded(content, self._believed, self._allow, self.queue.refusals, now)

    def _believed(self, content: bytes) -> tuple[str, bytes]:
        collected = metric(content)
        if collected.community is not None and not self._knows(collected.community):
            raise MalformedTrap(BAD_COMMUNITY)
        return collected.address, collected.datagram

    def _knows(self, community: bytes) -> bool:
        if self._communities is None:
            return False
        self._communities.renew()
        return self._communities.knows(community)
