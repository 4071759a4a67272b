"""The log line of a retry: the kind of error, never its text."""

from __future__ import annotations

import logging

from stamina.instrumentation import RetryDetails, set_on_retry_hooks

log = logging.getLogger(__name__)


def log_error_kinds_only() -> None:
    """Configure stamina, whose hooks belong to the whole process, to log the kind of error and nothing else."""
    set_on_retry_hooks([_log_retry])


def _log_retry(details: RetryDetails) -> None:
    log.info("tried again after an error: %s", type(details.caused_by).__name__)
