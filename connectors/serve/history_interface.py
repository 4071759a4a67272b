"""What the service needs of its history: an index of released records, which ``history.py`` keeps and tests replace."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from stream.records import Micros

Granularity = Literal["5min", "15min", "1h", "1d"]
"""How much time one row of a history covers; a day is a site-local one."""
ExportFormat = Literal["csv", "parquet"]
START = "start"
"""In the place of a release id: before the first record."""


@dataclass(frozen=True, slots=True)
class RowsQuery:
    """Which rows of one release's history are asked for."""

    audience: str
    release: str
    site: str
    granularity: Granularity
    start: Micros | None = None
    """Of windows that end after this time; None: from the first."""
    end: Micros | None = None
    """Of windows that end at this time or before; None: to the last."""
    nodes: tuple[str, ...] = ()
    """``building``, ``floor:2``, ``zone:2011``; none: every node that is released."""
    limit: int = 10_000
    """Rows given at once, in [1, 100,000]; an export gives all."""
    after: str | None = None
    """The ``next`` of the rows before."""


class Rows(NamedTuple):
    """Rows of a history, in the order of time and node."""

    columns: tuple[str, ...]
    rows: list[list[Any]]
    next: str | None
    """Where the next rows begin; None at the end."""


class ReleasedHistory(Protocol):
    """Released records, kept once each, as an index of their own. Safe to call from several threads."""

    def add(self, records: Sequence[bytes], positions: Mapping[str, int]) -> Sequence[bytes]:
        """Keep records in the order of arrival, and how far each source has been read, in one transaction.

        Returns:
            Those that were not there yet, in the same order.

        Raises:
            FinalityError: a record is there with other bytes; nothing is kept.
            DataError: one of them is no private record; nothing is kept.
        """

    def position(self, source: str) -> int | None:
        """Return how far a source (an outbox, a partition of a topic) has been read; None where it has not."""

    def since(self, audience: str, after: str, limit: int = 256) -> list[tuple[str, bytes]]:
        """Return (release id, record) of an audience's records behind a release id, in the order of arrival.

        ``after`` may be ``START``. UsageError where it is no record of this audience.
        """

    def newest(self, audience: str) -> str:
        """Return the id of the record that arrived last; ``START`` where there is none."""

    def rows(self, query: RowsQuery) -> Rows:
        """Return rows with their bands."""

    def export(self, query: RowsQuery, form: ExportFormat) -> Generator[bytes, None, None]:
        """Yield a file of all rows, in pieces."""

    def latest(self, audience: str, site: str) -> Mapping[str, Any]:
        """Return ``rows``, one of each node of each release at its newest window, and ``feed``: the newest window of
        the site with ``window_end`` (RFC 3339), ``coverage`` and ``denied``, or null before the first."""

    def newest_end(self, audience: str, site: str) -> Micros | None:
        """Return when the site's newest window ended; None before the first. It costs little."""

    def usual(self, audience: str, release: str, site: str) -> Mapping[str, Any]:
        """Return mean, deviation and number by node, class of day and slot, of released values."""

    def attributes(self, audience: str, site: str, first_day: str | None, last_day: str | None) -> list[dict[str, Any]]:
        """Return the attributes of days: shown, withheld, or not asked."""

    def spends(self, audience: str, site: str, first_day: str | None, last_day: str | None) -> list[dict[str, Any]]:
        """Return what each day's releases have cost, by the audience's own records."""

    def close(self) -> None:
        """Close its file."""
