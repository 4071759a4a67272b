"""The page marks every figure of a release that counts each device for only a part of the day."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.page.browser import Watched
from tests.acceptance.page.recorded import Scene

MARK = "†"
MEANS = "† Counts each device for at most 12 h of a day"
EMPTY = {"value": 0, "low": 0, "high": 1, "half_width": 1, "likely_empty": 0.95}


@pytest.fixture
def bounded(scene: Scene) -> Scene:
    scene.bounded_to = "12h"
    scene.rows = {"zone:2003": EMPTY}
    scene.alerts = {"zone:2005": 1}
    return scene


def unmarked(page: Page) -> list[str]:
    """Return the texts of visible elements that have a band and no mark."""
    texts = page.locator("main").evaluate(
        "main => [...main.querySelectorAll('*')].filter(e => !e.children.length && e.checkVisibility())"
        ".map(e => e.textContent).filter(text => /±/.test(text))"
    )
    return [text for text in texts if MARK not in text]


NO_FIGURE = re.compile(r"such as|typically within|^.* may well be empty|Usual:")
"""Of texts with a band in them: how figures are read, and what is usual."""


def test_every_figure_of_live_is_marked_and_the_mark_is_explained(bounded: Scene, seen: Watched) -> None:
    page = seen.go()
    expect(page.locator(".now .big-band")).to_have_text("±18†")
    expect(page.locator(".now .bounded")).to_contain_text(MEANS)
    expect(page.locator("[data-node='floor:2'].floor-total")).to_contain_text(MARK)
    expect(page.locator(".tile[data-node='zone:2005'] small")).to_have_text("±3.2†")
    expect(page.locator(".alerts")).to_contain_text(MEANS)
    assert [text for text in unmarked(page) if not NO_FIGURE.search(text)] == []


def test_a_room_that_may_be_empty_because_devices_are_left_out_is_marked_too(bounded: Scene, seen: Watched) -> None:
    page = seen.go()
    expect(page.locator(".empties li", has_text="2003")).to_contain_text("95 %†")
    expect(page.locator(".tile[data-node='zone:2003'] .tile-note")).to_have_text("empty? 95 %†")


def test_screen_readers_and_the_pointer_are_told_in_words(bounded: Scene, seen: Watched) -> None:
    page = seen.go()
    tile = page.locator(".tile[data-node='zone:2005']")
    expect(tile).to_have_attribute("aria-label", re.compile("counted for at most 12h of a day"))
    tile.hover()
    expect(page.locator("#tip")).to_contain_text(MEANS)


def test_every_figure_of_the_table_of_rooms_is_marked(bounded: Scene, seen: Watched) -> None:
    page = seen.go("#/live?view=table")
    figures = page.locator("table.places tbody tr td.figure:nth-child(3)")
    texts = [text for text in figures.all_inner_texts() if text and text != "not released"]
    assert texts
    assert all(text.endswith(MARK) for text in texts)


def test_every_figure_of_history_is_marked_and_the_mark_is_explained(bounded: Scene, seen: Watched) -> None:
    page = seen.go("#/history?nodes=building&span=today")
    expect(page.locator(".part-notes")).to_contain_text(MEANS)
    expect(page.locator(".readout")).to_contain_text(MARK)
    expect(page.locator(".part-glance td").first).to_contain_text(MARK)
    page.locator("details.figures > summary", has_text="as a table").last.click()
    assert [text for text in unmarked(page) if not NO_FIGURE.search(text)] == []


def test_what_counts_everybody_has_no_mark(scene: Scene, seen: Watched) -> None:
    assert scene.bounded_to is None
    page = seen.go()
    expect(page.locator(".now .big-band")).to_have_text("±18")
    assert MARK not in page.locator("main").inner_text()
