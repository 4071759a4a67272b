"""Asking an agent for its sysUpTime, over SNMPv2c or SNMPv3."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from connectors.probes.asking import TRIES, Answer, connected, exchange
from connectors.snmp.polling import (
    Agent,
    introduced,
    question,
    secured_answer,
    secured_question,
    uptime,
    who_are_you,
)
from connectors.snmp.usm.protocols import Keys
from connectors.snmp.usm.users import Users

T = TypeVar("T")
PORT = 161


def _number() -> int:
    """Return what no forger who does not see the question can guess, and so cannot answer."""
    return secrets.randbelow(2**31)


@dataclass(frozen=True, slots=True)
class ByCommunity:
    """SNMPv2c: whoever reads the question can answer it."""

    host: str
    port: int
    community: bytes

    async def ask(self) -> Answer | None:
        """Ask up to three times."""
        number = _number()
        said = await _asked(
            self.host, self.port, question(self.community, number), lambda heard: uptime(heard, self.community, number)
        )
        return None if said is None else Answer(said)


async def provoke(host: str, port: int) -> None:
    """Ask once with a community that nobody has, and wait for nothing."""
    with suppress(OSError), connected(host, port) as sock:
        await asyncio.get_running_loop().sock_sendall(sock, question(secrets.token_hex(8).encode(), _number()))


class ByUser:
    """SNMPv3: only who has the user's key at the agent's own engine can answer."""

    def __init__(self, host: str, port: int, users: Users, user: str) -> None:
        """Take users that have this one; deriving its key at the agent's engine waits for the first answer."""
        self._host, self._port, self._users, self._user = host, port, users, user.encode()
        self._engine = b""
        self._salt = secrets.randbits(64)
        self._used: Keys | None = None

    async def ask(self) -> Answer | None:
        """Ask who it is, where that is not known, then what time it has, then for its uptime."""
        self._engine = self._engine or await self._introduction()
        valid = self._users.all_keys(self._user, self._engine) if self._engine else ()
        for keys in sorted(valid, key=lambda keys: keys != self._used):  # first those by which it answered last
            said: int | Agent | None = Agent(self._engine, 0, 0)
            for _ in range(TRIES):
                if not isinstance(said, Agent):
                    break
                said = await self._question(said, keys)
            if isinstance(said, int):
                self._used = keys
                return Answer(said)
        self._engine = b""  # it may have been replaced
        return None

    async def _introduction(self) -> bytes:
        number = _number()
        agent = await _asked(self._host, self._port, who_are_you(number), lambda heard: introduced(heard, number))
        return agent.engine if agent is not None and self._users.may_be(self._host, agent.engine) else b""

    async def _question(self, agent: Agent, keys: Keys) -> int | Agent | None:
        """Return the uptime, or what the agent says of its boots and time where ours were wrong."""
        number = _number()
        self._salt = (self._salt + 1) % 2**64
        asked = secured_question(keys, agent, self._user, number, self._salt.to_bytes(8, "big"))
        return await _asked(self._host, self._port, asked, lambda heard: secured_answer(keys, agent, heard, number))


async def _asked(host: str, port: int, datagram: bytes, read: Callable[[bytes], T | None]) -> T | None:
    """Send a question up to three times; return what is read of the first datagram that is an answer to it."""
    try:
        sock = connected(host, port)
    except OSError:
        return None
    with sock:
        for _ in range(TRIES):
            heard = await exchange(sock, datagram)
            said = None if heard is None else read(heard)
            if said is not None:
                return said
    return None
