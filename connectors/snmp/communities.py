"""The accepted communities, as their file has them now: a new one counts, and an old one no more, without a restart.

While a controller is being changed over both stand in the file, one a line.
"""

from __future__ import annotations

from pathlib import Path

from connectors.secrets_file import SecretsNow
from connectors.snmp.admission import is_known, read_communities


class CommunityFile(SecretsNow[tuple[bytes, ...]]):
    """A file of communities that is read anew when it has changed."""

    def __init__(self, path: Path) -> None:
        """Read it; KeyFileError where it is not as it must be."""
        super().__init__(path, "communities", read_communities)

    def knows(self, community: bytes) -> bool:
        """Whether a community is one of the file's; who is not known may be new, so the file is looked at first."""
        return is_known(community, self.held) or (self.renew() and is_known(community, self.held))
