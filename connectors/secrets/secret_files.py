"""Files of secrets in TOML, mode 0600; errors contain none of their content."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import structlog
from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr, ValidationError

from connectors.secrets.private_files import read_private
from stream.errors import KeyFileError, UsageError

log = structlog.get_logger("tacet.secrets")

SHORTEST_SECRET = 16
"""Octets. An observer of one message can try secrets offline, so a secret has to be random, not a word."""


class Table(BaseModel):
    """What one table may say, and nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


def _long(secret: SecretStr) -> SecretStr:
    if len(secret.get_secret_value().encode()) < SHORTEST_SECRET:
        msg = f"must have at least {SHORTEST_SECRET} octets"
        raise ValueError(msg)
    return secret


def printable(secret: SecretStr) -> SecretStr:
    """Return a secret that a header of HTTP can contain; ValueError for another one."""
    text = secret.get_secret_value()
    if not (text.isascii() and text.isprintable()):
        msg = "must be printable ASCII, because it is sent in a header"
        raise ValueError(msg)
    return secret


Secret = Annotated[SecretStr, AfterValidator(_long)]
"""A secret that is used as it is written."""
File = TypeVar("File", bound=Table)
Held = TypeVar("Held")


def octets_of(secrets: Iterable[SecretStr]) -> tuple[bytes, ...]:
    """Return the secrets' octets."""
    return tuple(secret.get_secret_value().encode() for secret in secrets)


def read_tables(path: Path, kind: type[File], holds: str) -> File:
    """Return the content of a file.

    Args:
        path: of the file.
        kind: the model of its content.
        holds: a description of the file's purpose, for the error if it is missing.

    Raises:
        KeyFileError: it is missing, can be read by group or others, or breaks rules; all of these are named.
    """
    content = read_private(path, holds)
    try:
        return kind.model_validate(tomllib.loads(content.decode()))
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)
        raise KeyFileError("\n".join(f"{path}: {_described(problem)}" for problem in problems)) from None
    except (ValueError, RecursionError) as error:  # its text may quote a secret
        place = re.search(r"\(at (line \d+, column \d+|end of document)\)", str(error))
        msg = f"{path}: must be TOML{', is not at ' + place[1] if place else ''}"
        raise KeyFileError(msg) from None


class ReloadingSecrets(Generic[Held]):
    """The present content of a file of secrets: a change takes effect without a restart."""

    def __init__(self, path: Path, holds: str, read: Callable[[Path], Held], *, announce: bool = True) -> None:
        """Read the file with ``read``, which raises if it is invalid; ``holds`` describes the file's purpose.

        Without ``announce`` only failed reads are logged.
        """
        self._announce = announce
        self.holds, self._path, self._read = holds, path, read
        self._last_stat = self._stat()
        self.content = read(path)
        self.reads = self.refusals = 0
        """How often it was read again, and how often that failed."""

    def renew(self) -> bool:
        """Read the file if it has changed; return whether it was read.

        While the file is invalid, the previous content stays in use.
        """
        seen = self._stat()
        if seen == self._last_stat:
            return False
        self._last_stat = seen
        try:
            self.content = self._read(self._path)
        except (KeyFileError, UsageError) as problem:
            self.refusals += 1
            event = f"{self.holds} as they were count on"
            log.warning(event, reason=str(problem))
            return False
        self.reads += 1
        if self._announce:
            event = f"{self.holds} read anew"
            log.info(event)
        return True

    def _stat(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode


def _described(problem: Any) -> str:
    """Return place and rule of a problem, never a value."""
    place = ".".join(str(part + 1) if isinstance(part, int) else part for part in problem["loc"])
    rule = problem["msg"].removeprefix("Value error, ")
    return f"{place}: {rule[0].lower()}{rule[1:]}".removeprefix(": ")
