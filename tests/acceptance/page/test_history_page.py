"""History: series with bands, the day by hour, a typical week, peaks against capacity, and exported files."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import pairwise
from urllib.parse import parse_qs, quote, urlsplit

from playwright.sync_api import Page, expect

from tests.acceptance.page.browser import Watched
from tests.acceptance.page.recorded import Scene


def drawn(seen: Watched, fragment: str) -> Page:
    """Open a history, and wait for the last of its parts."""
    page = seen.go(fragment)
    expect(page.locator(".heat .cell").first).to_be_attached()
    return page


def asked_of(page: Page, label: str) -> dict[str, str]:
    """Return the parameters of an export link."""
    address = page.get_by_role("link", name=label).get_attribute("href")
    assert address is not None
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def test_the_chart_says_its_newest_point_with_a_band_in_the_sites_time(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=today")
    expect(page.locator(".readout")).to_have_text(re.compile(r"^Thu 1 Feb 14:30 to 14:35 PST: Building \d+ ±18$"))
    expect(page.get_by_text("Times in the time zone of the building: PST, America/Los_Angeles")).to_be_visible()


SPANS = [
    ("30 min", "2018-02-01T22:05:00Z", "2018-02-01T22:35:00Z", "5min"),
    ("8 h", "2018-02-01T14:35:00Z", "2018-02-01T22:35:00Z", "5min"),
    ("today", "2018-02-01T12:00:00Z", "2018-02-01T22:35:00Z", "5min"),
    ("yesterday", "2018-01-31T12:00:00Z", "2018-02-01T12:00:00Z", "5min"),
    ("7 days", "2018-01-25T22:35:00Z", "2018-02-01T22:35:00Z", "15min"),
    ("30 days", "2018-01-02T22:35:00Z", "2018-02-01T22:35:00Z", "1h"),
    ("year", "2017-02-01T22:35:00Z", "2018-02-01T22:35:00Z", "1d"),
]
"""The site's days begin at 04:00, at UTC-8."""


def test_a_preset_asks_for_its_stretch_of_the_sites_time(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=2h")
    for name, start, end, step in SPANS:
        page.get_by_role("radio", name=name, exact=True).check()
        started = re.compile(re.escape(f"from={quote(start, safe='')}"))
        expect(page.get_by_role("link", name="CSV")).to_have_attribute("href", started)
        found = asked_of(page, "CSV")
        assert (found["from"], found["to"], found["granularity"]) == (start, end, step)


def test_own_dates_are_local_days_the_last_included(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=own&from=2018-01-29&to=2018-01-30")
    found = asked_of(page, "CSV")
    assert (found["from"], found["to"]) == ("2018-01-29T08:00:00Z", "2018-01-31T08:00:00Z")


def test_what_is_chosen_stands_in_the_address_and_comes_back_from_it(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=2h&audience=facilities")
    page.get_by_label("Add a place …").select_option("zone:2003")
    page.get_by_label("Resolution").select_option("15min")
    expect(page).to_have_url(re.compile(r"span=2h&nodes=building,zone:2003&step=15min$"))
    page.reload()
    expect(page.get_by_role("button", name="Remove 2003")).to_be_visible()
    expect(page.get_by_label("Resolution")).to_have_value("15min")
    expect(page.locator(".readout")).to_contain_text("2003")


def test_places_are_compared_and_taken_away(seen: Watched) -> None:
    page = drawn(seen, "#/history?nodes=floor:2,floor:3&span=8h")
    expect(page.locator(".readout")).to_have_text(re.compile(r"Floor 2 \d+ ±7.9 · Floor 3 \d+ ±7.9$"))
    page.get_by_role("button", name="Remove Floor 2").click()
    expect(page.locator(".readout")).to_have_text(re.compile(r"PST: Floor 3 \d+ ±7.9$"))


def test_the_week_before_is_laid_over(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=8h")
    page.get_by_label("Compare with the week before").check()
    expect(page.locator(".readout")).to_contain_text("Building, week before")


def test_the_week_before_leaves_every_line_its_band(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=8h&before=1&nodes=floor:1,floor:2,floor:3,floor:4,floor:5")
    expect(page.locator(".readout")).to_have_text(re.compile(r"Floor 5 \d+ ±7\.9 · Floor 1, week before \d+ ±7\.9$"))
    expect(page.locator(".part-notes")).to_contain_text("at most 6 lines with bands")


def test_arrow_keys_read_the_chart_point_by_point(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=8h")
    chart = page.locator(".chart")
    chart.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".readout")).to_contain_text("14:25 to 14:30 PST")
    page.keyboard.press("Home")
    expect(page.locator(".readout")).to_contain_text("06:35 to 06:40 PST")
    page.keyboard.press("+")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("0")
    expect(page.locator(".readout")).to_contain_text("±18")


def test_peak_and_mean_are_given_with_bands_and_against_capacity(seen: Watched, scene: Scene) -> None:
    page = drawn(seen, "#/history?nodes=zone:2003,building&span=today")
    row = page.locator(".part-glance tbody tr").first
    expect(row.locator("td").nth(0)).to_have_text(re.compile(r"^\d+ ±3\.2$"))
    expect(row.locator("td").nth(2)).to_have_text(re.compile(r"±3\.2 at most$"))
    expect(row.locator("td").nth(3)).to_have_text("60")
    expect(row.locator("td").nth(4)).to_have_text(re.compile(r"^\d+ % ±5\.3$"))
    capacity = sum(zone["capacity"] for zone in scene.counted())
    expect(page.locator(".part-glance tbody tr").nth(1).locator("td").nth(3)).to_have_text(str(capacity))


def test_the_day_by_hour_is_a_table_whose_cells_say_their_band_to_pointer_and_keyboard(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=30d")
    expect(page.locator(".heat tbody tr")).to_have_count(31)
    cell = page.locator(".heat tbody tr").nth(1).locator(".cell").nth(12)
    expect(cell).to_have_text(re.compile(r"^\d+ ±\d"))
    cell.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("Wed 3 Jan 12:00 PST")
    page.locator(".heat .cell").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tooltip")).to_contain_text("±")


def test_the_typical_week_can_be_read_as_a_table(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=7d&nodes=floor:2")
    expect(page.get_by_role("heading", name="Typical week: Floor 2")).to_be_visible()
    page.get_by_text("The typical week as a table").click()
    expect(page.locator(".part-week tbody tr")).to_have_count(7)
    expect(page.locator(".part-week tbody tr").first.locator("td").nth(4)).to_have_text(re.compile(r"^\d+ ±\d+"))


def test_on_a_phone_the_days_of_the_typical_week_do_not_overlap(seen: Watched) -> None:
    seen.page.set_viewport_size({"width": 390, "height": 844})
    page = drawn(seen, "#/history?span=7d")
    labels = page.locator(".week-plot > .hour")
    expect(labels).to_have_count(7)
    spans = labels.evaluate_all("all => all.map((each) => [each.offsetLeft, each.scrollWidth, each.clientWidth])")
    for (left, needs, has), (after, *_) in pairwise(spans):
        assert needs <= has
        assert left + needs <= after
    assert all(re.fullmatch("[A-Z][a-z]{2}", text.strip()) for text in labels.all_inner_texts())


def test_where_usual_is_not_known_the_typical_week_says_so(seen: Watched, scene: Scene) -> None:
    scene.usual = False
    page = drawn(seen, "#/history?span=7d")
    expect(page.locator(".part-week")).to_contain_text("Not known yet")


def test_the_chart_stands_in_a_table_too(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=2h")
    page.get_by_text("Figures as a table").click()
    rows = page.locator(".part-rows tbody tr")
    expect(rows).to_have_count(24)
    expect(rows.last).to_contain_text("Thu 1 Feb 14:35 PST")
    expect(rows.last.locator("td").nth(3)).to_have_text(re.compile(r"^\d+ to \d+$"))


def test_an_export_is_what_the_chart_shows(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=2h&nodes=floor:2,zone:2003")
    assert asked_of(page, "Parquet")["format"] == "parquet"
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    lines = started.value.path().read_text().splitlines()
    assert lines[0].startswith("start,end,node,value,low,high,half_width")
    assert len(lines) == 1 + 2 * 24


def test_places_of_two_releases_share_a_chart_and_have_a_file_each(seen: Watched, scene: Scene) -> None:
    scene.split = True
    page = drawn(seen, "#/history?span=2h&nodes=building,zone:2003")
    expect(page.locator(".readout")).to_have_text(re.compile(r"PST: Building \d+ ±18 · 2003 −?\d+ ±3\.2$"))
    expect(page.locator(".part-glance tbody tr")).to_have_count(2)
    found = {release: asked_of(page, f"CSV: {release}")["nodes"] for release in ("sums", "rooms")}
    assert found == {"sums": "building", "rooms": "zone:2003"}
    expect(page.locator(".part-controls").get_by_label("Release", exact=True)).to_have_count(0)


def test_all_rooms_share_a_chart_whose_bands_follow_the_pointer(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=8h&nodes=building")
    page.get_by_label("Add a place …").select_option("all")
    expect(page.get_by_role("button", name="Only the building")).to_be_visible()
    expect(page.locator(".part-notes")).to_contain_text("shows only the band of the place under the pointer")
    chart = page.locator(".chart .u-over")
    chart.hover(position={"x": 700, "y": 80})
    expect(page.locator(".readout")).to_have_text(re.compile(r"PST: \d{4} \d+ ±3\.2$"))


def test_dragging_moves_the_chart_only_within_what_there_is(seen: Watched) -> None:
    page = drawn(seen, "#/history?span=8h")
    page.get_by_role("button", name="Zoom in").click()
    box = page.locator(".chart .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 5000, box["y"] + 100, steps=5)
    page.mouse.up()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    # Two thirds of 06:40 to 14:35 are shown, from the first: their middle is at 09:18.
    expect(page.locator(".readout")).to_have_text(re.compile(r"09:1\d to 09:"))


def test_a_new_window_moves_a_history_that_ends_now(seen_apart: Watched, scene: Scene) -> None:
    seen_apart.page.clock.install()
    page = drawn(seen_apart, "#/history?span=2h")
    expect(page.locator(".line")).to_have_text("Connected")
    for _ in range(2):  # at once, and the last one when its turn comes
        scene.now += timedelta(minutes=5)
        scene.released.append(f"dbh/occupancy/facilities/{scene.now:%H%M}")
        page.wait_for_timeout(100)
    page.clock.fast_forward(30_000)
    expect(page.locator(".readout")).to_contain_text("14:40 to 14:45 PST")


def test_a_refusal_is_shown_with_the_services_words(seen: Watched, scene: Scene) -> None:
    page = drawn(seen, "#/history?span=2h")
    refusal = '{"error": {"what": "records", "rule": "at most 100 questions a minute"}}'
    page.route("**/records?*", lambda route: route.fulfill(status=429, content_type="application/json", body=refusal))
    page.get_by_role("radio", name="8 h").check()
    expect(page.locator(".part-series [role=alert]")).to_have_text(
        "Too many requests. Try again in a moment. (records at most 100 questions a minute)"
    )
    seen.said.clear()
