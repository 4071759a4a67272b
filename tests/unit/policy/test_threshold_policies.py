"""Threshold streams in the policy file: accepted and refused queries, and what is printed."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from connectors.cli.main import tacet
from connectors.cli.options import read_policy
from connectors.operations.policy.contracts import privacy_terms
from connectors.operations.policy.diff import difference
from connectors.serve.policy_description import described_releases, guarantees_of
from connectors.storage.kafka.topics import topic_names
from stream.errors import PolicyError
from stream.mechanisms.noise_parameters import gaussian_noise, laplace_noise, least_shift, tail
from stream.policy.document import PolicyDocument
from stream.release.prices import RunPrice, paid_thresholds
from stream.release.threshold_guarantees import quiet_bounds, threshold_guarantees, windows_queried_per_day
from stream.release.thresholds import run_plans
from stream.release.validation import Policy, load_policy, validate
from tests.unit.release.test_threshold_release import SITE, policy, stream

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "thresholds.toml"
COUNTS = (
    """
[[release]]
name = "counts"
query = "count"
mechanism = "{mechanism}"
zones = { ids = ["101", "102"] }
epsilon = { public = "0.5", facilities = "1" }
""".replace("{ ids", "{{ ids")
    .replace('"] }', '"] }}')
    .replace("{ public", "{{ public")
    .replace('"1" }', '"1" }}')
)
FREE = """
[[release]]
name = "free"
query = "threshold"
zones = { ids = ["101", "102"] }
threshold = 20
counts = "counts"
audience = ["public"]
"""


def example() -> Policy:
    return read_policy(EXAMPLE)


# --- refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("threshold = 20", "", "must have one of threshold, thresholds and of_capacity, got 0"),
        ("threshold = 20", 'threshold = 20\nof_capacity = "0.5"', "must have one of threshold"),
        ("threshold = 20", "thresholds = { 101 = 3 }", "thresholds must name each node and no other, not '102'"),
        ("threshold = 20", 'threshold = 0\nalert = "below"', "a threshold of alert = 'below' must be at least 1"),
        ("threshold = 20", 'threshold = 20\nmiss = "0.5"', "miss must be above 0 and below 0.5, got 0.5"),
        ("threshold = 20", 'threshold = 20\nlevel = "floor"\nschedule = [{ zone = "101", day = "mon", start = "09:00", '
         'end = "10:00" }]', "schedule must be used with level = 'zone', got floor"),
        ("threshold = 20", 'threshold = 20\nschedule = [{ zone = "9", day = "mon", start = "09:00", end = "10:00" }]',
         "schedule must name zones of the release, got '9'"),
        ("threshold = 20", 'threshold = 20\nschedule = [{ zone = "101", day = "dn", start = "09:00", end = "10:00" }]',
         "must be one of mon, tue"),
        ("threshold = 20", 'threshold = 20\nschedule = [{ zone = "101", day = "mon", start = "10:00", end = "09:00" }]',
         "start must be before end, got 10:00 and 09:00"),
        ("threshold = 20", 'threshold = 20\nschedule = "rooms.csv"', "must not name a file if the policy was not"),
        ("events = 2", "events = 0", "events (name 'crowded', line 17): must be at least 1, got 0"),
        ('facilities = "90"', 'facilities = "91"', "epsilon, and daily_budget, must be one for all audiences"),
        ('unit = "run"', "", "daily_budget must be given for each audience with unit = 'run', and only then"),
        ('"100000"', '"80"', "daily_budget must pay for at least one run"),
        ("events = 2", 'events = 2\naudience = "public"', "audience must be used with counts"),
        ("events = 2", 'events = 2\ncounts = "w"', "epsilon must not be used with counts, whose values are paid for"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(old: str, new: str, rule: str) -> None:
    text = stream()
    assert old in text
    with pytest.raises(PolicyError, match="release") as refused:
        policy(text.replace(old, new))
    assert rule in str(refused.value)


@pytest.mark.parametrize(
    ("mechanism", "free", "rule"),
    [
        ("ba", FREE, "counts must be of zones, by laplace or pegasus or filter without shares, got 'counts'"),
        ("laplace", FREE.replace('"counts"', '"others"'), "must name a count release of the policy, got 'others'"),
        ("laplace", FREE.replace('["101", "102"]', '["101", "201"]'), "'counts' leaves out '201'"),
        ("laplace", FREE.replace('["public"]', "[]"), "audience must be given with counts"),
    ],
)  # fmt: skip
def test_what_decides_on_counts_needs_counts_that_it_can_decide_on(mechanism: str, free: str, rule: str) -> None:
    more = "w = 4\n" if mechanism == "ba" else ""
    counts = COUNTS.format(mechanism=mechanism).replace(', facilities = "1"' if more else "\0", "") + more
    with pytest.raises(PolicyError) as refused:
        policy(counts + free)
    assert rule in str(refused.value)


def test_runs_need_the_days_cut_and_a_price_that_buys_noise() -> None:
    without = SITE.replace('day_starts = "04:00"\ncontribution = "8h"\n', "")
    with pytest.raises(PolicyError, match=r"epsilon needs day_starts and contribution at site 'dbh'"):
        load_policy(without + stream())
    with pytest.raises(PolicyError, match=r"crowded' at dbh: epsilon of a run must be at least 0\.001, got 0\.0005"):
        policy(stream(epsilon="0.0005"))


def test_a_schedule_file_is_read_beside_the_policy(tmp_path: Path) -> None:
    text = SITE + stream().replace("threshold = 20", 'threshold = 20\nschedule = "rooms.csv"')
    (tmp_path / "policy.toml").write_text(text)
    for content, rule in (
        (None, "file cannot be read"),
        ("zone,day\n101,mon\n", "must have the columns zone, day, start, end"),
        ("zone,day,start,end\n", "must have at least one booking"),
        ("zone,day,start,end\n101,mon,09:00\n", "row 2 must have 4 fields, got 3"),
    ):
        if content is not None:
            (tmp_path / "rooms.csv").write_text(content)
        with pytest.raises(PolicyError, match=r"release\[0\]\.schedule") as refused:
            read_policy(tmp_path / "policy.toml")
        assert rule in str(refused.value)
    (tmp_path / "rooms.csv").write_text("zone,day,start,end\n101,mon,09:00,10:00\n")
    one = read_policy(tmp_path / "policy.toml")
    (tmp_path / "rooms.csv").write_text("zone,day,start,end\n101,mon,09:00,11:00\n")
    assert read_policy(tmp_path / "policy.toml").version != one.version, "a schedule is part of the policy's meaning"
    assert validate(PolicyDocument.from_document(one.document())) == one


# --- promised -----------------------------------------------------------------------------------------


def test_a_days_price_is_that_of_all_runs_or_of_all_windows_of_a_device() -> None:
    few = policy(stream(epsilon="1", events=2))
    assert RunPrice.of(few, paid_thresholds(few, "dbh")[0], "dbh") == RunPrice(Fraction(1), 12)
    many = policy(stream(epsilon="1", events=50))
    assert RunPrice.of(many, paid_thresholds(many, "dbh")[0], "dbh").most == 96, "8 hours of 5 minutes"


def test_misses_of_all_runs_that_may_be_open_add_up_to_what_is_promised() -> None:
    for plan in run_plans(example(), "library"):
        windows = plan.release.windows(plan.tick)
        law, shift, share = plan.vector.run_distribution, plan.vector.shift, plan.release.miss / plan.release.events
        assert law.silence(shift, windows) <= share
        assert shift == 0 or law.silence(shift - 1, windows) > share


def test_quiet_nodes_are_those_with_few_false_alarms() -> None:
    [plan] = [p for p in run_plans(example(), "library") if p.release.name == "hall-full"]
    [stored] = [p for p in threshold_guarantees(example()) if p.release == "hall-full"]
    query = windows_queried_per_day(plan.release, example().site["library"])
    assert query == 300, "a day on which the clocks are put back has 25 hours"
    assert stored.quiet.false_alarms <= 0.05 < quiet_bounds(plan.vector, query, stored.quiet.distance - 1).false_alarms
    assert [quiet_bounds(plan.vector, query, 30, real=r).denied for r in (0, 1, 2)] == sorted(
        quiet_bounds(plan.vector, query, 30, real=r).denied for r in (0, 1, 2)
    ), "real events leave fewer for others"
    assert quiet_bounds(plan.vector, query, 30, real=2).denied == pytest.approx(1)


def test_the_figures_of_a_stream_are_those_of_its_sentence() -> None:
    [guarantee] = [p for p in threshold_guarantees(example()) if p.release == "hall-full"]
    for name, bound in (("quiet", guarantee.quiet), ("empty", guarantee.empty)):
        figures = guarantee.figures()[name]
        assert figures["devices"] == bound.distance
        told = (figures["false_alarms_a_day"], figures["denied"])
        assert told == pytest.approx((bound.false_alarms, bound.denied), rel=1e-3)


def test_bookings_bound_how_often_a_node_is_asked() -> None:
    [stream_] = [r for r in paid_thresholds(example(), "library") if r.name == "booked-empty"]
    library = example().site["library"]
    assert windows_queried_per_day(stream_, library) == 37 + 49 + 12, (
        "the longest weekday, the longest date, and an hour"
    )


@pytest.mark.parametrize(
    ("rows", "asked"),
    [
        ("101,mon,20:00,23:59\n101,tue,00:00,04:00\n", 48 + 49),
        ("101,sun,20:00,23:59\n101,mon,00:00,04:00\n", 48 + 49),
        ("101,mon,00:00,04:00\n101,mon,20:00,23:59\n", 49),
        ("101,2026-03-02,20:00,23:59\n101,2026-03-03,00:00,05:00\n", 48 + 49),
        ("101,mon,20:00,23:59\n102,tue,00:00,04:00\n", 49),
        ("101,0001-01-01,00:00,04:00\n", 49),
    ],
    ids=["over midnight", "over the week's end", "two days", "dates", "two zones", "the first date of all"],
)
def test_a_booking_after_midnight_belongs_to_the_day_that_still_runs(rows: str, asked: int) -> None:
    """A privacy day from 04:00 holds the night that follows: all of its bookings may raise false alarms on it."""
    booked = "zone,day,start,end\n" + rows
    under = load_policy(SITE + stream(more='schedule = "b.csv"'), read=lambda _: booked)
    [stream_] = paid_thresholds(under, "dbh")
    assert windows_queried_per_day(stream_, under.site["dbh"]) == asked + 12


@pytest.mark.parametrize("law", [laplace_noise(Fraction("0.2")), gaussian_noise(Fraction(9))])
def test_the_tails_of_noise_are_never_less_than_they_are(law: object) -> None:
    for draws in (1, 3):
        bounds = [tail(law, draws, k) for k in range(60)]  # type: ignore[arg-type]
        assert bounds == sorted(bounds, reverse=True)
        assert bounds[0] == 1
    if law == laplace_noise(Fraction("0.2")):
        a = 2.718281828459045**-0.2
        assert [tail(law, 1, k) for k in (1, 7, 30)] == pytest.approx([a**k / (1 + a) for k in (1, 7, 30)])
        assert least_shift(law, 1, Fraction(1, 20), 1) == 11


def test_policy_show_check_and_plan_say_what_streams_promise() -> None:
    shown = CliRunner().invoke(tacet, ["policy", "show", str(EXAMPLE)])
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert "hall-full for facilities, public at library: a node that stays above its threshold for 15 min" in words
    assert "A run costs epsilon 0.5, a device's day 2 at most." in words
    assert "It costs nothing beyond the counts that it is decided on." in words
    checked = json.loads(CliRunner().invoke(tacet, ["policy", "show", str(EXAMPLE), "--json"]).output)
    assert [row["release"] for row in checked["thresholds"]] == ["hall-full", "fire-code", "booked-empty", "hall-quiet"]
    planned = json.loads(CliRunner().invoke(tacet, ["policy", "plan", str(EXAMPLE), "--json"]).output)
    assert planned["thresholds"] == checked["thresholds"]
    prices = {row["release"]: (row["epsilon_run"], row["epsilon_day"]) for row in planned["thresholds"]}
    assert prices == {
        "hall-full": ("0.5", "2"), "fire-code": ("1", "1"), "booked-empty": ("1", "2"), "hall-quiet": ("0", "0"),
    }  # fmt: skip


@pytest.mark.parametrize(("threshold", "more", "which"), [
    ("threshold = 6", "", "even an empty one is nearer: it may have"),
    ("threshold = 6", 'alert = "below"', "one at twice its threshold is nearer: it may have"),
    ("threshold = 100000", "", None),
])  # fmt: skip
def test_a_threshold_from_which_nobody_can_be_far_enough_is_named(threshold: str, more: str, which: str | None) -> None:
    """Whoever sets an alert at a handful of people is told that it will sound in an empty room."""
    [guarantee] = threshold_guarantees(policy(stream(epsilon="0.4", threshold=threshold, more=more)))
    output = guarantee.sentence()
    assert ("nearer" in output) is (which is not None)
    if which is not None:
        assert guarantee.empty.distance == 6 < guarantee.quiet.distance
        assert f"{which} {guarantee.empty.false_alarms:.2g} false alarms a day, and its event" in output


def test_a_narrow_terminal_is_shown_what_a_day_costs() -> None:
    """The last column is the one that a privacy officer looks for."""
    printed = CliRunner().invoke(tacet, ["policy", "plan", str(EXAMPLE)], env={"COLUMNS": "80"}).output
    rows = printed.partition("Threshold streams at library")[2].splitlines()
    [hall] = [row.split() for row in rows if row.startswith(" hall-full ")]
    assert hall[-2:] == ["0.5", "2"], "of a run, and of a day"


def test_who_pays_for_what_counts_would_decide_for_nothing_is_told() -> None:
    counts = COUNTS.format(mechanism="laplace")
    both = stream(more='zones = { ids = ["101"] }')
    [reported] = threshold_guarantees(policy(counts, both))
    assert reported.given == ("counts",)
    assert reported.sentence().endswith('Its counts are paid for: counts = "counts" decides on them for nothing.')
    for other in (stream(), stream(more='zones = { ids = ["101", "201"] }')):
        assert threshold_guarantees(policy(counts, other))[0].given == (), "not all of its zones are counted"
    [hall, *_] = threshold_guarantees(example())
    assert hall.given == (), "the public is given no counts"


def test_every_topic_contract_and_page_knows_a_stream() -> None:
    under = example()
    names = [name for name in topic_names(under) if "facilities.hall" in name]
    assert names == ["tacet.private.facilities.hall-full.v1", "tacet.private.facilities.hall-quiet.v1"]
    terms = {(audience, name): stored for audience, name, stored in privacy_terms(under)}
    assert terms["public", "hall-full"]["epsilon"] == "2"
    assert terms["public", "hall-full"]["runs"] == {"library": {"epsilon": "0.5", "most_a_day": 4}}
    assert terms["facilities", "hall-quiet"]["free_with"] == "counts"
    described = {row.release: row for row in described_releases(under, "facilities")}
    assert (described["fire-code"].query, described["fire-code"].levels) == ("threshold", ["building"])
    assert any("fire-code" in line for line in guarantees_of(under, "facilities").promise)


def test_policy_diff_says_when_a_change_of_streams_takes_effect() -> None:
    old, new = policy(stream(epsilon="1")), policy(stream(epsilon="2"))
    changes = difference(old, new).changes
    assert any(c.kind == "day_starts" and "publish nothing until the next" in c.text for c in changes)
    assert any(c.kind == "dearer" and "instead of" in c.text for c in changes)
    assert not [c for c in difference(old, policy(stream(epsilon="1"), COUNTS.format(mechanism="laplace"))).changes
                if "began on other terms" in c.text]  # fmt: skip
