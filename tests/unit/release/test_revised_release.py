"""Revised values, published when later windows are known, through the real release stage."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from connectors.storage.kafka.topics import topic_names
from stream.errors import PolicyError
from stream.keys import LaboratoryKeys
from stream.mechanisms.base import Values, whole
from stream.mechanisms.filter.state import rounded_size
from stream.mechanisms.filter.step import RegimeFilter
from stream.mechanisms.noise_parameters import laplace_noise
from stream.operators import scan
from stream.policy.privacy_days import PrivacyDays
from stream.records import DAY, HOUR, MINUTE, Micros, OccupancyWindow, Published
from stream.release.count_plan import count_plans
from stream.release.ledger_writer import LedgerWriter
from stream.release.revisions import RevisionPlan
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, parse_time
from tests.support.day_policies import day_site
from tests.support.small_building import ATTRIBUTES, building

F = Fraction
KEYS = LaboratoryKeys(b"r" * 32, "ledger", b"a" * 32)
TICK = 5 * MINUTE
NINE = 20_000 * DAY + 9 * HOUR
"""UTC, on a Friday in October."""
PLAIN = 'mechanism = "filter"\nepsilon = { fine = "1", coarse = "0.2" }\n'
ONLY_FINE = 'mechanism = "filter"\nepsilon = { fine = "1" }\n'
HOURLY = PLAIN + 'revise = "1h"\n'
TREE = 'levels = ["zone", "floor", "building"]\nshares = { zone = "0.2", floor = "0.3", building = "0.5" }\n'
BOTH = PLAIN + 'revise = ["1h", "1d"]\n'
HALF_HOUR = 6 * TICK
HALF = '\ntick = "30min"\n'
Body = dict[str, Any]


def policy(release: str, site: str = "", largest: int = 20) -> Policy:
    zones = "".join(
        f'[[site.dbh.zones]]\nid = "{zone}"\nfloor = "{zone[0]}"\ncapacity = 3\nmax_count = {most}\n'
        f'access_points = ["02:00:00:00:00:{place:02x}"]\n'
        for place, (zone, most) in enumerate((("101", largest), ("102", 12), ("201", 20)))
    )
    audiences = '[[audience]]\nname = "fine"\n[[audience]]\nname = "coarse"\n'
    head = f'[site.dbh]\nsources = ["10.0.0.1"]\n{site}\n{zones}{audiences}'
    return load_policy(f'{head}[[release]]\nname = "r"\nquery = "count"\n{release}')


def windows(
    first: Micros, last: Micros, by_day: PrivacyDays | None = None, tick: Micros = TICK
) -> Iterator[OccupancyWindow]:
    """Windows that end after ``first`` and no later than ``last``; people come and go with the hour."""
    for end in range(first + tick, last + tick, tick):
        many = (end - first) // HOUR % 9
        day, bounded = (None, None) if by_day is None else (by_day.at(end), (many, 2, many))
        yield OccupancyWindow("dbh", end, (many, 3, 9 - many), F(1, 1 + end // tick % 2), day, bounded)


def published(outputs: list[Any]) -> list[Published]:
    return [each for each in outputs if isinstance(each, Published)]


def made_by(chosen: Policy, items: Iterator[OccupancyWindow]) -> list[Published]:
    return published(scan(ReleaseStage(chosen, "dbh", KEYS), items)[1])


def bodies(records: list[Published], release: str = "r-revised") -> list[Body]:
    read = [orjson.loads(each.value) for each in records if each.topic != AUDIT]
    return [body for body in read if body["release"] == release]


# When


def test_an_hour_is_revised_an_hour_after_it() -> None:
    made = made_by(policy(HOURLY), windows(NINE, NINE + 3 * HOUR))
    came = [(parse_time(body["window_end"]), body["lag"]) for body in bodies(made) if body["audience"] == "fine"]
    assert came == [(NINE + hour * HOUR + n * TICK, 24 - n) for hour in range(2) for n in range(1, 13)], (
        "windows of two hours of three, at lags of 23 to 12"
    )
    times = {each.time for each in made if ".r-revised." in each.topic}
    assert times == {NINE + 2 * HOUR, NINE + 3 * HOUR}, "the time of a record is that of the window it comes with"


@pytest.mark.parametrize(
    ("site", "starts"),
    [("", 24), ('timezone = "Europe/Berlin"', 22), (day_site(), 28)],
    ids=["utc day", "local day", "privacy day"],
)
def test_a_day_is_revised_with_windows_of_the_next(site: str, starts: int) -> None:
    """In October the local day of Berlin begins at 22:00 UTC.

    Of the 4 windows of the day before, all is learnt with the first window; of a day of 48, with the eighth.
    """
    start = 20_000 * DAY - DAY + starts * HOUR
    made = made_by(
        policy(PLAIN + 'revise = ["1d"]', site + HALF), windows(start - 2 * HOUR, start + 30 * HOUR, tick=6 * TICK)
    )
    came = [(parse_time(b["window_end"]), b["lag"]) for b in bodies(made) if b["audience"] == "coarse"]
    assert came[:4] == [(start + (n - 4) * 6 * TICK, 5 - n) for n in range(1, 5)], "the day before, as far as seen"
    assert came[4:] == [(start + n * 6 * TICK, 48 + 8 + (n - 1) // 6 - n) for n in range(1, 31)], (
        "six windows of the day with each from the eighth to the twelfth of the next"
    )


def test_of_five_minutes_a_day_is_published_six_windows_at_a_time() -> None:
    """With the 48th window of the next day its first six, and so on with each of the 47 behind that."""
    midnight = 20_000 * DAY
    made = made_by(policy(ONLY_FINE + 'revise = "1d"'), windows(midnight, midnight + DAY + 8 * HOUR))
    came = [(parse_time(b["window_end"]), b["lag"]) for b in bodies(made)]
    assert came == [(midnight + n * TICK, 288 + 48 + (n - 1) // 6 - n) for n in range(1, 289)]
    times = [each.time for each in made if ".r-revised." in each.topic]
    assert times == [end + lag * TICK for end, lag in came], "the time of a record is that of the window it comes with"


def test_hour_and_day_have_records_of_their_own() -> None:
    made = made_by(policy(PLAIN + 'revise = ["1h", "1d"]', HALF), windows(NINE, NINE + 23 * HOUR, tick=6 * TICK))
    names = [body["release_id"] for body in bodies(made)]
    assert len(set(names)) == len(names)
    assert {name.rpartition("/")[2] for name in names} == {"1h", "1d"}
    hourly = [body for body in bodies(made) if body["release_id"].endswith("/1h")]
    daily = [body for body in bodies(made) if body["release_id"].endswith("/1d")]
    assert (len(hourly), len(daily)) == (2 * 22 * 2, 2 * 15 * 2)
    assert [body["values"] for body in hourly[: len(daily)]] != [body["values"] for body in daily]


# What


def test_a_revised_record_says_what_it_revises_and_costs_nothing() -> None:
    made = made_by(policy(HOURLY), windows(NINE, NINE + 2 * HOUR))
    first = {body["release_id"]: body for body in bodies(made, "r")}
    for body in bodies(made):
        revised = first[body["revises"]]
        same = set(revised) - {"release", "release_id", "values", "half_width_95", "spend", "noisy"}
        assert {key: body[key] for key in same} == {key: revised[key] for key in same}
        assert set(body) - set(revised) == {"revises", "lag"}
        assert (body["spend"], body["released"], body["half_width_kind"]) == ("0", True, "posterior")
        assert body["release_id"] == f"dbh/r-revised/{body['audience']}/{body['window_end']}/1h"
    assert len(bodies(made)) == 2 * 12


def test_revised_values_are_nearer_and_surer() -> None:
    """Over the rest of a day at ε .2 and 1: what is left of error and band, beside those of the first records."""
    items = list(windows(NINE, NINE + 23 * HOUR))
    truth = {item.window_end: item.counts for item in items}
    made = made_by(policy(PLAIN + 'revise = "1d"'), iter(items))
    off: dict[str, dict[str, int]] = {"r": {}, "r-revised": {}}
    revised = {body["revises"] for body in bodies(made)}
    for release, found in off.items():
        for body in bodies(made, release):
            if body["release_id"] in revised or release != "r":
                exact = truth[parse_time(body["window_end"])]
                found["error"] = found.get("error", 0) + sum(
                    abs(value - count) for value, count in zip(body["values"].values(), exact, strict=True)
                )
                found["width"] = found.get("width", 0) + sum(body["half_width_95"].values())
    assert off["r-revised"]["error"] < 0.9 * off["r"]["error"]
    assert off["r-revised"]["width"] < 0.9 * off["r"]["width"]


def test_first_records_and_ledger_are_what_they_would_be_without_revision() -> None:
    items = list(windows(NINE, NINE + 3 * HOUR))
    without = made_by(policy(PLAIN), iter(items))
    revising = [each for each in made_by(policy(HOURLY), iter(items)) if ".r-revised." not in each.topic]
    assert [each.id for each in revising] == [each.id for each in without]
    for one, other in zip(bodies(revising, "r"), bodies(without, "r"), strict=True):
        assert one | {"policy_version": ""} == other | {"policy_version": ""}


def test_levels_that_are_measured_are_revised_each_and_add_up() -> None:
    made = made_by(policy(HOURLY + TREE), windows(NINE, NINE + 2 * HOUR))
    assert len(bodies(made)) == 24
    for body in bodies(made):
        floors = body["levels"]["floor"]
        assert floors["1"] == body["values"]["101"] + body["values"]["102"]
        assert body["levels"]["building"] == sum(floors.values())
        assert body["levels_half_width_95"].keys() == body["levels_noise_scale"].keys() == {"floor", "building"}


def test_a_day_that_is_paid_at_once_is_revised_under_its_own_terms() -> None:
    text = 'mechanism = "filter"\nunit = "device_day"\nnoise = "gaussian"\nepsilon = { fine = "2" }\nrevise = "1d"\n'
    site, days = day_site(), PrivacyDays("04:00", "UTC")
    start = days.at(NINE).start
    made = made_by(policy(text, site + HALF), windows(start, start + 2 * DAY, days, tick=6 * TICK))
    assert len(bodies(made)) == 48
    assert {(body["unit"], body["noise"], body["spend"], body["epsilon"]) for body in bodies(made)} == {
        ("device_day", "gaussian", "0", "2")
    }


# Who reads what


def test_a_coarse_audience_is_told_nothing_of_a_finer_ones_values() -> None:
    """The revision of ε = .2 is the same bytes whatever the noisy values of ε = 1 are; a window never reaches it."""
    chosen = policy(HOURLY)
    (plan,) = count_plans(chosen, "dbh")
    writer = LedgerWriter.of(chosen, "dbh", KEYS, 1)

    def coarse(fine: int) -> list[bytes]:
        revision = RevisionPlan(plan, "1h", chosen.site["dbh"], writer)
        stored: dict[str, Any] = {}
        came: list[Published] = []
        for window in windows(NINE, NINE + 2 * HOUR):
            made = {
                epsilon: _values(np.full(3, fine if epsilon == 1 else window.counts[0])) for epsilon in plan.mechanisms
            }
            came += revision.window(stored, {}, window.window_end, F(1), made)
        return [each.value for each in came if ".coarse." in each.topic]

    assert len(coarse(5)) == 12
    assert coarse(5) == coarse(17)


def _values(noisy: np.ndarray[Any, np.dtype[np.int64]]) -> Values:
    return Values(noisy, noisy, whole(noisy), noisy=noisy)


def test_audiences_of_equal_epsilon_read_the_same_revision() -> None:
    made = made_by(policy(HOURLY.replace("0.2", "1")), windows(NINE, NINE + 2 * HOUR))
    fine, coarse = ([b["values"] for b in bodies(made) if b["audience"] == name] for name in ("fine", "coarse"))
    assert fine == coarse
    assert len(fine) == 12


def test_revised_values_have_a_topic_of_their_own() -> None:
    private = {name for name in topic_names(policy(HOURLY)) if ".private." in name}
    assert private == {f"tacet.private.{a}.{r}.v1" for a in ("fine", "coarse") for r in ("r", "r-revised")}


# Windows that are not there


def test_a_window_that_was_denied_is_not_revised_and_holds_nothing_up() -> None:
    """A budget of twenty windows a day, from 22:00 on: the last four before midnight have no value.

    Due by 02:00 are three hours, of which the second has eight windows.
    """
    late = NINE + 13 * HOUR
    made = made_by(policy(HOURLY + 'daily_budget = { fine = "20" }\n'), windows(late, late + 4 * HOUR))
    fine = [body for body in bodies(made) if body["audience"] == "fine"]
    denied = {b["release_id"] for b in bodies(made, "r") if b["audience"] == "fine" and not b["released"]}
    assert len(denied) > 4
    assert not denied & {body["revises"] for body in fine}
    assert all(12 <= body["lag"] <= 23 for body in fine)
    assert len(fine) == 12 + 8 + 12


def test_a_site_that_was_away_for_hours_is_revised_with_its_next_window() -> None:
    items = [*windows(NINE, NINE + 90 * MINUTE), *windows(NINE + 5 * HOUR, NINE + 5 * HOUR + TICK)]
    fine = [body for body in bodies(made_by(policy(HOURLY), iter(items))) if body["audience"] == "fine"]
    assert len(fine) == 18
    assert {parse_time(b["window_end"]) + b["lag"] * TICK for b in fine} == {NINE + 5 * HOUR + TICK}


# State


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HOURLY, id="hour"),
        pytest.param(ONLY_FINE + TREE + 'revise = ["1h", "1d"]', id="tree"),
        pytest.param(BOTH + TREE, id="tree of two", marks=pytest.mark.long),
        pytest.param(PLAIN + 'revise = ["1h", "1d"]', id="both", marks=pytest.mark.long),
    ],
)
def test_revision_survives_a_restart_at_any_window(text: str) -> None:
    """Of half hours, over the end of a day of 30 windows: with the sixth of the next it begins to be published."""
    stage = ReleaseStage(policy(text, HALF), "dbh", KEYS)
    state, through, revised = stage.initial(), stage.initial(), 0
    for number, window in enumerate(windows(NINE, NINE + 15 * HOUR + 12 * HALF_HOUR, tick=HALF_HOUR)):
        state, expected = stage.step(state, window)
        if number % 5 < 2 or number > 20:
            through = stage.decode(stage.encode(through))
        through, outputs = stage.step(through, window)
        assert published(outputs) == published(expected)
        revised += sum(body["release_id"].endswith("/1d") for body in bodies(published(outputs)))
    assert stage.encode(through) == stage.encode(state)
    assert revised == (0 if text == HOURLY else 30 if ONLY_FINE in text else 2 * 30)


def test_what_is_held_of_an_hour_is_its_noisy_values_and_one_state() -> None:
    """Of 3 zones and 2 epsilons after 23 windows: 8 bytes a noisy value, and once all cells of the filter in halves."""
    with_and_without = []
    for text in (PLAIN, HOURLY):
        stage = ReleaseStage(policy(text), "dbh", KEYS)
        state, _ = scan(stage, windows(NINE, NINE + 23 * TICK))
        with_and_without.append(len(stage.encode(state)))
    plain, revising = with_and_without
    once = rounded_size(RegimeFilter((20, 12, 20), laplace_noise(F(1))).form)
    assert revising - plain < 2 * (23 * (3 * 8 + 60) + once)


# Refusals


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            'mechanism = "pegasus"\nepsilon = { fine = "1" }\nrevise = "1h"',
            "revise must be used with filter, got pegasus",
        ),
        (PLAIN + 'revise = ["1h", "1h"]', "revise must name '1h' and '1d' once each"),
        (PLAIN + 'revise = "2h"', "'1h' or '1d'"),
        (
            HOURLY
            + '[[release]]\nname = "r-revised"\nquery = "count"\nmechanism = "laplace"\nepsilon = { fine = "1" }',
            "r-revised",
        ),
    ],
)
def test_what_cannot_be_revised_is_refused(text: str, rule: str) -> None:
    with pytest.raises(PolicyError, match=rule):
        policy(text)


def test_what_would_not_fit_a_snapshot_is_refused_before_it_runs() -> None:
    """A zone of up to 200,000 people has 6.4 million cells of two bytes, at each of two epsilons."""
    policy(HOURLY)
    with pytest.raises(PolicyError, match=r"^policy: revise must hold at most 16 MiB of a site's windows, holds"):
        policy(HOURLY, largest=200_000)
    policy(PLAIN, largest=200_000)


def test_releases_of_other_kinds_hold_nothing_for_revision() -> None:
    revised = 'mechanism = "filter"\nzones = { kind = "hall" }\nepsilon = { facilities = "1" }\nrevise = "1h"\n'
    chosen = building(releases=f'{ATTRIBUTES}[[release]]\nname = "r"\nquery = "count"\n{revised}')
    assert {release.query for release in chosen.release} == {"attributes", "count"}
