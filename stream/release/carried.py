"""Publications that are carried from window to window (``sample``, ``ba``): whose they are, and when the next may be.

A carried publication belongs to a mechanism, its audiences, zones, w, epsilon and tick, whatever the release is
called. A policy in which all of that is equal goes on with it. Otherwise it ends, and whatever begins anew at the
site releases nothing (``waiting``) until what was published before lies w windows back, w being the largest of
those that end and those that begin: so no w windows in a row hold spends of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from stream.policy.document import CountRelease, Policy, audiences_of, decimal_string
from stream.records import Micros


@dataclass(frozen=True, slots=True)
class Owner:
    """What a carried publication belongs to."""

    mechanism: str
    audiences: tuple[str, ...]
    zones: tuple[str, ...]
    """In registry order."""
    states: tuple[tuple[str, tuple[str, ...]], ...]
    """Named sets of zones, where these are counted."""
    epsilon: str
    w: int
    tick_length: Micros

    def document(self) -> list[Any]:
        """Return it as JSON has it."""
        return list(astuple(self))

    @classmethod
    def of_document(cls, document: list[Any]) -> Owner:
        """Return the owner of a document."""
        mechanism, audiences, zones, states, *rest = document
        return cls(mechanism, tuple(audiences), tuple(zones), tuple((n, tuple(held)) for n, held in states), *rest)


def owner_of(policy: Policy, release: CountRelease, site: str) -> Owner:
    """Return what the publications of a w-event release at a site belong to."""
    [epsilon] = set(release.epsilon.values())
    return Owner(
        release.mechanism,
        audiences_of(release),
        tuple(zone.id for zone in policy.zones_of(release, site)),
        tuple(release.states.items()),
        decimal_string(epsilon),
        release.windows_paid,
        policy.site[site].tick,
    )


def continued(old: Mapping[str, Owner], new: Mapping[str, Owner]) -> dict[str, str]:
    """Return, for each release that goes on with a publication, the name under which that was carried.

    Args:
        old: release -> owner, of the publications that are carried.
        new: release -> owner, of the releases that may go on with one.
    """
    found = {name: name for name, owner in new.items() if old.get(name) == owner}
    free = [name for name in old if name not in found]
    for name, owner in new.items():
        match = next((held for held in free if old[held] == owner), None)
        if name not in found and match is not None:
            found[name] = match
            free.remove(match)
    return found


def waiting_until(through: Micros, ended: Mapping[str, Owner], begun: Mapping[str, Owner]) -> Micros:
    """Return the end of the last window in which what begins anew releases nothing.

    Args:
        through: end of the latest window that was released.
        ended: publications that no release goes on with.
        begun: releases without a publication to go on with.
    """
    owners = [*ended.values(), *begun.values()]
    if not owners:
        return through
    return through + (max(owner.w for owner in owners) - 1) * max(owner.tick_length for owner in owners)
