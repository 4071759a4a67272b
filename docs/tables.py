"""Write the tables of commands and metrics in docs/reference from the code (``make docs``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from connectors.cli.main import SECTIONS, tacet
from connectors.monitoring.catalogue import METRICS, Nature

REFERENCE = Path(__file__).parent / "reference"


def pages() -> dict[Path, str]:
    """Return the documents that hold a table, with the table as the code has it now."""
    made = {"commands": _commands(), "metrics": _metrics()}
    return {path: _with_part(path.read_text(), name, text) for name, text in made.items()
            for path in [REFERENCE / f"{name}.md"]}  # fmt: skip


def _with_part(page: str, name: str, text: str) -> str:
    before, start, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    return before + start + text + end + after


def _commands() -> str:
    context = click.Context(tacet)
    rows = ["| section | commands |", "|---|---|"]
    for section, verbs in SECTIONS.items():
        commands = [(name, tacet.get_command(context, name)) for name in verbs]
        found = ", ".join(f"`{words}`" for name, each in commands if each is not None for words in _words(each, name))
        rows.append(f"| {section} | {found} |")
    return "\n".join(rows) + "\n"


def _words(command: click.Command, words: str) -> Iterator[str]:
    """Yield what a reader types for a command, or for each command of a group."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            if each is not None:
                yield from _words(each, f"{words} {name}")


def _metrics() -> str:
    rows = ["| values | metrics |", "|---|---|"]
    for nature in Nature:
        names = (f"`{metric.name}`" for metric in METRICS if metric.nature is nature)
        rows.append(f"| {nature.name.lower()} | {', '.join(names)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
