"""A window of counts becomes decisions that are paid by the run: ask, charge what was opened, publish.

All streams of a site stand together for a privacy day, on the terms on which its first window was asked. Whatever
changes one of them (a name, a threshold, a price, the zones) takes effect when the next day begins; until then all of
them wait, since what was opened for one device's day is charged once and its events are counted once. So a stream does
not begin anew under another name, nor where its state was lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np

from stream.accounting.charged import Line, line_name
from stream.keys import key_day_of, subkey
from stream.mechanisms.labels import Context, counts_digest
from stream.mechanisms.noise import Ints
from stream.mechanisms.run_law import RunLaw
from stream.mechanisms.sparse_vector import Asked, Runs, SparseVector, Told
from stream.policy.document import Policy, ThresholdRelease
from stream.policy.mechanisms import SPARSE_VECTOR
from stream.records import WAITING, CountCharge, OccupancyWindow, PrivacyDay, Published
from stream.release.factor_limit import FactorLimit
from stream.release.issuer import Issuer
from stream.release.paid_days import Standing
from stream.release.run_prices import STREAMS, RunPrice, paid_thresholds
from stream.release.state import ReleaseState
from stream.release.threshold_plan import Price, ThresholdPlan
from stream.schemas import private_topic


class RunPlan(ThresholdPlan):
    """A stream that pays for its runs, and what asks for it."""

    def __init__(self, policy: Policy, release: ThresholdRelease, site: str) -> None:
        super().__init__(policy, release, site)
        place, price = policy.site[site], RunPrice.of(policy, release, site)
        self.price = price
        law, miss = RunLaw(price.run), release.miss / release.events
        self.vector = SparseVector(
            law, self.thresholds, release.alert == "above", law.least_shift(miss, release.windows(place.tick)),
            release.events, place.contribution_ticks, release.cooldown, release.hysteresis,
            price.most if release.unit == "run" else None, self.terms,
        )  # fmt: skip
        self.state_name = f"{release.name}/runs"

    def said(self, runs: int) -> Price:
        """Return what the record of a window says of its price, in which so many runs were charged."""
        scale = float(1 / self.vector.law.half)
        return Price(SPARSE_VECTOR, "device_day", self.price.day, runs * self.price.run, scale)


def run_plans(policy: Policy, site: str) -> tuple[RunPlan, ...]:
    """Return a site's streams that pay for runs, in the order of the policy."""
    return tuple(RunPlan(policy, release, site) for release in paid_thresholds(policy, site))


class ThresholdReleases:
    """The threshold streams of one site that pay for runs."""

    def __init__(self, policy: Policy, issuer: Issuer) -> None:
        self._issuer = issuer
        self._version = policy.version
        self._limit = FactorLimit(policy.privacy)
        self.plans = run_plans(policy, issuer.site)
        self._terms = hashlib.sha256("/".join(plan.terms for plan in self.plans).encode()).hexdigest()[:32]

    def window(self, state: ReleaseState, window: OccupancyWindow) -> Iterator[Published | CountCharge]:
        """Decide on one window, which comes after all that were decided on."""
        if not self.plans:
            return
        day = window.privacy_day
        standing = Standing.OTHERWISE if day is None else state.paid.standing(STREAMS, day, self._terms)
        if day is None or window.bounded is None or standing is Standing.OTHERWISE:
            for plan in self.plans:
                yield from self._told(state, plan, window, None, WAITING)
            return
        if standing is Standing.UNPAID:
            state.paid.pay(STREAMS, day, self._terms)
        for plan in self.plans:
            reason = self._reason(state, plan, window, day, begins=standing is Standing.UNPAID)
            told = self._asked(state, plan, window, day) if reason is None else None
            yield from self._told(state, plan, window, told, reason)

    def _reason(
        self, state: ReleaseState, plan: RunPlan, window: OccupancyWindow, day: PrivacyDay, *, begins: bool
    ) -> str | None:
        """Return why nothing is asked of a window: by policy, ledger and clock alone."""
        held = state.smoothing.get(plan.state_name)
        if not begins and (not isinstance(held, Runs) or held.day != day.number):
            return WAITING
        if self._too_much(state, plan, window, day):
            return "factor"
        return None

    def _too_much(self, state: ReleaseState, plan: RunPlan, window: OccupancyWindow, day: PrivacyDay) -> bool:
        """Note the most that a day may cost, changed in part; take it back where that says too much of an attribute."""
        name = line_name(plan.release.name, self._version, self._issuer.attempt, day.number)
        line = Line(SPARSE_VECTOR, 1, plan.covered, day=day.number)
        state.charged.note(window.window_end, name, line, dict.fromkeys(plan.release.audiences, 2 * plan.price.day))
        passed = self._limit.passed_by_window(state, plan.covered, window.window_end)
        if passed:
            state.charged.take_back(window.window_end, name)
        return passed

    def _asked(self, state: ReleaseState, plan: RunPlan, window: OccupancyWindow, day: PrivacyDay) -> Told:
        issuer, end = self._issuer, window.window_end
        key = subkey(issuer.keys.noise_key(key_day_of(end - issuer.tick_length)), "noise")
        suffix = f"/day {day.number}/{plan.terms}"
        context = Context(issuer.site, plan.release.name, end, issuer.attempt, plan.names, suffix)
        assert window.bounded is not None  # noqa: S101
        item = Asked(plan.counts(window.bounded), end, day.number, plan.booked(end), key, context)
        held = state.smoothing.get(plan.state_name)
        state.smoothing[plan.state_name], [told] = plan.vector.step(held or plan.vector.initial(), item)
        return told

    def _told(
        self, state: ReleaseState, plan: RunPlan, window: OccupancyWindow, told: Told | None, reason: str | None
    ) -> Iterator[Published | CountCharge]:
        end, release = window.window_end, plan.release
        key_day = key_day_of(end - self._issuer.tick_length)
        head = self._issuer.head(end - self._issuer.tick_length, end)
        commitment = self._issuer.commitment(key_day, release.name, end, counts_digest(self._read(plan, window)))
        runs = 0 if told is None else told.charged
        above = None if told is None else dict(zip(plan.names, told.above, strict=True))
        denied = {} if told is None else {plan.names[place]: why for place, why in told.denied.items()}
        for audience in release.audiences:
            record = plan.window_record(head, window, audience, above, denied, reason, plan.said(runs))
            yield self._issuer.charge(state, record, end=end, key_day=key_day, commitment=commitment)
            yield Published(private_topic(audience, release.name), head.site, record.to_bytes(), end, record.release_id)
        number = None if window.privacy_day is None else window.privacy_day.number
        for audience in release.audiences:
            yield CountCharge(
                release.name, audience, SPARSE_VECTOR, runs * plan.price.run, reason=reason or "",
                attempt=self._issuer.attempt,
                terms=None if told is None or number is None else plan.price.terms(number, runs),
            )  # fmt: skip

    @staticmethod
    def _read(plan: RunPlan, window: OccupancyWindow) -> Ints:
        return np.zeros(0, np.int64) if window.bounded is None else plan.counts(window.bounded)

    # --- what is kept between windows -----------------------------------------------------------------

    def operators(self) -> dict[str, SparseVector]:
        """Return what the states of runs belong to, by name."""
        return {plan.state_name: plan.vector for plan in self.plans}

    def carry_on(self, state: ReleaseState, parts: Mapping[str, bytes]) -> None:
        """Go on with the runs of another policy, where they stand on the same terms."""
        for plan in self.plans:
            part = parts.get(plan.state_name)
            if part is not None and plan.vector.fits(part):
                state.smoothing[plan.state_name] = plan.vector.decode(part)
