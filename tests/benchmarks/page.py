"""The document of measured figures: one section for each benchmark, replaced when that benchmark has run."""

from __future__ import annotations

import re
from pathlib import Path

from tests.benchmarks.shared import Figure


def update(page: Path, title: str, conditions: str, figures: list[Figure]) -> None:
    """Replace the section of a benchmark, or append it; everything else in the document stays."""
    text = page.read_text()
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    start, end = found.span() if found else (len(text), len(text))
    before = text[:start].rstrip() + "\n\n"
    after = "\n" + text[end:] if text[end:] else ""
    page.write_text(before + section(title, conditions, figures) + after)


def section(title: str, conditions: str, figures: list[Figure]) -> str:
    """Return a benchmark's section: the conditions and a table of its figures, but for those that are only printed."""
    shown = [figure for figure in figures if not figure.aside]
    noted = any(figure.note for figure in shown)
    rows = [
        f"| {cell(figure.name)} | {number(figure.value)} {cell(figure.unit)} | {cell(figure.goal)}"
        f"{'' if figure.met else ' (missed)'} |{f' {cell(figure.note)} |' if noted else ''}"
        for figure in shown
    ]
    head = ["| measured | value | goal |" + " |" * noted, "|---|---|---|" + "---|" * noted]
    return "\n".join([f"## {title}\n", f"{conditions}\n", *head, *rows, ""])


def number(value: float) -> str:
    """Return three digits, or all of a large number's."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def cell(text: str) -> str:
    """Return a text that does not end its cell."""
    return text.replace("|", "\\|")
