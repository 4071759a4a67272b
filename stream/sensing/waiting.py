"""What waits for a window to close: of each device its last entry, and batches of which no entry has been made yet.

Rows mostly come in the order of their times. A batch whose first row is later than all that waits decides where each of
its devices is, whatever they did before: it is kept by column until the window closes, and who is present is brought up
to date from its columns. Whoever asks for entries earlier has them made: what waits is the same, and so are its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, count, repeat
from typing import NamedTuple

from stream.records import Micros

END = -1
"""Stands for a zone where a row ends the device's stay."""
MOST_ROWS = 16_384
"""So many rows wait by column; of more, entries are made, of which there is one a device."""

Stamp = tuple[str, int, int]
"""(source, session, sequence) of a batch: orders observations of the same instant."""
Entry = tuple[Micros, Stamp, int, int]
"""(time, stamp, row, zone index or END); of two entries of a device the greater is the later."""
Present = dict[str, tuple[int, Micros]]
"""Device -> (zone index, time) of its last observation."""


class Run(NamedTuple):
    """A batch in the order of its times, by column."""

    stamp: Stamp
    devices: Sequence[str]
    zones: Sequence[int]
    times: Sequence[Micros]


class Waiting:
    """Rows of one window that is not closed."""

    __slots__ = ("_entries", "_rows", "_runs", "latest")

    def __init__(self, latest: Micros, entries: dict[str, Entry] | None = None) -> None:
        """Take entries by device, and a time that none of them is later than."""
        self.latest = latest
        self._entries: dict[str, Entry] = {} if entries is None else entries
        self._runs: list[Run] = []
        self._rows = 0

    @property
    def entries(self) -> dict[str, Entry]:
        """Device -> its last entry; may be changed."""
        for run in self._runs:
            self._entries |= _entries_of(run)
        self._runs, self._rows = [], 0
        return self._entries

    def append(self, run: Run) -> None:
        """Add a batch of which every row is later than ``latest``."""
        self._runs.append(run)
        self._rows += len(run.times)
        if self._rows > MOST_ROWS:
            _ = self.entries

    def merge(self, run: Run) -> None:
        """Add a batch of whatever times; of each device the later entry stays."""
        held, new = self.entries, _entries_of(run)
        for device in held.keys() & new.keys():
            new[device] = max(new[device], held[device])
        held |= new

    def devices(self) -> Iterable[str]:
        """Name each device at least once."""
        return chain(self._entries, *(run.devices for run in self._runs))

    def move_into(self, present: Present) -> None:
        """Bring who is present up to the end of the window, in place."""
        for device, (time, _, _, zone) in self._entries.items():
            if zone == END:
                present.pop(device, None)
            else:
                present[device] = (zone, time)
        for run in self._runs:
            present.update(zip(run.devices, zip(run.zones, run.times, strict=False), strict=False))
        if any(END in run.zones for run in self._runs):
            for device in [device for device, (zone, _) in present.items() if zone == END]:
                del present[device]

    def __len__(self) -> int:
        return len(self.entries)

    def __eq__(self, other: object) -> bool:
        return self.entries == other.entries if isinstance(other, Waiting) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Waiting(of {len(self)} devices)"


def _entries_of(run: Run) -> dict[str, Entry]:
    """Return device -> its last entry of a batch."""
    return dict(zip(run.devices, zip(run.times, repeat(run.stamp), count(), run.zones), strict=False))
