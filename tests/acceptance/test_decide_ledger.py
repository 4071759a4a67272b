"""``tacet decide --ledger``: each answer is charged before its noise is drawn, once, and by its question alone."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from connectors.cli import decide
from connectors.tables import decision_ledger
from stream.decisions.plan import DecisionTerms
from stream.decisions.progressive import price_of
from tests.acceptance.command_line import Done, run
from tests.support.documents import ROOT

MANY = [f"p{i}" for i in range(300)]
TSLM = ["--mechanism", "tslm", "--beta", "0.05", "--epsilon-max", "4"]


def price(alpha: int) -> float:
    return float(price_of((Fraction(alpha),), DecisionTerms("tslm", Fraction(1, 20))))


def write(folder: Path, counts: dict[str, int], thresholds: dict[str, str], header: str = "threshold,alpha") -> None:
    (folder / "counts.csv").write_text("predicate,count\n" + "".join(f"{n},{c}\n" for n, c in counts.items()))
    rows = "".join(f"{name},{row}\n" for name, row in thresholds.items())
    (folder / "thresholds.csv").write_text(f"predicate,{header}\n{rows}")


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Counts at their thresholds: one in twenty is taken for above, the same ones by other noise once in 1e12 times."""
    assert run("key", "create", tmp_path / "key", "--laboratory").code == 0
    write(tmp_path, dict.fromkeys(MANY, 50), dict.fromkeys(MANY, "50,0"))
    return tmp_path


def ask(folder: Path, label: str, *more: str, words: list[str] | None = None) -> Done:
    files = [folder / "counts.csv", folder / "thresholds.csv"]
    ledger = ["--ledger", str(folder / "ledger"), "--label", label]
    return run("decide", *files, *(words or TSLM), *ledger, "--key-file", folder / "key", "--json", *more)


def entries(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "ledger").read_text().splitlines()]


def test_the_same_question_under_the_same_label_is_answered_again_for_nothing(scenario: Path) -> None:
    first = ask(scenario, "monday")
    booked = (scenario / "ledger").read_bytes()
    assert first.answer["ledger"] == {
        "label": "monday", "charged": price(0), "answers": 1, "total": price(0), "sum": price(0),
    }  # fmt: skip
    assert ask(scenario, "monday") == first
    assert (scenario / "ledger").read_bytes() == booked
    assert (scenario / "ledger").stat().st_mode & 0o777 == 0o600


def test_another_label_is_another_answer_with_noise_of_its_own_and_charged(scenario: Path) -> None:
    first, second = ask(scenario, "monday").answer, ask(scenario, "tuesday").answer
    assert first["decisions"] != second["decisions"]
    assert second["ledger"]["answers"] == 2
    assert second["ledger"]["total"] == pytest.approx(2 * price(0))


def test_the_ledger_does_not_show_whether_counts_under_two_labels_are_the_same(scenario: Path) -> None:
    ask(scenario, "monday")
    ask(scenario, "tuesday")
    monday, tuesday = entries(scenario)
    assert monday["theta"] == tuesday["theta"]
    assert monday["commitment"] != tuesday["commitment"]


@pytest.mark.parametrize("changed", ["counts", "thresholds", "mechanism", "order"])
def test_a_label_is_given_to_one_question_of_one_table(scenario: Path, changed: str) -> None:
    assert ask(scenario, "monday").code == 0
    booked = (scenario / "ledger").read_bytes()
    words = ["--mechanism", "laplace", *TSLM[2:]] if changed == "mechanism" else None
    if changed == "counts":
        write(scenario, {**dict.fromkeys(MANY, 50), "p7": 51}, dict.fromkeys(MANY, "50,0"))
    if changed == "thresholds":
        write(scenario, dict.fromkeys(MANY, 50), {**dict.fromkeys(MANY, "50,0"), "p7": "51,0"})
    if changed == "order":
        write(scenario, dict.fromkeys(MANY, 50), dict.fromkeys(reversed(MANY), "50,0"))
    done = ask(scenario, "monday", words=words)
    assert (done.code, done.out) == (2, "")
    assert "belongs to another query or to other counts" in done.problem
    assert (scenario / "ledger").read_bytes() == booked


def test_what_is_booked_follows_from_the_question_alone(scenario: Path) -> None:
    """But for the commitment, which a reader without the key cannot try counts against, and what signs it."""
    ask(scenario, "monday")
    one = entries(scenario)
    (scenario / "ledger").unlink()
    write(scenario, dict.fromkeys(MANY, 9), dict.fromkeys(MANY, "50,0"))
    ask(scenario, "monday")
    other = entries(scenario)
    differ = {name for name in one[0] if one[0][name] != other[0][name]}
    assert differ == {"commitment", "hash", "mac"}


def test_it_is_on_disk_before_noise_is_drawn(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(*_: object) -> None:
        assert len(entries(scenario)) == 1
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(decide, "decide_tree", cut_off)
        assert ask(scenario, "monday").code == 130
    booked = (scenario / "ledger").read_bytes()
    assert ask(scenario, "monday").answer["denied"] is False
    assert (scenario / "ledger").read_bytes() == booked


def test_what_cannot_be_written_through_to_disk_is_not_drawn(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(scenario, "monday")
    booked = (scenario / "ledger").read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(decision_ledger, "_sync", full)
        done = ask(scenario, "tuesday")
    assert (done.code, done.out) == (1, "")
    assert "disk full" in done.problem
    assert (scenario / "ledger").read_bytes() == booked


def test_what_would_pass_the_budget_is_denied_whatever_the_counts(scenario: Path) -> None:
    budget = ("--budget", "6")
    assert ask(scenario, "monday", *budget).answer["ledger"]["total"] == pytest.approx(price(0))
    assert ask(scenario, "tuesday", *budget).answer["denied"] is False
    booked = (scenario / "ledger").read_bytes()
    (scenario / "counts.csv").unlink()
    done = ask(scenario, "wednesday", *budget)
    denied = json.loads(done.out)
    assert done.code == 1
    assert (denied["denied"], denied["epsilon"], denied["decisions"]) == (True, 0.0, [])
    assert denied["ledger"]["answers"] == 2
    assert (scenario / "ledger").read_bytes() == booked
    write(scenario, dict.fromkeys(MANY, 50), dict.fromkeys(MANY, "50,0"))
    assert ask(scenario, "monday", "--budget", "1").answer["denied"] is False  # paid long ago


def test_answers_are_composed_predicate_by_predicate(scenario: Path) -> None:
    write(scenario, {"hall": 1, "loft": 2}, {"hall": "50,1", "loft": "50,9"})
    ask(scenario, "monday")
    write(scenario, {"hall": 1, "loft": 2}, {"hall": "50,9", "loft": "50,1"})
    found = ask(scenario, "tuesday").answer["ledger"]
    assert found["total"] == pytest.approx(price(1) + price(9))
    assert found["sum"] == pytest.approx(2 * price(1))


@pytest.mark.parametrize("how", ["sensitivity", "tree"])
def test_where_a_person_may_be_in_several_cells_the_dearest_is_charged_everywhere(scenario: Path, how: str) -> None:
    write(scenario, {"hall": 1, "loft": 2}, {"hall": "50,1", "loft": "50,9"})
    ask(scenario, "monday")
    write(scenario, {"hall": 1, "loft": 2}, {"hall": "50,9", "loft": "50,2"})
    (scenario / "tree.json").write_text('{"or": [{}, {}]}')
    more = ["--sensitivity", "2"] if how == "sensitivity" else ["--query", str(scenario / "tree.json")]
    found = ask(scenario, "tuesday", *more).answer
    own = found["epsilon"]
    assert own >= 2 * price(2) * 0.999
    assert found["ledger"]["total"] == pytest.approx(price(1) + own)


def test_a_coarser_question_says_which_cells_its_predicates_hold_for(scenario: Path) -> None:
    write(scenario, {"hall 9": 1, "loft 9": 2, "hall 10": 0}, {"hall 9": "50,1", "loft 9": "50,1", "hall 10": "50,9"})
    ask(scenario, "fine")
    write(scenario, {"nine": 3}, {"nine": "50,1"})
    refused = ask(scenario, "coarse")
    assert (refused.code, len(entries(scenario))) == (2, 1)
    assert "1 of the query's cells are not in the ledger" in refused.problem
    write(scenario, {"nine": 3}, {"nine": "50,1,hall 9|loft 9"}, "threshold,alpha,cells")
    assert ask(scenario, "coarse").answer["ledger"]["total"] == pytest.approx(2 * price(1))
    write(scenario, {"eleven": 3}, {"eleven": "50,1"})
    assert ask(scenario, "later", "--new-cells").answer["ledger"]["total"] == pytest.approx(2 * price(1))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"a": "50,1,x|y", "b": "50,1,y"}, "no cell may be in two predicates"),
        ({"a": "50,1,x", "b": "50,1,x"}, "no cell may be in two predicates"),
        ({"a": "50,1,x|x", "b": "50,1,y"}, "line 2: cells must be names"),
        ({"a": "50,1,", "b": "50,1,y"}, "line 2: cells must be names"),
    ],
)
def test_cells_of_one_question_exclude_each_other(scenario: Path, rows: dict[str, str], said: str) -> None:
    write(scenario, {"a": 1, "b": 1}, rows, "threshold,alpha,cells")
    done = ask(scenario, "monday")
    assert (done.code, (scenario / "ledger").exists()) == (3, False)
    assert said in done.problem


def damaged(folder: Path, how: str) -> None:
    path = folder / "ledger"
    lines = path.read_bytes().splitlines(keepends=True)
    if how == "first line gone":
        path.write_bytes(b"".join(lines[1:]))
    elif how == "cheaper":
        path.write_bytes(b"".join(lines).replace(b'"everywhere":false', b'"everywhere":true', 1))
    elif how == "twice":
        path.write_bytes(b"".join([*lines, lines[0]]))
    elif how == "no entry":
        path.write_bytes(b"[]\n")
    elif how == "other key":
        (folder / "key").unlink()
        assert run("key", "create", folder / "key", "--laboratory").code == 0
    elif how == "open":
        path.chmod(0o644)


@pytest.mark.parametrize("how", ["first line gone", "cheaper", "twice", "no entry", "other key", "open"])
def test_a_ledger_that_is_not_whole_books_nothing(scenario: Path, how: str) -> None:
    ask(scenario, "monday")
    ask(scenario, "tuesday")
    damaged(scenario, how)
    stored = (scenario / "ledger").read_bytes()
    done = ask(scenario, "wednesday")
    assert (done.code, done.out) == (2, "")
    assert "mode 0600" in done.problem if how == "open" else "must be whole" in done.problem
    assert (scenario / "ledger").read_bytes() == stored


@pytest.mark.parametrize("length", [1, 100, 400, -1])
def test_a_line_that_was_being_written_when_the_machine_stopped_is_taken_away(scenario: Path, length: int) -> None:
    first = ask(scenario, "monday")
    booked = (scenario / "ledger").read_bytes()
    ask(scenario, "tuesday")
    entry = (scenario / "ledger").read_bytes()[len(booked) :]
    (scenario / "ledger").write_bytes(booked + entry[:length])
    assert ask(scenario, "monday") == first
    assert (scenario / "ledger").read_bytes() == booked


@pytest.mark.parametrize("content", [b"my only copy", b"line\nmy only copy", b'{"v":1,"sequence":7', b'{"v":1}'])
def test_a_file_that_is_no_ledger_is_left_as_it_is(scenario: Path, content: bytes) -> None:
    (scenario / "ledger").write_bytes(content)
    (scenario / "ledger").chmod(0o600)
    done = ask(scenario, "monday")
    assert (done.code, done.out) == (2, "")
    assert "must be whole" in done.problem
    assert (scenario / "ledger").read_bytes() == content


def test_a_ledger_is_a_file(scenario: Path) -> None:
    os.mkfifo(scenario / "ledger", 0o600)
    done = ask(scenario, "monday")
    assert (done.code, "must be a file" in done.problem) == (2, True)


def test_answers_of_several_processes_are_booked_one_after_another(scenario: Path) -> None:
    words = [
        sys.executable, "-m", "connectors", "decide", "counts.csv", "thresholds.csv", *TSLM,
        "--key-file", "key", "--ledger", "ledger", "--label",
    ]  # fmt: skip
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    processes = [
        subprocess.Popen([*words, f"day {i}"], cwd=scenario, env=environment, stdout=subprocess.DEVNULL)
        for i in range(3)
    ]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    assert sorted(entry["label"] for entry in entries(scenario)) == ["day 0", "day 1", "day 2"]
    assert ask(scenario, "day 3").answer["ledger"]["answers"] == 4


@pytest.mark.parametrize(
    ("more", "said"),
    [(["--label", "x"], "used with --ledger"), (["--budget", "1"], "used with --ledger"), (["--new-cells"], "be used"),
     (["--ledger", "l"], "--label must name"), (["--ledger", "l", "--label", " x"], "--label must name"),
     (["--ledger", "l", "--label", "x" * 201], "--label must name"),
     (["--ledger", "l", "--label", "x", "--budget", "-1"], "--budget: must be above 0, got -1"),
     (["--ledger", "l", "--label", "x", "--budget", "0"], "--budget: must be above 0, got 0")],
)  # fmt: skip
def test_options_of_the_ledger_go_together(scenario: Path, more: list[str], said: str) -> None:
    files = [scenario / "counts.csv", scenario / "thresholds.csv"]
    done = run("decide", *files, *TSLM, "--key-file", scenario / "key", *more)
    assert done.code == 2
    assert said in done.problem
