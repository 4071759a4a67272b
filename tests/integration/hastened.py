"""``tacet``, a hundred times more hurried, with a wall clock that a test can set: for alerts that are to fire for real.

    python -m tests.integration.hastened DRIFT VERB ...

DRIFT is a file of seconds by which the wall clock is ahead, looked at whenever it is read. Traffic is told every two
seconds; sources are asked every five; key and store are looked at every second.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from connectors.cli.main import main
from connectors.monitoring import metric_values
from connectors.operations.monitoring import watches
from connectors.runtime import clock
from connectors.sources.probes import methods, scheduler
from stream.records import SECOND


class Drifting:
    """The module ``time`` with another wall clock."""

    def __init__(self, drift: Path) -> None:
        self._drift = drift

    def time_ns(self) -> int:
        """Return what the wall clock says."""
        return time.time_ns() + int(float(self._drift.read_text()) * 1e9)


if __name__ == "__main__":
    vars(clock)["time"] = Drifting(Path(sys.argv.pop(1)))
    vars(metric_values)["TRAFFIC_INTERVAL"] = 2 * SECOND
    vars(scheduler)["PROBE_GRID"], vars(methods)["WAIT"] = 5 * SECOND, 0.5
    watches.KEY_BEATS = watches.STORE_BEATS = 1
    main()
