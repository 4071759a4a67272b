"""Fixtures for tests of the page: one browser, stand-in and context for each file, a page for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from tests.acceptance.page.browser import PATIENCE, Watched, a_browser, a_context, served, watched, watched_in
from tests.acceptance.page.recorded import Scene, application

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as found:
        yield found


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A context that has compiled the page's code: a new one would do so again for each test."""
    made = a_context(browser)
    yield made
    made.close()


@pytest.fixture(scope="module")
def _stage() -> Iterator[tuple[Scene, str]]:
    scene = Scene()
    with served(application(scene)) as address:
        yield scene, address


@pytest.fixture
def scene(_stage: tuple[Scene, str]) -> Iterator[Scene]:
    """What the stand-in for the service says."""
    scene, _ = _stage
    yield scene
    scene.stream_open.clear()
    vars(scene).update(vars(Scene()))


@pytest.fixture
def origin(_stage: tuple[Scene, str], scene: Scene) -> str:
    return _stage[1]


@pytest.fixture
def seen(context: BrowserContext, origin: str) -> Iterator[Watched]:
    """A page, 1440 px wide, on the stand-in; what it says in its console or asks of others fails the test."""
    found = watched_in(context, origin)
    yield found
    found.page.close()
    assert not found.said
    assert not found.elsewhere


@pytest.fixture
def seen_apart(browser: Browser, origin: str) -> Iterator[Watched]:
    """The same in a context of its own, for tests that set its clock: nothing takes that back."""
    found = watched(browser, origin)
    yield found
    found.page.context.close()
    assert not found.said
    assert not found.elsewhere
