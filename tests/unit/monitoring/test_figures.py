"""Figures lose what is too fine, and a verb shows what the catalogue says that it shows."""

from __future__ import annotations

import re

import pytest

from connectors.monitoring.catalogue import BY_NAME, METRICS, SIZE_STEP, Nature
from connectors.monitoring.metric_values import BUCKETS, MetricValues
from stream.records import SECOND

NOW = 1_700_000_000 * SECOND


def shown(figures: MetricValues, name: str) -> dict[tuple[str, ...], float]:
    (family,) = [family for family in figures.families() if family.metric.name == name]
    return dict(family.values)


def test_a_timing_is_told_in_whole_seconds() -> None:
    figures = MetricValues("run", lambda: NOW)
    figures.set("tacet_clock_offset_seconds", 1.499)
    figures.only_since("tacet_lag_seconds", {("dbh",): NOW - 7_300_000})
    assert shown(figures, "tacet_clock_offset_seconds") == {(): 1.0}
    assert shown(figures, "tacet_lag_seconds") == {("dbh",): 7.0}


def test_a_duration_is_counted_in_whole_seconds_rounded_up() -> None:
    figures = MetricValues("run", lambda: NOW)
    for seconds in (0.2, 0.9, 1.1, 299, 1000, -3):
        figures.observe("tacet_window_release_delay_seconds", seconds, "dbh")
    (family,) = [each for each in figures.families() if each.metric.kind == "histogram"]
    histogram = family.histograms["dbh",]
    assert dict(zip([*BUCKETS, None], histogram.counts, strict=True)) == {
        1: 3, 2: 1, 5: 0, 10: 0, 30: 0, 60: 0, 120: 0, 300: 1, None: 1,
    }  # fmt: skip
    assert histogram.total == 1 + 1 + 2 + 299 + 1000


def test_a_size_is_told_in_whole_steps_rounded_down() -> None:
    figures = MetricValues("run", lambda: NOW)
    figures.set("tacet_disk_free_bytes", 3 * SIZE_STEP + 12_345)
    assert shown(figures, "tacet_disk_free_bytes") == {(): 3 * SIZE_STEP}


def test_an_age_goes_on_while_nobody_sets_it() -> None:
    now = [NOW]
    figures = MetricValues("worker", lambda: now[0])
    figures.only_since("tacet_lag_seconds", {("dbh",): NOW})
    now[0] += 90 * SECOND
    assert shown(figures, "tacet_lag_seconds") == {("dbh",): 90.0}


def test_a_site_that_is_not_held_any_more_is_not_shown_any_more() -> None:
    figures = MetricValues("worker", lambda: NOW)
    figures.only("tacet_site_closed", {("dbh",): 0.0, ("icb",): 0.0})
    figures.only("tacet_site_closed", {("icb",): 1.0})
    assert shown(figures, "tacet_site_closed") == {("icb",): 1.0}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_named_by_the_conventions(metric: object) -> None:
    each = BY_NAME[metric.name]  # type: ignore[attr-defined]
    assert re.fullmatch(r"tacet(_[a-z]+)+", each.name)
    assert each.name.endswith("_total") == (each.kind == "counter")
    assert each.help.endswith(".")
    assert each.changes.startswith(("Set ", "Updated ", "Changes ", "Grows "))
    assert each.changes.endswith(".")
    if each.nature is Nature.TIMING:
        assert each.name.endswith("_seconds")
    if each.nature is Nature.SIZE:
        assert each.name.endswith("_bytes")


def test_the_service_shows_no_traffic() -> None:
    assert [metric.name for metric in METRICS if "serve" in metric.verbs and metric.nature is Nature.TRAFFIC] == []


@pytest.mark.parametrize("metric", [m for m in METRICS if m.nature is Nature.TRAFFIC], ids=lambda m: m.name)
def test_traffic_has_no_label_of_a_place(metric: object) -> None:
    assert set(BY_NAME[metric.name].labels) <= {"reason", "address"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("verb", "name", "labels"),
    [("serve", "tacet_datagrams_total", ()), ("worker", "tacet_clock_offset_seconds", ()),
     ("run", "tacet_site_closed", ())],
)  # fmt: skip
def test_what_the_catalogue_does_not_have_of_a_verb_is_refused(verb: str, name: str, labels: tuple[str, ...]) -> None:
    figures = MetricValues(verb, lambda: NOW)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{name}: 'tacet {verb}' does not export it"):
        (figures.add if name.endswith("_total") else figures.set)(name, 1, *labels)


def test_ages_that_the_catalogue_does_not_have_of_a_verb_are_refused() -> None:
    figures = MetricValues("serve", lambda: NOW)
    with pytest.raises(
        ValueError, match="tacet_lag_seconds: 'tacet serve' does not export it as a gauge with 1 labels"
    ):
        figures.only_since("tacet_lag_seconds", {("dbh",): NOW})
