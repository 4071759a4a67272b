"""The listener for traps: one UDP port and its checks, cheapest first.

The checks are: sender listed, an SNMP notification, its community or (SNMPv3) its user, well-formed, an observation,
space in the queue.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from connectors.sources.ingest.addresses import sender
from connectors.sources.ingest.listeners import RECEIVE_BUFFER, UdpListener
from connectors.sources.ingest.queue import QUEUE_FULL, IngestQueue, QueuedSighting, Reply, Requests
from connectors.sources.ingest.sighting import Kind
from connectors.sources.ingest.source_filter import UNKNOWN_SOURCE
from connectors.sources.snmp.authentication import AuthenticatedTrap, TrapAuthenticator
from connectors.sources.snmp.ber import MALFORMED_REASONS
from connectors.sources.snmp.communities import CommunityAuth
from connectors.sources.snmp.drop_reasons import BAD_COMMUNITY, DISCOVERY, REPLAYED, V3_REASONS
from connectors.sources.snmp.traps import IGNORED_REASONS
from connectors.sources.snmp.usm.receiver import V3Files, listening
from connectors.sources.snmp.usm.verifier import RejectedMessage
from stream.records import Micros

DUPLICATE_INFORM = "duplicate_inform"


class TrapListener(UdpListener):
    """SNMP v1, v2c and, if users are configured, v3.

    An accepted inform is acknowledged once it is durable, and its copies after that.
    """

    reasons = (
        UNKNOWN_SOURCE, *MALFORMED_REASONS, BAD_COMMUNITY, *V3_REASONS, *IGNORED_REASONS, DUPLICATE_INFORM, QUEUE_FULL,
    )  # fmt: skip
    harmless = frozenset({DISCOVERY, DUPLICATE_INFORM, *IGNORED_REASONS})

    def __init__(
        self,
        address: tuple[str, int],
        senders: CommunityAuth,
        receive_buffer: int = RECEIVE_BUFFER,
        *,
        v3: V3Files | None = None,
    ) -> None:
        """Set the address to listen on, and the authentication; without ``v3`` no SNMPv3 is accepted."""
        super().__init__(address, receive_buffer)
        self._senders, self._v3 = senders, v3
        self._authenticator = TrapAuthenticator(senders)
        self._resources = ExitStack()
        self._informs = Requests(self._answer)

    async def open(self, queue: IngestQueue) -> None:
        """Count this start if SNMPv3 is accepted, bind the socket and start reading."""
        if self._v3 is not None:
            self._authenticator = TrapAuthenticator(
                self._senders, self._resources.enter_context(listening(self._v3, queue.clock.now()))
            )
        await super().open(queue)

    async def close(self) -> None:
        """Release the address and the file."""
        await super().close()
        self._resources.close()

    def after_batch(self) -> None:
        """Store replay protection durably, and reload the accepted senders."""
        self._authenticator.keep()
        self._authenticator.renew()

    def on_datagram(self, now: Micros, datagram: bytes, address: Any) -> None:
        """Check one datagram, and enqueue its sighting."""
        queue = self.queue
        queue.counters.datagrams += 1
        host = sender(address[0])
        source = self._senders.listed(host)
        if source is None:
            queue.drop(UNKNOWN_SOURCE)
            return
        message = self._authenticator.read(datagram, host, now)
        if isinstance(message, RejectedMessage):
            queue.drop(message.reason)
            if message.report is not None:
                self.send(message.report, address)
            return
        trap = message.trap
        if trap.kind is Kind.IGNORED:
            queue.drop(trap.reason)
            if trap.reports_refusal:
                queue.refusals[source] = now
            if trap.inform:
                self._answer(self._authenticator.respond(message, now), address)
        elif trap.inform:
            self._enqueue_inform(QueuedSighting(now, source, host, trap.sighting), message, address)
        else:
            queue.put(QueuedSighting(now, source, host, trap.sighting))

    def _enqueue_inform(self, queued: QueuedSighting, trap: AuthenticatedTrap, address: Any) -> None:
        """Enqueue an inform once; a copy is acknowledged once the first is durable."""
        now, _, host, sighting, _ = queued
        key = (host, trap.trap.request_id, sighting.kind, sighting.client, sighting.access_point, sighting.name)
        reply = Reply(self._informs, key, address, self._authenticator.respond(trap, now))
        durable = self._informs.earlier_is_durable(reply.key, now)
        if durable is not None:
            self.queue.drop(DUPLICATE_INFORM)
            if durable:
                self._answer(reply.datagram, address)
        elif trap.repeated:
            self.queue.drop(REPLAYED)
        elif self._informs.full:
            self.queue.drop(QUEUE_FULL)
            self._authenticator.forget(trap)
        elif self.queue.put(queued._replace(acknowledgement=reply)):
            self._informs.remember(reply, now)
        else:
            self._authenticator.forget(trap)

    def _answer(self, datagram: bytes, address: Any) -> None:
        if self.send(datagram, address):
            self.queue.counters.informs_answered += 1
        else:
            self.queue.counters.answers_unsent += 1
