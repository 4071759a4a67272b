"""Who may send traps, with which community, and the count of all that was refused."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from connectors.private_file import read_private
from connectors.snmp.addresses import sender
from connectors.snmp.ber import MALFORMED_REASONS
from connectors.snmp.ingest import INGEST_REASONS
from connectors.snmp.reasons import V3_REASONS
from connectors.snmp.traps import IGNORED_REASONS
from stream.errors import KeyFileError, UsageError

ANY = "any"
"""How a sender is listed when every sender is allowed and no entry covers it."""
UNKNOWN_SOURCE, BAD_COMMUNITY = "unknown_source", "bad_community"
QUEUE_FULL, DUPLICATE_INFORM = "queue_full", "duplicate_inform"
DROP_REASONS = (
    UNKNOWN_SOURCE, *MALFORMED_REASONS, BAD_COMMUNITY, *V3_REASONS, *IGNORED_REASONS,
    DUPLICATE_INFORM, QUEUE_FULL, *INGEST_REASONS,
)  # fmt: skip
"""Every reason for which a datagram is dropped, in the order of the checks; the labels of the metric."""
_CACHED = 4096
_MAPPED_BITS = 96
"""Bits before an IPv4 address within IPv6 (``::ffff:10.2.0.5``); senders are compared without them."""


class AllowList:
    """Which senders are listed, by address or CIDR block; the narrowest entry counts."""

    def __init__(self, entries: Iterable[str], *, allow_any: bool = False) -> None:
        """Take the policy's sources; ``UsageError`` when there are none and ``allow_any`` is not set."""
        networks = [(_network(entry), entry) for entry in entries]
        if not networks and not allow_any:
            msg = "sources: must list at least one sender (or allow any sender explicitly), got none"
            raise UsageError(msg)
        self._networks = sorted(networks, key=lambda pair: pair[0].prefixlen, reverse=True)
        self._default = ANY if allow_any else None
        self._cache: dict[str, str | None] = {}

    def listed(self, host: str) -> str | None:
        """Return the entry that covers a numeric address, as it was written; None: not allowed."""
        try:
            return self._cache[host]
        except KeyError:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            entry = self._cache[host] = self._find(host)
            return entry

    def _find(self, host: str) -> str | None:
        address = ipaddress.ip_address(sender(host))
        return next((entry for network, entry in self._networks if address in network), self._default)


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        network = ipaddress.ip_network(entry)
    except ValueError:
        msg = f"sources: must be addresses or CIDR blocks such as '10.2.0.0/16', got {entry!r}"
        raise UsageError(msg) from None
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    if mapped is None or network.prefixlen < _MAPPED_BITS:
        return network
    return ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))


def read_communities(path: Path) -> tuple[bytes, ...]:
    """Return the communities of a file, one a line; blank lines and ``#`` lines are passed over.

    Raises ``KeyFileError`` when the file is missing, can be read by group or others, or holds none.
    """
    lines = read_private(path, "communities").splitlines()
    communities = tuple(line.strip() for line in lines if line.strip() and not line.startswith(b"#"))
    if not communities:
        msg = f"{path}: must hold at least one community"
        raise KeyFileError(msg)
    return communities


def is_known(community: bytes, allowed: Sequence[bytes]) -> bool:
    """Compare with every allowed community, in a time that does not tell which one came close."""
    found = False
    for known in allowed:
        found |= hmac.compare_digest(community, known)
    return found


class Senders:
    """Who is heard: the listed senders, if they know one of the communities."""

    def __init__(self, allow: AllowList, communities: Sequence[bytes]) -> None:
        """Take both; ``UsageError`` when there is no community."""
        if not communities:
            msg = "communities: must hold at least one, got none"
            raise UsageError(msg)
        self._allow, self._communities = allow, tuple(communities)

    def listed(self, host: str) -> str | None:
        """Return the entry that covers a numeric address, as it was written; None: not allowed."""
        return self._allow.listed(host)

    def share(self, community: bytes) -> bool:
        """Whether a community is one of theirs."""
        return is_known(community, self._communities)


@dataclass(slots=True)
class Counters:
    """What became of each datagram that the socket gave up; labels come from a fixed set."""

    datagrams: int = 0
    accepted: int = 0
    """Taken by the ingest: kept sightings, keep-alives, restarts."""
    waiting: int = 0
    """In the queue."""
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DROP_REASONS, 0))
    kernel_drops: int = 0
    """Datagrams that the kernel had no room for; not part of ``datagrams``."""
    informs_answered: int = 0
    answers_unsent: int = 0
    receive_buffer: int = 0
    """The socket's buffer in octets, as the kernel granted it."""

    def check(self) -> bool:
        """Whether every datagram is accounted for exactly once."""
        return self.datagrams == self.accepted + self.waiting + sum(self.dropped.values())
