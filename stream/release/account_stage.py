"""The account of a policy: the stage that streams it, and the same stage driven over the books of the past."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple

import orjson

from stream.accounting.account import Account, AccountState
from stream.accounting.attribute_model import day_model
from stream.accounting.exposure import AttributeAccount
from stream.accounting.knowledge import Knowledge
from stream.accounting.ledger import LedgerState
from stream.accounting.views import Readers, readers_of
from stream.errors import UsageError
from stream.operators import scan
from stream.policy.document import AttributeRelease, CountRelease, Policy, ThresholdRelease
from stream.policy.sites import zones_now
from stream.records import Micros, Published, ReleaseId, Spent
from stream.release.books import Books, Entry


def account_stage(policy: Policy, site: str, *, laboratory: bool, readers: Readers | None = None) -> Account:
    """Return the account of a site, for every audience and all together unless other readers are named."""
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
    )


def _plain_shares(release: CountRelease) -> tuple[Fraction, ...]:
    """Return the share of epsilon of each level that has noise of its own; none unless all of it is plain noise.

    Noise of a mechanism's own, tests that decide what is measured, and states that overlap have no proven law.
    """
    if release.declared.own_noise or release.prune is not None or release.states:
        return ()
    return tuple(release.shares.values()) or (Fraction(1),)


def past_account(
    policies: Iterable[Policy],
    site: str,
    readers: Readers | None,
    audit: Iterable[Entry],
    outcomes: Mapping[str, Any],
    *,
    exact: bool = False,
) -> list[dict[str, Any]]:
    """Return the account records that a site's audit entries amount to, for any readers.

    See :func:`rebuild_account`.
    """
    _, records = rebuild_account(policies, site, audit, outcomes, readers, exact=exact)
    return [orjson.loads(record.value) for record in records]


def rebuild_account(
    policies: Iterable[Policy],
    site: str,
    audit: Iterable[Entry],
    outcomes: Mapping[str, Any],
    readers: Readers | None = None,
    *,
    exact: bool = False,
) -> tuple[AccountState, list[Published]]:
    """Account anew for all entries of a site, in the order of their windows: as if none had come late.

    Where the policy has changed the sums go on, as they do in ``Pipeline.adopt``. All that was asked of a local day
    is one item, under whatever policies it was asked, in the account of the last.

    Args:
        policies: every policy under which an entry was made; each entry is read by the one of its version.
        site: whose account it is.
        audit: the site's entries in order.
        outcomes: release id of an attribute record -> its value where it was shown.
        readers: names and the audiences that each reads as; without them, those of the streamed account.
        exact: work out the last window's epsilons at delta exactly.

    Raises:
        UsageError: an entry was made under a policy that is not given, or is of a release that its policy
            does not have.
    """
    begun = Begun(AccountState(), LedgerState(), {})
    return go_on(begun, policies, site, audit, outcomes, readers, exact=exact)


class Begun(NamedTuple):
    """An account as far as it goes."""

    account: AccountState
    ledger: LedgerState
    """What was charged so far, as budgets look at it."""
    radios: dict[str, tuple[str, ...]]
    """Of the zones that the account is about."""


def go_on(
    begun: Begun,
    policies: Iterable[Policy],
    site: str,
    audit: Iterable[Entry],
    outcomes: Mapping[str, Any],
    readers: Readers | None = None,
    *,
    exact: bool = False,
) -> tuple[AccountState, list[Published]]:
    """Account for entries behind those that an account knows; see :func:`rebuild_account`."""
    entries = [entry for entry in audit if entry["site"] == site]
    laboratory = any(entry["laboratory"] for entry in entries)
    state, ledger, radios = begun
    books = {
        version: Books(policy, site, outcomes, ledger) for version, policy in by_version(policies, entries).items()
    }
    stages = {
        version: account_stage(held.policy, site, laboratory=laboratory, readers=readers)
        for version, held in books.items()
    }
    models = {version: stage.attributes.models for version, stage in stages.items()}
    placed = sorted(_placed(entries, books), key=lambda one: (one[0].end, one[0].counts))
    exact_from = placed[-1][0].end if placed and exact else None
    report: list[Published] = []
    for version, group in groupby(placed, key=lambda one: one[0].version):
        stage, present = stages[version], books[version].policy.site[site]
        now = zones_now(radios, present.zones)
        state.rename(now)
        ledger.rename(now)
        radios = present.radios
        stage = replace(stage, attributes=replace(stage.attributes, earlier=models), exact_from=exact_from)
        state, records = scan(stage, _spent(site, group, books), state)
        report += records
    return state, report


class _Place(NamedTuple):
    """Where an entry stands in the account."""

    end: Micros
    counts: bool
    """Days come before the counts of the window that closes them."""
    version: str
    """Policy in whose account it stands."""


def _placed(entries: Iterable[Entry], books: Mapping[str, Books]) -> list[tuple[_Place, Entry]]:
    """Place each entry: a window's by its own policy, and all of a local day together, where the last one is."""
    days: dict[str, _Place] = {}
    placed: list[tuple[_Place | str, Entry]] = []
    for entry in entries:
        version = str(entry["policy_version"])
        end, counts = books[version].item(entry)
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


def by_version(policies: Iterable[Policy], entries: Iterable[Entry]) -> dict[str, Policy]:
    """Return the entries' policies by version; UsageError unless there is one for each."""
    known = {policy.version: policy for policy in policies}
    needed = dict.fromkeys(str(entry["policy_version"]) for entry in entries)
    if not needed.keys() <= known.keys():
        msg = (
            f"policy: must be given for every version under which releases were made ({', '.join(needed)}), "
            f"got {', '.join(known) or 'none'}"
        )
        raise UsageError(msg)
    return {version: known[version] for version in needed}


def _spent(site: str, placed: Iterable[tuple[_Place, Entry]], books: Mapping[str, Books]) -> Iterator[Spent]:
    for place, group in groupby(placed, key=lambda one: one[0]):
        charged = [(books[entry["policy_version"]], entry) for _, entry in group]
        for held, entry in charged:  # all of them first: what is left may be shared
            held.note(entry)
        yield Spent(site, place.end, tuple(held.charge(entry, place.version) for held, entry in charged))
