"""Logs: to standard error, and only fields from a fixed list, so that no record can slip in."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

FIELDS = frozenset(
    {
        "event", "level", "timestamp", "logger",
        "asked", "granted", "raise_with", "site", "partition", "partitions", "window", "topic",
        "release", "audience", "reason", "address", "port", "datagrams", "accepted", "dropped",
        "kernel_drops", "windows", "offset", "version", "policy", "count", "seconds", "error",
    }
)  # fmt: skip
"""What a log line may hold; everything else is taken out before it is written."""


def configure(level: str, *, json: bool) -> None:
    """Send structlog and the standard library's loggers to standard error."""
    renderer: Any = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _only_listed,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("aiokafka", "faust", "mode", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING if level != "debug" else logging.DEBUG)


def _only_listed(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {name: value for name, value in event.items() if name in FIELDS}
