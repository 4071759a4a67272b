"""No two noise draws of releases paid by the day share a label, even if all counts are equal."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from stream.mechanisms import inversion
from stream.records import HOUR, Micros, OccupancyWindow
from stream.release.stage import ReleaseStage
from stream.release.validation import load_policy
from tests.unit.release.test_day_releases import DAYS, FOUR, KEYS, RELEASE, SITE, TICK

LEVELS = (
    RELEASE + 'levels = ["zone", "floor", "building"]\nshares = { zone = "0.25", floor = "0.25", building = "0.5" }\n'
)
LAPLACE = RELEASE.replace('"gaussian"', '"laplace"')
RUNS = {
    "gaussian": (RELEASE, SITE, 1),
    "second attempt": (RELEASE, SITE, 2),
    "third attempt": (RELEASE, SITE, 3),
    "another name": (RELEASE.replace('"day"', '"other"'), SITE, 1),
    "half the contribution": (RELEASE, SITE.replace('"8h"', '"4h"'), 1),
    "a quarter, at half the epsilon": (
        RELEASE.replace('"2"', '"1"').replace('"4"', '"2"'), SITE.replace('"8h"', '"2h"'), 1,
    ),
    "other prices": (RELEASE.replace('"2"', '"1"').replace('"4"', '"3"'), SITE, 1),
    "levels": (LEVELS, SITE, 1),
    "levels without zones": (
        RELEASE + 'levels = ["floor", "building"]\nshares = { floor = "0.5", building = "0.5" }\n', SITE, 1,
    ),
    "laplace": (LAPLACE, SITE, 1),
    "laplace, half the contribution at half the epsilon": (
        LAPLACE.replace('"2"', '"1"').replace('"4"', '"2"'), SITE.replace('"8h"', '"4h"'), 1,
    ),
    "laplace of levels": (LEVELS.replace('"gaussian"', '"laplace"'), SITE, 1),
    "some zones": (RELEASE + 'zones = { floor = "1" }\n', SITE, 1),
    "filter": (RELEASE.replace('"laplace"', '"filter"').replace('"day"', '"smooth"'), SITE, 1),
}  # fmt: skip


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """Keys and labels of all words that are drawn."""
    drawn = list[tuple[bytes, bytes]]()
    sponge = inversion._sponge

    def listening(domain: bytes, key: bytes, label: bytes) -> Any:
        if domain == b"tacet.words.1":
            drawn.append((key, label))
        return sponge(domain, key, label)

    monkeypatch.setattr(inversion, "_sponge", listening)
    return drawn


def release(name: str) -> None:
    """Release an hour before and after a day's start and UTC midnight, all counts alike."""
    text, site, attempt = RUNS[name]
    stage = ReleaseStage(load_policy(site + text), "dbh", KEYS, attempt)
    state = stage.initial()
    for end in (*around(FOUR), *around(FOUR + 12 * HOUR), *around(FOUR + 24 * HOUR)):
        window = OccupancyWindow("dbh", end, (1, 1), Fraction(1), DAYS.at(end), (1, 1))
        state, _ = stage.step(state, window)


WINDOWS = 72


def around(instant: Micros) -> range:
    return range(instant - HOUR, instant + HOUR, TICK)


def test_no_two_draws_share_a_label(labels: list[tuple[bytes, bytes]]) -> None:
    """Each run has a label for each window, level and step of its chain; that of two audiences is drawn by both."""
    found: dict[tuple[bytes, bytes], str] = {}
    for name, (text, _, _) in RUNS.items():
        labels.clear()
        release(name)
        own, levels = set(labels), max(1, text.count("0.25") + text.count("0.5"))
        steps = 3 if 'noise = "laplace"' in text else 2
        assert len(own) == WINDOWS * levels * steps, name
        assert {found.get(label) for label in own} == {None}, name
        found |= dict.fromkeys(own, name)


def test_the_same_release_again_draws_the_same(labels: list[tuple[bytes, bytes]]) -> None:
    release("levels")
    release("levels")
    half = len(labels) // 2
    assert labels[:half] == labels[half:]
