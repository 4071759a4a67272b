"""The Prometheus sink: the latest releases with their bands, as metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from connectors.monitoring.plain_http import Answer, PlainServer
from connectors.sinks.feed import Notes, is_latest_count, note_latest
from connectors.subscribe.nodes import counted_in, node_values
from connectors.subscribe.order import Release
from stream.policy.fields import parse_duration
from stream.records import SECOND
from stream.schemas import parse_time

OF_A_RELEASE = ("site", "release")
OF_A_NODE = ("site", "node", "release")
_FAMILIES = {
    "devices": (
        "tacet_occupancy",
        "Released, noisy count of a node: devices, or people where people counters count.",
        "95 %",
    ),
    "people": ("tacet_people", "People in a node, estimated from released counts of devices.", "90 % (or provisional)"),
}
"""What is counted -> metric, its text, and the kind of its band."""


class LatestReleases(Collector):
    """The newest window of each site and release. A denied window has no values, so it yields no samples."""

    def __init__(self) -> None:
        self._notes: Notes = {}
        self._newest: dict[tuple[str, str], Release] = {}
        self._lock = Lock()

    def update(self, record: Release) -> None:
        """Store a count record if it is newer than the stored one."""
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
        for counted, (name, text, band) in _FAMILIES.items():
            value = GaugeMetricFamily(name, text, labels=OF_A_NODE)
            low = GaugeMetricFamily(f"{name}_low", f"Lower end of the {band} band.", labels=OF_A_NODE)
            high = GaugeMetricFamily(f"{name}_high", f"Upper end of the {band} band.", labels=OF_A_NODE)
            for record in records:
                for node in node_values(record) if (counted_in(record) == "people") is (counted == "people") else ():
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
        "tacet_release_denied", "1 if the newest window was denied and has no values.", labels=OF_A_RELEASE
    )
    coverage = GaugeMetricFamily(
        "tacet_release_coverage_ratio", "Share of the site's sources that covered the window.", labels=OF_A_RELEASE
    )
    bound = GaugeMetricFamily(
        "tacet_release_bounded_to_seconds",
        "How long a device is counted in a privacy day; after that it is left out. Only for bounded releases.",
        labels=OF_A_RELEASE,
    )
    visits = GaugeMetricFamily(
        "tacet_release_bounded_to_visits",
        "How many visits of a device are counted in a privacy day; later visits are left out. Only where changes are "
        "counted.",
        labels=OF_A_RELEASE,
    )
    for record in records:
        labels = (record["site"], record["release"])
        limit, _, of_visits = record.get("bounded_to", "").partition(" ")
        if of_visits:
            visits.add_metric(labels, int(limit))
        elif limit:
            bound.add_metric(labels, parse_duration(limit) / SECOND)
        end.add_metric(labels, parse_time(record["window_end"]) / 1e6)
        denied.add_metric(labels, float(not record["released"]))
        coverage.add_metric(labels, record["coverage"])
    yield from (end, denied, coverage, bound, visits)


def serve(latest: LatestReleases, address: tuple[str, int], names: Iterable[str] = ()) -> PlainServer:
    """Serve ``GET /metrics`` in a thread until closed; OSError if the address is in use."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(latest)

    def answer(path: str) -> Answer:
        if path != "/metrics":
            return Answer(404, b"not found\n")
        return Answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)

    return PlainServer(address, names, answer)
