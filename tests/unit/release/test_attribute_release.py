"""Attributes of a day: guard, monthly limit, and the records of days that are not queried."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import product
from typing import Any

import pytest

import stream.release.attribute_stage
from stream.operators import scan
from stream.policy.attributes import AttributeRelease
from stream.records import DayAttribute, DayClosed, WindowCharges
from stream.release.account_stage import account_stage
from stream.release.attribute_stage import AttributePlan
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy
from stream.schemas import LEAKAGE, parse_time
from tests.support.small_building import SITE, audit_of, bodies, building, laboratory, policy_text, unchecked

ARRIVAL = {"0": "07:30", "1": "09:00", "2": "11:00"}
LEVEL = {"0": 0.1, "1": 0.7}
EARLY_STAYS_SHORT = {"00": 0.18, "01": 0.02, "10": 0.10, "11": 0.40, "20": 0.15, "21": 0.15}
"""Arrival before 8, by 10, late (sensitive); level low (sensitive), high: an early day is nearly always a low one."""
CUTS = 'cuts = { arrival = ["08:00", "10:01"] }'
PAIR = {"00": 0.30, "01": 0.20, "10": 0.10, "11": 0.40}


def day_release(
    joint: dict[str, float],
    *,
    model: str = "",
    extra: str = "",
    epsilon: tuple[str, str] = ("1", "0.5"),
    audiences: tuple[str] = ("facilities",),
) -> str:
    patterns = ", ".join(f'"{pattern}" = {p}' for pattern, p in joint.items())
    shares = [", ".join(f'{audience} = "{e}"' for audience in audiences) for e in epsilon]
    return f"""
[[release]]
name = "office-day"
query = "attributes"
zones = {{ kind = "office" }}
{extra}
model.joint = {{ {patterns} }}
{"model." + model if model else ""}
[release.attributes.arrival]
epsilon = {{ {shares[0]} }}
sensitive = {{ after = "10:00" }}
[release.attributes.occupancy_level]
epsilon = {{ {shares[1]} }}
sensitive = {{ below = 0.3 }}
"""


def closed(values: tuple[str | float, ...], day: str = "2026-03-03", zones: tuple[str, ...] = ("x",)) -> DayClosed:
    """Close a day with (arrival, level) in each of the zones."""
    following = (date.fromisoformat(day) + timedelta(days=1)).isoformat()
    end = parse_time(f"{following}T00:00:00-08:00")
    names = ("arrival", "occupancy_level")
    records = tuple(
        DayAttribute(SITE, zone, day, name, value, end)
        for zone in zones
        for name, value in zip(names, values)  # noqa: B905
    )
    return DayClosed(SITE, day, end, records)


def outcomes(
    plan: stream.release.attribute_stage.AttributePlan,
    values: tuple[str, float],
    coins: dict[str, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """Return (reason, shown value or None) of arrival and level when the coins fall like this."""
    monkeypatch.setattr(stream.release.attribute_stage, "released", lambda *_, attribute, **__: coins[attribute])
    made = list(plan.outcomes(closed(values), parse_time("2026-03-03T00:00:00-08:00"), {}))
    return {record.attribute: (outcome.reason, outcome.public) for record, outcome in made}


def factors_of(
    joint: dict[str, float], epsilons: tuple[float, float], seen: dict[str, Any], *, cuts: bool
) -> list[float]:
    """Add up Bayes' rule pattern by pattern: ln factor of arrival and level for what was seen."""
    sensitive = [{"2"} if cuts else {"0"}, {"0"}]
    classes: list[dict[Any, str]] = [
        {value: digit for digit, value in ARRIVAL.items()},
        {value: digit for digit, value in LEVEL.items()},
    ]
    sums = {(place, late): [0.0, 0.0] for place in (0, 1) for late in (False, True)}
    for pattern, p in joint.items():
        likelihood = 1.0
        for place, (reason, value) in enumerate(seen.values()):
            hidden = pattern[place] in sensitive[place]
            if reason is None and value is None:
                likelihood *= 1.0 if hidden else math.exp(-epsilons[place])
            elif reason is None:
                same = pattern[place] == classes[place][value] if cuts or place else not hidden
                likelihood *= -math.expm1(-epsilons[place]) * (same and not hidden)
        for place in (0, 1):
            cell = sums[place, pattern[place] in sensitive[place]]
            cell[0] += p
            cell[1] += p * likelihood
    found = []
    for place in (0, 1):
        (before1, after1), (before0, after0) = sums[place, False], sums[place, True]
        ratio = math.inf if after1 == 0 else (after0 / after1) / (before0 / before1)
        found.append(-math.inf if ratio == 0 else math.log(ratio))
    return found


def reachable(
    joint: dict[str, float], monkeypatch: pytest.MonkeyPatch, *, cuts: bool, extra: str = ""
) -> Iterator[tuple[Any, ...]]:
    """Yield what is seen, and its ln factors, for every day with probability and all falls of the coins."""
    release = day_release(joint, model=CUTS if cuts else "", extra=extra)
    policy = building(releases=release)
    [query] = policy.release
    assert isinstance(query, AttributeRelease)
    plan = AttributePlan(policy, query, SITE, laboratory())
    for pattern, *fall in product(joint, (False, True), (False, True)):
        arrival = ARRIVAL[pattern[0]] if cuts else ("11:00" if pattern[0] == "0" else "09:00")
        coins = dict(zip(("arrival", "occupancy_level"), fall, strict=True))
        seen = outcomes(plan, (arrival, LEVEL[pattern[1]]), coins, monkeypatch)
        yield seen, factors_of(joint, (1.0, 0.5), seen, cuts=cuts)


@pytest.mark.parametrize("guard", ["static", "adaptive"])
@pytest.mark.parametrize(("joint", "cuts"), [(PAIR, False), (EARLY_STAYS_SHORT, True)], ids=["pair", "values"])
@pytest.mark.parametrize("cap", [0.3, 0.55, 1.05, 1.3, 2.5])
def test_no_outcome_that_can_happen_passes_the_cap(
    monkeypatch: pytest.MonkeyPatch, guard: str, joint: dict[str, float], cuts: bool, cap: float
) -> None:
    extra = f'cap = {cap}\nguard = "{guard}"'
    worst = max(max(found) for _, found in reachable(joint, monkeypatch, cuts=cuts, extra=extra))
    assert worst <= cap + 1e-9


@pytest.mark.parametrize(("joint", "cuts", "largest"), [(PAIR, False, 1.2), (EARLY_STAYS_SHORT, True, 2.9)])
def test_without_a_guard_the_same_days_pass_those_caps(
    monkeypatch: pytest.MonkeyPatch, joint: dict[str, float], cuts: bool, largest: float
) -> None:
    assert max(max(found) for _, found in reachable(joint, monkeypatch, cuts=cuts)) > largest


def test_a_blocked_value_is_not_shown_whatever_its_coin_says(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list(reachable(PAIR, monkeypatch, cuts=False, extra="cap = 0.3"))
    blocked = [value for seen, _ in made for reason, value in seen.values() if reason == "guard"]
    assert len(blocked) >= len(made)
    assert set(blocked) == {None}


def test_the_guard_looks_at_values_and_not_only_at_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken together the two open classes of arrival say little about the level; the early one says much."""
    two_classes = {"00": 0.15, "01": 0.15, "10": 0.28, "11": 0.42}  # arrival sensitive or not
    coarse = [seen for seen, _ in reachable(two_classes, monkeypatch, cuts=False, extra="cap = 1.6")]
    fine = [seen for seen, _ in reachable(EARLY_STAYS_SHORT, monkeypatch, cuts=True, extra="cap = 1.6")]
    assert {seen["arrival"][0] for seen in coarse} == {None}
    assert {seen["arrival"][0] for seen in fine} == {"guard"}


def test_the_adaptive_guard_asks_where_the_static_one_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(guard: str) -> int:
        found = reachable(EARLY_STAYS_SHORT, monkeypatch, cuts=True, extra=f'cap = 2.7\nguard = "{guard}"')
        return sum(reason is None for seen, _ in found for reason, _ in seen.values())

    assert asked("adaptive") > asked("static")


def test_the_adaptive_guard_decides_by_what_was_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was withheld, equal outcomes of arrival lead to the same decision about the level."""
    decisions: dict[Any, Any] = {}
    for seen, _ in reachable(EARLY_STAYS_SHORT, monkeypatch, cuts=True, extra='cap = 2.7\nguard = "adaptive"'):
        decisions.setdefault(seen["arrival"], set()).add(seen["occupancy_level"][0])
    assert all(len(reasons) == 1 for reasons in decisions.values())
    assert set.union(*decisions.values()) == {None, "guard"}


def run(policy: Policy, days: list[DayClosed]) -> list[Any]:
    return scan(ReleaseStage(policy, SITE, laboratory()), days)[1]


def test_a_blocked_record_costs_nothing_and_looks_like_a_withheld_one() -> None:
    policy = building(releases=day_release(PAIR, extra="cap = 1.05"))
    made = run(policy, [closed(("11:00", 0.1))])
    withheld, blocked = bodies(made, "private")
    assert (withheld["reason"], blocked["reason"]) == (None, "guard")
    assert list(withheld) == list(blocked)
    assert not withheld["released"]
    assert not blocked["released"]
    assert "value" not in blocked
    assert (withheld["spend"], blocked["spend"]) == ("1", "0")
    assert [(entry["outcome"], entry["nano"]) for entry in audit_of(made)] == [("released", 10**9), ("guard", 0)]


def test_a_blocked_record_is_no_evidence_and_its_attribute_is_still_watched() -> None:
    policy = building(releases=day_release(PAIR, extra="cap = 1.05"))
    spent = [out for out in run(policy, [closed(("11:00", 0.1))]) if isinstance(out, WindowCharges)]
    _, [record] = scan(account_stage(policy, SITE, laboratory=True), spent)
    [report] = bodies([record], LEAKAGE)
    level = report["attributes"]["2026-03-03/x/occupancy_level"]
    assert level["theorem_1"]["facilities"] == 1
    w = math.exp(-1)
    expected = ((0.3 + 0.1 * w) / 0.4) / ((0.2 + 0.4 * w) / 0.6)  # Theorem 2: arrival withheld
    assert level["exact"]["facilities"] == pytest.approx(expected, abs=1e-9)
    assert report["refused"] == [
        {"release": "office-day/facilities", "reason": "guard", "attribute": "occupancy_level"}
    ]


def test_an_outcome_that_the_model_excludes_stops_nothing() -> None:
    never_together = {"00": 0.4, "01": 0.3, "10": 0.3}
    text = day_release(never_together, epsilon=("20", "20"), extra='cap = 30\nguard = "adaptive"')
    policy = unchecked(policy_text(text))
    made = run(policy, [closed(("09:00", 0.7), zones=("x", "y"))])
    assert {body["reason"] for body in bodies(made, "private")} <= {None, "guard"}
    policy = unchecked(policy_text(day_release(never_together, epsilon=("20", "20"))))
    spent = [out for out in run(policy, [closed(("09:00", 0.7))]) if isinstance(out, WindowCharges)]
    _, [record] = scan(account_stage(policy, SITE, laboratory=True), spent)
    [report] = bodies([record], LEAKAGE)
    arrival = report["attributes"]["2026-03-03/x/arrival"]
    assert arrival["exact"] == {"facilities": None, "all": None}
    assert arrival["with_counts"]["facilities"] == arrival["bound"]["facilities"] == 0


def month(policy: Policy, days: list[int] | range, keys: Any = None) -> list[Any]:
    """Return each day's reasons; the stage is taken down and set up again between days."""
    first, report = date(2026, 3, 2), []
    stage = ReleaseStage(policy, SITE, keys or laboratory())
    state = stage.initial()
    for number in days:
        day = (first + timedelta(days=number)).isoformat()
        state, made = stage.step(state, closed(("11:00", 0.1), day, zones=("x", "y")))
        report.append({body["reason"] for body in bodies(made, "private")})
        state = ReleaseStage(policy, SITE, laboratory()).decode(stage.encode(state))
    return report


def test_attributes_are_asked_on_so_many_days_of_any_thirty_also_after_restarts() -> None:
    policy = building(releases=day_release(PAIR, extra="days_per_month = 3"))
    report = month(policy, [*range(35), 60])
    query = [number for number, reasons in zip([*range(35), 60], report, strict=True) if reasons == {None}]
    assert query == [0, 1, 2, 30, 31, 32, 60]
    assert report[3] == {"month"}


def test_days_on_which_nothing_was_asked_do_not_count_against_the_month() -> None:
    policy = building(releases=day_release(PAIR, extra="days_per_month = 1\ncap = 0.1"))
    assert month(policy, range(3)) == [{"guard"}] * 3


def test_a_day_beyond_the_month_costs_nothing() -> None:
    policy = building(releases=day_release(PAIR, extra="days_per_month = 1"))
    made = run(policy, [closed(("09:00", 0.7), f"2026-03-0{n}") for n in (3, 4)])
    assert [(entry["outcome"], entry["nano"] > 0) for entry in audit_of(made)] == [("released", True)] * 2 + [
        ("month", False)
    ] * 2
