"""Error of a whole day's counts with noise on changes: a recorded building, and a simulated one with sessions.

The recorded building is ``tests/statistical/test_changes_error.py``, the simulated one ``test_session_days.py`` beside
it, which hold the same goals every night. Everything is fixed, so machines differ by rounding at most. Without the
recording only the simulated building is shown.
"""

from __future__ import annotations

from tests.benchmarks.shared import Figure, quick, tell
from tests.statistical.test_changes_error import CAUSAL, KEYS, REVISED, outcome
from tests.statistical.test_filter_error import TABLE
from tests.statistical.test_session_days import GOAL, error

TICKS = "ticks without a cap: 13.1 causal, 9.9 revised"


def main() -> None:
    tell([*(recorded() if TABLE.exists() else []), *simulated()])


def recorded() -> list[Figure]:
    """Return the errors on days 8 to 21 of the recorded building."""
    found = outcome(KEYS[:1] if quick() else KEYS)
    causal, revised = float(found.causal.mean()), float(found.revised.mean())
    return [
        Figure("campus1, days 8 to 21: causal", causal, "devices", f"<= {CAUSAL}", causal <= CAUSAL, TICKS),
        Figure("campus1, days 8 to 21: revised", revised, "devices", f"<= {REVISED}", revised <= REVISED,
               "epsilon 2, delta 1e-6, four visits, one level, four keys"),
    ]  # fmt: skip


def simulated() -> list[Figure]:
    """Return the error of the simulated building with sessions, as a share of the mean count."""
    share = error()
    return [
        Figure("simulated building with sessions", 100 * share, "% of the mean", f"<= {100 * GOAL:g} %", share <= GOAL,
               "all hours after the first day")
    ]  # fmt: skip


if __name__ == "__main__":
    main()
