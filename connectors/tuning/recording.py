"""A site's recording as the tuner reads it: windows, and every row; all restricted."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from connectors.files.dialect import OWN, Dialect
from connectors.reports.tried_days import observed_windows
from stream.errors import UsageError
from stream.local_time import MIDNIGHT
from stream.mechanisms.noise import Ints
from stream.policy.document import Policy
from stream.records import ObservationBatch, OccupancyWindow
from stream.sensing.renamed import Sightings
from stream.tuning.world import Site


class RecordedSite(NamedTuple):
    """What was recorded at one site."""

    name: str
    policy: Policy
    windows: tuple[OccupancyWindow, ...]
    seen: Sightings

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each zone."""
        return tuple(zone.kind for zone in self.policy.site[self.name].zones)

    @property
    def site(self) -> Site:
        """What has to be known of the site."""
        held = self.policy.site[self.name]
        return Site(
            self.name, held.timezone, tuple(zone.id for zone in held.zones),
            tuple(zone.largest for zone in held.zones), held.tick, held.day_starts or MIDNIGHT,
        )  # fmt: skip

    def counts(self, *, bounded: bool) -> tuple[Ints, Ints]:
        """Return ends of windows and their counts, of those that have them; bounded by the privacy day, or all."""
        rows = [(each.window_end, each.bounded if bounded else each.counts) for each in self.windows]
        held = [(end, counts) for end, counts in rows if counts is not None]
        if not held:
            raise UsageError(f"site '{self.name}' must have counts in some window; there is none")
        return np.array([end for end, _ in held], dtype=np.int64), np.array([row for _, row in held], dtype=np.int64)


def recorded_site(
    policy: Policy, name: str | None, path: Path, progress: Callable[..., None] | None = None, dialect: Dialect = OWN
) -> RecordedSite:
    """Read a recording of a site: the one that is named, or the policy's only one.

    Raises:
        UsageError: the policy has no such site, or several and none is named; or the file cannot be read.
        DataError: the recording cannot be read to its end, or no window comes of it.
    """
    if name is None and len(policy.site) != 1:
        raise UsageError(f"--site: must name one of {', '.join(policy.site)}")
    site = next(iter(policy.site)) if name is None else name
    if site not in policy.site:
        raise UsageError(f"--site: must be one of {', '.join(policy.site)}, got {site!r}")
    rows = _Rows(policy, site)
    windows = observed_windows(policy, path, progress, dialect, rows.take)
    return RecordedSite(site, policy, tuple(windows[site]), rows.sightings())


class _Rows:
    """The rows of a site, by column: devices by number, in the order in which their names came."""

    def __init__(self, policy: Policy, site: str) -> None:
        zones = policy.site[site].zones
        self._site = site
        self._places = {point: place for place, zone in enumerate(zones) for point in zone.radios}
        self._numbers: dict[str, int] = {}
        self._columns = (array("q"), array("q"), array("q"))

    def take(self, batch: ObservationBatch) -> None:
        """Take in a batch, if it is of the site."""
        if batch.site != self._site:
            return
        times, devices, zones = self._columns
        for device, point, time in batch.rows:
            devices.append(self._numbers.setdefault(device, len(self._numbers)))
            zones.append(-1 if point is None else self._places[point])
            times.append(time)

    def sightings(self) -> Sightings:
        """Return all rows."""
        return Sightings(*(np.array(column, dtype=np.int64) for column in self._columns))
