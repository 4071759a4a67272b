"""Tables for people: light lines, numbers to the right, nothing cut off at 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table


def table(title: str, words: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """Return an empty table: its columns of words, then its columns of numbers."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    for name in words:
        made.add_column(name, overflow="fold")
    for name in numbers:
        made.add_column(name, justify="right", overflow="fold")
    return made
