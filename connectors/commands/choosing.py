"""Where a verb's observations come from: ``--udp`` or ``--observations``."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.commands.options import FILE, Address, F, Speed


def source_options(function: F) -> F:
    """Add what observations come from: ``--udp`` or ``--observations``, and how fast."""
    for option in (
        click.option("--speed", type=Speed(), default="max", show_default=True, help="For a file: times real time."),
        click.option("--observations", type=FILE, help="Read a file instead of listening."),
        click.option("--udp", type=Address(), help="Listen for SNMP traps on HOST:PORT."),
    ):
        function = option(function)
    return function


def chosen(udp: tuple[str, int] | None, observations: Path | None) -> tuple[str, int] | Path:
    """Return the one that is given; a usage error where it is neither or both."""
    if udp is not None and observations is None:
        return udp
    if observations is not None and udp is None:
        return observations
    raise click.UsageError("give either --udp or --observations")
