"""The account stage of a site, and its reconstruction from audit entries.

* ``account_stage`` returns the stage that runs after each release.
* ``LedgerCharges`` converts audit entries of one policy back into charges.
* ``rebuild_account`` drives the same stage over all entries of a site, in the order of their windows.
* ``current_account`` returns the latest account record, computed from the state alone.

The account depends on ledger and policy only, so a rebuilt account equals the streamed one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import Literal, NamedTuple, TypedDict

import orjson

from stream.accounting.account import Account, UnitReport
from stream.accounting.account_state import AccountState
from stream.accounting.adversaries import Knowledge
from stream.accounting.attribute_leakage import AttributeAccount, day_model
from stream.accounting.costs import Readers, readers_of
from stream.accounting.ledger import BudgetView, ChargeEvent, Entry
from stream.errors import UsageError
from stream.keys import key_day_of
from stream.operators import scan
from stream.policy.attributes import AttributeRelease, Value
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument, audiences_of
from stream.policy.fields import EVERYBODY, NANO
from stream.policy.sites import zones_now
from stream.policy.thresholds import ThresholdRelease
from stream.records import (
    AttributeCharge,
    Charge,
    CountCharge,
    DayTerms,
    JsonObject,
    Micros,
    Published,
    ReleaseId,
    WindowCharges,
)
from stream.release.attribute_stage import ABSENT
from stream.release.budgets import Budgets
from stream.release.ledger_entries import EntryReader
from stream.release.state import ReleaseState
from stream.schemas import parse_time, rfc3339

# Reading charges from ledger entries.


class LedgerCharges:
    """Reads charges from the ledger entries of one policy."""

    def __init__(
        self, policy: PolicyDocument, site: str, outcomes: Mapping[str, Value | None], view: BudgetView
    ) -> None:
        self.policy = policy
        self._version = policy.version
        self._entries = EntryReader(policy, site)
        self._outcomes = outcomes
        self._budgets = Budgets(policy, site)
        self._view = view
        """Everything that entries of all policies have charged so far."""

    def item(self, entry: Entry) -> tuple[Micros, bool]:
        """Return when the entry's window, or day, was released, and whether it was a window.

        A day is released with the first window that ends at or after it, before that window.
        """
        end, daily = parse_time(entry["window_end"]), isinstance(self._entries.release(entry), AttributeRelease)
        tick_length = self._entries.tick_length
        return (-(-end // tick_length) * tick_length if daily else end), not daily

    def apply(self, entry: Entry) -> None:
        """Add an entry to the spending that budgets read."""
        self._view.apply(self._entries.event(entry))

    def charge(self, entry: Entry, account: str) -> Charge:
        """Return what an entry charged, for the account of a policy version."""
        release, event = self._entries.release(entry), self._entries.event(entry)
        reason = event.denial or ""
        if isinstance(release, CountRelease):
            epsilon = Fraction(0) if event.denial else Fraction(event.epsilon)
            known = event.audience in release.epsilon
            left = self._budgets.windows_left(self._view, release, event.audience, event.key_day) if known else None
            return CountCharge(
                release.name, event.audience, release.mechanism, epsilon,
                reason=reason, left=left, attempt=event.attempt, w=release.windows_paid,
                terms=None if event.denial else self._terms(release, entry),
            )  # fmt: skip
        if isinstance(release, ThresholdRelease):
            return self._decided(release, entry, event)
        day, zone, attribute = ReleaseId.parse(event.release_id).attribute
        shown = self._outcomes.get(event.release_id)
        if shown is None and event.release_id in self._outcomes:
            shown = ABSENT
        return AttributeCharge(
            release.name, event.audience, Fraction(event.nano, NANO), reason=reason,
            zone=zone, attribute=attribute, day=day, span=self._entries.local_day(entry).span, shown=shown,
            version="" if self._version == account else self._version,
        )  # fmt: skip

    def _decided(self, release: ThresholdRelease, entry: Entry, event: ChargeEvent) -> CountCharge:
        """Return the charge of a window of decisions, which pays for the runs that the window opened."""
        day, price = self._entries.privacy_day(entry), self._entries.run_price(release)
        epsilon = Fraction(event.nano, NANO)
        return CountCharge(
            release.name, event.audience, release.mechanism, epsilon, reason=event.denial or "", attempt=event.attempt,
            terms=None if event.denial or day is None else price.terms(day, int(epsilon / price.run)),
        )  # fmt: skip

    def _terms(self, release: CountRelease, entry: Entry) -> DayTerms | None:
        """Return the terms that the charge paid for, if the release is paid per day."""
        day = self._entries.privacy_day(entry)
        if not release.by_day or day is None:
            return None
        return self._entries.day_prices(release).prices[entry["audience"]].terms(day)


def account_stage(policy: PolicyDocument, site: str, *, laboratory: bool, readers: Readers | None = None) -> Account:
    """Return the account of a site; by default, for every audience and for all audiences together."""
    readers = readers or readers_of(audience.name for audience in policy.audience)
    releases = [r for r in policy.release if isinstance(r, AttributeRelease) and policy.zones_of(r, site)]
    models = {release.name: day_model(release) for release in releases}
    zones = {
        r.name: tuple(z.id for z in policy.zones_of(r, site))
        for r in policy.release if isinstance(r, CountRelease | ThresholdRelease)
    }  # fmt: skip
    attributes = AttributeAccount(
        models={name: model for name, model in models.items() if model is not None},
        targets={r.name: r.information_target for r in releases if r.information_target is not None},
    )
    place = policy.site[site]
    return Account(
        site=site,
        readers=readers,
        ticks_per_observation=place.ticks_per_observation,
        devices_per_person=policy.privacy.devices_per_person,
        ticks_per_attribute=policy.privacy.ticks_per_attribute,
        tick_length=place.tick,
        w=policy.privacy.w,
        knowledge=Knowledge.of(policy.privacy),
        attributes=attributes,
        zones=zones,
        policy_version=policy.version,
        laboratory=laboratory,
        plain={r.name: _plain_shares(r) for r in policy.release if isinstance(r, CountRelease)},
        delta=policy.privacy.delta,
        factor_delta=policy.privacy.factor_delta,
        privacy_days=place.privacy_days,
        counts_logins=place.counts_logins,
    )


def _plain_shares(release: CountRelease) -> tuple[Fraction, ...]:
    """Return the share of epsilon of each level that has its own noise; empty unless all noise is plain noise.

    No loss distribution is proven for noise that a mechanism draws itself, for tests that select the measured values,
    and for states that overlap.
    """
    if release.declared.own_noise or release.prune is not None or release.states:
        return ()
    return tuple(release.shares.values()) or (Fraction(1),)


def past_account(
    policies: Iterable[PolicyDocument],
    site: str,
    readers: Readers | None,
    audit: Iterable[Entry],
    outcomes: Mapping[str, Value | None],
    *,
    exact: bool = False,
) -> list[JsonObject]:
    """Return the account records that follow from a site's audit entries, for any readers.

    See :func:`rebuild_account`.
    """
    _, records = rebuild_account(policies, site, audit, outcomes, readers, exact=exact)
    return [orjson.loads(record.value) for record in records]


def rebuild_account(
    policies: Iterable[PolicyDocument],
    site: str,
    audit: Iterable[Entry],
    outcomes: Mapping[str, Value | None],
    readers: Readers | None = None,
    *,
    exact: bool = False,
) -> tuple[AccountState, list[Published]]:
    """Rebuild the account from all entries of a site, in the order of their windows, as if no entry were late.

    Sums continue across a change of policy, as they do in ``Pipeline.migrate``. All queries of one local day form one
    item, whatever their policies; the item belongs to the account of the last of these policies.

    Args:
        policies: every policy under which an entry was made; each entry is read with the policy of its version.
        site: the site of the account.
        audit: the site's entries in order.
        outcomes: release id of an attribute record -> its value if it was shown.
        readers: reader name -> the audiences whose records it reads; by default those of the streamed account.
        exact: compute the last window's epsilons at delta exactly.

    Raises:
        UsageError: an entry was made under a policy that is not given, or is of a release that its policy
            does not have.
    """
    empty = AccountProgress(AccountState(), BudgetView(), {})
    return extend_account(empty, policies, site, audit, outcomes, readers, exact=exact)


class AccountProgress(NamedTuple):
    """An account up to some entry."""

    account: AccountState
    budgets: BudgetView
    radios: dict[str, tuple[str, ...]]
    """Radio names of the zones that the account covers."""


def extend_account(
    progress: AccountProgress,
    policies: Iterable[PolicyDocument],
    site: str,
    audit: Iterable[Entry],
    outcomes: Mapping[str, Value | None],
    readers: Readers | None = None,
    *,
    exact: bool = False,
) -> tuple[AccountState, list[Published]]:
    """Continue an account with the entries that follow it; see :func:`rebuild_account`."""
    entries = [entry for entry in audit if entry["site"] == site]
    laboratory = any(entry["laboratory"] for entry in entries)
    state, budgets, radios = progress
    charges = {
        version: LedgerCharges(policy, site, outcomes, budgets)
        for version, policy in by_version(policies, entries).items()
    }
    stages = {
        version: account_stage(each.policy, site, laboratory=laboratory, readers=readers)
        for version, each in charges.items()
    }
    models = {version: stage.attributes.models for version, stage in stages.items()}
    placed = sorted(_in_account_order(entries, charges), key=lambda one: (one[0].end, one[0].counts))
    exact_from = placed[-1][0].end if placed and exact else None
    report: list[Published] = []
    for version, group in groupby(placed, key=lambda one: one[0].version):
        stage, present = stages[version], charges[version].policy.site[site]
        now = zones_now(radios, present.zones)
        state.rename(now)
        budgets.rename(now)
        radios = present.radios
        stage = replace(stage, attributes=replace(stage.attributes, earlier_models=models), exact_from=exact_from)
        state, records = scan(stage, _charges_by_item(site, group, charges), state)
        report += records
    return state, report


class _Place(NamedTuple):
    """Position of an entry in the account."""

    end: Micros
    counts: bool
    """Days come before the counts of the window that closes them."""
    version: str
    """Version of the policy whose account contains the entry."""


def _in_account_order(entries: Iterable[Entry], charges: Mapping[str, LedgerCharges]) -> list[tuple[_Place, Entry]]:
    """Sort entries: a window's under its own policy, those of a local day together, where the last one belongs."""
    days: dict[str, _Place] = {}
    placed: list[tuple[_Place | str, Entry]] = []
    for entry in entries:
        version = str(entry["policy_version"])
        end, counts = charges[version].item(entry)
        if counts:
            placed.append((_Place(end, counts, version), entry))
        else:
            day = day_of(entry)
            last = days.get(day, _Place(end, counts, version))
            days[day] = _Place(max(end, last.end), counts, version)
            placed.append((day, entry))
    return [(days[place] if isinstance(place, str) else place, entry) for place, entry in placed]


def day_of(entry: Entry) -> str:
    """Return the local day of an attribute's ledger entry."""
    return ReleaseId.parse(entry["release_id"]).attribute.day


def by_version(policies: Iterable[PolicyDocument], entries: Iterable[Entry]) -> dict[str, PolicyDocument]:
    """Return the entries' policies by version; UsageError if the policy of an entry is missing."""
    known = {policy.version: policy for policy in policies}
    needed = dict.fromkeys(str(entry["policy_version"]) for entry in entries)
    if not needed.keys() <= known.keys():
        msg = (
            f"policy: must be given for every version under which releases were made ({', '.join(needed)}), "
            f"got {', '.join(known) or 'none'}"
        )
        raise UsageError(msg)
    return {version: known[version] for version in needed}


def _charges_by_item(
    site: str, placed: Iterable[tuple[_Place, Entry]], readers: Mapping[str, LedgerCharges]
) -> Iterator[WindowCharges]:
    for place, group in groupby(placed, key=lambda one: one[0]):
        entries = [(readers[entry["policy_version"]], entry) for _, entry in group]
        for reader, entry in entries:  # apply all entries first: audiences may share the remaining budget
            reader.apply(entry)
        yield WindowCharges(site, place.end, tuple(reader.charge(entry, place.version) for reader, entry in entries))


# The current account, computed from the state alone.


class AccountFigures(TypedDict):
    """The fields of an account record that contain spending and remaining budget."""

    window_end: str
    audiences: dict[str, UnitReport]
    coalition: UnitReport | None
    left: dict[str, int]


class CurrentAccount(AccountFigures):
    """The figures after the latest window of counts of a site."""

    site: str
    kind: Literal["counts"]


def current_account(
    policy: PolicyDocument, stage: Account, account: AccountState, state: ReleaseState
) -> CurrentAccount | None:
    """Return the account after the latest window; None before the first window.

    Nothing is charged. The result depends on ledger and policy only.
    """
    site, end = stage.site, state.released_until
    if end < 0:
        return None
    budgets, key_day = Budgets(policy, site), key_day_of(end - policy.site[site].tick)
    left = {
        f"{release.name}/{audience}": budgets.windows_left(state.ledger.budgets, release, audience, key_day)
        for release in policy.release
        if isinstance(release, CountRelease) and policy.zones_of(release, site)
        for audience in audiences_of(release)
    }
    units = stage.spend_at(account, end)
    return {
        "site": site,
        "window_end": rfc3339(end),
        "kind": "counts",
        "audiences": {reader: cost for reader, cost in units.items() if reader != EVERYBODY},
        "coalition": units.get(EVERYBODY),
        "left": {name: windows for name, windows in left.items() if windows is not None},
    }
