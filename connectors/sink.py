"""What a connector makes of observations, and where it puts it."""

from __future__ import annotations

from typing import Protocol

from stream.records import Heartbeat, ObservationBatch

Message = ObservationBatch | Heartbeat
"""Observations of a site, or how far one of its sources has come."""


class Sink(Protocol):
    """Where messages go, one after the other."""

    async def append(self, message: Message) -> None:
        """Return when the message is durable."""
