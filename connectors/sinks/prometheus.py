"""The latest releases as metrics: what a Prometheus scrapes, every value with the ends of its band beside it."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from connectors.nodes import node_values
from connectors.sinks.feed import is_latest_count, note_latest
from connectors.subscriber import Release
from stream.schemas import parse_time

OF_A_RELEASE = ("site", "release")
OF_A_NODE = ("site", "node", "release")


class LatestReleases(Collector):
    """The newest window of each site and release. A window that was denied has no values, so none are shown."""

    def __init__(self) -> None:
        self._notes: dict[str, Any] = {}
        self._newest: dict[tuple[str, str], Release] = {}
        self._lock = Lock()

    def take(self, record: Release) -> None:
        """Show a count record from now on, if it is newer than what is shown."""
        with self._lock:
            if is_latest_count(record, self._notes):
                note_latest(record, self._notes)
                self._newest[record["site"], record["release"]] = record

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield every metric, whether it has samples or not."""
        with self._lock:
            records = [record for _, record in sorted(self._newest.items())]
        yield from self._nodes(records)
        yield from _releases(records)

    def _nodes(self, records: list[Release]) -> Iterator[GaugeMetricFamily]:
        value = GaugeMetricFamily("tacet_occupancy", "People in a node, as released: noisy.", labels=OF_A_NODE)
        low = GaugeMetricFamily("tacet_occupancy_low", "Lower end of the 95 % band.", labels=OF_A_NODE)
        high = GaugeMetricFamily("tacet_occupancy_high", "Upper end of the 95 % band.", labels=OF_A_NODE)
        for record in records:
            for node in node_values(record):
                labels = (record["site"], node.node, record["release"])
                value.add_metric(labels, node.value)
                if node.low is not None and node.high is not None:
                    low.add_metric(labels, node.low)
                    high.add_metric(labels, node.high)
        yield from (value, low, high)


def _releases(records: list[Release]) -> Iterator[GaugeMetricFamily]:
    end = GaugeMetricFamily(
        "tacet_release_window_end_seconds", "End of the newest window, in Unix time.", labels=OF_A_RELEASE
    )
    denied = GaugeMetricFamily(
        "tacet_release_denied", "1 where the newest window was denied, and so has no values.", labels=OF_A_RELEASE
    )
    coverage = GaugeMetricFamily(
        "tacet_release_coverage_ratio", "Share of the site's sources that were listened to.", labels=OF_A_RELEASE
    )
    for record in records:
        labels = (record["site"], record["release"])
        end.add_metric(labels, parse_time(record["window_end"]) / 1e6)
        denied.add_metric(labels, float(not record["released"]))
        coverage.add_metric(labels, record["coverage"])
    yield from (end, denied, coverage)


def serve(latest: LatestReleases, host: str, port: int) -> Any:
    """Answer ``GET /metrics`` from a thread of its own; return the server, whose ``shutdown`` ends it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(latest)
    server, _ = start_http_server(port, host, registry)
    return server
