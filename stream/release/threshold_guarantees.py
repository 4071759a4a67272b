"""What threshold streams promise: misses, false alarms, denial, delay and price, before anything runs.

    symbol   here       meaning
    E        events     alerts a node may have a day
    W        asked      windows of a day that a node is asked at most
    d                   windows that an event lasts which is to be seen (``within``)
    q        crossing   probability that a fresh run crosses within W windows of a quiet node

Misses. A run misses an event with probability m = Pr[silence in d windows just beyond the threshold], exactly
(``run_law``). Which run is open when an event begins depends on what runs before it said, and one that has survived
long is one with a high ρ; but of each of the at most E runs that may be open then, the probability that it is and
misses is at most m. So an event that is not denied is missed with probability E m at most, whatever came before: the
shift is the least with E m <= ``miss``.

False alarms, of a node that stays ``distance`` below its threshold. Each run is drawn anew, so it crosses with
probability q at most, whatever came before: the j-th false alarm needs j crossings, and a day has at most
Σ_{j<=E} q^j on average. A node is denied when all E runs have crossed: with r real events besides, with probability
Pr[Bin(E, q) >= E - r] at most.

Of what is decided on released counts, the noise of windows is independent: a miss has at most the probability that d
draws are all so low, a day at most as many false alarms as its windows together, and nothing is denied that the counts
are not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from typing import Any

from stream.mechanisms.noise_tails import tail
from stream.mechanisms.sparse_vector import SparseVector
from stream.policy.document import CountRelease, Policy, ThresholdRelease, decimal_string
from stream.policy.schedule import WEEKDAYS
from stream.policy.sites import Site
from stream.policy.threshold_release import decidable
from stream.records import DAY, HOUR, MINUTE, SECOND, Micros
from stream.release.count_plan import CountPlan
from stream.release.free_decisions import FreeDecision
from stream.release.run_prices import thresholds_at
from stream.release.threshold_plan import ThresholdPlan
from stream.release.threshold_stage import RunPlan

LONGEST_DAY: Micros = DAY + HOUR
"""A local day on which the clocks are put back."""
RARE = Fraction(1, 20)
"""False alarms a day up to which a node counts as quiet."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """What a node may expect whose counts stay at some distance from its threshold all day."""

    distance: int
    """Devices."""
    false_alarms: float
    """A day, on average, at most."""
    denied: float
    """Probability that an event of such a day is denied, at most: all alerts were false ones."""


@dataclass(frozen=True, slots=True)
class ThresholdPromise:
    """What one stream promises at one site the audiences that are told the same."""

    site: str
    release: str
    audiences: tuple[str, ...]
    mechanism: str
    alert: str
    level: str
    thresholds: dict[str, int]
    """By node."""
    miss: Fraction
    """Probability with which an event goes without alert while it is not denied, at most."""
    within: Micros
    """How long such an event lasts, and the longest until its alert."""
    cooldown: Micros
    """By so much later at most, where it begins while nothing is asked."""
    events: int | None
    """Alerts a day; None: any number."""
    early: int
    """By how many devices alerts are asked for early, at most, so that misses are so rare."""
    quiet: Quiet
    """The least distance with ``RARE`` false alarms a day at most."""
    empty: Quiet
    """Where nobody is there (or, of alerts below, twice the threshold), at the node nearest to that."""
    run: Fraction
    """Epsilon of one run; 0 where counts that are paid for are decided on."""
    day: Fraction
    """The most that a device's day costs, added or removed."""
    given: tuple[str, ...] = ()
    """Count releases that give all its audiences the counts of its zones anyway: to decide on them would be free."""

    def figures(self) -> dict[str, Any]:
        """Return what programs are given."""
        return {
            "site": self.site, "release": self.release, "audiences": list(self.audiences), "mechanism": self.mechanism,
            "alert": self.alert, "level": self.level, "thresholds": self.thresholds,
            "miss": decimal_string(self.miss), "within_seconds": self.within // SECOND,
            "cooldown_seconds": self.cooldown // SECOND, "events_a_day": self.events, "early": self.early,
            "quiet": _figures(self.quiet), "empty": _figures(self.empty),
            "epsilon_run": decimal_string(self.run), "epsilon_day": decimal_string(self.day),
            "counts_given": list(self.given),
        }  # fmt: skip

    def sentence(self) -> str:
        """Return what is promised, in words."""
        side, least = "below" if self.alert == "above" else "above", float(1 - self.miss)
        whose = f"{self.release} for {', '.join(self.audiences)} at {self.site}"
        said = [
            f"{whose}: a node that stays {self.alert} its threshold for "
            f"{self.within // MINUTE} min has an alert by then, with probability {least:g} at least, while it is not "
            f"denied (up to {self.cooldown // MINUTE} min later where an alert has just begun or ended).",
            f"One that stays {self.quiet.distance} or more {side} it has {self.quiet.false_alarms:.2g} false alarms a "
            "day at most" + ("." if self.events is None else ""),
        ]
        near = self._near()
        if self.events is None:
            return " ".join([*said, *near, "It costs nothing beyond the counts that it is decided on."])
        said[-1] += (
            f", and its event is denied with probability {self.quiet.denied:.2g} at most: it may have {self.events} "
            f"alert{'s' * (self.events > 1)} a day."
        )
        price = f"A run costs epsilon {decimal_string(self.run)}, a device's day {decimal_string(self.day)} at most."
        free = [f'Its counts are paid for: counts = "{name}" decides on them for nothing.' for name in self.given[:1]]
        return " ".join([*said, *near, price, *free])

    def _near(self) -> list[str]:
        """Say so where nobody can be far enough from the threshold to be quiet."""
        if self.empty.distance >= self.quiet.distance:
            return []
        which = "even an empty one" if self.alert == "above" else "one at twice its threshold"
        denied = "" if self.events is None else f", and its event be denied with probability {self.empty.denied:.2g}"
        return [f"But {which} is nearer: it may have {self.empty.false_alarms:.2g} false alarms a day{denied}."]


def _figures(quiet: Quiet) -> dict[str, Any]:
    return {
        "devices": quiet.distance, "false_alarms_a_day": float(f"{quiet.false_alarms:.4g}"),
        "denied": float(f"{quiet.denied:.4g}"),
    }  # fmt: skip


def threshold_promises(policy: Policy) -> list[ThresholdPromise]:
    """Return what every stream of decisions promises: one that is free by each law of the noise it is decided on."""
    return [
        promise
        for site in policy.site
        for release in thresholds_at(policy, site)
        for promise in (_frees(policy, site, release) if release.free else [_paid(policy, site, release)])
    ]


def quiet_run(vector: SparseVector, asked: int, distance: int, real: int = 0) -> Quiet:
    """Return what a node may expect that stays at a distance on the quiet side of its threshold.

    Args:
        vector: what decides.
        asked: windows of the day.
        distance: devices, at least 0.
        real: events of the day besides.
    """
    q, events = vector.law.crossing(vector.shift - 1 - distance, asked), vector.events
    false_alarms = math.fsum(q**j for j in range(1, events + 1))
    tail_of = (math.comb(events, k) * q**k * (1 - q) ** (events - k) for k in range(max(0, events - real), events + 1))
    return Quiet(distance, false_alarms, min(1.0, math.fsum(tail_of)))


def asked_a_day(release: ThresholdRelease, place: Site) -> int:
    """Return at how many windows of a day a node is asked, at most: of a privacy day, where the site has those."""
    longest = LONGEST_DAY // place.tick
    if not release.schedule:
        return longest
    weekly, dated = defaultdict[tuple[str, int], int](int), defaultdict[tuple[str, int], int](int)
    night = _minutes(place.day_starts or "00:00") + 1  # the tick at the start is the last of the day before
    for booking in release.schedule:
        start, end = _minutes(booking.start), _minutes(booking.end)
        for earlier, first, last in ((1, start, min(end, night)), (0, max(start, night), end)):
            if first < last:
                windows = (last - first) * MINUTE // place.tick + 1
                if booking.day in WEEKDAYS:
                    weekly[booking.zone, (WEEKDAYS.index(booking.day) - earlier) % len(WEEKDAYS)] += windows
                else:
                    dated[booking.zone, date.fromisoformat(booking.day).toordinal() - earlier] += windows
    both = max(weekly.values(), default=0) + max(dated.values(), default=0) + HOUR // place.tick
    return min(longest, both)


def _minutes(clock: str) -> int:
    return 60 * int(clock[:2]) + int(clock[3:])


def _paid(policy: Policy, site: str, release: ThresholdRelease) -> ThresholdPromise:
    plan = RunPlan(policy, release, site)
    vector, asked = plan.vector, asked_a_day(release, policy.site[site])
    low, high = 0, 1
    while quiet_run(vector, asked, high).false_alarms > RARE:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if quiet_run(vector, asked, middle).false_alarms > RARE else (low, middle)
    quiet = quiet_run(vector, asked, high), quiet_run(vector, asked, _nearest(plan))
    promise = _promise(
        plan, release.audiences, vector.shift, quiet,
        release.events, (plan.price.run, plan.price.day), plan.release.mechanism,
    )  # fmt: skip
    return replace(promise, given=_given(policy, release, site))


def _frees(policy: Policy, site: str, release: ThresholdRelease) -> list[ThresholdPromise]:
    counts = next(r for r in policy.release if r.name == release.counts)
    assert isinstance(counts, CountRelease)  # noqa: S101
    plan = FreeDecision(policy, CountPlan(policy, counts, site), release)
    alike = {counts.epsilon[name]: name for name in release.audiences}
    return [
        _free(
            plan,
            asked_a_day(release, policy.site[site]),
            tuple(n for n in release.audiences if counts.epsilon[n] == e),
        )
        for e in alike
    ]


def _free(plan: FreeDecision, asked: int, audiences: tuple[str, ...]) -> ThresholdPromise:
    law, alarm = plan.law(audiences[0]), plan.alarm(audiences[0])
    shift, draws = max(zip(alarm.shifts, map(len, plan.members), strict=True))
    most = float(min(asked, LONGEST_DAY // max(plan.release.cooldown, plan.tick) + 1))

    def quiet(distance: int) -> Quiet:
        return Quiet(distance, min(most, asked * tail(law, draws, distance + 1 - shift)), 0.0)

    distance = shift
    while quiet(distance).false_alarms > RARE:
        distance += 1
    return _promise(
        plan, audiences, shift, (quiet(distance), quiet(_nearest(plan))), None, (Fraction(0), Fraction(0)),
        f"{plan.plan.release.mechanism}/threshold",
    )  # fmt: skip


def _given(policy: Policy, release: ThresholdRelease, site: str) -> tuple[str, ...]:
    zones = policy.zones_of(release, site)
    return tuple(
        counts.name
        for counts in policy.release
        if isinstance(counts, CountRelease) and decidable(counts)
        and set(release.audiences) <= set(counts.epsilon) and all(counts.zones.covers(zone) for zone in zones)
    )  # fmt: skip


def _nearest(plan: ThresholdPlan) -> int:
    """Return the least distance of an empty node from its threshold; of alerts below, that of twice the threshold."""
    return min(plan.thresholds)


def _promise(
    plan: ThresholdPlan, audiences: tuple[str, ...], early: int, quiet: tuple[Quiet, Quiet], events: int | None,
    price: tuple[Fraction, Fraction], mechanism: str,
) -> ThresholdPromise:  # fmt: skip
    release = plan.release
    return ThresholdPromise(
        plan.site, release.name, audiences, mechanism, release.alert, release.level,
        dict(zip(plan.names, plan.thresholds, strict=True)), release.miss, release.windows(plan.tick) * plan.tick,
        release.cooldown, events, early, *quiet, *price,
    )  # fmt: skip
