"""Figures of an engine: counters that exist before they count, and what the records of commits say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from connectors.monitoring.engine import ATTRIBUTE_DENIALS, COUNT_DENIALS, RELEASED, EngineMetrics
from connectors.monitoring.metric_values import Labels, MetricValues
from stream.records import SECOND, Micros, Published
from stream.release.validation import load_policy
from stream.schemas import AUDIT, LEAKAGE, parse_record, parse_time
from tests.support.small_building import ATTRIBUTES, COUNTS, EVENING, SITE, outputs_of, people, policy_text

TEXT = policy_text(COUNTS + ATTRIBUTES).replace('daily_budget = { board = "10" }', 'daily_budget = { board = "1" }')
POLICY = load_policy(TEXT)
RELEASES, REFUSALS, END = "tacet_releases_total", "tacet_refusals_total", "tacet_window_end_timestamp_seconds"
COUNTED = {(name, audience) for name, audiences in (
    ("grouped", ("facilities", "public", "board")), ("plain", ("facilities", "board")), ("smooth", ("public",)),
) for audience in audiences}  # fmt: skip
DAYS = {("office-day", "facilities"), ("office-day", "public")}


@pytest.fixture(scope="module")
def outputs() -> list[Published]:
    """What is published of a few hours, in which the budget of one release is used up."""
    return [out for out in outputs_of(POLICY, people(hours=4, devices=3)) if isinstance(out, Published)]


class Engine:
    """Figures of an engine without partitions, on a clock that stands still."""

    def __init__(self, now: Micros | None = None) -> None:
        self.values = MetricValues("run", lambda: EVENING)
        self.metrics = EngineMetrics(self.values, POLICY, list, None if now is None else lambda: now)

    def shown(self, name: str) -> dict[Labels, float]:
        (family,) = [each for each in self.values.families() if each.metric.name == name]
        return dict(family.values)


def test_every_counter_of_records_is_shown_before_it_counts() -> None:
    engine = Engine()
    assert engine.shown(RELEASES) == dict.fromkeys(((SITE, *each) for each in COUNTED | DAYS), 0)
    reasons = [((SITE, *each), COUNT_DENIALS) for each in COUNTED] + [
        ((SITE, *each), ATTRIBUTE_DENIALS) for each in DAYS
    ]
    assert engine.shown(REFUSALS) == {(*labels, why): 0 for labels, several in reasons for why in several}
    assert engine.shown("tacet_observations_total") == {(): 0}
    assert set(engine.shown("tacet_observations_dropped_total").values()) == {0}
    assert set(engine.shown("tacet_quarantined_total").values()) == {0}


def test_records_are_counted_by_their_outcome(outputs: list[Published]) -> None:
    engine, before = Engine(), Engine()
    entries = [parse_record(out.value) for out in outputs if out.topic == AUDIT]
    engine.metrics.committed(outputs)
    counted: Counter[Labels] = Counter()
    for each in entries:
        labels = each["site"], each["release"], each["audience"]
        counted[labels if each["outcome"] == RELEASED else (*labels, each["outcome"])] += 1
    assert {len(labels) for labels in counted} == {3, 4}, "some are released and some denied"
    for name in (RELEASES, REFUSALS):
        known = before.shown(name)
        assert engine.shown(name) == {labels: counted[labels] for labels in known}


def account(outputs: list[Published], place: int) -> tuple[Published, dict[str, Any]]:
    """Return the account of a window of counts, as a record and as what it says."""
    found = [(out, parse_record(out.value)) for out in outputs if out.topic == LEAKAGE]
    return [each for each in found if each[1]["kind"] == "counts"][place]


def test_the_newest_window_is_shown_and_a_window_that_comes_again_is_not(outputs: list[Published]) -> None:
    (first, early), (last, late) = account(outputs, 0), account(outputs, -1)
    ends = [parse_time(each["window_end"]) for each in (early, late)]
    assert ends[0] < ends[1]
    engine = Engine(ends[1] + POLICY.site[SITE].lateness + 7 * SECOND)

    def delays() -> int:
        (histogram,) = [each.histograms for each in engine.values.families() if each.metric.kind == "histogram"]
        return sum(histogram[SITE,].counts)

    assert delays() == 0
    for record in (last, first, last):
        engine.metrics.committed([record])
        assert engine.shown(END) == {(SITE,): ends[1] / SECOND}
        assert delays() == 1
