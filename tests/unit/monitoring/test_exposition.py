"""The port: metrics in Prometheus' form, three answers about health, and a last word."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from threading import Thread

import pytest
from prometheus_client.parser import text_string_to_metric_families

from connectors.monitoring.catalogue import METRICS
from connectors.monitoring.monitor import Monitor, kind_of
from connectors.runtime.clock import ClockStepError
from stream.errors import FinalityError, KeyFileError
from stream.records import SECOND
from tests.support.patience import PATIENCE, wait_until
from tests.support.small_building import building

NOW = 1_700_000_000 * SECOND
LOOPBACK = ("127.0.0.1", 0)


def monitor(address: tuple[str, int] | None = LOOPBACK) -> Monitor:
    return Monitor("run", building(), address, lambda: NOW)


@pytest.fixture
def watched() -> Iterator[Monitor]:
    with monitor() as made:
        yield made


def ask(made: Monitor, path: str, method: str = "GET") -> tuple[int, str]:
    assert made.address is not None
    connection = http.client.HTTPConnection(*made.address, timeout=PATIENCE)
    connection.request(method, path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def values(made: Monitor, name: str) -> list[tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(ask(made, "/metrics")[1])
    return [(s.labels, s.value) for family in families for s in family.samples if s.name == name]


def test_every_metric_of_the_verb_is_there_and_no_other(watched: Monitor) -> None:
    _, text = ask(watched, "/metrics")
    shown = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert shown == {metric.name for metric in METRICS if "run" in metric.verbs}


def test_nothing_is_told_of_the_process_and_its_memory(watched: Monitor) -> None:
    _, text = ask(watched, "/metrics")
    assert {line.split("{")[0].split()[0] for line in text.splitlines() if not line.startswith("#")} <= {
        metric.name for metric in METRICS
    }


def test_health_is_told_with_what_is_wrong(watched: Monitor) -> None:
    well = {"feed": True, "key": True}
    watched.health.require("feed", lambda: well["feed"])
    watched.health.require("key", lambda: well["key"])
    assert [ask(watched, path)[0] for path in ("/livez", "/startupz", "/readyz")] == [200, 503, 503]
    watched.run_checks()
    assert [ask(watched, path) for path in ("/livez", "/startupz", "/readyz")] == [(200, "ok\n")] * 3
    well["key"] = False
    watched.run_checks()
    assert ask(watched, "/readyz") == (503, "not ok: key\n")
    assert ask(watched, "/livez")[0] == 200
    assert values(watched, "tacet_check_ok") == [({"check": "feed"}, 1.0), ({"check": "key"}, 0.0)]


@pytest.mark.parametrize("path", ["/", "/metrics/", "/debug", "/livez/x"])
def test_there_is_nothing_else(watched: Monitor, path: str) -> None:
    assert ask(watched, path) == (404, "not found\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(watched: Monitor, method: str) -> None:
    assert ask(watched, "/metrics", method)[0] == 501


def test_a_source_is_up_as_its_probe_says(watched: Monitor) -> None:
    assert values(watched, "tacet_source_up") == []
    watched.probed(("dbh", "10.2.0.5"), alive=True, at=NOW)
    watched.probed(("dbh", "10.2.0.5"), alive=False, at=NOW + 60 * SECOND)
    assert values(watched, "tacet_source_up") == [({"site": "dbh", "source": "10.2.0.5"}, 0.0)]
    assert values(watched, "tacet_source_probe_timestamp_seconds") == [
        ({"site": "dbh", "source": "10.2.0.5"}, 1_700_000_060.0)
    ]


def test_without_an_address_nobody_listens_and_all_else_works() -> None:
    with monitor(None) as made:
        made.run_checks()
        made.failed(FinalityError("x"))
        assert made.address is None


def test_an_address_that_is_taken_is_named(watched: Monitor) -> None:
    assert watched.address is not None
    with (
        pytest.raises(OSError, match=f"--metrics: cannot listen at 127.0.0.1:{watched.address[1]}"),
        monitor(watched.address),
    ):
        pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [(FinalityError("x"), "FinalityError"), (ClockStepError("x"), "ClockStepError"),
     (KeyFileError("x"), "KeyFileError"), (OSError(28, "x"), "disk_full"), (RuntimeError("10.2.0.5"), "other"),
     (ExceptionGroup("", [RuntimeError("x"), FinalityError("x")]), "FinalityError")],
)  # fmt: skip
def test_an_error_is_told_by_its_kind(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind


def test_what_ended_a_service_is_told_once_more_before_it_is_gone() -> None:
    """The port closes when the last word was read: the scrape below is the one that it waits for."""
    reported: list[tuple[int, str]] = []
    made = monitor()

    def end() -> None:
        with made:
            made.run_checks()
            ended.start()
            raise FinalityError("site dbh: ledger entry 3 would differ")

    def read() -> None:
        wait_until(made.health.has_ended, "the end of the service")
        reported.extend([ask(made, "/livez"), ask(made, "/readyz"), ask(made, "/metrics")])

    ended = Thread(target=read)
    with pytest.raises(FinalityError):
        end()
    ended.join(PATIENCE)
    assert [status for status, _ in reported] == [503, 503, 200]
    assert 'tacet_failures_total{error="FinalityError"} 1.0' in reported[2][1]
    assert "tacet_replay_mismatches_total 1.0" in reported[2][1]
    assert "ledger entry" not in reported[2][1]
