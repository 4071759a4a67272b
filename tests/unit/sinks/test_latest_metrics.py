"""Latest releases as metrics: the newest window of each, every value with the ends of its band."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from connectors.sinks.prometheus import LatestReleases, serve
from tests.support.released_store import count


def record(number: int, values: dict[str, int] | None = None, **more: Any) -> dict[str, Any]:
    """A record with floors and building."""
    stored = {} if values is None else {"floor": {"1": sum(values.values())}, "building": sum(values.values())}
    widths = {} if values is None else {"floor": {"1": 4}, "building": 5}
    return count(number, values, **more) | {"levels": stored or None, "levels_half_width_95": widths or None}


def exposed(*records: dict[str, Any]) -> str:
    latest, registry = LatestReleases(), CollectorRegistry()
    registry.register(latest)
    for each in records:
        latest.update(each)
    return generate_latest(registry).decode()


def samples(text: str, name: str) -> dict[str, float]:
    """Return a metric's values by node, or by release where it has none."""
    (family,) = [family for family in text_string_to_metric_families(text) if family.name == name]
    return {sample.labels.get("node", sample.labels["release"]): sample.value for sample in family.samples}


def test_the_newest_window_of_a_release_is_shown_with_the_ends_of_its_bands() -> None:
    text = exposed(record(1, {"a": 9}), record(2, {"a": 4, "b": 1}), record(-4, {"a": 50}))
    assert samples(text, "tacet_occupancy") == {"zone:a": 4, "zone:b": 1, "floor:1": 5, "building": 5}
    assert samples(text, "tacet_occupancy_low") == {"zone:a": 1, "zone:b": 0, "floor:1": 1, "building": 0}
    assert samples(text, "tacet_occupancy_high") == {"zone:a": 7, "zone:b": 4, "floor:1": 9, "building": 10}


def test_a_denied_window_has_no_values_and_says_so() -> None:
    text = exposed(record(1, {"a": 9}), record(2))
    assert samples(text, "tacet_occupancy") == samples(text, "tacet_occupancy_low") == {}
    assert samples(text, "tacet_release_denied") == {"occupancy": 1}
    assert samples(exposed(record(2)), "tacet_release_window_end_seconds") == {"occupancy": 1772453400}


def test_a_label_is_a_name_of_the_policy_and_nothing_else() -> None:
    text = exposed(record(1, {"a": 9}))
    labels = {
        name for family in text_string_to_metric_families(text) for sample in family.samples for name in sample.labels
    }
    assert labels == {"site", "node", "release"}


def test_a_bound_is_in_seconds_or_in_visits() -> None:
    text = exposed(record(1, {"a": 9}, bounded_to="2h"), record(1, {"a": 9}, release="changes", bounded_to="3 visits"))
    assert samples(text, "tacet_release_bounded_to_seconds") == {"occupancy": 7200}
    assert samples(text, "tacet_release_bounded_to_visits") == {"changes": 3}


def test_the_metrics_are_served_at_one_path() -> None:
    latest = LatestReleases()
    latest.update(record(1, {"a": 9}))
    with closing(serve(latest, ("127.0.0.1", 0))) as server:
        host, port = server.address
        with closing(HTTPConnection(host, port, timeout=60)) as client:
            client.request("GET", "/metrics")
            answer = client.getresponse()
            assert (answer.status, samples(answer.read().decode(), "tacet_occupancy")["zone:a"]) == (200, 9)
        with closing(HTTPConnection(host, port, timeout=60)) as client:
            client.request("GET", "/")
            assert client.getresponse().status == 404
