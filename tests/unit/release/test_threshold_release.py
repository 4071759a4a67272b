"""Threshold streams that pay by the run, through the release stage and the whole pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import orjson
import pytest

from stream.errors import DataError, PolicyError, UsageError
from stream.keys import LaboratoryKeys
from stream.mechanisms.run_distribution import RunDistribution
from stream.operators import scan
from stream.pipeline import Options, Pipeline
from stream.policy.privacy_days import PrivacyDays
from stream.records import DAY, MINUTE, AttributeCharge, CountCharge, Micros, OccupancyWindow, Published, WindowCharges
from stream.release.account_stage import account_stage, past_account
from stream.release.backfill import BackfillStage, count_as_published
from stream.release.stage import ReleaseStage
from stream.release.state import ReleaseState
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, LEAKAGE, parse_time
from tests.support.day_policies import day_site
from tests.support.small_building import SITE as BUILDING
from tests.support.small_building import (
    account_of,
    audit_of,
    bodies,
    building,
    laboratory,
    messages,
    outputs_of,
    people,
    policy_text,
    unchecked,
)

TICK = 5 * MINUTE
KEYS = LaboratoryKeys(b"r" * 32, "ledger", b"a" * 32)
DAYS = PrivacyDays("04:00", "America/Los_Angeles")
FOUR: Micros = parse_time("2026-03-03T04:00:00-08:00")
"""A start of a privacy day."""
SITE = """
[site.dbh]
sources = ["10.0.0.1"]
timezone = "America/Los_Angeles"
day_starts = "04:00"
contribution = "8h"
zones = [
  { id = "101", floor = "1", capacity = 20, access_points = ["02:00:00:00:01:01"] },
  { id = "102", floor = "1", capacity = 30, access_points = ["02:00:00:00:01:02"] },
  { id = "201", floor = "2", capacity = 40, access_points = ["02:00:00:00:02:01"] },
]
[[audience]]
name = "public"
[[audience]]
name = "facilities"
"""
SURE = "90"
"""Epsilon of a run whose noise is never more than a device or two: decisions that can be foreseen."""


def stream(
    name: str = "crowded", *, epsilon: str = SURE, threshold: str = "threshold = 20", events: int = 2,
    more: str = 'hysteresis = 8\ncooldown = "10min"',
) -> str:  # fmt: skip
    """Return a stream that pays so much for a run, and may pay for as many as it can open."""
    return f"""
[[release]]
name = "{name}"
query = "threshold"
{threshold}
events = {events}
{more}
unit = "run"
epsilon = {{ public = "{epsilon}", facilities = "{epsilon}" }}
daily_budget = {{ public = "100000", facilities = "100000" }}
"""


def policy(*releases: str) -> Policy:
    return load_policy(SITE + "".join(releases or (stream(),)))


def windows(
    counts: Sequence[tuple[int, int, int]], first: Micros = FOUR + TICK, *, bounded: bool = True
) -> list[OccupancyWindow]:
    """Return windows one after another with these counts; unbounded counts are others, and nobody may read them."""
    ends = [first + n * TICK for n in range(len(counts))]
    return [
        OccupancyWindow("dbh", end, (999, 999, 999), Fraction(1), DAYS.at(end), stored if bounded else None)
        for end, stored in zip(ends, counts, strict=True)
    ]


class Made(NamedTuple):
    """What came of windows."""

    records: list[dict[str, Any]]
    entries: list[dict[str, Any]]
    spent: list[WindowCharges]
    state: ReleaseState

    def of(self, release: str = "crowded", audience: str = "public") -> list[dict[str, Any]]:
        return [r for r in self.records if (r["release"], r["audience"]) == (release, audience)]

    def above(self, node: str = "zone:101") -> list[bool | None]:
        return [record["above"][node] for record in self.of()]

    def runs(self, release: str = "crowded") -> int:
        """How many runs one audience was charged for."""
        return sum(
            charge.terms.ticks
            for each in self.spent
            for charge in each.charges
            if isinstance(charge, CountCharge) and charge.terms is not None
            and (charge.release, charge.audience) == (release, "public")
        )  # fmt: skip


def released(
    items: Iterable[OccupancyWindow], under: Policy | None = None, state: ReleaseState | None = None,
    keys: LaboratoryKeys = KEYS,
) -> Made:  # fmt: skip
    stage = ReleaseStage(under or policy(), "dbh", keys)
    after, outputs = scan(stage, items, state)
    made = [(each.topic, orjson.loads(each.value)) for each in outputs if isinstance(each, Published)]
    return Made(
        [body for topic, body in made if topic not in (AUDIT, LEAKAGE)],
        [body for topic, body in made if topic == AUDIT],
        [each for each in outputs if isinstance(each, WindowCharges)],
        after,
    )


EMPTY, FULL = (0, 0, 0), (60, 0, 0)


# --- what is told -------------------------------------------------------------------------------------


def test_there_is_one_record_every_window_whether_it_alerts_or_not() -> None:
    made = released(windows([EMPTY, FULL, FULL, EMPTY, EMPTY, EMPTY]))
    assert [record["released"] for record in made.of()] == [True] * 6
    assert made.above("zone:201") == [False] * 6
    assert {len(entry["commitment"]) for entry in made.entries} == {32}
    assert len(made.entries) == len(made.records) == 12


def test_an_alert_begins_with_its_window_and_ends_by_hysteresis() -> None:
    half = (15, 0, 0)  # below the threshold of 20, and not yet 8 below it
    made = released(windows([EMPTY, FULL, FULL, half, half, half, EMPTY, EMPTY]))
    assert made.above() == [False, True, True, True, True, True, False, False]


def test_nothing_is_asked_while_an_alert_cools_down() -> None:
    made = released(windows([FULL, EMPTY, EMPTY, EMPTY, FULL, FULL, FULL]))
    assert made.above() == [True, True, False, False, True, True, True], "10 minutes are two windows, by the clock"


def test_without_hysteresis_an_alert_ends_with_its_cool_down() -> None:
    made = released(windows([FULL, FULL, EMPTY, EMPTY, FULL]), policy(stream(more='cooldown = "10min"')))
    assert made.above() == [True, True, False, False, True]


def test_alerts_below_a_threshold_are_its_mirror() -> None:
    low = policy(stream(more='alert = "below"\nhysteresis = 8\ncooldown = "5min"'))
    made = released(windows([(60, 60, 60), (2, 60, 60), (24, 60, 60), (60, 60, 60), (60, 60, 60)]), low)
    assert made.above() == [False, True, True, False, False]


def test_events_beyond_the_cap_are_denied_for_the_rest_of_the_day_and_not_on_the_next() -> None:
    turns = [FULL, FULL, EMPTY, EMPTY] * 3
    made = released(windows(turns), policy(stream(events=2)))
    assert made.above() == [True, True, False, False, True, True, False, False, None, None, None, None]
    assert [record["denied"].get("zone:101") for record in made.of()][7:10] == [None, "events", "events"]
    assert made.of()[8]["above"]["zone:102"] is False, "each node has events of its own"
    anew = released(windows([FULL], FOUR + DAY + TICK), policy(stream(events=2)), made.state)
    assert anew.above() == [True]


def test_floors_and_the_building_are_nodes_too() -> None:
    for level, node, counts in (("floor", "floor:1", (30, 30, 0)), ("building", "building", (20, 20, 20))):
        made = released(
            windows([EMPTY, counts]),
            policy(stream(threshold="of_capacity = '0.5'", more=f'level = "{level}"')),
        )
        assert made.above(node) == [False, True]
        assert made.of()[1]["thresholds"][node] == {"floor": 25, "building": 45}[level]
    assert made.of()[1]["levels"] == {"building": 1}


def test_outside_of_bookings_nothing_is_asked_and_an_alert_ends() -> None:
    booked = 'alert = "below"\nschedule = [{ zone = "101", day = "tue", start = "04:05", end = "04:20" }]'
    made = released(windows([EMPTY] * 5), policy(stream(threshold="threshold = 3", more=booked)))
    assert made.above() == [True, True, True, None, None]
    assert made.above("zone:201") == [None] * 5
    assert made.of()[4]["denied"] == dict.fromkeys(("zone:101", "zone:102", "zone:201"), "unbooked")
    assert made.runs() == 1, "what is not asked opens no run"


def test_only_counts_bounded_by_the_day_are_read() -> None:
    made = released(windows([EMPTY, FULL], bounded=False))
    assert [record["reason"] for record in made.of()] == ["waiting", "waiting"]
    assert made.runs() == 0
    assert made.of()[0]["above"] == dict.fromkeys(("zone:101", "zone:102", "zone:201"))


def test_all_audiences_are_told_the_same() -> None:
    made = released(windows([EMPTY, FULL, FULL, EMPTY] * 6), policy(stream(epsilon="0.4")))
    reported = [[r["above"] for r in made.of(audience=name)] for name in ("public", "facilities")]
    assert reported[0] == reported[1]


# --- what it costs ------------------------------------------------------------------------------------


def test_a_run_is_charged_when_it_is_opened_and_anew_on_each_day_on_which_one_is_open() -> None:
    made = released(windows([EMPTY, EMPTY, FULL, EMPTY, EMPTY, EMPTY]))
    assert [r["spend"] for r in made.of()] == ["270", "0", "0", "0", "90", "0"], "three zones; the alert's end is a run"
    last = [EMPTY] * 283 + [EMPTY, EMPTY]
    over = released(windows(last, FOUR + 7 * TICK), state=made.state)
    assert [n for n, r in enumerate(over.of()) if r["spend"] != "0"] == [0, 282], "up again; then the next day"
    assert over.of()[282]["spend"] == "270"


def test_ledger_and_account_say_what_was_opened() -> None:
    made = released(windows([EMPTY, FULL, FULL, EMPTY, EMPTY]))
    paid = [e["nano"] for e in made.entries if e["audience"] == "public"]
    assert paid == [270 * 10**9, 0, 0, 90 * 10**9, 0]
    _, records = scan(account_stage(policy(), "dbh", laboratory=True), iter(made.spent))
    account = [orjson.loads(each.value) for each in records]
    day = [each["audiences"]["public"]["device_day"] for each in account]
    assert day == ["270", "270", "270", "360", "360"], "what a device's day has cost so far, added or removed"
    assert account[-1]["coalition"]["device_day"] == "360", "together they know no more"
    assert account[-1]["audiences"]["public"]["device_total"] == "360"
    tuple_costs = [each["audiences"]["public"]["presence_tuple"] for each in account]
    assert tuple_costs == ["540", "540", "540", "720", "720"], "less than a day is a day replaced, at every window"
    assert account[-1]["audiences"]["public"]["tight"]["device_day"]["epsilon"] == pytest.approx(360, rel=1e-6)


def test_the_account_of_the_books_is_the_account_that_was_streamed() -> None:
    made = released(windows([EMPTY, FULL, FULL, EMPTY, EMPTY] * 4))
    _, records = scan(account_stage(policy(), "dbh", laboratory=True), iter(made.spent))
    assert past_account([policy()], "dbh", None, made.entries, {}) == [orjson.loads(each.value) for each in records]


def test_a_device_is_charged_for_no_more_runs_than_windows_in_which_it_counts() -> None:
    short = SITE.replace('contribution = "8h"', 'contribution = "10min"')
    made = released(windows([EMPTY, FULL, FULL, EMPTY] * 4), load_policy(short + stream()))
    assert made.runs() == 2, "it is in two windows, whatever was opened"


def test_a_budget_that_cannot_pay_a_run_opens_none() -> None:
    poor = policy(stream().replace('"100000"', '"180"'))
    made = released(windows([EMPTY, EMPTY]), poor)
    assert made.of()[0]["above"] == {"zone:101": False, "zone:102": False, "zone:201": None}
    assert made.of()[1]["denied"] == {"zone:201": "budget"}
    assert made.runs() == 2


def test_a_days_epsilon_is_divided_over_all_runs_that_a_day_can_open() -> None:
    text = stream().replace('unit = "run"', "").replace(SURE, "48")
    day = policy("\n".join(line for line in text.splitlines() if not line.startswith("daily_budget")))
    made = released(windows([EMPTY, FULL, FULL, EMPTY] * 12), day)
    assert made.of()[0]["epsilon"] == "48", "3 zones x 2 events x 2 directions, at 4 each"
    assert {Fraction(r["spend"]) % 4 for r in made.of()} == {0}
    assert 4 * made.runs() <= 48


def test_neighbouring_days_are_charged_and_recorded_alike_where_they_are_answered_alike() -> None:
    """What a record says beside its answers follows from answers, clock and policy: not from counts."""
    one, other = ([(n % 7, 0, 0) for n in range(40)], [(n % 7 + 1, 1, 0) for n in range(40)])
    made = [released(windows(counts), policy(stream(threshold="threshold = 60"))) for counts in (one, other)]
    assert made[0].records == made[1].records
    assert [e["commitment"] for e in made[0].entries] != [e["commitment"] for e in made[1].entries]


# --- restarts, other policies, second attempts ----------------------------------------------------------


NOISY = stream(epsilon="1", threshold="threshold = 12", events=3)


def test_a_restart_at_every_window_changes_no_byte() -> None:
    items = windows([(n % 23, (3 * n) % 17, 9) for n in range(60)])
    whole, stage = released(items, policy(NOISY)), ReleaseStage(policy(NOISY), "dbh", KEYS)
    state, records = stage.initial(), []
    for item in items:
        state, outputs = ReleaseStage(policy(NOISY), "dbh", KEYS).step(stage.decode(stage.encode(state)), item)
        records += [orjson.loads(o.value) for o in outputs if isinstance(o, Published) and o.topic != AUDIT]
    assert records == whole.records
    assert stage.encode(state) == stage.encode(whole.state)


def test_a_window_that_comes_again_is_released_as_it_was() -> None:
    """Crash between release and snapshot: the same state meets the same window, and gives the same bytes."""
    items = windows([(n % 23, (3 * n) % 17, 9) for n in range(30)])
    before = released(items[:20], policy(NOISY)).state
    stage = ReleaseStage(policy(NOISY), "dbh", KEYS)
    stored = stage.encode(before)
    once, again = (released(items[20:], policy(NOISY), stage.decode(stored)) for _ in range(2))
    assert once.records == again.records
    assert once.entries == again.entries


def test_other_counts_of_one_window_meet_other_noise() -> None:
    """A second sample under one label would be a difference of counts without noise: labels hold what is read."""
    reported: set[tuple[bool | None, ...]] = set()
    for more in range(12):
        reported.add(tuple(released(windows([(3, 3, more)] * 8), policy(NOISY)).above()))
    assert len(reported) > 3, "the third zone's count alone changes the noise of the first"


def test_a_policy_that_changes_nothing_of_it_goes_on_with_the_runs() -> None:
    items = windows([(n % 23, (3 * n) % 17, 9) for n in range(60)])
    whole = released(items, policy(NOISY))
    counts = '\n[[release]]\nname = "w"\nquery = "count"\nmechanism = "laplace"\nepsilon = { public = "1" }\n'
    first = released(items[:30], policy(NOISY))
    adopted = ReleaseStage(policy(NOISY, counts), "dbh", KEYS)
    state = adopted.migrate(ReleaseStage(policy(NOISY), "dbh", KEYS).encode(first.state), {})
    rest = released(items[30:], policy(NOISY, counts), state)
    assert [r["above"] for r in first.of()] + [r["above"] for r in rest.of()] == [r["above"] for r in whole.of()]
    assert first.runs() + rest.runs() == whole.runs(), "nothing is charged twice"


@pytest.mark.parametrize(
    "changed",
    [
        NOISY.replace('"crowded"', '"busy"'),
        NOISY.replace("threshold = 12", "threshold = 13"),
        NOISY.replace("events = 3", "events = 4"),
        NOISY.replace('epsilon = { public = "1", facilities = "1" }', 'epsilon = { public = "2", facilities = "2" }'),
        NOISY + NOISY.replace('"crowded"', '"second"'),
    ],
    ids=["renamed", "another threshold", "more events", "dearer", "a second stream"],
)
def test_whatever_changes_a_stream_waits_for_the_next_day(changed: str) -> None:
    first = released(windows([EMPTY] * 3), policy(NOISY))
    stage = ReleaseStage(policy(changed), "dbh", KEYS)
    state = stage.migrate(ReleaseStage(policy(NOISY), "dbh", KEYS).encode(first.state), {})
    today = released(windows([EMPTY] * 2, FOUR + 4 * TICK), policy(changed), state)
    assert {r["reason"] for r in today.records} == {"waiting"}
    assert {entry["nano"] for entry in today.entries} == {0}
    anew = released(windows([EMPTY] * 2, FOUR + DAY + TICK), policy(changed), today.state)
    assert {r["reason"] for r in anew.records} == {None}


def test_a_stream_that_went_and_came_back_on_the_same_day_waits() -> None:
    first, without = released(windows([EMPTY] * 3), policy(NOISY)), policy(stream("other"))
    old, gone, back = (ReleaseStage(p, "dbh", KEYS) for p in (policy(NOISY), without, policy(NOISY)))
    state = back.migrate(gone.encode(gone.migrate(old.encode(first.state), {})), {})
    today = released(windows([EMPTY] * 2, FOUR + 4 * TICK), policy(NOISY), state)
    assert {r["reason"] for r in today.records} == {"waiting"}, "its runs are lost, and are not opened a second time"
    assert {entry["nano"] for entry in today.entries} == {0}


def test_a_day_whose_entries_were_published_but_whose_state_is_lost_is_over() -> None:
    """Another key goes on with the chain: what was begun counts at its worst, and is not asked a second time."""
    under = policy(NOISY)
    first, state = released(windows([EMPTY] * 3), under), ReleaseState()
    count_as_published(state, first.entries, {under.version: under}, under, "dbh")
    today = released(windows([EMPTY] * 2, FOUR + 4 * TICK), under, state, LaboratoryKeys(b"n" * 32, "new", b"a" * 32))
    assert {r["reason"] for r in today.records} == {"waiting"}
    [line] = [line for line in state.charged.lines.values() if line.day is not None]
    assert line.zones == ("101", "102", "201")
    anew = released(windows([EMPTY], FOUR + DAY + TICK), under, today.state)
    assert {r["reason"] for r in anew.records} == {None}


def test_a_state_of_other_terms_is_none() -> None:
    stored = released(windows([EMPTY]), policy(NOISY))
    data = ReleaseStage(policy(NOISY), "dbh", KEYS).encode(stored.state)
    with pytest.raises(DataError, match="same terms"):
        ReleaseStage(policy(NOISY.replace("events = 3", "events = 4")), "dbh", KEYS).decode(data)


def test_recordings_of_the_past_release_no_decision() -> None:
    late = BackfillStage(policy(NOISY), "dbh", KEYS)
    [window] = windows([FULL])
    assert late.ids(window) == []
    assert late.release_late(ReleaseState(), window, ReleaseState()) == []
    with pytest.raises(UsageError, match="with other mechanisms than sample or ba or sparse-vector, got crowded"):
        BackfillStage(policy(NOISY), "dbh", KEYS, attempt=2, names=["crowded"])


def test_another_key_or_attempt_draws_other_noise() -> None:
    items = windows([(3, 2, 4)] * 40)
    one = [r["above"] for r in released(items, policy(NOISY)).of()]
    other = [r["above"] for r in released(items, policy(NOISY), keys=LaboratoryKeys(b"q" * 32, "l", b"a" * 32)).of()]
    stage = ReleaseStage(policy(NOISY), "dbh", KEYS, attempt=2)
    _, outputs = scan(stage, items)
    second = [orjson.loads(o.value) for o in outputs if isinstance(o, Published) and ".public." in o.topic]
    assert one != other
    assert [r["above"] for r in second] != one
    assert all(r["release_id"].endswith("#2") for r in second)


# --- through the whole pipeline -----------------------------------------------------------------------


WALKED = """
[[release]]
name = "crowded"
query = "threshold"
zones = { kind = ["hall", "lobby"] }
threshold = 4
hysteresis = 2
epsilon = { public = "20", facilities = "20" }
"""


def test_the_pipeline_decides_the_same_wherever_it_is_taken_up_again() -> None:
    under, seen = building(releases=WALKED, site=day_site()), people(hours=26)
    whole = [each for each in outputs_of(under, seen) if isinstance(each, Published)]
    pipeline = Pipeline(under, BUILDING, laboratory(), Options())
    state, made = pipeline.initial(), []
    for item in messages(seen, under):
        state, outputs = pipeline.step(pipeline.decode(pipeline.encode(state)), item)
        made += outputs
    assert [each for each in made if isinstance(each, Published)] == whole
    assert len(bodies(whole, "private")) > 100


def test_what_a_days_runs_cost_stays_within_the_days_epsilon() -> None:
    outputs = outputs_of(building(releases=WALKED, site=day_site()), people(hours=50, devices=60))
    days = [Fraction(a["audiences"]["public"]["device_day"]) for a in account_of(outputs)]
    assert 0 < max(days) <= 20
    assert {e["outcome"] for e in audit_of(outputs)} == {"released"}


def test_a_stream_that_would_say_too_much_of_an_asked_attribute_is_denied_before_it_runs() -> None:
    attribute = """
[[release]]
name = "office-day"
query = "attributes"
zones = { kind = "office" }
[release.attributes.arrival]
epsilon = { facilities = "1" }
sensitive = { after = "10:00" }
"""
    offices = WALKED.replace('["hall", "lobby"]', '"office"')
    with pytest.raises(PolicyError, match="odds factor"):
        building(releases=offices + attribute, site=day_site())
    outputs = outputs_of(unchecked(policy_text(offices + attribute, site=day_site())), people(hours=40))
    query = [b for b in bodies(outputs, "private") if "attribute" in b]
    assert {b["reason"] for b in query} == {"factor"}, "its charges forbid the question"


def test_runs_have_a_law_whose_noise_is_half_the_price_each() -> None:
    assert RunDistribution(Fraction(2)).half == 1
    assert not [c for each in released(windows([EMPTY])).spent for c in each.charges if isinstance(c, AttributeCharge)]
