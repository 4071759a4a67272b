"""Ledger entries of the past read back into what a site remembers of its charges: whatever policy made them.

A state remembers what windows to come must look at. Where it has to look further back (a recording that comes late),
or where entries were published that it does not know of (``settle``), the entries themselves are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from stream.accounting.charged import Line, line_name
from stream.accounting.ledger import account_of
from stream.keys import key_day_of
from stream.local_time import span_of_day
from stream.policy.document import AttributeRelease, CountRelease, Policy
from stream.policy.queries import LONGEST_W
from stream.policy.sites import zones_now
from stream.records import HOUR, Micros, ReleaseId
from stream.release.asked import LocalDay
from stream.release.paid_by_day import PaidByDay
from stream.release.paid_days import ELSEWHERE
from stream.release.promises import log_largest_factor
from stream.release.run_prices import STREAMS, RunPrice
from stream.release.state import ReleaseState
from stream.schemas import parse_time

Entry = Mapping[str, Any]


class EarlierPolicy:
    """A policy under which entries were made, as the present one sees it."""

    def __init__(self, policy: Policy, present: Policy, site: str) -> None:
        self._version = policy.version
        self._timezone = ZoneInfo(policy.site[site].timezone)
        self._tick_length = policy.site[site].tick
        self._now = zones_now(policy.site[site].radios, present.site[site].zones)
        self._lines: dict[str, Line] = {}
        """Count release -> what was charged under its name."""
        self._days: dict[str, PaidByDay] = {}
        """Count release that is paid by the day -> what its days cost."""
        self._privacy_days = policy.site[site].privacy_days
        self._runs: dict[str, RunPrice] = {}
        """Threshold stream -> what its runs cost."""
        self._alone: dict[str, float] = {}
        """Attribute release -> ln of the largest factor that it reaches by itself."""
        self._carrying: set[str] = set()
        """Count releases that carry publications from window to window."""
        for release in policy.release:
            if isinstance(release, CountRelease):
                self._carrying |= {release.name} if release.declared.carries else set()
                zones = {now for zone in policy.zones_of(release, site) for now in self._now[zone.id]}
                self._lines[release.name] = Line(release.mechanism, release.windows_paid, tuple(sorted(zones)))
                if release.by_day:
                    self._days[release.name] = PaidByDay.of(policy, release, site)
            elif isinstance(release, AttributeRelease):
                self._alone[release.name] = log_largest_factor(release)
            elif not release.free:
                zones = {now for zone in policy.zones_of(release, site) for now in self._now[zone.id]}
                self._lines[release.name] = Line(release.mechanism, 1, tuple(sorted(zones)))
                self._runs[release.name] = RunPrice.of(policy, release, site)

    def note(self, state: ReleaseState, entry: Entry, end: Micros) -> None:
        """Take one charge into what has been charged and asked."""
        release = entry["release"]
        if release in self._lines:
            line = self._lines[release]
            zones = () if release in self._runs else line.zones  # a stream's runs use up no budget of counts
            account = account_of(release, entry["audience"], zones)
            if entry["nano"]:
                key_day = key_day_of(end - self._tick_length)
                state.ledger.remember(account, key_day, end, entry["nano"], zones)
            self._note_count(state, entry, end, line)
        elif release in self._alone:
            local_day, zone, attribute = ReleaseId.parse(entry["release_id"]).attribute
            local = LocalDay(local_day, *span_of_day(local_day, self._timezone))
            for now in self._now[zone]:
                state.asked.note(local, now, attribute, self._alone[release])

    def _note_count(self, state: ReleaseState, entry: Entry, end: Micros, line: Line) -> None:
        """Take what a window was charged, or what the price of its day bought, into the charged windows."""
        release, audience, cost = entry["release"], entry["audience"], Fraction(entry["epsilon"])
        number = None
        if release in {*self._days, *self._runs} and self._privacy_days is not None:
            number = self._privacy_days.at(end).number
            by_run = self._runs.get(release)
            cost = self._days[release].prices[audience].changed if by_run is None else 2 * by_run.day
            line = line._replace(day=number)
        name = line_name(release, self._version, entry["attempt"], number)
        state.charged.note(end, name, line, {audience: cost})

    def pass_by(self, state: ReleaseState, entry: Entry) -> None:
        """Let nothing that an entry is about be released any more: its window, its local day, its privacy day's run.

        What carries publications over windows waits, since nobody can say which of them it made.
        """
        release, end = entry["release"], parse_time(entry["window_end"])
        if release in self._alone:
            state.closed = max(state.closed, ReleaseId.parse(entry["release_id"]).attribute.day)
            return
        state.through = max(state.through, end)
        if release in self._carrying:
            state.waits = max(state.waits, end + LONGEST_W * HOUR)
        if release in self._days and self._privacy_days is not None:
            state.paid.pay(release, self._privacy_days.at(end), ELSEWHERE)
        if release in self._runs and self._privacy_days is not None:
            state.paid.pay(STREAMS, self._privacy_days.at(end), ELSEWHERE)


def settle(
    state: ReleaseState, entries: Sequence[Entry], policies: Mapping[str, Policy], present: Policy, site: str
) -> None:
    """Count entries that were published, but whose records never were, as if all of them had been given away.

    Args:
        state: knows the entries before these; nothing that they are about is released after it.
        entries: of one site, in the order of its chain.
        policies: the policy of each version under which an entry was made.
        present: the policy to whose zones the state belongs; that of an entry where it has not the site.
        site: whose they are.
    """
    known: dict[str, EarlierPolicy] = {}
    for entry in entries:
        version = entry["policy_version"]
        if version not in known:
            policy = policies[version]
            known[version] = EarlierPolicy(policy, present if site in present.site else policy, site)
        if entry["outcome"] == "released":
            known[version].note(state, entry, parse_time(entry["window_end"]))
        known[version].pass_by(state, entry)
        state.ledger.sequence, state.ledger.head = entry["sequence"] + 1, entry["hash"]
    state.charged.forget(state.through)
