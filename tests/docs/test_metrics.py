"""The table of metrics in the documents is the catalogue's."""

from __future__ import annotations

import re

import pytest

from connectors.monitoring.catalogue import APART, EVERYONE, METRICS, SIZE_STEP, TOGETHER, Metric
from connectors.monitoring.monitor import LAST_WORD, STALL
from stream.records import MINUTE
from tests.documents import part, section

ORDER = ("run", "ingest", "worker", "serve", "hooks")


def row(metric: Metric) -> str:
    verbs = "all" if metric.verbs == EVERYONE else ", ".join(verb for verb in ORDER if verb in metric.verbs)
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    what, when = metric.help.removesuffix("."), metric.changes.removesuffix(".")
    words = (metric.kind, what, labels, metric.nature.name.lower(), when, verbs)
    return f"| `{metric.name}` | {' | '.join(words)} |"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_listed_as_it_is(metric: Metric) -> None:
    assert row(metric) in part("metrics").splitlines()


def test_no_metric_is_listed_that_is_not_there() -> None:
    assert re.findall(r"^\| `(\w+)`", part("metrics"), flags=re.MULTILINE) == [metric.name for metric in METRICS]


def test_operations_says_how_coarse_figures_are_and_how_long_is_waited() -> None:
    text = " ".join(section("docs/operations.md", "Monitoring").split())
    assert f"a size in steps of {SIZE_STEP >> 20} MiB" in text
    assert f"sums over at least {TOGETHER} access points and {APART // MINUTE} minutes" in text
    assert f"at most for {LAST_WORD:.0f} s" in text
    assert STALL == 60
    assert "What nobody has looked at for a minute is not well" in text
