"""The accepted communities of SNMP v1 and v2c.

They are read from a file, one per line. A change of the file takes effect without a restart. While a controller is
being changed over, the file contains both its old and its new community.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from connectors.secrets.private_files import read_private
from connectors.secrets.secret_files import ReloadingSecrets
from connectors.sources.ingest.source_filter import AllowList
from stream.errors import KeyFileError, UsageError


def read_communities(path: Path) -> tuple[bytes, ...]:
    """Return the communities of a file, one per line; blank lines and ``#`` lines are skipped.

    Raises ``KeyFileError`` if the file is missing, can be read by group or others, or contains none.
    """
    lines = read_private(path, "communities").splitlines()
    communities = tuple(line.strip() for line in lines if line.strip() and not line.startswith(b"#"))
    if not communities:
        msg = f"{path}: must contain at least one community"
        raise KeyFileError(msg)
    return communities


def is_known(community: bytes, allowed: Sequence[bytes]) -> bool:
    """Compare with every allowed community, in a time that does not reveal which one was similar."""
    found = False
    for known in allowed:
        found |= hmac.compare_digest(community, known)
    return found


class Renewed(Protocol):
    """Communities that may change while the process runs."""

    def knows(self, community: bytes) -> bool:
        """Return whether a community is one of them now."""

    def renew(self) -> bool:
        """Reload changes; return whether there were any."""


class CommunityAuth:
    """Authenticates senders: a listed sender with one of the communities."""

    def __init__(self, allow: AllowList, communities: Sequence[bytes] | Renewed, *, or_v3: bool = False) -> None:
        """Set both; ``UsageError`` if there is no community, unless SNMPv3 is accepted and may be the only version."""
        if not communities and not or_v3:
            msg = "communities: must contain at least one, got none"
            raise UsageError(msg)
        self._allow = allow
        self._renewed = None if isinstance(communities, Sequence) else communities
        self._communities = tuple(communities) if isinstance(communities, Sequence) else ()

    def listed(self, host: str) -> str | None:
        """Return the entry that covers a numeric address, as it was written; None: not allowed."""
        return self._allow.listed(host)

    @property
    def any_community(self) -> bool:
        """Whether any community is accepted."""
        return bool(self._communities) or self._renewed is not None

    def share(self, community: bytes) -> bool:
        """Return whether a community is one of the accepted ones."""
        if self._renewed is not None:
            return self._renewed.knows(community)
        return is_known(community, self._communities)

    def renew(self) -> None:
        """Drop communities that were removed from a file."""
        if self._renewed is not None:
            self._renewed.renew()


class CommunityFile(ReloadingSecrets[tuple[bytes, ...]]):
    """A file of communities that is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        """Read it; KeyFileError if it is invalid."""
        super().__init__(path, "communities", read_communities)

    def knows(self, community: bytes) -> bool:
        """Return whether a community is one of the file's; an unknown one may be new, so the file is checked first."""
        return is_known(community, self.content) or (self.renew() and is_known(community, self.content))
