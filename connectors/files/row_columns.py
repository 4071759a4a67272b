"""Rows of observations by column: those that are certainly good, many at once; pure.

What is certain is narrow: an instant as RFC 3339 has it in UTC, to the second or the microsecond, and texts that stand
for a device, an access point and a site. Every other row is read by itself, by ``RowRules``, which alone says what a
row must be; so a row means the same whichever way it is read, and a bad one loses only itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from connectors.files.dialect import Dialect
from connectors.files.row_rules import RowRules
from stream.records import DAY, HOUR, LATEST, MINUTE, SECOND

T = TypeVar("T")
K = TypeVar("K")
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NumberedRow = tuple[int, tuple[Any, ...]]
"""A line's number and its fields."""
MOST_KNOWN = 65_536
"""So many texts of a kind are remembered with what they stand for."""
_SECONDS, _MICROSECONDS = 20, 27
"""Characters of ``2026-03-02T12:00:00Z`` and ``2026-03-02T12:00:00.000000Z``."""
_DIGITS = (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18)
_FRACTION = (20, 21, 22, 23, 24, 25)
_SIGNS = ((4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":"))
_EPOCH_DAY = date(1970, 1, 1).toordinal()


class Known(dict[K, T], Generic[K, T]):
    """What is known of keys, found out when a key is first asked for; forgets all where it is too much."""

    def __init__(self, find: Callable[[K], T]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, key: K) -> T:
        if len(self) >= MOST_KNOWN:
            self.clear()
        found = self[key] = self._find(key)
        return found


class Sightings(NamedTuple):
    """Good rows, each column by itself."""

    lines: Integers
    times: Integers
    places: Integers
    addresses: list[bytes]

    def where(self, keep: Flags) -> Sightings:
        """Return the rows for which ``keep`` is true."""
        if keep.all():
            return self
        addresses = [self.addresses[number] for number in np.flatnonzero(keep)]
        return Sightings(self.lines[keep], self.times[keep], self.places[keep], addresses)


class RowColumns:
    """Reads rows of one dialect by column."""

    def __init__(self, rules: RowRules, dialect: Dialect) -> None:
        self._plain = dialect.times == "rfc3339"
        self._names_sites = dialect.names_sites
        sites = {site: number for number, site in enumerate(dict.fromkeys(site for _, site in rules.points))}
        self._site_of = np.array([*(sites[site] for _, site in rules.points), -1], dtype=np.int64)
        self._sites: Known[str, int] = Known(lambda text: sites.get(text, -2))
        self._places: Known[str, int] = Known(lambda text: _number(rules.place(text)))
        self._addresses: Known[str, bytes | None] = Known(dialect.device)

    def read(self, rows: Sequence[NumberedRow]) -> tuple[Sightings | None, Sequence[NumberedRow]]:
        """Return the rows that are certainly good, None for none, and the others in their order."""
        columns = tuple(zip(*(fields for _, fields in rows), strict=True))
        if not self._plain or not all({*map(type, column)} == {str} for column in columns):
            return None, rows
        times, good = plain_instants(columns[0])
        addresses = [*map(self._addresses.__getitem__, columns[1])]
        places = np.fromiter(map(self._places.__getitem__, columns[2]), np.int64, len(rows))
        good &= places >= 0
        if self._names_sites:
            good &= self._site_of[places] == np.fromiter(map(self._sites.__getitem__, columns[3]), np.int64, len(rows))
        if None in addresses:
            good &= np.array([address is not None for address in addresses])
        lines = np.fromiter((line for line, _ in rows), np.int64, len(rows))
        found = Sightings(lines, times, places, addresses).where(good)  # type: ignore[arg-type]
        return found, () if good.all() else [row for row, well in zip(rows, good.tolist(), strict=True) if not well]


def _number(place: int | str | None) -> int:
    return place if isinstance(place, int) else -1


def plain_instants(texts: Sequence[str]) -> tuple[Integers, Flags]:
    """Return the microseconds since 1970 for which plain texts stand, and which are plain; others have any value."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    codes = np.array(texts, dtype=f"U{_MICROSECONDS}").view(np.uint32).reshape(len(texts), _MICROSECONDS)
    digits = codes - np.uint32(ord("0"))  # what is none wraps around, and is large
    plain = (digits[:, _DIGITS] <= 9).all(axis=1)
    for place, sign in _SIGNS:
        plain &= codes[:, place] == ord(sign)
    whole = (lengths == _SECONDS) & (codes[:, _SECONDS - 1] == ord("Z"))
    fraction = (
        (lengths == _MICROSECONDS)
        & (codes[:, 19] == ord("."))
        & (codes[:, 26] == ord("Z"))
        & (digits[:, _FRACTION] <= 9).all(axis=1)
    )
    plain &= whole | fraction
    values = np.where(digits <= 9, digits, 0).astype(np.int64)
    hour, minute, second = (_decimal(values, places) for places in ((11, 12), (14, 15), (17, 18)))
    plain &= (hour < 24) & (minute < 60) & (second < 60)
    times = _days(values) * DAY + hour * HOUR + minute * MINUTE + second * SECOND
    times += np.where(fraction, _decimal(values, _FRACTION), 0)
    return times, plain & (times >= 0) & (times < LATEST)


def _days(digits: Integers) -> Integers:
    """Return days since 1970, a negative number for a date that there is not."""
    dates, which = np.unique(_decimal(digits, (0, 1, 2, 3, 5, 6, 8, 9)), return_inverse=True)
    return np.array([_day(number) for number in dates.tolist()], dtype=np.int64)[which]


def _day(number: int) -> int:
    try:
        return date(number // 10_000, number // 100 % 100, number % 100).toordinal() - _EPOCH_DAY
    except ValueError:
        return -1


def _decimal(digits: Integers, places: Sequence[int]) -> Integers:
    value = digits[:, places[0]]
    for place in places[1:]:
        value = value * 10 + digits[:, place]
    return value
