"""A service's monitor: metrics, health, and the port that serves both.

- ``Health``: whether the service lives, is ready and has started. A check without a recent result counts as failed.
- ``MetricsServer``: metrics for Prometheus, and three answers about health. It runs in a thread of its own, because the
  service's loop may hang, and that is when it must answer.
- ``Monitor``: a context manager around all work of a command.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from importlib.metadata import version
from threading import Event, Lock
from types import TracebackType
from typing import Any, TypeVar

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from connectors.monitoring.catalogue import ENGINE, Verb
from connectors.monitoring.metric_values import BUCKETS, Family, Histogram, Labels, MetricValues, Traffic
from connectors.monitoring.plain_http import Answer, PlainServer
from stream.errors import FinalityError, TacetError
from stream.records import SECOND, Micros
from stream.release.stage import MECHANISM_VERSION
from stream.release.validation import Policy

STALL = 60.0
"""Seconds for which the service's loop may be blocked, for example by a night's learning, and still count as alive."""


class Health:
    """Runs the service's checks in its loop; answers from any thread."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """``monotonic`` gives seconds."""
        self._monotonic, self._lock = monotonic, Lock()
        self._checks: dict[str, Callable[[], bool]] = {}
        self._found: dict[str, bool] = {}
        self._shown_alone: set[str] = set()
        self._last_check: float | None = None
        self._started = self._ended = False

    def require(self, name: str, check: Callable[[], bool], *, readiness: bool = True) -> None:
        """Make readiness depend on ``check``; it is called in the loop, and must be quick.

        Without ``readiness`` it is listed among the checks and nothing else depends on it.
        """
        with self._lock:
            if not readiness:
                self._shown_alone.add(name)
            self._checks[name] = check
            self._found[name] = False

    def check(self) -> None:
        """Run all checks; to be called about once a second while the loop runs."""
        found = {name: _is_well(check) for name, check in list(self._checks.items())}
        with self._lock:
            self._found, self._last_check = found, self._monotonic()
            self._started = self._started or self._suffices(found)

    def end(self) -> None:
        """Record that the service has ended its work."""
        with self._lock:
            self._ended = True

    def has_ended(self) -> bool:
        """Whether the service has ended its work."""
        with self._lock:
            return self._ended

    def checks(self) -> dict[str, bool]:
        """Return the result of each check by its name; a result that is not recent counts as failed."""
        with self._lock:
            fresh = self._is_fresh()
            return {name: fresh and well for name, well in self._found.items()}

    def is_alive(self) -> bool:
        """Return whether the loop runs, or has not begun yet; an absent broker does not matter."""
        with self._lock:
            return not self._ended and (self._last_check is None or self._is_fresh())

    def has_started(self) -> bool:
        """Return whether all checks have succeeded once."""
        with self._lock:
            return self._started and not self._ended

    def is_ready(self) -> bool:
        """Return whether all checks succeed now."""
        return self.has_started() and self._suffices(self.checks())

    def _suffices(self, checks: Mapping[str, bool]) -> bool:
        return all(well for name, well in checks.items() if name not in self._shown_alone)

    def _is_fresh(self) -> bool:
        return not self._ended and self._last_check is not None and self._monotonic() - self._last_check < STALL


def _is_well(check: Callable[[], bool]) -> bool:
    """Return the result of a check; an error counts as failed."""
    try:
        return bool(check())
    except Exception:
        return False


# --- port -------------------------------------------------------------------------------------------


class MetricsCollector(Collector):
    """Metrics and checks in the form of prometheus-client."""

    def __init__(self, figures: MetricValues, health: Health) -> None:
        self._metrics, self._health = figures, health

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of the command."""
        checks: dict[Labels, float] = {(name,): float(well) for name, well in self._health.checks().items()}
        self._metrics.only("tacet_check_ok", checks)
        for family in self._metrics.families():
            yield _metric(family)


def _metric(family: Family) -> Metric:
    metric = family.metric
    if metric.kind == "histogram":
        exported_histogram = HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)
        for labels, histogram in sorted(family.histograms.items()):
            exported_histogram.add_metric(labels, _buckets(histogram), histogram.total)
        return exported_histogram
    simple = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
    exported = simple(metric.name, metric.text, labels=metric.labels)
    for labels, value in sorted(family.values.items()):
        exported.add_metric(labels, value)
    return exported


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    sums = [sum(histogram.counts[: place + 1]) for place in range(len(histogram.counts))]
    return list(zip([*(f"{end}.0" for end in BUCKETS), "+Inf"], map(float, sums), strict=True))


class MetricsServer:
    """Answers ``/metrics``, ``/livez``, ``/readyz`` and ``/startupz`` until it is closed."""

    def __init__(
        self, address: tuple[str, int], figures: MetricValues, health: Health, names: Iterable[str] = ()
    ) -> None:
        """Bind and start answering; ``OSError`` if the address cannot be used. ``names``: see `PlainServer`."""
        self._registry, self._health = CollectorRegistry(auto_describe=False), health
        self._registry.register(MetricsCollector(figures, health))
        self.ended = Event()
        """Set when a client has read the metrics since the service ended."""
        try:
            self._server = PlainServer(address, names, self.answer, self.was_read)
        except OSError as error:
            msg = f"--metrics: cannot listen at {address[0]}:{address[1]}: {error.strerror or error}"
            raise OSError(msg) from None
        self.address = self._server.address

    def close(self) -> None:
        """Release the address."""
        self._server.close()

    def answer(self, path: str) -> Answer:
        """Return the answer for a path."""
        match path:
            case "/metrics":
                return Answer(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)
            case "/livez":
                return _health_answer(well=self._health.is_alive())
            case "/startupz":
                return _health_answer(well=self._health.has_started())
            case "/readyz":
                wrong = sorted(name for name, well in self._health.checks().items() if not well)
                return _health_answer(well=self._health.is_ready(), wrong=wrong)
        return Answer(404, b"not found\n")

    def was_read(self, path: str) -> None:
        """Record that a client has the whole answer."""
        if path == "/metrics" and not self._health.is_alive():
            self.ended.set()


def _health_answer(*, well: bool, wrong: list[str] | None = None) -> Answer:
    text = "ok" if well else f"not ok: {', '.join(wrong or ['no'])}"
    return Answer(200 if well else 503, f"{text}\n".encode())


T = TypeVar("T")
OTHER, FULL = "other", frozenset({errno.ENOSPC, errno.EDQUOT})
BEAT = 1.0
"""Seconds between two runs of all checks."""
ERROR_SHOWN = 30.0
"""Seconds for which the error that ended the service stays readable, unless a client reads it earlier."""
log = structlog.get_logger("tacet.monitoring")


class Monitor:
    """A context manager around all work of a command; without an address it monitors and serves nothing.

    If the command ends with an error, the port continues to answer, not alive and not ready, until the metrics were
    read once more or ``ERROR_SHOWN`` is over: otherwise no alert could name the error.
    """

    def __init__(
        self, verb: Verb, policy: Policy | None, address: tuple[str, int] | None, clock: Callable[[], Micros],
        names: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """``clock`` is the wall clock; without a policy its metrics are left out. ``names``: host names of the port."""
        self.metrics, self.health = MetricValues(verb, clock), Health(time.monotonic)
        self.traffic = Traffic(self.metrics)
        self.address, self._names = address, names
        self._clock, self._checks = clock, list[tuple[Callable[[], None], int]]()
        self._beats = 0
        self._port: MetricsServer | None = None
        self.metrics.set("tacet_build_info", 1, version("tacet-occupancy"), MECHANISM_VERSION)
        if policy is not None:
            self.metrics.set("tacet_policy_info", 1, policy.version)
        if verb in ENGINE:
            self.metrics.add("tacet_replay_mismatches_total", 0)

    def __enter__(self) -> Monitor:
        if self.address is not None:
            self._port = MetricsServer(self.address, self.metrics, self.health, self._names)
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
        """Call ``look`` now, and then in the loop at every ``beats`` beats, for metrics that no event sets."""
        look()
        self._checks.append((look, beats))

    def probed(self, pair: tuple[str, str], *, alive: bool, at: Micros) -> None:
        """Record whether a site's source answered its probe, on the clock's grid."""
        self.metrics.set("tacet_source_up", float(alive), *pair)
        self.metrics.set("tacet_source_probe_timestamp_seconds", at / SECOND, *pair)

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work in a loop that is monitored; without an address, just do the work."""
        if self._port is None:
            return await work
        beating = asyncio.create_task(self._beat())
        try:
            return await work
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        while True:
            self.run_checks()
            await asyncio.sleep(BEAT - time.time() % BEAT)  # just after each point of the grid

    def run_checks(self) -> None:
        """Run all checks once."""
        self._beats += 1
        for look, beats in self._checks:
            if self._beats % beats == 0:
                look()
        self.health.check()
        self.traffic.update(self._clock(), time.monotonic_ns() // 1000)

    def failed(self, error: BaseException) -> None:
        """Report the error that ended the service, and wait until it was read, or for ``ERROR_SHOWN``; once."""
        if self._port is None or self.health.has_ended():
            return
        self.health.end()
        kind = kind_of(error)
        self.metrics.add("tacet_failures_total", 1, kind)
        if kind == FinalityError.__name__:
            self.metrics.add("tacet_replay_mismatches_total", 1)
        self._port.ended.wait(ERROR_SHOWN)


def kind_of(error: BaseException) -> str:
    """Return the kind of an error as it is reported: an error of this project by its type; never its text."""
    if isinstance(error, BaseExceptionGroup):
        kinds = [kind_of(each) for each in error.exceptions]
        return next((kind for kind in kinds if kind != OTHER), OTHER)
    if isinstance(error, TacetError):
        return type(error).__name__
    return "disk_full" if isinstance(error, OSError) and error.errno in FULL else OTHER
