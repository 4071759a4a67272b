"""One form for every line on standard error: whoever wrote it, it holds fields of the allow-list only."""

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

from connectors import logs

SECRET = "5c:52:1e:00:20:11"
TENURE = "stream.runners.tenure"
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
    logging.getLogger(TENURE).warning("partition %d opened", 3)
    first, second = lines()
    assert (first["event"], first["level"], first["logger"], first["port"]) == ("listening", "info", "tacet.run", 162)
    assert (second["event"], second["level"], second["logger"]) == (
        "partition 3 opened",
        "warning",
        TENURE,
    )
    assert {"event", "level", "logger", "timestamp"} == set(second)


def test_a_field_that_is_not_listed_is_taken_out_of_every_line(lines: Lines) -> None:
    structlog.get_logger("tacet.run").info("listening", device=SECRET)
    logging.getLogger("connectors.kafka.client").info("read", extra={"device": SECRET})
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
        logging.getLogger(TENURE),
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
    logging.getLogger(TENURE).error("at %d", SECRET)
    (line,) = lines()
    assert line["event"] == logs.WITHHELD
    assert SECRET not in str(line)


def test_libraries_are_heard_from_warning_on_and_at_level_debug_from_debug_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for level, heard in (("info", ["warning"]), ("debug", ["debug", "warning"])):
        with logs_configured(level, json=True):
            logging.getLogger("aiokafka.client").debug("x")
            logging.getLogger("some.other").warning("x")
        assert [json.loads(line)["level"] for line in capfd.readouterr().err.splitlines()] == heard


def test_text_lines_go_through_the_same_list(capfd: pytest.CaptureFixture[str]) -> None:
    with logs_configured("info", json=False):
        structlog.get_logger("tacet.run").info("listening", port=162, device=SECRET)
        logging.getLogger("aiokafka.client").error("sent %s", SECRET)
        logging.getLogger(TENURE).warning("partition %d opened", 3)
    err = capfd.readouterr().err
    assert SECRET not in err
    assert "port=162" in err
    assert "partition 3 opened" in err


def test_configured_twice_a_line_is_written_once(lines: Lines) -> None:
    logs.configure("debug", json=True)
    logging.getLogger(TENURE).warning("once")
    assert [line["event"] for line in lines()] == ["once"]


def test_the_last_word_of_a_command_is_a_line_like_the_others(lines: Lines) -> None:
    logs.last_word("policy.toml: no such file")
    (line,) = lines()
    assert (line["event"], line["level"]) == ("policy.toml: no such file", "error")


def test_without_json_the_last_word_is_one_line_of_text(capfd: pytest.CaptureFixture[str]) -> None:
    with logs_configured("info", json=False):
        logs.last_word("policy.toml: no such file")
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
