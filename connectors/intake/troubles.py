"""What a connector that keeps running says of what it drops: every minute, not only at its end.

An operator who has forgotten an access point, a controller or a community would otherwise learn of it when
the process is stopped. Only what points to a fault is reported, and how much of it by power of ten: sightings are
people, and an exact number would count them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import structlog

from connectors.intake.ingest_state import IngestState, most_unknown
from connectors.intake.receiver import Receiver

EVERY = 60.0
"""Seconds."""
KERNEL = "kernel_queue_full"

log = structlog.get_logger("tacet.run")


class Troubles:
    """Remembers what has been reported."""

    def __init__(self, everyday: frozenset[str] = frozenset(), event: str = "traps_dropped") -> None:
        """Take the reasons for which something is dropped where all is well, and what a drop is called."""
        self._everyday, self._event = everyday, event
        self._dropped: dict[str, int] = {}
        self._unknown: set[str] = set()

    def news(self, dropped: Mapping[str, int], unknown: Mapping[str, int]) -> Iterator[dict[str, str | int]]:
        """Yield the fields of a log line for each reason with new drops, and for each new unknown access point.

        ``dropped`` holds what was dropped since the start, by reason. A count is the power of ten that the
        new ones do not exceed, at least ten.
        """
        for reason, number in dropped.items():
            new = number - self._dropped.get(reason, 0)
            if reason not in self._everyday and new > 0:
                self._dropped[reason] = number
                yield {"event": self._event, "reason": reason, "count": _power_of_ten(new)}
        for address in unknown:
            if address not in self._unknown:
                self._unknown.add(address)
                yield {"event": "unknown_access_point", "address": address}


def _power_of_ten(number: int) -> int:
    power = 10
    while power < number:
        power *= 10
    return power


async def report_troubles(made: Receiver, every: float | None = None) -> None:
    """Log what is new of a receiver's troubles, again and again until cancelled."""
    troubles = Troubles(made.everyday)
    while True:
        await asyncio.sleep(EVERY if every is None else every)
        for line in _news(troubles, made, made.state):
            log.warning(**line)


def _news(troubles: Troubles, made: Receiver, state: IngestState) -> Iterator[dict[str, str | int]]:
    counters = made.counters
    return troubles.news({**counters.dropped, KERNEL: counters.kernel_drops}, most_unknown(state))
