"""The page on the real service, with the real store of a simulated day."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.acceptance.page.browser import Watched, watched, watched_in
from tests.acceptance.serve.services import POLICY, Served, complete, make_store, new_token, records, served, wanted
from tests.support.fixed_key import write_fixed_key


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with policy, key and the store of a day."""
    return make_store(tmp_path_factory.mktemp("day"), apart=True)


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Served]:
    """The service, with everything that the day has."""
    with served(wanted(folder)) as running:
        with running.browser() as client:
            for audience in ("facilities", "public"):
                complete(client, folder, audience)
        yield running


@pytest.fixture
def visitor(context: BrowserContext, service: Served) -> Iterator[Watched]:
    """Somebody who opens the newest link; what the page says in its console or asks of others fails the test."""
    found = watched_in(context, service.address)
    yield found
    found.page.close()
    assert not found.said
    assert not found.elsewhere


def entered(visitor: Watched, service: Served) -> Page:
    return visitor.go(f"#link={service.link()}")


def newest(folder: Path, audience: str, site: str) -> Any:
    """Return the last record of counts of a site."""
    every = [orjson.loads(value) for value in records(folder, audience)]
    return next(record for record in reversed(every) if record["site"] == site and "values" in record)


def test_the_link_lets_one_in_and_is_gone_from_the_address(visitor: Watched, service: Served) -> None:
    secret = service.link()
    page = entered(visitor, service)
    expect(page).to_have_url(re.compile(r"#/live$"))
    assert secret not in page.content()
    page.reload()
    expect(page.locator(".now")).to_be_visible()


def test_live_shows_what_was_released_last(visitor: Watched, service: Served, folder: Path) -> None:
    page = entered(visitor, service)
    record = newest(folder, "facilities", "east")
    building = str(record["levels"]["building"]).replace("-", "−")
    expect(page.locator(".big-value")).to_have_text(building)
    for zone, value in record["values"].items():
        expect(page.locator(f"[data-node='zone:{zone}'] b")).to_have_text(str(value).replace("-", "−"))
    expect(page.locator("[data-node='zone:den']")).to_contain_text("not released")
    expect(page.locator(".feed")).to_contain_text("No data")
    expect(page.locator(".now")).to_contain_text("Last known count of the building at Tue 3 Mar 01:00 (GMT+1)")


def test_another_site_and_another_reader_are_a_choice_away(visitor: Watched, service: Served) -> None:
    page = entered(visitor, service)
    page.get_by_label("Building").select_option("west")
    expect(page.locator("[data-node='zone:cellar'] b")).to_have_text(re.compile(r"\d"))
    expect(page.locator(".now")).to_contain_text("The total of the building is not released to this reader.")
    page.get_by_label("Reader").select_option("public")
    expect(page.locator(".notice")).to_have_text("No counts of this building are released to this reader.")
    page.get_by_label("Building").select_option("east")
    expect(page.locator("[data-node='zone:hall'] b")).to_have_text(re.compile(r"\d"))


def test_history_is_drawn_and_its_file_has_every_window(visitor: Watched, service: Served) -> None:
    page = entered(visitor, service)
    visitor.go("#/history?nodes=building,zone:hall&span=today&audience=facilities&site=east")
    expect(page.locator(".readout")).to_contain_text(re.compile(r"Tue 3 Mar .*: Building −?\d+ ±\d"))
    expect(page.locator(".heat .cell").first).to_be_attached()
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    lines = started.value.path().read_text().splitlines()
    assert lines[0].split(",")[:4] == ["start", "end", "node", "value"]
    assert len(lines) == 1 + 2 * 4
    with page.expect_download() as started:
        page.get_by_role("link", name="Parquet").click()
    assert started.value.path().read_bytes()[:4] == b"PAR1"


TWO = """
[[release]]
name = "rooms"
query = "count"
mechanism = "filter"
zones = { kind = "open" }
levels = ["zone"]
epsilon = { facilities = "0.5" }
[[release]]
name = "sums"
query = "count"
mechanism = "filter"
zones = { kind = "open" }
levels = ["floor", "building"]
shares = { floor = "0.5", building = "0.5" }
epsilon = { facilities = "0.5" }
"""
"""Rooms in one release and sums in another, as 'policy init' makes them, each through the filter."""


@pytest.mark.parametrize(
    ("language", "link", "says"),
    [("en", "Report of 2026-03", "March 2026"), ("de", "Bericht für 2026-03", "März 2026")],
)
def test_history_has_the_report_of_the_month_in_the_pages_language(
    visitor: Watched, service: Served, language: str, link: str, says: str
) -> None:
    entered(visitor, service)
    page = visitor.go(f"?lang={language}#/history?audience=public&site=east")
    with page.expect_download() as arriving:
        page.get_by_role("link", name=link).click()
    report = Path(arriving.value.path()).read_text()
    assert arriving.value.suggested_filename == "east-2026-03.html"
    assert f'<html lang="{language}">' in report
    assert f"East wing, {says}" in report


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store under a fixed key: noisy and filtered values of the last window differ."""
    made, head = tmp_path_factory.mktemp("two"), POLICY.partition("[[release]]")[0]
    write_fixed_key(made / "key")
    return make_store(made, policy=head + TWO, apart=True)


def figure(page: Page, selector: str) -> tuple[str, ...]:
    """Return value and band of the newest point of a history."""
    found = re.search(r": Building (−?\d+) (at most )?(±[\d.]+)( at most)?$", page.locator(selector).inner_text())
    assert found is not None
    return found[1], found[3]


@pytest.mark.parametrize("step", ["5min", "15min"])
def test_live_and_history_show_the_same_figure_for_the_same_window(browser: Browser, two: Path, step: str) -> None:
    """The windows of this site are 15 minutes long. The filter's value is shown, not the noisy one beside it."""
    with served(wanted(two, audiences=("facilities",))) as service:
        seen = watched(browser, service.address)
        seen.go(f"#link={service.link()}")
        page = seen.go("#/live?site=east")
        expect(page.locator(".big-value")).to_have_text(re.compile(r"\d"))
        live = page.locator(".big-value").inner_text(), page.locator(".big-band").inner_text()
        page = seen.go(f"#/history?site=east&nodes=building&span=2h&step={step}")
        expect(page.locator(".readout")).to_contain_text(re.compile(r"Building −?\d"))
        assert figure(page, ".readout") == live
        page.context.close()
        assert not seen.said
    record = next(
        r
        for r in map(orjson.loads, reversed(records(two, "facilities")))
        if r["release"] == "sums" and r["site"] == "east"
    )
    assert live[0] == str(record["levels"]["building"])
    assert record["levels_noisy"]["building"] != record["levels"]["building"], "noise and filter must differ here"


def test_signing_out_ends_the_session(visitor: Watched, service: Served) -> None:
    page = entered(visitor, service)
    with page.expect_event("load"):  # the page asks for itself anew, as nobody
        page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()
    page.wait_for_load_state("networkidle")
    visitor.said.clear()  # the browser writes each refused request into its console


def test_a_used_link_is_refused_and_a_token_lets_in(browser: Browser, folder: Path, tmp_path: Path) -> None:
    secret = new_token(tmp_path / "tokens", "desk", "audience:public")
    with served(wanted(folder, tokens=tmp_path / "tokens")) as service:
        page = watched(browser, service.address).go("#link=wrong")
        expect(page.get_by_role("alert")).to_contain_text("This token or link is not valid")
        page.get_by_label("Token").fill("nothing like it")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("This token or link is not valid")
        page.get_by_label("Token").fill(secret)
        page.keyboard.press("Enter")
        expect(page.locator(".now")).to_be_visible()
        assert secret not in page.url
        page.context.close()


def test_a_day_that_is_played_moves_on_the_page(browser: Browser, folder: Path) -> None:
    with served(wanted(folder, play=2000.0)) as service:
        seen = watched(browser, service.address)
        page = seen.go(f"#link={service.link()}")
        bar = page.get_by_role("group", name="Recorded day")
        expect(bar).to_be_visible()
        first = page.locator(".feed").inner_text()
        expect(page.locator(".feed")).not_to_have_text(first)
        bar.get_by_role("button", name="Pause").click()
        expect(bar.get_by_role("button", name="Play")).to_be_visible()
        page.context.close()
        assert not seen.said


def test_a_played_day_is_shown_to_its_end_at_once_and_then_from_its_start(browser: Browser, folder: Path) -> None:
    """What a day tells of rooms comes after its midnight: nobody shall wait for that."""
    with served(wanted(folder, play=0.1)) as service:
        seen = watched(browser, service.address)
        seen.go(f"#link={service.link()}")
        page = seen.go("#/day?audience=facilities&site=east")
        expect(page.locator(".notice")).to_contain_text("No day has been released yet")
        bar = page.get_by_role("group", name="Recorded day")
        bar.get_by_role("button", name="Skip to end").click()
        expect(page.locator(".attributes td")).not_to_have_count(0)
        expect(bar.get_by_role("button", name="Pause")).to_be_hidden()
        bar.get_by_role("button", name="Restart").click()
        expect(bar.get_by_role("button", name="Pause")).to_be_visible()
        expect(bar).to_contain_text("Mon 2 Mar 00:00")
        page.context.close()
        assert not seen.said


def test_a_service_that_is_stopped_and_begun_again_is_followed_again(browser: Browser, folder: Path) -> None:
    """What could not be reached stands in the browser's console, which is not watched here."""
    query = wanted(folder, opened="public")
    with served(query) as service:
        page = watched(browser, service.address).go("#/live")
        expect(page.locator(".line")).to_have_text("Connected")
        port = service.port
    expect(page.locator(".line")).to_have_text("Connection lost, reconnecting")
    with served(replace(query, listen=("127.0.0.1", port))):
        expect(page.locator(".line")).to_have_text("Connected", timeout=60_000)
        expect(page.locator("[data-node='zone:hall'] b")).to_have_text(re.compile(r"\d"))
        page.context.close()


PLAN = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 100"><script>alert(1)</script>
<path id="loft" d="M0 0h250v100h-250z" onclick="alert(2)"/><rect id="den" x="260" width="130" height="100"/></svg>"""


def test_a_floor_is_drawn_by_the_plan_that_was_given(browser: Browser, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "east").mkdir()
    (tmp_path / "east" / "1.svg").write_text(PLAN)
    with served(wanted(folder, plans=tmp_path)) as service:
        seen = watched(browser, service.address)
        page = seen.go(f"#link={service.link()}")
        value = str(newest(folder, "facilities", "east")["values"]["loft"]).replace("-", "−")
        expect(page.locator(".room[data-node='zone:loft'] .line-1")).to_have_text(value)
        expect(page.locator(".room[data-node='zone:den'] .shape")).to_have_class(re.compile("hatched"))
        expect(page.locator("[data-node='zone:hall']")).to_have_class(re.compile("tile"))
        page.context.close()
        assert not seen.said


def test_the_interface_is_described_on_a_page_of_this_origin(visitor: Watched, service: Served) -> None:
    page = entered(visitor, service)
    page.get_by_role("link", name="HTTP interface").click()
    expect(page.get_by_role("heading", name="HTTP interface")).to_be_visible()
    expect(page.get_by_text("/api/v1/latest", exact=True)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_store_of_one_day_says_that_usual_is_not_known_yet(visitor: Watched, service: Served) -> None:
    expect(entered(visitor, service).locator(".now")).to_contain_text("usual value not known yet")


# --- day, privacy, ops, learn ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything(folder: Path) -> Iterator[Served]:
    """The service with all roles."""
    with served(wanted(folder, account=True, operator=True)) as running:
        with running.browser() as client:
            complete(client, folder, "facilities")
        yield running


@pytest.fixture
def master(context: BrowserContext, everything: Served) -> Iterator[Watched]:
    """Somebody who has every role; what the page says in its console or asks of others fails the test."""
    found = watched_in(context, everything.address)
    found.go(f"#link={everything.link()}")
    yield found
    found.page.close()
    assert not found.said
    assert not found.elsewhere


def test_a_day_shows_what_the_record_says(master: Watched, folder: Path) -> None:
    page = master.go("#/day?audience=facilities&site=east")
    every = [orjson.loads(value) for value in records(folder, "facilities")]
    record = next(record for record in every if record.get("attribute") == "arrival")
    shown = record["value"] if record["released"] else "withheld"
    expect(page.locator(".attributes tbody tr").first.locator("td")).to_have_text(shown)


def test_privacy_adds_up_what_was_spent_and_prints_what_is_promised(master: Watched, folder: Path) -> None:
    page = master.go("#/privacy?audience=public&site=east")
    every = [orjson.loads(value) for value in records(folder, "public")]
    last = max(record["window_start"][:10] for record in every if record["released"])
    spent = sum(float(r["spend"]) for r in every if r["released"] and r["window_start"].startswith(last))
    row = page.locator(".part-spent tbody tr").first
    expect(row.locator("th")).to_have_text(last)
    expect(row.locator("td").last).to_have_text(f"{spent:g}")
    expect(page.locator(".promise ol li").first).to_contain_text("The unit is one MAC address at one site.")


def test_the_account_is_told_for_each_and_for_those_who_are_ticked(master: Watched) -> None:
    page = master.go("#/privacy?audience=public&site=east")
    account = page.locator(".account table").first
    expect(account.locator("thead th")).to_have_text(["What is protected", "facilities", "public", "all together"])
    for reader in ("facilities", "public"):
        page.get_by_role("checkbox", name=reader).check()
    together = page.locator(".account table", has_text="Together: facilities + public").locator("tbody tr")
    everybody = account.locator("tbody tr").nth(7).locator("td").last.inner_text()
    expect(together.nth(7).locator("td")).to_have_text(everybody)


def test_ops_shows_each_site_of_the_engine(master: Watched) -> None:
    page = master.go("#/ops")
    expect(page.locator(".ops-state")).to_have_text([re.compile("^No new windows")] * 2)
    expect(page.locator(".ops-site").first).to_contain_text("fewer than eight access points")


def test_the_game_is_played_on_the_service(master: Watched) -> None:
    page = master.go("#/learn")
    page.get_by_role("radio", name="Broken sensor").check()
    page.get_by_label("Time", exact=True).fill("12:00")
    page.get_by_role("button", name="Answer").click()
    expect(page.locator(".game-total")).to_have_text(re.compile(r"points for 1 answer\.$"))
