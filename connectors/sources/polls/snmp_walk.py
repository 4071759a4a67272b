"""Walks of client tables over SNMPv2c and SNMPv3: whole, or not at all.

1. A walk has one request in flight. Requests are at least ``PACE`` apart, and ask for ``REPETITIONS`` rows of all
   columns of the table at once (GETBULK).
2. A request without an answer is sent once more. Without an answer to that the walk fails.
3. Each column has a cursor of its own, since an agent may cut a response anywhere. A column ends where a response
   leaves it. Names must rise; otherwise the walk fails.
4. The walk is complete when every column has ended. An incomplete walk returns nothing.

Over SNMPv3 a response counts only with a genuine tag of the agent's own engine, and encrypted if the request was.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from connectors.sources.polls.client_tables import AssociatedClient, Cell, ClientTable, associated
from connectors.sources.probes.methods import connected, request_number
from connectors.sources.snmp.ber import sub_identifiers
from connectors.sources.snmp.polling import (
    END_OF_MIB_VIEW,
    Agent,
    BulkResponse,
    Pdu,
    bulk_response,
    discovered_agent,
    discovery_request,
    get_bulk,
    request,
    response,
    secured_request,
    secured_response,
)
from connectors.sources.snmp.usm.protocols import Keys
from connectors.sources.snmp.usm.users import Users

REPETITIONS = 20
"""Rows that one request asks for."""
PACE = 0.02
"""Seconds between two requests, at least."""
WAIT = 3.0
"""Seconds that an agent has for an answer."""
TRIES = 2
MOST_ROWS = 200_000
"""Rows of a table at which its source is closed: far above any real site."""
_TIME_REPORTS = 3
"""Requests in a row that an agent may answer with its time."""
T = TypeVar("T")

NO_ANSWER, REFUSED, MALFORMED, TOO_LONG = "no_answer", "refused", "malformed", "too_long"


class PollError(Exception):
    """A table that could not be read whole; ``reason`` is a word from a fixed list."""

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        """``retry_after``: seconds for which the source asked not to be queried."""
        super().__init__(reason)
        self.reason, self.retry_after = reason, retry_after


class Table(NamedTuple):
    """A table that was read whole; its repr hides it."""

    rows: list[AssociatedClient]
    requests: int
    """Requests that were sent for it, repeated ones included."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "Table()"


class TableReader(Protocol):
    """One source and the way to read its table."""

    async def read(self) -> Table:
        """Return the whole table; PollError if that is impossible."""


class Exchange:
    """A socket to one agent, with one request in flight."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected socket."""
        self._sock, self._next = sock, 0.0
        self.sent = 0
        """Datagrams sent so far."""

    async def ask(self, datagram: bytes, read: Callable[[bytes], T | None]) -> T:
        """Return the first value that ``read`` makes of a datagram from the agent; PollError if none comes in time."""
        for _ in range(TRIES):
            await asyncio.sleep(max(0.0, self._next - time.monotonic()))
            self._next = time.monotonic() + PACE
            self.sent += 1
            try:
                async with asyncio.timeout(WAIT):
                    return await self._answer(datagram, read)
            except OSError:  # includes the time-out; ICMP reports a closed port
                continue
        raise PollError(NO_ANSWER)

    async def _answer(self, datagram: bytes, read: Callable[[bytes], T | None]) -> T:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._sock, datagram)
        while True:
            found = read(await loop.sock_recv(self._sock, 65_535))
            if found is not None:  # otherwise a late copy of an earlier answer, or a forgery
                return found
            await asyncio.sleep(0)  # sock_recv does not yield while datagrams wait: a flood would stop the process


Ask = Callable[[Sequence[bytes]], Awaitable[BulkResponse]]
"""Requests the next rows after names, and returns the response."""


class CommunityReader:
    """A table over SNMPv2c: anyone who reads a request can answer it."""

    def __init__(self, host: str, port: int, table: ClientTable, community: Callable[[], bytes]) -> None:
        """``community`` returns the present one."""
        self._host, self._port, self._table, self._community = host, port, table, community

    async def read(self) -> Table:
        """Walk the table."""
        community = self._community()
        with _connected(self._host, self._port) as sock:
            exchange = Exchange(sock)

            async def ask(names: Sequence[bytes]) -> BulkResponse:
                number = request_number()

                def read(datagram: bytes) -> BulkResponse | None:
                    pdu = response(datagram, community)
                    return None if pdu is None else bulk_response(pdu, number)

                return await exchange.ask(request(community, get_bulk(number, names, REPETITIONS)), read)

            return Table(await walked(ask, self._table), exchange.sent)


class UserReader:
    """A table over SNMPv3: only an owner of the user's key at the agent's own engine can answer."""

    def __init__(self, host: str, port: int, table: ClientTable, users: Users, user: str) -> None:
        """Set the users, which include this one; its keys are derived when the agent's engine is known."""
        self._host, self._port, self._table, self._users, self._user = host, port, table, users, user.encode()
        self._salt = secrets.randbits(64)
        self._used: Keys | None = None

    async def read(self) -> Table:
        """Discover the engine and walk the table, with each of the user's passwords that are valid now."""
        self._users.renew()
        with _connected(self._host, self._port) as sock:
            exchange = Exchange(sock)
            number = request_number()
            agent = await exchange.ask(discovery_request(number), lambda datagram: discovered_agent(datagram, number))
            if not self._users.may_be(self._host, agent.engine):
                raise PollError(REFUSED)
            valid = self._users.all_keys(self._user, agent.engine)
            for keys in sorted(valid, key=lambda keys: keys != self._used):  # first the keys of the last walk
                session = _SecuredSession(exchange, keys, agent, self._user, self._next_salt)
                try:
                    rows = await walked(session.ask, self._table)
                except PollError:
                    if session.is_known:
                        raise
                    continue
                self._used = keys
                return Table(rows, exchange.sent)
        raise PollError(NO_ANSWER)

    def _next_salt(self) -> bytes:
        self._salt = (self._salt + 1) % 2**64
        return self._salt.to_bytes(8, "big")


class _SecuredSession:
    """Requests of one user to one engine, whose clock is followed."""

    def __init__(self, exchange: Exchange, keys: Keys, agent: Agent, user: bytes, salt: Callable[[], bytes]) -> None:
        self._exchange, self._keys, self._user, self._salt = exchange, keys, user, salt
        self._agent, self._since = Agent(agent.engine, 0, 0), time.monotonic()
        self.is_known = False
        """Whether the agent has given a genuine answer."""

    async def ask(self, names: Sequence[bytes]) -> BulkResponse:
        for _ in range(_TIME_REPORTS):
            number, agent = request_number(), self._now()
            datagram = secured_request(
                self._keys, agent, self._user, number, self._salt(), get_bulk(number, names, REPETITIONS)
            )

            def read(datagram: bytes, agent: Agent = agent, number: int = number) -> BulkResponse | Agent | None:
                answer = secured_response(self._keys, agent, datagram, number)
                return bulk_response(answer, number) if isinstance(answer, Pdu) else answer

            answer: BulkResponse | Agent = await self._exchange.ask(datagram, read)
            self.is_known = True
            if isinstance(answer, BulkResponse):
                return answer
            self._agent, self._since = answer, time.monotonic()
        raise PollError(REFUSED)

    def _now(self) -> Agent:
        """Return the agent with its present time: requests of more than 150 s ago would be too old (RFC 3414, 3.2)."""
        if not self._agent.time and not self._agent.boots:
            return self._agent  # unknown
        return self._agent._replace(time=self._agent.time + int(time.monotonic() - self._since))


def _connected(host: str, port: int) -> socket.socket:
    try:
        return connected(host, port)
    except OSError:
        raise PollError(NO_ANSWER) from None


async def walked(ask: Ask, table: ClientTable) -> list[AssociatedClient]:
    """Return the devices of a table after a whole walk; PollError if it is incomplete."""
    columns = table.columns
    cells: list[dict[bytes, Cell]] = [{} for _ in columns]
    cursors, going = list(columns), list(range(len(columns)))
    while going:
        answer = await ask([cursors[place] for place in going])
        if answer.error:
            raise PollError(REFUSED)
        if not answer.bindings:
            raise PollError(MALFORMED)
        ended: set[int] = set()
        for order, (name, tag, value) in enumerate(answer.bindings):
            place = going[order % len(going)]
            column = columns[place]
            if place in ended:
                continue
            if tag == END_OF_MIB_VIEW or not name.startswith(column) or len(name) == len(column):
                ended.add(place)
                continue
            if not _rises(cursors[place][len(column) :], name[len(column) :]):
                raise PollError(MALFORMED)
            cursors[place] = name
            cells[place][name[len(column) :]] = Cell(tag, value)
        if max(map(len, cells)) > MOST_ROWS:
            raise PollError(TOO_LONG)
        going = [place for place in going if place not in ended]
    return associated(table, cells)


def _rises(before: bytes, after: bytes) -> bool:
    return not before or sub_identifiers(before) < sub_identifiers(after)
