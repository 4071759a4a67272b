"""Authentication and authorisation: token file, browser sessions and one-time links.

A role is ``audience:<name>``, ``room:<name>``, ``account`` or ``operator``; only roles that this service serves
exist. A principal gets its roles from a token, from a browser's session, from a one-time link, or because an audience
is open to anyone.

The token file states which token has which roles and when it expires. It contains SHA-256 digests, never tokens. It is
checked again on every request, so that a revoked or expired token stops working at once, for open streams as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from hmac import compare_digest
from pathlib import Path

from connectors.secrets.private_files import locked, replace_file
from stream.errors import UsageError
from stream.records import HOUR, Micros
from stream.schemas import parse_time, rfc3339

ACCOUNT, OPERATOR, ROOM = "account", "operator", "room"
PREFIX = "tacet_"
"""Prefix of every token, by which scanners for leaked secrets recognise one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def audience_role(audience: str) -> str:
    """Return the role of the readers of an audience's releases."""
    return f"audience:{audience}"


def room_role(audience: str) -> str:
    """Return the role of screens that show where there is room, by an audience's releases, and nothing else."""
    return f"{ROOM}:{audience}"


def new_secret() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a secret. The secret has 256 random bits, so it cannot be found from its digest."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Token:
    """The stored form of a token."""

    name: str
    roles: frozenset[str]
    expires: Micros
    digest: str

    def row(self) -> dict[str, object]:
        """Return the token's entry in the file."""
        expires = rfc3339(self.expires)
        return {"name": self.name, "roles": sorted(self.roles), "expires": expires, "sha256": self.digest}


def matching(tokens: Iterable[Token], secret: str, now: Micros) -> Token | None:
    """Return the unexpired token with this secret. The running time does not depend on which token matches."""
    digest, found = digest_of(secret), None
    for token in tokens:
        if compare_digest(token.digest, digest) and now < token.expires:
            found = token
    return found


class TokenFile:
    """A file of tokens, mode 0600. Changes by other processes take effect at the next read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_stat: tuple[int, int, int] | None = None
        self._tokens: tuple[Token, ...] = ()

    def tokens(self) -> tuple[Token, ...]:
        """Return the current tokens.

        Raises:
            UsageError: the file does not exist, is readable by others, or is not a token file.
        """
        seen = self._stat()
        if seen != self._last_stat:
            self._tokens, self._last_stat = _parsed(self._path), seen
        return self._tokens

    def add(self, name: str, roles: Iterable[str], expires: Micros) -> str:
        """Add a token and return its secret, which is not stored. UsageError if the name is in use."""
        _check_name(name)
        with locked(self._path):
            tokens = self.tokens() if self._path.exists() else ()
            if name in {token.name for token in tokens}:
                msg = f"--name: must not be the name of an existing token, got {name!r}; revoke that token first"
                raise UsageError(msg)
            secret = PREFIX + new_secret()
            self._write((*tokens, Token(name, frozenset(roles), expires, digest_of(secret))))
        return secret

    def revoke(self, name: str) -> None:
        """Remove a token; UsageError if no token has this name."""
        with locked(self._path):
            tokens = self.tokens()
            if name not in {token.name for token in tokens}:
                msg = f"{self._path}: has no token of this name, got {name!r}"
                raise UsageError(msg)
            self._write([token for token in tokens if token.name != name])

    def _write(self, tokens: Iterable[Token]) -> None:
        replace_file(self._path, {"v": 1, "tokens": [token.row() for token in tokens]})

    def _stat(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            msg = f"{self._path}: tokens cannot be read ({error.strerror}); 'tacet token new' creates it"
            raise UsageError(msg) from None
        if found.st_mode & 0o077:
            msg = f"{self._path}: must be readable by its owner only (mode 0600)"
            raise UsageError(msg)
        return found.st_ino, found.st_mtime_ns, found.st_size


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        msg = f"--name: must be 1 to 64 of letters, digits, '.', '_' and '-', got {name!r}"
        raise UsageError(msg)


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def _parsed(path: Path) -> tuple[Token, ...]:
    try:
        # os.fdopen would leave the handle of a folder open.
        with open(path, encoding="utf-8", opener=_without_links) as file:
            body = json.load(file)
        if body["v"] == 1:
            return tuple(_token(row) for row in body["tokens"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    msg = f"{path}: must be a file created by 'tacet token new'"
    raise UsageError(msg)


def _token(row: dict[str, object]) -> Token:
    name, roles, digest = row["name"], row["roles"], row["sha256"]
    if not (
        isinstance(name, str) and isinstance(roles, list) and isinstance(digest, str) and _DIGEST.fullmatch(digest)
    ):
        raise ValueError
    return Token(name, frozenset(map(str, roles)), parse_time(str(row["expires"])), digest)


SESSION: Micros = 12 * HOUR
"""The life of a browser session."""
MOST_SESSIONS = 64
"""Sessions of one principal; a further one ends that principal's oldest session, and no other's."""
LINK = "link"
"""Name of a principal who used a one-time link."""
ANYONE = "anyone"


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller."""

    name: str
    roles: frozenset[str]
    expires: Micros | None = None
    token: str | None = None
    """Digest of the token used."""
    session: str | None = None
    """Digest of the session cookie used."""
    address: str | None = field(default=None, compare=False)
    """The address of a caller without a token."""

    @property
    def reader(self) -> tuple[str, str | None]:
        """The key by which rate limits count: the token's name, or the address of a caller without a token."""
        return self.name, self.address

    @property
    def is_screen(self) -> bool:
        """Whether the principal may see where there is room, and nothing else."""
        return bool(self.roles) and all(role.startswith(f"{ROOM}:") for role in self.roles)

    @property
    def audiences(self) -> tuple[str, ...]:
        """The audiences whose releases the principal may read, sorted."""
        return tuple(sorted(r.removeprefix("audience:") for r in self.roles if r.startswith("audience:")))


class Access:
    """Authenticates callers. Secrets of sessions and links are stored as digests, like tokens in the file."""

    def __init__(
        self, served: frozenset[str], *, clock: Callable[[], Micros], tokens: TokenFile | None = None,
        opened: str | None = None,
    ) -> None:  # fmt: skip
        """``served``: the roles that this service serves; ``opened``: the role that every caller has."""
        self.served = served
        self._clock, self._tokens = clock, tokens
        self._anyone = None if opened is None else Principal(ANYONE, frozenset([opened]))
        self._sessions: dict[str, Principal] = {}
        self._links: set[str] = set()

    def anyone(self, address: str) -> Principal | None:
        """Return the principal for an address without credentials; None if no audience is open."""
        return None if self._anyone is None else replace(self._anyone, address=address)

    def by_token(self, secret: str) -> Principal | None:
        """Return the principal of a token; None if the token is unknown, revoked or expired."""
        found = None if self._tokens is None else matching(self._tokens.tokens(), secret, self._clock())
        return None if found is None else self._of_token(found)

    def by_session(self, cookie: str) -> Principal | None:
        """Return the principal of a session cookie; None if the session has ended."""
        known = self._sessions.get(digest_of(cookie))
        return known if known is not None and self.holds(known) else None

    def new_link(self) -> str:
        """Return the secret of a new link, which is valid for one session with every served role."""
        secret = new_secret()
        self._links.add(digest_of(secret))
        return secret

    def by_link(self, secret: str) -> Principal | None:
        """Return the principal of a link and invalidate the link; None if the link is unknown or was used."""
        digest = digest_of(secret)
        if digest not in self._links:
            return None
        self._links.remove(digest)
        return Principal(LINK, self.served)

    def begin(self, who: Principal) -> tuple[str, Principal]:
        """Start a browser session; return its cookie value and its principal."""
        self._make_room(who)
        cookie, until = new_secret(), self._clock() + SESSION
        expires = until if who.expires is None else min(until, who.expires)
        session = Principal(who.name, who.roles, expires, who.token, digest_of(cookie))
        self._sessions[digest_of(cookie)] = session
        return cookie, session

    def end(self, who: Principal) -> None:
        """End a session."""
        if who.session is not None:
            self._sessions.pop(who.session, None)

    def holds(self, who: Principal) -> bool:
        """Return whether a principal still has the roles with which it was authenticated."""
        if who.expires is not None and self._clock() >= who.expires:
            return False
        if who.session is not None and who.session not in self._sessions:
            return False
        if who.token is None:
            return who.session is not None or who == self._anyone
        return any(
            token.digest == who.token and self._of_token(token).roles >= who.roles and self._clock() < token.expires
            for token in (() if self._tokens is None else self._tokens.tokens())
        )

    def _of_token(self, token: Token) -> Principal:
        served = token.roles & self.served
        rooms = frozenset(role for role in token.roles if role.startswith(f"{ROOM}:"))
        return Principal(token.name, served or rooms, token.expires, token.digest)  # a screen's token remains one

    def _make_room(self, who: Principal) -> None:
        """Drop expired sessions, and the oldest session of a principal that has too many."""
        self._sessions = {digest: session for digest, session in self._sessions.items() if self.holds(session)}
        own = [digest for digest, session in self._sessions.items() if session.name == who.name]
        for digest in own[: max(0, len(own) + 1 - MOST_SESSIONS)]:
            del self._sessions[digest]
