"""Who may send accounting, and under which secret: a file of the operator's alone.

The file is TOML (mode 0600), one table a client:

    [[client]]
    address = "10.2.0.5"                        # or a block, 10.2.0.0/24; the narrowest counts
    secrets = ["the new one", "the old one"]    # two are valid while they are being changed
    event_timestamp = "required"                # no request is taken without Event-Timestamp

    [[client]]
    address = "10.9.0.1"                        # a proxy: NAS-Identifier says for which source it sends
    secrets = ["another one"]
    sources = { wlc-west = "10.2.0.5" }
"""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError

from connectors.intake.admission import AllowList
from connectors.private_file import read_private
from stream.errors import KeyFileError, UsageError

SHORTEST_SECRET = 16
"""Octets. Whoever has heard one request can try secrets offline, so a secret has to be random, not a word."""


def _secret(secret: SecretStr) -> SecretStr:
    if len(secret.get_secret_value().encode()) < SHORTEST_SECRET:
        msg = f"must have at least {SHORTEST_SECRET} octets"
        raise ValueError(msg)
    return secret


def _block(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        msg = f"must be an address or a CIDR block such as '10.2.0.0/16', got {text!r}"
        raise ValueError(msg) from None


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class Client(_Table):
    """One sender of accounting, or a block of them that share their secrets."""

    address: Annotated[str, AfterValidator(_block)]
    secrets: tuple[Annotated[SecretStr, AfterValidator(_secret)], ...] = Field(min_length=1, max_length=2, strict=False)
    event_timestamp: Literal["accepted", "required"] = "accepted"
    """Without it a request that somebody recorded is new again when its first copy has been forgotten."""
    sources: dict[str, str] | None = None
    """A proxy's: by NAS-Identifier the policy's source; None: the sender is the source."""

    @property
    def octets(self) -> tuple[bytes, ...]:
        """The secrets as they are used."""
        return tuple(secret.get_secret_value().encode() for secret in self.secrets)


class _File(_Table):
    client: tuple[Client, ...] = Field(min_length=1, strict=False)


class Clients:
    """The clients of a file, by the addresses that they send from."""

    def __init__(self, clients: Sequence[Client], sources: Collection[str]) -> None:
        """Take the clients, and the policy's sources.

        Raises ``UsageError`` for two clients at one address, or a proxy for something that is no source of the policy.
        """
        self._clients = {client.address: (client, client.octets) for client in clients}
        if len(self._clients) < len(clients):
            msg = "client.address: must be given once, got one more than once"
            raise UsageError(msg)
        for client in clients:
            for source in (client.sources or {}).values():
                if source not in sources:
                    msg = f"client {client.address}: sources: must be sources of the policy, got {source!r}"
                    raise UsageError(msg)
        self._listed, self._allowed = AllowList(self._clients), AllowList(sources)

    def find(self, host: str) -> tuple[Client, tuple[bytes, ...]] | None:
        """Return the client at a numeric address and its secrets; None: nobody who may send."""
        entry = self._listed.listed(host)
        return None if entry is None else self._clients[entry]

    def source(self, client: Client, host: str, nas_identifier: bytes) -> str | None:
        """Return the policy's source that a request stands for, as it is listed; None: none."""
        if client.sources is None:
            return self._allowed.listed(host)
        return client.sources.get(nas_identifier.decode("utf-8", "replace"))


def read_clients(path: Path) -> tuple[Client, ...]:
    """Return the clients of a file; ``KeyFileError`` when it is missing, not private, or not as it must be."""
    try:
        return _File.model_validate(tomllib.loads(read_private(path, "RADIUS clients").decode())).client
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        msg = f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}"
        raise KeyFileError(msg) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        msg = f"{path}: must be TOML in UTF-8"  # what is wrong with it is not said: it might be a secret
        raise KeyFileError(msg) from None
