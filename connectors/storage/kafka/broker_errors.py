"""Names an error of the broker as the broker's: which one it was, in words that hold no data."""

from __future__ import annotations

_MODULES = ("aiokafka.errors", "kafka.errors")


def broker_error(error: BaseException) -> str | None:
    """Return what to say of an error of Kafka or of reaching it; None for any other error.

    Of its text only what its kind says of itself is shown: the rest may hold what was sent.
    """
    kind = type(error)
    if kind.__module__ not in _MODULES:
        return None
    meaning = str(getattr(kind, "description", "")).strip().rstrip(".")
    return f"Kafka: {kind.__name__}" + (f": {meaning}" if meaning else "")
