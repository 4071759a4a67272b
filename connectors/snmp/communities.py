"""The accepted communities, as their file has them now: a new one counts, and an old one no more, without a restart.

While a controller is being changed over both stand in the file, one a line.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from connectors.snmp.admission import is_known, read_communities
from stream.errors import KeyFileError

log = structlog.get_logger("tacet.snmp")


class CommunityFile:
    """A file of communities that is read anew when it has changed."""

    def __init__(self, path: Path) -> None:
        """Read it; KeyFileError where it is not as it must be."""
        self._path = path
        self._seen = self._look()
        self._held = read_communities(path)

    def knows(self, community: bytes) -> bool:
        """Whether a community is one of the file's; who is not known may be new, so the file is looked at first."""
        return is_known(community, self._held) or (self.renew() and is_known(community, self._held))

    def renew(self) -> bool:
        """Read the file if it has changed; return whether it was read.

        While it is not as it must be, those that were held count on.
        """
        seen = self._look()
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self._held = read_communities(self._path)
        except KeyFileError as problem:
            log.warning("communities as they were count on", reason=str(problem))
            return False
        log.info("communities read anew")
        return True

    def _look(self) -> tuple[int, ...]:
        try:
            held = self._path.stat()
        except OSError:
            return ()
        return held.st_ino, held.st_mtime_ns, held.st_size, held.st_mode
