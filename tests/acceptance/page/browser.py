"""A browser, a service in a thread, and an eye on what the page says in its console and asks of others."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, sync_playwright
from starlette.types import ASGIApp

from tests.support import patience

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE = patience.PATIENCE * 1000
"""Milliseconds that a page may take on a machine that has other things to do; no test measures it."""


PROGRAMS = "chromium-headless-shell", "chromium", "chromium-browser"
"""What Debian calls them; the first draws the same pages without a window's machinery, in half the time."""


class NoBrowserError(Exception):
    """Why there is no browser here."""


def find_browser() -> Path:
    """Return where Chromium is.

    Raises:
        NoBrowserError: it is not installed.
    """
    found = os.environ.get("TACET_TEST_BROWSER") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        raise NoBrowserError("chromium is not installed (apt-get install chromium), and TACET_TEST_BROWSER names none")
    return Path(found)


@contextmanager
def a_browser() -> Iterator[Browser]:
    """A browser without a window; skips with the reason where there is none, fails under TACET_REQUIRE_BROWSER=1."""
    try:
        program = find_browser()
    except NoBrowserError as reason:
        if os.environ.get("TACET_REQUIRE_BROWSER") == "1":
            pytest.fail(f"TACET_REQUIRE_BROWSER=1, but no browser: {reason}")
        pytest.skip(f"no browser: {reason}")
    with sync_playwright() as playwright:
        browser = launched(playwright, program)
        yield browser
        browser.close()


def launched(playwright: Playwright, program: Path) -> Browser:
    return playwright.chromium.launch(executable_path=program, args=list(FLAGS))


@contextmanager
def served(application: ASGIApp, port: int = 0) -> Iterator[str]:
    """Serve an application on loopback from a thread of its own; yields its address. Port 0: one that is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        # A port that was served before may still have connections in TIME_WAIT.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        config = uvicorn.Config(
            application, log_level="critical", lifespan="off", ws="none", timeout_graceful_shutdown=1, access_log=False
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@dataclass
class Watched:
    """A page, and what it has said and asked for."""

    page: Page
    origin: str
    said: list[str] = field(default_factory=list)
    """Errors and warnings of the console, errors of scripts."""
    elsewhere: list[str] = field(default_factory=list)
    """Addresses outside of the origin."""

    def listen(self) -> None:
        self.page.on("console", lambda message: self._console(message.type, message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self._request(request.url))

    def _console(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.said.append(text)

    def _request(self, url: str) -> None:
        query = urlsplit(url)
        if query.scheme != "data" and f"{query.scheme}://{query.netloc}" != self.origin:
            self.elsewhere.append(url)

    def go(self, fragment: str = "#/live") -> Page:
        """Open the page at a fragment, and wait until it is drawn."""
        self.page.goto(f"{self.origin}/{fragment}")
        self.page.locator("main:not([aria-busy])").wait_for()
        return self.page


def a_context(browser: Browser, width: int = 1440, theme: str = "light") -> BrowserContext:
    """Return a new context: a browser that has never seen the page."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if theme == "dark" else "light",
        accept_downloads=True,
        reduced_motion="reduce",  # what is looked at has its last colour at once
    )
    context.set_default_timeout(PATIENCE)
    return context


def watched(browser: Browser, origin: str, width: int = 1440, theme: str = "light") -> Watched:
    """Return a new page of its own context."""
    made = Watched(a_context(browser, width, theme).new_page(), origin)
    made.listen()
    return made


def watched_in(context: BrowserContext, origin: str, width: int = 1440, theme: str = "light") -> Watched:
    """Return a new page of a context, which forgets what pages before it have stored."""
    context.clear_cookies()
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "local_storage"})
    session.detach()
    if (width, theme) != (1440, "light"):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light", reduced_motion="reduce")
    made = Watched(page, origin)
    made.listen()
    return made
