"""Whether an agent that answers has started anew since it last did, by its sysUpTime; pure."""

from __future__ import annotations

from stream.records import SECOND, Micros

WRAP = 2**32
"""sysUpTime counts hundredths of a second and begins again after 497 days."""
TICKS = 100
"""In a second."""
LEEWAY = 60 * TICKS
"""So far an agent's clock may be off between two answers."""


def has_restarted(before: tuple[Micros, int], now: tuple[Micros, int]) -> bool:
    """Whether uptimes, each with when it was asked for, show a restart between them.

    One that falls, or rises by less than the time that passed, shows it, unless it would by now have come to where it
    begins again.
    """
    (then, last), (at, uptime) = before, now
    expected = last + (at - then) * TICKS // SECOND
    if uptime >= last and uptime + LEEWAY >= min(expected, WRAP - 1):
        return False
    return expected + LEEWAY < WRAP or abs(uptime - (expected - WRAP)) > LEEWAY
