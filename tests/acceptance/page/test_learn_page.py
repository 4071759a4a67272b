"""Learn: epsilon by slider on a simulated day, and the detective game, by pointer, keyboard and screen reader."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from connectors.lab.simulation.lessons import case
from tests.acceptance.page.browser import Watched
from tests.acceptance.page.recorded import Scene


def begun(seen: Watched) -> Page:
    page = seen.go("#/learn")
    expect(page.locator(".game canvas")).to_be_attached()
    return page


def error(page: Page) -> float:
    return float(re.findall(r"[\d.]+", page.locator(".lesson-said").inner_text())[0])


def test_the_slider_moves_by_key_and_says_what_an_epsilon_hides(seen: Watched) -> None:
    page = begun(seen)
    slider = page.get_by_role("slider", name="Epsilon for each window")
    before = error(page)
    slider.focus()
    page.keyboard.press("End")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^ε 10 for each window: .* almost without bound$"))
    expect(page.locator(".lesson-said")).to_contain_text("Mean error below 0.1 devices")
    page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"^ε 0\.01 for each window: .* at most 1\.02 times$"))
    expect(page.locator(".lesson-said")).to_contain_text(re.compile(r"Mean error \d{2,3} devices"))
    assert error(page) > before


def test_released_and_true_stand_side_by_side_with_the_band(seen: Watched) -> None:
    page = begun(seen)
    expect(page.locator(".lesson .readout")).to_have_text(re.compile(r"Released −?\d+ ±30 · Truth \(simulated\) \d+"))
    page.get_by_text("The day as a table, by hour").click()
    rows = page.locator(".lesson tbody tr")
    expect(rows).to_have_count(24)
    expect(rows.nth(11).locator("th, td")).to_have_text(
        ["12:00", re.compile(r"^\d+$"), re.compile("±30$"), re.compile(" to ")]
    )


def test_another_place_and_mechanism_are_a_choice_away(seen: Watched, scene: Scene) -> None:
    page = begun(seen)
    page.get_by_label("Place").select_option("6003")
    page.get_by_role("radio", name="filter").check()
    expect(page.locator(".lesson .why")).to_contain_text("about 95 of 100 such bands contain the count")
    expect(page.locator(".lesson .chart")).to_have_attribute("aria-label", re.compile("^Room 6003 on Thu 1 Feb 2018"))


def test_a_right_answer_has_all_points_and_is_explained(seen: Watched) -> None:
    page = begun(seen)
    truth = case("above", 0, "0.3").truth
    page.get_by_role("spinbutton", name="Windows").fill(truth)
    page.keyboard.press("Enter")
    outcome = page.locator(".game-outcome")
    expect(outcome).to_contain_text("100 of 100 points")
    expect(outcome).to_contain_text(f"The true answer is {truth}. Exactly right.")
    expect(outcome).to_contain_text("A program that sees only the released values answers")
    expect(page.locator(".game-total")).to_have_text("100 points for 1 answer.")


def test_only_the_first_answer_to_a_question_counts(seen: Watched) -> None:
    page = begun(seen)
    field = page.get_by_role("spinbutton", name="Windows")
    for answer in (str(int(case("above", 0, "0.3").truth) + 18), case("above", 0, "0.3").truth):
        field.fill(answer)
        page.get_by_role("button", name="Answer").click()
    expect(page.locator(".game-outcome")).to_contain_text("only the first answer counts")
    expect(page.locator(".game-total")).to_have_text("50 points for 1 answer.")


@pytest.mark.parametrize(
    ("name", "task"), [("At night", "region"), ("Broken sensor", "stuck"), ("Weekly event", "event")]
)
def test_every_question_is_asked_and_answered(seen: Watched, name: str, task: str) -> None:
    page = begun(seen)
    page.get_by_role("radio", name=name).check()
    truth = case(task, 0, "0.3").truth
    if task == "region":
        page.get_by_role("combobox", name="Room").select_option(truth)
    else:
        page.get_by_label("Time", exact=True).fill(truth)
    page.get_by_role("button", name="Answer").click()
    expect(page.locator(".game-points")).to_contain_text("100 of 100 points")
    expect(page.locator(".game .readout")).to_have_text(re.compile("±"))


def test_another_round_and_epsilon_ask_anew(seen: Watched) -> None:
    page = begun(seen)
    page.get_by_label("Round", exact=True).select_option("4")
    limit = case("above", 4, "0.3").limit
    expect(page.locator(".game h3")).to_contain_text(
        f"more than {limit} devices in room {case('above', 4, '0.3').place}"
    )
    page.get_by_label("ε for each window", exact=True).select_option("3")
    expect(page.locator(".game .readout")).to_have_text(re.compile(r"±1(\.\d)?$|±2$"))


def test_a_service_that_refuses_an_answer_says_why(seen: Watched) -> None:
    page = begun(seen)
    refusal = '{"error": {"what": "rate", "rule": "must be at most 100 requests per second"}}'
    page.route("**/answers", lambda route: route.fulfill(status=429, content_type="application/json", body=refusal))
    page.get_by_role("spinbutton", name="Windows").fill("3")
    page.keyboard.press("Enter")
    expect(page.locator(".game-outcome [role=alert]")).to_contain_text("must be at most 100 requests per second")
    seen.said.clear()  # the browser writes a refused request into its console
