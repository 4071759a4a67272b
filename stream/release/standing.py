"""How a site's account and budgets stand: what its last record of counts said, told again from the state alone."""

from __future__ import annotations

from typing import Any

from stream.accounting.account import Account, AccountState
from stream.keys import key_day_of
from stream.policy.document import CountRelease, Policy, audiences_of
from stream.policy.fields import EVERYBODY
from stream.release.budgets import Budgets
from stream.release.state import ReleaseState
from stream.schemas import rfc3339


def standing(policy: Policy, stage: Account, account: AccountState, books: ReleaseState) -> dict[str, Any] | None:
    """Return the account behind the latest window, in the form of its record; None before the first window.

    It has the fields of a record of counts that tell what was spent and what is left: ``site``, ``window_end``,
    ``kind``, ``audiences``, ``coalition``, ``left``. Nothing is charged, and ledger and policy are all that is read.
    """
    site, end = stage.site, books.through
    if end < 0:
        return None
    budgets, key_day = Budgets.of(policy, site), key_day_of(end - policy.site[site].tick)
    left = {
        f"{release.name}/{audience}": budgets.left(books.ledger, release, audience, key_day)
        for release in policy.release
        if isinstance(release, CountRelease) and policy.zones_of(release, site)
        for audience in audiences_of(release)
    }
    units = stage.standing(account, end)
    return {
        "site": site,
        "window_end": rfc3339(end),
        "kind": "counts",
        "audiences": {reader: cost for reader, cost in units.items() if reader != EVERYBODY},
        "coalition": units.get(EVERYBODY),
        "left": {name: windows for name, windows in left.items() if windows is not None},
    }
