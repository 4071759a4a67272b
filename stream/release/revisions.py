"""Revisions: values that are published again when later windows are known.

A revision reads only values that its audience has received: the noisy values of its own epsilon, and the filter's
state, which is computed from them. It therefore costs nothing and has no ledger entry; the field ``revises`` of its
records contains the release ids of the first ones. A denied window has no noisy value and is not revised. Which windows
are revised, and when, depends on the clock and the ledger only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from fractions import Fraction
from typing import Any, Protocol

from stream.errors import PolicyError
from stream.local_time import MIDNIGHT, slot_of
from stream.mechanisms.base import CountMechanism, Values, noisy_of
from stream.mechanisms.filter.history import DayRevision, HourRevision, RevisedWindow, RevisionInput, window_of
from stream.mechanisms.filter.mechanism import DayRevisable, Revisable
from stream.operators import Operator
from stream.policy.counts import CountRelease, Span
from stream.policy.document import PolicyDocument
from stream.policy.fields import decimal_string
from stream.policy.sites import Site
from stream.records import Micros, Published
from stream.release.count_plan import CountPlan, count_plan
from stream.release.count_records import count_record
from stream.release.ledger_writer import LedgerWriter
from stream.release.state import OperatorState
from stream.schemas import private_topic


class RevisionOperator(Operator[Any, RevisionInput, RevisedWindow], Protocol):
    """Revises the windows of an hour or of a day."""

    @property
    def mechanism(self) -> DayRevisable:
        """The mechanism whose values are revised."""

    def finish(self, state: Any, now: Any) -> list[RevisedWindow]:
        """Return revisions of all remaining windows, given the mechanism's current state."""

    def most_bytes(self, tick: Micros) -> int:
        """Return the largest size of the state in bytes, uncompressed, for windows of this length."""


class RevisionPlan:
    """The revision of one span of a count release's windows at a site."""

    def __init__(self, plan: CountPlan, span: Span, site: Site, writer: LedgerWriter) -> None:
        self._plan, self._span, self._writer = plan, span, writer
        self._site = site
        self._by_epsilon = {epsilon: _operator(plan.release, each, span) for epsilon, each in plan.mechanisms.items()}
        self.operators = {self._state_name(epsilon): operator for epsilon, operator in self._by_epsilon.items()}
        """State name -> operator of the state between windows."""

    def _state_name(self, epsilon: Fraction) -> str:
        return f"{self._plan.release.revised_name}/{self._span}/{decimal_string(epsilon)}"

    def window(
        self,
        buffered: MutableMapping[str, OperatorState],
        before: Mapping[str, OperatorState],
        end: Micros,
        coverage: Fraction,
        made: Mapping[Fraction, Values],
    ) -> Iterator[Published]:
        """Buffer a window that has passed; publish the revisions that are due with it.

        Args:
            buffered: operator states by name; those of this revision are updated.
            before: the same states, before the window.
            end: of the window.
            coverage: of the window.
            made: its values, for each epsilon that was released.
        """
        slot = slot_of(end, self._site.timezone, self._site.day_starts or MIDNIGHT)
        for epsilon, operator in self._by_epsilon.items():
            name, values = self._state_name(epsilon), made.get(epsilon)
            start = before.get(self._plan.state_name(epsilon))
            item = RevisionInput(
                end, None if values is None else window_of(end, coverage, noisy_of(values), slot),
                operator.mechanism.initial() if start is None else start, values,
            )  # fmt: skip
            buffered[name], revised = operator.step(buffered.get(name, operator.initial()), item)
            yield from self._records(epsilon, revised)

    def finish(self, buffered: MutableMapping[str, OperatorState]) -> Iterator[Published]:
        """Publish revisions of all remaining windows, from the windows so far."""
        for epsilon, operator in self._by_epsilon.items():
            now = buffered.get(self._plan.state_name(epsilon), operator.mechanism.initial())
            revised = operator.finish(buffered.pop(self._state_name(epsilon), operator.initial()), now)
            yield from self._records(epsilon, revised)

    def _records(self, epsilon: Fraction, revised: list[RevisedWindow]) -> Iterator[Published]:
        release, writer = self._plan.release, self._writer
        readers = [audience for audience, own in release.epsilon.items() if own == epsilon]
        for each in revised:
            end = each.end
            header = writer.header(end - writer.tick_length, end, each.coverage)
            where, lag = f"{header.window_end}/{self._span}", (each.at - end) // writer.tick_length
            for audience in readers:
                first = count_record(self._plan, header, audience, each.values, noisy=False)
                own = header.fields(release.revised_name, audience, where)
                record = first.model_copy(update={**own, "revises": first.release_id, "lag": lag})
                topic = private_topic(audience, release.revised_name)
                yield Published(topic, writer.site, record.to_bytes(), each.at, record.release_id)


LARGEST_HELD = 16 << 20
"""Limit for a site's buffered windows, uncompressed, in bytes: no snapshot is larger."""


def check_revisions(policy: PolicyDocument, file: str = "policy") -> None:
    """Raise PolicyError where a site's windows buffered for revision would not fit a snapshot."""
    for name, site in policy.site.items():
        size = sum(
            _operator(release, mechanism, span).most_bytes(site.tick)
            for release in policy.release
            if isinstance(release, CountRelease) and release.revise and policy.zones_of(release, name)
            for mechanism in count_plan(policy, release, name).mechanisms.values()
            for span in release.revise
        )
        if size > LARGEST_HELD:
            raise PolicyError(
                f"{file}: revise must hold at most {LARGEST_HELD >> 20} MiB of a site's windows, holds "
                f"{size / 2**20:.1f} at {name}; give its zones a smaller max_count, or revise fewer releases"
            )


def _operator(release: CountRelease, mechanism: CountMechanism, span: Span) -> RevisionOperator:
    if span == "1h" and isinstance(mechanism, Revisable):
        return HourRevision(mechanism)
    if span == "1d" and isinstance(mechanism, DayRevisable):
        return DayRevision(mechanism)
    raise PolicyError(f"release '{release.name}': revise must be used with a mechanism whose values can be revised")
