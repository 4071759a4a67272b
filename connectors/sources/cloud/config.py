"""The cloud systems to receive from and to read, with their secrets: a private file.

The file is TOML (mode 0600), with one table for each system:

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

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from connectors.secrets.secret_files import ReloadingSecrets, Secret, Table, octets_of, printable, read_tables
from stream.errors import KeyFileError
from stream.policy.fields import is_cloud


def _cloud(source: str) -> str:
    if not is_cloud(source):
        msg = f"must be one of the policy's sources that begin with 'cloud:', got {source!r}"
        raise ValueError(msg)
    return source


def _https(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.port == 0:
        msg = f"must be an address that begins with https, got {url!r}"
        raise ValueError(msg)
    return url


SystemName = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]{0,63}$")]
Cloud = Annotated[str, AfterValidator(_cloud)]


class Hook(Table):
    """A system that sends."""

    name: SystemName
    system: Literal["mist", "meraki"]
    source: Cloud
    secrets: tuple[Secret, ...] = Field(min_length=1, max_length=2, strict=False)
    validator: SecretStr | None = None
    """The text that Meraki requests to verify the owner of the address."""

    @model_validator(mode="after")
    def _validated(self) -> Self:
        if (self.system == "meraki") != (self.validator is not None):
            msg = "validator must be given with system = 'meraki', and only there"
            raise ValueError(msg)
        return self

    @property
    def octets(self) -> tuple[bytes, ...]:
        """The secrets as they are used."""
        return octets_of(self.secrets)


class Stream(Table):
    """A system that is read."""

    name: SystemName
    system: Literal["spaces"]
    source: Cloud
    url: Annotated[str, AfterValidator(_https)]
    api_key: Annotated[Secret, AfterValidator(printable)]
    ca_file: Path | None = Field(default=None, strict=False)
    """Certificates that may sign the server's; None: those that the machine trusts."""


class HooksFile(Table):
    """All systems that send, and all that are read."""

    hook: tuple[Hook, ...] = Field(default=(), strict=False)
    stream: tuple[Stream, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        names = [each.name for each in self.hook] + [each.name for each in self.stream]
        if not names or len(set(names)) < len(names):
            msg = "must have at least one [[hook]] or [[stream]], each with a name of its own"
            raise ValueError(msg)
        return self


class ReloadingHooks(ReloadingSecrets[HooksFile]):
    """The file's present content: secrets and keys may change while the service runs; systems may not."""

    def __init__(self, path: Path) -> None:
        """Read it; KeyFileError if it is invalid."""
        self._systems: object = None
        super().__init__(path, "secrets of hooks", self._read_same_systems)
        self._systems = _systems(self.content)

    def _read_same_systems(self, path: Path) -> HooksFile:
        file = read_hooks(path)
        if self._systems is not None and self._systems != _systems(file):
            msg = (
                f"{path}: must name the same systems and sources while a process uses it; restart the process to "
                "change them"
            )
            raise KeyFileError(msg)
        return file

    def hook(self, name: str) -> Hook | None:
        """Return a system that sends, with its present secrets; None: there is none of that name."""
        self.renew()
        return next((hook for hook in self.content.hook if hook.name == name), None)

    def key(self, name: str) -> str:
        """Return the present key of a stream."""
        self.renew()
        return next(stream.api_key.get_secret_value() for stream in self.content.stream if stream.name == name)


def _systems(file: HooksFile) -> object:
    """Return everything but the secrets."""
    hooks = {(hook.name, hook.system, hook.source) for hook in file.hook}
    return hooks, {(stream.name, stream.source, stream.url, stream.ca_file) for stream in file.stream}


def read_hooks(path: Path) -> HooksFile:
    """Return the content of a file; ``KeyFileError`` if it is missing, not private, or invalid."""
    return read_tables(path, HooksFile, "webhooks' secrets")
