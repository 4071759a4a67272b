"""From occupancy to private records: charge, perturb, smooth, publish; and a day's attributes likewise.

For each count release of a window, in the order of the policy:

1. which audiences can pay, by ledger and policy alone; the rest get a denial of the same shape;
2. one chain of noise over the epsilons of those who pay (PeGaSus' perturber: four fifths of them);
3. each distinct epsilon has its own post-processing state (grouper or filter); audiences of equal epsilon
   share the value;
4. one ledger entry and one record per audience.

An attribute record is shown or withheld by its permanent coin; both cost its epsilon. A zone's day is asked once,
for good; a second attempt asks no attributes. What counts and attributes say together stays within ``max_factor``,
by what the ledger has charged and not by what the policy plans.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from hashlib import sha256
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from stream.accounting.charged import Line, line_name
from stream.accounting.ledger import Ledger
from stream.errors import DataError
from stream.keys import Keys, key_day, subkey
from stream.local_time import local_day, slot_of
from stream.mechanisms.chain import chain
from stream.mechanisms.contract import Tick, Values
from stream.mechanisms.labels import Context, counts_digest, label
from stream.mechanisms.noise import Ints
from stream.policy.document import (
    AttributeRelease,
    CountRelease,
    Policy,
    decimal_string,
)
from stream.policy.releases import LONGEST_W
from stream.records import (
    HOUR,
    WAITING,
    Charge,
    DayAttribute,
    DayClosed,
    Micros,
    OccupancyWindow,
    Published,
    Spent,
)
from stream.release.asked import EVERY_ZONE, LocalDay
from stream.release.attribute_plan import AttributeOutcome, AttributePlan
from stream.release.budgets import Budgets, nano
from stream.release.carried import Owner, continued, waiting_until
from stream.release.count_plan import CountPlan, release_id
from stream.release.promises import log_largest_factor
from stream.release.query_plan import QueryPlan
from stream.release.state import ReleaseState, decode_release_state, encode_release_state
from stream.schemas import (
    AUDIT,
    AttributeRecord,
    CountRecord,
    private_topic,
    rfc3339,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

MECHANISMS = "2"
"""Version of everything that decides a released byte; a state made under another one is refused."""
SLACK = 2e-9
"""Rounding of ln factors: what a policy's check lets pass, passes here."""


class Releases:
    """The release stage of one site."""

    def __init__(self, policy: Policy, site: str, keys: Keys, attempt: int = 1) -> None:
        self._policy = policy
        self._site = site
        self._keys = keys
        self._attempt = attempt
        self._tick = policy.site[site].tick
        self._budgets = Budgets.of(policy, site)
        self._timezone = ZoneInfo(policy.site[site].timezone)
        self._ledger = Ledger(site, keys.ledger, keys.audit, policy.version, keys.laboratory)
        self._plans = [
            CountPlan(policy, release, site)
            for release in policy.release
            if isinstance(release, CountRelease) and policy.zones_of(release, site)
        ]
        self._queries = {plan.release.name: [QueryPlan(plan, q) for q in plan.release.queries] for plan in self._plans}
        self._attribute_plans = [
            AttributePlan(policy, release, site, keys)
            for release in policy.release
            if isinstance(release, AttributeRelease) and policy.zones_of(release, site)
        ]
        self._alone = {plan.release.name: log_largest_factor(plan.release) for plan in self._attribute_plans}

    def initial(self) -> ReleaseState:
        """Return the state before the first window."""
        return ReleaseState()

    def step(
        self, state: ReleaseState, item: OccupancyWindow | DayClosed
    ) -> tuple[ReleaseState, list[Published | Spent]]:
        """Release one window or one day's attributes; each record follows its ledger entry.

        Raises:
            KeyFileError: the day's key no longer exists; nothing of this item is released.
        """
        if isinstance(item, OccupancyWindow):
            outputs = list(self._window(state, item, self._plans))
            state.charged.forget(item.window_end)
        else:
            outputs = list(self._day(state, item))
        charges = tuple(output for output in outputs if isinstance(output, Charge))
        published: list[Published | Spent] = [output for output in outputs if isinstance(output, Published)]
        if charges:
            published.append(Spent(self._site, item.window_end, charges))
        return state, published

    # --- counts ---------------------------------------------------------------------------------------

    def _window(
        self, state: ReleaseState, window: OccupancyWindow, plans: Iterable[CountPlan]
    ) -> Iterator[Published | Charge]:
        if window.window_end <= state.through:
            return
        state.through = window.window_end
        self.note_coverage(state, window)
        day = key_day(window.window_end - self._tick)
        if day != state.day:
            state.day = day
            for name, (plan, epsilon) in self._mechanisms():
                if name in state.smoothing:
                    state.smoothing[name] = plan.mechanisms[epsilon].pause(state.smoothing[name])
        for plan in plans:
            yield from self._count_release(state, plan, window, day)

    def note_coverage(self, state: ReleaseState, window: OccupancyWindow) -> None:
        """Take a window's coverage into that of its local day."""
        day = (_EPOCH + timedelta(microseconds=window.window_end)).astimezone(self._timezone).date().isoformat()
        state.coverage = {day: min(window.coverage, state.coverage.get(day, window.coverage))}

    def _mechanisms(self) -> Iterator[tuple[str, tuple[CountPlan, Fraction]]]:
        for plan in self._plans:
            for epsilon in plan.mechanisms:
                yield plan.state_name(epsilon), (plan, epsilon)

    def _stages(self) -> dict[str, Any]:
        """Return what the states of post-processing belong to, by name."""
        stages: dict[str, Any] = {name: plan.mechanisms[epsilon] for name, (plan, epsilon) in self._mechanisms()}
        for plan in self._plans:
            for query in self._queries[plan.release.name]:
                stages |= {query.state_name(epsilon): query.stage for epsilon in plan.mechanisms}
        return stages

    def _count_release(
        self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow, day: int
    ) -> Iterator[Published | Charge]:
        release, end = plan.release, window.window_end
        reasons = self._denials(state, plan, day, end)
        paying = {release.epsilon[name] for name, reason in reasons.items() if reason is None}
        counts = plan.counts(window)
        made = self._perturb(state, plan, window, counts, paying)
        commitment = self._commitment(day, release.name, end, counts_digest(counts))
        for audience, reason in reasons.items():
            body = self._head(end - self._tick, end) | plan.record(window, audience, self._attempt)
            value = made[release.epsilon[audience]] if reason is None else None
            body |= plan.outcome(audience, value, reason)
            yield self._charge(state, body, end=end, day=day, paid=reason is None, commitment=commitment)
            topic, record = private_topic(audience, release.name), CountRecord.model_validate(body).to_bytes()
            yield Published(topic, self._site, record, end, body["release_id"])
        for audience, reason in reasons.items():  # when all have been charged, since what is left may be shared
            yield Charge(
                release.name, audience, release.mechanism, release.epsilon[audience] if reason is None else Fraction(0),
                reason=reason or "", left=self._budgets.left(state.ledger, release, audience, day),
                attempt=self._attempt, w=release.windows_paid,
            )  # fmt: skip
        yield from self._answers(state, plan, window, made, reasons)

    def _denials(self, state: ReleaseState, plan: CountPlan, day: int, end: Micros) -> dict[str, str | None]:
        """Return why each audience gets nothing of a window, None for those that get it and are charged."""
        release = plan.release
        reasons = self._budgets.denials(state.ledger, release, day, end)
        if plan.owner is not None and release.name not in state.carried and end <= state.waits:
            return dict.fromkeys(reasons, WAITING)
        paid = {audience: release.epsilon[audience] for audience, reason in reasons.items() if reason is None}
        name = line_name(release.name, self._policy.version, self._attempt)
        line = Line(release.mechanism, release.windows_paid, tuple(zone.id for zone in plan.zones))
        state.charged.note(end, name, line, paid)
        if paid and self._tells_too_much(state, line.zones, end):
            state.charged.take_back(end, name)
            return {audience: reason or "factor" for audience, reason in reasons.items()}
        return reasons

    def _tells_too_much(self, state: ReleaseState, zones: tuple[str, ...], end: Micros) -> bool:
        """Whether what was charged now says too much of attributes that were asked of a day that holds a window."""
        for day, asked in state.asked.at(end).items():
            for zone in asked.keys() & set(zones):
                if self._too_much(state, day, zone, asked[zone].exponent):
                    return True
        return False

    def _too_much(self, state: ReleaseState, day: LocalDay, zone: str, alone: float) -> bool:
        """Whether counts that were charged raise a zone's day above ``max_factor``; without counts they do not."""
        privacy, covering = self._policy.privacy, state.charged.covering(zone)
        counts = state.charged.exponent(covering, day.span, privacy.ticks_per_attribute, None)
        return counts > 0 and alone + float(privacy.devices_per_person * counts) > math.log(privacy.max_factor) + SLACK

    def _answers(
        self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow, made: dict[Fraction, Values],
        reasons: dict[str, str | None],
    ) -> Iterator[Published]:  # fmt: skip
        """Answer the release's queries from the values just made: free, and so without a ledger entry."""
        end = window.window_end
        for query in self._queries[plan.release.name]:
            answers = {}
            for epsilon in plan.mechanisms:
                name = query.state_name(epsilon)
                state.smoothing[name], answers[epsilon] = query.step(state.smoothing.get(name), made.get(epsilon))
            for audience, reason in reasons.items():
                answer = answers[plan.release.epsilon[audience]] if reason is None else None
                body = self._head(end - self._tick, end)
                body |= query.record(window, audience, self._attempt, answer, reason)
                record = CountRecord.model_validate(body).to_bytes()
                topic = private_topic(audience, query.query.name)
                yield Published(topic, self._site, record, end, body["release_id"])

    def _perturb(
        self,
        state: ReleaseState,
        plan: CountPlan,
        window: OccupancyWindow,
        counts: Ints,
        paying: set[Fraction],
    ) -> dict[Fraction, Values]:
        """Draw one chain of noise for all who pay, and smooth for each epsilon; close the others' groups."""
        for epsilon, mechanism in plan.mechanisms.items():
            name = plan.state_name(epsilon)
            if epsilon not in paying and name in state.smoothing:
                state.smoothing[name] = mechanism.pause(state.smoothing[name])
        if not paying:
            return {}
        key = subkey(self._keys.day(key_day(window.window_end - self._tick)), "noise")
        context = Context(self._site, plan.release.name, window.window_end, self._attempt, plan.names)
        shares = {epsilon: plan.mechanisms[epsilon].noise_epsilon for epsilon in sorted(paying)}
        if plan.draws_own_noise:
            noise = dict.fromkeys(shares.values(), np.zeros_like(counts))
        else:
            noise = chain(key, context, counts_digest(counts), list(shares.values()), len(counts))
        slot = slot_of(window.window_end, self._timezone)
        made = {}
        for epsilon, share in shares.items():
            mechanism, name = plan.mechanisms[epsilon], plan.state_name(epsilon)
            held = state.smoothing[name] if name in state.smoothing else mechanism.initial()
            tick = Tick(counts, noise[share], key, context, slot)
            state.smoothing[name], [made[epsilon]] = mechanism.step(held, tick)
            if plan.owner is not None:
                state.carried[plan.release.name] = plan.owner
        return made

    # --- attributes -----------------------------------------------------------------------------------

    def _day(self, state: ReleaseState, closed: DayClosed) -> Iterator[Published | Charge]:
        day = LocalDay(closed.day, *local_day(closed.day, self._timezone))
        if closed.window_end <= state.through or closed.day <= state.closed or self._attempt > 1:
            return
        state.closed = closed.day
        unasked = {plan.release.name: self._not_asked(state, plan, day) for plan in self._attribute_plans}
        for plan in self._attribute_plans:
            name = plan.release.name
            for record, outcome in plan.outcomes(closed, day.start, unasked[name]):
                if outcome.reason is None:
                    state.asked.note(day, record.zone, record.attribute, self._alone[name])
                yield from self._attribute(state, plan.release, record, outcome, day, closed.window_end)
        state.asked.forget(closed.day)

    def _not_asked(self, state: ReleaseState, plan: AttributePlan, day: LocalDay) -> dict[str, str]:
        """Return, by zone, why none of a release's attributes is asked: by what was asked and charged before alone."""
        release, alone = plan.release, self._alone[plan.release.name]
        other_days = state.asked.in_month(day.day, plan.zones, release.attributes)
        over = release.days_per_month is not None and other_days >= release.days_per_month
        unasked = dict.fromkeys(plan.zones, "month") if over else {}
        asked = state.asked.zones_of(day)
        for zone in plan.zones:
            if zone in asked or EVERY_ZONE in asked:
                unasked[zone] = "asked"
            elif self._too_much(state, day, zone, alone):
                unasked[zone] = "factor"
        return unasked

    def _attribute(
        self, state: ReleaseState, release: AttributeRelease, record: DayAttribute, outcome: AttributeOutcome,
        local: LocalDay, closed: Micros,
    ) -> Iterator[Published | Charge]:  # fmt: skip
        _, start, end = local
        name = f"{record.day}/{record.zone}/{record.attribute}"
        body = self._head(start, end) | {
            "release_id": release_id(self._site, release.name, outcome.audience, name),
            "audience": outcome.audience, "release": release.name, "day": record.day, "zone": record.zone,
            "attribute": record.attribute, "mechanism": release.mechanism,
            "coverage": round(float(state.coverage.get(record.day, 0)), 4),
        } | outcome.fields  # fmt: skip
        paid, day = outcome.reason is None, key_day(start)
        commitment = self._commitment(day, release.name, end, outcome.read)
        yield self._charge(state, body, end=end, day=day, paid=paid, commitment=commitment)
        topic, value = private_topic(outcome.audience, release.name), AttributeRecord.model_validate(body).to_bytes()
        yield Published(topic, self._site, value, closed, body["release_id"])
        yield Charge(
            release.name, outcome.audience, release.mechanism, outcome.epsilon if paid else Fraction(0),
            reason=outcome.reason or "", zone=record.zone, attribute=record.attribute,
            day=record.day, span=local.span, shown=outcome.public,
        )  # fmt: skip

    # --- what all records share -----------------------------------------------------------------------

    def _head(self, start: Micros, end: Micros) -> dict[str, Any]:
        return {
            "site": self._site,
            "window_start": rfc3339(start),
            "window_end": rfc3339(end),
            "policy_version": self._ledger.policy_version,
            "laboratory": self._keys.laboratory,
        }

    def _commitment(self, day: int, release: str, end: Micros, digest: bytes) -> str:
        """Return the commitment to an input: another of each attempt, so that nobody can compare what they read."""
        attempt = (self._attempt,) if self._attempt > 1 else ()
        key = subkey(self._keys.day(day), "commitment")
        return hmac.new(key, label(self._site, release, end, *attempt, digest), sha256).hexdigest()[:32]

    def _charge(
        self, state: ReleaseState, body: dict[str, Any], *, end: Micros, day: int, paid: bool, commitment: str
    ) -> Published:
        """Enter the record that ``body`` will become into the ledger."""
        state.ledger, entry = self._ledger.enter(
            state.ledger,
            release=body["release"],
            audience=body["audience"],
            release_id=body["release_id"],
            attempt=self._attempt,
            window_end=end,
            keep=LONGEST_W * max(self._tick, HOUR),
            day=day,
            epsilon=body["epsilon"],
            nano=nano(Fraction(body["spend"])),
            denial=None if paid else body["reason"],
            commitment=commitment,
            zones=self._budgets.covered.get(body["release"], ()),
        )
        return Published(AUDIT, self._site, entry, end, f"{self._site}/{state.ledger.sequence - 1}")

    # --- byte form ------------------------------------------------------------------------------------

    def encode(self, state: ReleaseState) -> bytes:
        """Return the state's bytes."""
        stages = self._stages()
        return encode_release_state(
            state, {name: stages[name].encode(value) for name, value in sorted(state.smoothing.items())}
        )

    def decode(self, data: bytes) -> ReleaseState:
        """Return the state of these bytes; DataError when they belong to other releases."""
        state, parts = decode_release_state(data)
        known, owners = self._stages(), self._owners()
        unknown = set(parts) - set(known) or {
            name for name, owner in state.carried.items() if owners.get(name) != owner
        }
        if unknown:
            msg = f"release state: must belong to this policy's releases, has {sorted(unknown)[0]}"
            raise DataError(msg)
        state.smoothing = {name: known[name].decode(part) for name, part in parts.items()}
        return state

    def _owners(self) -> dict[str, Owner]:
        """Return the releases that carry publications, and what these belong to."""
        return {plan.release.name: plan.owner for plan in self._plans if plan.owner is not None}

    def adopt(self, data: bytes, now: Mapping[str, frozenset[str]]) -> ReleaseState:
        """Return the state with which these releases go on from another policy's: the books are kept.

        ``now`` says which zones those of the other policy are now. Groups and filters begin anew. A publication goes on
        where it belongs to the same as before; what carries publications and begins anew waits.
        """
        state, parts = decode_release_state(data)
        state.asked.rename(now)
        state.charged.rename(now)
        state.ledger.rename(now)
        old, owners = state.carried, self._owners()
        kept = continued(old, owners)
        ended = {name: owner for name, owner in old.items() if name not in kept.values()}
        begun = {name: owner for name, owner in owners.items() if name not in kept}
        if state.through >= 0:
            state.waits = max(state.waits, waiting_until(state.through, ended, begun))
        state.carried = {name: owners[name] for name in kept}
        for plan in self._plans:
            if plan.release.name in kept:
                [(epsilon, mechanism)] = plan.mechanisms.items()
                held = parts[f"{kept[plan.release.name]}/{decimal_string(epsilon)}"]
                state.smoothing[plan.state_name(epsilon)] = mechanism.decode(held)
        return state
