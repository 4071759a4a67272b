"""Which systems are heard and read, and by which secrets: a file of the operator's alone.

The file is TOML (mode 0600), one table a system:

    [[hook]]
    name = "mist"                               # its path is /hooks/mist
    system = "mist"                             # or "meraki", with its validator
    source = "cloud:mist"                       # as in the policy's sources
    secrets = ["the new one", "the old one"]    # two are valid while they are being changed

    [[stream]]
    name = "spaces"
    system = "spaces"
    source = "cloud:spaces"
    url = "https://partners.ciscospaces.io/api/partners/v1/firehose/events"
    api_key = "its key"
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from connectors.private_file import read_private
from stream.errors import KeyFileError
from stream.policy.fields import is_cloud

SHORTEST_SECRET = 16
"""Octets: strangers may try as many as they like."""


def _secret(secret: SecretStr) -> SecretStr:
    if len(secret.get_secret_value().encode()) < SHORTEST_SECRET:
        msg = f"must have at least {SHORTEST_SECRET} octets"
        raise ValueError(msg)
    return secret


def _cloud(source: str) -> str:
    if not is_cloud(source):
        msg = f"must be one of the policy's sources that begin with 'cloud:', got {source!r}"
        raise ValueError(msg)
    return source


def _https(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        msg = f"must be an address that begins with https, got {url!r}"
        raise ValueError(msg)
    return url


Secret = Annotated[SecretStr, AfterValidator(_secret)]
SystemName = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]{0,63}$")]
Cloud = Annotated[str, AfterValidator(_cloud)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class Hook(_Table):
    """A system that sends."""

    name: SystemName
    system: Literal["mist", "meraki"]
    source: Cloud
    secrets: tuple[Secret, ...] = Field(min_length=1, max_length=2, strict=False)
    validator: SecretStr | None = None
    """What Meraki asks for to see that the address is its owner's."""

    @model_validator(mode="after")
    def _validated(self) -> Self:
        if (self.system == "meraki") != (self.validator is not None):
            msg = "validator must be given with system = 'meraki', and only there"
            raise ValueError(msg)
        return self

    @property
    def octets(self) -> tuple[bytes, ...]:
        """The secrets as they are used."""
        return tuple(secret.get_secret_value().encode() for secret in self.secrets)


class Stream(_Table):
    """A system that is read."""

    name: SystemName
    system: Literal["spaces"]
    source: Cloud
    url: Annotated[str, AfterValidator(_https)]
    api_key: Secret
    ca_file: Path | None = Field(default=None, strict=False)
    """Certificates that may sign the server's; None: those that the machine trusts."""


class HooksFile(_Table):
    """Everything that is heard and read."""

    hook: tuple[Hook, ...] = Field(default=(), strict=False)
    stream: tuple[Stream, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        names = [each.name for each in self.hook] + [each.name for each in self.stream]
        if not names or len(set(names)) < len(names):
            msg = "must have at least one [[hook]] or [[stream]], each with a name of its own"
            raise ValueError(msg)
        return self


def read_hooks(path: Path) -> HooksFile:
    """Return what a file says; ``KeyFileError`` when it is missing, not private, or not as it must be."""
    try:
        return HooksFile.model_validate(tomllib.loads(read_private(path, "webhooks' secrets").decode()))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        msg = f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}"
        raise KeyFileError(msg) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        msg = f"{path}: must be TOML in UTF-8"  # what is wrong with it is not said: it might be a secret
        raise KeyFileError(msg) from None
