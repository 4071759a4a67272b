"""Privacy: prices, spending, remaining budgets, the printed promise, coalitions and leakage."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.acceptance.page.browser import Watched
from tests.acceptance.page.recorded import Scene


def test_a_day_paid_by_the_window_says_that_it_hides_little(seen: Watched) -> None:
    page = seen.go("#/privacy?audience=facilities")
    card = page.locator(".price", has_text="occupancy").first
    expect(card.locator(".big-price")).to_have_text("ε 292")
    expect(card).to_contain_text("hides little")


def test_a_day_paid_by_the_day_says_its_delta_and_what_that_comes_to(seen: Watched) -> None:
    page = seen.go("#/privacy?audience=public")
    card = page.locator(".price").first
    expect(card.locator(".big-price")).to_have_text("ε 2 δ 1e−6")
    expect(card).to_contain_text("change at most 7.39 times")
    expect(card).to_contain_text("3e−2 for 1,000 devices over 30 days")


def test_what_was_spent_is_listed_newest_first_with_what_is_left(seen: Watched) -> None:
    page = seen.go("#/privacy?audience=facilities")
    rows = page.locator(".part-spent tbody tr")
    expect(rows.first.locator("th, td")).to_have_text(["2018-02-01", "occupancy", "190", "0", "190"])
    expect(rows).to_have_count(3)
    expect(page.locator(".part-spent li")).to_have_text(["occupancy: 94 more windows today", "floors: no daily budget"])
    expect(page.locator(".part-spent .warning")).to_have_count(0)


def test_denied_windows_are_said(seen: Watched, scene: Scene) -> None:
    scene.denied = 7
    page = seen.go("#/privacy?audience=facilities")
    expect(page.locator(".part-spent .warning")).to_have_text(
        "7 windows were not released because the budget was spent."
    )


def test_before_the_first_release_nothing_is_said_to_be_spent(seen: Watched, scene: Scene) -> None:
    scene.bare = True
    page = seen.go("#/privacy?audience=facilities")
    expect(page.locator(".part-spent")).to_contain_text("Nothing has been released yet.")


def test_every_unit_stands_in_words(seen: Watched) -> None:
    page = seen.go("#/privacy?audience=public")
    row = page.locator(".promise tbody tr").nth(1)
    expect(row.locator("th")).to_have_text("one device, one day")
    expect(row.locator("td")).to_have_text("ε 2, δ 1e−6")


def test_on_paper_stands_the_promise_alone_with_room_to_sign(seen: Watched, scene: Scene) -> None:
    scene.more_roles = ("account",)
    page = seen.go("#/privacy?audience=facilities")
    page.emulate_media(media="print")
    for gone in (".part-spent", ".price", ".account", "#nav", "#tools button"):
        expect(page.locator(gone).first).to_be_hidden()
    promise = page.locator(".promise")
    for text in (
        "privacy guarantee of the releases to “facilities”", "Policy version 0123456789abcdef",
        "The unit is one MAC address at one site.", "Many windows add up.", "Signature",
    ):  # fmt: skip
        expect(promise.get_by_text(text)).to_be_visible()
    expect(promise.get_by_role("button")).to_be_hidden()


def test_the_promise_is_printed_by_a_button(seen: Watched) -> None:
    page = seen.go("#/privacy?audience=facilities")
    page.evaluate("() => { window.print = () => { document.title = 'printed'; }; }")
    page.get_by_role("button", name="Print for the privacy officer").click()
    expect(page).to_have_title("printed")


# --- readers of the account ------------------------------------------------------------------------------------------


def accounts(seen: Watched, scene: Scene) -> Page:
    scene.more_roles = ("account",)
    return seen.go("#/privacy?audience=facilities")


def test_who_has_not_the_role_is_not_shown_the_account(seen: Watched, scene: Scene) -> None:
    page = seen.go("#/privacy?audience=facilities")
    expect(page.locator(".promise")).to_be_visible()
    expect(page.locator(".account")).to_have_count(0)
    assert not [path for path in scene.asked if "/account" in path]


def test_the_account_tells_each_reader_and_all_together(seen: Watched, scene: Scene) -> None:
    page = accounts(seen, scene)
    table = page.locator(".account table").first
    expect(table.locator("thead th")).to_have_text(["What is protected", "facilities", "public", "all together"])
    expect(table.locator("tbody tr").nth(1).locator("td").first).to_have_text("ε 122, δ 1e−6 (added up: ε 244)")


def test_ticked_readers_are_added_up_together(seen: Watched, scene: Scene) -> None:
    page = accounts(seen, scene)
    page.get_by_role("checkbox", name="facilities").check()
    page.get_by_role("checkbox", name="public").check()
    together = page.locator(".account table", has_text="Together: facilities + public")
    expect(together.locator("tbody tr").nth(1)).to_contain_text(f"ε {len('facilities,public') / 2:g}")
    page.get_by_role("checkbox", name="facilities").uncheck()
    page.get_by_role("checkbox", name="public").uncheck()
    expect(page.locator(".account")).to_contain_text("Select at least one reader.")


def test_a_coalition_that_is_refused_says_why(seen: Watched, scene: Scene) -> None:
    page = accounts(seen, scene)
    refusal = '{"error": {"what": "audiences", "rule": "must have at most 40000 records"}}'
    page.route("**/coalition?*", lambda route: route.fulfill(status=400, content_type="application/json", body=refusal))
    page.get_by_role("checkbox", name="public").check()
    expect(page.locator(".account").get_by_role("alert")).to_have_text(
        "The service does not understand this request. (audiences must have at most 40000 records)"
    )
    seen.said.clear()  # the browser writes a refused request into its console


def test_leakage_is_told_attribute_by_attribute(seen: Watched, scene: Scene) -> None:
    page = accounts(seen, scene)
    rows = page.locator(".account .tall tbody tr")
    expect(rows.nth(0).locator("td")).to_have_text(["Arrival", "2.72 times", "13 times", "2.72 times", "no bound"])
    expect(rows.nth(1).locator("td").nth(1)).to_have_text("0 times")
    page.get_by_label("Local day").fill("2018-01-20")
    expect(page.locator(".account")).to_contain_text("No attributes were evaluated for this day.")


def test_a_reader_of_the_account_alone_sees_it_without_any_audience(seen: Watched, scene: Scene) -> None:
    scene.audiences, scene.more_roles = (), ("account",)
    page = seen.go("#/privacy")
    expect(page.locator(".account table").first).to_be_visible()
    expect(page.locator(".promise")).to_have_count(0)
    expect(page.locator("#nav a")).to_have_text(["Privacy", "Learn"])
