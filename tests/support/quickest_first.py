"""A plugin of pytest that runs the quickest tests of a file first, for runs that end with the first failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


class QuickestFirst:
    """Sorts tests by how long they took in earlier runs, which a file remembers; new ones come first."""

    def __init__(self, durations: Path) -> None:
        self._file = durations
        self._seconds: dict[str, float] = json.loads(durations.read_text()) if durations.exists() else {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the tests of each file, which share its fixtures; those of equal length keep their order."""
        files = {path: place for place, path in enumerate(dict.fromkeys(item.path for item in items))}
        items.sort(key=lambda item: (files[item.path], round(self._seconds.get(item.nodeid, 0.0), 1)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long a test took that passed."""
        if report.when == "call" and report.passed:
            self._seconds[report.nodeid] = report.duration

    def pytest_sessionfinish(self) -> None:
        """Write what was noted, for the next run."""
        self._file.write_text(json.dumps(self._seconds))
