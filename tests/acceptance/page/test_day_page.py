"""Day: attributes of rooms' days, released or withheld, by room and by day."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.acceptance.page.browser import Watched
from tests.acceptance.page.recorded import Scene


def test_the_newest_day_shows_each_room_with_what_was_told_withheld_and_not_asked(seen: Watched) -> None:
    page = seen.go("#/day?audience=facilities")
    expect(page.locator(".attributes caption")).to_have_text("Every room on Wed 31 Jan 2018")
    rooms = page.locator(".attributes tbody tr")
    expect(rooms.nth(0).locator("td")).to_have_text(["withheld", "42 %"])
    expect(rooms.nth(1).locator("td")).to_have_text(["09:10", "withheld"])
    expect(rooms.nth(2).locator("td")).to_have_text(
        ["not evaluated: the monthly limit of this room is reached", "80 %"]
    )


def test_a_withheld_fact_is_explained_with_its_test_its_coin_and_the_odds(seen: Watched) -> None:
    page = seen.go("#/day?audience=facilities")
    arrival = page.locator(".meanings .card").nth(0)
    expect(arrival).to_contain_text("A withheld value is either sensitive (after 10:00) or was withheld at random")
    expect(arrival).to_contain_text("probability of 63 %")
    expect(arrival).to_contain_text("e^1 = 2.72 times")
    level = page.locator(".meanings .card").nth(1)
    expect(level).to_contain_text("below 30 %")
    expect(level).to_contain_text("e^0.5 = 1.65 times")


def test_how_many_are_shown_is_said_of_those_that_were_asked(seen: Watched, scene: Scene) -> None:
    page = seen.go("#/day?audience=facilities")
    query = [i for i in range(len([z for z in scene.zones() if z["kind"] == "office"])) if (i + 1) % 4 != 3]
    shown = [i for i in query if (i + 1) % 4 in {0, 2}]
    expect(page.locator(".meanings .card .count").first).to_have_text(f"shown for {len(shown)} of {len(query)}")


def test_a_room_is_followed_through_the_days_and_the_choice_stands_in_the_address(seen: Watched) -> None:
    page = seen.go("#/day?audience=facilities")
    room = page.locator(".attributes tbody th").first.inner_text()
    page.get_by_role("combobox", name="Room", exact=True).select_option(room)
    expect(page.locator(".attributes caption")).to_have_text(f"Room {room} by day")
    expect(page.locator(".attributes tbody th")).to_have_text(["Wed 31 Jan 2018", "Tue 30 Jan 2018"])
    expect(page).to_have_url(re.compile(f"room={room}$"))
    page.reload()
    expect(page.locator(".attributes caption")).to_have_text(f"Room {room} by day")


def test_an_earlier_day_is_a_choice_away(seen: Watched) -> None:
    page = seen.go("#/day?audience=facilities")
    page.get_by_role("combobox", name="Day", exact=True).select_option("2018-01-30")
    expect(page.locator(".attributes tbody tr").nth(0).locator("td")).to_have_text(["08:55", "withheld"])


def test_a_reader_without_attributes_is_told_so(seen: Watched) -> None:
    page = seen.go("#/day?audience=public")
    expect(page.locator(".notice")).to_have_text("No daily attributes of rooms are released to this reader.")


def test_before_the_first_day_it_says_when_one_comes(seen: Watched, scene: Scene) -> None:
    scene.bare = True
    page = seen.go("#/day?audience=facilities")
    expect(page.locator(".notice")).to_contain_text("A day is released when it is complete")
