"""The figures of one process, as they are told: coarse where the catalogue says so, and all of one moment."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from connectors.monitoring.catalogue import BY_NAME, METRICS, SIZE_STEP, Metric, Nature, Verb
from stream.records import SECOND, Micros

BUCKETS = (1, 2, 5, 10, 30, 60, 120, 300)
"""Upper ends in seconds."""
Labels = tuple[str, ...]


@dataclass(slots=True)
class Spread:
    """A histogram's numbers."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    """How many lie in each bucket, the last without an upper end."""
    total: int = 0
    """Seconds."""

    def add(self, seconds: int) -> None:
        """Count one more."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def copy(self) -> Spread:
        """Return one that does not change."""
        return Spread(list(self.counts), self.total)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its values at one moment."""

    metric: Metric
    values: Mapping[Labels, float]
    spreads: Mapping[Labels, Spread]


class Figures:
    """What a verb shows. It is set by the verb's own loop and read by others, at any moment."""

    def __init__(self, verb: Verb, clock: Callable[[], Micros]) -> None:
        """``clock`` says what time it is, for ages."""
        self._verb, self._clock, self._lock = verb, clock, Lock()
        self._values: dict[str, dict[Labels, float]] = {}
        self._since: dict[str, dict[Labels, Micros]] = {}
        self._spreads: dict[str, dict[Labels, Spread]] = {}

    def set(self, name: str, value: float, *labels: str) -> None:
        """Let a gauge have a value; seconds and sizes lose what is too fine."""
        told = _coarse(self._metric(name, "gauge", labels), value)
        with self._lock:
            self._values.setdefault(name, {})[labels] = told

    def only(self, name: str, values: Mapping[Labels, float]) -> None:
        """Let a gauge have these values and no others."""
        told = {labels: _coarse(self._metric(name, "gauge", labels), value) for labels, value in values.items()}
        with self._lock:
            self._values[name] = told

    def only_since(self, name: str, moments: Mapping[Labels, Micros]) -> None:
        """Let a gauge tell, whenever it is asked, how long ago these moments were, and nothing else."""
        for labels in moments:
            self._metric(name, "gauge", labels)
        with self._lock:
            self._since[name] = dict(moments)

    def add(self, name: str, amount: int, *labels: str) -> None:
        """Let a counter count ``amount`` more; 0 lets it be there."""
        self._metric(name, "counter", labels)
        with self._lock:
            held = self._values.setdefault(name, {})
            held[labels] = held.get(labels, 0) + amount

    def begin(self, name: str, *labels: str) -> None:
        """Let a histogram be there before it has a duration, so that its first one is seen."""
        self._metric(name, "histogram", labels)
        with self._lock:
            self._spreads.setdefault(name, {}).setdefault(labels, Spread())

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Let a histogram have one more duration, rounded up to a second."""
        self._metric(name, "histogram", labels)
        with self._lock:
            self._spreads.setdefault(name, {}).setdefault(labels, Spread()).add(max(0, math.ceil(seconds)))

    def families(self) -> list[Family]:
        """Return all metrics that this verb shows, whether they have values or not, of one moment."""
        now = self._clock()
        with self._lock:
            return [self._family(metric, now) for metric in METRICS if self._verb in metric.verbs]

    def _family(self, metric: Metric, now: Micros) -> Family:
        values = dict(self._values.get(metric.name, {}))
        since = self._since.get(metric.name, {})
        values |= {labels: _coarse(metric, (now - moment) / SECOND) for labels, moment in since.items()}
        spreads = {labels: spread.copy() for labels, spread in self._spreads.get(metric.name, {}).items()}
        return Family(metric, values, spreads)

    def _metric(self, name: str, kind: str, labels: Labels) -> Metric:
        metric = BY_NAME[name]
        if self._verb not in metric.verbs or kind != metric.kind or len(labels) != len(metric.labels):
            msg = f"{name}: 'tacet {self._verb}' does not show it as a {kind} of {len(labels)} labels"
            raise ValueError(msg)
        return metric


def _coarse(metric: Metric, value: float) -> float:
    if metric.nature is Nature.TIMING:
        return float(round(value))
    if metric.nature is Nature.SIZE:
        return value // SIZE_STEP * SIZE_STEP
    return value
