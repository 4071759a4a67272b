"""Logs: to standard error, one form for every line, and only fields from a fixed list, so that no record can slip in.

Of our own loggers the text is written: it is held to the project's rule that no text has an observation, a
count or a secret in it. Of a library the text is never written: it may quote keys, values, or the repr of
whatever an object holds, and which of its lines do changes from release to release. Such a line keeps level,
logger, the kind of error, and the place in the library's source, where its text can be looked up.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
import warnings
from collections.abc import MutableMapping
from typing import Any

import click
import structlog

from connectors.log_rate import Kind, LogRate

FIELDS = frozenset(
    {
        "event", "level", "timestamp", "logger", "place",
        "asked", "granted", "raise_with", "site", "partition", "partitions", "window", "topic",
        "release", "audience", "reason", "address", "port", "datagrams", "accepted", "dropped",
        "kernel_drops", "windows", "offset", "version", "policy", "count", "seconds", "error",
    }
)  # fmt: skip
"""What a log line may hold; everything else is taken out before it is written."""

OWN = frozenset({"tacet", "connectors", "stream"})
"""First words of the names of loggers whose text is written."""

_LAST_WORD = "is_last_word"
"""Marks the line that says why a command ends, which is always written."""

_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What moves a terminal's cursor or turns its text, the ends of our own lines aside."""

WITHHELD = "text withheld"
"""In the place of a text that is not ours, or that could not be put together."""

LEFT_OUT = "lines left out"
"""Says how many lines of one kind were not written, because there had been so many."""


def configure(level: str, *, json: bool) -> None:
    """Send structlog and the standard library's loggers to standard error, in one form.

    ``level`` is the lowest that is written; of libraries that is at "info" no more than warnings.
    """
    structlog.configure(
        processors=[*_DESCRIBED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    root = logging.getLogger()
    root.handlers = [handler for handler in root.handlers if not isinstance(handler, _Lines)]
    root.addHandler(_Lines(json=json))
    for name in OWN:
        logging.getLogger(name).setLevel(level.upper())
    root.setLevel("WARNING" if level == "info" else level.upper())


def catch_strays() -> None:
    """Let what Python itself would print from anywhere go the same way: a stack quotes what was being read."""
    log = logging.getLogger("tacet")

    def of_thread(hook: threading.ExceptHookArgs) -> None:
        log.error("a thread ended with an error", extra={"error": hook.exc_type.__name__})

    def of_collector(hook: sys.UnraisableHookArgs) -> None:
        log.warning("an error nobody could be told of", extra={"error": hook.exc_type.__name__})

    def of_warnings(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: object = None,
        line: str | None = None,
    ) -> None:  # fmt: skip
        log.warning("a warning of Python", extra={"error": category.__name__})

    threading.excepthook, sys.unraisablehook = of_thread, of_collector
    warnings.showwarning = of_warnings


def writes_json() -> bool:
    """Return whether each line on standard error is to be one JSON object."""
    return any(isinstance(handler, _Lines) and handler.json for handler in logging.getLogger().handlers)


def last_word(message: str) -> None:
    """Say why a command ends: a line of the log where that is JSON, else one line of text.

    What a message quotes, such as a path, may not talk to the terminal.
    """
    if writes_json():
        logging.getLogger("tacet").error("%s", message, extra={_LAST_WORD: True})
    else:
        click.echo(f"tacet: {_CONTROLS.sub(lambda found: repr(found[0])[1:-1], message)}", err=True)


class _Lines(logging.Handler):
    """Writes each record as one line to the present standard error."""

    def __init__(self, *, json: bool) -> None:
        super().__init__()
        self.json, self._rate = json, LogRate(time.monotonic)
        renderer: Any = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
        self.setFormatter(
            structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_DESCRIBED, processors=[_only_listed, renderer])
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, unless too many have said the same of late, and what is due of those that were left out."""
        for kind, count in self._rate.over():
            self._write(_counted(kind.logger, count))
        if getattr(record, _LAST_WORD, False) or self._rate.may_say(_kind(record)):
            self._write(record)

    def _write(self, record: logging.LogRecord) -> None:
        """Write one line; where its text cannot be put together, one that says no more than that."""
        try:
            line = self.format(_withheld(record) if _is_foreign(record) else record)
        except Exception:  # logging's own way is to print the arguments
            line = self.format(_withheld(record))
        click.echo(line, err=True)


def _kind(record: logging.LogRecord) -> Kind:
    """Return of which kind a line is: by its text, and by what it is about where structlog writes it with fields."""
    if isinstance(said := record.msg, dict):
        about = "/".join(str(said.get(name)) for name in ("site", "reason", "address", "partition"))
        return Kind(record.name, str(said.get("event")), about)
    return Kind(record.name, f"{record.pathname}:{record.lineno}", "")


def _counted(name: str, count: int) -> logging.LogRecord:
    told = {"name": name, "levelno": logging.WARNING, "levelname": "WARNING", "msg": LEFT_OUT, "count": count}
    return logging.makeLogRecord(told)


def _is_foreign(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] not in OWN


def _withheld(record: logging.LogRecord) -> logging.LogRecord:
    """Return a record that says of another one where it came from, and nothing of what it says."""
    errors = [arg for arg in record.args or () if isinstance(arg, BaseException)]
    kind = record.exc_info[0] if record.exc_info else type(errors[0]) if errors else None
    kept = {"name": record.name, "levelno": record.levelno, "levelname": record.levelname, "msg": WITHHELD}
    place = {"place": f"{record.filename}:{record.lineno}"}
    return logging.makeLogRecord(kept | place | ({"error": kind.__name__} if kind else {}))


def _kind_of_error(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Keep of an exception its type: text and stack may quote what was being read."""
    info = event.pop("exc_info", None)
    error = sys.exc_info()[1] if info is True else info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event.setdefault("error", type(error).__name__)
    return event


def _only_listed(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {name: value for name, value in event.items() if name in FIELDS}


_DESCRIBED: list[Any] = [
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(FIELDS),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    _kind_of_error,
]
"""What is said of every line, whoever wrote it."""


def report_shut(site: str) -> None:
    """Raise the alarm for a site that has shut at ``max_devices``."""
    structlog.get_logger("tacet.run").error(
        "site closed", site=site,
        reason="more devices than max_devices: 'tacet recover --reopen' (Kafka: 'tacet worker --reopen') lets it go on",
    )  # fmt: skip
