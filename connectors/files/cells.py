"""What a row of counts must be: window, zone, count and site, each by one rule; pure.

A cell is a zone at a window. A rule names what a good row has, never what a bad one held.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from connectors.files.instants import instants
from stream.errors import UsageError
from stream.policy.document import Policy
from stream.policy.sites import Site
from stream.records import LARGEST_COUNT, Micros
from stream.sensing.counted import COUNTERS

COLUMNS = ("window_end", "zone", "count")
TWICE = "window_end and zone must come once"
COUNT = f"count must be a whole number from 0 to {LARGEST_COUNT:,}"
_TIME = "window_end must be RFC 3339 with an offset (or local to the site without one), on one of the site's ticks"
_TWICE_A_YEAR = "window_end must have an offset where the clocks of the site are set back"
_SITE = "site must be one of the policy's with feed = 'counts'"
_ZONE = "zone must be one of the site's"


class Cell(NamedTuple):
    """A zone at a window of a site."""

    site: str
    window: Micros
    zone: str


class CellRules:
    """The rules of a policy's rows of counts."""

    def __init__(self, policy: Policy) -> None:
        """Take the sites that are told counts; UsageError where the policy has none."""
        self.sites: dict[str, Site] = {name: site for name, site in policy.site.items() if site.feed == "counts"}
        if not self.sites:
            raise UsageError("--counts: the policy must have a site with feed = 'counts'")
        self.columns = (*COLUMNS, "site") if len(self.sites) > 1 else COLUMNS
        """Fields of a row; the site only where there are several."""
        self._zones = {name: {zone.id for zone in site.zones} for name, site in self.sites.items()}
        self._clocks = {name: ZoneInfo(site.timezone) for name, site in self.sites.items()}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Site and source of all that is told counts."""
        return [(name, COUNTERS) for name in self.sites]

    def cell(self, time: Any, zone: Any, site: Any = None) -> Cell | str:
        """Return the cell that a row is about, or the rule that it broke."""
        name = next(iter(self.sites)) if site is None and len(self.sites) == 1 else site
        if not isinstance(name, str) or name not in self.sites:
            return _SITE
        moments = instants(time, self._clocks[name]) if isinstance(time, str) else ()
        if len(moments) != 1 or moments[0] % self.sites[name].tick:
            return _TWICE_A_YEAR if len(moments) > 1 else _TIME
        if not isinstance(zone, str) or zone not in self._zones[name]:
            return _ZONE
        return Cell(name, moments[0], zone)


def number(value: Any) -> int | None:
    """Return a count as a file or JSON has it, None for a bad one."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(LARGEST_COUNT)):
        value = int(value)
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT
    return int(value) if good else None
