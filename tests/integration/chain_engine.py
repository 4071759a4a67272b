"""An engine in which one lost, doubled or reordered message changes every output that follows.

Each site folds a hash chain over its messages and publishes that chain's head every ``EVERY`` messages, as an
audit record and a private record. A message is ``{"n": number}``; its key is the site. ``!`` as a value
raises, ``?`` cannot be decoded and goes to quarantine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import orjson

from stream.engine.ports import LossError
from stream.errors import FinalityError

EVERY = 5


class Record(NamedTuple):
    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int
    checkpoint: bool
    id: str = ""


class Topics(NamedTuple):
    """A test's own topic names."""

    source: str
    snapshot: str
    audit: str
    private: str
    quarantine: str

    @classmethod
    def of(cls, prefix: str) -> Topics:
        return cls(*(f"{prefix}.{name}" for name in cls._fields))


def chain(site: str, numbers: Iterable[int]) -> list[tuple[str, bytes]]:
    """Return the (release_id, head) of every output for a site's messages: the reference."""
    head, outputs = b"", []
    for count, number in enumerate(numbers, 1):
        head = hashlib.sha256(head + b"%d" % number).digest()
        if count % EVERY == 0:
            outputs.append((f"{site}/{count}", head))
    return outputs


class ChainEngine:
    def __init__(self, topics: Topics, *, unsaved: bool = False) -> None:
        self._topics = topics
        self.unsaved = unsaved
        """Whether what it is restored from must be saved before anything is published."""
        self._sites: dict[str, tuple[int, bytes]] = {}
        self._audit = 0
        self._outstanding: dict[str, bytes] = {}
        self._last: tuple[int, str] | None = None

    def restore(self, snapshot: bytes | None) -> int | None:
        self._sites, self._audit, self._outstanding = {}, 0, {}
        if snapshot is None:
            return None
        body = orjson.loads(snapshot)
        self._sites = {site: (count, bytes.fromhex(head)) for site, (count, head) in body["sites"].items()}
        self._audit, self._last = body["audit"], body["last"]
        return int(body["next"])

    def audit_offset(self) -> int:
        return self._audit

    def expect_replay(self, entries: Iterable[bytes], *, complete: bool = False) -> None:
        there = set()
        for entry in entries:
            body = orjson.loads(entry)
            there.add(body["release_id"])
            site, count = body["release_id"].rsplit("/", 1)
            if int(count) > self._sites.get(site, (0, b""))[0]:
                self._outstanding[body["release_id"]] = entry

        if complete and not self._given_out() <= there:
            msg = "an output is missing"
            raise LossError(msg)

    def _given_out(self) -> set[str]:
        return {
            f"{site}/{number}" for site, (count, _) in self._sites.items() for number in range(EVERY, count + 1, EVERY)
        }

    def has_unreplayed_entries(self) -> bool:
        return bool(self._outstanding)

    def adopted(self) -> bool:
        return False

    def last_read(self) -> int | None:
        return None if self._last is None else self._last[0]

    def recognises(self, key: bytes | None, value: bytes) -> bool:
        return self._last is None or self._last[1] == hashlib.sha256(value).hexdigest()

    def due(self) -> dict[str, int]:
        return {"dbh": 1_772_460_000_000_000}

    def resume_after_loss(self, next_offset: int) -> None:
        self._sites["lost"] = (next_offset, b"")
        self._last = None

    def process_in_steps(
        self, offset: int, key: bytes | None, value: bytes, stamp: int | None
    ) -> Iterator[tuple[list[Record], bool]]:
        outputs = self._take(offset, key, value)
        self._last = offset, hashlib.sha256(value).hexdigest()
        yield outputs, True

    def _take(self, offset: int, key: bytes | None, value: bytes) -> list[Record]:
        if value == b"!":
            msg = "on purpose"
            raise RuntimeError(msg)
        if value in (b"?", b""):
            return [Record(self._topics.quarantine, key or b"", b"%d" % offset, 0, False)]
        site, number = (key or b"").decode(), orjson.loads(value)["n"]
        count, head = self._sites.get(site, (0, b""))
        count, head = count + 1, hashlib.sha256(head + b"%d" % number).digest()
        self._sites[site] = count, head
        if count % EVERY:
            return []
        return self._outputs(site, count, head)

    def _outputs(self, site: str, count: int, head: bytes) -> list[Record]:
        release_id = f"{site}/{count}"
        value = orjson.dumps({"release_id": release_id, "head": head.hex()})
        known = self._outstanding.pop(release_id, value)
        if known != value:
            msg = f"{release_id}: differs from what was published"
            raise FinalityError(msg)
        time = count * 1000
        return [
            Record(self._topics.private, site.encode(), value, time, True),
            Record(self._topics.audit, site.encode(), value, time, True),
        ]

    def snapshot(self, next_offset: int, audit_offset: int) -> bytes:
        sites = {site: (count, head.hex()) for site, (count, head) in sorted(self._sites.items())}
        return orjson.dumps({"next": next_offset, "audit": audit_offset, "last": self._last, "sites": sites})
