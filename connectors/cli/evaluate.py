"""evaluate: experiments on data whose truth is known. Each is a subcommand, imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import cast

import click

EXPERIMENTS = {
    "decisions": "connectors.cli.evaluate_decisions",
    "tasks": "connectors.cli.evaluate_tasks",
}
"""Experiment -> the module that has it, as a function of that name."""


class _Experiments(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(EXPERIMENTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in EXPERIMENTS:
            return None
        return cast(click.Command, getattr(import_module(EXPERIMENTS[cmd_name]), cmd_name))


@click.group(cls=_Experiments)
def evaluate() -> None:
    """Experiments on simulated data: how good private answers are, beside the truth and published figures."""
