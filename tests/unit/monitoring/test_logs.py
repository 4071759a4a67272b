"""Log lines: one form, with allowed fields only, whoever wrote them."""

from __future__ import annotations

import json
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from connectors.monitoring.engine import EngineMetrics
from connectors.monitoring.metric_values import MetricValues
from connectors.runtime import logs
from connectors.runtime.logs import AT_ONCE, KINDS, PERIOD, Kind, LogRate
from stream.schemas import LEAKAGE
from tests.support.small_building import SITE, building, outputs_of, people

SECRET = "5c:52:1e:00:20:11"
TASKS = "stream.runners.partition_tasks"
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(capfd: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """JSON logs at the lowest level; gives the lines written since it was last asked."""
    with logs_configured("debug", json=True):
        yield lambda: [json.loads(line) for line in capfd.readouterr().err.splitlines()]


class logs_configured:  # noqa: N801
    """Configure, and give the root logger back as it was."""

    def __init__(self, level: str, *, json: bool) -> None:
        self._level, self._json = level, json

    def __enter__(self) -> None:
        root = logging.getLogger()
        self._before = root.level, list(root.handlers)
        logs.configure(self._level, json=self._json)

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger()
        root.level, root.handlers = self._before
        structlog.reset_defaults()


def without_pytest() -> None:
    """Take pytest's own handlers away, which raise at arguments that do not fit."""
    root = logging.getLogger()
    root.handlers = [handler for handler in root.handlers if type(handler).__module__ == logs.__name__]


def broken() -> None:
    raise ValueError(SECRET)


def test_structlog_and_the_standard_library_write_lines_of_one_shape(lines: Lines) -> None:
    structlog.get_logger("tacet.run").info("listening", port=162)
    logging.getLogger(TASKS).warning("partition %d opened", 3)
    first, second = lines()
    assert (first["event"], first["level"], first["logger"], first["port"]) == ("listening", "info", "tacet.run", 162)
    assert (second["event"], second["level"], second["logger"]) == (
        "partition 3 opened",
        "warning",
        TASKS,
    )
    assert {"event", "level", "logger", "timestamp"} == set(second)


def test_a_field_that_is_not_listed_is_taken_out_of_every_line(lines: Lines) -> None:
    structlog.get_logger("tacet.run").info("listening", device=SECRET)
    logging.getLogger("connectors.storage.kafka.client").info("read", extra={"device": SECRET})
    assert all(set(line) <= logs.FIELDS for line in lines())


@pytest.mark.parametrize(
    "library", ["aiokafka.client", "faust.agents.agent", "mode.services", "asyncio", "py.warnings", "streams", "root"]
)
def test_a_library_is_quoted_by_place_and_kind_of_error_never_by_text(library: str, lines: Lines) -> None:
    without_pytest()
    log = logging.getLogger(library)
    log.error("sent %s: %s", SECRET, OSError(SECRET))
    log.error(f"sent {SECRET}")  # noqa: G004
    log.error({"value": SECRET})
    log.error("sent %d and %d", SECRET)  # noqa: PLE1206 - arguments that do not fit
    made = lines()
    assert [line["event"] for line in made] == [logs.WITHHELD] * 4
    assert all(line["logger"] == library and line["place"].startswith("test_logs.py:") for line in made)
    assert [line.get("error") for line in made] == ["OSError", None, None, None]
    assert SECRET not in str(made)


def test_of_an_exception_the_type_is_kept_and_neither_text_nor_stack(lines: Lines) -> None:
    for log in (
        logging.getLogger(TASKS),
        logging.getLogger("faust.app"),
        structlog.get_logger("tacet.run"),
    ):
        try:
            broken()
        except ValueError:
            log.exception("stopped")
    made = lines()
    assert [line["error"] for line in made] == ["ValueError"] * 3
    assert SECRET not in str(made)
    assert all(set(line) <= logs.FIELDS for line in made)


def test_our_own_line_whose_arguments_do_not_fit_is_withheld_and_prints_no_stack(lines: Lines) -> None:
    without_pytest()
    logging.getLogger(TASKS).error("at %d", SECRET)
    (line,) = lines()
    assert line["event"] == logs.WITHHELD
    assert SECRET not in str(line)


def test_libraries_are_heard_from_warning_on_and_at_level_debug_from_debug_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for level, received in (("info", ["warning"]), ("debug", ["debug", "warning"])):
        with logs_configured(level, json=True):
            logging.getLogger("aiokafka.client").debug("x")
            logging.getLogger("some.other").warning("x")
        assert [json.loads(line)["level"] for line in capfd.readouterr().err.splitlines()] == received


def test_text_lines_go_through_the_same_list(capfd: pytest.CaptureFixture[str]) -> None:
    with logs_configured("info", json=False):
        structlog.get_logger("tacet.run").info("listening", port=162, device=SECRET)
        logging.getLogger("aiokafka.client").error("sent %s", SECRET)
        logging.getLogger(TASKS).warning("partition %d opened", 3)
    err = capfd.readouterr().err
    assert SECRET not in err
    assert "port=162" in err
    assert "partition 3 opened" in err


def test_configured_twice_a_line_is_written_once(lines: Lines) -> None:
    logs.configure("debug", json=True)
    logging.getLogger(TASKS).warning("once")
    assert [line["event"] for line in lines()] == ["once"]


def test_the_last_word_of_a_command_is_a_line_like_the_others(lines: Lines) -> None:
    logs.report_end("policy.toml: no such file")
    (line,) = lines()
    assert (line["event"], line["level"]) == ("policy.toml: no such file", "error")


def test_without_json_the_last_word_is_one_line_of_text(capfd: pytest.CaptureFixture[str]) -> None:
    with logs_configured("info", json=False):
        logs.report_end("policy.toml: no such file")
    assert capfd.readouterr().err == "tacet: policy.toml: no such file\n"


@pytest.mark.filterwarnings("default")
def test_what_python_itself_would_print_goes_through_the_chain(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((threading, "excepthook"), (sys, "unraisablehook"), (warnings, "showwarning")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    logs.catch_strays()
    thread = threading.Thread(target=broken)
    thread.start()
    thread.join()
    warnings.warn(SECRET, stacklevel=1)
    made = lines()
    assert [line["event"] for line in made] == ["a thread ended with an error", "a warning of Python"]
    assert [line["error"] for line in made] == ["ValueError", "UserWarning"]
    assert SECRET not in str(made)


# --- how often ------------------------------------------------------------------------------------------------


class Clock:
    """Seconds that go on when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def slow(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> tuple[Lines, Clock]:
    """Lines, and the clock by which too many are told."""
    clock = Clock()
    monkeypatch.setattr("connectors.runtime.logs.time.monotonic", clock)
    logs.configure("debug", json=True)
    return lines, clock


def test_of_lines_that_say_the_same_a_few_are_written_and_the_others_counted(slow: tuple[Lines, Clock]) -> None:
    lines, clock = slow
    for _ in range(AT_ONCE + 30):
        structlog.get_logger("tacet.run").warning("traps_dropped", reason="malformed", count=10)
    assert len(lines()) == AT_ONCE
    clock.now += PERIOD
    structlog.get_logger("tacet.run").warning("traps_dropped", reason="malformed", count=10)
    first, second = lines()
    assert (first["event"], first["count"], first["logger"], first["level"]) == (
        logs.LEFT_OUT, 30, "tacet.run", "warning",
    )  # fmt: skip
    assert second["event"] == "traps_dropped"


def test_the_period_of_a_kind_begins_with_its_first_line_however_long_a_process_runs(
    slow: tuple[Lines, Clock],
) -> None:
    lines, clock = slow
    clock.now = 10 * PERIOD
    for _ in range(AT_ONCE + 30):
        structlog.get_logger("tacet.run").warning("traps_dropped", reason="malformed")
    assert [line["event"] for line in lines()] == ["traps_dropped"] * AT_ONCE
    for later, event in ((PERIOD - 0.5, "traps_read"), (PERIOD, logs.LEFT_OUT)):
        clock.now = 10 * PERIOD + later
        structlog.get_logger("tacet.run").warning("traps_read")
        assert lines()[0]["event"] == event


def test_what_is_said_of_another_site_or_for_another_reason_is_something_else(slow: tuple[Lines, Clock]) -> None:
    lines, _ = slow
    for _ in range(AT_ONCE + 1):
        structlog.get_logger("tacet.run").warning("traps_dropped", reason="malformed")
    structlog.get_logger("tacet.run").warning("traps_dropped", reason="queue_full")
    structlog.get_logger("tacet.run").error("site closed", site="dbh")
    assert [line.get("reason") for line in lines()[AT_ONCE:]] == ["queue_full", None]


def test_a_text_is_the_same_whatever_is_put_into_it(slow: tuple[Lines, Clock]) -> None:
    lines, _ = slow
    for number in range(AT_ONCE + 30):
        logging.getLogger(TASKS).warning("partition %d opened", number)
        logging.getLogger("aiokafka.client").error("sent %s", number)
    assert len(lines()) == 2 * AT_ONCE


def test_why_a_command_ends_is_always_said(slow: tuple[Lines, Clock]) -> None:
    lines, _ = slow
    for _ in range(AT_ONCE + 30):
        logging.getLogger("tacet").error("%s", "x")
    lines()
    logs.report_end("disk full")
    assert [line["event"] for line in lines()] == ["disk full"]


def test_kinds_of_lines_are_not_remembered_for_ever(slow: tuple[Lines, Clock]) -> None:
    lines, clock = slow
    rate = LogRate(clock)
    for number in range(KINDS + 50):
        assert rate.allow(Kind("tacet", "x", str(number)))
    assert len(rate._counts) == KINDS
    clock.now += PERIOD
    assert list(rate.over()) == []
    assert len(rate._counts) == 0
    assert lines() == []


# --- fields ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["device", "mac", "people", "value", "pseudonym", "key", "exception", "stack"])
def test_no_way_leads_a_field_around_the_list(name: str, lines: Lines) -> None:
    """By structlog, bound or given, by the standard library's extra, by a mapping in the place of a text."""
    log = structlog.get_logger("tacet.run")
    log.info("x", **{name: SECRET})
    log.bind(**{name: SECRET}).error("x")
    structlog.get_logger("connectors.storage.kafka").warning("x", **{name: SECRET, "site": "dbh"})
    logging.getLogger(TASKS).warning("x", extra={name: SECRET})
    logging.getLogger("faust").warning({name: SECRET})
    with structlog.contextvars.bound_contextvars(**{name: SECRET}):
        log.info("x")
    made = lines()
    assert len(made) == 6
    assert all(set(line) <= logs.FIELDS for line in made)
    assert SECRET not in str(made)


def test_what_is_said_of_a_window_names_its_site_and_its_end(lines: Lines) -> None:
    policy = building()
    figures = EngineMetrics(MetricValues("run", lambda: 0), policy, list, None)
    figures.committed([each for each in outputs_of(policy, people(hours=2, devices=3)) if each.topic == LEAKAGE])
    reported = [line for line in lines() if line["event"] == "window released"]
    assert len(reported) > 5
    assert {(line["site"], line["level"], line["logger"]) for line in reported} == {(SITE, "debug", "tacet.engine")}
    assert all(line["window"].endswith("Z") for line in reported)
