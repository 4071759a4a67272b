"""A service's monitor: its figures, its health, and the port at which both are told, if there is one."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from connectors.monitoring.catalogue import ENGINE, Verb
from connectors.monitoring.figures import Figures
from connectors.monitoring.health import Health
from connectors.monitoring.traffic import Traffic
from stream.errors import FinalityError, TacetError
from stream.policy.document import Policy
from stream.records import SECOND, Micros
from stream.release.stage import MECHANISMS

if TYPE_CHECKING:
    from connectors.monitoring.exposition import Port

T = TypeVar("T")
OTHER, FULL = "other", frozenset({errno.ENOSPC, errno.EDQUOT})
BEAT = 1.0
"""Seconds between two looks at everything."""
LAST_WORD = 30.0
"""Seconds for which an error that ends the service is still told, or until somebody has read it."""
log = structlog.get_logger("tacet.monitoring")


class Monitor:
    """A context manager around all that a verb does; without an address it watches and tells nobody.

    Where the verb ends by an error, the port goes on answering, not alive and not ready, until the metrics were read
    once more or ``LAST_WORD`` is over: an alert on what stopped a service needs somebody to tell of it.
    """

    def __init__(
        self, verb: Verb, policy: Policy | None, address: tuple[str, int] | None, clock: Callable[[], Micros]
    ) -> None:
        """``clock`` is the wall's; who has no policy tells of none."""
        self.figures, self.health = Figures(verb, clock), Health(time.monotonic)
        self.traffic = Traffic(self.figures)
        self.address = address
        self._clock, self._looks = clock, list[tuple[Callable[[], None], int]]()
        self._beats = 0
        self._port: Port | None = None
        self.figures.set("tacet_build_info", 1, version("tacet-occupancy"), MECHANISMS)
        if policy is not None:
            self.figures.set("tacet_policy_info", 1, policy.version)
        if verb in ENGINE:
            self.figures.add("tacet_replay_mismatches_total", 0)

    def __enter__(self) -> Monitor:
        if self.address is not None:
            from connectors.monitoring.exposition import Port  # noqa: PLC0415 - only where it is asked for

            self._port = Port(self.address, self.figures, self.health)
            self.address = self._port.address
            log.info("metrics", address=self.address[0], port=self.address[1])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, Exception):
                self.failed(error)
        finally:
            self.health.end()
            if self._port is not None:
                self._port.close()

    def often(self, look: Callable[[], None], beats: int = 1) -> None:
        """Call ``look`` in the loop at every so many beats, to set figures that no event sets; first now."""
        look()
        self._looks.append((look, beats))

    def probed(self, pair: tuple[str, str], *, alive: bool, at: Micros) -> None:
        """Tell whether a site's source answered when it was asked, on the clock's grid: nothing else says so."""
        self.figures.set("tacet_source_up", float(alive), *pair)
        self.figures.set("tacet_source_probe_timestamp_seconds", at / SECOND, *pair)

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work in a loop that is looked at; where nobody is told, do the work."""
        if self._port is None:
            return await work
        beating = asyncio.create_task(self._beat())
        try:
            return await work
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(BEAT - time.time() % BEAT)  # just behind each point of the grid

    def look(self) -> None:
        """Look at everything once."""
        self._beats += 1
        for look, beats in self._looks:
            if self._beats % beats == 0:
                look()
        self.health.look()
        self.traffic.look(self._clock(), time.monotonic_ns() // 1000)

    def failed(self, error: BaseException) -> None:
        """Tell what ended the service, and wait until that was read, or for ``LAST_WORD``; once."""
        if self._port is None or self.health.has_ended():
            return
        self.health.end()
        kind = kind_of(error)
        self.figures.add("tacet_failures_total", 1, kind)
        if kind == FinalityError.__name__:
            self.figures.add("tacet_replay_mismatches_total", 1)
        self._port.told_the_end.wait(LAST_WORD)


def kind_of(error: BaseException) -> str:
    """Return the kind of an error, as it is told: of ours its type; its text never."""
    if isinstance(error, BaseExceptionGroup):
        kinds = [kind_of(each) for each in error.exceptions]
        return next((kind for kind in kinds if kind != OTHER), OTHER)
    if isinstance(error, TacetError):
        return type(error).__name__
    return "disk_full" if isinstance(error, OSError) and error.errno in FULL else OTHER
