"""Triggers: which records cause events, and what an event contains.

A trigger is every release, a change that the band does not explain, or a crossing of a threshold. A noisy value
differs in every window, so a *change* is a value whose band does not contain the last reported value, and a threshold
is *crossed* when the whole band lies on its other side. Both start from the first value seen, which is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from connectors.sinks.feed import Notes, is_latest_count, note_latest
from connectors.subscribe.nodes import NodeValue, bound_of, counted_in, node_values
from connectors.subscribe.order import Release
from stream.records import JsonObject

Kind = Literal["release", "change", "crossing"]
ABOVE, BELOW = "above", "below"


class Event(NamedTuple):
    """An event; its id stays the same when it is reported again."""

    id: str
    type: str
    time: str
    """RFC 3339: the end of its window."""
    data: JsonObject
    """What is reported: the whole record, or a node with what has changed."""


class Crossing(NamedTuple):
    """A node whose whole band has come to another side of the threshold."""

    value: NodeValue
    side: str


@dataclass(frozen=True, slots=True)
class Trigger:
    """When to report, and for which nodes; an empty set means all nodes."""

    kind: Kind
    threshold: float | None = None
    """In devices, or in people for releases of people; of crossings."""
    nodes: frozenset[str] = frozenset()

    def events(self, record: Release, notes: Notes) -> list[Event]:
        """Return the events that a record causes, given the notes of all earlier records."""
        if self.kind == "release":
            return [Event(record["release_id"], "tacet.release", record["window_end"], record)]
        if self.kind == "crossing":
            return [
                _event(self.kind, record, value, {"side": side, "threshold": self.threshold})
                for value, side in self.crossings(record, notes)
            ]
        return [
            _event(self.kind, record, value, {"previous": reported})
            for value, reported in self._reported(record, notes)
            if _has_changed(value, reported)
        ]

    def crossings(self, record: Release, notes: Notes) -> list[Crossing]:
        """Return the nodes that a record brings to another side, given the notes of all earlier records."""
        return [
            Crossing(value, side)
            for value, reported in self._reported(record, notes)
            if (side := self._side(value)) not in (None, reported)
        ]

    def _reported(self, record: Release, notes: Notes) -> Iterator[tuple[NodeValue, float | str]]:
        """Yield each chosen node with what was last reported of it; nothing if the record is not the latest."""
        if not is_latest_count(record, notes):
            return
        known = notes.get("told", {})
        for value in self._chosen(record):
            if (reported := known.get(_name(record, value))) is not None:
                yield value, reported

    def note(self, record: Release, notes: Notes) -> None:
        """Update the notes after a record's events were delivered."""
        if self.kind == "release" or not is_latest_count(record, notes):
            return
        reported = notes.setdefault("told", {})
        for value in self._chosen(record):
            name = _name(record, value)
            if self.kind == "crossing":
                reported[name] = self._side(value) or reported.get(name)
            elif (before := reported.get(name)) is None or _has_changed(value, before):
                reported[name] = value.value
        note_latest(record, notes)

    def _chosen(self, record: Release) -> Iterator[NodeValue]:
        return (value for value in node_values(record) if not self.nodes or value.node in self.nodes)

    def _side(self, value: NodeValue) -> str | None:
        low, high = _band(value)
        threshold = self.threshold or 0.0
        return ABOVE if low >= threshold else BELOW if high < threshold else None


def _band(value: NodeValue) -> tuple[float, float]:
    return (value.value if value.low is None else value.low), (value.value if value.high is None else value.high)


def _has_changed(value: NodeValue, reported: float | str) -> bool:
    low, high = _band(value)
    return isinstance(reported, str) or not low <= reported <= high


def _name(record: Release, value: NodeValue) -> str:
    return f"{record['site']}/{record['release']}/{value.node}"


def _event(kind: Kind, record: Release, value: NodeValue, fields: Mapping[str, object]) -> Event:
    copied = ("site", "release", "window_start", "window_end", "release_id", "coverage", "laboratory")
    counted = {"counted": counted_in(record)} if "counted" in record else {}
    data = value._asdict() | {**fields} | {name: record[name] for name in copied} | bound_of(record) | counted
    return Event(f"{record['release_id']}/{value.node}/{kind}", f"tacet.{kind}", record["window_end"], data)
