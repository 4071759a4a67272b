"""What a site takes in: its configuration, which rows are dropped, and the window that each other one belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stream.errors import UsageError
from stream.records import (
    MINUTE,
    SECOND,
    CountedWindow,
    Message,
    Micros,
    ObservationBatch,
    PrivacyDay,
    Rejected,
)
from stream.sensing.contribution import BoundedCounts, Definition
from stream.sensing.sense_state import SenseState
from stream.sensing.waiting import END, Entry, Waiting

UNKNOWN = -2
"""Stands for a zone where the site does not have the access point."""
ROWS_A_DEVICE = 64
"""So many rows a device, on average, may wait for their windows where stays are kept."""


class Window(NamedTuple):
    """One window that is not closed, as rows are filed under it."""

    tick: Micros
    low: Micros
    high: Micros
    """Times in (low, high] are admitted to it."""
    waiting: Waiting
    rows: dict[tuple[str, Micros], Entry] | None
    """(device, time) -> its last entry, where stays are kept."""


@dataclass(frozen=True, kw_only=True)
class Admission:
    """The configuration of a site's sensing, and what follows from it for a single item or row."""

    site: str
    zones: tuple[str, ...]
    """The zone registry: counts come in this order."""
    access_points: Mapping[str, str]
    """Access point -> zone."""
    sources: tuple[str, ...]
    tick_length: Micros
    validity: Micros
    lateness: Micros
    max_devices: int
    """The site shuts where it would hold more devices; before there is a watermark, more entries (device and
    window); with ``keep_presence``, more than ``ROWS_A_DEVICE`` times as many rows."""
    source_timeout: Micros = 120 * SECOND
    ahead: Micros = 5 * MINUTE
    """A row further than this beyond the watermark is rejected."""
    keep_presence: bool = False
    first_window: Micros | None = None
    """No window before this one is released; rows too old to matter for it are dropped."""
    last_window: Micros | None = None
    """No window after this one is released; rows after it are dropped."""
    by_day: Definition | None = None
    """How counts are bounded by the privacy day; None: they are not."""
    _day_counts: BoundedCounts | None = field(init=False, repr=False, compare=False)
    _zone_of: dict[str | None, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        index = {zone: i for i, zone in enumerate(self.zones)}
        zone_of: dict[str | None, int] = {ap: index[zone] for ap, zone in self.access_points.items()}
        zone_of[None] = END
        object.__setattr__(self, "_zone_of", zone_of)
        object.__setattr__(self, "_day_counts", None if self.by_day is None else BoundedCounts(self.by_day))

    def _misdirected(self, item: Message) -> Rejected | None:
        if item.site != self.site:
            return Rejected(item.source, "wrong_site", "site")
        if isinstance(item, CountedWindow):
            return Rejected(item.source, "input", "kind")
        if item.source not in self.sources:
            return Rejected(item.source, "unknown_source", "source")
        if isinstance(item, ObservationBatch) and not self._is_epoch(item.epoch):
            return Rejected(item.source, "epoch", "epoch")
        return None

    def _is_epoch(self, epoch: PrivacyDay | None) -> bool:
        """Whether names of this epoch are those by which the site counts.

        A connector with another policy, or with other data of the time zone, would give a device two names a day.
        """
        if epoch is None or self._day_counts is None:
            return epoch is None and self._day_counts is None
        return self._day_counts.days.at(epoch.end) == epoch

    def _refusal(self, state: SenseState, time: Micros, epoch: PrivacyDay | None) -> str | None:
        """Return why a row of this time is dropped, or None; ``epoch`` is that of its batch."""
        if epoch is not None and not epoch.start < time <= epoch.end:
            return "epoch"
        if state.closed is not None and time <= state.closed:
            return "late"
        if self.first_window is not None and time <= self.first_window - self.validity:
            return "before_first"
        if self.last_window is not None and time > self.last_window:
            return "after_last"
        if state.clock.watermark is not None and time > state.clock.watermark + self.ahead:
            return "ahead"
        return None

    def _window_of(self, state: SenseState, time: Micros) -> Window:
        """Return the window of ``time``, (low, high], cut to what is admitted, and what waits for it."""
        tick = self._grid(time)
        low, high = tick - self.tick_length, tick
        if self.first_window is not None:
            low = max(low, self.first_window - self.validity)
        if self.last_window is not None:
            high = min(high, self.last_window)
        if state.clock.watermark is not None:
            high = min(high, state.clock.watermark + self.ahead)
        rows = state.rows.setdefault(tick, {}) if self.keep_presence else None
        if tick not in state.pending:
            state.pending[tick] = Waiting(low)
        return Window(tick, low, high, state.pending[tick], rows)

    def _grid(self, time: Micros) -> Micros:
        """Return the tick of the window in which an instant lies."""
        return -(-time // self.tick_length) * self.tick_length


def _check(admission: Admission) -> None:
    """Refuse a configuration that cannot mean anything."""
    for name in ("tick_length", "validity", "source_timeout", "max_devices"):
        if getattr(admission, name) <= 0:
            raise UsageError(f"{name} must be positive, got {getattr(admission, name)}")
    for name in ("lateness", "ahead"):
        if getattr(admission, name) < 0:
            raise UsageError(f"{name} must not be negative, got {getattr(admission, name)}")
    if not admission.sources:
        raise UsageError("sources must name at least one source")
    if len(set(admission.zones)) != len(admission.zones):
        raise UsageError("zones must be distinct")
    for zone in admission.access_points.values():
        if zone not in admission.zones:
            raise UsageError(f"access_points must lie in the site's zones, got zone {zone!r}")
