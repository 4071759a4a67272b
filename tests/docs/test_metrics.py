"""What the documents say of metrics in prose is what the code does. ``test_tables.py`` compares the table."""

from __future__ import annotations

from connectors.monitoring.catalogue import APART, SIZE_STEP, TOGETHER
from connectors.monitoring.monitor import LAST_WORD, STALL
from stream.records import MINUTE
from tests.support.documents import section


def test_operations_says_how_coarse_figures_are_and_how_long_is_waited() -> None:
    text = " ".join(section("docs/operations.md", "Monitoring").split())
    assert f"a size in steps of {SIZE_STEP >> 20} MiB" in text
    assert f"sums over at least {TOGETHER} access points and {APART // MINUTE} minutes" in text
    assert f"for at most {LAST_WORD:.0f} s" in text
    assert STALL == 60
    assert "A check that was not made for a minute fails" in text
