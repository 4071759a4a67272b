"""Whether a service lives, is ready and has started; what is not known to be well is not."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

STALL = 60.0
"""Seconds for which the service's loop may do one thing, such as a night's learning, and still be alive."""


class Health:
    """Looks at what the service needs, from within its loop; answers from any thread."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """``monotonic`` gives seconds."""
        self._monotonic, self._lock = monotonic, Lock()
        self._checks: dict[str, Callable[[], bool]] = {}
        self._found: dict[str, bool] = {}
        self._looked: float | None = None
        self._started = self._ended = False

    def require(self, name: str, check: Callable[[], bool]) -> None:
        """Let readiness need that ``check`` returns True; it is called in the loop, and must be quick."""
        with self._lock:
            self._checks[name] = check
            self._found[name] = False

    def look(self) -> None:
        """See how everything is; to be called about once a second while the loop turns."""
        found = {name: _is_well(check) for name, check in list(self._checks.items())}
        with self._lock:
            self._found, self._looked = found, self._monotonic()
            self._started = self._started or all(found.values())

    def end(self) -> None:
        """Take note that the service does nothing more."""
        with self._lock:
            self._ended = True

    def has_ended(self) -> bool:
        """Whether it has been said that the service does nothing more."""
        with self._lock:
            return self._ended

    def checks(self) -> dict[str, bool]:
        """Return each check by its name; none is well that was not looked at lately."""
        with self._lock:
            fresh = self._is_fresh()
            return {name: fresh and well for name, well in self._found.items()}

    def is_alive(self) -> bool:
        """Whether the loop turns, or has not begun yet; a broker that is away has no part in it."""
        with self._lock:
            return not self._ended and (self._looked is None or self._is_fresh())

    def has_started(self) -> bool:
        """Whether everything has once been well."""
        with self._lock:
            return self._started and not self._ended

    def is_ready(self) -> bool:
        """Whether everything is well now."""
        return self.has_started() and all(self.checks().values())

    def _is_fresh(self) -> bool:
        return not self._ended and self._looked is not None and self._monotonic() - self._looked < STALL


def _is_well(check: Callable[[], bool]) -> bool:
    """Return what a check says; one that cannot say is not well."""
    try:
        return bool(check())
    except Exception:
        return False
