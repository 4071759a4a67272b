"""Where a verb's observations come from: ``--udp`` or ``--observations``."""

from __future__ import annotations

from functools import update_wrapper
from pathlib import Path
from typing import Any, cast

import click

from connectors.commands.options import FILE, Address, F, Speed
from connectors.files.dialect import OWN, Dialect, dialect_of


def source_options(function: F) -> F:
    """Add what observations come from: ``--udp`` or ``--observations``, and how fast."""
    for option in (
        click.option("--speed", type=Speed(), default="max", show_default=True, help="For a file: times real time."),
        click.option("--observations", type=FILE, help="Read a file instead of listening."),
        click.option("--udp", type=Address(), help="Listen for SNMP traps on HOST:PORT."),
    ):
        function = option(function)
    return function


def dialect_options(function: F) -> F:
    """Add how a recording writes what it saw: four options, which make one argument ``dialect``."""

    def with_dialect(*args: Any, columns: Any, timezone: Any, times: Any, devices: Any, **more: Any) -> Any:
        return function(*args, dialect=dialect_of(columns, timezone, times, devices), **more)

    made = update_wrapper(with_dialect, function)
    for option in (
        click.option(
            "--devices",
            type=click.Choice(["address", "opaque"]),
            default="address",
            show_default=True,
            help="opaque: devices of the recording have ids that are no addresses.",
        ),
        click.option(
            "--times",
            type=click.Choice(["rfc3339", "seconds", "milliseconds"]),
            default="rfc3339",
            show_default=True,
            help="How the recording writes times: seconds or milliseconds are since 1970.",
        ),
        click.option("--timezone", help="Of the recording's times without an offset.  [default: the site's]"),
        click.option("--columns", multiple=True, help="The recording's columns: device=mac,access_point=ap,time=when."),
    ):
        made = option(made)
    return cast(F, made)


def refuse_dialect(dialect: Dialect) -> None:
    """Refuse that a recording's dialect is declared where there is no recording."""
    if dialect != OWN:
        raise click.UsageError("--columns, --timezone, --times, --devices: must go with --observations")


def chosen(udp: tuple[str, int] | None, observations: Path | None, dialect: Dialect = OWN) -> tuple[str, int] | Path:
    """Return the one that is given; a usage error where it is neither or both, or traps have a file's dialect."""
    if observations is None:
        refuse_dialect(dialect)
    if udp is not None and observations is None:
        return udp
    if observations is not None and udp is None:
        return observations
    raise click.UsageError("give either --udp or --observations")
