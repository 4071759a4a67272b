"""subscribe: print an audience's releases as they arrive."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from connectors.cli.options import FILE, json_option, origin_of, origin_options, run_async
from connectors.cli.output import print_json
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.nodes import node_values
from connectors.subscribe.order import Release
from connectors.subscribe.subscriber import subscribe as follow
from stream.records import JsonObject
from stream.settings import Settings

SAVE_EVERY = 1.0
"""Seconds between two saves of a cursor; after a crash the releases shown since the last save are shown again."""


@click.command()
@origin_options
@click.option("--from-start", is_flag=True, help="Start with the first stored record.")
@click.option("--after", metavar="RELEASE_ID", help="Start after this release.")
@click.option("--cursor", "cursor_file", type=FILE, help="Resume at the position in this file, and update it.")
@click.option("--until-end", is_flag=True, help="Stop after the last record that exists now.")
@json_option
@click.pass_obj
def subscribe(
    settings: Settings, *, audience: str, release: str | None, store: Path | None, kafka: str | None,
    url: str | None, token_file: Path | None, from_start: bool, after: str | None, cursor_file: Path | None,
    until_end: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print private releases as they arrive: each once, and those of a site in the order of windows.

    \b
    tacet subscribe --store store --audience facilities --from-start
    tacet subscribe --kafka broker:9092 --audience public --json | jq .values
    """
    source = origin_of(settings, audience=audience, release=release, store=store, kafka=kafka, url=url,
                       token_file=token_file)  # fmt: skip
    cursor = None if cursor_file is None else Cursor(cursor_file)

    async def show() -> int:
        printed, saved = 0, time.monotonic()
        async for record in follow(**source, from_start=from_start, after=after, cursor=cursor, until_end=until_end):
            print_json(record) if as_json else click.echo(one_line(record))
            printed += 1
            if cursor is not None and time.monotonic() - saved > SAVE_EVERY:
                cursor.save()
                saved = time.monotonic()
        return printed

    try:
        with suppress(KeyboardInterrupt):
            if not run_async(show()) and not (from_start or after or cursor):
                click.echo(
                    "tacet: --until-end without --from-start or --after starts and ends at the present", err=True
                )
    finally:
        if cursor is not None:
            cursor.save()


def _by_node(levels: JsonObject) -> JsonObject:
    """Return floors and building by name, for a record that lists no zones."""
    floors = {f"floor {name}": number for name, number in levels.get("floor", {}).items()}
    return floors | ({"building": levels["building"]} if "building" in levels else {})


def _alerts(record: Release) -> str:
    """Return the nodes with an alert, and those without an answer."""
    alerts = [node for node, above in record["above"].items() if above]
    unanswered = [f"{node} not answered ({why})" for node, why in record["denied"].items()]
    summary = f"{record['alert']}: {', '.join(alerts)}" if alerts else f"none {record['alert']}"
    return "; ".join([summary, *unanswered])


def _next_hour(record: Release) -> Iterator[str]:
    """Yield what a forecast says of its first hour, by node."""
    value, low, high = ({**_by_node(record[part])} for part in ("forecast", "low", "high"))
    for name, hours in value.items():
        if hours[0] is not None:
            yield f"{name} {hours[0]} ({low[name][0]} to {high[name][0]})"


def one_line(record: Release) -> str:
    """Return a release as a line for people."""
    mark = "  (laboratory)" if record["laboratory"] else ""
    if "attribute" in record:
        what = record["value"] if record["released"] else "not shown"
        text = f"{record['day']} {record['zone']} {record['attribute']}: {what}"
    elif "above" in record and record["released"]:
        text = f"{record['window_end']} {_alerts(record)}"
    elif record.get("counted") == "people" and (record["released"] or record["unknown"]):
        known = (f"{each.node} {each.value} ({each.low} to {each.high})" for each in node_values(record))
        unknown = (f"{node} not known ({why})" for node, why in record["unknown"].items())
        named = "people (provisional)" if "provisional" in record else "people"
        text = f"{record['window_end']} {named}: {'  '.join([*known, *unknown])}"
    elif "forecast" in record and record["released"]:
        text = f"{record['window_end']} forecast: {'  '.join(_next_hour(record))}"
    elif record["released"]:
        if record["values"]:
            values, widths = record["values"], record["half_width_95"] or {}
        else:
            values, widths = _by_node(record["levels"]), _by_node(record["levels_half_width_95"])
        listed = "  ".join(
            f"{name} {value}" + (f"±{widths[name]:g}" if name in widths else "") for name, value in values.items()
        )
        text = f"{record['window_end']} {listed}"
    else:
        text = f"{record['window_end']} not released: {record['reason']}"
    return f"{record['site']}/{record['release']}  {text}  ε {record['spend']}{mark}"
