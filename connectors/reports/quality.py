"""How good the counts of a release are on given days: errors at every level, beside those of who knows less.

Exact counts go through the release's own mechanism under a key that everybody knows, so that what is planned can be
drawn again. A release that is paid by the day is compared with bounded counts, which are what it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from connectors.reports.tried_days import Windows, plan_keys, simulated_windows
from stream.keys import key_day_of, subkey
from stream.local_time import MIDNIGHT, slot_of
from stream.mechanisms.contract import CountMechanism, TickInput
from stream.mechanisms.filter_calendar import Slot
from stream.mechanisms.labels import Context, counts_digest
from stream.mechanisms.noise import Ints
from stream.mechanisms.parameter import noise_chain
from stream.policy.document import CountRelease, Policy, audiences_of
from stream.records import OccupancyWindow
from stream.release.count_plan import ByLevel, CountPlan


class Quality(NamedTuple):
    """How good a release is at one level, per value and window."""

    error: float
    """Mean absolute error."""
    mean: float
    """Mean true count: the error of whoever always says 0."""
    median: float
    """Mean absolute error of whoever always says the median of the same zone, floor or building."""

    @property
    def worse_than_zero(self) -> bool:
        """Whether always saying 0 would be nearer to the truth."""
        return self.error > self.mean

    @property
    def worse_than_median(self) -> bool:
        """Whether always saying the median would be nearer to the truth."""
        return self.error > self.median

    @property
    def poor(self) -> bool:
        """Whether a constant would be nearer to the truth."""
        return self.worse_than_zero or self.worse_than_median


ByLevelQuality = Mapping[str, Quality]
"""Level -> quality, what is counted first."""
Qualities = dict[tuple[str, str, str], ByLevelQuality]
"""Site, release and audience -> how good its counts are expected to be."""


def qualities(policy: Policy) -> Qualities:
    """Return how good a policy's count releases are expected to be on the simulated day."""
    days = simulated_windows(policy)
    return {
        (site, release.name, audience): expected_quality(policy, site, release, release.epsilon[audience], days)
        for site in policy.site
        for release in policy.release
        if isinstance(release, CountRelease) and policy.zones_of(release, site)
        for audience in audiences_of(release)
    }


def expected_quality(
    policy: Policy, site: str, release: CountRelease, epsilon: Fraction, days: Windows
) -> ByLevelQuality:
    """Return how good a release is at an epsilon on a site's windows; nothing where none can be released."""
    plan = CountPlan(policy, release, site)
    windows = [window for window in days[site] if not release.by_day or window.bounded is not None]
    truth = [plan.truth(window) for window in windows]
    return by_level_quality(truth, list(_told(policy, plan, epsilon, windows)))


def by_level_quality(truth: Sequence[ByLevel], told: Sequence[ByLevel]) -> ByLevelQuality:
    """Return how good counts are, window by window, beside the true ones of the same names."""
    levels = truth[0] if truth else {}
    return {level: _quality(_table(truth, level, names), _table(told, level, names)) for level, names in levels.items()}


def _table(rows: Sequence[ByLevel], level: str, names: Iterable[str]) -> Ints:
    """Return one level's counts, shape [windows, names]."""
    return np.array([[row[level][name] for name in names] for row in rows], dtype=np.int64)


def _quality(truth: Ints, told: Ints) -> Quality:
    always = np.median(truth, axis=0)
    return Quality(*(float(np.mean(each)) for each in (np.abs(told - truth), truth, np.abs(truth - always))))


def _told(policy: Policy, plan: CountPlan, epsilon: Fraction, windows: Sequence[OccupancyWindow]) -> Iterator[ByLevel]:
    """Yield what records would tell of each window: with one audience, those of a replay under the same keys."""
    site, mechanism = policy.site[plan.site], plan.mechanisms[epsilon]
    state, today = mechanism.initial(), None
    for window in windows:
        key_day = key_day_of(window.window_end - site.tick)
        if key_day != today:
            state, today = mechanism.pause(state), key_day
        key = subkey(plan_keys().noise_key(key_day), "noise")
        slot = slot_of(window.window_end, site.timezone, site.day_starts or MIDNIGHT)
        item = _input(plan, mechanism, window, key, slot)
        state, [made] = mechanism.step(state, item)
        yield plan.told(mechanism, made)


def _input(plan: CountPlan, mechanism: CountMechanism, window: OccupancyWindow, key: bytes, slot: Slot) -> TickInput:
    context = Context(plan.site, plan.release.name, window.window_end, 1, plan.names, plan.suffix(window))
    counts, law = plan.counts(window), mechanism.noise
    noise = np.zeros_like(counts)
    if not plan.draws_own_noise:
        noise = noise_chain(key, context, counts_digest(counts), [law], len(counts))[law]
    return TickInput(counts, noise, key, context, slot)
