"""Ops: the engine's figures for operators alone, with what there is no figure of."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.page.ground import Watched
from tests.acceptance.page.recorded import Scene


@pytest.fixture(autouse=True)
def operating(scene: Scene) -> None:
    scene.more_roles = ("operator",)


def fact(page: Page, name: str) -> list[str]:
    """Return what stands beside a name."""
    row = page.locator(".facts > div").filter(has=page.locator("dt", has_text=name))
    return row.locator("dd").all_inner_texts()


def test_lag_late_dropped_denied_and_keys_are_told(seen: Watched, scene: Scene) -> None:
    scene.denied = 3
    page = seen.go("#/ops")
    expect(page.locator(".ops-state")).to_have_text("Running")
    assert fact(page, "Newest window") == ["Thu 1 Feb 14:35 PST", "2 min ago"]
    assert fact(page, "Log read up to") == ["Thu 1 Feb 14:35 PST", "the newest window ended 59 s earlier"]
    assert fact(page, "Observations") == ["38,956 taken in", "12 late"]
    assert fact(page, "Dropped") == ["12 came after their window had closed", "3 from too far ahead of the site's time"]
    assert fact(page, "Windows denied") == ["3 to facilities in the last week", "3 to public in the last week"]
    assert fact(page, "Messages refused") == ["2"]
    assert fact(page, "Oldest day key") == ["2018-01-31", "1 day old"]
    assert fact(page, "Ledger entries") == ["1,234"]
    assert fact(page, "Free on the store") == ["51,200 MiB"]


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
    expect(page.locator(".page.ops")).to_contain_text("Traps that never became observations")


def test_before_the_first_window_it_says_so(seen: Watched, scene: Scene) -> None:
    scene.bare = True
    page = seen.go("#/ops")
    expect(page.locator(".notice")).to_contain_text("The engine has noted nothing yet")


def test_an_operator_alone_comes_to_ops_and_is_told_where_denials_stand(seen: Watched, scene: Scene) -> None:
    scene.audiences = ()
    page = seen.go()
    expect(page.locator(".ops-state")).to_have_text("Running")
    assert "sign in with a reader's role" in fact(page, "Windows denied")[0]


def test_who_is_no_operator_has_no_such_page(seen: Watched, scene: Scene) -> None:
    scene.more_roles = ()
    page = seen.go("#/ops")
    expect(page.locator("#nav a")).to_have_text(["Live", "History", "Day", "Privacy", "Learn"])
    expect(page.locator(".page.ops")).to_have_count(0)
    assert not [path for path in scene.asked if path.endswith("operator")]
