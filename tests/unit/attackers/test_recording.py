"""What an attack reads of a recording: days, a control that nothing released is about, and paths of people."""

from __future__ import annotations

import numpy as np
import pytest

from connectors.lab.attacks.published import Channel, Publisher, count_releases, nodes_of
from connectors.lab.attacks.recording import (
    RecordedSightings,
    control_counts,
    days_of,
    is_control,
    laboratory,
    record,
    renamed_counts,
    spans_of,
)
from connectors.lab.attacks.study import Scene, beliefs, drawn_at_random, from_counts, from_prior
from connectors.lab.attacks.tracking import follow, paths_of
from connectors.sources.recordings.dialect import OWN
from stream.lab.attackers.beliefs import from_true_counts, noisy_posterior
from stream.lab.attackers.likelihoods import NoiseDistribution
from stream.pseudonyms.rotation import Sightings
from stream.records import MINUTE, SECOND
from stream.release.validation import Policy, load_policy
from tests.support.attacked_building import written
from tests.support.small_building import SITE, policy_text

NESTED = """
[[release]]
name = "levels"
query = "count"
mechanism = "filter"
zones = { kind = ["hall", "lobby"] }
levels = ["floor", "building"]
shares = { floor = "0.5", building = "0.5" }
epsilon = { facilities = "4" }
"""
PRECISE = """
[[release]]
name = "precise"
query = "count"
mechanism = "laplace"
zones = { kind = ["hall", "lobby"] }
epsilon = { facilities = "60" }
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return load_policy(policy_text(NESTED))


@pytest.fixture(scope="module")
def recorded(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> RecordedSightings:
    observations, _ = written(tmp_path_factory.mktemp("recorded"), hours=66)
    return record(observations, policy, SITE, 1, OWN, lambda *_: None)


def test_days_are_whole_and_the_last_is_attacked(recorded: RecordedSightings) -> None:
    days = days_of(recorded)
    assert [day.date for day in days] == ["2026-03-03", "2026-03-04"]
    assert [len(day.ticks) for day in days] == [96, 96]
    assert spans_of(recorded, days[0], 30 * MINUTE).tolist() == np.repeat(np.arange(48), 2).tolist()


def test_nothing_that_is_counted_is_of_the_control(recorded: RecordedSightings) -> None:
    named = np.array([is_control(name) for name in recorded.names])
    assert 0 < named.sum() < len(named)
    assert named[np.unique(recorded.control.device)].all()
    assert not named[np.unique(recorded.sightings.device)].any()
    for day in days_of(recorded):
        assert renamed_counts(recorded, day, 10**15).tolist() == day.counts.tolist()
        assert control_counts(recorded, day).sum() > 0


def test_one_device_in_ten_is_of_the_control_whoever_else_is_there() -> None:
    assert [number for number in range(31) if is_control(f"{number:08x}ffffffff")] == [0, 10, 20, 30]


def test_short_lived_names_count_more_than_there_are(recorded: RecordedSightings) -> None:
    day = days_of(recorded)[-1]
    assert renamed_counts(recorded, day, SECOND).sum() > day.counts.sum()


def test_paths_add_up_to_the_counts(recorded: RecordedSightings) -> None:
    day = days_of(recorded)[-1]
    paths = paths_of(recorded.sightings, day.ticks, recorded.site.validity)
    found = np.stack([(paths == zone).sum(axis=0) for zone in range(day.counts.shape[1])], axis=1)
    assert found.tolist() == day.counts.tolist()


def test_a_name_that_ends_is_in_no_zone_from_then_on(recorded: RecordedSightings) -> None:
    for seen in (recorded.sightings, recorded.control):
        assert np.unique(seen.zone).tolist() == [-1, *range(len(recorded.site.zones))]


def test_the_smallest_nodes_that_are_told_stand_for_their_zones(policy: Policy) -> None:
    (release,) = count_releases(policy, SITE)
    nodes, measured = nodes_of(policy, SITE, release), nodes_of(policy, SITE, release, measured=True)
    assert nodes.names == (("floor", "1"), ("floor", "2"))
    assert measured.names == (*nodes.names, ("building", "building"))
    assert nodes.of_zones().tolist() == [0, 0, 1, 1, -1, -1]  # offices are in no release


def test_what_is_read_is_what_records_tell_with_the_law_of_its_noise(
    policy: Policy, recorded: RecordedSightings
) -> None:
    publisher = Publisher(policy, SITE, count_releases(policy, SITE))
    reported = publisher.run(days_of(recorded)[-1].windows[:3], laboratory(1))
    assert {channel.reads for channel in reported} == {"values", "noisy"}
    for channel, each in reported.items():
        assert each.values.shape == (3, 2)
        assert each.laws == ((NoiseDistribution("laplace", 0.5),) * 2 if channel.reads == "noisy" else None)
    again = publisher.run(days_of(recorded)[-1].windows[:3], laboratory(1))
    assert all((again[channel].values == each.values).all() for channel, each in reported.items())


def test_a_floor_is_shared_out_among_its_closed_zones_by_the_prior(policy: Policy, recorded: RecordedSightings) -> None:
    """By hand: zone b is open, so that of floor 1 only zone a is asked about, less the people seen in b."""
    publisher = Publisher(policy, SITE, count_releases(policy, SITE))
    read = publisher.run(days_of(recorded)[-1].windows[:1], laboratory(1))
    reported = read[Channel("levels", "facilities", "noisy")]
    counts, prior = np.array([[2, 5, 1, 0, 1, 0]]), np.array([[0.2, 0.3, 0.1, 0.1, 0.2, 0.1]])
    scene = Scene(counts, counts, prior, np.array([False, True, False, False, False, False]))
    assert reported.laws is not None
    found = beliefs(reported, publisher.nodes["levels"], reported.laws, scene)[0]
    closed = prior[0] * np.array([1, 0, 1, 1, 1, 1]) / 0.7
    law, people = reported.laws[0], 4
    first = float(noisy_posterior(law.log_likelihood(reported.values[0, 0] - 5, people), closed[0]))
    second = float(noisy_posterior(law.log_likelihood(reported.values[0, 1], people), closed[2] + closed[3]))
    assert found == pytest.approx([first, 0, second / 2, second / 2, closed[4], closed[5]], abs=1e-12)


def test_all_but_no_noise_lets_one_believe_the_true_counts(policy: Policy, recorded: RecordedSightings) -> None:
    day = days_of(recorded)[-1]
    at = int(day.counts.sum(axis=1).argmax())
    loud = load_policy(policy_text(PRECISE))
    publisher = Publisher(loud, SITE, count_releases(loud, SITE))
    ((_, reported),) = publisher.run(day.windows[at : at + 1], laboratory(1)).items()
    counts = day.counts[at : at + 1] * np.array([1, 1, 1, 1, 0, 0])  # nobody in offices, which are not told
    scene = Scene(counts, counts, np.full((1, 6), 1 / 6), np.zeros(6, dtype=bool))
    assert reported.laws is not None
    found = beliefs(reported, publisher.nodes["precise"], reported.laws, scene)
    assert found[:, :4] == pytest.approx(from_true_counts(counts, scene.is_open)[:, :4], abs=1e-12)


def test_where_nobody_is_at_a_counted_place_nobody_is_followed(policy: Policy, recorded: RecordedSightings) -> None:
    training, day = days_of(recorded)
    publisher = Publisher(policy, SITE, count_releases(policy, SITE))
    channel = Channel("levels", "facilities", "noisy")
    reported, nodes = publisher.run(day.windows[:3], laboratory(1))[channel], publisher.nodes["levels"]
    nobody = recorded._replace(sightings=Sightings(*np.zeros((3, 0), dtype=np.int64)))
    few = day._replace(ticks=day.ticks[:3], counts=day.counts[:3])
    assert follow(channel, nodes, reported, ([training], few), nobody) is None


def test_an_empty_day_finds_nobody_and_divides_by_nothing() -> None:
    counts = np.zeros((2, 3), dtype=np.int64)
    scene = Scene(counts, counts, np.full((2, 3), 1 / 3), np.array([True, False, False]))
    for found in (from_prior(scene), from_counts(scene)):
        assert found.by_guess.sum() == found.by_confidence.sum() == 0
        assert found.success == (0, 0, 0.0, 1.0)
    assert drawn_at_random(scene).share == 0.0
