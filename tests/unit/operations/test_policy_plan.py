"""The plan of a day: costs, releases that fit, expected errors."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from click.testing import CliRunner

from connectors.cli.policy import policy as policy_verbs
from connectors.lab.simulation.files import write_csv
from connectors.lab.simulation.policy import policy_text as simulated_policy
from connectors.operations.policy.plan import plan, targets, windows_to_try
from connectors.operations.policy.quality import (
    KEY,
    desk_site,
    expected_quality,
    simulated_day,
    simulated_windows,
    stand_ins,
)
from connectors.sources.recordings.observations import ObservationFile
from connectors.sources.recordings.replay import replay
from stream.accounting.account import Account
from stream.accounting.calibration import calibrate
from stream.keys import LaboratoryKeys
from stream.lab.simulator.events import DAY_SHOWN, simulate
from stream.pipeline import Options, definition_of
from stream.policy.sites import Zone
from stream.records import MINUTE, OccupancyWindow
from stream.release.count_plan import count_plan
from stream.release.stage import ReleaseStage
from stream.release.validation import load_policy
from stream.schemas import rfc3339
from tests.support.day_policies import day_release, day_site, shared
from tests.support.small_building import (
    ATTRIBUTES,
    COUNTS,
    SITE,
    ZONES,
    bodies,
    building,
    laboratory,
    policy_text,
    unchecked,
)


def count_release(mechanism: str = "laplace", epsilon: str = "1", more: str = "", name: str = "r") -> Any:
    return f"""
[[release]]
name = "{name}"
query = "count"
mechanism = "{mechanism}"
zones = {{ kind = ["hall", "lobby"] }}
epsilon = {{ facilities = "{epsilon}" }}
{more}
"""


def row(release: Any, **changes: Any) -> Any:
    [found] = plan(building(releases=release, **changes)).figures()["counts"]
    return found


def test_every_release_and_audience_has_a_row_with_every_field() -> None:
    report = plan(building()).figures()
    assert [(r["site"], r["release"], r["audience"]) for r in report["counts"]] == [
        ("dbh", "grouped", "board"), ("dbh", "grouped", "facilities"), ("dbh", "grouped", "public"),
        ("dbh", "plain", "board"), ("dbh", "plain", "facilities"), ("dbh", "smooth", "public"),
    ]  # fmt: skip
    for each in report["counts"]:
        assert set(each) == {
            "site", "release", "audience", "mechanism", "epsilon", "windows_per_day", "daily_budget", "refresh_days",
            "w_budget", "releases_that_fit", "cost", "expected_mean_absolute_error", "expected_mean_count",
            "worse_than_zero", "unit", "tight", "levels", "left_out",
        }  # fmt: skip
        assert {"window", "day", "presence_tuple", "observation", "device_w_event", "device_day", "person_day"} <= set(
            each["cost"]
        )
    assert {(a["attribute"], a["audience"]) for a in report["attributes"]} == {
        ("arrival", "facilities"), ("arrival", "public"), ("occupancy_level", "facilities"),
    }  # fmt: skip
    assert [c["release"] for c in report["coalitions"]] == ["grouped", "plain", "smooth"]
    errors = [value for each in report["counts"] for level in each["levels"].values() for value in level.values()]
    assert errors == [round(value, 4) for value in errors], "more digits would tell nothing"


@pytest.mark.parametrize(
    ("release", "site", "windows"),
    [
        (count_release(), "", 96),
        (COUNTS, "", 6 * 96),
        (day_release(more=shared(floor="0.5", building="0.5"), public="2"), day_site(), 2 * 96),
    ],
    ids=["one audience", "six", "and again with the zones that are left out"],
)
def test_a_plan_says_beforehand_how_many_windows_it_will_try(release: str, site: str, windows: int) -> None:
    policy, tried = building(releases=release, site=site), list[None]()
    days = simulated_windows(policy)
    plan(policy, days, lambda: tried.append(None))
    assert windows_to_try(policy, days) == len(tried) == windows


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
def test_laplace_errs_by_the_mean_of_its_noise(epsilon: Any) -> None:
    """E|DLap| = 2a / (1 - a^2), a = e^-epsilon; 96 x 4 draws: six standard errors on both sides."""
    found = row(count_release("laplace", epsilon))["expected_mean_absolute_error"]
    a = math.exp(-float(epsilon))
    mean, second = 2 * a / (1 - a * a), 2 * a / (1 - a) ** 2
    assert found == pytest.approx(mean, abs=6 * math.sqrt((second - mean**2) / (96 * 4)))


def test_smoothing_mechanisms_err_less_than_laplace_where_noise_is_large() -> None:
    errors = {
        mechanism: row(count_release(mechanism, "0.1"))["expected_mean_absolute_error"]
        for mechanism in ("laplace", "pegasus", "filter")
    }
    assert errors["pegasus"] < errors["laplace"] / 1.3
    assert errors["filter"] < errors["pegasus"]


def test_the_simulated_day_is_a_whole_day_of_every_zone() -> None:
    day = simulated_day()
    counts = np.array([window.counts for window in day.windows])
    assert counts.shape == (288, len(day.zones)) == (288, len(day.kinds))
    assert counts.sum() > 0
    assert counts.min() == 0
    assert len(simulated_day(15 * MINUTE).windows) == 96


def test_simulated_devices_count_at_a_site_of_logins_each_as_the_only_one_of_a_login() -> None:
    keys = 'identity = "login"\nothers = "ignore"\n' + day_site("12h")
    of_logins, of_devices = (
        simulated_windows(load_policy(policy_text(day_release(), site=site)))[SITE] for site in (keys, day_site("12h"))
    )
    assert sum(sum(window.counts) for window in of_logins) > 0
    assert [window.counts for window in of_logins] == [window.counts for window in of_devices]


def zone(name: Any, kind: Any, radios: int = 1, capacity: int = 1) -> Any:
    points = tuple(f"02:00:00:00:00:{place:02x}" for place in range(radios))
    return Zone(id=name, kind=kind, capacity=capacity, access_points=points)


def test_a_zone_stands_for_its_namesake_else_for_the_next_of_its_kind_else_for_the_next_public_one() -> None:
    names, kinds = ("1", "2", "3", "4"), ("office", "hall", "office", "hall")
    wanted = {
        "namesakes": ([zone("4", "hall"), zone("1", "office")], [(3,), (0,)]),
        "kinds in order, and round again": ([zone(name, "office") for name in "abc"], [(0,), (2,), (0,)]),
        "a namesake of another kind is a stranger": ([zone("2", "office"), zone("x", "office")], [(0,), (2,)]),
        "kinds that are not simulated": ([zone(name, "kitchen") for name in "abc"], [(1,), (3,), (1,)]),
        "one for each access point": ([zone("a", "office", 3), zone("4", "hall", 3)], [(0, 2, 0), (3,)]),
    }
    for zones, places in wanted.values():
        assert stand_ins(zones, names, kinds) == places


@pytest.mark.parametrize(("radios", "places"), [(1, 1), (64, 64), (65, 64), (200, 64)])
def test_a_zone_stands_for_as_many_zones_as_are_simulated_at_most(radios: int, places: int) -> None:
    assert [len(own) for own in stand_ins([zone("a", "office", radios)], ("1", "2"), ("office", "hall"))] == [places]


def test_a_zone_has_desks_for_its_people_and_no_more_than_eight_for_each_access_point() -> None:
    site = building(tick="1h").site[SITE]

    def counts(capacity: int, radios: int) -> list[tuple[int, ...]]:
        desks = site.model_copy(update={"zones": (zone("a", "hall", radios, capacity),)})
        return [window.counts for window in desk_site(SITE, desks, None)]

    assert counts(8, 1) == counts(9, 1) == counts(200, 1) == counts(8, 4)
    assert counts(3, 1) == counts(3, 4)
    assert max(counts(3, 1)) < max(counts(8, 1)) < max(counts(200, 4))


# --- the plan and the day itself ----------------------------------------------------------------------

BY_KIND = {
    "classroom": ("pegasus", "0.3"), "corridor": ("laplace", "1"), "office": ("filter", "0.1"),
}  # fmt: skip
"""A release of some kinds of zones, beside the one that the simulated building's policy has."""


def of_tick(tick: str) -> str:
    """Return the simulated building's policy; at half-hours it has a sixth of its windows."""
    return simulated_policy(simulate(DAY_SHOWN)).replace('tick = "5min"', f'tick = "{tick}"')


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What ``tacet replay`` makes of the demo's day, under the plan's public key; without the account's prices."""
    folder, made = tmp_path_factory.mktemp("simulated"), simulate(DAY_SHOWN)
    releases = [
        f'[[release]]\nname = "{kind}s"\nquery = "count"\nmechanism = "{mechanism}"\n'
        f'zones = {{ kind = "{kind}" }}\nepsilon = {{ public = "{epsilon}" }}\n'
        for kind, (mechanism, epsilon) in BY_KIND.items()
    ]
    policy = unchecked("\n".join([of_tick("30min"), *releases]))  # the attributes of these zones cost too much
    with (folder / "observations.csv").open("w") as file:
        write_csv(made, file)
    observations = ObservationFile(folder / "observations.csv", policy, bytes(32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Account, "step", lambda _, state, item: (state, []))
        replay(observations, policy, LaboratoryKeys(KEY, "plan", KEY), folder / "out", Options(occupancy=True))
    return policy, folder / "out"


def records_of(out: Any, audience: Any, release: Any) -> Any:
    """Return the records of a replayed release, of the simulated day's windows."""
    lines = (out / "private" / audience / f"{release}.jsonl").read_bytes().splitlines()
    return list(map(orjson.loads, lines))[:48]


def errors_of(out: Any, audience: Any, release: Any) -> Any:
    """Return the absolute errors of a replayed release, by window and zone, over the simulated day."""
    truth: defaultdict[Any, Any] = defaultdict(dict)
    with (out / "occupancy.csv").open() as file:
        for line in csv.DictReader(file):
            truth[line["window_end"]][line["zone"]] = int(line["count"])
    return [
        [abs(value - truth[record["window_end"]][zone]) for zone, value in record["values"].items()]
        for record in records_of(out, audience, release)
    ]


def test_the_error_planned_for_the_simulated_building_is_that_of_its_replay(simulated: Any) -> None:
    """The plan draws the replay's own noise where a release has one audience, so there they are equal."""
    policy, out = simulated
    report = {
        (r["release"], r["audience"]): r["expected_mean_absolute_error"] for r in plan(policy).figures()["counts"]
    }
    for kind in BY_KIND:
        assert report[f"{kind}s", "public"] == pytest.approx(np.mean(errors_of(out, "public", f"{kind}s")), abs=1e-4)
    found = np.mean(errors_of(out, "facilities", "occupancy"))
    assert report["occupancy", "facilities"] == pytest.approx(found, rel=0.1)


def test_what_is_planned_of_a_day_is_what_its_replay_releases(simulated: Any) -> None:
    """Noise depends on the counts, so the plan's bounded counts are those of the pipeline, too."""
    policy, out = simulated
    days, [floors] = simulated_windows(policy), [r for r in policy.release if r.name == "floors"]
    bounded = count_plan(policy, floors, "dbh")
    levels = expected_quality(policy, "dbh", floors, Fraction(2), days)
    released = {r["window_end"]: r["levels"]["building"] for r in records_of(out, "public", "floors")}
    errors = [
        abs(released[rfc3339(window.window_end)] - bounded.truth(window)["building"]["building"])
        for window in days["dbh"]
    ]
    assert levels["building"].error == pytest.approx(np.mean(errors), abs=1e-9)
    assert sum(sum(window.bounded or ()) for window in days["dbh"]) < sum(sum(w.counts) for w in days["dbh"])


def test_a_release_that_tells_less_than_the_number_0_is_marked() -> None:
    """Laplace noise of scale 1/e errs by about 1/e in the mean, and the simulated halls hold about 3 people."""
    found = {epsilon: row(count_release(epsilon=epsilon)) for epsilon in ("0.1", "2")}
    assert found["0.1"]["worse_than_zero"]
    assert not found["2"]["worse_than_zero"]
    for each in found.values():
        exceeds = each["expected_mean_absolute_error"] > each["expected_mean_count"]
        assert each["worse_than_zero"] == exceeds
        assert each["expected_mean_count"] == found["2"]["expected_mean_count"] > 0


@pytest.mark.parametrize(
    ("more", "fit"),
    [
        ("", 96),
        ('daily_budget = { facilities = "10" }', 10),
        ('daily_budget = { facilities = "10.9" }', 10),
        ('daily_budget = { facilities = "10" }\nrefresh = "7d"', 10),
        ('daily_budget = { facilities = "700" }\nrefresh = "7d"', 96),
        ('w_budget = { facilities = "3" }', 24),
        ('w_budget = { facilities = "30" }', 96),
        ('w_budget = { facilities = "3" }\ndaily_budget = { facilities = "20" }', 20),
    ],
)
def test_releases_that_fit_are_what_the_budgets_pay_on_a_day_that_begins_with_them_whole(more: Any, fit: Any) -> None:
    found = row(count_release(more=more))
    assert found["windows_per_day"] == 96
    assert found["releases_that_fit"] == fit
    assert found["cost"]["day"] == str(fit)
    assert found["cost"]["device_day"] == str(fit + 2), "and one tick at either edge of the day"
    assert found["cost"]["person_day"] == str(3 * (fit + 2))


SHARED = """
[[release]]
name = "r"
query = "count"
mechanism = "laplace"
zones = { kind = ["hall", "lobby"] }
epsilon = { facilities = "1", public = "1", board = "0.5" }
"""


@pytest.mark.parametrize(
    ("budgets", "fit", "sliding"),
    [
        ('daily_budget = { facilities = "96", public = "10" }', 10, "12"),
        ('w_budget = { facilities = "6", public = "3" }', 24, "3"),
        ('daily_budget = { facilities = "20" }\nw_budget = { public = "3" }', 20, "3"),
    ],
)
def test_audiences_of_equal_epsilon_get_as_many_windows_as_the_poorest_of_them_can_pay(
    budgets: Any, fit: Any, sliding: Any
) -> None:
    policy = building(releases=SHARED + budgets)
    report = {r["audience"]: r for r in plan(policy).figures()["counts"]}
    assert {name: r["releases_that_fit"] for name, r in report.items()} == released_in_a_day(policy)
    assert report["facilities"]["releases_that_fit"] == report["public"]["releases_that_fit"] == fit
    assert (report["facilities"]["cost"]["day"], report["facilities"]["cost"]["device_day"]) == (str(fit), str(fit + 2))
    assert report["facilities"]["cost"]["device_w_event"] == report["public"]["cost"]["device_w_event"] == sliding
    assert (report["board"]["releases_that_fit"], report["board"]["cost"]["day"]) == (96, "48")


def released_in_a_day(policy: Any) -> Any:
    """Count, per audience, the windows of a UTC day that the release stage itself gives out."""
    stage, counts = ReleaseStage(policy, SITE, laboratory()), (1,) * len(ZONES)
    state = stage.initial()
    given: Counter[str] = Counter()
    for number in range(1, 97):
        window = OccupancyWindow(SITE, number * 15 * MINUTE, counts, Fraction(1))
        state, outputs = stage.step(state, window)
        given.update(body["audience"] for body in bodies(outputs, "private") if body["released"])
    return dict(given)


def test_a_devices_day_reaches_over_both_its_edges_as_far_as_an_observation_counts() -> None:
    found = row(count_release(), tick="5min")
    assert found["cost"]["day"] == "288"
    assert (found["cost"]["device_day"], found["cost"]["device_day_moved"]) == ("292", "584")
    capped = row(count_release(more='daily_budget = { facilities = "10" }'), tick="5min")
    assert capped["cost"]["device_day"] == "14"


def test_a_sliding_budget_bounds_the_w_event() -> None:
    found = row(count_release(more='w_budget = { facilities = "3" }'))["cost"]
    assert (found["device_w_event"], found["person_w_event"]) == ("3", "9")
    assert row(count_release())["cost"]["device_w_event"] == "12"


def test_all_together_pay_for_separate_groupers() -> None:
    report = {c["release"]: c["cost"] for c in plan(building()).figures()["coalitions"]}
    assert report["grouped"]["presence_tuple"] == "1.02"  # 0.8 x 1 + 0.2 (1 + 0.1)
    assert report["plain"]["presence_tuple"] == "0.5"
    assert Decimal(report["grouped"]["observation"]) == 2 * Decimal("1.02")


def test_attributes_tell_their_factors_with_counts_and_model() -> None:
    model = 'zones = { kind = "office" }\nmodel.joint = { "00" = 0.3, "01" = 0.2, "10" = 0.1, "11" = 0.4 }'
    text = ATTRIBUTES.replace('zones = { kind = "office" }', model)
    report = {
        (a["attribute"], a["audience"]): a for a in plan(building(releases=COUNTS + text)).figures()["attributes"]
    }
    arrival = report["arrival", "facilities"]
    assert arrival["factor"] == pytest.approx(math.e)
    assert arrival["exact"] >= arrival["factor"]
    assert arrival["with_counts"] == arrival["exact"]
    assert arrival["habit"]["5"] == pytest.approx(arrival["exact"] ** 5)
    assert arrival["zones"] == 2
    assert report["arrival", "public"]["exact"] == pytest.approx(math.exp(0.2))  # the public sees no level


def invoke(tmp_path: Path, text: Any, *arguments: Any) -> Any:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return CliRunner().invoke(policy_verbs, [*arguments, str(path)])


def test_the_verb_prints_one_object_or_a_table(tmp_path: Path) -> None:
    text = policy_text(count_release())
    report = orjson.loads(invoke(tmp_path, text, "plan", "--json").output)
    assert report == orjson.loads(orjson.dumps(plan(load_policy(text)).figures())) | {"losses": []}
    table = invoke(tmp_path, text, "plan").output
    assert "96 of 96" in table
    assert max(map(len, table.splitlines())) <= 80


def test_the_verb_marks_a_release_that_tells_less_than_the_number_0(tmp_path: Path) -> None:
    text = invoke(tmp_path, policy_text(COUNTS.replace('facilities = "1"', 'facilities = "4"')), "plan").output
    said = " ".join(text.split())
    assert re.search(
        r"! grouped for board: zones of [a-z ]+ are not worth publishing at this price\. The mean error, ", said
    )
    assert "Always saying 0 would be nearer to the truth." in said
    assert "! grouped for facilities: zones" not in said


@pytest.fixture(scope="module", params=["30min", pytest.param("5min", marks=pytest.mark.long)])
def tick(request: pytest.FixtureRequest) -> Any:
    """How long a window of the simulated building is; its own policy has the shorter ones."""
    return request.param


@pytest.fixture(scope="module")
def example(tick: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The plan of the simulated building's policy, as people read it."""
    return invoke(tmp_path_factory.mktemp("example"), of_tick(tick), "plan").output


def test_the_plan_of_the_simulated_building_breaks_no_name_at_80_columns(example: str) -> None:
    for name in ("occupancy", "floors", "office-day", "facilities", "occupancy_level", "one person,"):
        assert f" {name} " in example, name
    assert max(map(len, example.splitlines())) <= 80


def test_a_devices_day_at_epsilon_2_buys_a_building_worth_publishing(example: str) -> None:
    """Of the bounded counts of the public zones: the building errs by 12 at most, floors by less than their median."""
    found = re.findall(r"^ floors +public +(\(?\w+\)?) +([\d.]+) +([\d.]+) +([\d.]+) *$", example, re.MULTILINE)
    figures = {level: tuple(map(float, rest)) for level, *rest in found}
    assert 65 < figures["building"][0] < 80
    assert figures["building"][1] <= 12
    assert figures["floor"][1] < figures["floor"][2]
    assert figures["(zone)"][1] > figures["(zone)"][2]


def test_zones_that_are_left_out_are_tried_and_found_wanting(example: str) -> None:
    assert "zones of one device are not worth publishing at this price" in " ".join(example.split())


def test_epsilons_of_a_day_stand_beside_those_of_a_window(example: str, tick: str) -> None:
    day = {"30min": 48 + 2, "5min": 288 + 4}[tick]
    assert re.search(rf"^ occupancy +facilities +1 +{day} ", example, re.MULTILINE)
    assert re.search(r"^ floors +public +- +2 ", example, re.MULTILINE)


# --- days ---------------------------------------------------------------------------------------------

DAYS = day_site("2h", residents="ignore")
BY_DAY = count_release(more='noise = "gaussian"\nunit = "device_day"\nlevels = ["zone", "building"]')


def test_a_day_release_errs_against_its_own_bounded_counts() -> None:
    """8 ticks a day: counts are lower, and noise of sigma errs by sqrt(2 / pi) sigma: six standard errors of 384."""
    found, longer = row(BY_DAY, site=DAYS), row(BY_DAY, site=DAYS.replace("2h", "23h"))
    assert found["expected_mean_count"] < longer["expected_mean_count"] < row(count_release())["expected_mean_count"]
    sigma = math.sqrt(calibrate(1, Fraction(1, 10**6), 8)[0])
    assert found["expected_mean_absolute_error"] == pytest.approx(0.798 * sigma, abs=6 * 0.603 * sigma / math.sqrt(384))
    assert set(found["levels"]) == {"zone", "building"}
    assert found["levels"]["zone"]["worse_than_median"]
    assert found["left_out"] == {}


def test_a_target_is_found_below_prices_that_ask_for_too_little_noise() -> None:
    """One tick a day: at epsilon 55, which the search would look at, less noise is asked for than is supported."""
    policy = building(releases=BY_DAY, site=day_site("15min", residents="ignore"))
    found = targets(policy, simulated_windows(policy), Fraction(1, 1000)).targets
    assert {each.level for each in found} == {"zone", "building"}
    assert all(each.epsilon is not None and 10 < each.epsilon <= 50 for each in found), found


def test_a_privacy_day_of_another_time_zone_begins_in_its_own_night() -> None:
    by_day = definition_of(building(releases=BY_DAY, site=DAYS).site[SITE])
    assert by_day is not None
    tokyo = simulated_day(15 * MINUTE, 10 * MINUTE, "Asia/Tokyo", by_day._replace(timezone="Asia/Tokyo")).windows
    home = simulated_day(15 * MINUTE, 10 * MINUTE, "America/Los_Angeles", by_day).windows
    assert [window.bounded for window in tokyo] == [window.bounded for window in home]


MODELS = """
[privacy.mobility]
forward = [[0.95, 0.05], [0.05, 0.95]]
[[privacy.meetings]]
size = 5
correlation = 0.5
presence = 0.3
"""


def test_show_tells_the_declared_models_and_what_they_leak(tmp_path: Path) -> None:
    release = ATTRIBUTES.replace(
        'zones = { kind = "office" }',
        'zones = { kind = "office" }\ncap = 1.05\ndays_per_month = 20\n'
        'model.joint = { "00" = 0.3, "01" = 0.2, "10" = 0.1, "11" = 0.4 }',
    )
    more = 'w_budget = { facilities = "3" }\nrefresh = "7d"'
    text = policy_text(count_release(epsilon="0.5", more=more) + release + MODELS)
    report = orjson.loads(invoke(tmp_path, text, "show", "--json").output)
    assert report["w"] == 12
    assert report["mobility"] == [[0.95, 0.05], [0.05, 0.95]]
    assert report["meetings"] == [{"size": 5, "correlation": 0.5, "presence": 0.3}]
    assert report["w_budgets"] == {"r/facilities": "3"}
    assert report["refresh_days"] == {"r": 7}
    assert report["counts"][0]["meeting"] == pytest.approx(1.535885, abs=1e-6)
    model = report["models"]["office-day"]
    assert (model["asked"], model["left_out"], model["cap"]) == (["arrival"], ["occupancy_level"], 1.05)
    shown = invoke(tmp_path, text, "show").output
    for words in ("knows how", "1.536", "static guard", "never queried: occupancy_level", "at most 20 of any 30 days"):
        assert words in shown
    assert max(map(len, shown.splitlines())) <= 100
