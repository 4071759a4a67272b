"""The pipeline learns between windows; released bytes are the same without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stream.keys import LaboratoryKeys
from stream.mechanisms.filter import learning
from stream.mechanisms.filter.learning import PARTS
from stream.mechanisms.filter.smoothing import Learning, learn
from stream.pipeline import Pipeline
from stream.records import DAY, MINUTE, SECOND, Heartbeat, Micros
from stream.release.validation import Policy, load_policy

KEYS = LaboratoryKeys(b"r" * 32, "ledger", b"a" * 32)
MIDNIGHT = 20_000 * DAY
BEFORE, AFTER = 24, 6
"""Windows before midnight, a short day on which twelve parts are learnt a window, and behind it."""
TREE = 'levels = ["zone", "floor", "building"]\nshares = { zone = "0.2", floor = "0.3", building = "0.5" }'
HEARTBEATS: Micros = 5 * SECOND


def policy(release: str) -> Policy:
    zones = "".join(
        f'[[site.dbh.zones]]\nid = "{place}"\nfloor = "{place // 2}"\ncapacity = 3\nmax_count = 12\n'
        f'access_points = ["02:00:00:00:00:{place:02x}"]\n'
        for place in range(4)
    )
    head = f'[site.dbh]\nsources = ["10.0.0.1", "10.0.0.2"]\n{zones}[[audience]]\nname = "fine"\n'
    text = f'{head}[[audience]]\nname = "coarse"\n[[release]]\nname = "r"\nquery = "count"\nmechanism = "filter"\n'
    return load_policy(f'{text}epsilon = {{ fine = "1", coarse = "0.2" }}\n{release}')


def heartbeats(every: Micros) -> Iterator[Heartbeat]:
    """Two sources, of which the second is heard of last: with its heartbeats windows close."""
    for mark in range(MIDNIGHT - BEFORE * 5 * MINUTE, MIDNIGHT + AFTER * 5 * MINUTE + MINUTE, every):
        for source in ("10.0.0.1", "10.0.0.2"):
            yield Heartbeat("dbh", source, 1, mark, 0)


@pytest.fixture
def learnt(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What has been learnt so far: one number for each group of zones."""
    learnt: list[int] = []

    def noted(*given: Any) -> Learning:
        learnt.append(1)
        return learn(*given)

    monkeypatch.setattr(learning, "learn", noted)
    return learnt


@pytest.mark.parametrize(
    "release",
    ['revise = "1d"', TREE],
    ids=["zones", "tree"],
)
def test_a_window_waits_for_learning_only_when_it_begins_a_day(release: str, learnt: list[int]) -> None:
    seldom, often = run(release, 5 * MINUTE, learnt), run(release, HEARTBEATS, learnt)
    assert [each for each, _ in seldom] == [each for each, _ in often][: len(seldom)]
    waited, waited_often = [each for _, each in seldom], [each for _, each in often]
    begins = next(place for place, waits in enumerate(waited) if waits)
    needed = PARTS // (learning.WHOLE_DAY // begins)
    assert all(waited[begins : begins + needed]), "windows between which nothing was idle learn themselves"
    assert sum(waited) == sum(waited[: begins + needed]) > sum(waited_often)
    assert [place for place, waits in enumerate(waited_often) if waits] == [begins]


def run(release: str, every: Micros, learnt: list[int]) -> list[tuple[list[Any], int]]:
    """Return of each window what it released, and on how many groups of zones was learnt while it was waited for."""
    pipeline = Pipeline(policy(release), "dbh", KEYS)
    state, made = pipeline.initial(), []
    for message in heartbeats(every):
        before = len(learnt)
        state, outputs = pipeline.step(state, message)
        if outputs:
            made.append((outputs, len(learnt) - before))
    return made
