"""Logs to standard error, with fields from a fixed list only.

The text of this project's own loggers is written: by the project's rule no text contains an observation, a count or a
secret. The text of a library is never written: it may quote keys, values, or an object's repr, and that changes from
release to release. Such a line contains level, logger, the kind of error, and the place in the library's source, where
its text can be looked up.

Lines of one kind are limited in number (``LogRate``): an error with every message must not fill a disk, nor hide other
lines.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import click
import structlog

AT_ONCE = 20
"""Maximum number of lines of one kind ..."""
PERIOD = 60.0
"""... within so many seconds; the number of the others is logged."""
KINDS = 1000
"""Number of kinds that are distinguished; beyond it the one that began first is forgotten."""


class Kind(NamedTuple):
    """The identity of lines of one kind."""

    logger: str
    text: str
    """The text before arguments are inserted."""
    about: str
    """A field such as the site, which distinguishes two lines."""


@dataclass(slots=True)
class _LineCount:
    since: float
    times: int = 0


class LogRate:
    """Counts lines by kind."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds and never goes back."""
        self._clock = clock
        self._counts: OrderedDict[Kind, _LineCount] = OrderedDict()

    def allow(self, kind: Kind) -> bool:
        """Count a line; return whether it may be written."""
        logged = self._counts.get(kind)
        if logged is None:
            logged = self._counts[kind] = _LineCount(self._clock())
            if len(self._counts) > KINDS:
                self._counts.popitem(last=False)
        logged.times += 1
        return logged.times <= AT_ONCE

    def over(self) -> Iterator[tuple[Kind, int]]:
        """Yield each kind whose period is over and of which lines were left out, with their number.

        Then its period restarts.
        """
        now = self._clock()
        for kind in [kind for kind, logged in self._counts.items() if now - logged.since >= PERIOD]:
            times = self._counts.pop(kind).times
            if times > AT_ONCE:
                yield kind, times - AT_ONCE


FIELDS = frozenset(
    {
        "event", "level", "timestamp", "logger", "place",
        "asked", "granted", "raise_with", "site", "partition", "partitions", "window", "topic",
        "release", "audience", "reason", "address", "port", "datagrams", "accepted", "dropped",
        "kernel_drops", "windows", "offset", "version", "policy", "count", "seconds", "error", "rule",
    }
)  # fmt: skip
"""The fields that a log line may contain; all others are removed before it is written."""

OWN = frozenset({"tacet", "connectors", "stream"})
"""First words of the names of loggers whose text is written."""

_FINAL_LINE = "is_last_word"
"""Marks the line with the reason why a command ends, which is always written."""

_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that move a terminal's cursor or change the text's direction, except for line ends."""

WITHHELD = "text withheld"
"""Replaces a text that comes from a library, or that could not be formatted."""

LEFT_OUT = "lines left out"
"""The text of a line with the number of lines of one kind that were not written."""


def configure(level: str, *, json: bool) -> None:
    """Send structlog and the standard library's loggers to standard error, in one form.

    ``level`` is the lowest level that is written; of libraries at "info" only warnings are.
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
    """Send everything that Python itself would print to the log as well: a stack trace quotes the data being read."""
    log = logging.getLogger("tacet")

    def of_thread(hook: threading.ExceptHookArgs) -> None:
        log.error("a thread ended with an error", extra={"error": hook.exc_type.__name__})

    def of_collector(hook: sys.UnraisableHookArgs) -> None:
        log.warning("an error could not be raised", extra={"error": hook.exc_type.__name__})

    def of_warnings(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: object = None,
        line: str | None = None,
    ) -> None:  # fmt: skip
        log.warning("a warning of Python", extra={"error": category.__name__})

    threading.excepthook, sys.unraisablehook = of_thread, of_collector
    warnings.showwarning = of_warnings


def writes_json() -> bool:
    """Return whether each line on standard error is one JSON object."""
    return any(isinstance(handler, _Lines) and handler.json for handler in logging.getLogger().handlers)


def report_end(message: str) -> None:
    """Report why a command ends: a line of the log if that is JSON, else one line of text.

    Control characters in the message, for example in a path, are removed.
    """
    if writes_json():
        logging.getLogger("tacet").error("%s", message, extra={_FINAL_LINE: True})
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
        """Write one line, unless too many of its kind were written recently, and then the due numbers of left-out
        lines.
        """
        for kind, count in self._rate.over():
            self._write(_counted(kind.logger, count))
        if getattr(record, _FINAL_LINE, False) or self._rate.allow(_kind(record)):
            self._write(record)

    def _write(self, record: logging.LogRecord) -> None:
        """Write one line; if its text cannot be formatted, a line that says only that."""
        try:
            line = self.format(_withheld(record) if _is_foreign(record) else record)
        except Exception:  # logging's own handler would print the arguments
            line = self.format(_withheld(record))
        click.echo(line, err=True)


def _kind(record: logging.LogRecord) -> Kind:
    """Return the kind of a line: its text, and its distinguishing field if structlog writes it with fields."""
    if isinstance(message := record.msg, dict):
        about = "/".join(str(message.get(name)) for name in ("site", "reason", "address", "partition"))
        return Kind(record.name, str(message.get("event")), about)
    return Kind(record.name, f"{record.pathname}:{record.lineno}", "")


def _counted(name: str, count: int) -> logging.LogRecord:
    fields = {"name": name, "levelno": logging.WARNING, "levelname": "WARNING", "msg": LEFT_OUT, "count": count}
    return logging.makeLogRecord(fields)


def _is_foreign(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] not in OWN


def _withheld(record: logging.LogRecord) -> logging.LogRecord:
    """Return a record that contains the origin of another one, and nothing of its text."""
    errors = [arg for arg in record.args or () if isinstance(arg, BaseException)]
    kind = record.exc_info[0] if record.exc_info else type(errors[0]) if errors else None
    fields = {"name": record.name, "levelno": record.levelno, "levelname": record.levelname, "msg": WITHHELD}
    place = {"place": f"{record.filename}:{record.lineno}"}
    return logging.makeLogRecord(fields | place | ({"error": kind.__name__} if kind else {}))


def _kind_of_error(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Reduce an exception to its type: text and stack may quote the data being read."""
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
"""The processors of every line, whatever its logger."""


def report_suspended_site(site: str) -> None:
    """Log the alarm for a site that was suspended at ``max_devices``."""
    structlog.get_logger("tacet.run").error(
        "site closed", site=site,
        reason="more devices than max_devices: 'tacet recover --reopen' (Kafka: 'tacet worker --reopen') resumes it; "
        "restart an ingest that reports site_shut",
    )  # fmt: skip
