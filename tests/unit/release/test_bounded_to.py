"""Every record, page figure and export of a release that bounds contributions says so."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pytest

from connectors.operations.policy.contracts import privacy_terms
from connectors.serve.history.files import csv_file
from connectors.serve.history.local_clock import SiteClock
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.history.rows import RowsQuery
from connectors.sinks.feed import Notes
from connectors.sinks.mqtt import messages
from connectors.sinks.triggers import Trigger
from stream.errors import DataError
from stream.keys import LaboratoryKeys
from stream.operators import scan
from stream.policy.privacy_days import PrivacyDays
from stream.records import MINUTE, Micros, OccupancyWindow, Published
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, parse_time
from tacet import frame, typed
from tests.support.day_policies import day_release
from tests.support.released_store import count, give
from tests.unit.sinks.test_latest_metrics import exposed, samples

TICK = 5 * MINUTE
NOON: Micros = parse_time("2026-03-02T12:00:00Z")
KEYS = LaboratoryKeys(b"b" * 32, "ledger", b"a" * 32)
ZONES = """
zones = [
  { id = "101", floor = "1", capacity = 20, access_points = ["02:00:00:00:01:01"] },
  { id = "201", floor = "2", capacity = 20, access_points = ["02:00:00:00:02:01"] },
]
"""
DEVICES = '[site.dbh]\nsources = ["10.0.0.1"]\nday_starts = "04:00"\ncontribution = "12h"\n' + ZONES
AUDIENCES = '[[audience]]\nname = "public"\n[[audience]]\nname = "facilities"\n'
BY_WINDOW = '[[release]]\nname = "plain"\nquery = "count"\nmechanism = "laplace"\nepsilon = { public = "1" }\n'
QUERIES = 'queries = [{ name = "heat", kind = "heatmap", windows = 4 }]\n'
BY_DAY = day_release("day", "laplace", more=QUERIES)
REVISED = day_release("smooth", "filter", more='revise = ["1h"]\n')
DECIDED = (
    '[[release]]\nname = "free"\nquery = "threshold"\ncounts = "day"\nmiss = "0.05"\naudience = ["public"]\n'
    "threshold = 5\n"
)
PAID = (
    '[[release]]\nname = "runs"\nquery = "threshold"\nthreshold = 5\nevents = 1\nunit = "run"\n'
    'epsilon = { public = "9" }\ndaily_budget = { public = "1000" }\n'
)


def records(policy: Policy, windows: int = 16) -> list[bytes]:
    days = PrivacyDays("04:00", "UTC")
    ends = [NOON + n * TICK for n in range(1, windows + 1)]
    items = [OccupancyWindow("dbh", end, (9, 9), Fraction(1), days.at(end), (5, 3)) for end in ends]
    _, outputs = scan(ReleaseStage(policy, "dbh", KEYS), items)
    return [each.value for each in outputs if isinstance(each, Published) and each.topic != AUDIT]


def bounds(policy: Policy) -> dict[str, set[Any]]:
    """Return what the records of each release say of their bound."""
    found: dict[str, set[Any]] = {}
    for record in map(orjson.loads, records(policy, 30)):
        found.setdefault(record["release"], set()).add(record.get("bounded_to"))
    return found


def test_every_kind_of_record_says_whether_its_counts_are_bounded() -> None:
    policy = load_policy(DEVICES + AUDIENCES + BY_WINDOW + BY_DAY + REVISED + DECIDED + PAID)
    others = ("day", "heat", "smooth", "smooth-revised", "free", "runs")
    assert bounds(policy) == {"plain": {None}} | {name: {"12h"} for name in others}


def test_a_bound_of_minutes_is_said_in_minutes() -> None:
    policy = load_policy(DEVICES.replace('"12h"', '"95min"') + AUDIENCES + BY_DAY)
    assert bounds(policy)["day"] == {"95min"}


def test_counters_of_people_leave_nobody_out_and_say_nothing() -> None:
    site = '[site.dbh]\nfeed = "counts"\nday_starts = "04:00"\ncontribution = "12h"\n'
    zones = '[[site.dbh.zones]]\nid = "101"\nfloor = "1"\ncapacity = 20\n'
    policy = load_policy(
        site + zones + '[[site.dbh.zones]]\nid = "201"\nfloor = "2"\ncapacity = 20\n' + AUDIENCES + BY_DAY
    )
    assert bounds(policy)["day"] == {None}


def test_contracts_say_which_topics_are_bounded() -> None:
    policy = load_policy(DEVICES + AUDIENCES + BY_WINDOW + BY_DAY + REVISED + DECIDED + PAID)
    output = {name: terms.get("bounded_to") for _, name, terms in privacy_terms(policy)}
    assert output.pop("plain") is None
    assert set(map(json.dumps, output.values())) == {'{"dbh": "12h"}'}


# --- what is made of records ------------------------------------------------------------------------------------


BOUNDED = count(1, {"a": 5}) | {"bounded_to": "12h"}
WHOLE = count(1, {"a": 5}, release="plain")


def test_a_frame_and_a_typed_record_say_it(tmp_path: Path) -> None:
    table = frame(store=give(tmp_path / "s", [BOUNDED, WHOLE]), audience="public")
    output = dict(zip(table["release"], table["bounded_to"], strict=True))
    assert output["occupancy"] == "12h"
    assert pd.isna(output["plain"])
    assert [typed(each).bounded_to for each in (BOUNDED, WHOLE)] == ["12h", ""]


def test_home_assistant_and_webhooks_are_told() -> None:
    (topic,) = messages("t", BOUNDED, {}).values()
    assert json.loads(topic)["bounded_to"] == "12h"
    (denied,) = messages("t", count(2, None) | {"bounded_to": "12h"}, {"t/dbh/zone/a/occupancy": ""}).values()
    assert json.loads(denied)["bounded_to"] == "12h"
    (topic,) = messages("t", WHOLE, {}).values()
    assert "bounded_to" not in json.loads(topic)
    notes: Notes = {}
    trigger = Trigger("change")
    for record in (BOUNDED, count(2, {"a": 50}) | {"bounded_to": "12h"}):
        events = trigger.events(record, notes)
        trigger.note(record, notes)
    assert [event.data["bounded_to"] for event in events] == ["12h"]


def test_metrics_have_the_bound_of_a_bounded_release_alone() -> None:
    found = samples(exposed(BOUNDED, WHOLE), "tacet_release_bounded_to_seconds")
    assert found == {"occupancy": 12 * 3600}


@pytest.fixture
def kept() -> ReleaseHistory:
    policy = load_policy(DEVICES + AUDIENCES + BY_WINDOW + BY_DAY)
    history = ReleaseHistory(None, {"dbh": SiteClock("UTC", "04:00")})
    history.add(records(policy), {})
    return history


@pytest.mark.parametrize("granularity", ["5min", "15min", "1h", "1d"])
def test_rows_and_files_of_a_history_say_it(kept: ReleaseHistory, granularity: Any) -> None:
    for release, bound in (("day", "12h"), ("plain", None)):
        rows = kept.rows(RowsQuery("public", release, "dbh", granularity))
        assert {row[rows.columns.index("bounded_to")] for row in rows.rows} == {bound}
        *_, last = b"".join(csv_file([rows])).decode().split()
        assert last.endswith(f",{bound or ''}")


def test_the_newest_rows_say_it(kept: ReleaseHistory) -> None:
    newest = kept.latest("public", "dbh")["rows"]
    assert {(row["release"], row["bounded_to"]) for row in newest} >= {
        ("day", "12h"),
        ("heat", "12h"),
        ("plain", None),
    }


def test_windows_of_two_bounds_are_put_together_under_the_tighter_one() -> None:
    history = ReleaseHistory(None, {"dbh": SiteClock("UTC", "04:00")})
    for bound in ("6h", "12h"):
        made = load_policy(DEVICES.replace('"12h"', f'"{bound}"') + AUDIENCES + day_release("day", "laplace"))
        stored = [
            value
            for value in records(made, 12)
            if (orjson.loads(value)["window_end"] < "2026-03-02T12:30") == (bound == "6h")
        ]
        history.add(stored, {})
    rows = history.rows(RowsQuery("public", "day", "dbh", "1h"))
    assert {row[rows.columns.index("bounded_to")] for row in rows.rows} == {"6h"}


@pytest.mark.parametrize("bound", ["", "12", "soon", "-1h", "25h", 12, ["12h"], "0h"])
def test_a_record_whose_bound_is_none_is_refused(bound: Any) -> None:
    with pytest.raises(DataError):
        ReleaseHistory(None, {"dbh": SiteClock("UTC", "04:00")}).add(
            [orjson.dumps(BOUNDED | {"bounded_to": bound})], {}
        )
