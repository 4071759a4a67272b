"""Fixtures for tests of the page: one browser for each file, a context and a page for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.page.browser import PATIENCE, Watched, a_browser, served, watched
from tests.acceptance.page.recorded import Scene, application

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as found:
        yield found


@pytest.fixture
def scene() -> Scene:
    """What the stand-in for the service says."""
    return Scene()


@pytest.fixture
def origin(scene: Scene) -> Iterator[str]:
    with served(application(scene)) as address:
        yield address
        scene.stream_open.clear()


@pytest.fixture
def seen(browser: Browser, origin: str) -> Iterator[Watched]:
    """A page, 1440 px wide, on the stand-in; what it says in its console or asks of others fails the test."""
    found = watched(browser, origin)
    yield found
    found.page.context.close()
    assert not found.said
    assert not found.elsewhere
