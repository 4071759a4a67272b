"""Guarantees of threshold streams, computed before anything runs: misses, false alarms, denial, delay and price.

    symbol   here       meaning
    E        events     alerts that a node may have per day
    W        queried    the largest number of windows of a day at which a node is queried
    d                   duration in windows of an event that must be detected (``within``)
    q        crossing   probability that a new run crosses within W windows of a quiet node

**Misses.** A run misses an event with probability m = Pr[silence in d windows just beyond the threshold], exactly
(``mechanisms.run_distribution``). The run that is open when an event begins depends on the output of earlier runs, and
a run that has survived for long probably has a high ρ. But for each of the at most E runs that may be open then, the
probability that it is open and misses the event is at most m. An event that is not denied is therefore missed with
probability E m at most, after any earlier output. The shift is the smallest with E m <= ``miss``.

**False alarms**, of a node that stays ``distance`` below its threshold. Each run is drawn independently, so it crosses
with probability q at most, after any earlier output. The j-th false alarm needs j crossings, so a day has at most
Σ_{j<=E} q^j on average. A node is denied when all E runs have crossed: with r real events in addition, with
probability Pr[Bin(E, q) >= E - r] at most.

**Decisions on released counts.** The noise of different windows is independent. The probability of a miss
is at most the probability that d draws are all that low. The number of false alarms of a day is at most the sum over
its windows. A decision is denied only if the counts are denied.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction

from stream.mechanisms.noise_parameters import tail
from stream.mechanisms.sparse_vector import SparseVector
from stream.policy.counts import CountRelease
from stream.policy.fields import decimal_string
from stream.policy.sites import Site
from stream.policy.thresholds import WEEKDAYS, ThresholdRelease, decidable
from stream.records import HOUR, LONGEST_DAY, MINUTE, SECOND, JsonObject, Micros
from stream.release.count_plan import count_plan
from stream.release.prices import thresholds_at
from stream.release.thresholds import FreeDecision, RunPlan, ThresholdPlan
from stream.release.validation import Policy

RARE = Fraction(1, 20)
"""The largest average number of false alarms per day of a node that counts as quiet."""


Say = Callable[..., str]
"""Puts named fields into the template of a sentence: ``str.format``, or the same in another language."""

_ALERT = {
    side: (
        "{release} for {audiences} at {site}: a node that stays " + side + " its threshold for {within} min has an "
        "alert by then, with probability {least:g} at least, while it is not denied (up to {cooldown} min later where "
        "an alert has just begun or ended)."
    )
    for side in ("above", "below")
}
"""By the side on which there is an alert; so below, with whether runs are paid for."""
_ALARMS = {
    "above": "One that stays {distance} or more below it has {false_alarms:.2g} false alarms a day at most",
    "below": "One that stays {distance} or more above it has {false_alarms:.2g} false alarms a day at most",
}
_DENIED = ", and its event is denied with probability {denied:.2g} at most: it may have {alerts} a day."
_QUIET = {(side, paid): text + (_DENIED if paid else ".") for side, text in _ALARMS.items() for paid in (False, True)}
_ALERTS = {False: "{n} alert", True: "{n} alerts"}
"""One, or more."""
_EMPTY = "But even an empty one is nearer: it may have {false_alarms:.2g} false alarms a day"
_TWICE = "But one at twice its threshold is nearer: it may have {false_alarms:.2g} false alarms a day"
_EVENT_DENIED = ", and its event be denied with probability {denied:.2g}."
_NEAR = {
    ("above", False): _EMPTY + ".",
    ("above", True): _EMPTY + _EVENT_DENIED,
    ("below", False): _TWICE + ".",
    ("below", True): _TWICE + _EVENT_DENIED,
}
_FREE = "It costs nothing beyond the counts that it is decided on."
_PRICE = "A run costs epsilon {run:f}, a device's day {day:f} at most."
_GIVEN = 'Its counts are paid for: counts = "{counts}" decides on them for nothing.'


@dataclass(frozen=True, slots=True)
class Quiet:
    """Bounds for a node whose counts stay at a given distance from its threshold all day."""

    distance: int
    """Devices."""
    false_alarms: float
    """Average per day, upper bound."""
    denied: float
    """Upper bound on the probability that an event of such a day is denied, because all alerts were false."""


@dataclass(frozen=True, slots=True)
class ThresholdGuarantee:
    """The guarantees of one stream at one site, for audiences that receive the same decisions."""

    site: str
    release: str
    audiences: tuple[str, ...]
    mechanism: str
    alert: str
    level: str
    thresholds: dict[str, int]
    """By node."""
    miss: Fraction
    """Upper bound on the probability that an event without denial has no alert."""
    within: Micros
    """Duration of such an event, and the largest delay of its alert."""
    cooldown: Micros
    """Upper bound on the additional delay of an event that begins while nothing is queried."""
    events: int | None
    """Alerts per day; None: any number."""
    early: int
    """Upper bound on the number of devices below the threshold at which alerts already occur, to keep misses rare."""
    quiet: Quiet
    """The smallest distance with at most ``RARE`` false alarms per day."""
    empty: Quiet
    """For an empty node (for alerts below: at twice its threshold), at the node where that distance is smallest."""
    run: Fraction
    """Epsilon of one run; 0 for decisions on counts that are paid for."""
    day: Fraction
    """The largest cost of a device's day, added or removed."""
    given: tuple[str, ...] = ()
    """Count releases that publish the counts of its zones to all its audiences; decisions on them would be free."""

    def figures(self) -> JsonObject:
        """Return the machine-readable form."""
        return {
            "site": self.site, "release": self.release, "audiences": list(self.audiences), "mechanism": self.mechanism,
            "alert": self.alert, "level": self.level, "thresholds": self.thresholds,
            "miss": decimal_string(self.miss), "within_seconds": self.within // SECOND,
            "cooldown_seconds": self.cooldown // SECOND, "events_a_day": self.events, "early": self.early,
            "quiet": _figures(self.quiet), "empty": _figures(self.empty),
            "epsilon_run": decimal_string(self.run), "epsilon_day": decimal_string(self.day),
            "counts_given": list(self.given),
        }  # fmt: skip

    def sentence(self, say: Say = str.format) -> str:
        """Return the guarantees as a sentence."""
        kind = self.alert, self.events is not None
        alerts = "" if self.events is None else say(_ALERTS[self.events > 1], n=self.events)
        quiet = say(
            _QUIET[kind], distance=self.quiet.distance, false_alarms=self.quiet.false_alarms,
            denied=self.quiet.denied, alerts=alerts,
        )  # fmt: skip
        sentences = [
            say(
                _ALERT[self.alert], release=self.release, audiences=", ".join(self.audiences), site=self.site,
                within=self.within // MINUTE, least=float(1 - self.miss), cooldown=self.cooldown // MINUTE,
            ),
            quiet,
        ]  # fmt: skip
        if self.empty.distance < self.quiet.distance:  # no node can be far enough from the threshold to be quiet
            alarms, denied = self.empty.false_alarms, self.empty.denied
            sentences.append(say(_NEAR[kind], false_alarms=alarms, denied=denied))
        if self.events is None:
            return " ".join([*sentences, say(_FREE)])
        sentences.append(say(_PRICE, run=Decimal(decimal_string(self.run)), day=Decimal(decimal_string(self.day))))
        free = [say(_GIVEN, counts=name) for name in self.given[:1]]
        return " ".join([*sentences, *free])


def _figures(quiet: Quiet) -> dict[str, int | float]:
    return {
        "devices": quiet.distance, "false_alarms_a_day": float(f"{quiet.false_alarms:.4g}"),
        "denied": float(f"{quiet.denied:.4g}"),
    }  # fmt: skip


def threshold_guarantees(policy: Policy) -> list[ThresholdGuarantee]:
    """Return the guarantees of every decision stream; a free stream has one for each noise law of its counts."""
    return [
        guarantee
        for site in policy.site
        for release in thresholds_at(policy, site)
        for guarantee in (_frees(policy, site, release) if release.free else [_paid(policy, site, release)])
    ]


def quiet_bounds(vector: SparseVector, queried: int, distance: int, real: int = 0) -> Quiet:
    """Return the bounds for a node that stays at a distance on the quiet side of its threshold.

    Args:
        vector: makes the decisions.
        queried: number of queried windows of the day.
        distance: devices, at least 0.
        real: additional real events of the day.
    """
    q, events = vector.run_distribution.crossing(vector.shift - 1 - distance, queried), vector.events
    false_alarms = math.fsum(q**j for j in range(1, events + 1))
    tail_of = (math.comb(events, k) * q**k * (1 - q) ** (events - k) for k in range(max(0, events - real), events + 1))
    return Quiet(distance, false_alarms, min(1.0, math.fsum(tail_of)))


def windows_queried_per_day(release: ThresholdRelease, place: Site) -> int:
    """Return the largest number of windows per day (privacy day, if the site has those) at which a node is queried."""
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


def _paid(policy: Policy, site: str, release: ThresholdRelease) -> ThresholdGuarantee:
    plan = RunPlan(policy, release, site)
    vector, queried = plan.vector, windows_queried_per_day(release, policy.site[site])
    low, high = 0, 1
    while quiet_bounds(vector, queried, high).false_alarms > RARE:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if quiet_bounds(vector, queried, middle).false_alarms > RARE else (low, middle)
    quiet = quiet_bounds(vector, queried, high), quiet_bounds(vector, queried, _nearest(plan))
    guarantee = _guarantee(
        plan, release.audiences, vector.shift, quiet,
        release.events, (plan.price.run, plan.price.day), plan.release.mechanism,
    )  # fmt: skip
    return replace(guarantee, given=_given(policy, release, site))


def _frees(policy: Policy, site: str, release: ThresholdRelease) -> list[ThresholdGuarantee]:
    counts = next(r for r in policy.release if r.name == release.counts)
    assert isinstance(counts, CountRelease)  # noqa: S101
    plan = FreeDecision(policy, count_plan(policy, counts, site), release)
    alike = {counts.epsilon[name]: name for name in release.audiences}
    return [
        _free(
            plan,
            windows_queried_per_day(release, policy.site[site]),
            tuple(n for n in release.audiences if counts.epsilon[n] == e),
        )
        for e in alike
    ]


def _free(plan: FreeDecision, windows: int, audiences: tuple[str, ...]) -> ThresholdGuarantee:
    law, alarm = plan.noise_parameter(audiences[0]), plan.alarm(audiences[0])
    shift, draws = max(zip(alarm.shifts, map(len, plan.members), strict=True))
    most = float(min(windows, LONGEST_DAY // max(plan.release.cooldown, plan.tick) + 1))

    def quiet(distance: int) -> Quiet:
        return Quiet(distance, min(most, windows * tail(law, draws, distance + 1 - shift)), 0.0)

    distance = shift
    while quiet(distance).false_alarms > RARE:
        distance += 1
    return _guarantee(
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
    """Return the least distance of an empty node (alerts below: one at twice its threshold) from its threshold."""
    return min(plan.thresholds)


def _guarantee(
    plan: ThresholdPlan, audiences: tuple[str, ...], early: int, quiet: tuple[Quiet, Quiet], events: int | None,
    price: tuple[Fraction, Fraction], mechanism: str,
) -> ThresholdGuarantee:  # fmt: skip
    release = plan.release
    return ThresholdGuarantee(
        plan.site, release.name, audiences, mechanism, release.alert, release.level,
        dict(zip(plan.names, plan.thresholds, strict=True)), release.miss, release.windows(plan.tick) * plan.tick,
        release.cooldown, events, early, *quiet, *price,
    )  # fmt: skip
