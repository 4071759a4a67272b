"""Tables for people, which fit 80 columns without truncation, and warnings about useless counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from connectors.operations.policy.quality import Quality


def table(title: str, words: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """Return an empty table, with its text columns first, then its number columns."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    for name in words:
        made.add_column(name, overflow="fold")
    for name in numbers:
        made.add_column(name, justify="right", overflow="fold")
    return made


# Warnings about counts that are farther from the truth than a constant.

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def utility_warning(release: str, audience: str, level: str, expected: Quality) -> str:
    """Return a warning that a level of a release is worse than a constant: which constant, and the consequence."""
    what = f"{release} for {audience}: {level}s of {people(expected.mean)} are not worth publishing at this price."
    mine = f"The mean error, {expected.error:.2f}, is more than"
    if expected.worse_than_zero:
        why = f"{mine} the mean count, {expected.mean:.2f}. Always saying 0 would be nearer to the truth."
    else:
        why = f"{mine} that of always saying the median, {expected.median:.2f}."
    return f"[bold]![/bold] {what} {why}"


def people(mean: float) -> str:
    """Return a mean count in words: ``three people``."""
    number = round(mean)
    if number < 1:
        return "less than one person"
    return f"{NUMBERS[number] if number < len(NUMBERS) else number} {'person' if number == 1 else 'people'}"
