"""The listener for RADIUS accounting: one UDP port and its checks, cheapest first.

The checks are: a client of the file, a request, genuine under one of the client's secrets, well-formed, for a source of
the policy, not a repetition, an observation, room in the queue. Only genuine requests are answered: when they are
durable, or when there is nothing to store. A copy gets the same answer and is not counted again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from connectors.sources.ingest.addresses import sender
from connectors.sources.ingest.listeners import RECEIVE_BUFFER, UdpListener
from connectors.sources.ingest.queue import QUEUE_FULL, QueuedSighting, Reply, Requests
from connectors.sources.ingest.sighting import Kind
from connectors.sources.ingest.source_filter import UNKNOWN_SOURCE
from connectors.sources.radius.clients import Client, Clients
from connectors.sources.radius.decoder import (
    ACCOUNTING_REQUEST,
    EVENT_TIMESTAMP,
    IGNORED_REASONS,
    LOGIN_ATTRIBUTES,
    NAS_IDENTIFIER,
    REFUSED_REASONS,
    RefusedPacket,
    Request,
    account,
    read,
    respond,
)
from stream.records import MINUTE, Micros

MEMORY: Micros = 5 * MINUTE
"""How long a request is remembered. After that, one with Event-Timestamp is too old to be accepted again."""
LIMIT = 262_144
"""Number of requests that are remembered; beyond it, the oldest is forgotten."""
UNKNOWN_NAS, NO_TIMESTAMP, DUPLICATE_REQUEST = "unknown_nas", "no_timestamp", "duplicate_request"


class AccountingListener(UdpListener):
    """RADIUS accounting, and Status-Server, with which a client checks that the server is alive."""

    reasons = (
        UNKNOWN_SOURCE, *REFUSED_REASONS, UNKNOWN_NAS, NO_TIMESTAMP, DUPLICATE_REQUEST, *IGNORED_REASONS, QUEUE_FULL,
    )  # fmt: skip
    harmless = frozenset({DUPLICATE_REQUEST, *IGNORED_REASONS})

    def __init__(
        self, address: tuple[str, int], clients: Clients, receive_buffer: int = RECEIVE_BUFFER,
        logins: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Set the address to listen on, the accepted clients, and which attributes name a login at some site."""
        super().__init__(address, receive_buffer)
        self._logins = frozenset(LOGIN_ATTRIBUTES[name] for name in logins)
        self._clients = clients
        self._requests = Requests(self._answer, MEMORY, LIMIT)

    def on_datagram(self, now: Micros, datagram: bytes, address: Any) -> None:
        """Check one datagram, and enqueue its sighting."""
        queue = self.queue
        queue.counters.datagrams += 1
        host = sender(address[0])
        self._clients.renew()
        known = self._clients.find(host)
        if known is None:
            queue.drop(UNKNOWN_SOURCE)
            return
        client, secrets = known
        try:
            request = read(datagram, secrets, self._logins)
            refused = self._enqueue(now, host, client, request, address)
        except RefusedPacket as error:
            refused = error.reason
        if refused is not None:
            queue.drop(refused)

    def _enqueue(self, now: Micros, host: str, client: Client, request: Request, address: Any) -> str | None:
        """Enqueue the sighting of a genuine request; return why not, None if the result is already counted."""
        source = self._clients.source(client, host, request.attributes.get(NAS_IDENTIFIER, b""))
        if source is None:
            return UNKNOWN_SOURCE if client.sources is None else UNKNOWN_NAS
        key = (client.address, request.identifier, request.authenticator)
        durable = self._requests.earlier_is_durable(key, now)
        if durable is not None:
            if durable:
                self._answer(respond(request), address)
            return DUPLICATE_REQUEST
        timed = request.code != ACCOUNTING_REQUEST or EVENT_TIMESTAMP in request.attributes
        if client.event_timestamp == "required" and not timed:
            return NO_TIMESTAMP
        accounted = account(request, now)
        if accounted.sighting.kind is Kind.IGNORED:
            self._answer(respond(request), address)
            return accounted.reason
        if self._requests.full:
            return QUEUE_FULL
        reply = Reply(self._requests, key, address, respond(request))
        if self.queue.put(QueuedSighting(now, source, host, accounted.sighting, reply)):
            self._requests.remember(reply, now)
        return None

    def _answer(self, datagram: bytes, address: Any) -> None:
        if self.send(datagram, address):
            self.queue.counters.requests_answered += 1
        else:
            self.queue.counters.answers_unsent += 1
