"""The allow-list of senders."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from connectors.sources.ingest.addresses import sender
from stream.errors import UsageError
from stream.policy.fields import is_cloud

ANY = "any"
"""The name of a sender if every sender is allowed and no entry covers it."""
UNKNOWN_SOURCE = "unknown_source"
_CACHED = 4096
_MAPPED_BITS = 96
"""Bits before an IPv4 address within IPv6 (``::ffff:10.2.0.5``); senders are compared without them."""


class AllowList:
    """The listed senders, by address or CIDR block; the narrowest entry applies."""

    def __init__(self, entries: Iterable[str], *, allow_any: bool = False) -> None:
        """Set the policy's sources; ``UsageError`` if none has an address and ``allow_any`` is not set."""
        networks = [(_network(entry), entry) for entry in entries if not is_cloud(entry)]
        if not networks and not allow_any:
            msg = "sources: must list at least one sender (or allow any sender explicitly), got none"
            raise UsageError(msg)
        self._networks = sorted(networks, key=lambda pair: pair[0].prefixlen, reverse=True)
        self._default = ANY if allow_any else None
        self._cache: dict[str, str | None] = {}

    def listed(self, host: str) -> str | None:
        """Return the entry that covers a numeric address, in the policy's spelling; None: not allowed."""
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
