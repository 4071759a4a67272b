"""One device's privacy day, from what a connector hears to what noise is added to: how many values it changes.

Random histories go through an ingest or a recording, through a partition that is taken over, gets other policies and
loses part of its log, and through backfills at further attempts. What noise is drawn for is read where it is drawn. For
each price that was charged, a device's day taken away changes at most K values of each level, one a tick, and at most
2K when a part of it is another; what is charged, and what is released, never changes. What is claimed is proved, so no
test can alarm falsely; that the bounds are reached shows that the histories are wild enough.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest

from stream.accounting.account import Account
from stream.encoding import encode_message
from stream.engine.backfill import Backfill
from stream.engine.outputs import OutputRecord
from stream.engine.partition import PartitionEngine
from stream.errors import UsageError
from stream.mechanisms.base import Values, whole
from stream.mechanisms.exact import Ints
from stream.pipeline import Options
from stream.policy.privacy_days import PrivacyDays
from stream.records import HOUR, Heartbeat, Micros, ObservationBatch, OccupancyWindow
from stream.release.count_plan import ChangePlan, CountPlan, TreePlan
from stream.release.counts import CountReleases
from stream.release.state import ReleaseState
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, parse_time
from stream.sensing.contribution import BoundedCounts
from tests.laws.test_day_contribution import (
    IDS,
    SCENARIOS,
    TICK,
    Forgetful,
    K,
    Scenario,
    Uncut,
    drawn,
    half_replaced,
    heard,
    one_changed,
    recorded,
    within,
)
from tests.support.day_policies import day_on, day_release, day_site, shared
from tests.support.small_building import SITE, laboratory, policy_text

HISTORIES = 12
FEW = HISTORIES // 2
"""Histories of a scenario in the ordinary run."""
SAMPLE = (0, 3, 4)
"""Scenarios of the ordinary run, of 24, 23 and 25 hours; the others are left to the night."""
KEYS = laboratory()
BY_WINDOW = """
[[release]]
name = "window"
query = "count"
mechanism = "laplace"
epsilon = { public = "1" }
"""
Walks = Sequence[Sequence[tuple[Micros, str]]]


class Run(NamedTuple):
    """What one price pays for: a run of the counters through a privacy day."""

    release: str
    attempt: int
    day: int


class Value(NamedTuple):
    """One value that noise is added to."""

    level: int
    tick: Micros
    node: str


class History(NamedTuple):
    """What came of a log."""

    values: Mapping[Run, Mapping[Value, int]]
    """Without noise."""
    charged: Counter[Run]
    """How often the first audience was charged for it."""
    outcomes: Mapping[str, str]
    """Release id -> what became of it."""


class Course(NamedTuple):
    """What happens besides the walks."""

    live: Any
    """What the engine reads: an ingest's or a recording's messages."""
    first: Micros | None
    """The first window that is released live."""
    takeovers: Mapping[int, int]
    """After which heartbeats another worker goes on, and under which of the policies."""
    losses: frozenset[int]
    """After which heartbeats the messages up to the next but one are lost."""
    late: tuple[tuple[int, Micros, Micros], ...]
    """Attempt, first and last window of each backfill."""


def policies(day_starts: str, residents: str) -> list[Policy]:
    """Return the policy to begin with; then with another name, price, contribution, and without a zone."""

    def made(name: str = "day", epsilon: str = "2", contribution: str = "150min") -> str:
        site = day_site(contribution, day_starts=day_starts, residents=residents)
        by_day = day_release(name, public=epsilon, facilities="4", more=shared(zone="0.5", building="0.5"))
        text = policy_text(by_day + BY_WINDOW, tick="30min", site=site)
        return text.replace('validity = "10min"', 'validity = "70min"')

    base = made()
    zones = base.split("[[site.dbh.zones]]\n")
    fewer = "[[site.dbh.zones]]\n".join(zone for zone in zones if not zone.startswith('id = "c"'))
    texts = [base, made(name="other"), made(epsilon="1"), made(contribution="90min"), fewer]
    return [load_policy(text) for text in texts]


def scenario(day_starts: str, date: str, residents: str) -> tuple[Scenario, list[Policy]]:
    known = policies(day_starts, residents)
    return Scenario(known[0], (), day_on(day_starts, date)), known


def drawn_course(rng: random.Random, held: Scenario) -> Course:
    def window(low: Micros, high: Micros) -> Micros:
        return rng.randrange(low // TICK + 1, high // TICK + 1) * TICK

    begin, end = held.day.start - 5 * HOUR, held.day.end + 3 * HOUR
    first = window(begin, held.day.end) if rng.random() < 0.5 else None
    late = list[tuple[int, Micros, Micros]]()
    for attempt in rng.choice([(), (1,), (2,), (1, 2, 2), (2, 2), (2, 3)]):
        low, high = (begin, first - TICK) if attempt == 1 and first is not None else (begin, end)
        if late and attempt == late[-1][0]:  # where both have the same window it has to be the same release
            low = late[-1][2]
        if low + TICK < high and (attempt > 1 or first is not None):
            at = window(low, high)
            late.append((attempt, at, window(at - TICK, high)))
    takeovers = {rng.randrange(100): rng.choice([0, 0, 0, 1, 2, 3, 4]) for _ in range(rng.choice([0, 0, 1, 3]))}
    losses = frozenset([rng.randrange(20, 90)] if rng.random() < 0.15 else [])
    return Course(rng.choice([recorded, heard]), first, takeovers, losses, tuple(late))


# ---- the way of a history ------------------------------------------------------------------------------


class Ear:
    """Hears what noise is drawn for, in its place: the noise and the filters after it take most of the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.values: dict[Run, dict[Value, int]] = {}
        perturb = CountReleases._perturb

        def listening(
            stage: CountReleases, state: ReleaseState, plan: CountPlan, window: OccupancyWindow, key_day: int,
            counts: Ints, paying: set[Fraction],
        ) -> dict[Fraction, Values]:  # fmt: skip
            if plan.day_prices is None or not paying or not isinstance(plan, TreePlan):
                return perturb(stage, state, plan, window, key_day, counts, paying)
            self._hear(stage, plan, window, counts)
            if isinstance(plan, ChangePlan):  # what goes on under another policy
                stage._summed(state, plan, window)
                for epsilon, mechanism in plan.mechanisms.items():
                    state.operator_states.setdefault(plan.state_name(epsilon), mechanism.initial())
            nothing = np.zeros(plan.tree.nodes, np.int64)
            return dict.fromkeys(paying, Values(nothing, nothing, whole(nothing)))

        monkeypatch.setattr(CountReleases, "_perturb", listening)

    def _hear(self, stage: CountReleases, plan: CountPlan, window: OccupancyWindow, counts: Ints) -> None:
        assert isinstance(plan, TreePlan)
        tree, day = plan.tree, window.privacy_day
        assert day is not None
        run = Run(plan.release.name, stage._writer.attempt, day.number)
        nodes = counts if plan.release.by_changes else tree.sums(counts)
        found = {
            Value(level, window.window_end, name): int(nodes[place])
            for level, (names, here) in enumerate(zip(tree.names, tree.levels, strict=True))
            for name, place in zip(names, range(len(nodes))[here], strict=True)
        }
        known = self.values.setdefault(run, {})
        assert not known.keys() & found.keys(), "no value is released twice at one attempt"
        known |= found


class Book:
    """What has been released so far."""

    def __init__(self) -> None:
        self.emitted = list[OutputRecord]()

    def record(self, release_id: str) -> bytes | None:
        return next((out.value for out in self.emitted if out.topic != AUDIT and out.id == release_id), None)

    def entries(self, site: str) -> list[dict[str, Any]]:
        return [body for out in self.emitted if out.topic == AUDIT for body in [orjson.loads(out.value)]]


def history(ear: Ear, held: Scenario, known: list[Policy], walks: Walks, course: Course) -> History:
    """Return what comes of walks, from five hours before the day until five hours after it."""
    ear.values, book = {}, Book()
    span = held.day.start - 5 * HOUR, held.day.end + 5 * HOUR
    options, policy = Options(first_window=course.first), known[0]
    partition = PartitionEngine(policy, KEYS, options)
    beats, lost_until = 0, -1
    for offset, message in enumerate(course.live(held, walks, *span)):
        beats += isinstance(message, Heartbeat)
        if beats <= lost_until:
            continue
        if lost_until >= 0:
            partition.resume_after_loss(offset)
            lost_until = -1
        book.emitted += partition.process(offset, None, encode_message(message))
        if isinstance(message, Heartbeat) and beats in course.losses:
            lost_until = beats + 4
        if isinstance(message, Heartbeat) and beats in course.takeovers:
            policy = known[course.takeovers[beats]]
            partition = taken_over(partition, policy, options, offset)
    for attempt, first, last in course.late:
        snapshot = partition.snapshot(10**6, 0)
        try:
            book.emitted += late(partition, policy, known, book, recorded(held, walks, *span), attempt, first, last)
        except UsageError:  # by ledger and policy alone
            partition = restored(snapshot, policy, options)
    return History(ear.values, *booked(book, held))


def taken_over(partition: PartitionEngine, policy: Policy, options: Options, offset: int) -> PartitionEngine:
    return restored(partition.snapshot(offset + 1, 0), policy, options)


def restored(snapshot: bytes, policy: Policy, options: Options) -> PartitionEngine:
    partition = PartitionEngine(policy, KEYS, options, accept_policy=True)
    partition.restore(snapshot)
    return partition


def late(
    partition: PartitionEngine, policy: Policy, known: list[Policy], book: Book,
    log: Sequence[ObservationBatch | Heartbeat], attempt: int, first: Micros, last: Micros,
) -> list[OutputRecord]:  # fmt: skip
    """Return what a backfill of the whole recording releases of these windows."""
    names = ["other" if policy is known[1] else "day"] if attempt > 1 else []
    options = Options(attempt=attempt, first_window=first, last_window=last)
    settled = Backfill(policy, KEYS, partition, book, options, known, names)
    for message in log:
        settled.process(message)
    settled.close()
    return settled.made.emitted


def booked(book: Book, held: Scenario) -> tuple[Counter[Run], dict[str, str]]:
    """Return what the ledger says: how often each run was charged, and what became of each release."""
    site = held.policy.site[SITE]
    days = PrivacyDays(site.day_starts or "", site.timezone)
    charged, outcomes = Counter[Run](), dict[str, str]()
    for entry in book.entries(SITE):
        assert entry["release_id"] not in outcomes
        outcomes[entry["release_id"]] = entry["outcome"]
        if entry["nano"] and entry["audience"] == "public" and entry["release"] != "window":
            charged[Run(entry["release"], entry["attempt"], days.at(parse_time(entry["window_end"])).number)] += 1
    return charged, outcomes


def changed(one: History, other: History) -> dict[tuple[Run, int], list[Value]]:
    """Return the values that differ, each as often as it differs, of each price and level."""
    assert (one.charged, one.outcomes) == (other.charged, other.outcomes), "who is charged for what says nothing"
    assert one.values.keys() == other.values.keys()
    found = dict[tuple[Run, int], list[Value]]()
    for run, values in one.values.items():
        assert values.keys() == other.values[run].keys()
        for value, count in values.items():
            often = abs(count - other.values[run][value])
            if often:
                found.setdefault((run, value.level), []).extend([value] * often)
    return found


# ---- the law -------------------------------------------------------------------------------------------


@pytest.fixture
def ear(monkeypatch: pytest.MonkeyPatch) -> Ear:
    """Without the account, which is told of charges only and takes half of the time."""
    monkeypatch.setattr(Account, "step", lambda _, state, item: (state, []))
    return Ear(monkeypatch)


@pytest.mark.parametrize(
    ("at", "histories"),
    [
        *(pytest.param(at, FEW, id=IDS[at]) for at in SAMPLE),
        *(pytest.param(at, HISTORIES, id=f"{IDS[at]}, more", marks=pytest.mark.long) for at in range(len(SCENARIOS))),
    ],
)
def test_a_devices_day_changes_at_most_k_values_of_a_level_for_each_price(ear: Ear, at: int, histories: int) -> None:
    rng, (held, known), most = random.Random(at), scenario(*SCENARIOS[at]), Counter[int]()
    for _ in range(histories):
        mine, other, course = drawn(rng, held.day), drawn(rng, held.day), drawn_course(rng, held)
        with_it = history(ear, held, known, [mine, other], course)
        without = history(ear, held, known, [within(held.day, mine, inside=False), other], course)
        assert set(with_it.charged.values()) <= {1}, "a run is charged once"
        assert with_it.charged.keys() == with_it.values.keys(), "nothing is released of a day that was not charged"
        for (run, level), values in changed(with_it, without).items():
            assert run.day == held.day.number
            assert len(values) <= K
            assert len({value.tick for value in values}) == len(values), "one a tick"
            most[level] = max(most[level], len(values))
    assert most == {0: K, 1: K}


@pytest.mark.parametrize(
    ("sample", "histories"),
    [(SAMPLE, FEW // 2), pytest.param(range(len(SCENARIOS)), FEW, marks=pytest.mark.long)],
    ids=["few", "many"],
)
def test_a_part_of_the_day_that_is_another_changes_at_most_2k_values_of_a_level(
    ear: Ear, sample: Sequence[int], histories: int
) -> None:
    most = Counter[str]()
    for at in sample:
        rng, (held, known) = random.Random(100 + at), scenario(*SCENARIOS[at])
        for _ in range(histories):
            mine, course = drawn(rng, held.day), drawn_course(rng, held)
            before = history(ear, held, known, [mine], course)
            parts = {"one": one_changed(rng, held.day, mine), "half": half_replaced(rng, held.day, mine)}
            for part, other in parts.items():
                for (run, _), values in changed(before, history(ear, held, known, [other], course)).items():
                    assert run.day == held.day.number
                    assert len(values) <= 2 * K
                    most[part] = max(most[part], len(values))
    assert most["half"] == 2 * K
    assert most["one"] > 2


# ---- what must be found --------------------------------------------------------------------------------


@pytest.mark.parametrize(("variant", "seed"), [(Uncut, 403), (Forgetful, 400)])
def test_the_histories_find_counters_that_break_the_bound(
    ear: Ear, variant: type[BoundedCounts], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seeds find them within a few histories."""
    monkeypatch.setattr("stream.sensing.occupancy.BoundedCounts", variant)
    rng, (held, known) = random.Random(seed), scenario(*SCENARIOS[1])
    assert any(_too_many(rng, ear, held, known) for _ in range(5 * HISTORIES))


def _too_many(rng: random.Random, ear: Ear, held: Scenario, known: list[Policy]) -> bool:
    mine, course = drawn(rng, held.day), drawn_course(rng, held)
    with_it = history(ear, held, known, [mine], course)
    without = history(ear, held, known, [within(held.day, mine, inside=False)], course)
    return max(map(len, changed(with_it, without).values()), default=0) > K


def test_the_histories_find_an_attempt_that_buys_two_runs(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backfill, "_refuse_second_charge", lambda *_: None)
    rng, (held, known) = random.Random(500), scenario(*SCENARIOS[1])
    found = (history(ear, held, known, [drawn(rng, held.day)], drawn_course(rng, held)) for _ in range(5 * HISTORIES))
    assert any(max(each.charged.values(), default=0) > 1 for each in found)
