"""Where traps come in: one UDP port and its checks, cheapest first.

Sender listed, an SNMP notification, its community, well-formed, something to observe, room in the queue.
"""

from __future__ import annotations

from typing import Any

from connectors.intake.addresses import sender
from connectors.intake.admission import QUEUE_FULL, UNKNOWN_SOURCE
from connectors.intake.answers import Reply, Requests
from connectors.intake.entrance import RECEIVE_BUFFER, UdpEntrance
from connectors.intake.sighting import Kind
from connectors.intake.waiting import Arrival
from connectors.snmp.admission import Senders
from connectors.snmp.ber import MALFORMED_REASONS, MalformedTrap
from connectors.snmp.reasons import DISCOVERY, V3_REASONS
from connectors.snmp.traps import IGNORED_REASONS, decode, envelope, respond
from stream.records import Micros

BAD_COMMUNITY, DUPLICATE_INFORM = "bad_community", "duplicate_inform"


class TrapEntrance(UdpEntrance):
    """SNMP v1 and v2c. An inform that was taken is answered once it is durable, and its copies after that."""

    reasons = (
        UNKNOWN_SOURCE, *MALFORMED_REASONS, BAD_COMMUNITY, *V3_REASONS, *IGNORED_REASONS, DUPLICATE_INFORM, QUEUE_FULL,
    )  # fmt: skip
    everyday = frozenset({DISCOVERY, DUPLICATE_INFORM, *IGNORED_REASONS})

    def __init__(self, address: tuple[str, int], senders: Senders, receive_buffer: int = RECEIVE_BUFFER) -> None:
        """Take where to listen, and who is heard."""
        super().__init__(address, receive_buffer)
        self._senders = senders
        self._informs = Requests(self._answer)

    def hear(self, now: Micros, datagram: bytes, address: Any) -> None:
        """Check one datagram, and queue what it says."""
        room = self.room
        room.counters.datagrams += 1
        host = sender(address[0])
        source = self._senders.listed(host)
        if source is None:
            room.drop(UNKNOWN_SOURCE)
            return
        try:
            around = envelope(datagram)
            if not self._senders.share(around.community):
                room.drop(BAD_COMMUNITY)
                return
            trap = decode(datagram, around)
        except MalformedTrap as error:
            room.drop(error.reason)
            return
        if trap.kind is Kind.IGNORED:
            room.drop(trap.reason)
            if trap.inform:
                self._answer(respond(datagram), address)
        elif trap.inform:
            self._take_inform(Arrival(now, source, host, trap.sighting), trap.request_id, datagram, address)
        else:
            room.take(Arrival(now, source, host, trap.sighting))

    def _take_inform(self, arrival: Arrival, request_id: int, datagram: bytes, address: Any) -> None:
        """Queue an inform once; a copy is answered once the first is durable."""
        now, _, host, sighting, _ = arrival
        said = (sighting.kind, sighting.client, sighting.access_point, sighting.name)
        reply = Reply(self._informs, (host, request_id, *said), address, respond(datagram))
        durable = self._informs.earlier(reply.key, now)
        if durable is not None:
            self.room.drop(DUPLICATE_INFORM)
            if durable:
                self._answer(reply.datagram, address)
        elif self._informs.full:
            self.room.drop(QUEUE_FULL)
        elif self.room.take(arrival._replace(answer=reply)):
            self._informs.remember(reply, now)

    def _answer(self, datagram: bytes, address: Any) -> None:
        if self.send(datagram, address):
            self.room.counters.informs_answered += 1
        else:
            self.room.counters.answers_unsent += 1
