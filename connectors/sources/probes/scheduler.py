"""The probe scheduler: every source, each minute of the connector's clock.

- ``has_restarted`` compares an agent's sysUpTimes to detect a restart; pure.
- ``TrapPath`` verifies that a source's traps still arrive, since a source that answers probes may have lost that path.
  Every hour it sends one request with a community that no agent has. A controller reports that with
  authenticationFailure, a trap with the same destination as all its traps. If one arrived since, the path works, and no
  device had to move for it.
- ``ProbeScheduler`` probes all sources concurrently and reports changes to operators.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from connectors.runtime.clock import AnchoredClock, ClockStepError
from connectors.sources.ingest.state import PROBE_GRID, Pair
from connectors.sources.probes.methods import ProbeAnswer, ProbeMethod
from stream.records import HOUR, SECOND, Micros

WRAP = 2**32
"""sysUpTime counts hundredths of a second and wraps around after 497 days."""
TICKS = 100
"""Per second."""
LEEWAY = 60 * TICKS
"""Maximum drift of an agent's clock between two answers."""


def has_restarted(before: tuple[Micros, int], now: tuple[Micros, int]) -> bool:
    """Return whether two uptimes, each with the time of its request, show a restart between them.

    An uptime that falls, or rises by less than the elapsed time, shows a restart, unless it would have wrapped around
    by now.
    """
    (then, last), (at, uptime) = before, now
    expected = last + (at - then) * TICKS // SECOND
    if uptime >= last and uptime + LEEWAY >= min(expected, WRAP - 1):
        return False
    return expected + LEEWAY < WRAP or abs(uptime - (expected - WRAP)) > LEEWAY


EVERY: Micros = HOUR


@dataclass(slots=True)
class TrapPath:
    """The trap path of one source; ``step`` is called at each point of the probes' grid."""

    provoke: Callable[[], Awaitable[None]]
    """Sends a request with a wrong community."""
    last_trap: Callable[[], Micros | None]
    """Returns the time of the source's last report of such a request."""
    _provoked: Micros | None = None

    async def step(self, at: Micros) -> bool | None:
        """Provoke a trap on the hour, and check a minute later; return whether it arrived, None: not checked now."""
        if at % EVERY == 0:
            self._provoked = at
            await self.provoke()
            return None
        provoked, self._provoked = self._provoked, None
        if provoked is None or at - provoked > PROBE_GRID:
            return None
        last = self.last_trap()
        return last is not None and last >= provoked


log = structlog.get_logger("tacet.probes")


class ProbeReport(Protocol):
    """Receives the result of each probe."""

    def __call__(self, pair: Pair, at: Micros, /, *, answered: bool) -> None:
        """Process site and source, the time of the probe, and whether it was answered."""


class _Known(NamedTuple):
    """The last known status of a source."""

    answered: bool
    uptime: tuple[Micros, int] | None
    """Time of the probe and its uptime."""


class ProbeScheduler:
    """Probes all sources concurrently at each point of the probes' grid; reports changes to operators."""

    def __init__(
        self,
        methods: Mapping[Pair, ProbeMethod],
        clock: AnchoredClock,
        on_result: ProbeReport,
        trap_paths: Mapping[Pair, TrapPath] | None = None,
    ) -> None:
        """``trap_paths`` are those of the sources that are verified."""
        self._methods, self._clock, self._on_result, self._trap_paths = (
            dict(methods),
            clock,
            on_result,
            dict(trap_paths or {}),
        )
        self._known: dict[Pair, _Known] = {}
        self._lost_paths: set[Pair] = set()

    async def run(self) -> None:
        """Probe until cancelled, or until the clock is set."""
        while self._methods:
            try:
                now = self._clock.now()
            except ClockStepError:
                return  # the receiver reports it, and ends
            at = (now // PROBE_GRID + 1) * PROBE_GRID
            await asyncio.sleep((at - now) / SECOND)
            await self.probe_all(at)

    async def probe_all(self, at: Micros) -> None:
        """Probe all sources once; every probe ends well before the next one."""
        await asyncio.gather(*(self._probe(pair, method, at) for pair, method in self._methods.items()))

    async def _probe(self, pair: Pair, method: ProbeMethod, at: Micros) -> None:
        answer = await method.probe()
        self._on_result(pair, at, answered=answer is not None)
        self._report(pair, at, answer)
        if answer is not None and pair in self._trap_paths:
            self._report_trap_path(pair, await self._trap_paths[pair].step(at))

    def _report_trap_path(self, pair: Pair, proven: bool | None) -> None:
        """Log that a source that answers has lost, or regained, the path of its traps."""
        site, source = pair
        if proven is False and pair not in self._lost_paths:
            self._lost_paths.add(pair)
            log.warning("trap_way_lost", site=site, address=source)
        elif proven and pair in self._lost_paths:
            self._lost_paths.discard(pair)
            log.info("trap_way_found", site=site, address=source)

    def _report(self, pair: Pair, at: Micros, answer: ProbeAnswer | None) -> None:
        """Log a change: a source is silent, answers again, or has restarted."""
        before = self._known.get(pair, _Known(answered=True, uptime=None))
        uptime = before.uptime
        site, source = pair
        if answer is None and before.answered:
            log.warning("source_silent", site=site, address=source)
        elif answer is not None and not before.answered:
            log.info("source_answers", site=site, address=source)
        if answer is not None and answer.uptime is not None:
            current = (at, answer.uptime)
            if uptime is not None and has_restarted(uptime, current):
                log.warning("source_restarted", site=site, address=source)
            uptime = current
        self._known[pair] = _Known(answer is not None, uptime)
