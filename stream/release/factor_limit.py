"""``max_factor`` at work: what counts and attributes say together, by what the ledger has charged."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stream.accounting.charged import ChargedWindows
from stream.policy.document import Privacy
from stream.release.asked import LocalDay
from stream.release.state import ReleaseState

SLACK = 2e-9
"""Rounding of ln factors: what a policy's check lets pass, passes here."""


@dataclass(frozen=True, slots=True)
class FactorLimit:
    """The limit of one policy."""

    privacy: Privacy

    def passed(self, charged: ChargedWindows, day: LocalDay, zone: str, alone: float) -> bool:
        """Whether counts that were charged raise a zone's day above ``max_factor``; without counts they do not.

        ``alone`` is ln of the largest factor that the day's attributes reach by themselves.
        """
        counts = charged.exponent(charged.covering(zone), day.span, self.privacy.ticks_per_attribute, None)
        limit = math.log(self.privacy.max_factor) + SLACK
        return counts > 0 and alone + float(self.privacy.devices_per_person * counts) > limit

    def passed_by_window(self, state: ReleaseState, zones: tuple[str, ...], end: int) -> bool:
        """Whether what was charged now says too much of attributes that were asked of a day that holds a window."""
        return any(
            self.passed(state.charged, day, zone, asked[zone].exponent)
            for day, asked in state.asked.at(end).items()
            for zone in asked.keys() & set(zones)
        )
