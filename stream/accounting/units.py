"""Privacy units: what one tick, one observation, any w windows and one day cost, of a device and of a person."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class DeviceCosts:
    """Epsilons that one device's presence costs a reader, where it is added or removed."""

    tick: Fraction
    """At one tick."""
    observation: Fraction
    """At the ticks at which one observation counts."""
    sliding: Fraction
    """In any w windows one after another."""
    day: Fraction
    """In the counts of one UTC day."""

    def units(self, devices_per_person: int) -> dict[str, Fraction]:
        """Return unit -> epsilon. What is moved or replaced is removed here and added there, and so costs twice.

        An observation ends the one before it, so that adding one changes counts at two places.
        """
        return {
            "presence_tuple": self.tick,
            "tuple_moved": 2 * self.tick,
            "observation": 2 * self.observation,
            "observation_moved": 4 * self.observation,
            "device_w_event": self.sliding,
            "device_w_event_moved": 2 * self.sliding,
            "person_w_event": devices_per_person * self.sliding,
            "device_day": self.day,
            "device_day_moved": 2 * self.day,
            "person_day": devices_per_person * self.day,
        }
