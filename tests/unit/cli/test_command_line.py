"""The command line: one line and an exit code for each error, and the values that options accept."""

from __future__ import annotations

import errno
import gc
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from connectors.cli import main
from connectors.cli.options import Address, Speed, bootstrap, read_policy, windows_options
from connectors.keys import key_files
from connectors.runtime import logs
from connectors.sources.live import check_uptime_clock
from connectors.storage.embedded.sqlite_file import StoreError
from stream.errors import DataError, UsageError
from stream.release.validation import load_policy
from stream.settings import Settings
from tests.acceptance.command_line import run
from tests.support.patience import PATIENCE
from tests.support.small_building import building, policy_text

SECRET = "a4:00:00:00:00:01"


@pytest.fixture(scope="module")
def _told() -> None:
    """What other tests have left open is told of here, and not beside a line of this file's."""
    gc.collect()


def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raising: BaseException) -> Any:
    """Return code and line with which the program ends when its command raises."""

    def command(**_: Any) -> None:
        raise raising

    monkeypatch.setattr(main, "tacet", command)
    monkeypatch.setattr(sys, "argv", ["tacet"])
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main.main()
    return end.value.code, capsys.readouterr().err


@pytest.mark.usefixtures("_told")
@pytest.mark.parametrize(
    ("raising", "code", "line"),
    [
        (UsageError("a"), 2, "tacet: a"),
        (DataError("b"), 3, "tacet: b"),
        (StoreError("store.sqlite: was deleted"), 1, "tacet: store.sqlite: was deleted"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "tacet: a file: disk full; free space and start again"),
        (OSError(errno.ENOSPC, "No space", "key.mark"), 1, "tacet: key.mark: disk full; free space and start again"),
        (socket.gaierror(-2, "no such name"), 1, "tacet: [Errno -2] no such name"),
        (ExceptionGroup("g", [KeyError("k"), ExceptionGroup("h", [DataError("c"), OSError("d")])]), 3, "tacet: c"),
        (KeyboardInterrupt(), 130, ""),
        (BaseExceptionGroup("g", [KeyboardInterrupt()]), 130, ""),
    ],
)
def test_an_error_ends_the_program_with_one_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raising: Any, code: Any, line: Any
) -> None:
    assert ended(monkeypatch, capsys, raising) == (code, f"{line}\n" if line else "")


@pytest.mark.usefixtures("_told")
@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: ExceptionGroup("g", [e])])
def test_a_fault_of_the_program_is_named_and_never_shows_what_it_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrap: Callable[[Exception], Exception]
) -> None:
    code, output = ended(monkeypatch, capsys, wrap(ZeroDivisionError(SECRET)))
    assert code == 1
    assert output.startswith("tacet: internal error, ZeroDivisionError in ")
    assert output.count("\n") == 1
    assert SECRET not in output


@pytest.mark.usefixtures("_told")
def test_what_an_error_quotes_does_not_talk_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ended(monkeypatch, capsys, UsageError("audience \x1b[31mx\r\x9b2J\u202e\tß:\nsecond line"))[1]
    assert output == "tacet: audience \\x1b[31mx\\r\\x9b2J\\u202e\\tß:\nsecond line\n"


@pytest.mark.parametrize(("verb", "waits"), [("run", False), ("worker", False), ("status", True), ("key", True)])
def test_a_service_that_is_told_to_stop_before_it_has_begun_ends_well(
    monkeypatch: pytest.MonkeyPatch, verb: str, waits: bool
) -> None:
    """Other verbs end as programs do that are told to stop."""
    handlers = list[Any]()
    monkeypatch.setattr(signal, "signal", lambda number, handler: handlers.append((number, handler)))
    assert run(verb, "--nonsense").code == 2
    assert [number for number, _ in handlers] == ([] if waits else [signal.SIGTERM])
    for _, handler in handlers:
        with pytest.raises(SystemExit) as end:
            handler(signal.SIGTERM, None)
        assert end.value.code == 0


def test_a_verb_that_there_is_not_is_wrong_usage() -> None:
    for name in ("nothing", "options", "main"):
        done = run(name)
        assert (done.code, f"No such command '{name}'" in done.problem) == (2, True)


def test_the_texts_of_all_verbs_begin_in_one_column() -> None:
    printed = run("--help").out
    begins = {
        printed_line(printed, text).index(text[:20]) for verbs in main.SECTIONS.values() for text in verbs.values()
    }
    assert len(begins) == 1


def printed_line(printed: str, text: str) -> str:
    """Return the line of a verb's help that has the beginning of its text."""
    [line] = [line for line in printed.splitlines() if text[:20] in line]
    return line


def test_log_lines_are_as_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configured = list[Any]()
    monkeypatch.setattr(logs, "configure", lambda level, *, json: configured.append((level, json)))
    monkeypatch.setenv("TACET_LOG_LEVEL", "debug")
    monkeypatch.setenv("TACET_LOG_JSON", "true")
    assert run("policy", "check", tmp_path / "policy.toml").code == 2
    assert configured == [("debug", True)]


# --- options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["127.0.0.1:\u00b2", "127.0.0.1:\u0661", "127.0.0.1:65536", "127.0.0.1:", "1162", ":-1"]
)
def test_an_address_ends_in_a_port(text: Any) -> None:
    with pytest.raises(click.BadParameter, match="must be HOST:PORT"):
        Address().convert(text, None, None)


@pytest.mark.parametrize(
    ("servers", "report"),
    [
        ("nonsense", "got 'nonsense'"),
        ("broker:99999", "got 'broker:99999'"),
        ("broker:0", "got 'broker:0'"),
        ("a:9092,,b:9092", "got ''"),
        ("user:S3CRET@broker:9092", "got 'broker:9092'"),
        ("kafka://broker:9092", "got 'kafka://broker:9092'"),
    ],
)
def test_brokers_are_hosts_with_ports_and_nothing_else(servers: str, report: str) -> None:
    for given, name in ((servers, "--kafka"), (None, "TACET_KAFKA")):
        with pytest.raises(UsageError, match="must be HOST:PORT, or several separated by commas") as problem:
            bootstrap(Settings(kafka=servers), given)
        assert (str(problem.value).startswith(name), report in str(problem.value)) == (True, True)
        assert "S3CRET" not in str(problem.value)
    assert bootstrap(Settings(kafka="a.b-c_d:9092, [::1]:9093"), None) == "a.b-c_d:9092, [::1]:9093"


def test_an_empty_variable_names_no_broker() -> None:
    with pytest.raises(UsageError, match="--kafka: must be given, or TACET_KAFKA set"):
        bootstrap(Settings(kafka=""), None)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0", "-1", "fast", "1e999"])
def test_a_speed_is_a_positive_number(text: Any) -> None:
    with pytest.raises(click.BadParameter, match="must be a positive number or 'max'"):
        Speed().convert(text, None, None)
    assert (Speed().convert("0.5", None, None), Speed().convert("max", None, None)) == (0.5, None)


@pytest.mark.parametrize("turned", [False, True])
def test_windows_end_after_they_begin(turned: Any) -> None:
    @windows_options
    def command(**_: Any) -> None:
        pass

    verb = click.command()(command)
    since, until = ["--from", "2026-03-02T10:00:00Z"], ["--to", "2026-03-02T09:00:00Z"]
    done = CliRunner().invoke(verb, [*until, *since] if turned else [*since, *until])
    assert done.exit_code == 2
    assert "--from: must not be later than --to" in done.output
    assert CliRunner().invoke(verb, ["--from", until[1], "--to", since[1]]).exit_code == 0
    assert CliRunner().invoke(verb, ["--from", until[1], "--to", until[1]]).exit_code == 0


def test_a_policy_may_begin_with_a_mark_of_other_systems(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("\ufeff" + policy_text().replace("\n", "\r\n"), newline="")
    assert read_policy(path) == building()


@pytest.mark.parametrize(
    ("source", "allowed"),
    [("127.0.0.9", True), ("127.0.0.0/8", True), ("::1", True), ("::10.2.0.5", False), ("::1:2", False)],
)
def test_the_uptime_clock_is_for_loopback_alone(tmp_path: Path, source: str, allowed: bool) -> None:
    key_files.create(tmp_path / "key", laboratory=True)
    policy = load_policy(policy_text().replace('"127.0.0.2"', f'"{source}"'))
    if allowed:
        check_uptime_clock(policy, tmp_path / "key")
        return
    with pytest.raises(UsageError, match=f"must be on loopback, got {source}"):
        check_uptime_clock(policy, tmp_path / "key")


def test_the_uptime_clock_needs_a_laboratory_key(tmp_path: Path) -> None:
    key_files.create(tmp_path / "key", laboratory=False)
    with pytest.raises(UsageError, match="must be used with a laboratory key"):
        check_uptime_clock(load_policy(policy_text()), tmp_path / "key")


# --- what is written ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "--days", "1", "--zones", "4", "--scale", "0.1", "--out"),
        ("simulate", "--days", "1", "--zones", "4", "--scale", "0.1", "--truth"),
        ("simulate", "--days", "1", "--zones", "4", "--scale", "0.1", "--policy-out"),
        ("release", "counts.csv", "--mechanism", "laplace", "--epsilon", "1", "--key-file", "key", "--out"),
        ("backfill", "rows.csv", "--policy", "policy.toml", "--key-file", "key", "--store", "store", "--out"),
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_no_verb_writes_over_a_file_or_begins_work_that_it_has_no_place_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text("mine")
    Path("linked").symlink_to("mine")
    for out, reported in (
        ("mine", "must not exist yet; no file is overwritten"),
        ("linked", "must not exist yet; no file is overwritten"),
        ("nowhere/made", "must be in a folder that exists"),
    ):
        done = CliRunner().invoke(main.tacet, [*words, out])
        assert (done.exit_code, reported in done.output) == (2, True), done.output
    assert Path("mine").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linked", "mine"]


def test_the_demo_takes_no_folder_in_which_somebody_keeps_a_key_or_a_policy(tmp_path: Path) -> None:
    key_files.create(tmp_path / "key", laboratory=False)
    before = (tmp_path / "key").read_bytes()
    tmp_path.chmod(0o700)
    done = CliRunner().invoke(main.tacet, ["demo", "--dir", str(tmp_path)])
    assert "must be a new or empty folder" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert (tmp_path / "key").read_bytes() == before


TOLD_TWICE = """
import asyncio, os, signal
from connectors.runtime.signals import stop_signals

async def service():
    async with stop_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()

asyncio.run(service())
os.kill(os.getpid(), signal.SIGTERM)
print("ended by itself")
"""


def test_a_service_that_is_told_to_stop_twice_still_ends_by_itself() -> None:
    """As 'timeout' does: it tells the process, and then the process's whole group."""
    done = subprocess.run(
        [sys.executable, "-c", TOLD_TWICE], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ended by itself\n"), done.stderr
