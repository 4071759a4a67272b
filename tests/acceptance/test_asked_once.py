"""A zone's day is queried once, only an explicit second attempt is charged, and the ledger bounds the sum of both."""

import math
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.storage.embedded.reader import read_outbox
from stream.errors import UsageError
from stream.records import DAY, MINUTE
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time, rfc3339
from tests.acceptance.command_line import here as tacet
from tests.acceptance.test_backfill import backfill, new_key, run
from tests.acceptance.test_backfill_books import entries, leakage

TICK = 30 * MINUTE
MIDNIGHT = parse_time("2026-03-02T00:00:00Z")
NOON_AFTER = MIDNIGHT + 3 * DAY // 2
"""Noon of the day after the first whole one."""
ASKED_DAY = "2026-03-02"
BUILDING = """
[privacy]
max_factor = {max_factor}
[site.dbh]
tick = "30min"
validity = "30min"
sources = ["127.0.0.1"]
[[site.dbh.zones]]
id = "x"
kind = "office"
capacity = 1
access_points = ["02:00:00:00:0e:01"]
[[audience]]
name = "facilities"
[[audience]]
name = "public"
"""
DOOR = """
[[release]]
name = "{name}"
query = "count"
mechanism = "laplace"
epsilon = {{ facilities = "{epsilon}" }}
"""
OFFICE = """
[[release]]
name = "{name}"
query = "attributes"
absent = "{absent}"
[release.attributes.{attribute}]
epsilon = {{ {epsilon} }}
sensitive = {{ {rule} }}
"""


def office(
    name: str = "office-day", *, attribute: str = "arrival", rule: str = 'after = "10:00"', absent: str = "sensitive",
    epsilon: str = 'facilities = "1"',
) -> str:  # fmt: skip
    return OFFICE.format(name=name, attribute=attribute, rule=rule, absent=absent, epsilon=epsilon)


def door(name: str = "door", epsilon: str = "0.05") -> str:
    return DOOR.format(name=name, epsilon=epsilon)


def building(*releases: str, max_factor: float = math.exp(3)) -> Policy:
    return load_policy(BUILDING.format(max_factor=max_factor) + "".join(releases))


PLAIN = building(door(), office())


def recording(folder: Path, comes: str) -> Path:
    """Three days on which somebody sits in the office from ``comes`` to 17:00."""
    folder.mkdir(exist_ok=True)
    hour, minute = (int(part) for part in comes.split(":"))
    lines = ["time,device,access_point,site"]
    lines += [f"{rfc3339(MIDNIGHT - 2 * 60 * MINUTE)},00:00:5e:00:53:09,02:00:00:00:0e:01,dbh"]
    for day in range(4):
        first, last = MIDNIGHT + day * DAY + (hour * 60 + minute) * MINUTE, MIDNIGHT + day * DAY + 17 * 60 * MINUTE
        times = range(first - 5 * MINUTE, last, 20 * MINUTE)
        lines += [f"{rfc3339(time)},00:00:5e:00:53:01,02:00:00:00:0e:01,dbh" for time in times]
    (folder / "o.csv").write_text("\n".join([*lines, ""]))
    return folder


@pytest.fixture(scope="module")
def late_comer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their arrival is sensitive on every day, so that it is withheld whatever the coin says."""
    return recording(tmp_path_factory.mktemp("late"), "11:00")


@pytest.fixture(scope="module")
def early_bird(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same recording, amended: an arrival that is not sensitive."""
    return recording(tmp_path_factory.mktemp("early"), "09:00")


@pytest.fixture(scope="module")
def asked(late_comer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that has released the first whole day, and its key."""
    folder = tmp_path_factory.mktemp("asked")
    run((late_comer, PLAIN), folder / "s", new_key(folder), first=None, last=NOON_AFTER)
    assert [record["day"] for record in attributes(folder / "s")] == [ASKED_DAY]
    return folder


@pytest.fixture
def live(asked: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of that store, and of its key."""
    folder = shutil.copytree(asked, tmp_path / "live")
    return folder / "s", folder / "key"


def accept(recorded: Path, policy: Policy, where: Path, key: Path, ticks: int = 1) -> None:
    """Let the site go on under a policy for so many windows."""
    last = parse_time(entries(where)[-1]["window_end"]) + ticks * TICK
    run((recorded, policy), where, key, first=last - ticks * TICK, last=last, accept_policy=True)


def attributes(where: Path, audience: str = "facilities") -> list[dict[str, Any]]:
    records = [orjson.loads(value) for _, value in read_outbox(where, audience, 0)]
    return [record for record in records if "attribute" in record]


# --- attributes ---------------------------------------------------------------------------------------


def test_an_amended_recording_does_not_toss_the_permanent_coin_for_a_second_reading(live: Any, early_bird: Any) -> None:
    """The value withheld first would come out as not sensitive now, and so prove that it was sensitive before."""
    where, key = live
    before = attributes(where)
    backfill((early_bird, PLAIN), where, key, attempt=2, names=["door"], first=MIDNIGHT)
    assert attributes(where) == before
    query = [entry for entry in entries(where) if entry["release"] == "office-day"]
    assert {entry["attempt"] for entry in query} == {1}
    assert len(query) == 1
    assert any(entry["attempt"] == 2 for entry in entries(where))


@pytest.mark.parametrize(
    "again",
    [
        office("office-2"),
        office("office-2", rule='after = "12:00"'),
        office("office-2", absent="public"),
        office("office-2", epsilon='facilities = "1", public = "1"'),
        office("office-2", attribute="breaks", rule="above = 3"),
    ],
    ids=["name", "rule", "absent", "audience", "attribute"],
)
def test_a_day_that_was_asked_is_not_asked_under_another_name_or_rule(live: Any, late_comer: Any, again: Any) -> None:
    where, key = live
    policy = building(door(), again)
    accept(late_comer, policy, where, key)
    span: dict[str, Any] = {"first": MIDNIGHT, "last": MIDNIGHT + DAY, "earlier": [PLAIN]}
    made = backfill((late_comer, policy), where, key, **span)
    audiences = ["facilities", "public"] if "public =" in again else ["facilities"]
    for audience in audiences:
        [record] = [each for each in attributes(where, audience) if each["release"] == "office-2"]
        assert (record["day"], record["released"], record["reason"], record["spend"]) == (
            ASKED_DAY,
            False,
            "asked",
            "0",
        )
        assert set(record) == set(attributes(where)[0])
    assert [entry["nano"] for entry in entries(where) if entry["release"] == "office-2"] == [0] * len(audiences)
    tacet("audit", "verify", "--store", where, "--key-file", key)
    assert made.released == 1
    assert backfill((late_comer, policy), where, key, **span).emitted == []


def test_an_audience_that_comes_later_is_not_told_of_a_day_that_was_asked(live: Any, late_comer: Any) -> None:
    where, key = live
    policy = building(door(), office(epsilon='facilities = "1", public = "0.5"'))
    accept(late_comer, policy, where, key)
    backfill((late_comer, policy), where, key, earlier=[PLAIN], first=MIDNIGHT, last=NOON_AFTER)
    assert not [record for record in attributes(where, "public") if record["day"] == ASKED_DAY and not record["reason"]]
    assert len([entry for entry in entries(where) if entry["release"] == "office-day" and entry["nano"]]) == 1


def test_a_day_passed_over_is_asked_late_once_with_the_coverage_of_the_whole_day(
    late_comer: Any, tmp_path: Path
) -> None:
    counting, key, where = building(door()), new_key(tmp_path), tmp_path / "s"
    run((late_comer, counting), where, key, first=None, last=NOON_AFTER)
    accept(late_comer, PLAIN, where, key)
    for _ in range(2):
        backfill((late_comer, PLAIN), where, key, earlier=[counting], last=NOON_AFTER)
        [record] = attributes(where)
        assert (record["day"], record["reason"], record["coverage"]) == (ASKED_DAY, None, 1.0)


# --- counts and attributes together -------------------------------------------------------------------


def test_counts_charged_again_before_the_day_closes_leave_its_attributes_unasked(
    late_comer: Any, tmp_path: Path
) -> None:
    """1 + 3 devices x 12 ticks x 0.05 = 2.8 of 3; two ticks that are charged twice make it 3.1."""
    key, where, evening = new_key(tmp_path), tmp_path / "s", MIDNIGHT + 40 * TICK
    run((late_comer, PLAIN), where, key, first=None, last=evening)
    backfill(
        (late_comer, PLAIN), where, key, attempt=2, names=["door"], first=MIDNIGHT + TICK, last=MIDNIGHT + 2 * TICK
    )
    run((late_comer, PLAIN), where, key, first=None, last=NOON_AFTER)
    [record] = attributes(where)
    assert (record["released"], record["reason"], record["spend"]) == (False, "factor", "0")
    assert not [entry for entry in entries(where) if entry["release"] == "office-day" and entry["nano"]]


@pytest.mark.parametrize("name", ["door", "door-2"])
def test_counts_that_would_say_too_much_of_what_was_asked_are_refused(live: Any, late_comer: Any, name: Any) -> None:
    where, key = live
    policy = building(door(name), office())
    accept(late_comer, policy, where, key)
    backfill(
        (late_comer, policy), where, key, attempt=2, names=[name], earlier=[PLAIN], first=MIDNIGHT, last=MIDNIGHT + DAY,
    )  # fmt: skip
    again = [entry for entry in entries(where) if entry["attempt"] == 2]
    of_day = [entry["outcome"] for entry in again if MIDNIGHT <= parse_time(entry["window_end"]) < MIDNIGHT + DAY]
    assert of_day == ["released"] + ["factor"] * 47  # one tick twice: 1 + 3 x 0.65 = 2.95
    [report] = [r["attributes"] for r in leakage(where) if r["kind"] == "attributes"]
    assert report[f"{ASKED_DAY}/x/arrival"]["with_counts"]["facilities"] == pytest.approx(math.exp(2.95))
    records = [orjson.loads(value) for _, value in read_outbox(where, "facilities", 0)]
    refused = [record for record in records if record["reason"] == "factor"]
    assert {record["spend"] for record in refused} == {"0"}
    assert {record["values"] for record in refused} == {None}
    tacet("audit", "verify", "--store", where, "--key-file", key)


def test_the_factor_with_counts_is_that_of_all_that_was_charged(late_comer: Any, tmp_path: Path) -> None:
    """The policy alone would say e^(1 + 3 x 12 x 0.1), whatever was charged besides."""
    policy = building(door(), office(), max_factor=1e6)
    renamed = building(door("door-2", "0.1"), office(), max_factor=1e6)
    key, where, end = new_key(tmp_path), tmp_path / "s", MIDNIGHT + DAY
    run((late_comer, policy), where, key, first=None, last=NOON_AFTER)
    accept(late_comer, renamed, where, key)
    day: dict[str, Any] = {"first": MIDNIGHT, "last": end, "earlier": [policy]}
    backfill((late_comer, renamed), where, key, attempt=2, names=["door-2"], **day)
    report = {r["window_end"]: r["attributes"] for r in leakage(where) if r["kind"] == "attributes"}
    figures = report[rfc3339(end)][f"{ASKED_DAY}/x/arrival"]
    assert figures["with_counts"]["facilities"] == pytest.approx(math.exp(1 + 3 * 12 * 0.15), rel=1e-6)
    backfill((late_comer, renamed), where, key, attempt=3, names=["door-2"], **day)
    report = {r["window_end"]: r["attributes"] for r in leakage(where) if r["kind"] == "attributes"}
    figures = report[rfc3339(end)][f"{ASKED_DAY}/x/arrival"]
    assert figures["with_counts"]["all"] == pytest.approx(math.exp(1 + 3 * 12 * 0.25), rel=1e-6)
    printed = orjson.loads(tacet("account", "--store", where, "--coalition", "facilities,public", "--json").stdout)
    again = printed["sites"]["dbh"]["attributes"][f"{ASKED_DAY}/x/arrival"]["with_counts"]
    assert again == {"facilities+public": figures["with_counts"]["all"]}


# --- second releases ----------------------------------------------------------------------------------


def test_windows_charged_under_another_name_are_not_charged_again_without_an_order(live: Any, late_comer: Any) -> None:
    where, key = live
    renamed = building(door("door-2"), office())
    accept(late_comer, renamed, where, key)
    before = entries(where)
    with pytest.raises(UsageError, match=r"as release 'door'; --attempt 2 --release NAME orders another release"):
        backfill((late_comer, renamed), where, key, earlier=[PLAIN])
    assert entries(where) == before
    made = backfill((late_comer, renamed), where, key, attempt=2, names=["door-2"], earlier=[PLAIN])
    assert made.released > 60
    assert {entry["release"] for entry in entries(where)[len(before) :]} == {"door-2"}


@pytest.mark.parametrize(
    ("attempt", "names", "report"),
    [
        (2, [], "must name the count releases to charge again"),
        (1, ["door"], "with --attempt above 1 and only then"),
        (2, ["office-day"], "attributes are queried once, got office-day"),
        (2, ["nobody"], "must name count releases of the policy"),
    ],
)
def test_an_order_says_which_count_releases_at_which_attempt(
    live: Any, late_comer: Any, attempt: Any, names: Any, report: Any
) -> None:
    where, key = live
    with pytest.raises(UsageError, match=report):
        backfill((late_comer, PLAIN), where, key, attempt=attempt, names=names)


def test_the_verb_says_what_a_second_release_will_cost_before_it_starts(live: Any, late_comer: Any) -> None:
    where, key = live
    (late_comer / "p.toml").write_text(BUILDING.format(max_factor=math.exp(3)) + door() + office())
    shared = ("--policy", late_comer / "p.toml", "--key-file", key, "--store", where)
    span = ("--from", rfc3339(MIDNIGHT + DAY + TICK), "--to", rfc3339(NOON_AFTER))
    done = tacet("backfill", late_comer / "o.csv", *shared, *span, "--attempt", "2", code=2)
    assert "--release" in done.stderr
    done = tacet("backfill", late_comer / "o.csv", *shared, *span, "--attempt", "2", "--release", "door", "--json")
    cost = "dbh: release door will charge facilities at most 1.2 epsilon for 24 records"
    assert f"{cost}, and at most 1.2 epsilon on one UTC day" in done.stderr
    assert orjson.loads(done.stdout)["released_now"] == 24


@pytest.mark.parametrize("what", ["windows", "day"])
def test_a_zone_under_another_name_is_the_same_while_it_has_the_same_radios(
    live: Any, late_comer: Any, what: Any
) -> None:
    where, key = live
    text = BUILDING.format(max_factor=math.exp(3)).replace('id = "x"', 'id = "room"')
    policy = load_policy(text + door("door-2") + office("office-2"))
    accept(late_comer, policy, where, key)
    if what == "windows":
        with pytest.raises(UsageError, match="were charged before, as release 'door'"):
            backfill((late_comer, policy), where, key, earlier=[PLAIN])
    else:
        only = load_policy(text + office("office-2"))
        accept(late_comer, only, where, key)
        backfill((late_comer, only), where, key, earlier=[PLAIN, policy], last=MIDNIGHT + DAY)
        assert [record["reason"] for record in attributes(where)] == [None, "asked"]


def test_a_habit_goes_on_over_a_new_id_also_where_the_new_policy_first_releases_late(
    live: Any, late_comer: Any
) -> None:
    """The account that is added up anew ends under the policy before; the next day is asked under the one to come."""
    where, key = live
    text = BUILDING.format(max_factor=math.exp(3)).replace('id = "x"', 'id = "y"')
    renamed = load_policy(text + door() + office())
    run((late_comer, renamed), where, key, first=NOON_AFTER + TICK, last=NOON_AFTER, accept_policy=True)
    first, last = MIDNIGHT, MIDNIGHT + TICK
    backfill((late_comer, renamed), where, key, attempt=2, names=["door"], earlier=[PLAIN], first=first, last=last)
    run((late_comer, renamed), where, key, first=NOON_AFTER + TICK, last=NOON_AFTER + 2 * DAY)
    habits = [record["habit"]["office-day/arrival"]["facilities"] for record in leakage(where) if record.get("habit")]
    assert [habit["days"] for habit in habits] == [1, 2]
