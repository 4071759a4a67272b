"""The port: metrics as Prometheus reads them, and three answers about health, from a thread of their own.

A thread, because the service's loop may hang, and it is then that somebody has to say so.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Event, Thread
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from connectors.monitoring.figures import BUCKETS, Family, Figures, Labels, Spread
from connectors.monitoring.health import Health

AT_ONCE = 16
"""Requests that are answered at a time; a Prometheus asks for one."""
PATIENCE = 5.0
"""Seconds for which a client may take its time."""
PLAIN = "text/plain; charset=utf-8"


class Exposed(Collector):
    """Figures and checks as prometheus-client wants them."""

    def __init__(self, figures: Figures, health: Health) -> None:
        self._figures, self._health = figures, health

    def collect(self) -> Iterator[Metric]:
        """Yield every metric that the verb shows."""
        checks: dict[Labels, float] = {(name,): float(well) for name, well in self._health.checks().items()}
        self._figures.only("tacet_check_ok", checks)
        for family in self._figures.families():
            yield _metric(family)


def _metric(family: Family) -> Metric:
    metric = family.metric
    if metric.kind == "histogram":
        spread = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, held in sorted(family.spreads.items()):
            spread.add_metric(labels, _buckets(held), held.total)
        return spread
    simple = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
    made = simple(metric.name, metric.help, labels=metric.labels)
    for labels, value in sorted(family.values.items()):
        made.add_metric(labels, value)
    return made


def _buckets(spread: Spread) -> list[tuple[str, float]]:
    sums = [sum(spread.counts[: place + 1]) for place in range(len(spread.counts))]
    return list(zip([*(f"{end}.0" for end in BUCKETS), "+Inf"], map(float, sums), strict=True))


class Port:
    """Answers ``/metrics``, ``/livez``, ``/readyz`` and ``/startupz`` until it is closed."""

    def __init__(self, address: tuple[str, int], figures: Figures, health: Health) -> None:
        """Bind and begin to answer; ``OSError`` where the address cannot be used."""
        self._registry, self._health = CollectorRegistry(auto_describe=False), health
        self._registry.register(Exposed(figures, health))
        self.told_the_end = Event()
        """Set when somebody has read the metrics since the service ended."""
        try:
            self._server = _server(address, self)
        except OSError as error:
            msg = f"--metrics: cannot listen at {address[0]}:{address[1]}: {error.strerror or error}"
            raise OSError(msg) from None
        self.address: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]
        self._thread = Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the address back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and body of what is at a path."""
        asked = path.partition("?")[0]
        match asked:
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
            case "/livez":
                return _judged(well=self._health.is_alive())
            case "/startupz":
                return _judged(well=self._health.has_started())
            case "/readyz":
                wrong = sorted(name for name, well in self._health.checks().items() if not well)
                return _judged(well=self._health.is_ready(), wrong=wrong)
        return 404, PLAIN, b"not found\n"

    def was_read(self, path: str) -> None:
        """Take note that somebody has the whole answer."""
        if path.partition("?")[0] == "/metrics" and not self._health.is_alive():
            self.told_the_end.set()


def _judged(*, well: bool, wrong: list[str] | None = None) -> tuple[int, str, bytes]:
    text = "ok" if well else f"not ok: {', '.join(wrong or ['no'])}"
    return (200 if well else 503), PLAIN, f"{text}\n".encode()


def _server(address: tuple[str, int], port: Port) -> ThreadingHTTPServer:
    """Return a server that answers few clients at a time, each within a short time, and prints nothing."""
    room = BoundedSemaphore(AT_ONCE)

    class Answering(BaseHTTPRequestHandler):
        timeout = PATIENCE

        def do_GET(self) -> None:
            status, kind, body = port.answer(self.path)
            self.send_response_only(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)
            port.was_read(self.path)

        def log_message(self, *args: Any) -> None:
            """Say nothing of who asks."""

    class Bounded(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        daemon_threads = True
        block_on_close = False

        def process_request(self, request: Any, client_address: Any) -> None:
            if room.acquire(blocking=False):
                super().process_request(request, client_address)
            else:
                self.shutdown_request(request)

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                super().process_request_thread(request, client_address)
            finally:
                room.release()

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Let a client go that hung up."""

    return Bounded(address, Answering)
