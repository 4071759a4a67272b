"""Run a w-event mechanism and return each window's charge beside the usual output."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Protocol, cast

from stream.mechanisms.base import CountMechanism
from stream.mechanisms.registry import count_mechanism


class WEventMechanism(CountMechanism, Protocol):
    """A count mechanism whose ε holds for any w consecutive windows."""

    def spent(self, state: Any) -> Fraction:
        """Return exactly what the latest window cost, from the state after it; public."""


def w_event_mechanism(name: str, *, zones: int, epsilon: Fraction, windows: int) -> WEventMechanism:
    return cast(WEventMechanism, count_mechanism(name, epsilon=epsilon, max_counts=[1] * zones, windows=windows))
