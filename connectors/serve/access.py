"""Who asks, and what they may see: roles by token, by a browser's session, by a one-time link, or by being anyone.

A role is ``audience:<name>``, ``account`` or ``operator``; nobody has one that is not served here. A token is taken
at its word each time it comes, so what is revoked or has expired ends at once, for open streams as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from connectors.serve.tokens import Token, TokenFile, digest_of, matching, new_secret
from stream.records import HOUR, Micros

SESSION: Micros = 12 * HOUR
"""For how long a browser need not show a token again."""
MOST_SESSIONS = 64
"""Sessions of one principal; who begins more ends their own oldest one, and nobody else's."""
LINK = "link"
"""Name of who came by a one-time link."""
ANYONE = "anyone"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks."""

    name: str
    roles: frozenset[str]
    expires: Micros | None = None
    token: str | None = None
    """Digest of the token by which they came."""
    session: str | None = None
    """Digest of the cookie by which they came."""

    @property
    def audiences(self) -> tuple[str, ...]:
        """The audiences whose releases they may read, sorted."""
        return tuple(sorted(r.removeprefix("audience:") for r in self.roles if r.startswith("audience:")))


class Access:
    """Keeps who is known. Secrets are kept as digests, as in the file of tokens."""

    def __init__(
        self, served: frozenset[str], *, clock: Callable[[], Micros], tokens: TokenFile | None = None,
        opened: str | None = None,
    ) -> None:  # fmt: skip
        """``served``: the roles there are here; ``opened``: the one that anyone has."""
        self.served = served
        self._clock, self._tokens = clock, tokens
        self._anyone = None if opened is None else Principal(ANYONE, frozenset([opened]))
        self._sessions: dict[str, Principal] = {}
        self._links: set[str] = set()

    @property
    def anyone(self) -> Principal | None:
        """Who shows nothing; None where that is nobody."""
        return self._anyone

    def by_token(self, secret: str) -> Principal | None:
        """Return whose token it is; None where it is nobody's, any more or yet."""
        found = None if self._tokens is None else matching(self._tokens.tokens(), secret, self._clock())
        return None if found is None else self._of_token(found)

    def by_session(self, cookie: str) -> Principal | None:
        """Return whose session a cookie stands for; None where it has ended."""
        known = self._sessions.get(digest_of(cookie))
        return known if known is not None and self.holds(known) else None

    def new_link(self) -> str:
        """Return the secret of a new link, good for one session with every role that is served."""
        secret = new_secret()
        self._links.add(digest_of(secret))
        return secret

    def by_link(self, secret: str) -> Principal | None:
        """Return who comes by a link, which is used up by that; None where there is no such link, any more."""
        digest = digest_of(secret)
        if digest not in self._links:
            return None
        self._links.remove(digest)
        return Principal(LINK, self.served)

    def begin(self, who: Principal) -> tuple[str, Principal]:
        """Begin a browser's session; return what its cookie holds, and who comes with it."""
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
        """Return whether somebody may still see what they might when they came."""
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
        return Principal(token.name, token.roles & self.served, token.expires, token.digest)

    def _make_room(self, who: Principal) -> None:
        """Forget the sessions that have ended, and of who has too many the oldest."""
        self._sessions = {digest: held for digest, held in self._sessions.items() if self.holds(held)}
        own = [digest for digest, held in self._sessions.items() if held.name == who.name]
        for digest in own[: max(0, len(own) + 1 - MOST_SESSIONS)]:
            del self._sessions[digest]
