"""Occupancy of a site that is told counts: its counters have counted people, and nobody is known by any name.

A counted window closes itself and every earlier one that was not closed: a window is closed once, in order, none left
out. Where nobody has told of a zone its count is 0, and coverage says so: it is the share of the zones that were told
of. What comes for a window that is closed is dropped and counted.

What one person changes is what the policy declares: one count at one tick, or, where a day is paid, as many of a
privacy day as ``contribution`` says. Nothing here can bound that, for a count does not say whom it is of; so the
bounded counts of a day are the counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from stream.policy.privacy_day import PrivacyDays
from stream.records import CountedWindow, Heartbeat, Message, Micros, OccupancyWindow, Rejected
from stream.sensing import watermark
from stream.sensing.occupancy import WINDOWS_AT_ONCE, Out, Sense
from stream.sensing.sense_state import SenseState

COUNTERS = "counters"
"""The one source of such a site."""


@dataclass(frozen=True, kw_only=True)
class CountedSense(Sense):
    """The stage from counted windows of one site to its occupancy windows."""

    days: PrivacyDays | None = None
    """Its privacy days; None where it has none."""

    def steps(self, state: SenseState, item: Message) -> Iterator[tuple[list[Out], bool]]:
        """Take one counted window, in steps of at most ``WINDOWS_AT_ONCE`` windows; anything else is rejected."""
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
        """Return what is wrong with a message, whenever it comes."""
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

    def _stale(self, state: SenseState, item: CountedWindow) -> str | None:
        """Take note of a window; return why it closes nothing, or None."""
        before = state.clock.progress.get(item.source)
        again = before is not None and before.session == item.session
        beat = Heartbeat(item.site, item.source, item.session, item.window_end)
        if not watermark.record_heartbeat(state.clock, beat):
            return "stale_session"
        watermark.settle(state.clock, self.sources, self.source_timeout)
        if self.last_window is not None and item.window_end > self.last_window:
            return "after_last"
        if self.first_window is not None and item.window_end < self.first_window:
            return "before_first"
        if state.next_tick is None:
            state.next_tick = item.window_end
        if item.window_end < state.next_tick:
            return "repeated_batch" if again else "late"
        return None

    def _close_until(self, state: SenseState, item: CountedWindow) -> Iterator[tuple[list[Out], bool]]:
        """Close what is due up to a counted window, itself the last; at the end of each step the state is whole."""
        first = item.window_end if state.next_tick is None else state.next_tick
        due = range(first, item.window_end + 1, self.tick_length)
        for begin in range(0, len(due), WINDOWS_AT_ONCE):
            out: list[Out] = []
            for tick in due[begin : begin + WINDOWS_AT_ONCE]:
                out.append(self._counted(tick, item if tick == item.window_end else None))
                state.closed, state.next_tick = tick, tick + self.tick_length
            last = begin + WINDOWS_AT_ONCE >= len(due)
            if last:
                state.counters.update({"rows": len(item.counts), "accepted": len(item.counts)})
            yield out, last

    def _counted(self, tick: Micros, item: CountedWindow | None) -> OccupancyWindow:
        told = {} if item is None else dict(item.counts)
        counts = tuple(told.get(zone, 0) for zone in self.zones)
        share = Fraction(len(told), len(self.zones))
        if self.days is None:
            return OccupancyWindow(self.site, tick, counts, share)
        return OccupancyWindow(self.site, tick, counts, share, self.days.at(tick), counts)
