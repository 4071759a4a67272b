"""The interface between the service and its history, an index of released records. ``history.py`` implements it; tests
replace it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from stream.records import Micros

Granularity = Literal["5min", "15min", "1h", "1d"]
"""The time that one row of a history covers; a day is a site-local one."""
ExportFormat = Literal["csv", "parquet"]
START = "start"
"""Replaces a release id: before the first record."""


@dataclass(frozen=True, slots=True)
class RowsQuery:
    """A query for rows of one release's history."""

    audience: str
    release: str
    site: str
    granularity: Granularity
    start: Micros | None = None
    """Only windows that end after this time; None: from the first."""
    end: Micros | None = None
    """Only windows that end at this time or before; None: to the last."""
    nodes: tuple[str, ...] = ()
    """``building``, ``floor:2``, ``zone:2011``; empty: every released node."""
    limit: int = 10_000
    """Rows per page, in [1, 100,000]; an export contains all."""
    after: str | None = None
    """The ``next`` of the previous page."""


class Rows(NamedTuple):
    """Rows of a history, ordered by time and node."""

    columns: tuple[str, ...]
    rows: list[list[Any]]
    next: str | None
    """Where the next page starts; None at the end."""


class ReleasedHistory(Protocol):
    """An index of released records, each stored once. Thread-safe."""

    def add(self, records: Sequence[bytes], positions: Mapping[str, int]) -> Sequence[bytes]:
        """Store records in the order of arrival, and the position of each source, in one transaction.

        The last of the records is the last one that was read from each of the sources.

        Returns:
            The records that were new, in the same order.

        Raises:
            FinalityError: a stored record has other bytes; nothing is stored.
            DataError: one of them is not a private record; nothing is stored.
        """

    def position(self, source: str) -> int | None:
        """Return the position up to which a source (an outbox, a partition of a topic) was read; None if it was not
        read."""

    def last(self, source: str) -> str | None:
        """Return the id of the last record read from a source; None if there is none."""

    def since(self, audience: str, after: str, limit: int = 256) -> list[tuple[str, bytes]]:
        """Return (release id, record) of an audience's records after a release id, in the order of arrival.

        ``after`` may be ``START``. UsageError if it is not a record of this audience.
        """

    def newest(self, audience: str) -> str:
        """Return the id of the record that arrived last; ``START`` if there is none."""

    def rows(self, query: RowsQuery) -> Rows:
        """Return rows with their bands."""

    def export(self, query: RowsQuery, form: ExportFormat) -> Generator[bytes, None, None]:
        """Yield a file of all rows, in pieces."""

    def latest(self, audience: str, site: str) -> Mapping[str, Any]:
        """Return ``rows``, one of each node of each release at its newest window, and ``feed``: the newest window of
        the site with ``window_end`` (RFC 3339), ``coverage`` and ``denied``, or null before the first."""

    def newest_end(self, audience: str, site: str) -> Micros | None:
        """Return the end of the site's newest window; None before the first. The call is cheap."""

    def usual(self, audience: str, release: str, site: str) -> Mapping[str, Any]:
        """Return mean, deviation and number by node, class of day and slot, from released values."""

    def attributes(self, audience: str, site: str, first_day: str | None, last_day: str | None) -> list[dict[str, Any]]:
        """Return the attributes of days: published, withheld, or not queried."""

    def spends(self, audience: str, site: str, first_day: str | None, last_day: str | None) -> list[dict[str, Any]]:
        """Return what each day's releases have cost, by the audience's own records."""

    def close(self) -> None:
        """Close its file."""
