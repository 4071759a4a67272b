"""How far a subscriber has come: a position for each topic and site, so that it goes on exactly there.

Topics of one window may arrive apart, so no single release can say what has been given and what has not. What has
been given altogether is *settled*: a reader that goes on begins there, and not at the first record that is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import orjson

from connectors.private_file import replace
from stream.errors import UsageError

Home = Literal["store", "kafka", "url"]
"""Where positions are of: numbers of an outbox, offsets of topics, or the last release of a service's stream."""


class Cursor:
    """Positions in a file; what has not been reported to it will come again.

    ``place`` is a topic, also of a store; ``part`` its partition, 0 of an outbox; ``at`` an offset or number there.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, if it is there; UsageError when it is no cursor."""
        self._path = path
        self._saved = b""
        self._home: Home | None = None
        self._next: dict[str, dict[str, int]] = {}
        self._settled: dict[str, dict[str, int]] = {}
        self._last: dict[str, str] = {}
        self.notes: dict[str, Any] = {}
        """What its user keeps with it, in the same file: a JSON object."""
        if path.exists():
            try:
                self._take(orjson.loads(path.read_bytes()))
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                msg = f"{path}: must be a cursor that 'tacet subscribe --cursor' has written"
                raise UsageError(msg) from None

    def _take(self, body: dict[str, Any]) -> None:
        if body["v"] not in (1, 2):
            raise ValueError
        self._home = body.get("home", "kafka")  # version 1 knew no other
        self._next = _positions(body["next"])
        self._settled = _positions(body.get("settled", {}))
        self._last = {str(audience): str(last) for audience, last in body.get("last", {}).items()}
        self.notes = dict(body.get("notes", {}))

    @property
    def is_new(self) -> bool:
        """Whether nothing has been saved under its name yet."""
        return not self._path.exists()

    def belong_to(self, home: Home) -> None:
        """Take positions of one home from now on; UsageError where those in the file are of another."""
        if self._home not in (None, home):
            msg = f"{self._path}: must be a cursor of this source ({home}), is one of another ({self._home})"
            raise UsageError(msg)
        self._home = home

    def is_behind(self, place: str, part: int, site: str, at: int) -> bool:
        """Return whether a record has not been given yet."""
        return at >= max(self._next.get(place, {}).get(site, 0), self.begin(place, part))

    def advance(self, place: str, site: str, at: int) -> None:
        """Learn that a record, and so all before it of its place and site, has been given."""
        self._next.setdefault(place, {})[site] = at + 1

    def begin(self, place: str, part: int) -> int:
        """Return the position before which everything has been given."""
        return self._settled.get(place, {}).get(str(part), 0)

    def settle(self, place: str, part: int, at: int) -> None:
        """Learn that everything before a position has been given."""
        self._settled.setdefault(place, {})[str(part)] = max(at, self.begin(place, part))

    def last(self, audience: str) -> str | None:
        """Return the last release of a service's stream that was given; None before the first."""
        return self._last.get(audience)

    def pass_by(self, audience: str, release_id: str) -> None:
        """Learn that a release of a service's stream, and so all before it, has been given."""
        self._last[audience] = release_id

    def refuse_short(self, place: str, end: int) -> None:
        """Raise UsageError when a place ends before what has been given of it: it was made anew."""
        furthest = max((*self._next.get(place, {}).values(), *self._settled.get(place, {}).values()), default=0)
        if furthest > end:
            msg = f"{self._path}: must fit topic {place}, which ends at {end}, before {furthest}: it was made anew"
            raise UsageError(msg)

    def save(self) -> None:
        """Write the file at once, whole or not at all, for its owner alone; nothing where nothing has changed."""
        body: dict[str, Any] = {"v": 2, "home": self._home, "next": self._next, "settled": self._settled}
        body |= {"last": self._last} | ({"notes": self.notes} if self.notes else {})
        text = orjson.dumps(body)
        if text != self._saved:
            replace(self._path, body)
            self._saved = text


def _positions(body: dict[str, dict[str, Any]]) -> dict[str, dict[str, int]]:
    return {str(place): {str(key): int(at) for key, at in ats.items()} for place, ats in body.items()}
