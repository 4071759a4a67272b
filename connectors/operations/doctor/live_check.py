"""What comes in at a port for a while: whether controllers are heard, what is taken, what is dropped and why.

Everything is checked as a receiver checks it and then forgotten: nothing is stored, no device has a name that
anybody keeps, and no inform is answered, for an answer says that what was said is durable.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectors.doctor.findings import Finding, fine, note, wrong
from connectors.intake.admission import QUEUE_FULL, UNKNOWN_SOURCE, AllowList, Counters
from connectors.intake.clock import CLOCK_STEP, AnchoredClock, ClockStepError, wall_clock
from connectors.intake.ingest import COLLAPSED, UNKNOWN_ACCESS_POINT, Ingest
from connectors.intake.ingest_state import most_unknown
from connectors.intake.receiver import Receiver
from connectors.intake.waiting import WaitingRoom
from connectors.sink import Message
from connectors.snmp.admission import Senders
from connectors.snmp.ber import UNSUPPORTED_VERSION
from connectors.snmp.entrance import TrapEntrance
from connectors.snmp.hearing import Hearing
from connectors.snmp.reasons import (
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
from connectors.snmp.usm.listening import in_passing
from connectors.snmp.usm.users import Users
from stream.policy.document import Policy
from stream.policy.fields import is_cloud
from stream.records import SECOND, Micros

HEARD, DROPPED, PLACES, STEP = "controllers", "dropped", "access points", "clock"
KERNEL = "kernel_queue_full"
ADVICE = {
    UNKNOWN_SOURCE: "the sender is not in 'sources' of the policy",
    BAD_COMMUNITY: "the community is not in the file that TACET_SNMP_COMMUNITIES_FILE names",
    UNKNOWN_ACCESS_POINT: "its address is in no zone of the policy",
    "foreign_source": "the controller is not in 'sources' of the access point's site",
    "no_access_point": "the trap says who, not where: switch on the one that does",
    QUEUE_FULL: "more traps than one receiver takes: spread controllers over ingests",
    KERNEL: "more traps than the socket holds: raise net.core.rmem_max",
    V3_REQUIRED: "the file that TACET_SNMP_USERS_FILE names lets its sender in over SNMPv3 only",
    UNKNOWN_ENGINE: "list it under 'engines' of its source in the file of users, unless it informs another receiver",
    UNKNOWN_USER: "the user is not in the file that TACET_SNMP_USERS_FILE names",
    WRONG_TAG: "'auth' or 'auth_password' of the file of users is another one",
    UNDECIPHERABLE: "'privacy' or 'privacy_password' of the file of users is another one",
    SECURITY_LEVEL: "less than the user's 'level' in the file of users",
    NOT_IN_TIME_WINDOW: "its clock was set back without a restart of its agent, or it is an old copy",
}
"""Reason -> what to do."""


@dataclass(slots=True)
class Heard:
    """What came in while somebody listened."""

    counters: Counters
    sources: frozenset[str]
    """Entries of the policy's sources from which anything came."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Access points of no zone, as traps name them, and how many traps named them."""
    stepped: Micros = 0
    """How far the wall clock has moved against the monotonic one."""


class _Listening(TrapEntrance):
    """A port for traps that never answers, and remembers nothing of SNMPv3 when it has ended."""

    def __init__(self, address: tuple[str, int], senders: Senders, users: Users | None) -> None:
        super().__init__(address, senders)
        self._users = users

    async def open(self, room: WaitingRoom) -> None:
        """Bind the socket and read."""
        if self._users is not None:
            self._hearing = Hearing(self._senders, in_passing(self._users, room.clock.now()))
        await super().open(room)

    def send(self, datagram: bytes, address: Any) -> bool:
        """Send nothing: an answer would say that what was heard is kept."""
        return False


class _Noted(Senders):
    """Listed senders, of which it is noted who was heard."""

    def __init__(self, allow: AllowList, communities: Sequence[bytes], *, or_v3: bool = False) -> None:
        super().__init__(allow, communities, or_v3=or_v3)
        self.heard: set[str] = set()

    def listed(self, host: str) -> str | None:
        """Return the entry that covers an address, and note it."""
        entry = super().listed(host)
        if entry is not None:
            self.heard.add(entry)
        return entry


class _Nowhere:
    """A sink that keeps nothing."""

    async def append(self, message: Message) -> None:
        """Forget a message."""
        del message


class Ear:
    """Listens, and says at any time what it has heard."""

    def __init__(
        self, policy: Policy, address: tuple[str, int], communities: Sequence[bytes], users: Users | None = None
    ) -> None:
        self._senders = _Noted(AllowList(sorted(_sources(policy))), communities, or_v3=True)
        self._clock = AnchoredClock(wall_clock, lambda: time.monotonic_ns() // 1000)
        ingest = Ingest.of_policy(policy, secrets.token_bytes(32))
        entrances = [_Listening(address, self._senders, users)]
        self.receiver = Receiver(entrances, ingest=ingest, sink=_Nowhere(), clock=self._clock)

    def heard(self) -> Heard:
        """Return what came in so far."""
        unknown = most_unknown(self.receiver.state)
        return Heard(self.receiver.counters, frozenset(self._senders.heard), unknown, self._clock.wall_ahead())


async def listen(
    policy: Policy, address: tuple[str, int], communities: Sequence[bytes], seconds: float, users: Users | None = None
) -> Heard:
    """Listen for a while; without users nothing of SNMPv3 is judged.

    Raises:
        OSError: the address cannot be had, as where something that runs has it.
    """
    ear = Ear(policy, address, communities, users)
    try:
        async with ear.receiver:
            await asyncio.wait({asyncio.ensure_future(ear.receiver.wait())}, timeout=seconds)
    except ClockStepError:
        pass  # what is told of the clock says so
    return ear.heard()


def _sources(policy: Policy) -> set[str]:
    """Return those that send by themselves, not through 'tacet hooks'."""
    return {source for site in policy.site.values() for source in site.sources if not is_cloud(source)}


def findings(policy: Policy, heard: Heard) -> Iterator[Finding]:
    """Yield what was heard: controllers by the policy's own entries, access points by address, no device at all."""
    counters = heard.counters
    if heard.sources:
        yield fine(HEARD, f"heard: {', '.join(sorted(heard.sources))}")
    if silent := sorted(_sources(policy) - heard.sources):
        yield note(HEARD, f"silent: {', '.join(silent)}; where people move something should come")
    taken = f"{counters.datagrams:,} datagrams, {counters.accepted:,} taken"
    judged = counters.datagrams - counters.dropped.get(UNSUPPORTED_VERSION, 0)
    if judged and not counters.accepted and not counters.dropped.get(COLLAPSED):
        yield wrong(HEARD, f"{taken}: nothing that comes in is of use")
    else:
        yield fine(HEARD, taken) if counters.datagrams else note(HEARD, taken)
    version3 = counters.dropped.get(UNSUPPORTED_VERSION, 0)
    if version3:
        yield note(DROPPED, f"{version3:,} of SNMPv3 or another version: name its users by TACET_SNMP_USERS_FILE")
    if asked := counters.dropped.get(DISCOVERY, 0):
        yield note(DROPPED, f"{asked:,} ask who is here, to send informs over SNMPv3: only what runs can answer these")
    yield from drops({**counters.dropped, UNSUPPORTED_VERSION: 0}, counters.kernel_drops)
    for name, traps in heard.unknown.items():
        yield note(PLACES, f"{name}: in no zone, {traps:,} trap(s)")
    if abs(heard.stepped) > CLOCK_STEP:
        yield wrong(STEP, f"was set by {heard.stepped / SECOND:+.1f} s meanwhile; a receiver stops at that")


def drops(dropped: Mapping[str, int], kernel_drops: int) -> Iterator[Finding]:
    """Yield what was dropped for each reason that points to a fault."""
    everyday = TrapEntrance.everyday | {COLLAPSED}
    for reason, number in sorted({**dropped, KERNEL: kernel_drops}.items()):
        if number and reason not in everyday:
            text = f"{number:,} {reason.replace('_', ' ')}{f': {ADVICE[reason]}' if reason in ADVICE else ''}"
            yield note(DROPPED, text) if reason == UNKNOWN_ACCESS_POINT else wrong(DROPPED, text)


def taken_by_another(error: OSError) -> bool:
    """Whether an address could not be had because another program listens there."""
    cause = error.__context__
    return error.errno == errno.EADDRINUSE or (isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE)
