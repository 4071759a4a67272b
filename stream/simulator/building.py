"""The simulated building: zones with one access point each, their kinds, sizes and popularity.

The building depends on its number and size only, never on the seed of a run: one policy file serves all
seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.random import Generator, default_rng  # noqa: TID251  (a simulation, not noise: it draws from a seed)
from numpy.typing import NDArray

from stream.errors import UsageError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Draws: TypeAlias = Generator
"""A seeded source of draws, handed on by whoever holds the seed."""

FULL_ZONES = 64
MOST_ZONES = 4095
MOST_BUILDINGS = 256
FLOORS = 6
OFFICE_SHARE = 12 / 64
POPULARITY_ALPHA = 0.9
"""Dirichlet parameter: a few access points carry much of the traffic."""
PEAK_PRESENT = 1_100
"""Devices truly present at a busy hour at full scale; sizes the rooms."""
ACCESS_POINT_OUI = 0x5C521E
BUILDING_KEY: Final = 20_180_212

CLASSROOM, OPEN, CORRIDOR, OFFICE = "classroom", "open", "corridor", "office"
CLASSROOM_SHARE, OPEN_SHARE = 0.5, 0.27


def draws(*key: int) -> Draws:
    """Return the generator of one part of a simulation; unlike keys give unrelated streams."""
    return default_rng(key)


@dataclass(frozen=True, slots=True, eq=False)
class Building:
    """Zones in registry order; the access point of zone i is access point i."""

    zones: tuple[str, ...]
    floors: tuple[str, ...]
    kinds: tuple[str, ...]
    """``classroom``, ``open``, ``corridor`` or ``office``."""
    capacities: tuple[int, ...]
    """People; 1 in an office."""
    access_points: tuple[str, ...]
    """Base radio addresses; their last four bits are 0, as of real radios."""
    popularity: Floats
    """Share of the public traffic, sums to 1; 0 in offices."""

    def of_kind(self, *kinds: str) -> Ints:
        """Return the indices of the zones of these kinds, ascending."""
        return np.array([index for index, kind in enumerate(self.kinds) if kind in kinds], dtype=np.int64)


def building(zones: int, number: int = 0) -> Building:
    """Return building ``number`` (0 to 255) with ``zones`` zones (1 to 4095).

    Buildings of unlike numbers share no access point. 12 of 64 zones are single-occupant offices; of the
    others the more popular half are classrooms, then come open areas, then corridors.

    Raises:
        UsageError: a number out of range.
    """
    _check(zones, number)
    offices = _offices(zones)
    public = np.setdiff1d(np.arange(zones), offices)
    popularity = np.zeros(zones)
    popularity[public] = draws(BUILDING_KEY, number, zones).dirichlet(np.full(len(public), POPULARITY_ALPHA))
    kinds = _kinds(popularity, public)
    return Building(
        zones=tuple(f"{_floor(i, zones)}{_place(i, zones):03d}" for i in range(zones)),
        floors=tuple(str(_floor(i, zones)) for i in range(zones)),
        kinds=kinds,
        capacities=tuple(_capacity(kind, popularity[i], zones) for i, kind in enumerate(kinds)),
        access_points=tuple(mac_text(ACCESS_POINT_OUI << 24 | number << 16 | i << 4) for i in range(zones)),
        popularity=popularity,
    )


def mac_text(address: int) -> str:
    """Return a 48-bit address as six lower-case octets with colons."""
    return address.to_bytes(6).hex(":")


def unknown_access_point(number: int, index: int) -> str:
    """Return the address of an access point that no simulated building has (same vendor, last bits not 0)."""
    return mac_text(ACCESS_POINT_OUI << 24 | number << 16 | (index % 4096) << 4 | 0xF)


def _check(zones: int, number: int) -> None:
    if not 1 <= zones <= MOST_ZONES:
        raise UsageError(f"zones: must be 1 to {MOST_ZONES}, not {zones}")
    if not 0 <= number < MOST_BUILDINGS:
        raise UsageError(f"building: must be 0 to {MOST_BUILDINGS - 1}, not {number}")


def _offices(zones: int) -> Ints:
    """Spread the offices evenly over the upper two thirds, so that the ground floors are public."""
    count = round(zones * OFFICE_SHARE)
    first = zones // 3
    return np.unique(np.linspace(first, zones - 1, count).astype(np.int64)) if count else np.array([], np.int64)


def _kinds(popularity: Floats, public: Ints) -> tuple[str, ...]:
    kinds = [OFFICE] * len(popularity)
    ranked = public[np.argsort(-popularity[public], kind="stable")]
    for rank, zone in enumerate(ranked):
        share = rank / len(ranked)
        kinds[zone] = (
            CLASSROOM if share < CLASSROOM_SHARE else OPEN if share < CLASSROOM_SHARE + OPEN_SHARE else CORRIDOR
        )
    return tuple(kinds)


def _capacity(kind: str, share: float, zones: int) -> int:
    if kind == OFFICE:
        return 1
    expected = share * PEAK_PRESENT * zones / FULL_ZONES
    return max(10, 10 * round(expected * 1.5 / 10))


def _floor(zone: int, zones: int) -> int:
    return 1 + zone * min(FLOORS, zones) // zones


def _place(zone: int, zones: int) -> int:
    """Number a zone within its floor, from 1."""
    floor, levels = _floor(zone, zones), min(FLOORS, zones)
    first = -(-(floor - 1) * zones // levels)
    return zone - first + 1
