"""One device's privacy day through the whole pipeline: what its removal changes of what runs read, and what that tells.

What a stream reads is taken where noise is drawn for it, on a day with a device and on the same day without it. Of the
answers that were published, the exact likelihood on both days is worked out run by run. What is claimed is proved, so
no test can alarm falsely; that bounds are reached shows that the walks are wild enough.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import orjson
import pytest

from stream.accounting.account import Account
from stream.mechanisms.sparse_vector import Runs, SparseVector, SparseVectorInput, SparseVectorOutput
from stream.records import MINUTE, Micros, PrivacyDay, Published
from stream.release.thresholds import RunPlan, run_plans
from stream.release.validation import Policy
from stream.schemas import parse_time
from tests.support.day_policies import day_site
from tests.support.small_building import SITE, Seen, account_of, bodies, building, days_of, mac, outputs_of, people

STREAMS = """
[[release]]
name = "zones"
query = "threshold"
zones = {{ kind = ["hall", "lobby"] }}
threshold = 5
miss = "0.3"
hysteresis = 1
cooldown = "15min"
events = 3
epsilon = {{ public = "{price}" }}

[[release]]
name = "whole"
query = "threshold"
alert = "below"
level = "building"
threshold = 12
miss = "0.3"
cooldown = "30min"
events = 2
epsilon = {{ public = "{price}" }}
"""
K = 6
"""Ticks of 15 minutes at which one device counts."""


class Read(NamedTuple):
    """What one stream read at one window."""

    counts: tuple[int, ...]
    booked: tuple[bool, ...]


class Course(NamedTuple):
    """What came of one log."""

    read: Mapping[str, Mapping[Micros, Read]]
    """Stream -> window -> what it read."""
    published: list[Published]


def run(under: Policy, seen: Sequence[Seen], monkeypatch: pytest.MonkeyPatch) -> Course:
    read: dict[str, dict[Micros, Read]] = defaultdict(dict)
    true_step = SparseVector.step

    def step(self: SparseVector, state: Runs, item: SparseVectorInput) -> tuple[Runs, list[SparseVectorOutput]]:
        read[item.context.release][item.end] = Read(tuple(item.counts.tolist()), item.scheduled)
        return true_step(self, state, item)

    with monkeypatch.context() as patched:
        patched.setattr(SparseVector, "step", step)
        outputs = outputs_of(under, seen)
    return Course(read, [each for each in outputs if isinstance(each, Published)])


def without(seen: Sequence[Seen], device: str, day: PrivacyDay) -> list[Seen]:
    return [row for row in seen if row.device != device or not day.start < row.time <= day.end]


def days_apart(
    price: str, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> Iterator[tuple[Policy, PrivacyDay, Course, Course]]:
    """Yield courses of a log, and of the same log without one device's privacy day."""
    under = building(releases=STREAMS.format(price=price), site=day_site("90min"))
    days = days_of(under)
    assert days is not None
    for seed in seeds:
        seen = people(seed, hours=34, devices=18)
        day = days.at(seen[len(seen) // 2].time)
        first = run(under, seen, monkeypatch)
        device = mac(random.Random(seed).randrange(2, 18))
        with monkeypatch.context() as patched:
            leave_out_the_account(patched)  # at most the first one's is read
            other = run(under, without(seen, device, day), patched)
        yield under, day, first, other


def leave_out_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told of charges only, and takes half of the time."""
    monkeypatch.setattr(Account, "step", lambda _, state, item: (state, []))


@pytest.fixture
def without_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_the_account(monkeypatch)


@pytest.mark.usefixtures("without_the_account")
def test_a_devices_day_changes_at_most_k_windows_by_one_each_and_all_in_one_direction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached = 0
    for _, day, one, other in days_apart("24", monkeypatch, range(4)):
        for name in ("zones", "whole"):
            changed = []
            for end, read in one.read[name].items():
                apart = [a - b for a, b in zip(read.counts, other.read[name][end].counts, strict=True)]
                assert set(apart) <= {0, 1}, "taken away, nobody counts for more"
                assert sum(apart) <= 1, "at one node at a time"
                assert not any(apart) or day.start < end <= day.end, "no other day is touched"
                changed += [end] * sum(apart)
            assert len(changed) <= K
            reached = max(reached, len(changed))
    assert reached == K


def likelihoods(plan: RunPlan, told: Mapping[Micros, Sequence[bool | None]], read: Mapping[Micros, Read]) -> float:
    """Return ln of the probability of a day's answers, from what was read: a product over runs.

    ``told`` is in the order of windows, one answer a node; None where there was none.
    """
    vector, total = plan.vector, 0.0
    for place in range(len(plan.names)):
        above, waits, margins, crossings = False, 0, list[int](), [0, 0]
        for end, answers in told.items():
            answer = answers[place]
            if answer is None or end < waits:
                continue
            if above and vector.hysteresis is None:
                above = False
            assert crossings[above] < vector.events
            margins.append(vector.margin(place, read[end].counts[place], above=above))
            if answer is not above:
                total += math.log(vector.run_distribution.transcript(margins, crosses=True))
                crossings[above] += 1
                above, waits, margins = answer, end + vector.cooldown, []
        if margins:
            total += math.log(vector.run_distribution.transcript(margins, crosses=False))
    return total


def answers(course: Course, name: str, day: PrivacyDay) -> dict[Micros, list[bool | None]]:
    found = {}
    for each in course.published:
        if each.topic == f"tacet.private.public.{name}.v1" and day.start < each.time <= day.end:
            body: dict[str, Any] = orjson.loads(each.value)
            found[parse_time(body["window_end"])] = list(body["above"].values())
    return dict(sorted(found.items()))


def test_what_was_published_tells_of_a_devices_day_no_more_than_was_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Membership, by whoever knows everything else: the exact log-likelihood ratio of the day's answers."""
    most = 0.0
    for under, day, one, other in days_apart("12", monkeypatch, range(4, 9)):
        charged = Fraction(0)
        for plan in run_plans(under, SITE):
            name = plan.release.name
            reported = answers(one, name, day)
            ratio = abs(likelihoods(plan, reported, one.read[name]) - likelihoods(plan, reported, other.read[name]))
            spent = sum(
                Fraction(body["spend"])
                for body in bodies(one.published, f"tacet.private.public.{name}.v1")
                if day.start < parse_time(body["window_end"]) <= day.end
            )
            assert ratio <= float(spent) + 1e-9
            assert spent <= plan.price.day <= 12
            charged, most = charged + spent, max(most, ratio)
        account = [
            body for body in account_of(one.published) if day.start < parse_time(body["window_end"]) <= day.end
        ][-1]  # fmt: skip
        assert Fraction(account["audiences"]["public"]["device_day"]) == charged
    assert most > 0.2, "the attack finds something, so it is one"


@pytest.mark.usefixtures("without_the_account")
def test_both_days_are_charged_alike_while_they_are_answered_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, day, one, other in days_apart("24", monkeypatch, range(9, 11)):
        for name in ("zones", "whole"):
            topic = f"tacet.private.public.{name}.v1"
            both = [bodies(course.published, topic) for course in (one, other)]
            for mine, theirs in zip(*both, strict=True):
                if mine["above"] != theirs["above"]:
                    break
                assert mine == theirs
        assert day.end - day.start > 60 * MINUTE
