"""What verbs print: JSON, tables of 80 columns, progress, and warnings."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import orjson
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from connectors.operations.policy.quality import Quality

err = Console(stderr=True)


def print_json(value: Any) -> None:
    """Write one JSON object and a newline to standard output."""
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def table(title: str, words: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """Return an empty table, with its text columns first, then its number columns."""
    empty = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    for name in words:
        empty.add_column(name, overflow="fold")
    for name in numbers:
        empty.add_column(name, justify="right", overflow="fold")
    return empty


def report_drops(counted: Mapping[str, int], unknown: int, outside: int) -> None:
    """Print how many rows were dropped, by reason.

    Args:
        counted: rows that sensing dropped, by reason.
        unknown: rows whose access point is in no zone.
        outside: rows before ``--from`` or after ``--to``.
    """
    for reason, rows in sorted(counted.items()):
        click.echo(f"  {rows:>8,}  rows dropped: {reason.replace('_', ' ')}")
    if unknown:
        click.echo(f"  {unknown:>8,}  rows dropped: access point in no zone of the policy")
    if outside:
        click.echo(f"  {outside:>8,}  rows left out: outside --from and --to")


# Progress: a bar on a terminal, elsewhere a line on standard error every ten seconds.

LINE_SECONDS = 10.0
"""Seconds between two progress lines; shorter tasks print none."""


@dataclass(slots=True)
class TaskProgress:
    """How far a task has come."""

    what: str
    total: int | None = None
    done: int | None = None

    def update(self, done: int, total: int | None = None, what: str | None = None) -> None:
        """Record how much is done, the total if it is known, and the name of the pass if there are several."""
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
def progress_lines(task: TaskProgress, every: float = LINE_SECONDS) -> Iterator[None]:
    """Print a line periodically until the block ends."""
    ended, start = threading.Event(), time.monotonic()

    def report() -> None:
        while not ended.wait(every):
            click.echo(task.line(time.monotonic() - start), err=True)

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show a task's progress; yields the function that advances it."""
    if not err.is_terminal:
        task = TaskProgress(what, total)
        with progress_lines(task):
            yield task.update
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - only a terminal shows bars

    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True) as bars:
        bar = bars.add_task(what, total=total)

        def update(done: int, total: int | None = None, what: str | None = None) -> None:
            bars.update(bar, completed=done, total=total, description=what)

        yield update


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show that a task without measurable progress is running."""
    with err.status(f"{what} …") if err.is_terminal else progress_lines(TaskProgress(what)):
        yield


# Warnings about counts that are farther from the truth than a constant.

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def utility_warning(release: str, audience: str, level: str, expected: Quality) -> str:
    """Return a warning that a level of a release is worse than a constant: which constant, and the consequence."""
    what = f"{release} for {audience}: {level}s of {devices(expected.mean)} are not worth publishing at this price."
    error = f"The mean error, {expected.error:.2f}, is more than"
    if expected.worse_than_zero:
        why = f"{error} the mean count, {expected.mean:.2f}. Always saying 0 would be nearer to the truth."
    else:
        why = f"{error} that of always saying the median, {expected.median:.2f}."
    return f"[bold]![/bold] {what} {why}"


def devices(mean: float) -> str:
    """Return a mean count in words: ``three devices``."""
    number = round(mean)
    if number < 1:
        return "less than one device"
    return f"{NUMBERS[number] if number < len(NUMBERS) else number} {'device' if number == 1 else 'devices'}"
