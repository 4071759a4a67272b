"""Threshold streams that decide on the noisy values of a count release: answered like its queries, and as free."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from stream.mechanisms.contract import Values, noisy_of
from stream.mechanisms.noise_tails import least_shift
from stream.mechanisms.noisy_alarm import Noisy, NoisyAlarm, Said
from stream.mechanisms.parameter import NoiseParameter
from stream.policy.document import Policy, ThresholdRelease, decimal_string
from stream.records import Micros, OccupancyWindow
from stream.release.count_plan import CountPlan
from stream.release.issuer import Head
from stream.release.run_prices import thresholds_at
from stream.release.threshold_plan import Price, ThresholdPlan
from stream.schemas import ThresholdRecord


class FreeDecision(ThresholdPlan):
    """One stream about one count release at a site."""

    def __init__(self, policy: Policy, plan: CountPlan, release: ThresholdRelease) -> None:
        super().__init__(policy, release, plan.site)
        self.plan = plan
        self.query = release
        self._at = [plan.names.index(zone) for zone in self.covered]
        self._alarms = {epsilon: self._alarm(epsilon) for epsilon in plan.mechanisms}
        self.stage = next(iter(self._alarms.values()))

    def _alarm(self, epsilon: Fraction) -> NoisyAlarm:
        release, law = self.release, self.plan.mechanisms[epsilon].noise
        windows = release.windows(self.tick)
        shifts = {n: least_shift(law, n, release.miss, windows) for n in {len(held) for held in self.members}}
        return NoisyAlarm(
            self.thresholds, release.alert == "above", tuple(shifts[len(held)] for held in self.members),
            release.cooldown, release.hysteresis,
        )  # fmt: skip

    def alarm(self, audience: str) -> NoisyAlarm:
        """Return what decides for an audience."""
        return self._alarms[self.plan.release.epsilon[audience]]

    def law(self, audience: str) -> NoiseParameter:
        """Return the law of the noise on each zone that an audience's decisions are made of."""
        return self.plan.mechanisms[self.plan.release.epsilon[audience]].noise

    def tells(self, audience: str) -> bool:
        """Whether an audience is told."""
        return audience in self.release.audience

    def state_name(self, epsilon: Fraction) -> str:
        """Return the name under which an epsilon's alarms are kept."""
        return f"{self.release.name}/{decimal_string(epsilon)}"

    def step(self, state: Any, values: Values | None, end: Micros, epsilon: Fraction) -> tuple[Any, Said | None]:
        """Take a window's values (None: denied) and its end; return the next state and the answer."""
        alarm = self._alarms[epsilon]
        item = None if values is None else Noisy(self._counts(values), end, self.booked(end))
        after, [said] = alarm.step(alarm.initial() if state is None else state, item)
        return after, said

    def _counts(self, values: Values) -> Sequence[int]:
        noisy = values.values if self.plan.release.mechanism == "laplace" else noisy_of(values)
        zones = [int(noisy[at]) for at in self._at]
        return [sum(zones[place] for place in places) for places in self.members]

    def record(
        self, head: Head, window: OccupancyWindow, audience: str, answer: Said | None, reason: str | None
    ) -> ThresholdRecord:
        """Return the record of a window."""
        counts = self.plan.release
        law = self.plan.mechanisms[counts.epsilon[audience]].noise
        price = Price(f"{counts.mechanism}/threshold", counts.unit, counts.epsilon[audience], Fraction(0), law.scale)
        above = None if answer is None else dict(zip(self.names, answer.above, strict=True))
        denied = {} if answer is None else {self.names[place]: why for place, why in answer.denied.items()}
        return self.window_record(head, window, audience, above, denied, reason, price)


def free_decisions(policy: Policy, plan: CountPlan) -> list[FreeDecision]:
    """Return the streams that decide on a count release, in the order of the policy."""
    streams = free_thresholds(policy, plan.site, plan.release.name)
    return [FreeDecision(policy, plan, release) for release in streams]


def free_thresholds(policy: Policy, site: str, counts: str) -> list[ThresholdRelease]:
    """Return a site's streams that decide on a count release, in the order of the policy."""
    return [release for release in thresholds_at(policy, site) if release.counts == counts]
