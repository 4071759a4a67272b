"""The account of a policy: the stage that streams it, and the same stage driven over the books of the past."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import groupby
from typing import Any

import orjson

from stream.accounting.account import Account, AccountState, Readers, readers_of
from stream.accounting.attribute_model import day_model
from stream.accounting.exposure import AttributeAccount
from stream.accounting.knowledge import Knowledge
from stream.accounting.ledger import LedgerState
from stream.attribute_release import ABSENT
from stream.budgets import Budgets
from stream.errors import UsageError
from stream.guarantees import counts_exponent
from stream.operators import scan
from stream.policy import AttributeRelease, CountRelease, Policy
from stream.records import DAY, Charge, Micros, Published, Spent
from stream.schemas import parse_time

Entry = Mapping[str, Any]


def account_stage(policy: Policy, site: str, *, laboratory: bool, readers: Readers | None = None) -> Account:
    """Return the account of a site, for every audience and all together unless other readers are named."""
    readers = readers or readers_of(audience.name for audience in policy.audience)
    releases = [r for r in policy.release if isinstance(r, AttributeRelease) and policy.zones_of(r, site)]
    models = {release.name: day_model(release) for release in releases}
    covered = {zone.id for release in releases for zone in policy.zones_of(release, site)}
    attributes = AttributeAccount(
        models={name: model for name, model in models.items() if model is not None},
        targets={r.name: r.information_target for r in releases if r.information_target is not None},
        count_exponents={
            zone: {reader: counts_exponent(policy, site, zone, members) for reader, members in readers.items()}
            for zone in sorted(covered)
        },
    )
    return Account(
        site=site,
        readers=readers,
        ticks_per_observation=policy.site[site].ticks_per_observation,
        devices_per_person=policy.privacy.devices_per_person,
        tick=policy.site[site].tick,
        w=policy.privacy.w,
        knowledge=Knowledge.of(policy.privacy),
        attributes=attributes,
        policy_version=policy.version,
        laboratory=laboratory,
    )


def past_account(
    policies: Iterable[Policy], site: str, readers: Readers, audit: Iterable[Entry], outcomes: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the account records that a site's audit entries amount to, for any readers.

    See :func:`retell`.
    """
    _, records = retell(policies, site, audit, outcomes, readers)
    return [orjson.loads(record.value) for record in records]


def retell(
    policies: Iterable[Policy],
    site: str,
    audit: Iterable[Entry],
    outcomes: Mapping[str, Any],
    readers: Readers | None = None,
) -> tuple[AccountState, list[Published]]:
    """Account anew for all entries of a site, in the order of their windows: as if none had come late.

    Where the policy has changed the sums go on, as they do in ``Pipeline.adopt``.

    Args:
        policies: every policy under which an entry was made; each entry is read by the one of its version.
        site: whose account it is.
        audit: the site's entries in order.
        outcomes: release id of an attribute record -> its value where it was shown.
        readers: names and the audiences that each reads as; without them, those of the streamed account.

    Raises:
        UsageError: an entry was made under a policy that is not given, or is of a release that its policy
            does not have.
    """
    entries = [entry for entry in audit if entry["site"] == site]
    laboratory, ledger = any(entry["laboratory"] for entry in entries), LedgerState()
    books = {
        version: _Books(policy, site, outcomes, ledger) for version, policy in by_version(policies, entries).items()
    }
    entries.sort(key=lambda entry: books[entry["policy_version"]].item(entry))
    state, told = AccountState(), []
    for version, group in groupby(entries, key=lambda entry: str(entry["policy_version"])):
        stage = account_stage(books[version].policy, site, laboratory=laboratory, readers=readers)
        state, records = scan(stage, _spent(site, group, books[version]), state)
        told += records
    return state, told


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


def _spent(site: str, entries: Iterable[Entry], books: _Books) -> Iterator[Spent]:
    for (window_end, _), group in groupby(entries, key=books.item):
        charged = list(group)
        for entry in charged:  # all of them first: what is left may be shared
            books.note(entry)
        yield Spent(site, window_end, tuple(books.charge(entry) for entry in charged))


class _Books:
    """Reads charges back out of ledger entries of one policy."""

    def __init__(self, policy: Policy, site: str, outcomes: Mapping[str, Any], ledger: LedgerState) -> None:
        self.policy = policy
        self._releases = {release.name: release for release in policy.release}
        self._tick = policy.site[site].tick
        self._outcomes = outcomes
        self._budgets = Budgets(policy.privacy.w, self._tick)
        self._ledger = ledger
        """What entries of all policies have charged so far."""

    def item(self, entry: Entry) -> tuple[Micros, bool]:
        """Return when the entry's window, or day, was released, and whether it was a window.

        A day is released with the first window that ends at or after it, before that window.
        """
        end, daily = parse_time(entry["window_end"]), isinstance(self._release(entry), AttributeRelease)
        return (-(-end // self._tick) * self._tick if daily else end), not daily

    def note(self, entry: Entry) -> None:
        """Take an entry into the sums that budgets look at."""
        end = parse_time(entry["window_end"])
        self._ledger.remember(f"{entry['release']}/{entry['audience']}", self._day(end), end, entry["nano"])

    def _day(self, end: Micros) -> int:
        return (end - self._tick) // DAY

    def charge(self, entry: Entry) -> Charge:
        """Return what an entry charged."""
        release, paid = self._release(entry), entry["outcome"] == "released"
        epsilon, reason = Fraction(entry["epsilon"]) if paid else Fraction(0), "" if paid else entry["outcome"]
        if isinstance(release, CountRelease):
            day = self._day(parse_time(entry["window_end"]))
            known = entry["audience"] in release.epsilon
            left = self._budgets.left(self._ledger, release, entry["audience"], day) if known else None
            return Charge(
                release.name, entry["audience"], release.mechanism, epsilon,
                reason=reason, left=left, attempt=entry["attempt"], w=release.windows_paid,
            )  # fmt: skip
        day, zone, attribute = entry["release_id"].partition("#")[0].split("/")[3:6]
        shown = self._outcomes.get(entry["release_id"])
        if shown is None and entry["release_id"] in self._outcomes:
            shown = ABSENT
        return Charge(
            release.name, entry["audience"], release.mechanism, epsilon, reason=reason, attempt=entry["attempt"],
            zone=zone, attribute=attribute, day=day, shown=shown,
        )  # fmt: skip

    def _release(self, entry: Entry) -> CountRelease | AttributeRelease:
        release = self._releases.get(entry["release"])
        if release is None:
            msg = f"policy: must have the release {entry['release']} of ledger entry {entry['sequence']}"
            raise UsageError(msg)
        return release
