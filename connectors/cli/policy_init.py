"""policy init: from a list of access points, or in a laboratory a recording, to a policy that one can change."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from connectors.cli.options import FILE, NEW_FILE, progress
from connectors.operations.inventory.access_points import columns_of, read_inventory, recorded_access_points
from connectors.operations.inventory.contribution import recorded_contribution
from connectors.operations.inventory.policy_text import Building, policy_text
from connectors.operations.inventory.zones import Grouping, places_of
from connectors.sources.recordings.dialect import dialect_of
from stream.errors import UsageError
from stream.policy.fields import FEWEST_SHARED_BITS
from stream.release.validation import load_policy

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@click.command("init")
@click.option("--access-points", type=FILE, help="A list of access points (CSV; commas, semicolons or tabs).")
@click.option(
    "--columns",
    multiple=True,
    help="Which column means what: ap=Radio MAC,name=AP Name, of a recording device=mac,access_point=ap,time=when.",
)
@click.option("--controllers", help="Addresses of what sends, with commas between.")
@click.option("--from-observations", type=FILE, help="Laboratory: the access points of a recording instead.")
@click.option(
    "--group",
    type=click.Choice(["floor", "name", "access-point"]),
    default="floor",
    show_default=True,
    help="What makes a zone where the list has none: a floor, names of a floor that differ in the last part, or each "
    "access point.",
)
@click.option("--site", default="building", show_default=True, help="Of rows that name none.")
@click.option("--timezone", help="Of the building, such as Europe/Berlin.")
@click.option(
    "--shared-bits",
    type=click.IntRange(FEWEST_SHARED_BITS, 47),
    help="Traps give BSSIDs: so many bits they share with the address of the list, mostly 44.",
)
@click.option("--out", type=NEW_FILE, help="The policy file to write.  [default: standard output]")
def init(
    *, access_points: Path | None, columns: tuple[str, ...], controllers: str | None, from_observations: Path | None,
    group: Grouping, site: str, timezone: str | None, shared_bits: int | None, out: Path | None,
) -> None:  # fmt: skip
    """Write a policy with safe defaults for the access points of a list.

    The list is CSV with the columns ap (address), name, site, floor, zone, kind and capacity, of which only ap must
    be there; --columns names those of another system's export. Rows of one zone say the same floor, kind and
    capacity, or leave them empty; where there is no zone, the capacities of what is grouped add up. The policy
    publishes sums of floors and of the building, and zones that are made for enough people, paid by the day. A device
    counts for at most 12 h of a day; with --from-observations for what covers 99 % of the recording's device-days.
    Read it, mend what is marked CHECK, and let 'tacet policy show' say what it promises.

    \b
    tacet policy init --access-points aps.csv --columns 'ap=Radio MAC,name=AP Name,floor=Location' \\
        --controllers 10.2.0.5 --timezone Europe/Berlin --out building.toml
    """
    if (access_points is None) == (from_observations is None):
        raise click.UsageError("give either --access-points or --from-observations")
    _check_names(site, timezone)
    if access_points is not None:
        rows, unread = read_inventory(access_points, columns_of(columns))
        if unread:
            click.echo(f"{access_points}: columns not read: {', '.join(filter(None, unread))}", err=True)
        places = places_of(access_points, rows, site, group)
        made = policy_text(Building(places, _addresses(controllers), timezone, shared_bits))
    else:
        assert from_observations is not None  # noqa: S101
        dialect = dialect_of(columns)
        places = places_of(from_observations, recorded_access_points(from_observations, dialect), site, "access-point")
        building = Building(places, _addresses(controllers), timezone, shared_bits, "recording")
        first = load_policy(policy_text(building), "the policy of this recording")
        with progress("rows read") as tick:
            needed = recorded_contribution(from_observations, first, dialect, tick)
        made = policy_text(building if needed is None else replace(building, contribution=needed))
    load_policy(made, "the policy of this list")
    if out is None:
        click.echo(made, nl=False)
        return
    out.write_text(made, encoding="utf-8")
    zones = sum(map(len, places.values()))
    marked = sum("CHECK" in line for line in made.splitlines()) - 1
    click.echo(f"{out}: {zones} zone(s) at {len(places)} site(s), {marked} line(s) marked CHECK")


def _addresses(text: str | None) -> tuple[str, ...]:
    """Return the controllers; UsageError unless each is an address or a block."""
    found = tuple(part.strip() for part in text.split(",")) if text else ()
    for address in found:
        try:
            ipaddress.ip_network(address)
        except ValueError:
            rule = "must be addresses or blocks such as 10.2.0.5 or 10.2.0.0/16, with commas between"
            raise UsageError(f"--controllers: {rule}, got {address!r}") from None
    return found


def _check_names(site: str, timezone: str | None) -> None:
    if not _SITE.fullmatch(site):
        raise UsageError(f"--site: must be a name of letters, digits, points, hyphens and underscores, got {site!r}")
    try:
        ZoneInfo(timezone or "UTC")
    except (KeyError, ValueError, OSError):
        raise UsageError(f"--timezone: must be a name such as Europe/Berlin, got {timezone!r}") from None
