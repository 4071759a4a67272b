"""The RADIUS clients that may send accounting, with their secrets: a private file.

The file is TOML (mode 0600), with one table for each client:

    [[client]]
    address = "10.2.0.5"                        # or a block, 10.2.0.0/24; the narrowest applies
    secrets = ["the new one", "the old one"]    # two are valid while they are being changed
    event_timestamp = "required"                # requests without Event-Timestamp are refused

    [[client]]
    address = "10.9.0.1"                        # a proxy: NAS-Identifier names the source of a request
    secrets = ["another one"]
    sources = { wlc-west = "10.2.0.5" }
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from connectors.secrets.secret_files import ReloadingSecrets, Secret, Table, octets_of, read_tables
from connectors.sources.ingest.source_filter import AllowList
from stream.errors import UsageError


def _block(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        msg = f"must be an address or a CIDR block such as '10.2.0.0/16', got {text!r}"
        raise ValueError(msg) from None


class Client(Table):
    """One sender of accounting, or a block of them that share their secrets."""

    address: Annotated[str, AfterValidator(_block)]
    secrets: tuple[Secret, ...] = Field(min_length=1, max_length=2, strict=False)
    event_timestamp: Literal["accepted", "required"] = "accepted"
    """Without Event-Timestamp a recorded request counts as new once the original has been forgotten."""
    sources: dict[str, str] | None = None
    """A proxy's: by NAS-Identifier the policy's source; None: the sender is the source."""

    @property
    def octets(self) -> tuple[bytes, ...]:
        """The secrets as they are used."""
        return octets_of(self.secrets)


class _File(Table):
    client: tuple[Client, ...] = Field(min_length=1, strict=False)


class Clients:
    """The clients of a file, by the addresses from which they send."""

    def __init__(self, clients: Sequence[Client] | ClientFile, sources: Collection[str]) -> None:
        """Set the clients, or the file that contains them, and the policy's sources.

        Raises ``UsageError`` for two clients at one address, or for a proxy for something that is no source of the
        policy.
        """
        self._file = clients if isinstance(clients, ClientFile) else None
        self._allowed, self._sources = AllowList(sources), sources
        if isinstance(clients, ClientFile):
            clients.sources = sources
        self._set(clients.content if isinstance(clients, ClientFile) else clients)

    def renew(self) -> None:
        """Reload the file of clients if there is one and it has changed.

        While it is invalid, the previous clients apply.
        """
        if self._file is not None:
            self._file.renew()
            if self._file.content is not self._content:
                self._set(self._file.content)

    def _set(self, clients: Sequence[Client]) -> None:
        self._content = clients
        self._clients = {client.address: (client, client.octets) for client in clients}
        if len(self._clients) < len(clients):
            msg = "client.address: must be listed once, but one address is listed twice"
            raise UsageError(msg)
        for client in clients:
            for source in (client.sources or {}).values():
                if source not in self._sources:
                    msg = f"client {client.address}: sources: must be sources of the policy, got {source!r}"
                    raise UsageError(msg)
        self._listed = AllowList(self._clients)

    def find(self, host: str) -> tuple[Client, tuple[bytes, ...]] | None:
        """Return the client at a numeric address and its secrets; None: not a client."""
        entry = self._listed.listed(host)
        return None if entry is None else self._clients[entry]

    def source(self, client: Client, host: str, nas_identifier: bytes) -> str | None:
        """Return the policy's source of a request, as it is listed; None: none."""
        if client.sources is None:
            return self._allowed.listed(host)
        return client.sources.get(nas_identifier.decode("utf-8", "replace"))


class ClientFile(ReloadingSecrets[tuple[Client, ...]]):
    """A file of clients that is read again when it has changed."""

    sources: Collection[str] | None = None
    """The policy's sources, once they are known: a file that does not match them is not used."""

    def __init__(self, path: Path) -> None:
        """Read it; KeyFileError if it is invalid."""
        super().__init__(path, "clients of RADIUS", self._read_matching)

    def _read_matching(self, path: Path) -> tuple[Client, ...]:
        clients = read_clients(path)
        if self.sources is not None:
            Clients(clients, self.sources)
        return clients


def read_clients(path: Path) -> tuple[Client, ...]:
    """Return the clients of a file; ``KeyFileError`` if it is missing, not private, or invalid."""
    return read_tables(path, _File, "RADIUS clients").client
