"""policy: write, check, show, plan, and compare policies."""

from __future__ import annotations

import ipaddress
import re
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from zoneinfo import ZoneInfo

import click

from connectors.cli.options import (
    FILE,
    FOLDER,
    NEW_FILE,
    VerbGroup,
    dialect_options,
    json_option,
    read_policy,
    refuse_dialect,
)
from connectors.cli.output import print_json, progress, working
from connectors.cli.policy_tables import print_difference, print_guarantees, print_plan
from connectors.operations.inventory.access_points import columns_of, read_inventory, recorded_access_points
from connectors.operations.inventory.policy_text import SUMS, Building, names_text, policy_text
from connectors.operations.inventory.zones import Grouping, places_of
from connectors.operations.policy.contribution_loss import Stays, simulated_stays, stays_of
from connectors.operations.policy.contribution_loss import losses as losses_of
from connectors.operations.policy.diff import difference
from connectors.operations.policy.guarantee_figures import guarantee_figures
from connectors.sources.recordings.dialect import Dialect, dialect_of
from stream.errors import DataError, PolicyError, UsageError
from stream.policy.counts import Count, CountRelease
from stream.policy.fields import FEWEST_SHARED_BITS, duration_text, is_cloud
from stream.policy.polls import IN_CLOUD, ON_PREMISES, PollTable
from stream.records import ObservationBatch
from stream.release.validation import Policy, load_policy

if TYPE_CHECKING:
    from connectors.operations.policy.comparison import ComparedLevel
    from connectors.operations.policy.plan import Plan, Targets
    from connectors.operations.policy.quality import Windows


@click.group(cls=VerbGroup)
def policy() -> None:
    """Write, check and compare policies, and print their guarantees and costs."""


# policy init

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@policy.command("init")
@click.option("--access-points", type=FILE, help="A list of access points (CSV; commas, semicolons or tabs).")
@click.option(
    "--columns",
    multiple=True,
    help="Names of columns: ap=Radio MAC,name=AP Name; in a recording device=mac,access_point=ap,time=when.",
)
@click.option("--controllers", help="Addresses or blocks that send traps, or are polled, separated by commas.")
@click.option(
    "--poll",
    type=click.Choice(get_args(PollTable)),
    help="Also write a poll of this client table for each of --controllers, with its probe.",
)
@click.option("--snmp-user", help="With --poll: the user for SNMPv3.  [default: SNMPv2c]")
@click.option("--from-observations", type=FILE, help="Laboratory: a recording to take the access points from.")
@click.option(
    "--group",
    type=click.Choice(["floor", "name", "access-point"]),
    default="floor",
    show_default=True,
    help="How to form zones if the list has none: one per floor, one per group of names that differ in the last part, "
    "or one per access point.",
)
@click.option("--site", default="building", show_default=True, help="The site of rows that name none.")
@click.option("--timezone", help="The building's time zone, such as Europe/Berlin.")
@click.option(
    "--shared-bits",
    type=click.IntRange(FEWEST_SHARED_BITS, 47),
    help="If traps contain BSSIDs: how many bits they share with the listed address, usually 44.",
)
@click.option(
    "--count",
    type=click.Choice(get_args(Count)),
    help="What floors and building pay for.  [default: at each level what has the smaller error]",
)
@click.option("--out", type=NEW_FILE, help="The policy file to write.  [default: standard output]")
def init(
    *, access_points: Path | None, columns: tuple[str, ...], controllers: str | None, poll: PollTable | None,
    snmp_user: str | None, from_observations: Path | None, group: Grouping, site: str, timezone: str | None,
    shared_bits: int | None, count: Count | None, out: Path | None,
) -> None:  # fmt: skip
    """Write a policy with safe defaults for the access points of a list.

    The list is CSV with the columns ap (address), name, site, floor, zone, kind and capacity. Only ap is required;
    --columns maps the column names of another system's export. Rows of the same zone must agree on floor, kind and
    capacity, or leave them empty. If zones are formed by --group, capacities add up.

    The policy publishes counts of floors and of the building, and of zones that have room for enough people, charged
    per day. Floors and the building pay each for ticks or for changes, whichever has the smaller error in the working
    hours of a day at desks; where zones are of the kinds classroom, open or corridor, of the simulated day. Of ticks, a
    device counts for at most 12 h of a day; with --from-observations, for long enough to cover 99 % of the recording's
    device-days. Read the policy, correct the lines marked CHECK, and run 'tacet policy show'.

    With --poll, 'tacet poll' reads who is associated from the controllers. Credentials stand in files of their own,
    never in the policy.

    With --out FILE.toml, FILE.names.toml has the names of the site, its floors and zones: correct them at any time.

    \b
    tacet policy init --access-points aps.csv --columns 'ap=Radio MAC,name=AP Name,floor=Location' \\
        --controllers 10.2.0.5 --timezone Europe/Berlin --out building.toml
    """
    from connectors.operations.inventory.contribution import recorded_contribution  # noqa: PLC0415 - reads recordings

    if (access_points is None) == (from_observations is None):
        raise click.UsageError("give either --access-points or --from-observations")
    _check_names(site, timezone)
    names = None if out is None or out.exists() else out.with_suffix(".names.toml")  # a pipe or a device exists
    if names is not None and names.exists():
        raise UsageError(f"--out: {names} must not exist yet; no file is overwritten")
    if access_points is not None:
        rows, unread = read_inventory(access_points, columns_of(columns))
        if unread:
            click.echo(f"{access_points}: columns not read: {', '.join(filter(None, unread))}", err=True)
        places = places_of(access_points, rows, site, group)
        sources = _addresses(controllers, poll)
        _check_poll(poll, snmp_user, sources, len(places))
        building = Building(places, sources, timezone, shared_bits, poll=poll, user=snmp_user)
        building = _preferred(building, count)
    else:
        assert from_observations is not None  # noqa: S101
        if poll is not None:
            raise click.UsageError("--poll: must be given with --access-points")
        dialect = dialect_of(columns)
        places = places_of(from_observations, recorded_access_points(from_observations, dialect), site, "access-point")
        building = Building(places, _addresses(controllers), timezone, shared_bits, "recording")
        draft = load_policy(policy_text(building), "the policy of this recording")
        with progress("rows read") as advance:
            contribution = recorded_contribution(from_observations, draft, dialect, advance)
        building = building if contribution is None else replace(building, contribution=contribution)
        building = _preferred(building, count)
    text = policy_text(building)
    load_policy(text, "the policy of this list")
    if out is None:
        click.echo(text, nl=False)
        return
    if names is not None:
        text = policy_text(replace(building, names=names.name))
        load_policy(text, "the policy of this list", lambda _: names_text(building))
        names.write_text(names_text(building), encoding="utf-8")
    out.write_text(text, encoding="utf-8")
    zones = sum(map(len, places.values()))
    marked = sum("CHECK" in line for line in text.splitlines()) - 1
    click.echo(f"{out}: {zones} zone(s) at {len(places)} site(s), {marked} line(s) marked CHECK")
    if names is not None:
        click.echo(f"{names}: the names of places, for display")


def _preferred(building: Building, count: Count | None) -> Building:
    """Return a building whose sums count what suits its largest site best at each level, or what is wanted."""
    from connectors.operations.policy.comparison import fits, preferred  # noqa: PLC0415 - loads mechanisms

    if count == "ticks":
        return building
    draft = load_policy(policy_text(building), "the policy of this list")
    (sums,) = (each for each in draft.release if isinstance(each, CountRelease) and each.name == SUMS)
    if not all(fits(sums, site) for site in draft.site.values()):
        if count is not None:
            raise UsageError("--count: changes need every floor to have room for enough people, or a single floor")
        return building
    largest = max(building.sites, key=lambda name: sum(place.capacity for place in building.sites[name]))
    with working("ticks or changes: trying a day"):
        chosen = preferred(draft, largest, sums, count)
    counts = chosen.counts
    return replace(
        building, floor_count=counts.get("floor", counts["building"]), building_count=counts["building"],
        gap=duration_text(chosen.gap) if chosen.gap else "0min",
    )  # fmt: skip


def _addresses(text: str | None, poll: PollTable | None = None) -> tuple[str, ...]:
    """Return the controllers; UsageError unless each is an address or a block, or a cloud system that is polled."""
    addresses = tuple(part.strip() for part in text.split(",")) if text else ()
    for address in addresses:
        if poll in IN_CLOUD and is_cloud(address):
            continue
        try:
            ipaddress.ip_network(address)
        except ValueError:
            rule = "must be addresses or blocks such as 10.2.0.5 or 10.2.0.0/16, separated by commas"
            raise UsageError(f"--controllers: {rule}, got {address!r}") from None
    return addresses


def _check_poll(poll: PollTable | None, user: str | None, sources: tuple[str, ...], sites: int) -> None:
    """Raise UsageError unless each controller can be polled: one address, or in the cloud a name."""
    if user is not None and (poll is None or poll in ON_PREMISES | IN_CLOUD):
        raise UsageError("--snmp-user: must be given with a --poll over SNMP")
    if poll is None:
        return
    if not sources:
        raise UsageError("--poll: needs --controllers, whose client tables are read")
    if sites > 1:
        raise UsageError("--poll: must be for a list of one site; write [[site.NAME.poll]] at each that is polled")
    for source in sources:
        if is_cloud(source) != (poll in IN_CLOUD) or "/" in source:
            needed = "cloud:NAME" if poll in IN_CLOUD else "one address"
            raise UsageError(f"--controllers: must be {needed} each with --poll {poll}, got {source!r}")


def _check_names(site: str, timezone: str | None) -> None:
    if not _SITE.fullmatch(site):
        raise UsageError(f"--site: must be a name of letters, digits, points, hyphens and underscores, got {site!r}")
    try:
        ZoneInfo(timezone or "UTC")
    except (KeyError, ValueError, OSError):
        raise UsageError(f"--timezone: must be a name such as Europe/Berlin, got {timezone!r}") from None


# policy check, policy contracts


@policy.command("check")
@click.argument("file", type=FILE)
@json_option
def check(file: Path, *, as_json: bool) -> None:
    """Check that a policy is valid; exit with code 2 and name the broken rule if it is not.

    The file of names that the policy refers to is checked too, and with it the floor plans.
    """
    from connectors.serve.floor_plans import read_named_plans  # noqa: PLC0415 - only needed here

    valid = read_policy(file)
    try:
        read_named_plans(valid, file.parent)
    except DataError as error:
        raise PolicyError(str(error)) from None
    if as_json:
        print_json({"valid": True, "policy_version": valid.version})
    else:
        click.echo(f"{file}: valid, version {valid.version}")


@policy.command("contracts")
@click.argument("file", type=FILE)
@click.option("--out", required=True, type=FOLDER, help="Folder for the documents; created if missing.")
@click.option("--audience", "audiences", multiple=True, help="Only topics of this audience; may be repeated.")
def contracts(file: Path, *, out: Path, audiences: tuple[str, ...]) -> None:
    """Write data contracts: a JSON Schema of each published record, and an AsyncAPI document of the topics.

    The AsyncAPI document states the privacy cost of each topic (x-privacy). Existing documents are replaced.
    """
    from connectors.operations.policy.contracts import contract_files  # noqa: PLC0415 - reads docstrings of its models

    valid = read_policy(file)
    unknown = sorted(set(audiences) - {audience.name for audience in valid.audience})
    if unknown:
        raise UsageError(f"--audience must be one of the policy's, got {', '.join(unknown)}")
    out.mkdir(parents=True, exist_ok=True)
    for name, document in contract_files(valid, audiences).items():
        (out / name).write_bytes(document)
        click.echo(f"{out / name}")


# policy show


@policy.command("show")
@click.argument("file", type=FILE)
@json_option
def show(file: Path, *, as_json: bool) -> None:
    """Print the privacy guarantees of a policy: for every privacy unit, audience and coalition.

    'tacet policy plan' estimates how accurate the releases will be.
    """
    valid = read_policy(file)
    hidden = losses_of(valid, simulated_stays(valid))
    if as_json:
        print_json(guarantee_figures(valid).to_json() | {"losses": hidden})
    else:
        print_guarantees(valid, hidden)


# policy plan

NOTICE = (
    "Restricted: computed from a recording of people, with noise that anybody can reproduce. Protect it like the raw "
    "data. An epsilon that is chosen from it and then published reveals something about these people, which no "
    "guarantee covers: choose epsilons from simulated or public data."
)
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)\s?%")


class Percentage(click.ParamType):
    """A fraction, written as ``10%``."""

    name = "PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        """Return the fraction; refuse values other than percentages above 0 and up to 100."""
        match = _PERCENT.fullmatch(value)
        fraction = Fraction(match[1]) / 100 if match else Fraction(0)
        if not 0 < fraction <= 1:
            self.fail(f"must be a percentage above 0% and up to 100%, such as 10%, got {value!r}", param, ctx)
        return fraction


@policy.command("plan")
@click.argument("file", type=FILE, required=False)
@click.option("--policy", "policy_file", type=FILE, help="The policy, instead of FILE.")
@click.option(
    "--observations", type=FILE, help="Use a recording (CSV or JSONL) instead of the simulated day: restricted."
)
@dialect_options
@click.option(
    "--target-error",
    "target",
    type=Percentage(),
    help="Find the epsilon whose mean error is this share of the mean count.",
)
@json_option
def plan(
    file: Path | None, *, policy_file: Path | None, observations: Path | None, target: Fraction | None,
    dialect: Dialect, as_json: bool,
) -> None:  # fmt: skip
    """Estimate what a day will cost and how accurate its releases will be, before anything runs.

    Errors are estimated on the day of the demo, which 'tacet simulate --scale 0.45 --always-on 75' simulates, or on
    --observations; the output is then restricted. With --target-error, the epsilon that reaches this error is printed
    for each release and level.

    \b
    tacet policy plan policy.toml --target-error 10%
    """
    if (file is None) == (policy_file is None):
        raise click.UsageError("give the policy once: as FILE, or with --policy")
    policy = read_policy(file or policy_file or Path())
    days, stays, problem = _days(policy, observations, dialect)
    found = _planned(policy, days) if target is None else _targets(policy, days, target)
    losses = losses_of(policy, stays)
    compared = _compared(policy) if observations is None and target is None else []
    notice = None if observations is None else NOTICE
    if as_json:
        report = found.figures() | {"losses": losses}
        if compared:
            report["ticks_or_changes"] = compared
        if notice is not None:
            report |= {"restricted": True, "notice": notice}
        print_json(report)
    else:
        print_plan(policy, found, compared, losses, notice)
    if problem is not None:
        raise problem


def _days(policy: Policy, observations: Path | None, dialect: Dialect) -> tuple[Windows, Stays, DataError | None]:
    """Return the windows and the stays of the day to try, and the error to raise for rows that are bad or lost."""
    from connectors.operations.policy.quality import observed_windows, simulated_windows  # noqa: PLC0415 - only here

    if observations is None:
        refuse_dialect(dialect)
        with working("simulating a day"):
            return simulated_windows(policy), simulated_stays(policy), None
    stays = stays_of(policy)

    def add(batch: ObservationBatch) -> None:
        if batch.site in stays:
            stays[batch.site].add_batch(batch)

    with progress("rows read") as advance:
        observed = observed_windows(policy, observations, advance, dialect, add)
    return observed.windows, stays, observed.problem


def _planned(policy: Policy, days: Windows) -> Plan:
    from connectors.operations.policy import plan as policy_plan  # noqa: PLC0415 - only needed here

    with progress("windows tried", policy_plan.windows_to_try(policy, days)) as advance:
        tried = count(1)
        return policy_plan.plan(policy, days, lambda: advance(next(tried)))


def _compared(policy: Policy) -> list[ComparedLevel]:
    """Return the errors of ticks and of changes, for each release that could pay for either."""
    from connectors.operations.policy.comparison import COUNTS, comparable, comparison  # noqa: PLC0415 - only here

    with progress("ticks and changes compared", len(COUNTS) * len(list(comparable(policy)))) as advance:
        tried = count(1)
        return comparison(policy, lambda: advance(next(tried)))


def _targets(policy: Policy, days: Windows, target: Fraction) -> Targets:
    from connectors.operations.policy import plan as policy_plan  # noqa: PLC0415 - only needed here

    with progress("epsilons tried") as advance:
        tried = count(1)
        return policy_plan.targets(policy, days, target, lambda: advance(next(tried)))


# policy diff

STATE_LOST = 1
"""Exit code if something restarts from an empty state."""


@policy.command("diff")
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@json_option
def diff(old: Path, new: Path, *, as_json: bool) -> None:
    """Show what the policy NEW changes against OLD: what gets cheaper or more expensive, what restarts, and when.

    The exit code is 1 if something restarts from an empty state: a filter or its groups, the current day, counters, or
    a publication that continues from window to window; otherwise 0.
    """
    changed = difference(read_policy(old), read_policy(new))
    if as_json:
        print_json(changed.figures())
    else:
        print_difference(changed)
    sys.exit(STATE_LOST if changed.loses_state else 0)
