"""Every command of the command line, lazily loaded ones included."""

from __future__ import annotations

import click


def subcommands(group: click.Group) -> dict[str, click.Command]:
    """Return name -> command of one group; fails where a name that is listed leads nowhere."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    missing = [name for name, command in found.items() if command is None]
    assert not missing, f"listed, but not there: {missing}"
    return {name: command for name, command in found.items() if command is not None}


def all_commands(group: click.Group, *path: str) -> dict[tuple[str, ...], click.Command]:
    """Return every group and verb below a group, by the words that lead to it."""
    found: dict[tuple[str, ...], click.Command] = {}
    for name, command in subcommands(group).items():
        found[*path, name] = command
        if isinstance(command, click.Group):
            found |= all_commands(command, *path, name)
    return found


def all_verbs(group: click.Group) -> dict[str, click.Command]:
    """Return every command that does something, by its words joined with spaces."""
    found = all_commands(group).items()
    return {" ".join(path): each for path, each in found if _does_something(each)}


def _does_something(command: click.Command) -> bool:
    return not isinstance(command, click.Group) or command.invoke_without_command
