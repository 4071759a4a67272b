"""Layout and access: widths, themes, screen readers, keyboard, print, and which files are loaded."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests.acceptance.page.browser import Watched, watched, watched_in
from tests.acceptance.page.recorded import Scene

PAGES = {
    "live": "#/live",
    "live of floors": "#/live?audience=public",
    "live as a table": "#/live?view=table",
    "live as a heat map": "#/live?by=heat",
    "live with alerts": "#/live",
    "history": "#/history?span=7d&nodes=building,floor:2",
    "day": "#/day",
    "bookings": "#/bookings",
    "privacy": "#/privacy",
    "learn": "#/learn",
    "ops": "#/ops",
}
LAST = ".today svg, .heat .cell, .attributes td, .account .tall, .game canvas, .facts"
"""What each page draws last."""
NARROW, WIDE = (320, "dark"), (1440, "light")
MORE = [(320, "light"), (768, "dark"), (768, "light"), (1440, "dark")]
"""Whether a page fits depends on its width, and contrast on its theme: these pairs are for nightly."""
ALIKE = {"live of floors", "live as a table", "live with alerts", "bookings", "learn", "ops"}
"""Pages of which the wide look is left to nightly: others have the same parts and colours."""
LOOKS = [
    *((name, *NARROW) for name in PAGES),
    *(pytest.param(name, *WIDE, marks=[pytest.mark.long] if name in ALIKE else []) for name in PAGES),
    *(pytest.param(name, *look, marks=pytest.mark.long) for name in PAGES for look in MORE),
]


def shown(context: BrowserContext, origin: str, fragment: str, width: int, theme: str) -> Watched:
    """Open a page, whole: with charts and what is loaded after them."""
    seen = watched_in(context, origin, width, theme)
    page = seen.go(fragment)
    expect(page.locator(LAST).first).to_be_attached()
    return seen


def serious(page: Page) -> list[str]:
    """Return what axe-core finds that keeps people out."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:120]}"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]


@pytest.mark.parametrize(("name", "width", "theme"), LOOKS)
def test_every_page_fits_has_every_text_and_keeps_nobody_out(
    context: BrowserContext, origin: str, scene: Scene, name: str, width: int, theme: str
) -> None:
    scene.more_roles = ("account", "operator")
    scene.bookings = ("facilities",)
    scene.heat = "heat" in name
    scene.alerts = {"zone:2003": 1, "zone:2005": 1} if "alerts" in name else None
    seen = shown(context, origin, PAGES[name], width, theme)
    page = seen.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious(page) == []
    # A missing string stands on the page as ``undefined``.
    assert not re.search(r"\bundefined\b|\bNaN\b|\[object|=>", page.locator("body").inner_text())
    scenario = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    red, green, blue = (int(part) for part in re.findall(r"\d+", scenario)[:3])
    assert (red + green + blue < 3 * 128) is (theme == "dark")
    page.close()
    assert not seen.said
    assert not seen.elsewhere


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_signing_in_fits_and_keeps_nobody_out(context: BrowserContext, origin: str, scene: Scene, theme: str) -> None:
    scene.signed = False
    page = watched_in(context, origin, 320, theme).go()
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert serious(page) == []
    page.close()


def test_a_plan_keeps_nobody_out(context: BrowserContext, origin: str, scene: Scene) -> None:
    rooms = {f"2{i:03}": f"M{i * 100},0L{i * 100 + 90},0L{i * 100 + 90},90L{i * 100},90Z" for i in range(1, 9)}
    scene.plan = {"viewbox": [90, -10, 900, 110], "zones": rooms, "outline": []}
    seen = shown(context, origin, "#/live", 768, "light")
    expect(seen.page.locator(".shape").first).to_be_visible()
    assert serious(seen.page) == []
    seen.page.close()


def test_axe_would_see_what_keeps_people_out(seen: Watched) -> None:
    """The search above must be able to fail."""
    page = seen.go()
    page.evaluate("() => { const b = document.createElement('button'); document.querySelector('main').append(b); }")
    assert [each for each in serious(page) if each.startswith("button-name")]


def test_a_theme_that_is_chosen_stays_chosen(seen: Watched) -> None:
    page = seen.go()
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_first_visit_loads_little_and_only_from_here(browser: Browser, origin: str) -> None:
    seen = watched(browser, origin)
    sizes: dict[str, int] = {}
    seen.page.on(
        "requestfinished", lambda each: sizes.update({urlsplit(each.url).path: each.sizes()["responseBodySize"]})
    )
    seen.go()
    expect(seen.page.locator(".today svg")).to_be_attached()
    files = {path: size for path, size in sizes.items() if not path.startswith("/api/")}
    assert "/static/app.js" in files
    assert not [path for path in files if "uplot" in path.lower()], "charts are fetched when one is drawn"
    assert sum(files.values()) < 60_000
    assert not seen.elsewhere
    seen.page.context.close()


def test_on_paper_there_is_nothing_to_press_and_every_figure(seen: Watched, scene: Scene) -> None:
    page = seen.go()
    page.emulate_media(media="print")
    for gone in ("#nav", "#tools button", ".controls fieldset"):
        expect(page.locator(gone).first).to_be_hidden()
    expect(page.get_by_text("Donald Bren Hall")).to_be_visible()
    expect(page.locator(".tile b").first).to_be_visible()
    expect(page.locator(".big-band")).to_be_visible()


def pixels(page: Page) -> int:
    """Return how light a chart is on the whole: the mean of its canvas, over white, in [0, 255]."""
    return int(
        page.evaluate("""() => {
          const canvas = document.querySelector(".chart canvas");
          const held = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
          held.fillStyle = "white";
          held.fillRect(0, 0, canvas.width, canvas.height);
          held.drawImage(canvas, 0, 0);
          const { data } = held.getImageData(0, 0, canvas.width, canvas.height);
          let sum = 0;
          for (let i = 0; i < data.length; i += 4) sum += data[i];
          return (4 * sum) / data.length;
        }""")
    )


def test_a_chart_of_the_dark_theme_is_drawn_anew_for_paper(context: BrowserContext, origin: str) -> None:
    seen = shown(context, origin, "#/history?span=7d&nodes=building", 1440, "dark")
    page = seen.page
    on_screen = pixels(page)
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_timeout(200)
    assert pixels(page) > on_screen, "grid lines for a dark card are dark; on paper they are light"
    page.close()


def test_a_service_that_fails_is_said_to_and_tried_again(context: BrowserContext, origin: str) -> None:
    seen = watched_in(context, origin)
    fault = '{"error": {"what": "service", "rule": "has a fault"}}'
    seen.page.route("**/latest?*", lambda route: route.fulfill(status=500, content_type="application/json", body=fault))
    page = seen.go()
    expect(page.get_by_role("alert")).to_contain_text("This page could not be loaded.")
    page.unroute("**/latest?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".now")).to_be_visible()
    page.close()


def test_a_page_that_waits_for_its_figures_says_so(seen: Watched) -> None:
    held: list[Route] = []
    seen.page.route("**/api/v1/policy?*", lambda route: held.append(route))  # noqa: PLW0108 - no built-in is taken there
    page = seen.page
    page.goto(f"{seen.origin}/#/privacy")
    expect(page.locator(".page.privacy .notice")).to_have_text("Loading …")
    held[0].continue_()
    expect(page.locator(".promise")).to_be_visible()
    expect(page.locator(".page.privacy .notice")).to_have_count(0)


def test_a_wrong_token_says_so_and_a_right_one_lets_in(context: BrowserContext, origin: str, scene: Scene) -> None:
    scene.signed = False
    page = watched_in(context, origin).go()
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("This token or link is not valid")
    page.get_by_label("Token").fill("right")
    page.keyboard.press("Enter")
    expect(page.locator(".now")).to_be_visible()
    page.close()
