"""Who may send traps, with which community."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from connectors.intake.admission import AllowList
from connectors.private_file import read_private
from stream.errors import KeyFileError, UsageError


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


class Renewed(Protocol):
    """Communities that may change while they are asked for."""

    def knows(self, community: bytes) -> bool:
        """Whether a community is one of them now."""

    def renew(self) -> bool:
        """Take up what has changed; return whether anything was."""


class Senders:
    """Who is heard: the listed senders, if they know one of the communities."""

    def __init__(self, allow: AllowList, communities: Sequence[bytes] | Renewed, *, or_v3: bool = False) -> None:
        """Take both; ``UsageError`` when there is no community, unless SNMPv3 is heard and may be all that is."""
        if not communities and not or_v3:
            msg = "communities: must hold at least one, got none"
            raise UsageError(msg)
        self._allow = allow
        self._renewed = None if isinstance(communities, Sequence) else communities
        self._communities = tuple(communities) if isinstance(communities, Sequence) else ()

    def listed(self, host: str) -> str | None:
        """Return the entry that covers a numeric address, as it was written; None: not allowed."""
        return self._allow.listed(host)

    @property
    def any_community(self) -> bool:
        """Whether there is a community that would be heard."""
        return bool(self._communities) or self._renewed is not None

    def share(self, community: bytes) -> bool:
        """Whether a community is one of theirs."""
        if self._renewed is not None:
            return self._renewed.knows(community)
        return is_known(community, self._communities)

    def renew(self) -> None:
        """Let go of communities that a file has no more."""
        if self._renewed is not None:
            self._renewed.renew()
