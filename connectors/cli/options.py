"""Options, parameter types, policy reading and progress display that several verbs share."""

from __future__ import annotations

import asyncio
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from connectors.keys import key_files
from stream.errors import UsageError
from stream.policy.validation_errors import shown
from stream.records import Micros
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time
from stream.settings import Settings

# Progress without a terminal: a line on standard error every ten seconds.

EVERY = 10.0
"""Seconds between two progress lines; shorter tasks print none."""


@dataclass(slots=True)
class Came:
    """The progress of a task."""

    what: str
    total: int | None = None
    done: int | None = None

    def to(self, done: int, total: int | None = None, what: str | None = None) -> None:
        """Take note of how much is done, of how much where that is known, and in which pass if there are several."""
        self.done = done
        if total is not None:
            self.total = total
        if what is not None:
            self.what = what

    def line(self, seconds: float) -> str:
        """Return the progress line after some seconds."""
        share = "" if self.done is None else f"{self.done:,}" + ("" if self.total is None else f" of {self.total:,}")
        return f"tacet: {self.what}: {share + ', ' if share else ''}{seconds:.0f} s"


@contextmanager
def reporting(came: Came, every: float = EVERY) -> Iterator[None]:
    """Print a line periodically until the block ends."""
    over, begun = threading.Event(), time.monotonic()

    def report() -> None:
        while not over.wait(every):
            click.echo(came.line(time.monotonic() - begun), err=True)

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


class _NewFile(click.Path):
    """A new output file. Checks before any work is done that it does not exist and can be created."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an existing file, which would be overwritten; a pipe or a device is accepted."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.is_file():
            self.fail(f"{str(path)!r} must not exist yet; no file is written over", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{str(path)!r} must be in a folder that exists", param, ctx)
        return path


NEW_FILE = _NewFile(path_type=Path, dir_okay=False)
err = Console(stderr=True)
_PORT = re.compile(r"[0-9]{1,5}")
_SERVER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


class Time(click.ParamType):
    """An RFC 3339 time with a zone, as microseconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Micros:
        """Parse a time; the error shows the form."""
        try:
            return value if isinstance(value, int) else parse_time(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


class Address(click.ParamType):
    """HOST:PORT."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Split at the last colon."""
        if isinstance(value, tuple):
            return value
        host, colon, port = str(value).rpartition(":")
        if not colon or not _PORT.fullmatch(port) or not int(port) < 65_536:
            self.fail(f"{value!r} must be HOST:PORT, such as 127.0.0.1:1162", param, ctx)
        return host.strip("[]") or "127.0.0.1", int(port)


class Speed(click.ParamType):
    """Times real time, or ``max``."""

    name = "speed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        """Return None for ``max``."""
        if value is None or value == "max":
            return None
        try:
            speed = float(value)
        except ValueError:
            speed = 0.0
        if not 0 < speed < math.inf:
            self.fail(f"{value!r} must be a positive number or 'max'", param, ctx)
        return speed


def policy_option(function: F) -> F:
    """Add ``--policy``."""
    return click.option("--policy", "policy_file", type=FILE, required=True, help="The policy file (TOML).")(function)


def key_option(function: F) -> F:
    """Add ``--key-file``."""
    return click.option("--key-file", type=FILE, required=True, help="A key file made by 'tacet key create'.")(function)


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(function)


def windows_options(function: F) -> F:
    """Add ``--from`` and ``--to``."""
    to = click.option(
        "--to", "last_window", type=Time(), callback=_in_order, help="Release no window after this time."
    )  # fmt: skip
    since = click.option(
        "--from", "first_window", type=Time(), callback=_in_order, help="Release no window before this time."
    )  # fmt: skip
    return since(to(function))


def _in_order(ctx: click.Context, param: click.Parameter, value: Micros | None) -> Micros | None:
    """Return the value; a usage error if ``--from`` is later than ``--to``, in whichever order they were given."""
    both = {**ctx.params, str(param.name): value}
    first, last = both.get("first_window"), both.get("last_window")
    if first is not None and last is not None and first > last:
        raise click.UsageError("--from: must not be later than --to")
    return value


def read_policy(path: Path) -> Policy:
    """Load and validate a policy, guarantees included."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        msg = f"{path}: policy cannot be read ({error.strerror})"
        raise UsageError(msg) from None
    except UnicodeDecodeError:
        msg = f"{path}: policy must be text in UTF-8"
        raise UsageError(msg) from None
    return load_policy(text, str(path), lambda name: _attached(path.parent / name))


def _attached(path: Path) -> str:
    """Return the text of a file that a policy names; ValueError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        msg = f"file cannot be read ({error.strerror})"
        raise ValueError(msg) from None
    except UnicodeDecodeError:
        msg = "file must be text in UTF-8"
        raise ValueError(msg) from None


def on_grid(policy: Policy, time: Micros | None, *, up: bool) -> Micros | None:
    """Return the tick at or after (``up``) or at or before a time."""
    if time is None:
        return None
    tick_length = max(site.tick for site in policy.site.values())
    return -(-time // tick_length) * tick_length if up else time // tick_length * tick_length


def public_range(
    key_file: Path, policy: Policy, first: Micros | None, last: Micros | None
) -> tuple[Micros | None, Micros | None]:
    """Return the range of a recording, on the grid.

    Raises:
        UsageError: an end is missing under a production key: the rows, and so people, would decide which windows
            exist.
    """
    for name, given in (("--from", first), ("--to", last)):
        if given is None and not key_files.is_laboratory(key_file):
            msg = (
                f"{name}: must be given for a recording under a production key; otherwise its rows, and so people, "
                "would decide which windows are released"
            )
            raise UsageError(msg)
    return on_grid(policy, first, up=True), on_grid(policy, last, up=False)


def print_json(value: Any) -> None:
    """Write one JSON object and a newline to standard output."""
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def report_drops(counted: Mapping[str, int], unknown: int, outside: int) -> None:
    """Print how many rows sensing dropped, by reason, and how many of no zone or no window were left out."""
    from connectors.sources.recordings.observations import NO_DROPS  # noqa: PLC0415 - loads what reads sources

    for reason, rows in sorted(counted.items()):
        if reason not in NO_DROPS:
            click.echo(f"  {rows:>8,}  rows dropped: {reason.replace('_', ' ')}")
    if unknown:
        click.echo(f"  {unknown:>8,}  rows dropped: access point in no zone of the policy")
    if outside:
        click.echo(f"  {outside:>8,}  rows left out: outside --from and --to")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(work)


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show a task's progress; yields the function that advances it.

    On a terminal a bar, elsewhere a line every ten seconds.
    """
    if not err.is_terminal:
        came = Came(what, total)
        with reporting(came):
            yield came.to
        return
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True) as bars:
        task = bars.add_task(what, total=total)

        def to(done: int, total: int | None = None, what: str | None = None) -> None:
            bars.update(task, completed=done, total=total, description=what)

        yield to


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show that a task without measurable progress is running."""
    with err.status(f"{what} …") if err.is_terminal else reporting(Came(what)):
        yield


def bootstrap(settings: Settings, given: str | None) -> str:
    """Return the bootstrap servers from the option or the environment; an empty variable counts as unset.

    From then on the process waits for brokers according to the settings.
    """
    from connectors.storage.kafka.aiokafka_client import BROKERS  # noqa: PLC0415 - loads a client of Kafka

    BROKERS.go_by(settings.session_timeout)
    servers = given or settings.kafka
    if not servers:
        msg = "--kafka: must be given, or TACET_KAFKA set"
        raise UsageError(msg)
    for server in servers.split(","):
        match = _SERVER.fullmatch(server.strip())
        if match is None or not 0 < int(match[1]) < 65_536:
            name = "--kafka" if given else "TACET_KAFKA"
            # Credentials are not supported here, so the address is not printed either.
            msg = f"{name}: must be HOST:PORT, or several with commas between{shown(server.rpartition('@')[2])}"
            raise UsageError(msg)
    return servers


def refuse_unknown(policy: Policy, reopened: Iterable[str]) -> None:
    """Refuse to reopen a site that the policy does not have."""
    for site in reopened:
        if site not in policy.site:
            msg = f"--reopen: must name a site of the policy ({', '.join(policy.site)}), got {site!r}"
            raise UsageError(msg)
