"""Releases of the past: what a recording brings later than its windows were due.

A late window or day goes into the same books as the live ones, and its groups and filters are its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stream.attribute_release import read_digest
from stream.count_plan import release_id
from stream.keys import key_day
from stream.local_time import local_day
from stream.mechanisms.labels import counts_digest
from stream.mechanisms.wevent import CARRYING
from stream.policy import audiences_of
from stream.records import DayClosed, OccupancyWindow, Published
from stream.release import Releases
from stream.release_state import ReleaseState
from stream.schemas import parse_time, rfc3339


class LateReleases(Releases):
    """The release stage of one site, for items that lie before what it has released."""

    def past(self, state: ReleaseState, item: OccupancyWindow | DayClosed, aside: ReleaseState) -> list[Published]:
        """Release an item that lies before what has been released, into the same books.

        ``aside`` holds groups and filters of its own, so that those of the live windows see nothing of it. What
        ``sample`` and ``ba`` may publish depends on all windows around, so they release nothing here.
        """
        aside.ledger, aside.asked = state.ledger, state.asked
        late = [plan for plan in self._plans if plan.release.mechanism not in CARRYING]
        made = self._window(aside, item, late) if isinstance(item, OccupancyWindow) else self._day(aside, item)
        published = [output for output in made if isinstance(output, Published)]
        state.ledger, state.asked = aside.ledger, aside.asked
        return published

    def open_books(self, state: ReleaseState, entries: Iterable[Mapping[str, Any]]) -> None:
        """Remember all that was ever charged, and not only what budgets of the windows to come look at."""
        state.ledger.spent, state.ledger.recent = {}, {}
        asked: dict[str, set[str]] = {plan.release.name: set() for plan in self._attribute_plans}
        for entry in entries:
            if entry["nano"]:
                account, end = f"{entry['release']}/{entry['audience']}", parse_time(entry["window_end"])
                state.ledger.remember(account, key_day(end - self._tick), end, entry["nano"])
                if entry["release"] in asked:
                    asked[entry["release"]].add(entry["release_id"].split("/")[3])
        state.asked = {name: sorted(days) for name, days in asked.items()}

    def ids(self, item: OccupancyWindow | DayClosed) -> list[str]:
        """Return the release ids of an item's records."""
        return [name for name, _, _ in self._named(item)] + self._answers_to(item)

    def _answers_to(self, item: OccupancyWindow | DayClosed) -> list[str]:
        end = rfc3339(item.window_end)
        return [
            release_id(self._site, query.query.name, audience, end, self._attempt)
            for plan in self._plans
            for query in self._queries[plan.release.name]
            for audience in audiences_of(plan.release)
            if isinstance(item, OccupancyWindow)
        ]

    def commitments(self, item: OccupancyWindow | DayClosed) -> dict[str, str]:
        """Return, by release id, the commitments to an item's input; KeyFileError when its key is gone.

        Queries answer from released values and have none.
        """
        if isinstance(item, OccupancyWindow):
            day, end = key_day(item.window_end - self._tick), item.window_end
        else:
            start, end = local_day(item.day, self._timezone)
            day = key_day(start)
        return {name: self._commitment(day, release, end, read) for name, release, read in self._named(item)}

    def _named(self, item: OccupancyWindow | DayClosed) -> Iterator[tuple[str, str, bytes]]:
        """Yield (release id, release, digest of what it reads) of each record of an item."""
        if isinstance(item, OccupancyWindow):
            for plan in self._plans:
                name, read = plan.release.name, counts_digest(plan.counts(item))
                for audience in audiences_of(plan.release):
                    end = rfc3339(item.window_end)
                    yield release_id(self._site, name, audience, end, self._attempt), name, read
        else:
            for attributes in self._attribute_plans:
                name = attributes.release.name
                for record, audience in attributes.records(item):
                    where = f"{record.day}/{record.zone}/{record.attribute}"
                    yield release_id(self._site, name, audience, where, self._attempt), name, read_digest(record)
