"""Parts of an attack on a day, by hand: what is learnt from, how success is counted, who is followed."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from connectors.lab.attacks.published import Channel, Nodes, PublishedDay, _read
from connectors.lab.attacks.recording import Day
from connectors.lab.attacks.report import report, tables
from connectors.lab.attacks.study import Attack, FoundPeople, Scene, _pooled, beliefs, drawn_at_random, pairs
from connectors.lab.attacks.tracking import VICTIMS, TrackingResult, _inside, _right, _victims, follow, paths_of
from stream.errors import UsageError
from stream.lab.attackers.beliefs import noisy_posterior
from stream.lab.attackers.likelihoods import NoiseDistribution
from stream.lab.attackers.localised import CLASSES, Success, wilson
from stream.pseudonyms.rotation import Sightings

NODES = Nodes((("zone", "a"), ("floor", "1")), np.array([[True, False, False], [False, True, True]]))


def test_who_learns_reads_released_windows_alone_with_the_counts_of_their_nodes() -> None:
    released = PublishedDay(np.array([[5, 9], [0, 0]]), np.array([True, False]), None)
    truth, values = pairs(released, NODES, np.array([[4, 3, 5], [7, 7, 7]]))
    assert (truth.tolist(), values.tolist()) == ([4, 8], [5, 9])


def test_a_belief_is_about_those_in_closed_zones_less_those_who_are_seen() -> None:
    """By hand: zone b is open; of the node of zones b and c, three of whom are seen, one zone is asked about."""
    counts, prior = np.array([[2, 3, 4]]), np.array([[0.3, 0.5, 0.2]])
    scene = Scene(counts, counts, prior, np.array([False, True, False]))
    law = NoiseDistribution("laplace", 2.0)
    published = PublishedDay(np.array([[1, 9]]), np.array([True]), (law, law))
    expected = [
        float(noisy_posterior(law.log_likelihood(np.array(value), 6), np.array(share)))
        for value, share in ((1, 0.6), (9 - 3, 0.4))
    ]
    assert beliefs(published, NODES, (law, law), scene)[0] == pytest.approx([expected[0], 0, expected[1]], abs=1e-12)
    assert all(0.1 < each < 0.9 for each in expected)
    nobody = published._replace(released=np.array([False]))
    assert beliefs(nobody, NODES, (law, law), scene)[0] == pytest.approx([0.6, 0, 0.4])


def test_a_random_guess_finds_one_in_as_many_as_there_are_closed_zones() -> None:
    counts = np.array([[3, 9, 1], [1, 9, 1]])
    found = drawn_at_random(Scene(counts, counts, counts / 9, np.array([False, True, False])))
    assert (found.right, found.tried) == (3, 6)
    assert (found.low, found.high) == wilson(2, 4)[2:]


def test_noisy_levels_are_read_as_they_were_before_a_filter() -> None:
    record = {
        "released": True, "noisy": {"a": 7}, "levels": {"floor": {"1": 5}}, "levels_noisy": {"floor": {"1": 3}},
        "noise_scale": {"a": 2.0}, "levels_noise_scale": {"floor": {"1": 4.0}},
    }  # fmt: skip
    release: Any = None  # asked for values alone
    read = _read(record, "noisy", NODES, release)
    assert (read.values, read.released) == ([7, 3], True)
    assert read.laws == (NoiseDistribution("laplace", 2.0), NoiseDistribution("laplace", 4.0))
    assert _read({"released": False}, "noisy", NODES, release) == ([0, 0], False, None)


def test_a_device_is_in_one_zone_from_a_sighting_until_the_next_or_until_it_is_forgotten() -> None:
    columns = np.array([(-5, 2, 1), (5, 0, 0), (15, 0, 2), (35, 1, 0)], dtype=np.int64).T
    paths = paths_of(Sightings(*columns), np.array([10, 20, 30, 40]), 25)
    assert paths.tolist() == [[0, 2, 2, -1], [-1, -1, -1, 0], [1, -1, -1, -1]]


def test_success_is_that_of_all_runs_and_its_interval_that_of_the_busiest_span() -> None:
    """Runs concern the same people, so that more of them make no interval narrower."""
    pooled = _pooled([Success(2, 10, 0.0, 1.0), Success(4, 10, 0.0, 1.0)], 5)
    busiest = wilson(round(6 / 20 * 5), 5)
    assert pooled == (6, 20, busiest.low, busiest.high)
    assert _pooled([Success(0, 0, 0.0, 1.0)], 0).right == 0


def test_those_who_are_followed_were_in_a_counted_place_and_are_a_hundred_at_most() -> None:
    paths = np.zeros((3 * VICTIMS, 2), dtype=np.int64)
    paths[::3, 1] = 1
    paths[1::3, 0] = 2
    found = _victims(paths)
    assert len(found) == VICTIMS == 100
    assert (found != 0).any(axis=1).all()
    assert _victims(paths[:6]).tolist() == [[0, 1], [2, 0], [0, 1], [2, 0]]


def test_a_followed_person_is_known_to_be_in_some_place_and_guesses_count_only_then() -> None:
    beliefs = _inside(np.array([[[0.8, 0.15, 0.05], [0.9, 0.04, 0.06]]]))
    assert beliefs[0] == pytest.approx(np.array([[0, 0.75, 0.25], [0, 0.4, 0.6]]))
    one = _right(beliefs, np.array([[1, 0]]))
    assert (one.right, one.tried) == (1, 1)
    paths = np.array([[0, 2], [2, 1]])
    assert _right(np.array([[[1.0, 0, 0], [0, 0, 1.0]]]), paths)[:2] == (1, 3)


@pytest.mark.parametrize("laws", [None, (NoiseDistribution("laplace", 1.0), NoiseDistribution("laplace", 2.0))])
def test_noise_without_one_known_law_follows_nobody(laws: tuple[NoiseDistribution, ...] | None) -> None:
    published = PublishedDay(np.zeros((1, 2), dtype=np.int64), np.array([True]), laws)
    nothing: tuple[list[Day], Day] = ([], None)  # type: ignore[assignment]
    with pytest.raises(UsageError, match="must have one law"):
        follow(Channel("r", "a", "values"), NODES, published, nothing, None)  # type: ignore[arg-type]


# --- what is reported -----------------------------------------------------------------------------------


def attack(*, followed: bool) -> Attack:
    by_class = np.array([[0, 0, 1, 2, 0, 3], [0, 0, 0, 1, 1, 1.0]])
    found = FoundPeople(
        "counts, public: exact law", {"reads": "values"}, by_class, by_class / 3, np.ones((2, 6), dtype=np.int64), 2,
        Success(3, 4, 0.2, 0.9), Success(1, 4, 0.1, 0.6),
    )  # fmt: skip
    one, two, three = Success(1, 10, 0.0, 0.4), Success(2, 10, 0.0, 0.5), Success(7, 10, 0.4, 0.9)
    tracking = TrackingResult(
        Channel("counts", "public", "noisy"), 5, one, two, three, (0.1, 0.2, 0.7), None, float("inf")
    )
    return Attack(
        "2026-03-04", 2, np.array([True, False, False]), np.array([4, 8]), [found], Success(4, 12, 0.1, 0.6),
        [tracking] if followed else [],
    )  # fmt: skip


def test_a_report_has_every_number_marked_as_restricted() -> None:
    made = report(attack(followed=True), "visitor", 15)
    assert (made["restricted"], made["laboratory"]) == (True, True)
    assert (made["open_zones"], made["zones"], made["people"]) == (1, 3, [4, 8])
    assert made["classes"] == list(CLASSES)
    [found] = made["attacks"]
    assert found["found"]["by_guess"][0] == [0, 0, 1, 2, 0, 3]
    assert found["found"]["by_confidence"][0][3] == 0.6667
    assert (found["success"]["share"], found["control"]["share"]) == (0.75, 0.25)
    [person] = made["followed"]
    assert [person[name]["believed"] for name in ("mobility", "alike", "knowing")] == [0.1, 0.2, 0.7]
    assert (person["believed_at_most"], person["backward_leakage"]) == (None, "inf")


def test_people_read_means_over_time_beside_the_baseline() -> None:
    [whom] = tables(attack(followed=False), "visitor")
    assert [next(iter(column.cells)) for column in whom.columns] == [
        "counts, public: exact law", "4.5", "1.5", "1.3", "75%", "20%-90%", "25%"
    ]  # fmt: skip
    assert [list(column.cells)[1] for column in whom.columns][4] == "33%"
    _, followed = tables(attack(followed=True), "visitor")
    assert [next(iter(column.cells)) for column in followed.columns] == [
        "counts, public, noisy", "10%", "20%", "70%", "70%", "-"
    ]  # fmt: skip


def test_people_read_one_line_for_each_release() -> None:
    printed = Console(width=100, file=io.StringIO())
    with printed.capture() as capture:
        printed.print(*tables(attack(followed=False), "visitor"))
    *_, found, at_random = (line for line in capture.get().split("\n") if line.strip())
    assert f"{found}\n{at_random}\n" in capture.get()
    assert found.split()[:3] == ["counts,", "public:", "exact"]
    assert at_random.split() == ["a", "zone", "at", "random", "33%"]
