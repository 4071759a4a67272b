"""The checker finds what is wrong with a log, and names it by its class."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.simulation.checker import Life, Topics, misindexed, misread, problems

TOPICS = Topics("audit", "account", "quarantine", ("private",))


@dataclass(frozen=True)
class Stored:
    offset: int
    value: bytes | None
    committed: bool = True
    appended_ms: int = 0


Logs = dict[str, list[list[Stored]]]


def log() -> Logs:
    """Return a log with two windows of one site, as it should be."""
    logs: Logs = {"audit": [[]], "account": [[]], "quarantine": [[]], "private": [[]]}
    previous = "0" * 64
    for number, window in enumerate(("10:05", "10:10")):
        name, mine = f"site/{window}", f"{number:064x}"
        entry = {
            "release_id": name, "site": "site", "audience": "public", "sequence": number, "previous": previous,
            "hash": mine, "nano": 500_000_000, "outcome": "released", "window_end": window,
            "ledger": "first",
        }  # fmt: skip
        account = {
            "site": "site", "window_end": window, "kind": "counts",
            "audiences": {"public": {"device_total": str((number + 1) / 2)}},
        }  # fmt: skip
        for topic, body in (
            ("audit", entry),
            ("account", account),
            ("private", {"release_id": name, "values": number}),
        ):
            logs[topic][0].append(Stored(number, json.dumps(body).encode(), appended_ms=number))
        previous = mine
    return logs


def values(logs: Logs) -> dict[str, list[bytes]]:
    return {
        topic: [record.value for partition in logs[topic] for record in partition if record.value is not None]
        for topic in ("audit", "account", "private")
    }


def found(change: Callable[[Logs], None]) -> set[str]:
    """Return the classes of problems after a change of the log."""
    logs = log()
    change(logs)
    return {problem.partition(":")[0] for problem in problems(logs, TOPICS, values(log()))}


def other(record: Stored, **fields: object) -> Stored:
    assert record.value is not None
    return replace(record, value=json.dumps(json.loads(record.value) | fields).encode())


def test_nothing_is_wrong_with_a_log_as_it_should_be() -> None:
    assert problems(log(), TOPICS, values(log())) == []


def _aborted_with_other_bytes(logs: Logs) -> None:
    logs["private"][0].append(replace(other(logs["private"][0][0], values=7), committed=False))


def _charged_late(logs: Logs) -> None:
    logs["audit"][0][1] = replace(logs["audit"][0][1], appended_ms=5)


def _charge_aborted(logs: Logs) -> None:
    logs["audit"][0][1] = replace(logs["audit"][0][1], committed=False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda logs: logs["private"][0].pop(), {"missing"}),
        (lambda logs: logs["private"][0].append(logs["private"][0][0]), {"twice"}),
        (lambda logs: logs["private"][0].append(Stored(9, b'{"release_id": "other"}')), {"foreign", "uncharged"}),
        (lambda logs: logs["private"][0].insert(0, other(logs["private"][0].pop(0), values=9)), {"bytes", "foreign"}),
        (_aborted_with_other_bytes, {"forked"}),
        (lambda logs: logs["audit"][0].reverse(), {"audit"}),
        (lambda logs: logs["audit"][0].append(other(logs["audit"][0].pop(), previous="9" * 64)),
         {"audit", "bytes", "foreign"}),
        (_charged_late, {"uncharged"}),
        (_charge_aborted, {"missing", "uncharged", "sums"}),
        (lambda logs: logs["quarantine"][0].append(Stored(0, b"{}")), {"refused"}),
    ],
    ids=["missing", "twice", "foreign", "bytes", "forked", "order", "chain", "late", "uncharged", "refused"],
)  # fmt: skip
def test_what_is_wrong_is_named(change: Callable[[Logs], None], said: set[str]) -> None:
    assert found(change) == said


PRIVATE = [[Stored(at, json.dumps({"release_id": f"site/{at}", "site": "site"}).encode()) for at in range(4)]]
GIVEN = [record.value.decode() for record in PRIVATE[0] if record.value is not None]


@pytest.mark.parametrize(
    ("lives", "said"),
    [
        ([Life(GIVEN[:3], saved=2), Life(GIVEN[2:])], []),
        ([Life(GIVEN[:3], saved=2), Life(GIVEN[3:])], ["although 1 before it did not", "ends after 2 of 4"]),
        ([Life(GIVEN[:3], saved=2), Life(GIVEN[1:])], ["twice"]),
        ([Life([GIVEN[0], *GIVEN])], ["twice"]),
        ([Life(GIVEN[:3])], ["ends after 3 of 4"]),
        ([Life([*GIVEN, GIVEN[0].replace("site/0", "site/9")])], ["not in the log"]),
        ([Life([*GIVEN, GIVEN[3].replace("}", ', "v": 1}')])], ["with other bytes"]),
    ],
    ids=["goes on", "misses", "repeats what was saved", "repeats", "stops", "foreign", "bytes"],
)
def test_what_a_subscriber_misses_or_repeats_is_named(lives: list[Life], said: list[str]) -> None:
    found = list(misread(lives, PRIVATE, resumes=True))
    assert len(found) == len(said)
    assert all(words in problem for words, problem in zip(said, found, strict=True))


def test_a_subscriber_without_a_cursor_gets_everything_with_each_start() -> None:
    assert list(misread([Life(GIVEN[:2], saved=2), Life(GIVEN)], PRIVATE, resumes=False)) == []
    assert len(list(misread([Life(GIVEN[:2], saved=2), Life(GIVEN[2:])], PRIVATE, resumes=False))) == 3


INDEXED = [json.dumps({"release_id": name, "released": True, "values": {"hall": 3}}).encode() for name in "ab"]
ROWS = [("a", INDEXED[0], {"hall": 3}), ("b", INDEXED[1], {"hall": 3})]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (ROWS, []),
        (ROWS[:1], ["lacks, 1 times"]),
        ([*ROWS, ROWS[0]], ["1 times too often"]),
        ([("b", INDEXED[0], {"hall": 3}), ROWS[1]], ["a as b"]),
        ([("a", INDEXED[0], {"hall": 4}), ROWS[1]], ["the values of a"]),
    ],
    ids=["as it should be", "lacks", "twice", "name", "values"],
)
def test_what_an_index_lacks_or_has_otherwise_is_named(
    rows: list[tuple[str, bytes, dict[str, int]]], said: list[str]
) -> None:
    found = list(misindexed(rows, [[[Stored(at, value) for at, value in enumerate(INDEXED)]]]))
    assert len(found) == len(said)
    assert all(words in problem for words, problem in zip(said, found, strict=True))
