"""A recording of the past, sensed again: windows and days from the first that is asked for on.

Where a site bounds counts by its privacy day, its counters have to begin where those did that the live run had:
at the day's start, or, on the day on which the site began, with its first window. So a recording is read from
there on, though nothing of what lies before the first window that is asked for comes out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stream.errors import DataError
from stream.keys import Keys
from stream.pipeline import Options, table
from stream.policy.document import Policy
from stream.policy.sites import Site
from stream.records import DayClosed, Heartbeat, Micros, ObservationBatch, OccupancyWindow
from stream.sensing.attributes import DayAttributes, DayState
from stream.sensing.occupancy import Sense
from stream.sensing.sense_state import SenseState

Item = OccupancyWindow | DayClosed


@dataclass(slots=True)
class PastSensing:
    """The stages of a site that come before its releases, and their states."""

    sense: Sense
    attributes: DayAttributes
    first: Micros | None
    """The first window that is asked for; None: any."""
    state: SenseState
    day: DayState

    @classmethod
    def of(cls, policy: Policy, site: str, keys: Keys, options: Options, begun: Micros | None) -> PastSensing:
        """Return the stages of a site for the windows that ``options`` ask for; ``begun`` as in ``sensed_from``."""
        since = sensed_from(policy.site[site], options.first_window, begun)
        stages = table(policy, site, keys, replace(options, first_window=since), keep_presence=False)
        sense, attributes = stages.sense, stages.attributes
        return cls(sense, attributes, options.first_window, sense.initial(), attributes.initial())

    def take(self, message: ObservationBatch | Heartbeat) -> list[Item]:
        """Return the windows and days that a message closes; DataError where the site shuts."""
        self.state, outputs = self.sense.step(self.state, message)
        if self.state.shut:
            msg = f"site {message.site}: the recording has more devices than its max_devices; nothing is released"
            raise DataError(msg)
        items: list[Item] = []
        for window in outputs:
            if isinstance(window, OccupancyWindow) and (self.first is None or window.window_end >= self.first):
                self.day, days = self.attributes.step(self.day, window)
                items += [*days, window]
        return items


def sensed_from(site: Site, first: Micros | None, begun: Micros | None) -> Micros | None:
    """Return the first window that has to be sensed so that the counters at window ``first`` are right.

    Args:
        site: whose policy says whether counts are bounded by privacy days.
        first: microseconds; None where windows are asked for from the recording's own beginning on.
        begun: the first window with which the counters to compare with began at all; None: they had whole days.
    """
    if first is None or site.privacy_days is None:
        return first
    window = -(-first // site.tick) * site.tick
    start = site.privacy_days.at(window).start
    return begun if begun is not None and start < begun <= window else start + site.tick
