"""What commands print: JSON, tables, dropped rows, and progress where standard error is no terminal."""

import io
import sys
import threading
from typing import Any

import pytest
from rich.console import Console

from connectors.cli import output
from connectors.cli.output import TaskProgress, progress_lines
from connectors.operations.policy.guarantees import UNITS, describe_unit
from stream.release.count_guarantees import count_guarantees
from stream.release.validation import load_policy


def test_an_answer_for_programs_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written))
    output.print_json({"sites": ["hall"], "lag": 0})
    assert written.getvalue() == b'{"sites":["hall"],"lag":0}\n'


def test_a_table_has_text_at_the_left_and_numbers_at_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    made = output.table("Zones", ("zone", "kind"), ("count",))
    made.add_row("hall", "open", "4")
    made.add_row("loft", "open", "12")
    Console(width=40, highlight=False).print(made)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "Zones", "", " zone  kind  count", " ─────────────────", " hall  open      4", " loft  open     12", ""
    ]  # fmt: skip


def test_dropped_rows_are_counted_by_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.report_drops({"late": 1_200, "duplicate_batch": 3}, 2, 5)
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "3 rows dropped: duplicate batch", "1,200 rows dropped: late",
        "2 rows dropped: access point in no zone of the policy", "5 rows left out: outside --from and --to",
    ]  # fmt: skip
    output.report_drops({}, 0, 0)
    assert capsys.readouterr().out == ""


def test_a_line_says_what_is_done_of_how_much_and_since_when() -> None:
    assert TaskProgress("rows").line(10) == "tacet: rows: 10 s"
    assert TaskProgress("rows", None, 120_000).line(20.4) == "tacet: rows: 120,000, 20 s"
    assert TaskProgress("windows released", 288, 12).line(30) == "tacet: windows released: 12 of 288, 30 s"


def test_a_second_pass_is_named_and_says_of_how_much() -> None:
    task = TaskProgress("rows read")
    task.update(20_000)
    assert task.line(10) == "tacet: rows read: 20,000, 10 s"
    task.update(10_000, 20_000, "rows counted")
    assert task.line(20) == "tacet: rows counted: 10,000 of 20,000, 20 s"


def test_lines_come_as_long_as_the_work_goes_on_and_then_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, task, enough = list[str](), TaskProgress("rows", 8), threading.Event()

    def echo(line: str, *, err: bool) -> None:
        assert err
        lines.append(line)
        if len(lines) == 3:
            enough.set()

    monkeypatch.setattr("connectors.cli.output.click.echo", echo)
    with progress_lines(task, every=0.001):
        task.update(5)
        assert enough.wait(60)
    reported = len(lines)
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]
    assert len(lines) == reported
    assert lines[0].startswith("tacet: rows: ")


@pytest.mark.parametrize("piped", [output.progress("rows", 3), output.working("planning")], ids=["counted", "not"])
def test_short_work_says_nothing(piped: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with piped as tick:
        if tick is not None:
            tick(2)
    assert capsys.readouterr() == ("", "")


def test_every_unit_of_the_account_and_of_promises_has_words() -> None:
    policy = load_policy(
        'audience = [{ name = "a" }]\n[site.s]\nsources = ["10.0.0.1"]\n[[site.s.zones]]\nid = "z"\ncapacity = 1\n'
        'access_points = ["02:00:00:00:00:01"]\n[[release]]\nname = "r"\nquery = "count"\nmechanism = "laplace"\n'
        'epsilon = { a = "1" }\n'
    )
    assert all(guarantee.units.keys() <= UNITS.keys() for guarantee in count_guarantees(policy))
    assert describe_unit("presence_tuple") == "one device at one tick"
    assert describe_unit("device_w_event", 12) == "one device, 12 windows"
    assert not any("tuple" in words for words in UNITS.values())
