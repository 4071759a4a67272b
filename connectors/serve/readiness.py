"""Readiness of the HTTP service: outboxes exist, and the history of releases answers."""

from __future__ import annotations

import asyncio
import time

import structlog

from connectors.monitoring.metric_values import Labels
from connectors.monitoring.monitor import Monitor
from connectors.runtime.offload import offload
from connectors.serve.service import Service
from connectors.serve.startup import ServeConfig
from connectors.storage.embedded.reader import has_outbox
from stream.records import SECOND

POLL_SECONDS, ANSWER_VALID_SECONDS = 15.0, 45.0
"""Seconds between two queries of the history, and the age of the last answer beyond which the service is not ready."""
log = structlog.get_logger("tacet.monitoring")


class ServiceWatch:
    """Monitors a service of releases: ready while its outboxes exist and its history answers, also without brokers."""

    def __init__(self, monitor: Monitor, config: ServeConfig, service: Service) -> None:
        self._monitor, self._config, self._service = monitor, config, service
        self._answered = -ANSWER_VALID_SECONDS
        monitor.health.require("history", lambda: time.monotonic() - self._answered < ANSWER_VALID_SECONDS)
        if config.store is not None:
            store = config.store
            monitor.health.require("outboxes", lambda: all(has_outbox(store, name) for name in config.audiences))
        if config.kafka is not None:
            monitor.health.require("broker", lambda: service.outage_seconds() is None, readiness=False)

    async def poll(self) -> None:
        """Query the history until cancelled, in a thread, because a query may take a while."""
        while True:
            try:
                ends = await offload(self._ends)
            except Exception as error:  # readiness reports it; errors that must end the service are raised elsewhere
                log.warning("history does not answer", error=type(error).__name__)
            else:
                self._answered = time.monotonic()
                self._monitor.metrics.only("tacet_window_end_timestamp_seconds", ends)
            await asyncio.sleep(POLL_SECONDS)

    def _ends(self) -> dict[Labels, float]:
        """Return the end of each site's newest published window."""
        ends: dict[Labels, float] = {}
        for audience in self._config.audiences:
            for site in self._config.policy.site:
                end = self._service.history.newest_end(audience, site)
                if end is not None:
                    ends[site,] = max(ends.get((site,), 0.0), end / SECOND)
        return ends
