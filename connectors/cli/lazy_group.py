"""A group of commands whose help is printed, by sections, without loading their modules."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple, cast

import click


class Verb(NamedTuple):
    """Where a command is, and what a list of commands says of it."""

    module: str
    """It has the command as a function of the same name, with _ for each -."""
    help: str
    """How the command's own text begins."""


Sections = Mapping[str, Mapping[str, Verb]]
"""Title -> name of a command -> where it is; all in the order in which they are listed."""


class LazyGroup(click.Group):
    """Loads the module of a command when it is asked for: most need neither Kafka nor SciPy."""

    def __init__(self, *arguments: Any, sections: Sections, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sections = sections
        self._verbs = {name: verb for verbs in sections.values() for name, verb in verbs.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, its module loaded; None where there is none of this name."""
        if cmd_name not in self._verbs:
            return None
        return cast(click.Command, getattr(import_module(self._verbs[cmd_name].module), cmd_name.replace("-", "_")))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, section by section."""
        width = max(map(len, self._verbs))
        for title, verbs in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), verb.help) for name, verb in verbs.items()])
