"""Live: current counts, their bands, the health of the feed, and updates."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.page.browser import Watched, served, watched
from tests.acceptance.page.recorded import COLUMNS, Scene, application, latest

DENIED = {"value": None, "low": None, "high": None, "half_width": None, "denied": 1, "likely_empty": None}


def newest(scene: Scene, node: str, audience: str = "facilities") -> dict[str, Any]:
    """Return what the service says of a node."""
    answer = latest(scene, audience)
    rows = [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]
    return next(row for row in rows if row["node"] == node)


def test_the_building_is_shown_with_its_band_its_usual_and_the_sites_own_time(seen: Watched, scene: Scene) -> None:
    page = seen.go()
    card = page.locator(".now")
    expect(card.locator(".big-value")).to_have_text(str(newest(scene, "building")["value"]))
    expect(card.locator(".big-band")).to_have_text("±18")
    expect(card).to_contain_text("95 % band")
    expect(card).to_contain_text("at 14:35 (PST)")
    expect(card).to_contain_text("usual on a workday at this time")


def test_every_place_has_a_figure_with_its_band_or_says_that_it_is_not_released(seen: Watched, scene: Scene) -> None:
    page = seen.go()
    counted = {zone["zone"] for zone in scene.counted()}
    for zone in scene.zones():
        tile = page.locator(f".tile[data-node='zone:{zone['zone']}']")
        if zone["zone"] in counted:
            expect(tile.locator("small")).to_have_text("±3.2")
        else:
            expect(tile).to_have_class(re.compile("hatched"))
            expect(tile).to_have_attribute("aria-label", re.compile("not released$"))


def test_people_are_shown_with_their_band_beside_the_devices(seen: Watched, scene: Scene) -> None:
    scene.people = {"building": (46, 38, 55), "zone:2003": (7, 4, 11)}
    page = seen.go()
    text = "about 46 people, 38 to 55 (90 % band, estimated from the devices)"
    expect(page.locator(".now .people")).to_have_text(text)
    expect(page.locator(".now")).to_contain_text("devices")
    page.get_by_role("radio", name="table").check()
    expect(page.get_by_role("columnheader", name="People")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^2003 "))).to_contain_text("about 7 people, 4 to 11")


def test_a_place_without_an_estimate_of_people_says_so_and_shows_no_number(seen: Watched, scene: Scene) -> None:
    scene.people = {"zone:2003": (7, 4, 11)}
    expect(seen.go().locator(".now .people")).to_contain_text("People: no estimate now.")


def test_without_a_model_the_page_says_nothing_about_people(seen: Watched) -> None:
    page = seen.go("#/live?view=table")
    expect(page.locator(".now .people")).to_be_hidden()
    expect(page.get_by_role("columnheader", name="People")).to_have_count(0)


def test_the_hours_to_come_are_shown_with_what_is_usual_and_with_their_bands(seen: Watched, scene: Scene) -> None:
    """It is 14:35 on a Thursday; what is forecast for 14:00 is no longer of interest."""
    scene.forecast = True
    card = seen.go().locator(".forecast")
    hours = card.locator("li")
    expect(hours.nth(0)).to_have_text(re.compile(r"^15:00: usually \d+, today about \d+ \(\d+ to \d+\)$"))
    usual, today = map(int, re.findall(r"\d+", hours.nth(0).inner_text())[2:4])
    assert today == usual * 7 // 6 > usual
    expect(card).to_contain_text("Floor 6")
    expect(card).to_contain_text(re.compile(r"Fri 2 Feb, 1[0-9]:00: about"))
    expect(card.get_by_role("heading", name="Forecast")).to_be_visible()
    german = seen.go("?lang=de#/live").locator(".forecast li").nth(0)
    expect(german).to_have_text(re.compile(r"^15:00 Uhr: üblich \d+, heute etwa \d+ \(\d+ bis \d+\)$"))


def test_before_there_is_a_band_no_number_is_forecast_and_without_a_forecast_there_is_no_card(
    seen: Watched, scene: Scene
) -> None:
    expect(seen.go().locator(".forecast")).to_be_hidden()
    scene.forecast = False
    card = seen.go("?again#/live").locator(".forecast")
    expect(card).to_contain_text("No forecast yet")
    expect(card.locator("li")).to_have_count(0)


def test_a_tile_has_one_of_ten_colours_by_deviations_from_usual(seen: Watched, scene: Scene) -> None:
    cases = {"zone:2003": (-9, "d0"), "zone:2005": (-0.3, "d4"), "zone:2008": (0.3, "d5"), "zone:2010": (9, "d9")}
    for node, (by, _) in cases.items():
        usual = newest(scene, node)["usual"]
        value = usual["mean"] + by * usual["deviation"]
        scene.rows[node] = {"value": value, "low": value - 3, "high": value + 3}
    page = seen.go()
    for node, (_, step) in cases.items():
        expect(page.locator(f"[data-node='{node}']")).to_have_attribute("data-step", step)


def test_a_heat_map_has_its_own_colours_and_says_them(seen: Watched, scene: Scene) -> None:
    """On rooms as a digit and in words, in the legend, for screen readers and in the table."""
    scene.heat = True
    scene.colours = {"zone:2003": 8, "zone:2005": 1, "zone:2006": None}
    page = seen.go()
    page.get_by_role("radio", name="heat map").check()
    expect(page.locator("[data-node='zone:2003']")).to_have_attribute("data-step", "d7")
    expect(page.locator("[data-node='zone:2003'] .tile-note")).to_have_text("8 of 10, above usual")
    expect(page.locator("[data-node='zone:2005']")).to_have_attribute("data-step", "d0")
    expect(page.get_by_role("link", name=re.compile("^2003.* heat map: 8 of 10, above usual"))).to_be_visible()
    expect(page.locator("[data-node='zone:2006']")).to_have_attribute("data-step", "")
    expect(page.locator("[data-node='zone:2006'] .tile-note")).to_have_text("no colour yet")
    expect(page.locator(".legend-steps")).to_have_text("12345678910")
    expect(page.get_by_role("img", name=re.compile("^Ten colours of the heat map"))).to_be_visible()
    page.get_by_role("radio", name="table").check()
    row = page.get_by_role("row", name=re.compile("^2003 "))
    expect(row).to_contain_text("8 of 10, above usual")


def test_a_heat_map_is_offered_where_there_is_one(seen: Watched, scene: Scene) -> None:
    page = seen.go("#/live?by=heat")
    expect(page.get_by_role("radio", name="heat map")).to_have_count(0)
    expect(page.get_by_role("radio", name="usual")).to_be_checked()
    assert not scene.heat


def test_colours_of_another_window_are_not_shown(seen: Watched, scene: Scene) -> None:
    scene.heat, scene.rows = True, {"zone:2003": {"end": "2018-02-01T22:30:00Z"}}
    answer = latest(scene, "facilities")
    place = answer["columns"].index("end")
    for row in answer["rows"]:
        if row[answer["columns"].index("release")] == "heat":
            row[place] = "2018-02-01T22:30:00Z"
    seen.page.route("**/latest?*", lambda route: route.fulfill(json=answer))
    page = seen.go("#/live?by=heat")
    expect(page.locator("[data-node='zone:2003'] .tile-note")).not_to_have_text("no colour yet")
    expect(page.locator("[data-node='zone:2005'] .tile-note")).to_have_text("no colour yet")


def test_alerts_that_last_are_listed_where_there_is_a_stream(seen: Watched, scene: Scene) -> None:
    scene.alerts = {"zone:2003": 1, "zone:2005": 0}
    page = seen.go()
    card = page.locator(".alerts")
    expect(card.get_by_role("listitem")).to_have_count(1)
    expect(card.get_by_role("listitem")).to_contain_text("crowded")
    expect(card.get_by_role("listitem")).to_contain_text("2003")


def test_a_window_without_alerts_says_so_and_one_without_answers_that_too(seen: Watched, scene: Scene) -> None:
    scene.alerts = {"zone:2003": 0}
    expect(seen.go().locator(".alerts")).to_contain_text("No active alert.")
    scene.alerts = {}
    expect(seen.go("#/live?view=table").locator(".alerts")).to_contain_text("Alerts are not evaluated now")


def test_an_alert_of_an_earlier_window_is_none_of_now(seen: Watched, scene: Scene) -> None:
    """A node that is denied has no row in the newest window: its last one must not stand for it."""
    scene.alerts = {"zone:2003": 1}
    answer = latest(scene, "facilities")
    for row in answer["rows"]:
        if row[answer["columns"].index("release")] == "crowded":
            row[answer["columns"].index("end")] = "2018-02-01T22:30:00Z"
    seen.page.route("**/latest?*", lambda route: route.fulfill(json=answer))
    expect(seen.go().locator(".alerts")).to_contain_text("Alerts are not evaluated now")


def test_nobody_without_a_stream_sees_alerts(seen: Watched, scene: Scene) -> None:
    page = seen.go()
    expect(page.locator(".floors")).to_be_visible()
    expect(page.locator(".alerts")).to_be_hidden()
    assert scene.alerts is None


def test_what_is_no_colour_is_none(seen: Watched, scene: Scene) -> None:
    colours: dict[str, Any] = {"zone:2001": 0, "zone:2002": 11, "zone:2003": 5.5, "zone:2005": "<b>", "zone:2006": -1}
    scene.heat, scene.colours = True, colours
    page = seen.go("#/live?by=heat")
    for node in colours:
        expect(page.locator(f"[data-node='{node}'] .tile-note")).to_have_text("no colour yet")


def test_a_colour_says_no_more_than_the_band_can_carry(seen: Watched, scene: Scene) -> None:
    """Smoothed figures vary less from day to day than each of them is unsure: 2 ±4 is no news where 0.5 is usual."""
    usual = {"mean": 0.5, "deviation": 0.3, "class": "workday", "n": 60}
    scene.rows["zone:2003"] = {"value": 2, "low": -2, "high": 6, "half_width": 4, "usual": usual}
    tile = seen.go().locator("[data-node='zone:2003']")
    expect(tile).to_have_attribute("data-step", "d6")
    expect(tile).to_contain_text("≈ usual 0.5")


def test_where_usual_is_not_known_colours_are_shares_of_capacity_and_it_is_said(seen: Watched, scene: Scene) -> None:
    scene.usual = False
    page = seen.go()
    expect(page.get_by_role("radio", name="share of capacity")).to_be_checked()
    expect(page.locator(".now")).to_contain_text("usual value not known yet")
    expect(page.locator("[data-node='zone:2003']")).to_have_attribute("data-step", re.compile(r"^q\d$"))


def test_hover_and_focus_say_value_band_usual_capacity_and_what_the_band_is(seen: Watched) -> None:
    page = seen.go()
    tip = page.get_by_role("tooltip")
    tile = page.locator("[data-node='zone:2003']")
    tile.hover()
    for words in ("2003 · classroom", "±3.2", " to ", "Usual", "capacity 60", "in 95 of 100 windows"):
        expect(tip).to_contain_text(words)
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()
    tile.focus()
    expect(tip).to_be_visible()
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_a_value_below_zero_is_shown_and_explained(seen: Watched, scene: Scene) -> None:
    scene.rows["zone:2003"] = {"value": -2, "low": -5.2, "high": 1.2}
    page = seen.go()
    tile = page.locator("[data-node='zone:2003']")
    expect(tile.locator("b")).to_have_text("−2")
    tile.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("Below zero because noise was added")


def test_the_table_has_every_place_with_its_band(seen: Watched, scene: Scene) -> None:
    page = seen.go()
    page.get_by_role("radio", name="table").check()
    rows = page.locator("table.places tbody tr")
    expect(rows).to_have_count(1 + 6 + len(scene.zones()))
    building = newest(scene, "building")
    expect(rows.first).to_contain_text(f"{round(building['low'])} to {round(building['high'])}")
    expect(rows.filter(has_text="not released")).to_have_count(len(scene.zones()) - len(scene.counted()))


def test_a_reader_of_floors_sees_floors_as_numbers_and_that_rooms_are_not_released(seen: Watched, scene: Scene) -> None:
    page = seen.go("#/live?audience=public")
    expect(page.locator(".floor-total")).to_have_count(6)
    expect(page.locator(".floor").first).to_contain_text(f"{newest(scene, 'floor:6', 'public')['value']} ±7.9")
    expect(page.locator(".floor").first).to_contain_text("10 rooms are not released to this reader")
    expect(page.locator(".tile:visible")).to_have_count(0)


def test_each_figure_comes_from_the_release_that_has_it(seen: Watched, scene: Scene) -> None:
    """'policy init' makes one release of rooms and one of sums: a reader of both sees one building."""
    scene.split = True
    page = seen.go()
    expect(page.locator(".now .big-value")).to_have_text(str(newest(scene, "building")["value"]))
    expect(page.locator(".now .big-band")).to_have_text("±18")
    expect(page.locator(".now")).not_to_contain_text("not released")
    for floor in range(1, 7):
        expect(page.locator(f".floor-total[data-node='floor:{floor}']")).to_contain_text("±7.9")
    expect(page.locator(".tile[data-node='zone:2003'] small")).to_have_text("±3.2")
    expect(page.get_by_label("Release", exact=True)).to_have_count(0)
    expect(page.locator(".today svg")).to_be_attached()
    expect(page.locator("[data-spark='floor:2'] .spark-line[d^='M']")).to_be_attached()


def test_floors_are_in_the_order_of_the_service_the_highest_first(seen: Watched, scene: Scene) -> None:
    scene.order = ("4", "1", "2", "3", "6", "5")
    page = seen.go()
    expect(page.locator(".floor h3")).to_have_text([f"Floor {floor}" for floor in "563214"])


def test_where_no_place_is_empty_with_the_stated_probability_one_sentence_says_so(seen: Watched, scene: Scene) -> None:
    scene.rows = {f"zone:{zone['zone']}": {"likely_empty": 0.79} for zone in scene.counted()}
    page = seen.go()
    expect(page.locator(".empties p:visible")).to_have_text(["No place is empty with a probability of 80 % or more."])
    expect(page.locator(".empties li")).to_have_count(0)
    expect(page.locator(".perhaps-empty")).to_have_count(0)
    page.locator("[data-node='zone:2003']").hover()
    expect(page.get_by_role("tooltip")).not_to_contain_text("empty")


def test_on_a_phone_the_header_leaves_the_screen_to_the_figures(seen: Watched) -> None:
    seen.page.set_viewport_size({"width": 390, "height": 844})
    page = seen.go()
    box = page.locator("#header").bounding_box()
    assert box is not None
    assert box["height"] < 120
    for each in ("Live", "Privacy"):
        expect(page.locator("#nav").get_by_role("link", name=each)).to_be_in_viewport()
    expect(page.locator(".big-value")).to_be_in_viewport()


def test_rooms_likely_empty_are_listed_with_a_probability_and_never_for_certain(seen: Watched, scene: Scene) -> None:
    scene.rows = {f"zone:{zone['zone']}": {"likely_empty": 0.01} for zone in scene.counted()}
    scene.rows["zone:2003"] = {"likely_empty": 0.81}
    scene.rows["zone:2005"] = {"likely_empty": 0.9999}
    page = seen.go()
    expect(page.locator(".empties li")).to_have_text(["2005 99 %", "2003 81 %"])


FEEDS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "Data is up to date", "live"),
    ({"coverage": 0.5}, "Data is incomplete: 50 % of sources", "partly"),
    ({"state": "late", "age_seconds": 1500}, "Data is late", "late"),
    ({"state": "silent", "age_seconds": 90_000}, "No data", "silent"),
    ({"denied": True}, "No budget left", "denied"),
]


def test_the_feeds_health_is_said_apart_from_the_counts(seen: Watched, scene: Scene) -> None:
    card = seen.go().locator(".feed")
    expect(seen.page.locator(".line")).to_have_text("Connected")
    for feed, words, state in FEEDS:
        scene.feed = feed
        release(scene, 5)
        expect(card).to_contain_text(words)
        expect(card).to_have_attribute("data-state", state)


def test_an_outage_of_the_brokers_is_said_with_the_age_of_the_figures(seen: Watched, scene: Scene) -> None:
    scene.outage = 180.0
    card = seen.go().locator(".feed")
    expect(card).to_contain_text("Kafka has not answered for 3 min")
    expect(card).to_contain_text("The figures below were read before that.")
    expect(card).to_have_attribute("data-state", "silent")


def test_an_empty_building_with_a_healthy_feed_is_said_to_be_that(seen: Watched, scene: Scene) -> None:
    scene.rows["building"] = {"value": 1, "low": -17, "high": 19, "likely_empty": 0.93}
    card = seen.go().locator(".feed")
    expect(card).to_contain_text("Data arrives as expected. The building is probably empty (93 %).")


def test_a_denied_window_says_so_and_shows_no_figure(seen: Watched, scene: Scene) -> None:
    for zone in scene.counted():
        scene.rows[f"zone:{zone['zone']}"] = DENIED
    scene.rows |= {"building": DENIED, "floor:2": DENIED}
    scene.feed = {"denied": True}
    page = seen.go()
    expect(page.locator(".big-value")).to_have_text("denied")
    expect(page.locator("[data-node='zone:2003'] b")).to_have_text("denied")
    expect(page.locator("[data-node='zone:2003'] small")).to_have_text("")


def release(scene: Scene, minutes: int) -> None:
    """Let the service release another window."""
    scene.now += timedelta(minutes=minutes)
    scene.released.append(f"dbh/occupancy/facilities/{scene.now:%H%M}")


def test_a_new_window_is_shown_and_announced_without_a_reload(seen: Watched, scene: Scene) -> None:
    page = seen.go()
    expect(page.locator(".line")).to_have_text("Connected")
    release(scene, 5)
    expect(page.locator(".now")).to_contain_text("at 14:40 (PST)")
    expect(page.locator(".big-value")).to_have_text(str(newest(scene, "building")["value"]))
    expect(page.locator("#announce")).to_have_text(re.compile(r"^14:40: building \d+ ±18\.$"))


def test_focus_stays_on_a_tile_while_figures_change(seen: Watched, scene: Scene) -> None:
    page = seen.go()
    page.locator("[data-node='zone:2003']").focus()
    release(scene, 5)
    expect(page.locator(".now")).to_contain_text("at 14:40 (PST)")
    expect(page.locator("[data-node='zone:2003']")).to_be_focused()


def test_a_killed_stream_is_taken_up_where_it_broke_and_what_was_missed_is_shown(
    browser: Browser, scene: Scene
) -> None:
    """A lost line is an error in the browser's own console, which is why this test does not watch it."""
    with served(application(scene)) as origin:
        page = watched(browser, origin).go()
        expect(page.locator(".line")).to_have_text("Connected")
        release(scene, 5)
        expect(page.locator(".now")).to_contain_text("at 14:40 (PST)")
        scene.stream_open.clear()
        expect(page.locator(".line")).to_have_text("Connection lost, reconnecting")
        scene.now += timedelta(minutes=5)
        expect(page.locator(".line")).to_have_text("Connected")
        expect(page.locator(".now")).to_contain_text("at 14:45 (PST)")
        assert scene.since[0] is None
        assert scene.since[-1] == "dbh/occupancy/facilities/2240"
        page.context.close()
        scene.stream_open.clear()


def test_a_session_that_is_revoked_asks_for_a_token_again(seen: Watched, scene: Scene) -> None:
    page = seen.go()
    expect(page.locator(".line")).to_have_text("Connected")
    scene.ended = "revoked"
    expect(page.get_by_role("alert")).to_contain_text("Your session has ended")
    expect(page.get_by_label("Token")).to_be_focused()


@pytest.mark.parametrize("why", ["rewound", "stopping"])
def test_a_stream_that_ends_for_another_reason_is_begun_again(seen: Watched, scene: Scene, why: str) -> None:
    page = seen.go()
    expect(page.locator(".line")).to_have_text("Connected")
    scene.now -= timedelta(hours=2)
    scene.ended = why
    expect(page.locator(".line")).to_have_text("Connection lost, reconnecting")
    scene.ended = ""
    expect(page.locator(".line")).to_have_text("Connected")
    expect(page.locator(".now")).to_contain_text("at 12:35 (PST)")


def test_a_session_that_is_gone_when_the_line_comes_back_asks_for_a_token(browser: Browser, scene: Scene) -> None:
    """The service was begun anew, say. The refusal stands in the browser's console, which is not watched here."""
    with served(application(scene)) as origin:
        page = watched(browser, origin).go()
        expect(page.locator(".line")).to_have_text("Connected")
        scene.signed = False
        scene.ended = "stopping"
        expect(page.get_by_role("alert")).to_contain_text("Your session has ended")
        page.context.close()


HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_page_that_nobody_sees_gives_its_line_up_and_asks_anew_when_it_is_seen(
    seen_apart: Watched, scene: Scene
) -> None:
    """A browser has six lines to a place: six forgotten tabs would leave none for the seventh."""
    seen_apart.page.clock.install()
    page = seen_apart.go()
    expect(page.locator(".line")).to_have_text("Connected")
    page.evaluate(HIDE, True)
    page.clock.fast_forward(130_000)
    expect(page.locator(".line")).to_have_text("Connection lost, reconnecting")
    scene.now += timedelta(minutes=5)
    page.evaluate(HIDE, False)
    expect(page.locator(".line")).to_have_text("Connected")
    page.clock.fast_forward(1000)
    expect(page.locator(".now")).to_contain_text("at 14:40 (PST)")


def test_until_usual_is_known_the_fullest_places_are_named(seen: Watched, scene: Scene) -> None:
    scene.usual = False
    scene.rows["zone:2003"] = {"value": 59, "low": 56, "high": 62}
    page = seen.go()
    expect(page.locator(".away h2")).to_have_text("Fullest now")
    expect(page.locator(".away li").first).to_have_text(re.compile(r"2003\s*59 ±3\.2\s*98 % of 60"))


def plan() -> dict[str, Any]:
    rooms = {f"2{i:03}": f"M{i * 100},0L{i * 100 + 90},0L{i * 100 + 90},90L{i * 100},90Z" for i in range(1, 9)}
    return {"viewbox": [90, -10, 900, 110], "zones": rooms, "outline": ["M90,-5L990,-5"]}


def test_a_floor_with_a_plan_is_drawn_by_it_and_what_the_plan_leaves_out_as_tiles(seen: Watched, scene: Scene) -> None:
    scene.plan = plan()
    page = seen.go()
    floor = page.locator("[data-floor='2']")
    expect(floor.locator(".shape")).to_have_count(8)
    expect(floor.locator(".tile")).to_have_count(2)
    room = floor.locator(".room[data-node='zone:2003']")
    expect(room).to_have_attribute("aria-label", re.compile("95 % band"))
    expect(room.locator("text")).to_contain_text("±3.2")
    room.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("2003 · classroom")


def test_a_room_on_a_plan_that_is_not_released_is_hatched(seen: Watched, scene: Scene) -> None:
    scene.plan = plan()
    page = seen.go()
    released = {zone["zone"] for zone in scene.counted()}
    unreleased = next(f"2{i:03}" for i in range(1, 9) if f"2{i:03}" not in released)
    shape = page.locator(f".room[data-node='zone:{unreleased}'] .shape")
    expect(shape).to_have_class(re.compile("hatched"))
    fill = shape.evaluate("shape => getComputedStyle(shape).fill")
    pattern = re.fullmatch(r'url\("?#(.+?)"?\)', fill)
    assert pattern, fill
    expect(page.locator(f"pattern#{pattern[1]} .stripe")).to_be_attached()
    other = page.locator(".room[data-node='zone:2003'] .shape")
    assert "url" not in other.evaluate("shape => getComputedStyle(shape).fill")


def test_arrow_keys_walk_the_rooms_and_enter_opens_their_history(seen: Watched, scene: Scene) -> None:
    page = seen.go()
    first = page.locator("[data-floor='6'] .tile").first
    first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-node='zone:6003']")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"#/history\?.*nodes=zone:6003"))
    expect(page.get_by_role("heading", name="History", exact=True)).to_be_visible()


def tabbed(page: Page, most: int = 60) -> list[str]:
    """Return what Tab comes to, in order, until it leaves the page."""
    found = []
    for _ in range(most):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "() => document.activeElement === document.body ? '' : (document.activeElement.getAttribute('aria-label')"
            " || document.activeElement.textContent || document.activeElement.value || '').trim()"
        )
        if not name:
            break
        found.append(name)
    return found


def test_tab_comes_to_everything_once_and_to_each_floor_in_one_step(seen: Watched, scene: Scene) -> None:
    names = tabbed(seen.go())
    assert names[0] == "Skip to the figures"
    assert names.index("Live") < names.index("History") < names.index("Sign out")
    rooms = [name for name in names if re.match(r"\d{4}, ", name)]
    assert [room[0] for room in rooms] == ["6", "5", "4", "3", "2", "1"]


def test_the_skip_link_leads_past_the_navigation(seen: Watched) -> None:
    page = seen.go()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    expect(page).to_have_url(re.compile(r"#/live$"))


def test_the_recorded_rows_have_the_columns_of_the_service() -> None:
    """The stand-in must not drift from what it stands for; the real service is tried in test_page_on_a_store."""
    assert {"start", "end", "node", "value", "low", "high", "half_width", "kind"} <= set(COLUMNS)
