"""What the documents say of metrics in prose is what the code does. ``test_tables.py`` compares the table."""

from __future__ import annotations

from connectors.monitoring.catalogue import LEAST_ACCESS_POINTS, SIZE_STEP, TRAFFIC_INTERVAL
from connectors.monitoring.monitor import ERROR_SHOWN, STALL
from stream.records import MINUTE
from tests.support.documents import section


def test_operations_says_how_coarse_figures_are_and_how_long_is_waited() -> None:
    text = " ".join(section("docs/operations.md", "Monitoring").split())
    assert f"a size in steps of {SIZE_STEP >> 20} MiB" in text
    assert f"sums over at least {LEAST_ACCESS_POINTS} access points and {TRAFFIC_INTERVAL // MINUTE} minutes" in text
    assert f"for at most {ERROR_SHOWN:.0f} s" in text
    assert STALL == 60
    assert "A check that was not made for a minute fails" in text
