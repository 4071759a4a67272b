"""What must be true of a cluster's log when all is over. Knows nothing of the product's code.

It reads records as any client does, as JSON, and compares them with each other and with ``expected``, the values that
an independent run over the final log must have made. A problem is a line of text; its first word is its class.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

NANO = 10**9


class Record(Protocol):
    """A record of the log, as a reader of uncommitted records sees it."""

    @property
    def offset(self) -> int: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def committed(self) -> bool: ...
    @property
    def appended_ms(self) -> int: ...


Partitions = Sequence[Sequence[Record]]


class Topics(NamedTuple):
    """The names of the topics."""

    audit: str
    account: str
    quarantine: str
    private: tuple[str, ...]


def problems(
    logs: Mapping[str, Partitions], topics: Topics, expected: Mapping[str, Iterable[bytes]],
    former: Mapping[str, Partitions] | None = None,
) -> list[str]:  # fmt: skip
    """Return everything that is wrong; nothing if all is well.

    ``former`` is what topics held that were destroyed and put back: it counts for what has ever come out, and when.
    """
    ever = {topic: [*(former or {}).get(topic, []), *partitions] for topic, partitions in logs.items()}
    return [
        *_exactly_once(logs, expected),
        *_forked(ever, topics),
        *_chains(logs[topics.audit]),
        *_charged_before(logs, ever[topics.audit], topics),
        *_sums(logs, topics),
        *_nothing_refused(logs[topics.quarantine]),
    ]


def _committed(partitions: Partitions) -> Iterator[bytes]:
    for partition in partitions:
        for record in partition:
            if record.committed and record.value is not None:
                yield record.value


def _name(value: bytes) -> str:
    body = json.loads(value)
    return str(body.get("release_id") or f"{body['site']} {body['window_end']} {body.get('kind')}")


def _exactly_once(logs: Mapping[str, Partitions], expected: Mapping[str, Iterable[bytes]]) -> Iterator[str]:
    """Compare what readers of committed records see with what must have come out: each value once, with its bytes."""
    for topic, values in expected.items():
        found, due = Counter(_committed(logs[topic])), Counter(values)
        for value in due - found:
            others = [each for each in found if _name(each) == _name(value)]
            yield f"{'bytes' if others else 'missing'}: {topic}: {_name(value)}"
        for value, times in (found - due).items():
            yield f"{'twice' if value in due else 'foreign'}: {topic}: {_name(value)}, {times} times too many"


def _forked(logs: Mapping[str, Partitions], topics: Topics) -> Iterator[str]:
    """Check that nothing ever came out with other bytes, not even in a transaction that was aborted."""
    for topic in (topics.audit, *topics.private):
        known: dict[str, bytes] = {}
        for partition in logs[topic]:
            for record in partition:
                if record.value is not None:
                    name = _name(record.value)
                    if known.setdefault(name, record.value) != record.value:
                        yield f"forked: {topic}: {name} has come out with other bytes"


def _entries(partitions: Partitions) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, _committed(partitions))


def _chains(audit: Partitions) -> Iterator[str]:
    """Check that each site's entries are numbered without a gap, in order, and that each names the one before; that a
    ledger that has ended gets no more entries.
    """
    last: dict[str, tuple[int, str]] = {}
    ledgers: defaultdict[str, list[str]] = defaultdict(list)
    for entry in _entries(audit):
        number, before = last.get(entry["site"], (-1, "0" * 64))
        if entry["sequence"] != number + 1:
            yield f"audit: {entry['site']}: entry {entry['sequence']} follows {number}"
        elif number >= 0 and entry["previous"] != before:
            yield f"audit: {entry['site']}: entry {entry['sequence']} does not name the one before"
        last[entry["site"]] = entry["sequence"], entry["hash"]
        known = ledgers[entry["site"]]
        if entry["ledger"] not in known:
            known.append(entry["ledger"])
        elif entry["ledger"] != known[-1]:
            yield f"audit: {entry['site']}: entry {entry['sequence']} belongs to a ledger that had ended"


def _charged_before(logs: Mapping[str, Partitions], audit: Partitions, topics: Topics) -> Iterator[str]:
    """Check that each published record has its charge, which was written no later; ``audit`` is all there ever was."""
    charged: dict[str, int] = {}
    for partition in audit:
        for record in partition:
            if record.value is not None:
                charged.setdefault(_name(record.value), record.appended_ms)
    kept = {entry["release_id"] for entry in _entries(logs[topics.audit])}
    for topic in topics.private:
        for partition in logs[topic]:
            for record in partition:
                if record.value is None:
                    continue
                name = _name(record.value)
                if record.committed and name not in kept:
                    yield f"uncharged: {topic}: {name}"
                elif charged.get(name, record.appended_ms + 1) > record.appended_ms:
                    yield f"uncharged: {topic}: {name} came before its charge"


def _sums(logs: Mapping[str, Partitions], topics: Topics) -> Iterator[str]:
    """Check that the newest account of each site is the sum of its charges."""
    spent: defaultdict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for entry in _entries(logs[topics.audit]):
        if entry["outcome"] == "released":
            spent[entry["site"], entry["audience"]] += Fraction(entry["nano"], NANO)
    newest: dict[str, dict[str, Any]] = {}
    for body in _entries(logs[topics.account]):
        if body["site"] not in newest or body["window_end"] > newest[body["site"]]["window_end"]:
            newest[body["site"]] = body
    for site, body in newest.items():
        for audience, totals in body["audiences"].items():
            if Fraction(totals["device_total"]) != spent[site, audience]:
                yield f"sums: {site}, {audience}: {totals['device_total']} where {spent[site, audience]} was charged"


def _nothing_refused(quarantine: Partitions) -> Iterator[str]:
    found = list(_committed(quarantine))
    if found:
        yield f"refused: {len(found)} messages went to quarantine"


# --- readers ------------------------------------------------------------------------------------------


@dataclass
class Life:
    """What a subscriber was given from one start to its end."""

    given: list[str] = field(default_factory=list)
    """The records as JSON, in the order in which they came."""
    saved: int = 0
    """How many of them its cursor has saved: the next life begins after these."""


def misread(lives: Sequence[Life], partitions: Partitions, *, resumes: bool) -> Iterator[str]:
    """Check that a subscriber got each visible record once, each site's in the order of the log.

    With ``resumes`` each life begins exactly where the cursor of the one before was saved, otherwise at the first
    record. The last life must have come to the end.
    """
    due: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for value in _committed(partitions):
        body = json.loads(value)
        due[body["site"]].append(body)
    kept: Counter[str] = Counter()
    at: Counter[str] = Counter()
    for number, life in enumerate(lives):
        at = Counter(kept)
        for count, text in enumerate(life.given, 1):
            body = json.loads(text)
            site = body["site"]
            if at[site] < len(due[site]) and due[site][at[site]] == body:
                at[site] += 1
            else:
                yield f"misread: life {number}: {body['release_id']} comes {_why(body, due[site], at[site])}"
            if resumes and count == life.saved:
                kept = Counter(at)
    for site, records in sorted(due.items()):
        if at[site] < len(records):
            yield f"misread: {site}: ends after {at[site]} of {len(records)} records"


def _why(body: Mapping[str, Any], due: Sequence[Mapping[str, Any]], at: int) -> str:
    places = [place for place, each in enumerate(due) if each["release_id"] == body["release_id"]]
    if not places:
        return "and is not in the log"
    if due[places[0]] != body:
        return "with other bytes"
    return "twice" if places[0] < at else f"although {places[0] - at} before it did not"


def misindexed(
    index: Iterable[tuple[str, bytes, Mapping[str, int]]], topics: Iterable[Partitions]
) -> Iterator[str]:  # fmt: skip
    """Check that an index holds each visible record once, under its id and with its bytes, and its values by zone."""
    due = Counter(value for partitions in topics for value in _committed(partitions))
    found: Counter[bytes] = Counter()
    for name, value, cells in index:
        found[value] += 1
        body = json.loads(value)
        if name != body["release_id"]:
            yield f"misindexed: {body['release_id']} as {name}"
        if body["released"] and dict(cells) != body["values"]:
            yield f"misindexed: the values of {name}"
    for value, times in (due - found).items():
        yield f"misindexed: {_name(value)} lacks, {times} times"
    for value, times in (found - due).items():
        yield f"misindexed: {_name(value)} is there {times} times too often"
