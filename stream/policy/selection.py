"""Which zones of a site a release covers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BeforeValidator

from stream.policy.fields import Frozen, Ident, Name, listed
from stream.policy.sites import Zone


class Selection(Frozen):
    """Which zones a release covers: all keys given must match, each by one value or one of a list."""

    kind: Annotated[tuple[Name, ...], BeforeValidator(listed)] = ()
    floor: Annotated[tuple[Ident, ...], BeforeValidator(listed)] = ()
    ids: Annotated[tuple[Ident, ...], BeforeValidator(listed)] = ()

    def covers(self, zone: Zone) -> bool:
        """Whether the zone is selected."""
        wanted = ((self.kind, zone.kind), (self.floor, zone.floor), (self.ids, zone.id))
        return all(not allowed or value in allowed for allowed, value in wanted)

    def unmatched(self, zones: Iterable[Zone]) -> str | None:
        """Return the first name given here that no zone bears: most likely it is misspelt."""
        known = {name for zone in zones for name in (("kind", zone.kind), ("floor", zone.floor), ("ids", zone.id))}
        given = (("kind", self.kind), ("floor", self.floor), ("ids", self.ids))
        return next((f"{key} {name}" for key, names in given for name in names if (key, name) not in known), None)
