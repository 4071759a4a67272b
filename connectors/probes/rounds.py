"""The rounds: every minute of the connector's clock each source is asked, whether or not anybody moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import structlog

from connectors.intake.clock import AnchoredClock, ClockStepError
from connectors.intake.vouching import PROBE_GRID, Pair
from connectors.probes.asking import Answer, Asking
from connectors.probes.restarts import has_restarted
from connectors.probes.way import Way
from stream.records import SECOND, Micros

log = structlog.get_logger("tacet.probes")


class Told(Protocol):
    """Who is told what came of each question."""

    def __call__(self, pair: Pair, at: Micros, *, answered: bool) -> None:
        """Take site and source, when it was asked, and whether it answered."""


class _Known(NamedTuple):
    """What was last heard of a source."""

    answered: bool
    uptime: tuple[Micros, int] | None
    """When it was asked, and what it said."""


class Rounds:
    """Asks all sources side by side at each point of the probes' grid; operators are told of changes."""

    def __init__(
        self,
        asked: Mapping[Pair, Asking],
        clock: AnchoredClock,
        tell: Callable[..., None],
        ways: Mapping[Pair, Way] | None = None,
    ) -> None:
        """``tell`` is a ``Told``; ``ways`` are those of the sources whose traps are proven."""
        self._asked, self._clock, self._tell, self._ways = dict(asked), clock, tell, dict(ways or {})
        self._known: dict[Pair, _Known] = {}
        self._lost: set[Pair] = set()

    async def run(self) -> None:
        """Ask until cancelled, or until the clock is set."""
        while self._asked:
            try:
                now = self._clock.now()
            except ClockStepError:
                return  # the receiver reports it, and ends
            at = (now // PROBE_GRID + 1) * PROBE_GRID
            await asyncio.sleep((at - now) / SECOND)
            await self.ask(at)

    async def ask(self, at: Micros) -> None:
        """Ask all of them once; every question is over well before the next one."""
        await asyncio.gather(*(self._ask(pair, asking, at) for pair, asking in self._asked.items()))

    async def _ask(self, pair: Pair, asking: Asking, at: Micros) -> None:
        answer = await asking.ask()
        self._tell(pair, at, answered=answer is not None)
        self._report(pair, at, answer)
        if answer is not None and pair in self._ways:
            self._report_way(pair, await self._ways[pair].step(at))

    def _report_way(self, pair: Pair, proven: bool | None) -> None:
        """Tell operators where a source that answers has lost, or found again, the way of its traps."""
        site, source = pair
        if proven is False and pair not in self._lost:
            self._lost.add(pair)
            log.warning("trap_way_lost", site=site, address=source)
        elif proven and pair in self._lost:
            self._lost.discard(pair)
            log.info("trap_way_found", site=site, address=source)

    def _report(self, pair: Pair, at: Micros, answer: Answer | None) -> None:
        """Tell operators what is new: a source that is silent, or answers again, or has started anew."""
        before = self._known.get(pair, _Known(answered=True, uptime=None))
        uptime = before.uptime
        site, source = pair
        if answer is None and before.answered:
            log.warning("source_silent", site=site, address=source)
        elif answer is not None and not before.answered:
            log.info("source_answers", site=site, address=source)
        if answer is not None and answer.uptime is not None:
            said = (at, answer.uptime)
            if uptime is not None and has_restarted(uptime, said):
                log.warning("source_restarted", site=site, address=source)
            uptime = said
        self._known[pair] = _Known(answer is not None, uptime)
