"""report: what released values say about a month."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from connectors.cli.options import FOLDER, NEW_FILE, origin_of, origin_options, run_async, storage_of
from connectors.documents.month import Month, MonthReader
from connectors.documents.report import SHARE, Report, month_report, report_languages
from connectors.documents.template import as_text
from connectors.runtime.clock import wall_clock
from connectors.storage.site_metadata import SiteMetadata, SitesMetadata
from connectors.subscribe.subscriber import Origin, read_metadata, subscribe
from stream.errors import UsageError
from stream.schemas import rfc3339
from stream.settings import Settings


class MonthType(click.ParamType):
    """A month, or ``last``."""

    name = "YYYY-MM"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Month:
        """Parse a month; ``last`` is the calendar month before this one (UTC)."""
        if isinstance(value, Month):
            return value
        try:
            return Month.parse(rfc3339(wall_clock())[:7]).before if value == "last" else Month.parse(value)
        except ValueError:
            self.fail(f"{value!r} must be a month such as 2026-03, or last", param, ctx)


def site_of(sites: SitesMetadata, name: str | None) -> SiteMetadata:
    """Return the metadata of a site; UsageError if the source has none of it, or several and none was named."""
    if name is None and len(sites) == 1:
        return next(iter(sites.values()))
    if name is None or name not in sites:
        got = "none" if name is None else repr(name)
        raise UsageError(f"--site: must be one of {', '.join(sites) or 'no site at all'}, got {got}")
    return sites[name]


async def report_of(origin: Origin, site: str | None, month: Month, language: str, share: float) -> Report:
    """Return the report of a month from an audience's released records."""
    known = site_of(await read_metadata(**storage_of(origin)), site)
    reader = MonthReader(known, month)
    async for body in subscribe(**origin, from_start=True, until_end=True):
        reader.add(body)
    return month_report(reader, origin["audience"], language=language, share=share)


@click.command()
@origin_options
@click.option("--month", type=MonthType(), required=True, help="The month, in the building's time zone; or last.")
@click.option("--site", help="The site; needed if there are several.")
@click.option(
    "--share", type=click.FloatRange(0.05, 1), default=SHARE, show_default=True,
    help="List rooms that were never above this share of their capacity.",
)  # fmt: skip
@click.option(
    "--language", type=click.Choice(report_languages()), default="en", show_default=True, help="Language of the words."
)
@click.option("--out", type=NEW_FILE, help="The HTML file to write.  [default: Markdown on standard output]")
@click.option("--folder", type=FOLDER, help="Write SITE-YYYY-MM.html to this folder; an earlier one is replaced.")
@click.pass_obj
def report(
    settings: Settings, /, *, month: Month, site: str | None, share: float, language: str, out: Path | None,
    folder: Path | None, **source: Any,
) -> None:  # fmt: skip
    """Write a month's report for a building's manager: one page that prints to two sheets.

    Busiest and quietest days and hours, a typical week, the change against the month before, rooms that were never
    above a share of their capacity, rooms that were often full. Its statements hold all together with a probability of
    95 %. It is made from released values alone and costs nothing.

    \b
    tacet report --month 2026-03 --store store --audience facilities --out march.html
    """
    if out is not None and folder is not None:
        raise click.UsageError("give either --out or --folder")
    made = run_async(report_of(origin_of(settings, **source), site, month, language, share))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        out = folder / f"{made.name}.html"
    if out is None:
        click.echo(as_text(made.markdown))
        return
    out.write_text(made.page, encoding="utf-8")
    click.echo(f"{out}: {made.title}")
