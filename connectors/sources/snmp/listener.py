"""Where traps come in: one UDP port and its checks, cheapest first.

Sender listed, an SNMP notification, its community or (SNMPv3) its user, well-formed, something to observe, room in
the queue.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from connectors.intake.addresses import sender
from connectors.intake.admission import QUEUE_FULL, UNKNOWN_SOURCE
from connectors.intake.answers import Reply, Requests
from connectors.intake.entrance import RECEIVE_BUFFER, UdpEntrance
from connectors.intake.sighting import Kind
from connectors.intake.waiting import Arrival, WaitingRoom
from connectors.snmp.admission import Senders
from connectors.snmp.ber import MALFORMED_REASONS
from connectors.snmp.hearing import Hearing, Said
from connectors.snmp.reasons import BAD_COMMUNITY, DISCOVERY, REPLAYED, V3_REASONS
from connectors.snmp.traps import IGNORED_REASONS
from connectors.snmp.usm.gate import Turned
from connectors.snmp.usm.listening import V3Files, listening
from stream.records import Micros

DUPLICATE_INFORM = "duplicate_inform"


class TrapEntrance(UdpEntrance):
    """SNMP v1, v2c and, where its users are given, v3.

    An inform that was taken is answered once it is durable, and its copies after that.
    """

    reasons = (
        UNKNOWN_SOURCE, *MALFORMED_REASONS, BAD_COMMUNITY, *V3_REASONS, *IGNORED_REASONS, DUPLICATE_INFORM, QUEUE_FULL,
    )  # fmt: skip
    everyday = frozenset({DISCOVERY, DUPLICATE_INFORM, *IGNORED_REASONS})

    def __init__(
        self,
        address: tuple[str, int],
        senders: Senders,
        receive_buffer: int = RECEIVE_BUFFER,
        *,
        v3: V3Files | None = None,
    ) -> None:
        """Take where to listen, and who is heard; without ``v3`` no SNMPv3 is."""
        super().__init__(address, receive_buffer)
        self._senders, self._v3 = senders, v3
        self._hearing = Hearing(senders)
        self._held = ExitStack()
        self._informs = Requests(self._answer)

    async def open(self, room: WaitingRoom) -> None:
        """Count this start where SNMPv3 is heard, bind the socket and read."""
        if self._v3 is not None:
            self._hearing = Hearing(self._senders, self._held.enter_context(listening(self._v3, room.clock.now())))
        await super().open(room)

    async def close(self) -> None:
        """Give the address back, and the file."""
        await super().close()
        self._held.close()

    def turned(self) -> None:
        """Make durable what is not to be heard again, and look who is heard from now on."""
        self._hearing.keep()
        self._hearing.renew()

    def hear(self, now: Micros, datagram: bytes, address: Any) -> None:
        """Check one datagram, and queue what it says."""
        room = self.room
        room.counters.datagrams += 1
        host = sender(address[0])
        source = self._senders.listed(host)
        if source is None:
            room.drop(UNKNOWN_SOURCE)
            return
        said = self._hearing.read(datagram, host, now)
        if isinstance(said, Turned):
            room.drop(said.reason)
            if said.report is not None:
                self.send(said.report, address)
            return
        trap = said.trap
        if trap.kind is Kind.IGNORED:
            room.drop(trap.reason)
            if trap.tells_of_refusal:
                room.refusals[source] = now
            if trap.inform:
                self._answer(self._hearing.respond(said, now), address)
        elif trap.inform:
            self._take_inform(Arrival(now, source, host, trap.sighting), said, address)
        else:
            room.take(Arrival(now, source, host, trap.sighting))

    def _take_inform(self, arrival: Arrival, said: Said, address: Any) -> None:
        """Queue an inform once; a copy is answered once the first is durable."""
        now, _, host, seen, _ = arrival
        key = (host, said.trap.request_id, seen.kind, seen.client, seen.access_point, seen.name)
        reply = Reply(self._informs, key, address, self._hearing.respond(said, now))
        durable = self._informs.earlier(reply.key, now)
        if durable is not None:
            self.room.drop(DUPLICATE_INFORM)
            if durable:
                self._answer(reply.datagram, address)
        elif said.repeated:
            self.room.drop(REPLAYED)
        elif self._informs.full:
            self.room.drop(QUEUE_FULL)
            self._hearing.forget(said)
        elif self.room.take(arrival._replace(answer=reply)):
            self._informs.remember(reply, now)
        else:
            self._hearing.forget(said)

    def _answer(self, datagram: bytes, address: Any) -> None:
        if self.send(datagram, address):
            self.room.counters.informs_answered += 1
        else:
            self.room.counters.answers_unsent += 1
