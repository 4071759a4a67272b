"""Write the tables of commands and metrics in docs/reference from the code (``make docs``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from connectors.cli.main import SECTIONS, tacet
from connectors.monitoring.catalogue import EVERYONE, METRICS

REFERENCE = Path(__file__).parent / "reference"
ORDER = ("run", "ingest", "worker", "serve", "hooks", "poll")
"""Commands with ``--metrics``, in the order in which a row names them."""


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
    rows = ["| command | does |", "|---|---|"]
    for section, verbs in SECTIONS.items():
        rows.append(f"| **{section}** | |")
        for name in verbs:
            command = tacet.get_command(context, name)
            if command is not None:
                rows += _rows(command, f"tacet {name}")
    return "\n".join(rows) + "\n"


def _rows(command: click.Command, words: str) -> Iterator[str]:
    if not isinstance(command, click.Group) or command.invoke_without_command:
        context = click.Context(command)
        arguments = [each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)]
        yield f"| `{_cell(' '.join([words, *arguments]))}` | {_cell(command.get_short_help_str(limit=1000))} |"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            if each is not None:
                yield from _rows(each, f"{words} {name}")


def _metrics() -> str:
    rows = [
        "| metric | kind | what | labels | follows from | when it changes | shown by |",
        "|---|---|---|---|---|---|---|",
    ]
    for metric in METRICS:
        verbs = "all" if metric.verbs == EVERYONE else ", ".join(verb for verb in ORDER if verb in metric.verbs)
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        words = (metric.kind, _cell(metric.help), labels, metric.nature.name.lower(), _cell(metric.changes), verbs)
        rows.append(f"| `{metric.name}` | {' | '.join(words)} |")
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.removesuffix(".").replace("|", "\\|")


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
