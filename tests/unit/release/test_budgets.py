"""Budgets: by day, by run of windows, and by refresh."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from stream.accounting.charge_history import ChargeLine
from stream.accounting.charge_runs import ChargeRun
from stream.accounting.ledger import BudgetView, ChargeEvent, Spending
from stream.errors import PolicyError
from stream.operators import scan
from stream.policy.sites import zones_now
from stream.records import DAY, HOUR, MINUTE, OccupancyWindow, Published, WindowCharges
from stream.release.account_stage import account_stage
from stream.release.budgets import Budgets
from stream.release.stage import ReleaseStage
from stream.release.state import LocalDay, ReleaseState
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time
from tests.support.small_building import SITE, account_of, audit_of, bodies, building, laboratory, policy_text

TICK = 15 * MINUTE
FIRST = parse_time("2026-03-02T00:15:00Z")
"""End of the first window of a UTC day."""


def counts(budget: str, *, mechanism: str = "laplace", epsilon: str = 'facilities = "0.5", public = "0.25"') -> str:
    return f"""
[[release]]
name = "plain"
query = "count"
mechanism = "{mechanism}"
zones = {{ kind = ["hall", "lobby"] }}
epsilon = {{ {epsilon} }}
{budget}
"""


def policy_of(budget: str, *, w: int = 5, **more: str) -> Policy:
    return building(releases=counts(budget, **more), head=f"privacy.w = {w}\n")


def run(policy: Policy, windows: int, *, restart: bool = False, count: int = 0) -> list[Published]:
    """Release so many windows; return everything that comes out, account records included."""
    stage, books = ReleaseStage(policy, SITE, laboratory()), account_stage(policy, SITE, laboratory=True)
    state, sums, outputs = stage.initial(), books.initial(), []
    for number in range(windows):
        window = OccupancyWindow(SITE, FIRST + number * TICK, (count,) * 6, Fraction(1))
        state, made = stage.step(state, window)
        for out in made:
            if isinstance(out, WindowCharges):
                sums, report = books.step(sums, out)
                outputs += report
            else:
                outputs.append(out)
        if restart:
            state, sums = stage.decode(stage.encode(state)), books.decode(books.encode(sums))
    return outputs


def paid(outputs: list[Published], audience: str) -> list[bool]:
    """Return per window whether the audience got it."""
    return [entry["outcome"] == "released" for entry in audit_of(outputs) if entry["audience"] == audience]


def reasons(outputs: list[Published], audience: str) -> Counter[Any]:
    return Counter(entry["outcome"] for entry in audit_of(outputs) if entry["audience"] == audience)


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize(("budget", "each"), [("1", 2), ("1.4", 2), ("0.5", 1), ("2.5", 5), ("9", 5)])
def test_no_run_of_w_windows_costs_more_than_its_budget_and_none_could_cost_more(
    budget: str, each: int, restart: bool
) -> None:
    made = run(policy_of(f'w_budget = {{ facilities = "{budget}" }}'), 40, restart=restart)
    got = paid(made, "facilities")
    assert {sum(got[n : n + 5]) for n in range(36)} == {each}
    assert reasons(made, "facilities")["w_budget"] == got.count(False)
    assert all(paid(made, "public"))


def test_a_sliding_budget_goes_on_over_midnight() -> None:
    made = run(policy_of('w_budget = { facilities = "1" }', w=5), 2 * 96)
    got = paid(made, "facilities")
    assert max(sum(got[n : n + 5]) for n in range(len(got) - 4)) == 2


def test_w_is_one_number_for_budget_and_account() -> None:
    made = run(policy_of('w_budget = { facilities = "1" }', w=7), 30)
    sums = [record["audiences"]["facilities"]["device_w_event"] for record in account_of(made)]
    assert max(map(Fraction, sums)) == 1
    assert sums[-1] == "1"


def test_a_window_that_the_sliding_budget_refuses_has_the_shape_of_every_other() -> None:
    made = run(policy_of('w_budget = { facilities = "0.5", public = "0.25" }'), 2)
    released, refused = (body for body in bodies(made, "private") if body["audience"] == "facilities")
    assert list(released) == list(refused)
    assert (refused["released"], refused["reason"], refused["spend"]) == (False, "w_budget", "0")
    assert refused["values"] is None
    assert account_of(made)[-1]["refused"] == [
        {"release": "plain/facilities", "reason": "w_budget"}, {"release": "plain/public", "reason": "w_budget"},
    ]  # fmt: skip


def test_refusals_do_not_depend_on_counts() -> None:
    policy = policy_of('w_budget = { facilities = "1" }\ndaily_budget = { public = "3" }')
    outcomes = [[e["outcome"] for e in audit_of(run(policy, 50, count=n))] for n in (0, 17)]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_a_budget_lasts_for_its_refresh_and_then_begins_anew(restart: bool) -> None:
    made = run(policy_of('daily_budget = { facilities = "10" }\nrefresh = "2d"'), 4 * 96, restart=restart)
    got = paid(made, "facilities")
    period = DAY // TICK * 2
    # Periods are counted from 1970-01-01; 2026-03-02 is day 20514 of it, so a refresh of two days begins there.
    assert FIRST // DAY % 2 == 0
    assert [n for n, ok in enumerate(got) if ok] == [*range(20), *range(period, period + 20)]
    left = [record["left"]["plain/facilities"] for record in account_of(made)]
    assert left[:3] == [19, 18, 17]
    assert left[19:96] == [0] * 77
    assert left[period] == 19


def test_a_budget_of_366_days_remembers_its_first_day_until_its_last() -> None:
    policy = policy_of('daily_budget = { facilities = "0.5" }\nrefresh = "366d"', epsilon='facilities = "0.5"')
    period = FIRST // DAY - FIRST // DAY % 366
    stage = ReleaseStage(policy, SITE, laboratory())
    state, outputs = stage.initial(), []
    for day in (0, 1, 364, 365, 366):
        for number in (1, 2):
            window = OccupancyWindow(SITE, (period + day) * DAY + number * TICK, (0,) * 6, Fraction(1))
            state, made = stage.step(state, window)
            outputs += [out for out in made if isinstance(out, Published)]
    assert paid(outputs, "facilities") == [True, *[False] * 7, True, False]


def test_without_a_refresh_a_budget_is_of_one_utc_day() -> None:
    got = paid(run(policy_of('daily_budget = { facilities = "10" }'), 2 * 96), "facilities")
    assert [n for n, ok in enumerate(got) if ok] == [*range(20), *range(96, 116)]


def test_a_budget_counts_the_days_of_a_refresh_that_was_another_before() -> None:
    stages = [
        ReleaseStage(policy_of(f'daily_budget = {{ facilities = "10" }}\nrefresh = "{days}d"'), SITE, laboratory())
        for days in (2, 1)
    ]
    state, outputs = stages[0].initial(), []
    for number in range(2 * 96):
        stage = stages[number >= 48]  # from noon of the first day on a day has a budget of its own
        state, made = stage.step(state, OccupancyWindow(SITE, FIRST + number * TICK, (0,) * 6, Fraction(1)))
        outputs += [out for out in made if isinstance(out, Published)]
    got = paid(outputs, "facilities")
    assert [n for n, ok in enumerate(got) if ok] == [*range(20), *range(96, 116)]


def test_audiences_that_share_values_share_what_is_left() -> None:
    policy = policy_of('daily_budget = { facilities = "40", public = "3" }', epsilon='facilities = "1", public = "1"')
    made = run(policy, 8)
    assert paid(made, "facilities") == paid(made, "public") == [True] * 3 + [False] * 5
    left = [record["left"] for record in account_of(made)]
    assert left == [{"plain/facilities": n, "plain/public": n} for n in (2, 1, 0, 0, 0, 0, 0, 0)]


def test_the_tighter_of_two_budgets_decides() -> None:
    made = run(policy_of('daily_budget = { facilities = "4" }\nw_budget = { facilities = "1" }'), 96)
    assert reasons(made, "facilities") == {"released": 8, "w_budget": 9, "budget": 79}


@pytest.mark.parametrize(
    ("budget", "rule"),
    [
        ('w_budget = { board = "3" }', "w_budget.board must belong to an audience that has an epsilon"),
        ('w_budget = { facilities = "0.4" }', "w_budget.facilities must pay for at least one release, got 0.4"),
        ('w_budget = { facilities = "0" }', "w_budget.facilities (name 'plain', line 52): must be a positive decimal"),
        ('refresh = "36h"', "refresh (name 'plain', line 52): must be whole days, such as '7d'"),
        ('refresh = "0d"', "refresh"),
        ('refresh = "367d"', "and at most 366"),
        ('daily_budget = { facilities = "0.1" }', "daily_budget.facilities must pay for at least one release, got 0.1"),
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused_at_load(budget: str, rule: str) -> None:
    with pytest.raises(PolicyError) as refused:
        policy_of(budget)
    assert rule in str(refused.value)
    assert "release[0]" in str(refused.value)


@pytest.mark.parametrize("w", [0, 2017])
def test_w_has_bounds(w: int) -> None:
    with pytest.raises(PolicyError, match=r"privacy\.w"):
        policy_of("", w=w)


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_a_sliding_budget_of_a_new_policy_counts_what_was_spent_under_the_one_before(restart: bool) -> None:
    """w = 5 before and w = 60 from then on: 40 of the windows before cost 0.5 each, and 22 is too little for 45."""
    before, after = (
        ReleaseStage(policy_of(f'w_budget = {{ facilities = "{budget}" }}', w=w), SITE, laboratory())
        for budget, w in (("9", 5), ("22", 60))
    )
    state, outcomes = before.initial(), []
    for number in range(120):
        stage = before if number < 40 else after
        if restart and number == 40:
            state = after.migrate(before.encode(state), {})
        state, made = stage.step(state, OccupancyWindow(SITE, FIRST + number * TICK, (0,) * 6, Fraction(1)))
        outcomes += paid([out for out in made if isinstance(out, Published)], "facilities")
    assert max(sum(outcomes[n : n + 60]) for n in range(61)) == 44
    assert outcomes.index(False) == 44


def test_a_sliding_budget_of_longer_ticks_counts_what_was_spent_under_shorter_ones() -> None:
    """2016 windows are three weeks under ticks of 15 minutes, and twelve under ticks of an hour."""
    before, after = (
        ReleaseStage(
            building(
                releases=counts(f'w_budget = {{ facilities = "{budget}" }}'), head="privacy.w = 2016\n", tick=tick
            ),
            SITE,
            laboratory(),
        )
        for budget, tick in (("9", "15min"), ("1", "1h"))
    )
    state, week = before.initial(), 7 * DAY
    hour = FIRST - TICK
    for end in (hour, hour + 4 * week):
        state, _ = before.step(state, OccupancyWindow(SITE, end, (0,) * 6, Fraction(1)))
    state, outcomes = after.migrate(before.encode(state), {}), []
    for end in (hour + 4 * week + HOUR, hour + 12 * week + HOUR):
        state, made = after.step(state, OccupancyWindow(SITE, end, (0,) * 6, Fraction(1)))
        outcomes += paid([out for out in made if isinstance(out, Published)], "facilities")
    assert outcomes == [False, True]


def of_zones(*, renamed: str = "", **zones: str) -> Policy:
    """Return a policy with a release of each name, of so many zones: three in a day pay for 6 windows of each.

    With ``renamed``, zone ``a`` has this id.
    """
    text = counts('daily_budget = { facilities = "3" }')
    releases = "".join(
        text.replace('"plain"', f'"{name}"').replace('{ kind = ["hall", "lobby"] }', f"{{ ids = {[*ids]} }}")
        for name, ids in zones.items()
    )
    return load_policy(policy_text(releases=releases).replace('id = "a"', f'id = "{renamed or "a"}"'))


def one_after_another(*policies: Any) -> Any:
    """Release 4 windows of one day under each policy, of which each costs 0.5; return the last one's outcomes."""
    state: Any = None
    got: list[bool] = []
    for number, policy in enumerate(policies):
        stage = ReleaseStage(policy, SITE, laboratory())
        if state is not None:
            before = {zone.id: zone.radios for zone in policies[number - 1].site[SITE].zones}
            state = stage.migrate(state, zones_now(before, policy.site[SITE].zones))
        state = stage.initial() if state is None else state
        ends = (FIRST + (4 * number + i) * TICK for i in range(4))
        state, made = scan(stage, [OccupancyWindow(SITE, end, (0,) * 6, Fraction(1)) for end in ends], state)
        last = f"/{policy.release[-1].name}/facilities/"
        got = [entry["outcome"] == "released" for entry in audit_of(made) if last in entry["release_id"]]
        state = stage.encode(state)
    return got


SPENT, FRESH = [True, True, False, False], [True] * 4


@pytest.mark.parametrize(
    ("policies", "last"),
    [
        ([of_zones(one="a"), of_zones(two="a")], SPENT),
        ([of_zones(one="ab"), of_zones(one="b", two="a")], SPENT),
        ([of_zones(one="a"), of_zones(other="c"), of_zones(two="a")], SPENT),
        ([of_zones(one="a"), of_zones(one="b"), of_zones(one="b", two="a")], SPENT),
        ([of_zones(two="a"), of_zones(two="b")], SPENT),
        ([of_zones(one="a"), of_zones(two="b")], FRESH),
        ([of_zones(one="ab"), of_zones(one="a", two="b"), of_zones(two="b", one="a")], [False] * 4),
        ([of_zones(one="a", other="ab"), of_zones(one="ab", other="a")], SPENT),
        ([of_zones(one="a"), of_zones(two="z", renamed="z")], SPENT),
    ],
)
def test_a_budget_does_not_begin_anew_with_a_name(policies: Any, last: Any) -> None:
    assert one_after_another(*policies) == last


# --- counts beside attributes -------------------------------------------------------------------------------


def test_windows_are_refused_where_counts_and_what_was_asked_would_reveal_too_much_together() -> None:
    """The day's attribute reaches e by itself; each window adds e^(3 devices x 0.5), and e^3 is the limit."""
    budgets, state = Budgets(building(), SITE), ReleaseState()
    state.queried_days.note(LocalDay("2026-03-02", FIRST - TICK, FIRST - TICK + DAY), "x", "arrival", 1.0)

    def kept(end: int, release: str = "plain", zone: str = "x") -> bool:
        line = ChargeLine("laplace", 1, (zone,))
        return budgets.record_within_factor(state, end, release, line, {"facilities": Fraction(1, 2)})

    assert [kept(FIRST + number * TICK) for number in range(3)] == [True, False, False]
    assert not kept(FIRST, "renamed"), "under whatever name"
    assert kept(FIRST + TICK, "other", "y"), "nothing was asked of this zone"
    assert kept(FIRST + DAY), "nothing was asked of this day"


# --- the ledger's unit --------------------------------------------------------------------------------------

LEAST = "0.000000001"
"""One nano-epsilon: the finest step of an epsilon and of a budget."""


@pytest.mark.parametrize("kind", ["daily_budget", "w_budget"])
@pytest.mark.parametrize(
    ("epsilon", "budget", "fits"),
    [
        ("0.500000001", "1", 1),  # two would cost 2e-9 more than there is
        ("0.5", "1", 2),
        ("0.5", "1.499999999", 2),
        ("0.499999999", "1.499999997", 3),
        (LEAST, "0.000000003", 3),
        ("33.333333334", "100", 2),
        ("33.333333333", "100", 3),
    ],
)
def test_a_budget_is_compared_to_the_nano_epsilon(kind: str, epsilon: str, budget: str, fits: int) -> None:
    policy = policy_of(f'{kind} = {{ facilities = "{budget}" }}', epsilon=f'facilities = "{epsilon}"')
    made = run(policy, 5)
    assert paid(made, "facilities") == [True] * fits + [False] * (5 - fits)
    if kind == "daily_budget":
        assert next(record["left"]["plain/facilities"] for record in account_of(made)) == fits - 1


# --- sums of the ledger ----------------------------------------------------------------------------------


def test_all_days_of_a_period_are_paid_by_its_budget() -> None:
    view = BudgetView({"r/a": Spending(days={2: 1, 3: 10, 4: 100, 5: 1000, 6: 10_000})})
    assert view.on_days(["r/a"], range(3, 6)) == 1110
    assert view.on_days(["r/b"], range(3, 6)) == 0


def test_both_ends_of_a_span_belong_to_it_also_after_a_late_window() -> None:
    view = BudgetView()
    for end, spent in ((10, 1), (20, 10), (30, 100)):
        view.apply(ChargeEvent("r", "a", "i", 1, end * MINUTE, 0, "1", spent, None))
    assert view.around(["r/a"], 10 * MINUTE, 10 * MINUTE) == 11
    assert view.around(["r/a"], 20 * MINUTE, 10 * MINUTE) == 110
    assert view.around(["r/a"], 20 * MINUTE, 9 * MINUTE) == 10


def test_an_account_forgets_days_and_windows_and_no_other_account_does() -> None:
    whole = Spending(days={1: 1, 2: 10, 3: 100}, windows=[ChargeRun(10, 10, 3, 7)])
    view = BudgetView({name: replace(whole) for name in ("r/a", "r/b")})
    view.forget("r/c", 4, 40)
    view.forget("r/a", 2, 10)
    rest = Spending(days={2: 10, 3: 100}, windows=[ChargeRun(20, 10, 2, 7)])
    assert view.accounts == {"r/a": rest, "r/b": whole}
