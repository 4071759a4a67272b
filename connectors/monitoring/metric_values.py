"""The metrics of one process, coarse where the catalogue requires it.

Metrics that depend on people are sums over enough access points and minutes (``Traffic``). A counter that moved with
each datagram would reveal when somebody walked by. So counts are withheld until a point of the clock's grid, and
published only if the sites that were counted all the time since the last step have enough access points.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from connectors.monitoring.catalogue import (
    BY_NAME,
    LEAST_ACCESS_POINTS,
    METRICS,
    SIZE_STEP,
    TRAFFIC_INTERVAL,
    Metric,
    Nature,
    Verb,
)
from stream.records import SECOND, Micros

BUCKETS = (1, 2, 5, 10, 30, 60, 120, 300)
"""Upper ends in seconds."""
Labels = tuple[str, ...]


@dataclass(slots=True)
class Histogram:
    """The counts of a histogram."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    """Number of values in each bucket; the last has no upper bound."""
    total: int = 0
    """Seconds."""

    def add(self, seconds: int) -> None:
        """Count one value."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def copy(self) -> Histogram:
        """Return an independent copy."""
        return Histogram(list(self.counts), self.total)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its values at one moment."""

    metric: Metric
    values: Mapping[Labels, float]
    histograms: Mapping[Labels, Histogram]


class MetricValues:
    """The metrics that a command exposes. The command's own loop sets them; other threads read them at any moment."""

    def __init__(self, verb: Verb, clock: Callable[[], Micros]) -> None:
        """``clock`` returns the time, for ages."""
        self._verb, self._clock, self._lock = verb, clock, Lock()
        self._values: dict[str, dict[Labels, float]] = {}
        self._since: dict[str, dict[Labels, Micros]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge; seconds and sizes are rounded."""
        coarse = _coarse(self._metric(name, "gauge", labels), value)
        with self._lock:
            self._values.setdefault(name, {})[labels] = coarse

    def only(self, name: str, values: Mapping[Labels, float]) -> None:
        """Set a gauge to these values and no others."""
        coarse = {labels: _coarse(self._metric(name, "gauge", labels), value) for labels, value in values.items()}
        with self._lock:
            self._values[name] = coarse

    def only_since(self, name: str, moments: Mapping[Labels, Micros]) -> None:
        """Set a gauge to the ages of these moments at the time of reading, and no others."""
        for labels in moments:
            self._metric(name, "gauge", labels)
        with self._lock:
            self._since[name] = dict(moments)

    def add(self, name: str, amount: int, *labels: str) -> None:
        """Add ``amount`` to a counter; 0 creates it."""
        self._metric(name, "counter", labels)
        with self._lock:
            counts = self._values.setdefault(name, {})
            counts[labels] = counts.get(labels, 0) + amount

    def begin(self, name: str, *labels: str) -> None:
        """Create a histogram before its first duration, so that the first one is visible."""
        self._metric(name, "histogram", labels)
        with self._lock:
            self._histograms.setdefault(name, {}).setdefault(labels, Histogram())

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram, rounded up to a second."""
        self._metric(name, "histogram", labels)
        with self._lock:
            self._histograms.setdefault(name, {}).setdefault(labels, Histogram()).add(max(0, math.ceil(seconds)))

    def families(self) -> list[Family]:
        """Return all metrics of this command, with or without values, at one moment."""
        now = self._clock()
        with self._lock:
            return [self._family(metric, now) for metric in METRICS if self._verb in metric.verbs]

    def _family(self, metric: Metric, now: Micros) -> Family:
        values = dict(self._values.get(metric.name, {}))
        since = self._since.get(metric.name, {})
        values |= {labels: _coarse(metric, (now - moment) / SECOND) for labels, moment in since.items()}
        histograms = {labels: histogram.copy() for labels, histogram in self._histograms.get(metric.name, {}).items()}
        return Family(metric, values, histograms)

    def _metric(self, name: str, kind: str, labels: Labels) -> Metric:
        metric = BY_NAME[name]
        if self._verb not in metric.verbs or kind != metric.kind or len(labels) != len(metric.labels):
            msg = f"{name}: 'tacet {self._verb}' does not export it as a {kind} with {len(labels)} labels"
            raise ValueError(msg)
        return metric


def _coarse(metric: Metric, value: float) -> float:
    if metric.nature is Nature.TIMING:
        return float(round(value))
    if metric.nature is Nature.SIZE:
        return value // SIZE_STEP * SIZE_STEP
    return value


# --- traffic ----------------------------------------------------------------------------------------

Series = tuple[str, ...]
"""Name of a counter and its labels."""
SLACK: Micros = 1 * SECOND
"""A busy loop may be so late at a point of the grid; if it is later, the point is skipped."""


class Part(NamedTuple):
    """The counts of some access points since an arbitrary beginning."""

    access_points: int
    counts: Mapping[Series, int]


Parts = Mapping[str, Part]
"""By site, or by another group that is counted together."""


class Traffic:
    """The counters of a process, and their last published values."""

    def __init__(self, figures: MetricValues) -> None:
        self._metrics = figures
        self._read: list[Callable[[], Parts]] = []
        self._published: list[dict[str, Part]] = []
        self._since: Micros | None = None
        self._point: Micros | None = None

    def count(self, read: Callable[[], Parts]) -> None:
        """Publish the counts of ``read`` from now on; earlier counts are not published."""
        self._read.append(read)
        self._published.append(dict(read()))
        self._since = None  # the full interval starts again here
        for part in self._published[-1].values():
            for series in part.counts:
                self._metrics.add(series[0], 0, *series[1:])

    def update(self, now: Micros, monotonic: Micros) -> None:
        """Step if a point of the grid has just passed; to be called at least once a second.

        ``now`` is the wall-clock time, whose grid is used; ``monotonic`` that of a clock that is never set.
        """
        point = now // TRAFFIC_INTERVAL * TRAFFIC_INTERVAL
        if self._since is None or self._point is None:
            self._since, self._point = monotonic, point
            return
        passed, self._point = point != self._point, point
        if passed and now - point <= SLACK and monotonic - self._since >= TRAFFIC_INTERVAL - SLACK:
            self._since = monotonic
            for number, read in enumerate(self._read):
                self._step(number, dict(read()))

    def _step(self, number: int, parts: dict[str, Part]) -> None:
        """Publish the counts since the last step of the parts that were present all the time."""
        published = self._published[number]
        whole = {name: part for name, part in parts.items() if name in published and _continues(published[name], part)}
        if sum(part.access_points for part in whole.values()) >= LEAST_ACCESS_POINTS:
            for name, part in whole.items():
                for series, value in part.counts.items():
                    self._metrics.add(series[0], value - published[name].counts.get(series, 0), *series[1:])
            self._published[number] = parts
        else:  # a new or restarted part counts from here
            self._published[number] = {name: published[name] if name in whole else part for name, part in parts.items()}


def _continues(before: Part, after: Part) -> bool:
    """Return whether a part continues the earlier one: its counts have not fallen, as they do after a restore."""
    return all(after.counts.get(series, 0) >= value for series, value in before.counts.items())
