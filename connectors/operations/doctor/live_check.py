"""Receive traps for a while, and report senders, accepted and dropped traps.

Messages are checked as a receiver checks them, and then discarded. Nothing is stored, pseudonyms are temporary, and no
inform is acknowledged, because an acknowledgement means that the message is durable.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectors.operations.doctor.findings import Finding, fine, note, wrong
from connectors.runtime.clock import CLOCK_STEP, AnchoredClock, ClockStepError, wall_clock
from connectors.sources.ingest.ingest import COLLAPSED, HARMLESS, UNKNOWN_ACCESS_POINT, Ingest
from connectors.sources.ingest.queue import QUEUE_FULL, Counters, IngestQueue
from connectors.sources.ingest.receiver import KERNEL, Receiver
from connectors.sources.ingest.sighting import Message
from connectors.sources.ingest.source_filter import UNKNOWN_SOURCE, AllowList
from connectors.sources.ingest.state import most_unknown
from connectors.sources.radius.listener import AccountingListener
from connectors.sources.snmp.authentication import TrapAuthenticator
from connectors.sources.snmp.ber import UNSUPPORTED_VERSION
from connectors.sources.snmp.collectors import SnmptrapdLogListener, TelegrafListener
from connectors.sources.snmp.communities import CommunityAuth
from connectors.sources.snmp.drop_reasons import (
    BAD_COMMUNITY,
    DISCOVERY,
    NOT_IN_TIME_WINDOW,
    SECURITY_LEVEL,
    UNDECIPHERABLE,
    UNKNOWN_ENGINE,
    UNKNOWN_USER,
    V3_REQUIRED,
    WRONG_TAG,
)
from connectors.sources.snmp.listener import TrapListener
from connectors.sources.snmp.traps import NO_ACCESS_POINT, UNKNOWN_TRAP
from connectors.sources.snmp.usm.receiver import without_storage
from connectors.sources.snmp.usm.users import Users
from stream.policy.fields import is_cloud
from stream.records import SECOND, Micros
from stream.release.validation import Policy

HEARD, DROPPED, PLACES, STEP = "controllers", "dropped", "access points", "clock"
ADVICE = {
    UNKNOWN_SOURCE: "the sender is not in 'sources' of the policy",
    BAD_COMMUNITY: "the community is not in the file that TACET_SNMP_COMMUNITIES_FILE names",
    UNKNOWN_ACCESS_POINT: "its address is in no zone of the policy",
    "foreign_source": "the controller is not in 'sources' of the access point's site",
    NO_ACCESS_POINT: "the trap names the device but not its access point: enable the trap that names both",
    UNKNOWN_TRAP: "of a kind that is not read: no fault, unless a controller sends nothing else",
    QUEUE_FULL: "more traps than one receiver can process: distribute the controllers over several ingests",
    KERNEL: "more traps than the socket holds: raise net.core.rmem_max",
    V3_REQUIRED: "the file that TACET_SNMP_USERS_FILE names accepts this sender over SNMPv3 only",
    UNKNOWN_ENGINE: "list it under 'engines' of its source in the file of users, unless it informs another receiver",
    UNKNOWN_USER: "the user is not in the file that TACET_SNMP_USERS_FILE names",
    WRONG_TAG: "'auth' or 'auth_password' in the file of users does not match",
    UNDECIPHERABLE: "'privacy' or 'privacy_password' in the file of users does not match",
    SECURITY_LEVEL: "the message is less secure than the user's 'level' in the file of users requires",
    NOT_IN_TIME_WINDOW: "its clock was set back without a restart of its agent, or it is an old copy",
}
"""Reason -> remedy."""


@dataclass(slots=True)
class LiveCheck:
    """What arrived during a live check."""

    counters: Counters
    sources: frozenset[str]
    """Entries of the policy's sources from which messages arrived."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Access points that belong to no zone, as named in traps, with the number of such traps."""
    stepped: Micros = 0
    """How far the wall clock has moved relative to the monotonic one."""


class _Listening(TrapListener):
    """A trap listener that never answers, and discards its SNMPv3 state at the end."""

    def __init__(self, address: tuple[str, int], senders: CommunityAuth, users: Users | None) -> None:
        super().__init__(address, senders)
        self._users = users

    async def open(self, queue: IngestQueue) -> None:
        """Bind the socket and read."""
        if self._users is not None:
            self._authenticator = TrapAuthenticator(self._senders, without_storage(self._users, queue.clock.now()))
        await super().open(queue)

    def send(self, datagram: bytes, address: Any) -> bool:
        """Send nothing: an answer would acknowledge messages that are not stored."""
        return False


class _RecordingAuth(CommunityAuth):
    """Listed senders; records which of them have sent."""

    def __init__(self, allow: AllowList, communities: Sequence[bytes], *, or_v3: bool = False) -> None:
        super().__init__(allow, communities, or_v3=or_v3)
        self.senders: set[str] = set()

    def listed(self, host: str) -> str | None:
        """Return the entry that covers an address, and record it."""
        entry = super().listed(host)
        if entry is not None:
            self.senders.add(entry)
        return entry


class _NullSink:
    """A sink that discards messages."""

    async def append(self, message: Message) -> None:
        """Discard a message."""
        del message


class LiveListener:
    """Listens, and reports at any time what has arrived."""

    def __init__(
        self, policy: Policy, address: tuple[str, int], communities: Sequence[bytes], users: Users | None = None
    ) -> None:
        self._senders = _RecordingAuth(AllowList(sorted(_sources(policy))), communities, or_v3=True)
        self._clock = AnchoredClock(wall_clock, lambda: time.monotonic_ns() // 1000)
        ingest = Ingest.of_policy(policy, secrets.token_bytes(32))
        entrances = [_Listening(address, self._senders, users)]
        self.receiver = Receiver(entrances, ingest=ingest, sink=_NullSink(), clock=self._clock)

    def result(self) -> LiveCheck:
        """Return what has arrived so far."""
        unknown = most_unknown(self.receiver.state)
        return LiveCheck(self.receiver.counters, frozenset(self._senders.senders), unknown, self._clock.wall_ahead())


async def listen(
    policy: Policy, address: tuple[str, int], communities: Sequence[bytes], seconds: float, users: Users | None = None
) -> LiveCheck:
    """Listen for a while; without users, SNMPv3 messages are not verified.

    Raises:
        OSError: the address cannot be bound, for example because another process uses it.
    """
    ear = LiveListener(policy, address, communities, users)
    try:
        async with ear.receiver:
            await asyncio.wait({asyncio.ensure_future(ear.receiver.wait())}, timeout=seconds)
    except ClockStepError:
        pass  # the clock check reports this
    return ear.result()


def _sources(policy: Policy) -> set[str]:
    """Return the sources that send directly, not through 'tacet hooks'."""
    return {source for site in policy.site.values() for source in site.sources if not is_cloud(source)}


def findings(policy: Policy, received: LiveCheck) -> Iterator[Finding]:
    """Yield what arrived: controllers by the policy's entries, access points by address, and no devices."""
    counters = received.counters
    if received.sources:
        yield fine(HEARD, f"heard: {', '.join(sorted(received.sources))}")
    if silent := sorted(_sources(policy) - received.sources):
        yield note(HEARD, f"silent: {', '.join(silent)}; where people move, traps should arrive")
    accepted = f"{counters.datagrams:,} datagrams, {counters.accepted:,} accepted"
    judged = counters.datagrams - counters.dropped.get(UNSUPPORTED_VERSION, 0)
    if judged and not counters.accepted and not counters.dropped.get(COLLAPSED):
        yield wrong(HEARD, f"{accepted}: nothing that arrives can be used")
    else:
        yield fine(HEARD, accepted) if counters.datagrams else note(HEARD, accepted)
    version3 = counters.dropped.get(UNSUPPORTED_VERSION, 0)
    if version3:
        yield note(DROPPED, f"{version3:,} of SNMPv3 or another version: name its users by TACET_SNMP_USERS_FILE")
    if requests := counters.dropped.get(DISCOVERY, 0):
        yield note(
            DROPPED,
            f"{requests:,} discovery requests of SNMPv3, which only a running receiver answers",
        )
    yield from drops({**counters.dropped, UNSUPPORTED_VERSION: 0, KERNEL: counters.kernel_drops})
    for name, traps in received.unknown.items():
        yield note(PLACES, f"{name}: in no zone, {traps:,} trap(s)")
    if abs(received.stepped) > CLOCK_STEP:
        yield wrong(
            STEP, f"was set by {received.stepped / SECOND:+.1f} s meanwhile; a receiver stops when that happens"
        )


_HARMLESS = HARMLESS.union(
    *(kind.harmless for kind in (TrapListener, AccountingListener, SnmptrapdLogListener, TelegrafListener))
)
"""Reasons that indicate no fault, whatever a receiver reads."""


def drops(dropped: Mapping[str, int]) -> Iterator[Finding]:
    """Yield the drops for each reason that indicates a fault or has a remedy."""
    for reason, number in sorted(dropped.items()):
        if number and (reason in ADVICE or reason not in _HARMLESS):
            text = f"{number:,} {reason.replace('_', ' ')}{f': {ADVICE[reason]}' if reason in ADVICE else ''}"
            yield note(DROPPED, text) if reason in {UNKNOWN_ACCESS_POINT, *_HARMLESS} else wrong(DROPPED, text)


def is_address_in_use(error: OSError) -> bool:
    """Whether an address could not be bound because another program uses it."""
    cause = error.__context__
    return error.errno == errno.EADDRINUSE or (isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE)
