"""Where is room: the page on a screen, on a phone and in a frame; who may see it and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from connectors.serve.app import application
from tests.acceptance.page.browser import served, watched
from tests.acceptance.page.test_page_looks import serious
from tests.support.ports import free_port
from tests.unit.serve.test_room import NOON, POLICY_TEXT, TICK, Ground, record

EVIL = "<script>alert(1)</script> !figure =cmd \u202egnp"


def parent(address: str) -> Starlette:
    """Return a page of another origin that shows an address in a frame."""

    async def page(_: Request) -> HTMLResponse:
        return HTMLResponse(f'<!doctype html><title>x</title><iframe src="{address}" width=600 height=400></iframe>')

    return Starlette(routes=[Route("/", page)])


class Screen:
    """A service on loopback, and two other origins, one of which may embed the page."""

    def __init__(self, folder: Path, port: int, embedders: tuple[str, ...] = ()) -> None:
        policy = POLICY_TEXT.replace('"East wing"', f'"{EVIL}"')
        self.ground = Ground(folder, port, policy, embedders=embedders)
        self.ground.history.add([record(NOON - TICK, 20), record(NOON, 95)], {})
        self.address = f"http://127.0.0.1:{port}"

    def link(self, token: str | None = None, query: str = "") -> str:
        return f"{self.address}/room?audience=public{query}#token={token or self.ground.screen}"


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    port = free_port()
    made = Screen(tmp_path, port)
    with served(application(made.ground.service), port):
        yield made


def states(page: Page) -> list[list[str]]:
    page.locator("#room:not([aria-busy])").wait_for()
    return [each.split("\n") for each in page.locator("li").all_inner_texts()]


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1920, "light")])
def test_free_and_full_have_a_word_and_a_sign_and_no_figure(
    browser: Browser, screen: Screen, width: int, theme: str
) -> None:
    seen = watched(browser, screen.address, width, theme)
    seen.page.goto(screen.link())
    assert states(seen.page) == [["Floor 1", "○ Free"], ["Floor 0", "● Full"], ["Great hall", "● Full"]]
    assert seen.page.locator("li.full").count() == 2
    assert "95" not in seen.page.locator("body").inner_text()
    expect(seen.page.locator("h1")).to_contain_text(EVIL.partition("\u202e")[0])
    assert seen.page.locator("main script").count() == 0
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious(seen.page) == []
    assert seen.page.context.cookies() == []
    seen.page.context.close()
    assert not seen.said
    assert not seen.elsewhere


def test_stale_figures_have_no_colour_and_the_page_speaks_german(browser: Browser, screen: Screen) -> None:
    screen.ground.clock.now = NOON + 4 * TICK
    seen = watched(browser, screen.address, 390)
    seen.page.goto(screen.link(query="&lang=de"))
    assert states(seen.page) == [["Etage 1", "–"], ["Etage 0", "–"], ["Great hall", "–"]]
    expect(seen.page.get_by_role("status")).to_have_text("Keine aktuellen Zahlen.")
    assert seen.page.locator(".free, .filling, .full").count() == 0
    seen.page.context.close()


def test_a_link_that_was_changed_or_revoked_shows_nothing(browser: Browser, screen: Screen) -> None:
    seen = watched(browser, screen.address)
    forged = screen.ground.screen[:-1] + ("A" if screen.ground.screen[-1] != "A" else "B")
    for address in (screen.link(forged), f"{screen.address}/room?audience=staff#token={screen.ground.screen}"):
        seen.page.goto("about:blank")
        seen.page.goto(address)
        expect(seen.page.get_by_role("alert")).to_have_text("This link or token is not valid, or not any more.")
    seen.page.goto("about:blank")
    seen.page.goto(screen.link())
    assert states(seen.page)
    screen.ground.tokens.revoke("lobby")
    seen.page.reload()
    expect(seen.page.get_by_role("alert")).to_have_text("This link or token is not valid, or not any more.")
    assert seen.page.locator("li").count() == 0
    seen.page.context.close()


def test_the_screens_token_opens_no_other_page(browser: Browser, screen: Screen) -> None:
    page = watched(browser, screen.address).page
    page.goto(f"{screen.address}/#token={screen.ground.screen}")
    page.get_by_label("Token").fill(screen.ground.screen)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("This token or link is not valid")
    page.context.close()


def test_only_a_listed_origin_shows_this_page_in_a_frame_and_no_other_page(browser: Browser, tmp_path: Path) -> None:
    port, listed, other = free_port(), free_port(), free_port()
    made = Screen(tmp_path, port, (f"http://127.0.0.1:{listed}",))

    def framed(at: int, address: str) -> str:
        with served(parent(address), at) as outside:
            page = watched(browser, outside).page
            page.goto(outside)
            page.wait_for_load_state("networkidle")
            frame = page.frames[1]
            text = frame.locator("body").inner_text() if frame.url.startswith(made.address) else ""
            page.context.close()
            return text

    with served(application(made.ground.service), port):
        assert "Great hall" in framed(listed, made.link())
        assert "Great hall" not in framed(other, made.link())
        assert "Token" not in framed(listed, f"{made.address}/")
