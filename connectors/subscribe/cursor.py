"""A subscriber's cursor: a position for each topic and site, from which reading resumes exactly.

Topics of one window may arrive separately, so no single release separates what was delivered from what was not.
Positions before which everything was delivered are *settled*: reading resumes there, not at the first stored record.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from connectors.secrets.private_files import replace_file
from stream.errors import UsageError
from stream.records import JsonObject

SourceKind = Literal["store", "kafka", "url"]
"""What positions refer to: numbers of an outbox, offsets of topics, or the last release of a service's stream."""


VERSION = 1
"""Version of the file's form."""


class Last(NamedTuple):
    """A delivered record: its partition, position and release id."""

    at: int
    id: str


class _Next(NamedTuple):
    """A site's last delivered record, and its partition."""

    part: int
    last: Last


class _DeliveredUpTo(NamedTuple):
    """The position before which everything was delivered, and the last record delivered before it."""

    begin: int
    last: Last


class Cursor:
    """Positions in a file; a record that was not reported to it is delivered again.

    ``place`` is a topic, also of a store; ``part`` its partition, 0 for an outbox; ``at`` an offset or row number. The
    release id of the preceding record is stored with each position. A place that was recreated has another record
    there, or none, and is refused: its positions mean other records, and resuming from them would skip some.
    """

    def __init__(self, path: Path) -> None:
        """Read the file if it exists; UsageError if it is not a cursor."""
        self._path = path
        self._saved = b""
        self._source_kind: SourceKind | None = None
        self._next: dict[str, dict[str, _Next]] = {}
        self._delivered: dict[str, dict[int, _DeliveredUpTo]] = {}
        self._last: dict[str, str] = {}
        self.notes: JsonObject = {}
        """Data of the cursor's user, stored in the same file: a JSON object."""
        if path.exists():
            try:
                self._take(orjson.loads(path.read_bytes()))
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                msg = (
                    f"{path}: must be a cursor that this version of 'tacet subscribe --cursor' or 'tacet sink' has "
                    "written; delete it to start as with a new cursor"
                )
                raise UsageError(msg) from None

    def _take(self, body: JsonObject) -> None:
        if body["v"] != VERSION:
            raise ValueError
        self._source_kind = body["home"]
        for place, sites in body["next"].items():
            self._next[place] = {
                site: _Next(int(part), _last_from(at, name)) for site, (part, at, name) in sites.items()
            }
        for place, parts in body["settled"].items():
            self._delivered[place] = {
                int(part): _DeliveredUpTo(int(begin), _last_from(at, name)) for part, (begin, at, name) in parts.items()
            }
        self._last = {str(audience): str(last) for audience, last in body["last"].items()}
        self.notes = dict(body.get("notes", {}))

    @property
    def is_new(self) -> bool:
        """Return whether nothing has been saved under its name yet."""
        return not self._path.exists()

    def belong_to(self, kind: SourceKind) -> None:
        """Bind the cursor to one source; UsageError if the file's positions belong to another."""
        if self._source_kind not in (None, kind):
            msg = (
                f"{self._path}: must be a cursor of this kind of source ({kind}), got one of another "
                f"({self._source_kind})"
            )
            raise UsageError(msg)
        self._source_kind = kind

    def is_behind(self, place: str, part: int, site: str, at: int) -> bool:
        """Return whether a record has not been delivered yet."""
        given = self._next.get(place, {}).get(site)
        return at >= self.begin(place, part) and (given is None or at > given.last.at)

    def advance(self, place: str, part: int, site: str, given: Last) -> None:
        """Record that a record, and so all before it of its place and site, was delivered."""
        self._next.setdefault(place, {})[site] = _Next(part, given)

    def begin(self, place: str, part: int) -> int:
        """Return the position before which everything was delivered."""
        settled = self._delivered.get(place, {}).get(part)
        return 0 if settled is None else settled.begin

    def mark_delivered(self, place: str, part: int, begin: int, last: Last | None) -> None:
        """Record that everything before a position was delivered; ``last`` is the last record of it, None if there
        is none since the last call. If no record was delivered at all, nothing is settled, because nothing could be
        recognised later."""
        former = self._delivered.get(place, {}).get(part)
        last = last or (None if former is None else former.last)
        if last is not None:
            self._delivered.setdefault(place, {})[part] = _DeliveredUpTo(max(begin, self.begin(place, part)), last)

    def given(self, place: str, part: int) -> dict[int, str]:
        """Return the last delivered records, which must still be there: release ids by position."""
        settled = self._delivered.get(place, {}).get(part)
        marks = [site.last for site in self._next.get(place, {}).values() if site.part == part]
        return dict([*marks, *([] if settled is None else [settled.last])])

    def places(self) -> list[str]:
        """Return all places of which anything was delivered."""
        return sorted({*self._next, *self._delivered})

    def oldest(self, place: str, part: int, look_back: int) -> int:
        """Return where reading starts: ``look_back`` before the settled position, and no later than the record by
        which the place is recognised."""
        settled = self._delivered.get(place, {}).get(part)
        return 0 if settled is None else max(0, min(settled.begin - look_back, settled.last.at))

    def check_retained(self, place: str, part: int, first: int) -> None:
        """Raise UsageError if the first stored record lies behind the next one to deliver."""
        if first > self.begin(place, part) > 0:
            lost = first - self.begin(place, part)
            raise self._refusal(place, f"begins at {first}: {lost} offsets were deleted before they were delivered")

    def refuse_other(self, place: str, part: int, since: int, found: Callable[[int], str | None]) -> None:
        """Raise UsageError if a place is not the one that was read.

        Args:
            place: topic.
            part: its partition.
            since: the position from which it was read again.
            found: returns the release id of the record at a position; None if there is none.
        """
        for at, name in self.given(place, part).items():
            if at >= since and found(at) != name:
                raise self._refusal(
                    place, f"no longer contains the release that was delivered from {at}: it was recreated"
                )

    def _refusal(self, place: str, how: str) -> UsageError:
        return UsageError(
            f"{self._path}: must fit topic {place}, which {how}; continuing would skip releases. Delete the file to "
            "start as with a new cursor: stored releases are then delivered again, each under the same id"
        )

    def last(self, audience: str) -> str | None:
        """Return the last delivered release of a service's stream; None before the first."""
        return self._last.get(audience)

    def pass_by(self, audience: str, release_id: str) -> None:
        """Record that a release of a service's stream, and so all before it, was delivered."""
        self._last[audience] = release_id

    def save(self) -> None:
        """Write the file atomically, readable by its owner only; do nothing if nothing has changed."""
        after = {
            place: {site: [at.part, *at.last] for site, at in sites.items()} for place, sites in self._next.items()
        }
        settled = {
            place: {str(part): [at.begin, *at.last] for part, at in parts.items()}
            for place, parts in self._delivered.items()
        }
        body: JsonObject = {"v": VERSION, "home": self._source_kind, "next": after, "settled": settled}
        body |= {"last": self._last} | ({"notes": self.notes} if self.notes else {})
        text = orjson.dumps(body)
        if text != self._saved:
            replace_file(self._path, body)
            self._saved = text


def _last_from(at: Any, name: Any) -> Last:
    if type(name) is not str:
        raise TypeError
    return Last(int(at), name)
