"""Bookings: what is said of rooms, with which probability, and why nothing is said of others."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.page.browser import Watched, watched
from tests.acceptance.page.recorded import Scene

ADDRESS = "#/bookings?audience=facilities"


@pytest.fixture(autouse=True)
def bookings(scene: Scene) -> None:
    scene.bookings = ("facilities",)


def test_statements_have_their_room_time_and_probability(seen: Watched) -> None:
    page = seen.go(ADDRESS)
    empty = page.locator("[data-kind=empty] tbody tr")
    expect(empty.nth(0).locator("th, td")).to_have_text(["Blue room", "09:00 to 10:00", "97 %"])
    expect(empty.nth(1).locator("th, td")).to_have_text(["2003", "10:00 to 12:00", "82 %"])
    expect(empty).to_have_count(2)
    used = page.locator("[data-kind=used] tbody tr")
    expect(used.locator("th, td")).to_have_text(
        ["Large seminar room with a view of the park", "09:00 to 10:00", "99 %"]
    )


def test_every_other_booking_and_room_says_why_nothing_is_said(seen: Watched) -> None:
    page = seen.go(ADDRESS)
    page.get_by_text("8 bookings of these rooms").first.click()
    told = page.locator("details tbody tr td:last-child").all_inner_texts()
    assert len(set(told)) == 7
    assert "nothing: it is too short, the noise of this room needs 20 min of counts" in told
    silent = page.locator("[data-kind=silent] dd")
    expect(silent).to_have_count(6)
    expect(silent.first).to_contain_text("fewer than 6 seats")
    expect(silent.last).to_contain_text("±6.5 devices in the mean of an hour")
    expect(page.locator("main")).to_contain_text("at least 10 % of bookings stay empty")


def test_an_earlier_day_is_a_choice_away_and_stands_in_the_address(seen: Watched) -> None:
    page = seen.go(f"{ADDRESS}&day=2018-01-30")
    expect(page.get_by_role("combobox", name="Day", exact=True)).to_have_value("2018-01-30")
    page.get_by_role("combobox", name="Day", exact=True).select_option(index=3)
    expect(page).not_to_have_url(f"{seen.origin}/{ADDRESS}&day=2018-01-30")
    expect(page.locator("[data-kind=empty] tbody tr")).to_have_count(2)


def test_without_statements_it_says_so_and_late_figures_are_named(seen: Watched, scene: Scene) -> None:
    scene.bare, scene.feed = True, {"state": "late"}
    page = seen.go(ADDRESS)
    expect(page.locator("[data-kind=empty]")).to_contain_text("Of no booking.")
    expect(page.locator("[data-kind=used]")).to_contain_text("Of no room.")
    expect(page.locator("main")).to_contain_text("No new counts arrive.")


def test_other_readers_are_told_so_and_without_bookings_there_is_no_such_page(
    browser: Browser, origin: str, scene: Scene
) -> None:
    other = watched(browser, origin)
    page = other.go("#/bookings?audience=public")
    expect(page.locator(".notice")).to_have_text("Bookings are not shown to this reader.")
    scene.bookings = ()
    page.reload()
    expect(page.get_by_role("navigation").get_by_text("Live")).to_be_visible()
    expect(page.get_by_role("navigation").get_by_text("Bookings")).to_have_count(0)
    other.page.context.close()
    assert not other.said
