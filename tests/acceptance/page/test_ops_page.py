"""Ops: figures of the engine for operators, and which figures are missing."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.page.browser import Watched
from tests.acceptance.page.recorded import Scene


@pytest.fixture(autouse=True)
def operating(scene: Scene) -> None:
    scene.more_roles = ("operator",)


def fact(page: Page, name: str) -> list[str]:
    """Return what stands beside a name."""
    row = page.locator(".facts > div").filter(has=page.locator("dt", has_text=name))
    return row.locator("dd").all_inner_texts()


def test_lag_late_denied_and_keys_are_told(seen: Watched, scene: Scene) -> None:
    scene.denied = 3
    page = seen.go("#/ops")
    expect(page.locator(".ops-state")).to_have_text("Running")
    assert fact(page, "Newest window") == ["Thu 1 Feb 14:35 PST", "2 min ago"]
    assert fact(page, "Log read up to") == ["Thu 1 Feb 14:35 PST", "the newest window ended 59 s earlier"]
    assert fact(page, "Observations dropped as late") == ["12"]
    assert fact(page, "Windows denied") == [
        "3 of floors to public: the daily budget was spent", "1 of occupancy to facilities: guard",
    ]  # fmt: skip
    assert fact(page, "Messages in quarantine") == ["2"]
    assert fact(page, "Oldest day key") == ["2018-01-31", "1 day old"]
    assert fact(page, "Ledger entries") == ["1,234"]
    assert fact(page, "Free disk space") == ["51,200 MiB"]


def test_drops_are_shown_by_reason_the_most_frequent_first(seen: Watched) -> None:
    page = seen.go("#/ops")
    expect(page.locator(".ops-state")).to_have_text("Running")
    assert fact(page, "Observations accepted") == ["34,567"]
    assert fact(page, "Observations dropped for other reasons") == [
        "7: unknown access point",
        "1: time ahead of the clock",
    ]
    assert fact(page, "Messages received") == ["40,000, of which 34,567 accepted, since the run began"]
    assert fact(page, "Messages dropped") == [
        "5,430: received while the run was stopping", "3: no space in the socket's buffer",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lag", "words"),
    [("live", "Running"), ("late", "the newest window is older than expected"), ("silent", "No new windows")],
)
def test_a_site_is_green_only_while_windows_come(seen: Watched, scene: Scene, lag: str, words: str) -> None:
    scene.lag = "live"
    good = seen.go("#/ops").locator(".ops-site").evaluate("card => getComputedStyle(card).borderLeftColor")
    scene.lag = lag
    card = seen.go("#/ops?again").locator(".ops-site")
    expect(card.locator(".ops-state")).to_contain_text(words)
    assert (card.evaluate("card => getComputedStyle(card).borderLeftColor") == good) is (lag == "live")


def test_a_site_that_is_shut_says_so(seen: Watched, scene: Scene) -> None:
    scene.closed = True
    page = seen.go("#/ops")
    expect(page.locator(".ops-state")).to_contain_text("Stopped")


def test_figures_of_few_access_points_are_not_told(seen: Watched, scene: Scene) -> None:
    scene.few = True
    page = seen.go("#/ops")
    expect(page.locator(".facts")).to_contain_text("fewer than eight access points")


def test_what_has_no_figure_is_named(seen: Watched) -> None:
    page = seen.go("#/ops")
    expect(page.locator(".page.ops")).to_contain_text("Drops of an ingest that runs apart from the engine")


def test_before_the_first_window_it_says_so(seen: Watched, scene: Scene) -> None:
    scene.bare = True
    page = seen.go("#/ops")
    expect(page.locator(".notice")).to_contain_text("No status yet")


def test_an_operator_alone_comes_to_ops_and_is_told_what_was_denied(seen: Watched, scene: Scene) -> None:
    scene.audiences, scene.denied = (), 3
    page = seen.go()
    expect(page.locator(".ops-state")).to_have_text("Running")
    assert fact(page, "Windows denied")[0] == "3 of floors to public: the daily budget was spent"


def test_where_nothing_was_denied_it_says_so(seen: Watched) -> None:
    page = seen.go("#/ops")
    expect(page.locator(".ops-state")).to_have_text("Running")
    assert fact(page, "Windows denied") == ["none in the last week"]


def test_of_a_cluster_it_says_what_topics_tell_and_where_the_rest_is(seen: Watched, scene: Scene) -> None:
    scene.cluster = True
    page = seen.go("#/ops")
    expect(page.locator(".ops-site")).to_contain_text("Status from Kafka topics")
    names = page.locator(".facts dt").all_inner_texts()
    assert fact(page, "Sources without heartbeat") == ["1"]
    assert fact(page, "Observations accepted") == ["Not in any topic: see the metrics of the workers."]
    absent = {"Log read up to", "Ledger entries", "Oldest day key still needed", "Messages received"}
    assert not (absent | {"Observations dropped for other reasons", "Messages dropped"}) & {*names}


def test_who_is_no_operator_has_no_such_page(seen: Watched, scene: Scene) -> None:
    scene.more_roles = ()
    page = seen.go("#/ops")
    expect(page.locator("#nav a")).to_have_text(["Live", "History", "Day", "Privacy", "Learn"])
    expect(page.locator(".page.ops")).to_have_count(0)
    assert not [path for path in scene.asked if path.endswith("operator")]
