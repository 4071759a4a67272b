"""What is usual: mean and deviation by node, class of day and time of day, of released values only."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from connectors.serve.contract import RowsQuery
from connectors.serve.index import Index
from connectors.serve.local_clock import DAY_CLASSES, DayClass, SiteClock, class_of
from connectors.serve.series import asked, held_span, local_offset
from stream.records import DAY, MINUTE, Micros

SLOT = 15 * MINUTE
SLOTS = DAY // SLOT
DAYS = 56
"""How many local days, the newest of them over, what is usual is made of."""
_THURSDAY = 3
"""Days from Monday to 1 January 1970."""


class Moments(NamedTuple):
    """Of the released values of one slot."""

    mean: float
    deviation: float
    n: int
    """How many windows."""


Table = dict[str, dict[DayClass, list[Moments | None]]]
"""Node -> class of day -> one entry a slot of the local day; None where nothing was released."""


class Usual:
    """What is usual at each release, worked out once a day and again when something is added late."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._held: dict[tuple[str, str, str], tuple[tuple[int, ...], Table]] = {}
        self._lock = threading.Lock()

    def table(self, clock: SiteClock, audience: str, release: str, site: str) -> dict[str, Any]:
        """Return what is usual as JSON has it."""
        return {"nodes": self.of(clock, audience, release, site), "slot_seconds": SLOT // 1_000_000}

    def of(self, clock: SiteClock, audience: str, release: str, site: str) -> Table:
        """Return what was usual before the local day of the newest window."""
        query = RowsQuery(audience, release, site, "5min")
        with self._index.reading() as cursor:
            what = asked(cursor, query)
            start, end = held_span(cursor, what.first, 0, None)
            if not what.first or start >= end:
                return {}
            today = clock.local(end - 1) // DAY
            until = clock.day_span(today)[0]
            since = max(start, clock.day_span(today - DAYS)[0])
            seen = f"series IN ({', '.join(map(str, what.first))}) AND start >= {since} AND start < {until}"
            [(count,)] = cursor.execute(f"SELECT count(*) FROM told WHERE {seen}").fetchall()
            of, made_of = (audience, release, site), (today, count)
            with self._lock:
                if of not in self._held or self._held[of][0] != made_of:
                    self._held[of] = made_of, _table(cursor, seen, local_offset(clock, since, until))
                return self._held[of][1]

    def at(self, clock: SiteClock, of: Table, node: str, start: Micros) -> dict[str, Any] | None:
        """Return what is usual at a node in the window that begins at an instant; None where nothing is known."""
        local = clock.local(start)
        day = class_of(local // DAY)
        slots = of.get(node, {}).get(day)
        moments = slots[local % DAY // SLOT] if slots else None
        return None if moments is None else moments._asdict() | {"class": day}


def _table(cursor: Any, seen: str, offset: str) -> Table:
    rows = cursor.execute(
        f"SELECT name, greatest(0, (local // {DAY} + {_THURSDAY}) % 7 - 4) AS day, local % {DAY} // {SLOT} AS slot,"
        f" avg(value), stddev_pop(value), count(*) FROM (SELECT node, value, start + {offset} AS local FROM cell"
        f" WHERE {seen}) JOIN node USING (node) GROUP BY name, day, slot"
    ).fetchall()
    table: Table = {}
    for name, day, slot, mean, deviation, n in rows:
        of = table.setdefault(name, {})
        of.setdefault(DAY_CLASSES[day], [None] * SLOTS)[slot] = Moments(round(mean, 4), round(deviation, 4), n)
    return table
