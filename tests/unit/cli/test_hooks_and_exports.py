"""Small verbs: what ``hooks`` and ``export`` refuse and report, and the tables of ``evaluate``."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from connectors.cli import export
from connectors.cli.evaluate import TITLES, _cells, _markdown, _of
from connectors.cli.hooks import report
from connectors.lab.experiments import decision_report, tasks
from connectors.lab.experiments.decisions import DayResult, Extent, Result, Setting
from connectors.lab.experiments.tasks import Result as TaskResult
from connectors.lab.simulation.lessons import EPSILONS, MECHANISMS, Mechanism
from connectors.sinks.prometheus import LatestReleases
from connectors.sources.cloud.processor import WebhookCounts
from tests.acceptance.command_line import run
from tests.support.released_store import count

# --- hooks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ((), "TACET_HOOKS_FILE: must name a file of systems"),
        (("--tls-cert", "a.pem"), "--tls-cert: must be used with --tls-key"),
    ],
)
def test_hooks_without_its_files_is_refused(
    words: tuple[str, ...], rule: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if words:
        monkeypatch.setenv("TACET_HOOKS_FILE", str(tmp_path / "hooks.toml"))
    done = run("hooks", "--to", tmp_path / "socket", *words)
    assert (done.code, rule in done.problem) == (2, True), done.problem


def test_hooks_reports_requests_and_rows_by_reason(capsys: pytest.CaptureFixture[str]) -> None:
    counts = WebhookCounts(5, 3, Counter(bad_signature=2), 7, Counter(unknown_access_point=4))
    service: Any = type("Service", (), {"counts": counts})
    report(service, as_json=True)
    assert '"refused":{"bad_signature":2}' in capsys.readouterr().out.replace(" ", "")
    report(service, as_json=False)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "5 requests, 3 accepted, 7 rows passed on"
    assert [" ".join(line.split()) for line in said[1:]] == [
        "2 refused: bad signature", "4 rows dropped: unknown access point"
    ]  # fmt: skip


# --- export ---------------------------------------------------------------------------------------------


def test_export_follows_releases_on_the_port_that_it_prints_and_leaves_it_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    followed: list[Any] = []

    async def subscribe(**_: Any) -> AsyncIterator[dict[str, Any]]:
        yield count(1, {"hall": 4})

    monkeypatch.setattr(export, "subscribe", subscribe)
    monkeypatch.setattr(LatestReleases, "update", lambda _, record: followed.append(record))
    done = run("export", "prometheus", "--kafka", "127.0.0.1:9", "--audience", "public", "--listen", "127.0.0.1:0")
    assert done.code == 0, done.problem
    assert [record["values"] for record in followed] == [{"hall": 4}]
    port = int(done.out.removeprefix("http://127.0.0.1:").removesuffix("/metrics\n"))
    assert port
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))


def test_export_names_an_address_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("export", "prometheus", "--kafka", "127.0.0.1:9", "--audience", "public", "--listen", address)
    assert (done.code, f"--listen: must be a free address of this machine, got {address}" in done.problem) == (2, True)


# --- evaluate -------------------------------------------------------------------------------------------


def answered(task: Any, epsilon: str | None) -> TaskResult:
    return TaskResult(task, "laplace", epsilon, 12, 71.4, 20.2, 0.25, 0.5, 3.25, "windows")


def test_a_table_of_questions_ends_with_the_score_of_who_has_seen_nothing() -> None:
    blind, seen, other = answered("stuck", None), answered("stuck", "1"), answered("event", "1")
    assert _of("stuck", [blind, seen, other]) == [seen, blind]
    assert _cells(seen) == ("laplace", "1", "71", "20", "25%", "50%", "3.2 windows")
    assert _cells(blind)[1] == ""


def test_a_file_of_tables_has_each_question_with_its_rows() -> None:
    parts = _markdown([answered("stuck", "1"), answered("event", "0.1")], 3).split("\n\n## ")
    assert parts[0].endswith("3 run(s) of each of twelve versions.")
    assert [part.splitlines()[0] for part in parts[1:]] == list(TITLES.values())
    rows = {part.splitlines()[0]: part.splitlines()[4:] for part in parts[1:]}
    assert rows[TITLES["stuck"]] == ["| laplace | 1 | 71 | 20 | 25% | 50% | 3.2 windows |"]
    assert rows[TITLES["event"]] == ["| laplace | 0.1 | 71 | 20 | 25% | 50% | 3.2 windows |"]
    assert rows[TITLES["above"]] == []


@pytest.mark.parametrize(
    ("words", "mechanisms", "epsilons"),
    [
        ((), MECHANISMS, EPSILONS),
        (("--mechanism", "laplace"), ("laplace",), EPSILONS),
        (("--epsilon", "10", "--epsilon", "0.01"), MECHANISMS, ("10", "0.01")),
    ],
)
def test_questions_are_asked_of_every_mechanism_and_epsilon_or_of_those_that_are_named(
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    mechanisms: tuple[Mechanism, ...],
    epsilons: tuple[str, ...],
) -> None:
    asked: list[tasks.Extent] = []

    def results(extent: tasks.Extent, _: Any) -> list[TaskResult]:
        asked.append(extent)
        return []

    monkeypatch.setattr(tasks, "results", results)
    done = run("evaluate", "tasks", *words, "--json")
    assert done.code == 0, done.problem
    assert asked == [tasks.Extent(1, epsilons, mechanisms)]


def decided(**changes: Any) -> Result:
    return Result(Setting("Q3", "low", "tslm", **changes), 1.5, 0.25, 0.9, None, 0.125, 100)


def test_a_row_says_what_was_varied_charged_and_missed() -> None:
    assert decision_report.cells(decided()) == ("tslm", "1.500", "0.250", "0.900", "-", "0.125")
    table = decision_report._table("5.8", [decided(alpha=20)]).splitlines()
    assert table[0].startswith("| alpha | mechanism | charged |")
    assert table[2].startswith("| 20 | tslm | 1.500 |")
    assert decision_report._table("5.6", [decided()]).splitlines()[2].startswith("| Q3 | low | tslm |")


def test_distances_from_a_threshold_are_counted_below_each_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_report, "distances", lambda *_: [3, 9, 10, 99, 214, 500])
    row = decision_report._near(1).splitlines()[2]
    assert row == "| Q1 | high | 3 | 99 | 2 | 4 | 5 |"


def test_results_are_marked_as_simulated_and_have_days_beside_points() -> None:
    day = DayResult(4, "and", "naive", 5.0, 4.0, 0.0, None, 100)
    made = decision_report.document(Extent(100, 7, "safe"), {"5.6": [decided()]}, {"6.3": [day]})
    assert (made["simulated"], made["seed"], made["form"]) == (True, 7, "safe")
    assert [(row["figure"], row["denied"]) for row in made["results"]] == [("5.6", False), ("6.3", True)]
    assert decision_report._by_day([day]).splitlines()[2] == "| 4 | naive | 5.000 | 4.000 | 0.000 | - |"
