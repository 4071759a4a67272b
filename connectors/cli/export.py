"""export: expose releases to programs that poll."""

from __future__ import annotations

from typing import Any

import click

from connectors.cli.options import Address, VerbGroup, origin_of, origin_options, run_async, until_stopped
from connectors.cli.sink import library
from connectors.subscribe.subscriber import subscribe
from stream.errors import UsageError
from stream.settings import Settings


@click.group(cls=VerbGroup)
def export() -> None:
    """Expose releases as metrics."""


@export.command()
@origin_options
@click.option("--listen", type=Address(), default="127.0.0.1:9105", show_default=True, help="Address to serve.")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="A host name that requests may use, besides addresses, localhost and this machine's name. May be repeated.",
)
@click.pass_obj
def prometheus(settings: Settings, /, *, listen: tuple[str, int], names: tuple[str, ...], **source: Any) -> None:
    """Expose the latest releases of an audience as Prometheus metrics, each value with its band.

    Anyone who can reach the address can read these releases.

    \b
    tacet export prometheus --store store --audience facilities
    """
    with library("export prometheus"):
        from connectors.sinks.prometheus import LatestReleases, serve  # noqa: PLC0415
    origin, latest = origin_of(settings, **source), LatestReleases()
    try:
        server = serve(latest, listen, names)
    except OSError as error:
        msg = (
            f"--listen: must be a free address of this machine, got {listen[0]}:{listen[1]} ({error.strerror or error})"
        )
        raise UsageError(msg) from None
    click.echo(f"http://{listen[0]}:{server.address[1]}/metrics")

    async def follow() -> None:
        async for record in subscribe(**origin, from_start=True):
            latest.update(record)

    try:
        run_async(until_stopped(follow()))
    finally:
        server.close()
