"""Occupancy of a site with people counters; there are no devices.

A counted window closes itself and every earlier window that is still open. Windows close once, in order, and none is
left out. A message for a window that is closed is dropped, and the drop is counted.

Coverage says nothing about a single zone, because a zone that is missing from a message may be an empty zone. A window
that has the count of every zone has coverage 1. A window that lacks some counts is rejected as a whole; a window
without a message is closed nevertheless. Both have counts of 0 and coverage 0. If the policy declares that zeros are
omitted, a zone without a count has 0, and every window with a message has coverage 1, for any number of named zones.

One person changes as many counts as the policy declares: one count at one tick, or, if a release is paid per privacy
day, as many counts of a privacy day as ``contribution`` allows. This module cannot enforce that bound, because a count
does not identify people; the bounded counts of a day are therefore the counts themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from stream.policy.privacy_days import PrivacyDays
from stream.records import CountedWindow, Heartbeat, Message, Micros, OccupancyWindow, Rejected
from stream.sensing import watermark
from stream.sensing.occupancy import WINDOWS_AT_ONCE, OccupancyOperator, Out
from stream.sensing.state import SensingState

COUNTERS = "counters"
"""The one source of such a site."""
INCOMPLETE = "incomplete"
"""The reason for rejecting a window that lacks the count of a zone."""


@dataclass(frozen=True, kw_only=True)
class CounterFeedOperator(OccupancyOperator):
    """The stage from counted windows of one site to its occupancy windows."""

    days: PrivacyDays | None = None
    """The site's privacy days; None if it has none."""
    zeros_omitted: bool = False
    """Whether a zone without a count is empty."""

    def steps(self, state: SensingState, item: Message) -> Iterator[tuple[list[Out], bool]]:
        """Process one counted window, in steps of at most ``WINDOWS_AT_ONCE`` windows; reject any other message."""
        fault = self._fault(item)
        if fault is not None or not isinstance(item, CountedWindow):
            state.count_dropped(item, "input")
            yield ([] if fault is None else [fault]), True
            return
        refusal = self._stale(state, item)
        if refusal is not None:
            state.count_dropped(item, refusal)
            yield [], True
            return
        yield from self._close_until(state, item)

    def _fault(self, item: Message) -> Rejected | None:
        """Return the fault of a message, independent of the state."""
        if item.site != self.site:
            return Rejected(item.source, "wrong_site", "site")
        if not isinstance(item, CountedWindow):
            return Rejected(item.source, "input", "kind")
        if item.source not in self.sources:
            return Rejected(item.source, "unknown_source", "source")
        if item.window_end % self.tick_length:
            return Rejected(item.source, "grid", "window_end")
        if any(zone not in self.zones for zone, _ in item.counts):
            return Rejected(item.source, "unknown_zone", "counts")
        return None

    def _stale(self, state: SensingState, item: CountedWindow) -> str | None:
        """Record that a window was reported; return the reason why it closes no window, or None."""
        before = state.clock.progress.get(item.source)
        again = before is not None and before.session == item.session
        beat = Heartbeat(item.site, item.source, item.session, item.window_end)
        if not watermark.record_heartbeat(state.clock, beat):
            return "stale_session"
        watermark.update_watermark(state.clock, self.sources, self.source_timeout)
        if self.last_window is not None and item.window_end > self.last_window:
            return "after_last"
        if self.first_window is not None and item.window_end < self.first_window:
            return "before_first"
        if state.next_tick is None:
            state.next_tick = item.window_end
        if item.window_end < state.next_tick:
            return "repeated_batch" if again else "late"
        return None

    def _close_until(self, state: SensingState, item: CountedWindow) -> Iterator[tuple[list[Out], bool]]:
        """Close the due windows up to and including a counted one; after each step the state is consistent."""
        first = item.window_end if state.next_tick is None else state.next_tick
        due = range(first, item.window_end + 1, self.tick_length)
        for begin in range(0, len(due), WINDOWS_AT_ONCE):
            out: list[Out] = []
            last = begin + WINDOWS_AT_ONCE >= len(due)
            for tick in due[begin : begin + WINDOWS_AT_ONCE]:
                out.append(self._counted(tick, item if tick == item.window_end and self._is_complete(item) else None))
                state.closed, state.next_tick = tick, tick + self.tick_length
            if last and item.counts and not self._is_complete(item):
                out.append(Rejected(item.source, INCOMPLETE, "counts"))
                state.count_dropped(item, INCOMPLETE)
            elif last:
                state.counters.update({"rows": len(item.counts), "accepted": len(item.counts)})
            yield out, last

    def _is_complete(self, item: CountedWindow) -> bool:
        """Whether a message determines the count of each zone; if zeros are omitted, every message does."""
        return self.zeros_omitted or {zone for zone, _ in item.counts} == set(self.zones)

    def _counted(self, tick: Micros, item: CountedWindow | None) -> OccupancyWindow:
        reported = {} if item is None else dict(item.counts)
        counts = tuple(reported.get(zone, 0) for zone in self.zones)
        coverage = Fraction(0 if item is None else 1)
        if self.days is None:
            return OccupancyWindow(self.site, tick, counts, coverage)
        return OccupancyWindow(self.site, tick, counts, coverage, self.days.at(tick), counts)
