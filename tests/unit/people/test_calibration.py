"""A calibration on made-up people: what it finds, what it refuses, and what noise in devices and in people changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from connectors.operations.people.calibration import (
    CALIBRATING,
    Evidence,
    Fitted,
    NodeHistory,
    Subject,
    applied,
    calibrate,
    check_of,
    provisional,
    split_days,
    with_band,
)
from connectors.operations.people.estimation import (
    Curve,
    Noise,
    conformal_quantile,
    expected_devices,
    fit_curve,
    fit_spread,
    fixed_factor,
    hour_factors,
)
from connectors.operations.people.history import Subscription, from_records
from connectors.operations.people.truth import GroundTruth, Moment, noised, read_truth, write_noised
from connectors.sources.recordings.text_rows import RowCounts
from stream.errors import DataError
from stream.keys import LaboratoryKeys
from stream.mechanisms.noise import std
from stream.operators import scan
from stream.policy.counts import CountRelease
from stream.policy.people import Truth
from stream.records import MINUTE, OccupancyWindow, Published
from stream.release.stage import ReleaseStage
from stream.schemas import is_private, parse_record
from tests.support.people_models import MONDAY, small_policy
from tests.support.small_building import SITE

SUBJECT = Subject("lab", "occupancy", "public", "0" * 64, laboratory=True, truth=Truth(public=True))


def made_up(seed: int, *, days: int = 24, nodes: int = 1, noise: float = 0.0, jitter: float = 0.15) -> Evidence:
    """Half an hour's windows from 8 to 18 of days on which each has its own ratio near a half; nobody before 9."""
    rng = np.random.default_rng(seed)
    shape = (days, nodes, 20)
    day, node, half_hour = (np.broadcast_to(np.arange(n).reshape(at), shape).ravel() for n, at in (
        (days, (-1, 1, 1)), (nodes, (1, -1, 1)), (20, (1, 1, -1)),
    ))  # fmt: skip
    devices = np.where(half_hour < 2, 0, rng.integers(0, 60, len(day)))
    ratio = 0.5 * (1 + jitter * rng.uniform(-1, 1, days))[day]
    people = np.rint(ratio * devices)
    drawn = np.rint(rng.normal(0, noise, len(day))) if noise else np.zeros(len(day))
    released = (devices + drawn).astype(np.int64)
    law = Noise("gaussian", noise) if noise else None
    known = expected_devices(released, law)
    expected = np.array([known[value] for value in released.tolist()])
    return Evidence(
        tuple(f"zone:{number}" for number in range(nodes)), node, day, 8 + half_hour // 2, released, expected, people,
        np.ones(len(day)), ("1",) * nodes, np.full(len(day), 1.96 * noise),
    )  # fmt: skip


def histories(windows: Evidence) -> dict[str, NodeHistory]:
    return {
        name: NodeHistory(windows.released[windows.node == place], windows.days[windows.node == place], None)
        for place, name in enumerate(windows.nodes)
    }


# --- curves and noise -----------------------------------------------------------------------------------


def test_a_curve_ascends_and_follows_a_ratio_that_changes_with_the_number_of_devices() -> None:
    devices = np.arange(65.0)
    people = np.minimum(devices, 16.0)
    curve = fit_curve(devices, people, np.ones(65))
    assert np.allclose(curve.people(devices), people)
    assert (np.diff(fit_curve(devices, -devices + 70, np.ones(65)).heights) >= 0).all()


def test_noise_in_the_devices_flattens_a_plain_regression_and_not_this_one() -> None:
    """People are half of the devices, sd 17.3; noise of sd 12 leaves a plain slope of 0.5 x 300 / (300 + 144) = 0.34.

    The slope's standard deviation is below 0.01 with 4,000 windows: 0.06 is more than 6 of them.
    """
    rng = np.random.default_rng(1)
    devices = rng.integers(0, 60, 4000).astype(np.float64)
    released = np.rint(devices + rng.normal(0, 12, 4000)).astype(np.int64)
    known = expected_devices(released, Noise("gaussian", 12.0))
    expected = np.array([known[value] for value in released.tolist()])
    plain = np.polyfit(released, devices / 2, 1)[0]
    corrected = np.polyfit(expected, devices / 2, 1)[0]
    assert plain < 0.38
    assert abs(corrected - 0.5) < 0.06


def test_expected_devices_are_never_negative_and_ascend_with_the_released_value() -> None:
    history = np.array([-9, -3, 0, 0, 1, 4, 20, 21, 30], dtype=np.int64)
    known = expected_devices(history, Noise("laplace", 4.0))
    assert min(known.values()) >= 0
    assert list(known.values()) == sorted(known.values())
    assert expected_devices(history, None) == {value: float(max(0, value)) for value in sorted(set(history.tolist()))}


@pytest.mark.parametrize(("kind", "falls"), [("laplace", "evenly"), ("gaussian", "ever faster")])
def test_probabilities_of_noise_are_those_of_its_law(kind: str, falls: str) -> None:
    away = np.arange(-200.0, 201)
    likely = Noise(kind, 12.0).probabilities(away)
    assert np.sqrt((likely * away**2).sum() / likely.sum()) == pytest.approx(12, rel=1e-2)
    near, far = likely[201] / likely[200], likely[221] / likely[220]
    assert near == pytest.approx(far) if falls == "evenly" else near > 1.1 * far


def test_an_hour_has_a_factor_only_with_people_on_enough_days() -> None:
    days = np.repeat(np.arange(6), 2)
    hours = np.tile([9, 10], 6)
    estimates, people = np.full(12, 10.0), np.where(hours == 10, 5.0, 0.0)
    for number, factors in ((6, {10: pytest.approx(0.5)}), (5, {10: pytest.approx(0.5)}), (4, {})):
        some = days < number
        assert hour_factors(hours[some], days[some], people[some], estimates[some]) == factors


def test_a_factor_that_differs_from_day_to_day_is_shrunk_to_1() -> None:
    days, hours, estimates = np.arange(6), np.full(6, 10), np.full(6, 10.0)
    steady = hour_factors(hours, days, np.full(6, 15.0), estimates)[10]
    shaky = hour_factors(hours, days, np.array([3.0, 40, 5, 30, 2, 10]), estimates)[10]
    assert steady == pytest.approx(1.5)
    assert 1 <= shaky < 1.5


def test_the_best_fixed_factor_has_the_least_mean_error() -> None:
    devices, people = np.array([0.0, 1, 2, 10, 10]), np.array([0.0, 3, 1, 5, 4])
    best = fixed_factor(devices, people)
    errors = {factor: np.abs(factor * devices - people).mean() for factor in np.linspace(0, 3, 301)}
    assert np.abs(best * devices - people).mean() <= min(errors.values()) + 1e-9


def test_the_spread_has_a_constant_and_a_part_that_grows_with_devices() -> None:
    released = np.repeat([0, 10, 40], 2)
    spread = fit_spread(np.sqrt(4 + 0.01 * released.astype(np.float64) ** 2) * np.tile([1, -1], 3), released)
    assert [spread.constant, spread.relative] == pytest.approx([2, 0.1])


def test_each_node_is_estimated_by_its_own_curve_and_one_without_a_curve_as_nobody() -> None:
    windows = made_up(1, days=2, nodes=3)
    half, whole = (Curve(np.array([0.0, 100]), np.array([0.0, people])) for people in (50, 100))
    found = Fitted({0: half, 1: whole}, {9: 2.0}).estimates(windows)
    share = np.array([0.5, 1, 0])[windows.node] * np.where(windows.hours == 9, 2, 1)
    assert np.allclose(found, share * windows.devices)
    assert found.any()


# --- bands over days ------------------------------------------------------------------------------------


def test_the_quantile_weighs_days_and_not_windows() -> None:
    """Nine days with one window each and one with a thousand: the crowd of one day must not decide."""
    scores = np.concatenate([np.arange(1.0, 10), np.full(1000, 0.5)])
    days = np.concatenate([np.arange(9), np.full(1000, 9)])
    assert conformal_quantile(scores, days, 0.9) == 9
    assert conformal_quantile(np.arange(1.0, 10), np.arange(9), 0.9) == 9


def test_fewer_days_than_nine_have_no_quantile_of_90_percent() -> None:
    assert conformal_quantile(np.ones(8), np.arange(8), 0.9) == float("inf")
    assert CALIBRATING == 9


def test_days_of_the_fit_calibrate_nothing() -> None:
    fit, calibration = split_days(made_up(1))
    assert not set(fit.tolist()) & set(calibration.tolist())
    assert len(calibration) == 12
    assert len(split_days(made_up(1, days=12))[1]) == CALIBRATING


def test_bands_cover_windows_of_new_days() -> None:
    """100 buildings, each with 24 days and then 12 new ones. At least 90 % are covered on average.

    A building's share has a standard deviation below 0.1, the mean of 100 below 0.01: 0.86 is four of them off, and a
    fixed seed makes the outcome certain.
    """
    shares = []
    for seed in range(100):
        windows = made_up(seed, days=36)
        old, new = windows.on(np.arange(24)), windows.on(np.arange(24, 36))
        check = check_of(applied(with_band(old, by_hour=False), new, 0.5), 12)
        shares.append((check.covered, check.covered_occupied))
    assert np.mean(shares, axis=0).min() > 860


# --- evidence -------------------------------------------------------------------------------------------


def test_a_model_is_checked_on_days_that_were_held_back() -> None:
    windows = made_up(3)
    result = calibrate(SUBJECT, histories(windows), {"zone": windows})
    check = result.model.checked["zone"]
    assert check.windows == len(windows)
    assert check.covered_occupied >= 850
    assert result.left_out == ()
    assert set(result.model.levels["zone"].hours) == {str(hour) for hour in range(8, 18)}


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (made_up(1, days=11), "must have at least 12 days on which people were counted, has 11; 1 more are missing"),
        (made_up(1, days=2), r"1 node\(s\) have counts of people on fewer than 3 days"),
        (made_up(1, days=2), "must have at least 12 days on which people were counted, has 2; 10 more are missing"),
    ],
)
def test_too_little_evidence_is_refused_with_its_rule_and_what_is_missing(windows: Evidence, message: str) -> None:
    with pytest.raises(DataError, match=message):
        calibrate(SUBJECT, histories(windows), {"zone": windows})


def test_few_windows_with_people_are_refused() -> None:
    windows = made_up(1, days=14)
    first = np.concatenate([[True], np.diff(windows.days) > 0])
    few = windows.where((windows.people == 0) | np.roll(first, 5))
    with pytest.raises(DataError, match="must have at least 36 windows in which people were counted"):
        calibrate(SUBJECT, histories(windows), {"zone": few})


def test_a_zone_with_little_evidence_is_shrunk_to_its_floor() -> None:
    """Zone 0 has people on four days, all beyond its neighbours' ratio; its curve stays nearer to theirs."""
    windows = made_up(5, nodes=4)
    own = (windows.node == 0) & (windows.days < 8)
    people = np.where(windows.node == 0, 2 * windows.released, windows.people).astype(np.float64)
    some = replace(windows, people=people).where(own | (windows.node > 0))
    model = calibrate(SUBJECT, histories(windows), {"zone": some}).model
    at_40 = {name: node.people(40) for name, node in model.nodes.items()}
    assert 20_000 < at_40["zone:0"] < 55_000
    assert abs(at_40["zone:1"] - 20_000) < 5_000


# --- ground truth ---------------------------------------------------------------------------------------


def truth(folder: Path, *lines: str) -> Path:
    path = folder / "heads.csv"
    path.write_text("\n".join(["time,node,people", *lines]) + "\n")
    return path


def read(path: Path) -> GroundTruth:
    from zoneinfo import ZoneInfo

    return read_truth(path, 5 * MINUTE, ZoneInfo("UTC"), frozenset({"zone:a", "building"}))


def test_of_several_rows_of_a_window_the_nearest_to_its_end_counts(tmp_path: Path) -> None:
    rows = ("2026-03-02T00:03:00Z,zone:a,1", "2026-03-02T00:04:30Z,zone:a,2", "2026-03-02T00:05:30Z,zone:a,3")
    found = read(truth(tmp_path, *rows))
    assert found.people == {Moment("zone:a", MONDAY + 5 * MINUTE): 2}


def test_bad_rows_are_named_by_line_and_rule_and_never_by_value(tmp_path: Path) -> None:
    rows = ("yesterday,zone:a,1", "2026-03-02T00:00:00Z,zone:z,1", "2026-03-02T00:00:00Z,zone:a,-1")
    found = read(truth(tmp_path, *rows, "2026-03-02T00:00:00Z,zone:a,", "2026-03-02T00:05:00Z,building,7"))
    assert found.tally.bad == 4
    assert [line.partition(":")[0] for line in found.tally.problems] == ["line 2", "line 3", "line 4"]
    assert "-1" not in "".join(found.tally.problems)
    with pytest.raises(DataError, match="must have at least one good row"):
        read(truth(tmp_path, *rows))


@pytest.mark.parametrize(("counted", "used"), [(99_999, 99_999), (100_000, 100_000), (100_001, 100_000)])
def test_a_count_beyond_the_largest_is_not_refused_which_would_tell_it(tmp_path: Path, counted: int, used: int) -> None:
    found = read(truth(tmp_path, f"2026-03-02T00:00:00Z,zone:a,{counted}"))
    assert (list(found.people.values()), found.tally.bad) == ([used], 0)


def test_paid_truth_gets_exact_noise_for_one_person_at_one_moment_on_every_level() -> None:
    """One person is in a zone and in the building: each of two levels gets half of epsilon.

    The standard deviation of 4,000 draws at epsilon 1/2 is 2.8 with a standard error of 0.05; 0.3 is six of them.
    """
    people = {Moment(node, MONDAY + n * MINUTE): 10.0 for n in range(2000) for node in ("zone:a", "building")}
    private = noised(GroundTruth(people, RowCounts()), Fraction(1), b"k" * 32)
    away = np.array(list(private.people.values())) - 10
    assert abs(away.std() - std(Fraction(1, 2))) < 0.3
    assert private.epsilon == 1


def test_nothing_reads_true_counts_once_they_are_paid_for(tmp_path: Path) -> None:
    """Two truths that the noise makes equal give equal files, and the file that was written costs nothing more."""
    people = {Moment("zone:a", MONDAY + n * MINUTE): float(n) for n in range(0, 50, 5)}
    private = noised(GroundTruth(people, RowCounts()), Fraction(1, 2), b"k" * 32)
    write_noised(tmp_path / "noised.csv", private)
    again = read(tmp_path / "noised.csv")
    assert again.people == dict(private.people)
    assert again.epsilon == Fraction(1, 2)
    assert not set(private.people.values()) <= set(people.values()) or private.people != people


# --- few counts ------------------------------------------------------------------------------------------


def few(devices: list[int], people: list[int], *, half_width: float = 0.0, hour: int = 9) -> Evidence:
    """Counts of one day at the building."""
    n = len(devices)
    return Evidence(
        ("building",), np.zeros(n, np.int64), np.full(n, 20_514), np.full(n, hour), np.array(devices),
        np.array(devices, np.float64), np.array(people, np.float64), np.ones(n), ("",), np.full(n, half_width),
    )  # fmt: skip


def test_three_counts_make_a_provisional_model_of_one_factor_for_two_weeks() -> None:
    """60 people at 120 devices: half a person a device; 2026-03-02 is day 20,514."""
    subject = replace(SUBJECT, working_hours=frozenset({8, 10}))
    model = provisional(subject, {"building": few([30, 40, 50], [14, 22, 24])}).model
    assert model.provisional is not None
    assert model.provisional.model_dump() == {"counts": 3, "days": 1, "until": date(2026, 3, 16), "factor": 2500}
    assert model.estimate("building", 40, 9) == (20, 6, 52)
    assert [model.unknown("building", devices, 9, 1.0) for devices in (100, 101)] == [None, "range"]
    assert [model.unknown("building", 40, hour, 1.0) for hour in (8, 9, 10, 11)] == [None, None, None, "hour"]
    assert model.unknown("building", 40, 9, 0.9) == "coverage"


def test_noise_widens_a_provisional_band_and_too_much_of_it_is_refused() -> None:
    plain, wide = (
        provisional(SUBJECT, {"building": few([40] * 3, [20] * 3, half_width=width)}).model for width in (0.0, 10.0)
    )
    assert (plain.provisional, wide.provisional) != (None, None)
    assert wide.estimate("building", 40, 9) == (20, 0, 70)  # times 3.125, and 2 + 5 people
    with pytest.raises(DataError, match="must have a 95 % band of at most ±25% of them"):
        provisional(SUBJECT, {"building": few([40] * 3, [20] * 3, half_width=10.5)})
    with pytest.raises(DataError, match="of at most ±25% of them"):
        provisional(SUBJECT, {"building": few([40] * 3, [20] * 3, half_width=np.inf)})


def test_paid_counts_widen_a_provisional_band_and_few_people_are_refused() -> None:
    paid = replace(SUBJECT, truth=Truth(public=False, epsilon="1"))
    found = provisional(paid, {"building": few([40] * 3, [20] * 3)}).model.provisional
    assert found is not None
    assert found.factor == round(2500 * (1 + 1.96 * std(Fraction(1)) * 3**0.5 / 60))
    with pytest.raises(DataError, match="paid counts must have a 95 % band of at most ±25% of their sum"):
        provisional(paid, {"building": few([4] * 3, [2] * 3)})


def test_two_counts_are_too_few_for_a_provisional_model() -> None:
    with pytest.raises(DataError, match="building: must have at least 3 windows with people"):
        provisional(SUBJECT, {"building": few([30, 40, 50], [14, 22, 0])})


# --- released history -----------------------------------------------------------------------------------


def test_history_has_every_node_with_the_noise_that_is_in_it() -> None:
    """The building is a sum of four zones with noise of scale 1 each: its deviation is twice that of a zone."""
    policy = small_policy()
    release = policy.release[0]
    assert isinstance(release, CountRelease)
    of = Subscription(SITE, policy.site[SITE], release, "facilities")
    windows = [OccupancyWindow(SITE, MONDAY + n * 15 * MINUTE, (9, 8, 7, 6, 0, 0), Fraction(1)) for n in range(1, 4)]
    keys = LaboratoryKeys(b"h" * 32, "ledger", b"a" * 32)
    _, outputs = scan(ReleaseStage(policy, SITE, keys), windows)
    records = [parse_record(out.value) for out in outputs if isinstance(out, Published) and is_private(out.topic)]
    history = from_records(records, of)
    assert set(history.windows) == {f"zone:{zone}" for zone in "abcd"} | {"floor:1", "floor:2", "building"}
    assert history.laboratory
    noise = {node: history.windows[node][windows[0].window_end].noise for node in ("zone:a", "building")}
    zone, building = noise["zone:a"], noise["building"]
    assert zone is not None
    assert building is not None
    assert (zone.kind, building.kind) == ("laplace", "gaussian")
    assert zone.deviation == pytest.approx(std(Fraction(1)), rel=1e-6)
    assert building.deviation == pytest.approx(2 * zone.deviation)
