"""Describes errors of the broker: which one it was, in words that contain no data."""

from __future__ import annotations

_MODULES = ("aiokafka.errors", "kafka.errors")


def broker_error(error: BaseException) -> str | None:
    """Return a description of an error of Kafka or of the connection to it; None for any other error.

    Only the fixed description of the error's class is shown: the rest of its text may contain data that was sent.
    """
    kind = type(error)
    if kind.__module__ not in _MODULES:
        return None
    meaning = str(getattr(kind, "description", "")).strip().rstrip(".")
    return f"Kafka: {kind.__name__}" + (f": {meaning}" if meaning else "")
