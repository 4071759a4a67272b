"""Progress where nobody looks at a terminal: a line on standard error every ten seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

EVERY = 10.0
"""Seconds between two lines; what is done sooner says nothing."""


@dataclass(slots=True)
class Came:
    """How far something has come."""

    what: str
    total: int | None = None
    done: int | None = None

    def to(self, done: int, *_: object) -> None:
        """Take note of how much is done."""
        self.done = done

    def line(self, seconds: float) -> str:
        """Return the line to print after so many seconds."""
        share = "" if self.done is None else f"{self.done:,}" + ("" if self.total is None else f" of {self.total:,}")
        return f"tacet: {self.what}: {share + ', ' if share else ''}{seconds:.0f} s"


@contextmanager
def reporting(came: Came, every: float = EVERY) -> Iterator[None]:
    """Print a line every so many seconds until the block ends."""
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
