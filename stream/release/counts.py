"""Release of a window of counts as private records: charge, perturb, smooth, publish.

For each count release of a window, in the order of the policy:

1. The budgets decide which audiences can pay, from ledger and policy alone; the others receive a denial of the same
   shape.
2. One noise chain is drawn over the epsilons of the audiences that pay (PeGaSus' perturber: four fifths of them).
3. Each distinct epsilon has its own mechanism state (grouper or filter); audiences of equal epsilon share the value.
4. Each audience gets one ledger entry and one record.
5. Queries of these values, and revisions of earlier ones, yield further records; they are free. So do estimates of
   people and forecasts, which read the bytes of the records of step 4.

Records are made from released values alone. Of the window's counts, only a keyed commitment enters the ledger entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from stream.domains import Purpose
from stream.keys import key_day_of, subkey
from stream.local_time import MIDNIGHT, slot_of
from stream.mechanisms.base import CountMechanism, TickInput, Values
from stream.mechanisms.changes.mechanism import DayChanges
from stream.mechanisms.exact import Ints
from stream.mechanisms.filter.mechanism import Revisable
from stream.mechanisms.noise_labels import Context, counts_digest
from stream.mechanisms.noise_parameters import noise_chain
from stream.operators import Operator
from stream.policy.fields import decimal_string
from stream.records import EPOCH, CountCharge, Micros, OccupancyWindow, Published
from stream.release.budgets import BudgetDecisions, Budgets
from stream.release.count_plan import ChangePlan, CountPlan
from stream.release.count_records import count_record
from stream.release.forecasts import ForecastStream, forecast_streams
from stream.release.ledger_writer import LedgerWriter, RecordHeader
from stream.release.paid_days import DayPaymentStatus
from stream.release.people import PeopleStream, people_streams
from stream.release.queries import FreeQuery, free_queries
from stream.release.revisions import RevisionPlan
from stream.release.state import PublicationKey, ReleaseState
from stream.release.thresholds import free_decisions
from stream.release.validation import Policy
from stream.schemas import private_topic


class CountReleases:
    """The count releases of one site."""

    def __init__(self, policy: Policy, writer: LedgerWriter, plans: tuple[CountPlan, ...]) -> None:
        self._writer = writer
        self._site = policy.site[writer.site]
        self._timezone = ZoneInfo(self._site.timezone)
        self._budgets = Budgets(policy, writer.site, writer.attempt)
        self._plans = plans
        self._mechanisms: dict[str, CountMechanism] = {
            plan.state_name(epsilon): mechanism for plan in plans for epsilon, mechanism in plan.mechanisms.items()
        }
        self._revisable = {name: each for name, each in self._mechanisms.items() if isinstance(each, Revisable)}
        self._queries = {
            plan.release.name: [*free_queries(plan, self._site), *free_decisions(policy, plan)] for plan in plans
        }
        self._revisions = {
            plan.release.name: [RevisionPlan(plan, span, self._site, writer) for span in plan.release.revise]
            for plan in plans
        }
        self._estimates: tuple[PeopleStream | ForecastStream, ...] = (
            *people_streams(policy, writer.site, laboratory=writer.keys.laboratory),
            *forecast_streams(policy, writer.site),
        )

    def window(self, state: ReleaseState, window: OccupancyWindow) -> Iterator[Published | CountCharge]:
        """Release one window; skip a window that ends at or before the latest released one."""
        if window.window_end <= state.released_until:
            return
        state.released_until = window.window_end
        self.note_coverage(state, window)
        start = window.window_end - self._writer.tick_length
        key_day = key_day_of(start)
        if key_day != state.key_day:
            state.key_day = key_day
            for name in self._mechanisms:
                self._pause(state, name)
        header = self._writer.header(start, window.window_end, window.coverage)
        for plan in self._plans:
            yield from self._release(state, plan, window, key_day, header)

    def prepare(self, state: ReleaseState) -> None:
        """Compute one part of the next window in advance, if there is any; released bytes do not change."""
        for name, mechanism in self._revisable.items():
            if name in state.operator_states:
                previous = state.operator_states[name]
                state.operator_states[name] = mechanism.prepare(previous)
                if state.operator_states[name] is not previous:
                    return

    def finish(self, state: ReleaseState) -> Iterator[Published]:
        """Publish the outstanding revisions when no further window follows."""
        for plan in self._plans:
            for revision in self._revisions[plan.release.name]:
                yield from revision.finish(state.operator_states)

    def note_coverage(self, state: ReleaseState, window: OccupancyWindow) -> None:
        """Add a window's coverage to that of its local day."""
        day = (EPOCH + timedelta(microseconds=window.window_end)).astimezone(self._timezone).date().isoformat()
        state.coverage = {day: min(window.coverage, state.coverage.get(day, window.coverage))}

    def _pause(self, state: ReleaseState, name: str) -> None:
        """Close a mechanism's open groups."""
        if name in state.operator_states:
            state.operator_states[name] = self._mechanisms[name].pause(state.operator_states[name])

    def _release(
        self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow, key_day: int, header: RecordHeader
    ) -> Iterator[Published | CountCharge]:
        """Release one window of one count release; the steps are those of the module docstring."""
        release, end = plan.release, window.window_end
        decisions = self._budgets.decide(state, plan, window, key_day)
        paying = {release.epsilon[audience] for audience, decision in decisions.items() if decision.reason is None}
        counts = plan.counts(window)
        states_before = dict(state.operator_states)
        released = self._perturb(state, plan, window, key_day, counts, paying)
        commitment = self._writer.commitment(key_day, release.name, end, counts_digest(counts))
        records: dict[str, Published] = {}
        for audience, decision in decisions.items():
            value = released[release.epsilon[audience]] if decision.reason is None else None
            record = count_record(plan, header, audience, value, reason=decision.reason, spend=decision.price)
            entry, records[audience] = self._writer.publish(
                state, record, end=end, key_day=key_day, commitment=commitment, zones=plan.covered
            )
            yield entry
            yield records[audience]
        day = window.privacy_day
        for audience, (reason, _) in decisions.items():  # after all charges: audiences may share the remaining budget
            yield CountCharge(
                release.name, audience, release.mechanism,
                release.epsilon[audience] if reason is None else Fraction(0),
                reason=reason or "",
                left=self._budgets.windows_left(state.ledger.budgets, release, audience, key_day),
                attempt=self._writer.attempt, w=release.windows_paid,
                terms=None if plan.day_prices is None or day is None else plan.day_prices.prices[audience].terms(day),
            )  # fmt: skip
        for query in self._queries[release.name]:
            yield from self._answers(state, query, end, header, released, decisions)
        for revision in self._revisions[release.name]:
            yield from revision.window(state.operator_states, states_before, end, window.coverage, released)
        for stream in self._estimates:
            if stream.release == release.name and stream.audience in records:
                before: Any = state.operator_states.get(stream.state_name, stream.initial())
                state.operator_states[stream.state_name], estimates = stream.step(before, records[stream.audience])
                yield from estimates

    def _perturb(
        self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow, key_day: int, counts: Ints,
        paying: set[Fraction],
    ) -> dict[Fraction, Values]:  # fmt: skip
        """Draw one noise chain for all epsilons that pay, and smooth each; close the groups of the other epsilons."""
        for epsilon in plan.mechanisms.keys() - paying:
            self._pause(state, plan.state_name(epsilon))
        if not paying:
            return {}
        writer, end = self._writer, window.window_end
        key = subkey(writer.keys.noise_key(key_day), Purpose.NOISE)
        context = Context(writer.site, plan.release.name, end, writer.attempt, plan.names, plan.suffix(window))
        laws = {epsilon: plan.mechanisms[epsilon].noise for epsilon in sorted(paying)}
        if plan.draws_own_noise:
            noise = dict.fromkeys(laws.values(), np.zeros_like(counts))
        else:
            noise = noise_chain(key, context, counts_digest(counts), list(laws.values()), len(counts))
        slot = slot_of(end, self._site.timezone, self._site.day_starts or MIDNIGHT)
        position = 0
        if isinstance(plan, ChangePlan):
            counts, position = self._summed(state, plan, window)
        released = {}
        for epsilon, law in laws.items():
            mechanism, name = plan.mechanisms[epsilon], plan.state_name(epsilon)
            previous = state.operator_states[name] if name in state.operator_states else mechanism.initial()
            item = TickInput(counts, noise[law], key, context, slot, position)
            state.operator_states[name], [released[epsilon]] = mechanism.step(previous, item)
        if plan.publication_key is not None:
            state.publication_keys[plan.release.name] = plan.publication_key
        return released

    @staticmethod
    def _summed(state: ReleaseState, plan: ChangePlan, window: OccupancyWindow) -> tuple[Ints, int]:
        """Return the sums of changes up to a window, and the window's position in its privacy day."""
        sums, tick = plan.sums, plan.day_tick(window)
        if state.change_days.get(plan.release.name) != window.privacy_day:  # the run of another day
            state.operator_states.pop(plan.sums_name, None)
        found = state.operator_states.get(plan.sums_name)
        before = found if isinstance(found, DayChanges) else sums.initial()
        state.operator_states[plan.sums_name], [summed] = sums.step(before, tick)
        assert window.privacy_day is not None  # noqa: S101
        state.change_days[plan.release.name] = window.privacy_day
        return summed, tick.position

    def _answers(
        self, state: ReleaseState, query: FreeQuery, end: Micros, header: RecordHeader,
        released: dict[Fraction, Values], decisions: BudgetDecisions,
    ) -> Iterator[Published]:  # fmt: skip
        """Compute a query's answer from the released values; it is free, so there is no ledger entry."""
        answers = dict[Fraction, Any]()
        for epsilon in query.plan.mechanisms:
            name = query.state_name(epsilon)
            state.operator_states[name], answers[epsilon] = query.step(
                state.operator_states.get(name), released.get(epsilon), end, epsilon
            )
        for audience, (reason, _) in decisions.items():
            if not query.publishes_to(audience):
                continue
            answer = answers[query.plan.release.epsilon[audience]] if reason is None else None
            record = query.record(header, audience, answer, reason)
            topic = private_topic(audience, query.query.name)
            yield Published(topic, header.site, record.to_bytes(), end, record.release_id)

    # --- state between windows ------------------------------------------------------------------------

    def operators(self) -> dict[str, Operator[Any, Any, Any]]:
        """Return the operators to which the operator states belong, by name."""
        operators: dict[str, Operator[Any, Any, Any]] = dict(self._mechanisms)
        for plan in self._plans:
            if isinstance(plan, ChangePlan):
                operators[plan.sums_name] = plan.sums
            for query in self._queries[plan.release.name]:
                operators |= {query.state_name(epsilon): query.operator for epsilon in plan.mechanisms}
            for revision in self._revisions[plan.release.name]:
                operators |= revision.operators
        return operators | {stream.state_name: stream for stream in self._estimates}

    def publication_keys(self) -> dict[str, PublicationKey]:
        """Return the publication keys of the releases that carry publications."""
        return {plan.release.name: plan.publication_key for plan in self._plans if plan.publication_key is not None}

    def continue_changes(self, state: ReleaseState, parts: Mapping[str, bytes]) -> None:
        """Continue the runs of changes that another policy has paid for on the same terms; end the others.

        ``parts`` are the other policy's operator states, encoded, by name.
        """
        before, state.change_days = state.change_days, {}
        for plan in self._plans:
            name, day = plan.release.name, before.get(plan.release.name)
            if (
                plan.day_prices is None
                or not isinstance(plan, ChangePlan)
                or day is None
                or plan.sums_name not in parts
            ):
                continue
            if state.paid_days.status(name, day, plan.day_prices.terms_digest) is DayPaymentStatus.PAID:
                state.change_days[name] = day
                state.operator_states[plan.sums_name] = plan.sums.decode(parts[plan.sums_name])
                for epsilon, mechanism in plan.mechanisms.items():
                    own = plan.state_name(epsilon)
                    state.operator_states[own] = mechanism.decode(parts[own])
                for revision in self._revisions[name]:
                    carried = {each: operator for each, operator in revision.operators.items() if each in parts}
                    state.operator_states |= {each: operator.decode(parts[each]) for each, operator in carried.items()}

    def carry_over(self, state: ReleaseState, carried: Mapping[str, str], parts: Mapping[str, bytes]) -> None:
        """Continue publications of another policy.

        Args:
            state: the site's.
            carried: release -> its name in the other policy.
            parts: the other policy's operator states, encoded, by name.
        """
        for plan in self._plans:
            if plan.release.name in carried:
                [(epsilon, mechanism)] = plan.mechanisms.items()
                previous = parts[f"{carried[plan.release.name]}/{decimal_string(epsilon)}"]
                state.operator_states[plan.state_name(epsilon)] = mechanism.decode(previous)
