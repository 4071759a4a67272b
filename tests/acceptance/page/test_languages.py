"""The page in a second language: the same texts, the same figures, and the language's way to write them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import connectors.serve
from tests.acceptance.page.browser import Watched
from tests.acceptance.page.recorded import Scene

STATIC = Path(connectors.serve.__file__).parent / "static"
LANGUAGES = sorted(path.name.split(".")[1] for path in STATIC.glob("strings.*.js"))
SHAPE = """async (language) => {
  const shape = (value) => typeof value === "function" ? `function of ${value.length}`
    : Array.isArray(value) ? value.map(shape)
    : typeof value !== "object" ? typeof value
    : Object.fromEntries(Object.keys(value).sort().map((name) => [name, shape(value[name])]));
  const { strings } = await import(`${location.origin}/static/strings.${language}.js`);
  return shape(strings);
}"""


@pytest.mark.parametrize("language", [each for each in LANGUAGES if each != "en"])
def test_a_translation_has_every_text_of_the_english_page(seen: Watched, language: str) -> None:
    page = seen.go()
    assert page.evaluate(SHAPE, language) == page.evaluate(SHAPE, "en")


def test_the_page_in_german_has_the_same_figures(seen: Watched) -> None:
    def cells(address: str) -> list[str]:
        page = seen.go(address)
        expect(page.locator("main table td").filter(has_text="±").first).to_be_attached()
        expect(page.locator(".today svg").first).to_be_attached()
        return page.locator("main table td").all_inner_texts()

    def figures(texts: list[str]) -> list[list[str]]:
        return [re.findall(r"\d+(?:\.\d+)?", text) for text in texts]

    english = cells("#/live?view=table")
    german = cells("?lang=de#/live?view=table")
    assert seen.page.locator("html").get_attribute("lang") == "de"
    expect(seen.page.get_by_role("navigation")).to_contain_text("Datenschutz")
    assert any(re.search(r"\d,\d", text) for text in german)
    assert figures([text.replace(",", ".") for text in german]) == figures(english)


@pytest.mark.parametrize("page", ["live", "history", "day", "bookings", "privacy", "learn", "ops"])
def test_no_number_of_the_german_page_has_a_decimal_point(seen: Watched, scene: Scene, page: str) -> None:
    scene.bookings = ("facilities",)
    shown = seen.go(f"?lang=de#/{page}")
    expect(shown.locator("main h1").first).to_be_visible()
    shown.wait_for_load_state("networkidle") if page != "live" else None
    text = re.sub(r"\d{1,3}(\.\d{3})+(?![\d.])", "", shown.locator("main").inner_text())
    assert not re.findall(r".{0,30}(?<![\d.])\d+\.\d+(?![\d.]).{0,20}", text)


def test_a_refusal_is_told_in_the_pages_language(seen: Watched) -> None:
    fault = '{"error": {"what": "service", "rule": "has too many requests in progress"}}'
    seen.page.route("**/latest?*", lambda route: route.fulfill(status=503, content_type="application/json", body=fault))
    told = seen.go("?lang=de#/live").get_by_role("alert")
    expect(told).to_contain_text("Der Dienst kann gerade nicht antworten. Versuchen Sie es noch einmal. (service)")
    expect(told).not_to_contain_text("too many")
    seen.said.clear()  # the browser writes a failed request into its console


def test_the_guarantee_is_asked_for_in_the_pages_language(seen: Watched) -> None:
    with seen.page.expect_request("**/api/v1/policy?language=de"):
        promise = seen.go("?lang=de#/privacy?audience=facilities").locator(".promise")
    expect(promise.locator("ol")).to_have_attribute("lang", "en")  # as the answer says
