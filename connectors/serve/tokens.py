"""The file of tokens: who may what, until when. Of a token itself the file holds a SHA-256 digest only."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hmac import compare_digest
from pathlib import Path

from connectors.private_file import locked, replace
from stream.errors import UsageError
from stream.records import Micros
from stream.schemas import parse_time, rfc3339

ACCOUNT, OPERATOR = "account", "operator"
PREFIX = "tacet_"
"""With which a token begins, so that programs that look for lost secrets know one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def audience_role(audience: str) -> str:
    """Return the role of who may read an audience's releases."""
    return f"audience:{audience}"


def new_secret() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a secret; of 256 random bits none can be found that has it."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token."""

    name: str
    roles: frozenset[str]
    expires: Micros
    digest: str

    def row(self) -> dict[str, object]:
        """Return what the file has of it."""
        expires = rfc3339(self.expires)
        return {"name": self.name, "roles": sorted(self.roles), "expires": expires, "sha256": self.digest}


def matching(tokens: Iterable[Token], secret: str, now: Micros) -> Token | None:
    """Return the token of a secret that has not expired; how long that takes does not depend on which it is."""
    digest, found = digest_of(secret), None
    for token in tokens:
        if compare_digest(token.digest, digest) and now < token.expires:
            found = token
    return found


class TokenFile:
    """A file of tokens, mode 0600; what others change in it counts from the next look on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._tokens: tuple[Token, ...] = ()

    def tokens(self) -> tuple[Token, ...]:
        """Return the tokens as they are now.

        Raises:
            UsageError: the file is not there, is open to others, or is no such file.
        """
        seen = self._look()
        if seen != self._seen:
            self._tokens, self._seen = _parsed(self._path), seen
        return self._tokens

    def add(self, name: str, roles: Iterable[str], expires: Micros) -> str:
        """Keep a new token and return its secret, which nothing keeps; UsageError where the name is taken."""
        _check_name(name)
        with locked(self._path):
            held = self.tokens() if self._path.exists() else ()
            if name in {token.name for token in held}:
                msg = f"--name: must not be the name of a token that there is, got {name!r}; revoke that one first"
                raise UsageError(msg)
            secret = PREFIX + new_secret()
            self._write((*held, Token(name, frozenset(roles), expires, digest_of(secret))))
        return secret

    def revoke(self, name: str) -> None:
        """Let go of a token; UsageError where there is none of that name."""
        with locked(self._path):
            held = self.tokens()
            if name not in {token.name for token in held}:
                msg = f"{self._path}: has no token of this name, got {name!r}"
                raise UsageError(msg)
            self._write([token for token in held if token.name != name])

    def _write(self, tokens: Iterable[Token]) -> None:
        replace(self._path, {"v": 1, "tokens": [token.row() for token in tokens]})

    def _look(self) -> tuple[int, int, int]:
        try:
            held = self._path.stat()
        except OSError as error:
            msg = f"{self._path}: tokens cannot be read ({error.strerror}); 'tacet token new' makes the file"
            raise UsageError(msg) from None
        if held.st_mode & 0o077:
            msg = f"{self._path}: must be readable by its owner only (mode 0600)"
            raise UsageError(msg)
        return held.st_ino, held.st_mtime_ns, held.st_size


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        msg = f"--name: must be 1 to 64 of letters, digits, '.', '_' and '-', got {name!r}"
        raise UsageError(msg)


def _parsed(path: Path) -> tuple[Token, ...]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, encoding="utf-8") as file:
            body = json.load(file)
        if body["v"] == 1:
            return tuple(_token(row) for row in body["tokens"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    msg = f"{path}: must be a file made by 'tacet token new'"
    raise UsageError(msg)


def _token(row: dict[str, object]) -> Token:
    name, roles, digest = row["name"], row["roles"], row["sha256"]
    if not (
        isinstance(name, str) and isinstance(roles, list) and isinstance(digest, str) and _DIGEST.fullmatch(digest)
    ):
        raise ValueError
    return Token(name, frozenset(map(str, roles)), parse_time(str(row["expires"])), digest)
