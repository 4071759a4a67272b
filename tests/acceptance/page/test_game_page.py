"""The game: its rules, its clock, the leaderboard of this browser, and hostile names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from connectors.lab.simulation.lessons import TASKS, Task, case
from tests.acceptance.page.browser import Watched, served, watched
from tests.acceptance.page.recorded import Scene, application
from tests.acceptance.page.test_page_looks import serious

EPSILON = "0.3"
NOON = "2018-02-01T12:00:00Z"
EVIL = "<img src=x onerror=alert(1)>"
BOARD = "tacet-detective"


def rules(page: Page, code: str) -> Any:
    """Evaluate code with the rules of the game as ``r``."""
    return page.evaluate(f"async () => {{ const r = await import('/static/game_rules.js'); return {code}; }}")


@pytest.fixture
def seen(seen_apart: Watched) -> Watched:
    return seen_apart


@pytest.fixture(scope="module")
def book(browser: Browser) -> Iterator[Page]:
    """A page on which to evaluate rules, for all tests of them."""
    scene = Scene()
    with served(application(scene)) as origin:
        found = watched(browser, origin)
        yield found.go("#/learn")
        found.page.context.close()
        scene.stream_open.clear()


@pytest.fixture
def learn(seen: Watched) -> Page:
    """The page, whose clock stands still until a test moves it."""
    return standing(seen)


def standing(seen: Watched) -> Page:
    seen.page.clock.install(time=NOON)
    page = seen.go("#/learn")
    expect(page.locator(".game canvas")).to_be_attached()
    page.clock.pause_at("2018-02-02T12:00:00Z")
    return page


def begun(page: Page, name: str = "Ada") -> None:
    page.get_by_role("textbox", name="Name").fill(name)
    page.get_by_role("button", name="Start").click()
    expect(game(page).get_by_text("Question 1", exact=True)).to_be_visible()
    expect(game(page).get_by_role("button", name="Answer")).to_be_visible()


def game(page: Page) -> Any:
    return page.locator(".against")


def give(page: Page, task: Task, answer: str) -> None:
    field = game(page).locator(".game-answer input, .game-answer select")
    expect(field).to_be_focused()
    field.select_option(answer) if task == "region" else field.fill(answer)
    game(page).get_by_role("button", name="Answer").click()


def points(page: Page) -> int:
    return int(game(page).locator(".game-head b").nth(1).inner_text())


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accuracy", "took", "earlier", "total"),
    [
        (100, 0, 0, 150), (100, 30_000, 0, 125), (100, 60_000, 0, 100), (100, 900_000, 0, 100), (50, 0, 0, 75),
        (50, 15_000, 2, 88), (100, 0, 5, 200), (100, 0, 40, 200), (0, 0, 5, 0), (1, 59_999, 0, 1), (100, -5, 0, 150),
    ],
)  # fmt: skip
def test_points_are_for_accuracy_speed_and_answers_before(
    book: Page, accuracy: int, took: int, earlier: int, total: int
) -> None:
    assert rules(book, f"r.worth({accuracy}, {took}, {earlier}).total") == total


def test_the_clock_runs_only_while_a_question_is_open(book: Page) -> None:
    reported = rules(
        book,
        """(() => { let now = 5000; const w = r.stopwatch(() => now, 10000), left = [w.left()];
          w.start(); now += 3000; left.push(w.left()); left.push(w.stop()); now += 60000; left.push(w.left());
          w.start(); w.start(); now += 4000; left.push(w.left()); now -= 9000; left.push(w.left());
          now += 20000; left.push(w.left(), w.stop(), w.left()); return left; })()""",
    )
    assert reported == [10000, 7000, 3000, 7000, 3000, 7000, 0, 15000, 0]


@pytest.mark.parametrize(
    ("left", "shown"),
    [(300_000, "5:00"), (299_999, "5:00"), (60_000, "1:00"), (59_000, "0:59"), (1, "0:01"), (0, "0:00")],
)
def test_the_clock_shows_nothing_left_only_when_nothing_is(book: Page, left: int, shown: str) -> None:
    assert rules(book, f"r.minutes({left})") == shown


def test_questions_come_in_turn_and_each_game_begins_elsewhere(book: Page) -> None:
    reported = rules(
        book, "[0, 3, 4, 47].map((n) => r.questionAt(n, 0, 12, 4)).map(({ round, task }) => [round, task])"
    )
    assert reported == [[0, 0], [0, 3], [1, 0], [11, 3]]
    assert rules(book, "[0, 1, 3, 4].map((games) => r.questionAt(0, games, 12, 4).round)") == [0, 3, 9, 0]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("  Ada \t Lovelace\n", "Ada Lovelace"), ("a\u202egnp.exe", "agnp.exe"), ("\u200b\u0000", ""),
        ("x" * 99, "x" * 24), ("🕵️" * 30, None), (EVIL, EVIL[:24]), ("", ""),
    ],
)  # fmt: skip
def test_names_are_short_and_hold_nothing_unseen(book: Page, name: str, kept: str | None) -> None:
    reported = rules(book, f"r.cleaned({json.dumps(name)})")
    assert len(reported) <= 24
    assert reported.isprintable() or "🕵" in reported
    assert kept is None or reported == kept


# --- a game ----------------------------------------------------------------------------------------------------------


def test_a_right_answer_at_once_has_all_points_and_the_next_some_more(learn: Page) -> None:
    begun(learn)
    give(learn, "above", case("above", 0, EPSILON).truth)
    expect(game(learn).locator(".game-points")).to_have_text(
        "150 points: 100 for the answer, 50 for speed, 0 for earlier answers"
    )
    expect(game(learn).get_by_role("button", name="Next question")).to_be_focused()
    learn.keyboard.press("Enter")
    give(learn, "region", case("region", 0, EPSILON).truth)
    expect(game(learn).locator(".game-points")).to_contain_text("160 points")
    assert points(learn) == 310


def test_the_truth_stands_beside_the_noise_once_one_has_answered(learn: Page) -> None:
    begun(learn)
    expect(game(learn).locator(".readout")).not_to_contain_text("truth")
    found = case("above", 0, EPSILON)
    give(learn, "above", "0")
    last = int(found.series[0].truth[-1])
    expect(game(learn).locator(".readout")).to_contain_text(f"Room {found.place}, truth {last}")


def test_practice_shows_the_truth_too(learn: Page) -> None:
    learn.get_by_role("spinbutton", name="Windows").fill("3")
    learn.keyboard.press("Enter")
    expect(learn.locator(".game .readout")).to_contain_text(", truth ")


def test_the_clock_stands_while_the_truth_is_read(learn: Page) -> None:
    begun(learn)
    clock = game(learn).get_by_role("timer")
    expect(clock).to_have_text("5:00")
    learn.clock.run_for(30_000)
    expect(clock).to_have_text("4:30")
    give(learn, "above", case("above", 0, EPSILON).truth)
    expect(game(learn).locator(".game-points")).to_contain_text("125 points")
    learn.clock.run_for(600_000)
    expect(clock).to_have_text("4:30")
    game(learn).get_by_role("button", name="Next question").click()
    expect(game(learn).get_by_role("combobox", name="Room")).to_be_focused()
    learn.clock.run_for(60_000)
    expect(clock).to_have_text("3:30")


def test_when_time_is_up_the_game_is_over_and_on_the_board(learn: Page) -> None:
    begun(learn)
    give(learn, "above", case("above", 0, EPSILON).truth)
    game(learn).get_by_role("button", name="Next question").click()
    expect(game(learn).get_by_role("combobox", name="Room")).to_be_focused()
    learn.clock.run_for(290_500)
    expect(game(learn).get_by_text("10 seconds left")).to_be_attached()
    learn.clock.run_for(10_000)
    expect(game(learn).locator(".game-points")).to_have_text("The game is over: 150 points for 1 answer.")
    expect(game(learn).locator(".game-points")).to_be_focused()
    cells = game(learn).get_by_role("row", name="Ada").locator("th, td")
    expect(cells).to_have_text(["1", "Ada", "150", "1"])


def test_an_answer_that_is_refused_leaves_the_question_open(seen: Watched) -> None:
    page = standing(seen)
    begun(page)
    refusal = '{"error": {"what": "rate", "rule": "must be at most 100 requests per second"}}'
    page.route("**/answers", lambda route: route.fulfill(status=429, content_type="application/json", body=refusal))
    give(page, "above", "3")
    expect(game(page).get_by_role("alert")).to_contain_text("must be at most 100 requests per second")
    page.unroute("**/answers")
    page.clock.run_for(30_000)
    expect(game(page).get_by_role("timer")).to_have_text("4:30")
    seen.said.clear()  # the browser writes a refused request into its console


def test_a_round_that_does_not_come_is_asked_for_again_and_costs_no_time(seen: Watched) -> None:
    page = standing(seen)
    page.route("**/tasks?*", lambda route: route.abort())
    page.get_by_role("button", name="Start").click()
    expect(game(page).get_by_role("alert")).to_be_visible()
    page.clock.run_for(100_000)
    page.unroute("**/tasks?*")
    page.get_by_role("button", name="Try again").click()
    expect(game(page).get_by_role("spinbutton", name="Windows")).to_be_focused()
    expect(game(page).get_by_role("timer")).to_have_text("5:00")
    seen.said.clear()


def test_a_game_is_played_by_keyboard_alone(learn: Page) -> None:
    learn.get_by_role("textbox", name="Name").focus()
    learn.keyboard.type("Grace")
    learn.keyboard.press("Enter")
    for task in TASKS:
        expect(game(learn).locator(".game-answer input, .game-answer select")).to_be_focused()
        truth = case(task, 0, EPSILON).truth
        hour = re.fullmatch(r"(\d\d):(\d\d)", truth)
        if hour is None:
            learn.keyboard.type(f"Room {truth}" if task == "region" else truth)
        else:
            learn.keyboard.type(f"{(int(hour[1]) + 11) % 12 + 1:02}{hour[2]}{'PM' if int(hour[1]) > 11 else 'AM'}")
        if task == "region":
            learn.keyboard.press("Tab")
        learn.keyboard.press("Enter")
        expect(game(learn).locator(".game-points")).to_contain_text("100 for the answer")
        learn.keyboard.press("Enter")
    expect(game(learn).get_by_text("Question 5", exact=True)).to_be_visible()
    assert points(learn) == 150 + 160 + 170 + 180


# --- the leaderboard -------------------------------------------------------------------------------------------------


def ended(page: Page, name: str) -> None:
    begun(page, name)
    page.get_by_role("button", name="End the game").click()
    expect(game(page).locator(".game-points")).to_contain_text("The game is over")


def test_a_name_never_leaves_the_browser(seen: Watched) -> None:
    reported: list[str] = []

    def listen(request: Request) -> None:
        reported.append(f"{request.url} {request.post_data or ''} {request.headers}")

    seen.page.on("request", listen)
    page = standing(seen)
    begun(page, "Rosalind")
    give(page, "above", "7")
    expect(game(page).get_by_role("button", name="Next question")).to_be_visible()
    page.get_by_role("button", name="End the game").click()
    expect(game(page).get_by_role("row", name="Rosalind")).to_be_visible()
    assert [each for each in reported if "learn/answers" in each]
    assert not [each for each in reported if "osalind" in each]


def test_the_board_outlives_a_reload_and_is_forgotten_when_told(learn: Page) -> None:
    ended(learn, "Ada")
    learn.reload()
    expect(game(learn).get_by_role("row", name="Ada")).to_be_visible()
    game(learn).get_by_role("button", name="Clear the leaderboard").click()
    expect(game(learn).get_by_text(f"No games at ε {EPSILON}")).to_be_visible()
    stored = json.loads(learn.evaluate(f"localStorage.getItem('{BOARD}')"))
    assert stored == {"games": 1, "entries": []}


def test_each_epsilon_has_a_board_of_its_own(learn: Page) -> None:
    ended(learn, "Ada")
    game(learn).get_by_role("combobox", name="ε of the game").select_option("3")
    expect(game(learn).get_by_text("No games at ε 3 in")).to_be_visible()
    game(learn).get_by_role("combobox", name="ε of the game").select_option(EPSILON)
    expect(game(learn).get_by_role("row", name="Ada")).to_be_visible()


def test_the_ten_best_are_kept_the_best_first(book: Page) -> None:
    reported = rules(
        book,
        """(() => { const held = {}, s = { getItem: (k) => held[k] ?? null, setItem: (k, v) => { held[k] = v; } };
          const play = (name, epsilon, points) => r.entered(s, r.readBoard(s), { name, epsilon, points, answers: 1 });
          for (let i = 0; i < 15; i++) play(`p${i}`, "1", (i * 7) % 15);
          play("other", "3", 0);
          const { games, entries } = r.readBoard(s);
          return [games, r.best(entries, "1").map((e) => e.points), r.best(entries, "3").length]; })()""",
    )
    assert reported == [16, list(range(14, 4, -1)), 1]


@pytest.mark.parametrize("name", [EVIL, "__proto__", "\u202eevil"])
def test_a_hostile_name_is_text(learn: Page, name: str) -> None:
    ended(learn, name)
    shown = game(learn).locator("tbody bdi")
    expect(shown).to_have_text(name.replace("\u202e", "")[:24].strip())
    assert shown.evaluate("each => each.children.length") == 0
    assert learn.evaluate("document.querySelectorAll('.against img, .against script').length") == 0


@pytest.mark.parametrize(
    "held",
    [
        "", "null", "[]", "7", "{", '{"entries": 5}', '{"games": -1, "entries": [null, 3, [], {}]}', '{"games": 1e99}',
        '{"entries": [{"name": {}, "epsilon": "0.3", "points": 1, "answers": 1}]}',
        '{"entries": [{"name": "x", "epsilon": "0.3", "points": "9<b>", "answers": 1}]}',
        '{"entries": [{"name": "x", "epsilon": "0.3", "points": 1e9, "answers": 1}]}',
    ],
)  # fmt: skip
def test_a_board_that_somebody_has_written_is_read_as_none(book: Page, held: str) -> None:
    assert rules(book, f"r.readBoard({{ getItem: () => {json.dumps(held)} }})") == {"games": 0, "entries": []}


def test_an_entry_that_somebody_has_written_is_text(seen: Watched) -> None:
    entry = {"name": EVIL * 9, "epsilon": EPSILON, "points": 5, "answers": 1, "more": EVIL}
    stored = json.dumps({"games": 2, "entries": [entry] * 999})
    seen.page.add_init_script(f"localStorage.setItem('{BOARD}', {json.dumps(stored)})")
    page = seen.go("#/learn")
    expect(game(page).locator("tbody tr")).to_have_count(10)
    expect(game(page).locator("tbody bdi").first).to_have_text(EVIL[:24])
    assert page.evaluate("document.querySelectorAll('.against img').length") == 0


def test_without_storage_the_game_is_played_all_the_same(seen: Watched) -> None:
    refuse = (
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('off', 'SecurityError'); } })"
    )
    seen.page.add_init_script(refuse)
    page = standing(seen)
    ended(page, "Ada")
    expect(game(page).get_by_role("row", name="Ada")).to_be_visible()


# --- for everybody ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "theme"), [(320, "dark"), (1440, "light")])
def test_a_game_fits_and_keeps_nobody_out(browser: Browser, origin: str, width: int, theme: str) -> None:
    seen = watched(browser, origin, width, theme)
    page = standing(seen)
    ended(page, "W" * 24)
    begun(page)
    give(page, "above", "7")
    expect(game(page).get_by_role("button", name="Next question")).to_be_focused()
    page.clock.resume()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious(page) == []
    page.get_by_role("button", name="End the game").click()
    expect(game(page).locator("tbody tr").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious(page) == []
    page.context.close()
    assert not seen.said
    assert not seen.elsewhere
