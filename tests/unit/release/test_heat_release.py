"""The heat map of a release: a topic of its own, free, from released values alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import sqrt
from typing import Any

import orjson
import pytest

from stream.errors import PolicyError
from stream.keys import LaboratoryKeys
from stream.local_time import slot_of
from stream.operators import scan
from stream.policy.privacy_days import PrivacyDays
from stream.records import MINUTE, Micros, OccupancyWindow, Published
from stream.release.backfill import BackfillStage
from stream.release.stage import ReleaseStage
from stream.release.state import ReleaseState
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, parse_time, private_topic
from tests.unit.release.test_release_kinds import SITE

TICK = 15 * MINUTE
TIMEZONE = "America/Los_Angeles"
MONDAY = parse_time("2018-02-05T00:00:00-08:00")
DAY = 96
KEYS = LaboratoryKeys(b"h" * 32, "ledger", b"a" * 32)
QUERY = 'queries = [{ name = "heat", kind = "heatmap", windows = 4 }]\n'
PLAIN = 'mechanism = "laplace"\nepsilon = { a = "1", b = "0.1" }\n' + QUERY
BY_DAY = 'unit = "device_day"\nmechanism = "laplace"\nnoise = "gaussian"\ndelta = "0.000001"\nepsilon = { a = "4" }\n'
SITE_DAY = 'day_starts = "00:00"\ncontribution = "8h"\n'


def policy(release: str, site: str = "") -> Policy:
    return load_policy(text(release, site), "p.toml")


def text(release: str, site: str = "") -> str:
    head = f'[site.dbh]\ntimezone = "{TIMEZONE}"\ntick = "15min"\n{site}'
    return SITE.replace("[site.dbh]\n", head, 1) + release


def windows(days: int, site: str = "") -> Iterator[OccupancyWindow]:
    """Yield the windows of some days from a Monday on; rooms fill by day, each day by a few more."""
    stored = PrivacyDays("00:00", TIMEZONE) if site else None
    for number in range(days * DAY):
        day, tick = divmod(number, DAY)
        busy = 20 if 36 <= tick < 68 else 0
        counts, end = (busy + day, 2 * busy, 3), MONDAY + (number + 1) * TICK
        yield OccupancyWindow(
            "dbh", end, counts, Fraction(1), stored.at(end) if stored else None, counts if stored else None
        )


def released(release: str, days: int, site: str = "") -> list[Published]:
    _, outputs = scan(ReleaseStage(policy(release, site), "dbh", KEYS), windows(days, site))
    return [output for output in outputs if isinstance(output, Published)]


def of(outputs: Sequence[Published], audience: str, name: str) -> list[dict[str, Any]]:
    topic = private_topic(audience, name)
    return [orjson.loads(output.value) for output in outputs if output.topic == topic]


@pytest.fixture(scope="module")
def fortnight() -> list[Published]:
    return released(PLAIN, 9)


# --- what it is ------------------------------------------------------------------------------------------------------


def colour(y: int, known: Sequence[int]) -> int:
    """The thesis' colour, written anew."""
    n = len(known)
    mean, sigma = sum(known) / n, sqrt(n * sum(k * k for k in known) - sum(known) ** 2) / n
    if sigma == 0:
        return 5 if y == mean else 1 if y < mean else 10
    if abs(y - mean) > 2 * sigma:
        return 1 if y < mean else 10
    return 2 + min(7, int((y - mean + 2 * sigma) / (sigma / 2)))


@pytest.mark.parametrize("audience", ["a", "b"])
def test_whoever_keeps_an_audiences_records_can_colour_them_anew(fortnight: Any, audience: str) -> None:
    known: dict[Any, list[dict[str, int]]] = {}
    reported = 0
    counts, heat = of(fortnight, audience, "r"), of(fortnight, audience, "heat")
    before, waiting = None, list[dict[str, int]]()
    for count, shown in zip(counts, heat, strict=True):
        slot = slot_of(parse_time(count["window_end"]), TIMEZONE)
        kind = (slot.half_hour, slot.weekend)
        if kind != before:
            known.setdefault(before, []).extend(waiting)
            before, waiting = kind, []
        past = known.get(kind, [])
        if len(past) >= 4:
            expected = {zone: colour(y, [each[zone] for each in past]) for zone, y in count["values"].items()}
            assert shown["values"] == expected
            reported += 1
        else:
            assert (shown["values"], shown["reason"]) == (None, "too_early")
        waiting.append(count["values"])
    assert reported == 5 * DAY - 1  # Wednesday to Friday, then Monday and Tuesday; the first midnight was not seen


def test_an_audience_sees_colours_of_its_own_values_only(fortnight: Any) -> None:
    alone = released(PLAIN.replace(', b = "0.1"', "").replace('a = "1"', 'b = "0.1"'), 3)
    assert of(alone, "b", "r")[-1]["values"] != of(fortnight, "a", "r")[3 * DAY - 1]["values"]
    fine, coarse = of(fortnight, "a", "heat"), of(fortnight, "b", "heat")
    assert any(f["values"] != c["values"] for f, c in zip(fine, coarse, strict=True) if f["values"])


def test_it_costs_nothing_and_has_no_ledger_entry(fortnight: Any) -> None:
    assert {record["spend"] for record in of(fortnight, "a", "heat")} == {"0"}
    entries = [orjson.loads(output.value)["release"] for output in fortnight if output.topic == AUDIT]
    assert set(entries) == {"r"}


def test_a_record_says_by_what_it_is_coloured(fortnight: Any) -> None:
    last, first = of(fortnight, "a", "heat")[-1], of(fortnight, "a", "heat")[0]
    assert set(last["values"]) == set(last["usual"]) == set(last["usual_deviation"]) == {"101", "102", "201"}
    assert abs(last["usual"]["201"] - 3) < 3
    assert last["half_width_95"] is None
    assert last["mechanism"] == "laplace/heatmap"
    assert (first["usual"], first["usual_deviation"], first["released"]) == (None, None, False)
    assert "usual" not in of(fortnight, "a", "r")[0]


def test_what_is_usual_is_told_to_three_decimals(fortnight: Any) -> None:
    told = [record for record in of(fortnight, "a", "heat") if record["released"]]
    numbers = {number for record in told for name in ("usual", "usual_deviation") for number in record[name].values()}
    assert all(number == round(number, 3) for number in numbers)
    assert any(number != round(number, 2) for number in numbers)


def test_a_crowd_is_red_while_it_is_new(fortnight: Any) -> None:
    """A room that holds one more each day is above its usual count, one that never changes is in the middle."""
    heat = [record["values"] for record in of(fortnight, "a", "heat") if record["released"]]
    fuller, same = (sum(values[zone] for values in heat) / len(heat) for zone in ("101", "201"))
    assert fuller > 7 > same


# --- denials, restarts, days ----------------------------------------------------------------------------------------


def test_a_denied_window_is_denied_in_colour_too() -> None:
    outputs = released(PLAIN + 'daily_budget = { a = "90" }\n', 4)
    heat, counts = of(outputs, "a", "heat"), of(outputs, "a", "r")
    assert [record["reason"] for record in heat if record["reason"] == "budget"]
    for count, shown in zip(counts, heat, strict=True):
        assert (count["reason"] == "budget") == (shown["reason"] == "budget")
    assert all(record["reason"] != "budget" for record in of(outputs, "b", "heat"))


def test_a_restart_at_any_window_gives_the_same_bytes() -> None:
    stage = ReleaseStage(policy(PLAIN), "dbh", KEYS)
    whole = released(PLAIN, 3)
    state, again = stage.initial(), list[Published]()
    for number, window in enumerate(windows(3)):
        if number % 7 == 0 or number > 2 * DAY:
            state = stage.decode(stage.encode(state))
        state, outputs = stage.step(state, window)
        again += [output for output in outputs if isinstance(output, Published)]
    assert [output.value for output in again] == [output.value for output in whole]


def test_late_windows_have_a_past_of_their_own_and_leave_the_live_one_alone() -> None:
    """What comes late is coloured by what comes late; live windows are coloured as if it had never come."""
    made = policy(PLAIN)
    live, late, every = ReleaseStage(made, "dbh", KEYS), BackfillStage(made, "dbh", KEYS), list(windows(4))
    state, aside, seen, early = live.initial(), ReleaseState(), list[Published](), list[Published]()
    for number, window in enumerate(every[DAY:]):
        if number == DAY:
            early = [output for each in every[:DAY] for output in late.release_late(state, each, aside)]
        state, outputs = live.step(state, window)
        seen += [output for output in outputs if isinstance(output, Published)]
    _, whole = scan(live, iter(every[DAY:]))
    assert of(seen, "a", "heat") == of([each for each in whole if isinstance(each, Published)], "a", "heat")
    assert [record["reason"] for record in of(early, "a", "heat")] == ["too_early"] * DAY
    assert of(early, "a", "r")[-1]["released"]


def test_a_release_that_is_paid_by_the_day_has_a_heat_map() -> None:
    outputs = released(BY_DAY + QUERY, 4, SITE_DAY)
    last = of(outputs, "a", "heat")[-1]
    assert last["released"]
    assert (last["unit"], last["noise"], last["delta"], last["spend"]) == ("device_day", "gaussian", "0.000001", "0")
    assert last["noise_scale"] == of(outputs, "a", "r")[-1]["noise_scale"]


def test_states_are_coloured_as_zones_are() -> None:
    states = 'states = { low = ["101", "102"], all = ["101", "102", "201"] }\n'
    last = of(released('mechanism = "laplace"\nepsilon = { a = "1" }\n' + states + QUERY, 3), "a", "heat")[-1]
    assert set(last["values"]) == {"low", "all"}


@pytest.mark.parametrize("mechanism", ["pegasus", "filter", 'sample"\nw = 4 #', 'ba"\nw = 4 #'])
def test_every_mechanism_has_a_heat_map_of_what_it_publishes(mechanism: str) -> None:
    outputs = released(f'mechanism = "{mechanism}"\nepsilon = {{ a = "8" }}\n' + QUERY, 3)
    assert [record["released"] for record in of(outputs, "a", "heat")] == [False] * (2 * DAY + 1) + [True] * (DAY - 1)


# --- policies that are refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ('{ name = "heat", kind = "heatmap", windows = 1 }', "heatmap must have 2 to 336 windows, got 1"),
        ('{ name = "heat", kind = "heatmap", windows = 337 }', "heatmap must have 2 to 336 windows, got 337"),
        (
            '{ name = "heat", kind = "heatmap", windows = 4, threshold = 1 }',
            "threshold must be given with jump and low",
        ),
    ],
)
def test_heat_maps_that_cannot_be_are_refused(query: str, rule: str) -> None:
    with pytest.raises(PolicyError, match=rule):
        policy(f'mechanism = "laplace"\nepsilon = {{ a = "1" }}\nqueries = [{query}]\n')


@pytest.mark.parametrize("least", [2, 336])
def test_the_bounds_of_a_heat_map_belong_to_it(least: int) -> None:
    ReleaseStage(policy(PLAIN.replace("windows = 4", f"windows = {least}")), "dbh", KEYS)


def test_heat_maps_that_no_snapshot_holds_are_refused_when_the_policy_is_read() -> None:
    """A building of 3 zones has 5 kB for each heat map and epsilon."""
    load_policy(text(PLAIN), "b.toml")
    names = "".join(f'{{ name = "heat{i}", kind = "heatmap", windows = 4 }},' for i in range(1800))
    many = f'mechanism = "laplace"\nepsilon = {{ a = "1", b = "2" }}\nqueries = [{names}]\n'
    with pytest.raises(PolicyError, match=r"^b.toml: heat maps must hold at most 16 MiB .* hold \d\d\.\d at dbh"):
        load_policy(text(many), "b.toml")


def test_a_day_release_goes_with_no_other_question() -> None:
    other = 'queries = [{ name = "heat", kind = "heatmap", windows = 4 }, { name = "q", kind = "low", windows = 1, '
    with pytest.raises(PolicyError, match="queries other than heatmap must not be used with unit = 'device_day'"):
        policy(BY_DAY + other + "threshold = 1 }]\n", SITE_DAY)


def test_times_are_those_of_the_site(fortnight: Any) -> None:
    """The first colours come when the third weekday begins at the site, not at midnight of UTC."""
    first = next(record for record in of(fortnight, "a", "heat") if record["released"])
    midnight: Micros = MONDAY + 2 * DAY * TICK
    assert parse_time(first["window_end"]) == midnight + 2 * TICK  # the first midnight itself was not seen
