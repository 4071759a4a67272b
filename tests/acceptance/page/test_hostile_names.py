"""Names that are markup, code or JavaScript property names appear as text on every page."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect

from stream.records import HOUR
from tests.acceptance.page.browser import Watched, watched
from tests.acceptance.serve.services import FIRST, POLICY, Served, complete, make_store, served, wanted

EVIL = "<img src=x onerror=alert(1)>"
SCRIPT = "\"'><svg onload=alert(2)></svg>&lt;b&gt; javascript:alert(3) __proto__ " + "long" * 30
OWN = "constructor"
"""A name that every object of JavaScript knows, and every rule for names allows."""
NAMES = {
    'name = "East wing"': f'name = "{EVIL}"',
    'id = "hall"\nfloor = "0"\nkind = "open"': f'id = "{OWN}"\nfloor = "{OWN}"\nkind = "{OWN}"',
    'id = "loft"': f"metadata = {{ name = '''{SCRIPT}''' }}\nid = \"toString\"",
    'name = "occupancy"\nquery = "count"\nmechanism = "laplace"\nzones = { kind = "open" }':
        f'name = "{OWN}"\nquery = "count"\nmechanism = "laplace"\nzones = {{ kind = ["open", "{OWN}"] }}',
    "facilities": OWN,
}  # fmt: skip
PLAN = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 100">
<a href="javascript:alert(4)"><path d="M0 0h9v9z"/></a>
<path id="valueOf" d="M0 0h250v100h-250z" onload="alert(5)"/><foreignObject><body xmlns="http://www.w3.org/1999/xhtml">
<img src="x" onerror="alert(6)"/></body></foreignObject><text>{EVIL.replace("<", "&lt;")}</text></svg>"""
PAGES = (
    "live", "live?view=table", "history?nodes=building,zone:constructor,zone:toString", "day", "privacy", "learn",
    "ops",
)  # fmt: skip


def hostile() -> str:
    policy = POLICY
    for name, evil in NAMES.items():
        assert name in policy
        policy = policy.replace(name, evil)
    return policy


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose policy, plans and records have such names."""
    folder = tmp_path_factory.mktemp("hostile")
    make_store(folder, last=FIRST + 2 * HOUR, policy=hostile(), apart=True)
    (folder / "plans" / "east").mkdir(parents=True)
    (folder / "plans" / "east" / f"{OWN}.svg").write_text(PLAN)
    asked = wanted(folder, audiences=(OWN, "public"), account=True, operator=True, plans=folder / "plans")
    with served(asked) as running, running.browser() as client:
        complete(client, folder, OWN)
        yield running


@pytest.fixture
def visitor(browser: Browser, service: Served, request: pytest.FixtureRequest) -> Iterator[Watched]:
    found = watched(browser, service.address, width=getattr(request, "param", 1440))
    opened: list[str] = []

    def shut(dialog: Dialog) -> None:
        opened.append(dialog.message)
        dialog.dismiss()

    found.page.on("dialog", shut)
    yield found
    found.page.context.close()
    assert not opened
    assert not found.said, "not even the browser's word that it has refused something"
    assert not found.elsewhere


def address(name: str) -> str:
    page, _, query = name.partition("?")
    return f"#/{page}?site=east&audience={OWN}&{query}"


def made_elsewhere(page: Page) -> list[str]:
    """Return what the page holds that its own modules never make."""
    found: list[str] = page.evaluate("""() => [...document.querySelectorAll("*")]
      .filter((each) => ["IFRAME", "OBJECT", "EMBED", "FOREIGNOBJECT"].includes(each.tagName.toUpperCase())
        || (each.tagName === "IMG" && each.getAttribute("src") !== "static/icon.svg")
        || [...each.attributes].some((a) => a.name.startsWith("on") || /^\\s*javascript:/i.test(a.value)))
      .map((each) => each.outerHTML)""")
    return found


@pytest.mark.parametrize("visitor", [320, 1440], indirect=True)
def test_a_name_is_text_on_every_page(visitor: Watched, service: Served) -> None:
    visitor.go(f"#link={service.link()}")
    for name in PAGES:
        page = visitor.go(address(name))
        expect(page.locator(".failure")).to_have_count(0)
        assert made_elsewhere(page) == []
        assert not re.search(r"native code|\bundefined\b|\[object", page.locator("body").inner_text()), name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    page = visitor.go(address("live"))
    expect(page.get_by_text(EVIL).first).to_be_attached()
    expect(page.locator("[data-node='zone:toString'] .tile-name, [data-node='zone:toString']").first).to_contain_text(
        "<svg onload"
    )


def test_a_room_without_a_shape_on_its_plan_has_a_tile_whatever_it_is_called(visitor: Watched, service: Served) -> None:
    visitor.go(f"#link={service.link()}")
    page = visitor.go(address("live"))
    expect(page.locator(f"[data-node='zone:{OWN}']")).to_have_class(re.compile("tile"))
