"""A subscriber's cursor: an offset for each topic and site, from which reading resumes exactly.

Topics of one window may arrive separately, so no single release separates what was delivered from what was not.
Offsets before which everything was delivered are *settled*: reading resumes there, not at the first stored record.
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
"""What offsets are: numbers of an outbox's rows, or offsets of topics. Of a service only the last release is known."""


VERSION = 1
"""Version of the file's form."""


class Delivered(NamedTuple):
    """A delivered record of a partition: its offset and release id."""

    offset: int
    id: str


class _LastOfSite(NamedTuple):
    """A site's last delivered record, and its partition."""

    partition: int
    last: Delivered


class _Settled(NamedTuple):
    """The offset before which everything was delivered, and the last record delivered before it."""

    offset: int
    last: Delivered


class Cursor:
    """Offsets in a file; a record that was not reported to it is delivered again.

    Releases of a store have the topics that they would have on Kafka; an outbox is one partition, 0, and its offsets
    are numbers of rows. The release id of the preceding record is stored with each offset. A topic that was recreated
    has another record there, or none, and is refused: its offsets mean other records, and resuming from them would
    skip some.
    """

    def __init__(self, path: Path) -> None:
        """Read the file if it exists; UsageError if it is not a cursor."""
        self._path = path
        self._saved = b""
        self._source_kind: SourceKind | None = None
        self._last_of_sites: dict[str, dict[str, _LastOfSite]] = {}
        self._settled: dict[str, dict[int, _Settled]] = {}
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
        for topic, sites in body["next"].items():
            self._last_of_sites[topic] = {
                site: _LastOfSite(int(partition), _delivered(offset, name))
                for site, (partition, offset, name) in sites.items()
            }
        for topic, partitions in body["settled"].items():
            self._settled[topic] = {
                int(partition): _Settled(int(settled), _delivered(offset, name))
                for partition, (settled, offset, name) in partitions.items()
            }
        self._last = {str(audience): str(last) for audience, last in body["last"].items()}
        self.notes = dict(body.get("notes", {}))

    @property
    def is_new(self) -> bool:
        """Return whether nothing has been saved under its name yet."""
        return not self._path.exists()

    def belong_to(self, kind: SourceKind) -> None:
        """Bind the cursor to one source; UsageError if the file's offsets belong to another."""
        if self._source_kind not in (None, kind):
            msg = (
                f"{self._path}: must be a cursor of this kind of source ({kind}), got one of another "
                f"({self._source_kind})"
            )
            raise UsageError(msg)
        self._source_kind = kind

    def is_behind(self, topic: str, partition: int, site: str, offset: int) -> bool:
        """Return whether a record has not been delivered yet."""
        of_site = self._last_of_sites.get(topic, {}).get(site)
        return offset >= self.settled(topic, partition) and (of_site is None or offset > of_site.last.offset)

    def advance(self, topic: str, partition: int, site: str, record: Delivered) -> None:
        """Record that a record, and so all before it of its topic and site, was delivered."""
        self._last_of_sites.setdefault(topic, {})[site] = _LastOfSite(partition, record)

    def settled(self, topic: str, partition: int) -> int:
        """Return the offset before which everything was delivered."""
        settled = self._settled.get(topic, {}).get(partition)
        return 0 if settled is None else settled.offset

    def mark_delivered(self, topic: str, partition: int, offset: int, last: Delivered | None) -> None:
        """Record that everything before an offset was delivered; ``last`` is the last record of it, None if there
        is none since the last call. If no record was delivered at all, nothing is settled, because nothing could be
        recognised later."""
        former = self._settled.get(topic, {}).get(partition)
        last = last or (None if former is None else former.last)
        if last is not None:
            settled = _Settled(max(offset, self.settled(topic, partition)), last)
            self._settled.setdefault(topic, {})[partition] = settled

    def last_delivered(self, topic: str, partition: int) -> dict[int, str]:
        """Return the last delivered records, which must still be there: release ids by offset."""
        settled = self._settled.get(topic, {}).get(partition)
        of_sites = [site.last for site in self._last_of_sites.get(topic, {}).values() if site.partition == partition]
        return dict([*of_sites, *([] if settled is None else [settled.last])])

    def topics(self) -> list[str]:
        """Return all topics of which anything was delivered."""
        return sorted({*self._last_of_sites, *self._settled})

    def resume_offset(self, topic: str, partition: int, look_back: int) -> int:
        """Return where reading starts: ``look_back`` before the settled offset, and no later than the record by
        which the topic is recognised."""
        settled = self._settled.get(topic, {}).get(partition)
        return 0 if settled is None else max(0, min(settled.offset - look_back, settled.last.offset))

    def check_retained(self, topic: str, partition: int, first: int) -> None:
        """Raise UsageError if the first stored record lies behind the next one to deliver."""
        settled = self.settled(topic, partition)
        if first > settled > 0:
            lost = first - settled
            raise self._refusal(topic, f"begins at {first}: {lost} offsets were deleted before they were delivered")

    def refuse_other(self, topic: str, partition: int, since: int, release_at: Callable[[int], str | None]) -> None:
        """Raise UsageError if a topic is not the one that was read.

        Args:
            topic: its name.
            partition: the partition to check.
            since: the offset from which it was read again.
            release_at: returns the release id of the record at an offset; None if there is none.
        """
        for offset, name in self.last_delivered(topic, partition).items():
            if offset >= since and release_at(offset) != name:
                raise self._refusal(
                    topic, f"no longer contains the release that was delivered from {offset}: it was recreated"
                )

    def _refusal(self, topic: str, how: str) -> UsageError:
        return UsageError(
            f"{self._path}: must fit topic {topic}, which {how}; continuing would skip releases. Delete the file to "
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
            topic: {site: [each.partition, *each.last] for site, each in sites.items()}
            for topic, sites in self._last_of_sites.items()
        }
        settled = {
            topic: {str(partition): [each.offset, *each.last] for partition, each in partitions.items()}
            for topic, partitions in self._settled.items()
        }
        body: JsonObject = {"v": VERSION, "home": self._source_kind, "next": after, "settled": settled}
        body |= {"last": self._last} | ({"notes": self.notes} if self.notes else {})
        text = orjson.dumps(body)
        if text != self._saved:
            replace_file(self._path, body)
            self._saved = text


def _delivered(offset: Any, name: Any) -> Delivered:
    if type(name) is not str:
        raise TypeError
    return Delivered(int(offset), name)
