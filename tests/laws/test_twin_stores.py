"""Two worlds that differ in one device, on the embedded store: files, metrics and HTTP answers.

Every row that others may read, every figure that the catalogue does not call people's, and every answer that readers of
``tacet serve`` get, headers and all, has to be the same (``tests/support/twin_stores.py``; see ``test_twin_worlds``).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.coupled_noise import coupled_noise
from tests.support.twin_stores import Shown, StoreWorld, first_difference, new_key
from tests.support.twin_worlds import drawn_course, drawn_people

SEEDS = (10, pytest.param(11, marks=pytest.mark.long))
MANY = range(100, 160)


def shown(seed: int, folder: Path) -> tuple[Shown, Shown]:
    """Return what two worlds show others."""
    rng, key = random.Random(seed), new_key(folder)
    course = drawn_course(rng, seed)
    people, mine = drawn_people(rng, course)
    with coupled_noise():
        one = StoreWorld(course, sorted([*people, *mine]), folder / "one", key).run()
        return one, StoreWorld(course, people, folder / "other", key).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_two_stores_that_differ_in_one_device_show_the_same(seed: int, tmp_path: Path) -> None:
    one, other = shown(seed, tmp_path)
    assert (difference := first_difference(one, other)) is None, difference
    assert sum(status == 200 for status, _, _ in one.answers.values()) > 20, "the comparison means something"
    assert len(one.metrics) > 50


@pytest.mark.long
@pytest.mark.parametrize("seed", MANY)
def test_many_stores_that_differ_in_one_device_show_the_same(seed: int, tmp_path: Path) -> None:
    assert (difference := first_difference(*shown(seed, tmp_path))) is None, difference
