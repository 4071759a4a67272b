"""How far a subscriber on Kafka has come: a position for each topic and site.

Topics of one window may arrive apart, so no single release can say what has been given and what has not.
"""

from __future__ import annotations

import os
from pathlib import Path

import orjson

from stream.errors import UsageError


class Cursor:
    """Positions in a file; what has not been reported to it will come again."""

    def __init__(self, path: Path) -> None:
        """Read the file, if it is there; UsageError when it is no cursor."""
        self._path = path
        self._next: dict[str, dict[str, int]] = {}
        if path.exists():
            try:
                body = orjson.loads(path.read_bytes())
                self._next = {t: {s: int(at) for s, at in sites.items()} for t, sites in body["next"].items()}
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                msg = f"{path}: must be a cursor that 'tacet subscribe --cursor' has written"
                raise UsageError(msg) from None

    def is_behind(self, topic: str, site: str, offset: int) -> bool:
        """Return whether a record has not been given yet."""
        return offset >= self._next.get(topic, {}).get(site, 0)

    def advance(self, topic: str, site: str, offset: int) -> None:
        """Learn that a record, and so all before it of its topic and site, has been given."""
        self._next.setdefault(topic, {})[site] = offset + 1

    def refuse_short(self, topic: str, end: int) -> None:
        """Raise UsageError when a topic ends before what has been given of it: it was made anew."""
        furthest = max(self._next.get(topic, {}).values(), default=0)
        if furthest > end:
            msg = f"{self._path}: must fit topic {topic}, which ends at {end}, before {furthest}: it was made anew"
            raise UsageError(msg)

    def save(self) -> None:
        """Write the file at once, whole or not at all."""
        new = self._path.with_name(f".{self._path.name}.new")
        new.write_bytes(orjson.dumps({"v": 1, "next": self._next}))
        os.replace(new, self._path)  # noqa: PTH105 - one atomic step
