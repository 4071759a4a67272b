"""One device's privacy day where changes are paid for: how often it changes the counts that noise is added to.

The histories are those of ``test_day_neighbours``: an ingest or a recording, takeovers, other policies, losses and
backfills. For each price that was charged, a device's day taken away changes the differences of each level's counts at
most 2 V times, by one each, that alternate at each node and begin with a visit; at most 4 V times when a part of it is
another. The sums that noise is added to change by no more than D' in all, and than √3.11 D' where a part is another.
What is charged, and what is released, never changes. What is claimed is proved, so no test can alarm falsely.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pytest

from stream.accounting.account import Account
from stream.accounting.day_charges import REPLACED
from stream.mechanisms.changes.factor import factor_of
from stream.mechanisms.changes.sensitivity import SEVERAL, squared_sensitivity
from stream.records import LevelCounts, Micros, PrivacyDay
from stream.release.validation import Policy, load_policy
from stream.sensing.visits import OUT, Visit, VisitCounter, VisitCounts
from tests.laws.test_day_contribution import SCENARIOS, TICK, Scenario, drawn, half_replaced, one_changed, within
from tests.laws.test_day_neighbours import BY_WINDOW, Ear, History, Run, drawn_course, history
from tests.support.change_worlds import factor
from tests.support.day_policies import change_release, day_on, shared, visit_site
from tests.support.small_building import policy_text

V = 2
MORE_VISITS = 3
"""Number of the policy under which a device makes one visit more."""
HISTORIES = 12
FEW = HISTORIES // 2
"""Histories of a scenario in the ordinary run."""
BUILDING = 2
"""Number of the level."""
DAYS = sorted({(day_starts, date) for day_starts, date, _ in SCENARIOS})
IDS = [f"{day_starts} on {date}" for day_starts, date in DAYS]
SAMPLE = [DAYS.index(each) for each in (("04:00", "2026-03-04"), ("00:00", "2026-03-08"), ("04:00", "2026-10-31"))]
"""Days of the ordinary run, of 24, 23 and 25 hours; the others are left to the night."""
Change = tuple[Micros, int]
"""Window, and the difference of the counts with and without the device, less that of the window before."""


class Node(NamedTuple):
    """A node of a run."""

    run: Run
    level: int
    name: str


def policies(day_starts: str) -> list[Policy]:
    """Return the policy to begin with; then with another name, price, number of visits, and without a zone."""

    def made(name: str = "day", epsilon: str = "2", visits: int = V) -> str:
        site = visit_site(day_starts=day_starts, visits=visits, gap="60min")
        levels = shared(zone="0.25", floor="0.25", building="0.5")
        moves = change_release(name, public=epsilon, facilities="4", more=levels)
        text = policy_text(moves + BY_WINDOW, tick="30min", site=site)
        return text.replace('validity = "10min"', 'validity = "70min"')

    base = made()
    zones = base.split("[[site.dbh.zones]]\n")
    fewer = "[[site.dbh.zones]]\n".join(zone for zone in zones if not zone.startswith('id = "c"'))
    return [load_policy(text) for text in (base, made(name="other"), made(epsilon="1"), made(visits=V + 1), fewer)]


def scenario(day_starts: str, date: str) -> tuple[Scenario, list[Policy]]:
    known = policies(day_starts)
    return Scenario(known[0], (), day_on(day_starts, date)), known


@pytest.fixture
def ear(monkeypatch: pytest.MonkeyPatch) -> Ear:
    """Without the account, which is told of charges only."""
    monkeypatch.setattr(Account, "step", lambda _, state, item: (state, []))
    return Ear(monkeypatch)


def changes(one: History, other: History) -> dict[Node, list[Change]]:
    """Return the changes of each node's difference, in the order of windows, without those that are 0."""
    assert (one.charged, one.outcomes) == (other.charged, other.outcomes), "who is charged for what says nothing"
    assert one.values.keys() == other.values.keys()
    found: dict[Node, list[Change]] = {}
    for run, values in one.values.items():
        assert values.keys() == other.values[run].keys()
        before: Counter[tuple[int, str]] = Counter()
        for value in sorted(values, key=lambda each: each.tick):
            more = values[value] - other.values[run][value]
            step, before[value.level, value.node] = more - before[value.level, value.node], more
            if step:
                found.setdefault(Node(run, value.level, value.node), []).append((value.tick, step))
    return found


def by_level(found: Mapping[Node, list[Change]]) -> Counter[tuple[Run, int]]:
    """Return the number of changes of each run and level, all nodes together."""
    most: Counter[tuple[Run, int]] = Counter()
    for node, steps in found.items():
        most[node.run, node.level] += sum(abs(step) for _, step in steps)
    return most


def squares(found: Mapping[Node, list[Change]], day: PrivacyDay) -> Iterator[float]:
    """Yield |C'd|² of each run and level, all nodes together and at all ticks of the day, in parts of D'²."""
    totals: Counter[tuple[Run, int]] = Counter()
    weights, ticks = factor(V, 50), (day.end - day.start) // TICK
    for node, steps in found.items():
        places = [((end - day.start) // TICK - 1, step) for end, step in steps]
        for tick in range(ticks):
            totals[node.run, node.level] += sum(weights[tick - at] * step for at, step in places if at <= tick) ** 2
    for (_, level), total in totals.items():
        yield total / squared_sensitivity(factor_of(V, TICK), 1 if level == BUILDING else SEVERAL)


def alternates(steps: list[Change]) -> bool:
    return [step for _, step in steps] == [(1, -1)[place % 2] for place in range(len(steps))]


# ---- the law -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "histories"),
    [
        *(pytest.param(at, FEW, id=IDS[at]) for at in SAMPLE),
        *(pytest.param(at, HISTORIES, id=f"{IDS[at]}, more", marks=pytest.mark.long) for at in range(len(DAYS))),
    ],
)
def test_a_devices_day_changes_each_level_at_most_twice_a_visit_for_each_price(
    ear: Ear, at: int, histories: int
) -> None:
    rng, (stored, known), most = random.Random(at), scenario(*DAYS[at]), Counter[int]()
    for _ in range(histories):
        mine, other, course = drawn(rng, stored.day), drawn(rng, stored.day), drawn_course(rng, stored)
        with_it = history(ear, stored, known, [mine, other], course)
        without = history(ear, stored, known, [within(stored.day, mine, inside=False), other], course)
        assert set(with_it.charged.values()) <= {1}, "a run is charged once"
        assert with_it.charged.keys() == with_it.values.keys(), "nothing is released of a day that was not charged"
        found = changes(with_it, without)
        assert all(node.run.day == stored.day.number and alternates(steps) for node, steps in found.items())
        for (_, level), number in by_level(found).items():
            assert number <= 2 * (V + 1 if MORE_VISITS in course.takeovers.values() else V)
            most[level] = max(most[level], number)
        if MORE_VISITS not in course.takeovers.values():
            assert max(squares(found, stored.day), default=0) <= 1
    assert most[0] >= 2 * V
    assert most.keys() == {0, 1, 2}


@pytest.mark.parametrize(
    ("sample", "histories"),
    [(SAMPLE, FEW // 2), pytest.param(range(len(DAYS)), FEW, marks=pytest.mark.long)],
    ids=["few", "many"],
)
def test_a_part_of_the_day_that_is_another_changes_each_level_at_most_four_times_a_visit(
    ear: Ear, sample: Sequence[int], histories: int
) -> None:
    most = Counter[str]()
    for at in sample:
        rng, (stored, known) = random.Random(100 + at), scenario(*DAYS[at])
        for _ in range(histories):
            mine, course = drawn(rng, stored.day), drawn_course(rng, stored)._replace(takeovers={})
            before = history(ear, stored, known, [mine], course)
            parts = {"one": one_changed(rng, stored.day, mine), "half": half_replaced(rng, stored.day, mine)}
            for part, other in parts.items():
                found = changes(before, history(ear, stored, known, [other], course))
                assert all(node.run.day == stored.day.number for node in found)
                assert max(squares(found, stored.day), default=0) <= REPLACED[2 * V]
                for number in by_level(found).values():
                    assert number <= 4 * V
                    most[part] = max(most[part], number)
    assert most["half"] > 2 * V
    assert most["one"] > 2


# ---- what must be found --------------------------------------------------------------------------------


class Restless(VisitCounts):
    """Gives a device that is out another visit."""

    def count(self, tally: VisitCounter, tick: Micros, present: Mapping[str, tuple[int, Micros]]) -> LevelCounts | None:
        for level in tally.levels:
            for device, visit in level.items():
                if visit.node == OUT and visit.made == self.bound.visits:
                    level[device] = Visit(visit.made - 1)
        return super().count(tally, tick, present)


class Crowded(VisitCounts):
    """Lets the visits to a level end when many devices are there."""

    def count(self, tally: VisitCounter, tick: Micros, present: Mapping[str, tuple[int, Micros]]) -> LevelCounts | None:
        few = present if len(present) < 2 else dict(sorted(present.items())[:1])
        return super().count(tally, tick, few)


@pytest.mark.parametrize(("variant", "seed"), [(Restless, 401), (Crowded, 403)])
def test_the_histories_find_counters_that_break_the_bound(
    ear: Ear, variant: type[VisitCounts], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seeds find them within a few histories."""
    monkeypatch.setattr("stream.sensing.occupancy.VisitCounts", variant)
    rng, (stored, known) = random.Random(seed), scenario(*DAYS[1])
    assert any(_breaks(each, stored) for each in _pairs(rng, ear, stored, known))


def _pairs(
    rng: random.Random, ear: Ear, held: Scenario, known: list[Policy]
) -> Iterator[dict[Node, list[Change]]]:  # fmt: skip
    for _ in range(5 * HISTORIES):
        mine, other = drawn(rng, held.day), drawn(rng, held.day)
        course = drawn_course(rng, held)._replace(takeovers={})
        with_it = history(ear, held, known, [mine, other], course)
        yield changes(with_it, history(ear, held, known, [within(held.day, mine, inside=False), other], course))


def _breaks(found: Mapping[Node, list[Change]], held: Scenario) -> bool:
    return max(by_level(found).values(), default=0) > 2 * V or any(
        node.run.day != held.day.number or not alternates(steps) for node, steps in found.items()
    )
