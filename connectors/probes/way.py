"""Whether a source's traps still find their way here, which a source that answers may have lost.

Every hour it is asked once with a community that nobody has. A controller tells of that by authenticationFailure,
a trap that goes wherever its traps go; one that came since proves the way, and nobody had to move for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from connectors.intake.vouching import PROBE_GRID
from stream.records import HOUR, Micros

EVERY: Micros = HOUR


@dataclass(slots=True)
class Way:
    """One source's way; ``step`` is called at each point of the probes' grid."""

    provoke: Callable[[], Awaitable[None]]
    """Asks with a wrong community."""
    heard: Callable[[], Micros | None]
    """When the source last told of one."""
    _provoked: Micros | None = None

    async def step(self, at: Micros) -> bool | None:
        """Provoke on the hour, and look a minute later; return whether the way was proven, None: not looked at."""
        if at % EVERY == 0:
            self._provoked = at
            await self.provoke()
            return None
        provoked, self._provoked = self._provoked, None
        if provoked is None or at - provoked > PROBE_GRID:
            return None
        heard = self.heard()
        return heard is not None and heard >= provoked
