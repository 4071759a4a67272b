"""Group access points into zones, and collect what is known of each zone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from connectors.operations.inventory.access_points import AccessPoint, kind_of, last_part, name_of, stem
from stream.errors import UsageError

Grouping = Literal["floor", "name", "access-point"]
PER_ACCESS_POINT = 25
"""The assumed capacity in people of an access point's place, about what one is planned for."""

UNKNOWN_FLOOR = "unknown"
"""The floor of access points of which the inventory does not say it."""


@dataclass(frozen=True, slots=True)
class AccessPointPlace:
    """A future zone: several access points, and what the inventory says about the place."""

    id: str
    called: str
    """The zone's name in the inventory."""
    floor_called: str
    """The floor's name in the inventory; empty if it does not say it."""
    floor: str
    kind: str
    capacity: int
    guessed: bool
    """Whether the capacity is assumed as ``PER_ACCESS_POINT`` for each access point."""
    placed: bool
    """Whether the inventory says on which floor it is."""
    access_points: tuple[AccessPoint, ...]


Sites = dict[str, list[AccessPointPlace]]
"""Site -> its zones."""


def places_of(path: Path, rows: Sequence[AccessPoint], site: str, grouping: Grouping) -> Sites:
    """Return the zones of an inventory's rows, by site, in the order of the file.

    Rows of one ``zone`` form one; a row without a zone is grouped with its floor, with rows of its floor whose names
    differ only in the last part, or alone. ``site`` is the site of rows that do not name one.

    Raises:
        UsageError: rows of one zone contradict each other, or two names become equal when written as names of a policy;
            with file, line and column.
    """
    groups: dict[tuple[str, str], list[AccessPoint]] = {}
    spoken: dict[tuple[str, str], tuple[str, int]] = {}
    floors = _floors_of_stems(rows, site)
    for row in rows:
        site_id, label = name_of(row.site) or site, _called(row, grouping)
        if not row.zone and grouping == "name" and len(floors[site_id, label]) > 1:
            label = f"{label} (floor {_floor_of(row)})"
        place = (site_id, name_of(label))
        spelling, line = spoken.setdefault(place, (label, row.line))
        if spelling != label:
            rule = f"must differ from {spelling!r} of line {line} in letters or digits, or be the same"
            raise UsageError(f"{path}: line {row.line}, zone: {rule}, got {label!r}")
        groups.setdefault(place, []).append(row)
    sites: Sites = {}
    for (site_id, name), members in groups.items():
        sites.setdefault(site_id, []).append(_place(path, name, spoken[site_id, name][0], members))
    return sites


def _floors_of_stems(rows: Iterable[AccessPoint], site: str) -> dict[tuple[str, str], set[str]]:
    """Return on which floors of a site there are names that differ only in the last part."""
    floors: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if not row.zone:
            floors.setdefault((name_of(row.site) or site, _called(row, "name")), set()).add(_floor_of(row))
    return floors


def _floor_of(row: AccessPoint) -> str:
    """Return the name of a row's floor."""
    return name_of(last_part(row.floor)) or UNKNOWN_FLOOR


def _called(row: AccessPoint, grouping: Grouping) -> str:
    """Return the name of a row's zone."""
    if row.zone:
        return row.zone
    if grouping == "floor":
        return f"floor-{last_part(row.floor) or UNKNOWN_FLOOR}"
    own = row.name if name_of(row.name) else row.radio.replace(":", "")
    return stem(own) if grouping == "name" else own


def _place(path: Path, name: str, called: str, members: Sequence[AccessPoint]) -> AccessPointPlace:
    by_zone = any(member.zone for member in members)
    floor = _agreed(path, members, "floor", lambda row: last_part(row.floor))
    kind = _agreed(path, members, "kind", lambda row: row.kind) if by_zone else _first(row.kind for row in members)
    if by_zone:
        capacity_text = _agreed(path, members, "capacity", lambda row: str(row.capacity or ""))
        capacity, guessed = int(capacity_text or PER_ACCESS_POINT * len(members)), not capacity_text
    else:
        capacity = sum(row.capacity or PER_ACCESS_POINT for row in members)
        guessed = any(row.capacity is None for row in members)
    return AccessPointPlace(
        name, called, floor, name_of(floor) or UNKNOWN_FLOOR, kind_of(kind) or "room", min(capacity, 100_000), guessed,
        bool(name_of(floor)), tuple(members),
    )  # fmt: skip


def _agreed(path: Path, members: Sequence[AccessPoint], field: str, read: Callable[[AccessPoint], str]) -> str:
    """Return the common value of a field in the rows of a zone that have one."""
    values = [(read(row), row.line) for row in members if read(row)]
    for value, line in values:
        if value != values[0][0]:
            rule = f"must equal that of line {values[0][1]}, which is in the same zone ({values[0][0]!r})"
            raise UsageError(f"{path}: line {line}, {field}: {rule}, got {value!r}")
    return values[0][0] if values else ""


def _first(texts: Iterable[str]) -> str:
    return next(filter(None, texts), "")
