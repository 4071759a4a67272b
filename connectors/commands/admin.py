"""key, policy."""

from __future__ import annotations

import math
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console

from connectors import keyfile
from connectors.commands.options import FILE, json_option, print_json, read_policy
from connectors.commands.tables import table
from connectors.plan import plan as plan_of
from stream.accounting.attribute_model import asked_attributes, day_model
from stream.accounting.knowledge import Knowledge
from stream.guarantees import AttributePromise, attribute_promises, count_promises
from stream.policy import AttributeRelease, CountRelease, Policy, decimal_string


@click.group()
def key() -> None:
    """Make key files. Who has one can undo the noise made with it: keep it like the raw data."""


@key.command("create")
@click.argument("file", type=FILE)
@click.option("--laboratory", is_flag=True, help="Keep the root, for simulated or recorded data only.")
@click.option(
    "--first-day",
    type=click.DateTime(["%Y-%m-%d"]),
    help="UTC day with which a production key begins.  [default: the first it is used for]",
)
def create(file: Path, *, laboratory: bool, first_day: datetime | None) -> None:
    """Make a new key FILE with mode 0600; an existing file is never written over.

    A production key serves one store or one cluster and forgets each day once it is over. A laboratory key
    can draw any day again, and everything made with it says so.
    """
    day = None if first_day is None else (first_day - datetime(1970, 1, 1)).days  # noqa: DTZ001  (dates only)
    keyfile.create(file, laboratory=laboratory, first_day=day)
    click.echo(f"{file}: {'laboratory' if laboratory else 'production'} key made")


@key.command("export")
@click.argument("file", type=FILE)
@click.argument("part", type=click.Choice(["ingest", "worker"]))
@click.argument("target", type=FILE)
def export(file: Path, part: Literal["ingest", "worker"], target: Path) -> None:
    """Write only what an ingest host or a worker host needs of FILE to a new file TARGET."""
    keyfile.export(file, part, target)
    click.echo(f"{target}: {part} key made")
    if part == "worker":
        click.echo(f"{file} holds every later day too: keep it offline, or destroy it", err=True)


@click.group()
def policy() -> None:
    """Check a policy, or print what it promises."""


@policy.command("check")
@click.argument("file", type=FILE)
@json_option
def check(file: Path, *, as_json: bool) -> None:
    """Refuse a policy that breaks a rule; exit code 2 then."""
    checked = read_policy(file)
    if as_json:
        print_json({"valid": True, "policy_version": checked.version})
    else:
        click.echo(f"{file}: valid, version {checked.version}")


@policy.command("show")
@click.argument("file", type=FILE)
@json_option
def show(file: Path, *, as_json: bool) -> None:
    """Print what is promised: for every privacy unit, audience and coalition."""
    checked = read_policy(file)
    if as_json:
        print_json(promises(checked))
    else:
        _print_promises(checked)


@policy.command("plan")
@click.argument("file", type=FILE)
@json_option
def plan(file: Path, *, as_json: bool) -> None:
    """Tell, before anything runs, what a day will cost and how good its releases will be.

    Errors are those on the day that 'tacet simulate --seed 1' makes.
    """
    told = plan_of(read_policy(file))
    print_json(told) if as_json else _print_plan(told)


def _print_plan(told: dict[str, Any]) -> None:
    console = Console(highlight=False)
    counts = table(
        f"A day under policy {told['policy_version']}: counts",
        ("release", "audience"),
        ("epsilon", "releases\nthat fit", "cost of\na day", "one person,\none day", "mean error\nper zone"),
    )
    for row in told["counts"]:
        cost = row["cost"]
        counts.add_row(
            f"{row['site']}/{row['release']}", row["audience"], row["epsilon"],
            f"{row['releases_that_fit']} of {row['windows_per_day']}", cost["day"], cost["person_day"],
            f"{row['expected_mean_absolute_error']:.2f}",
        )  # fmt: skip
    console.print(counts)
    console.print("Errors are those on the simulated day of 'tacet simulate --seed 1'.\n")
    attributes = table("Attributes", ("release", "attribute", "audience"), ("epsilon", "zones", "odds factor"))
    for row in told["attributes"]:
        attributes.add_row(
            f"{row['site']}/{row['release']}", row["attribute"], row["audience"], row["epsilon"],
            str(row["zones"]), f"{row['with_counts']:.4g}",
        )  # fmt: skip
    console.print(attributes)


def promises(policy: Policy) -> dict[str, Any]:
    """Return what ``policy show`` tells, as one object."""
    knowledge = Knowledge.of(policy.privacy)
    return {
        "policy_version": policy.version,
        "devices_per_person": policy.privacy.devices_per_person,
        "max_factor": policy.privacy.max_factor,
        "w": policy.privacy.w,
        "mobility": None if policy.privacy.mobility is None else policy.privacy.mobility.forward,
        "meetings": [meeting.model_dump() for meeting in policy.privacy.meetings],
        "pseudonyms": "daily" if policy.pseudonym.ttl is None else {"ttl_seconds": policy.pseudonym.ttl / 1e6},
        "restricted_topics": policy.restricted.model_dump(),
        "counts": [
            {
                "site": p.site, "release": p.release, "reader": p.reader, "mechanism": p.mechanism,
                "zones": p.zones, "epsilon": {unit: decimal_string(e) for unit, e in p.units.items()},
                "temporal": plain(knowledge.temporal(float(p.units["presence_tuple"]))),
                "meeting": knowledge.meeting(float(p.units["presence_tuple"])),
            }
            for p in count_promises(policy)
        ],
        "attributes": [
            {
                "site": p.site, "release": p.release, "attribute": p.attribute, "reader": p.reader,
                "epsilon": decimal_string(p.epsilon), "factor": p.factor, "exact": plain(p.exact),
                "with_counts": plain(p.with_counts),
                "habit": {str(days): plain(factor) for days, factor in p.habit.items()},
            }
            for p in attribute_promises(policy)
        ],
        "budgets": {
            f"{r.name}/{name}": decimal_string(budget)
            for r in policy.release if isinstance(r, CountRelease)
            for name, budget in sorted(r.daily_budget.items())
        },
        "w_budgets": {
            f"{r.name}/{name}": decimal_string(budget)
            for r in policy.release if isinstance(r, CountRelease)
            for name, budget in sorted(r.w_budget.items())
        },
        "refresh_days": {r.name: r.refresh_days for r in policy.release if isinstance(r, CountRelease)},
        "models": {r.name: _model(r) for r in policy.release if isinstance(r, AttributeRelease)},
    }  # fmt: skip


def _model(release: AttributeRelease) -> dict[str, Any]:
    """Return the declared model of an attribute release and what its guard does with it."""
    asked = asked_attributes(release, day_model(release))
    return {
        "model": None if release.model is None else release.model.model_dump(),
        "cap": release.cap,
        "guard": release.guard,
        "asked": [name for name in release.attributes if name in asked],
        "left_out": [name for name in release.attributes if name not in asked],
        "days_per_month": release.days_per_month,
        "information_target": release.information_target,
    }


def plain(value: float | None) -> float | str | None:
    """Return a number for JSON, infinity as the string "inf"."""
    return "inf" if value is not None and math.isinf(value) else value


_PROMISE = """\
The unit is one MAC address at one site. A person is taken to carry {devices} of them
(devices_per_person), and what several sites give away adds up. Everything
below holds for observations that the connector accepted, and as long as the
key is secret (computational differential privacy).

Counts: adding or removing the unit changes the probability of any output by
at most a factor exp(epsilon).
"""

_ATTRIBUTES = """\
Attributes: a day whose value is sensitive is never shown, and not showing it
raises the odds that it is sensitive by at most the factor given. Every other
value is shown exactly, about whoever caused it: for one device these releases
have no bound. A constant habit is guessed better each day (last columns).
"""

_UNITS = {
    "presence_tuple": "one\ntick",
    "tuple_moved": "tick\nmoved",
    "observation": "one\ntrap",
    "observation_moved": "trap\nmoved",
    "device_day": "device,\none day",
    "person_day": "person,\none day",
}


def _print_promises(policy: Policy) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]Policy {policy.version}[/bold]\n")
    console.print(_PROMISE.format(devices=policy.privacy.devices_per_person), soft_wrap=True)
    for site in policy.site:
        _print_counts(console, policy, site)
    attributes = attribute_promises(policy)
    if attributes:
        console.print(_ATTRIBUTES, soft_wrap=True)
    for (site, release), promises in groupby(attributes, lambda a: (a.site, a.release)):
        _print_attributes(console, list(promises), f"Site {site}: odds factors of {release}")
    _print_knowledge(console, policy)
    names = "each UTC day" if policy.pseudonym.ttl is None else f"every {policy.pseudonym.ttl / 1e6:g} s"
    console.print("'all' is everybody together. The account ('tacet account') keeps the running sums.", soft_wrap=True)
    console.print(f"Pseudonyms change {names}. Largest factor allowed: {policy.privacy.max_factor:.4g}.")


def _print_knowledge(console: Console, policy: Policy) -> None:
    knowledge, models = Knowledge.of(policy.privacy), [r for r in policy.release if isinstance(r, AttributeRelease)]
    known = table("Adversaries with knowledge: leakage about one tick", ("site / release", "reader"), _KNOWLEDGE)
    for p in count_promises(policy) if policy.privacy.mobility or policy.privacy.meetings else ():
        epsilon = float(p.units["presence_tuple"])
        leaks = (knowledge.temporal(epsilon), knowledge.meeting(epsilon))
        told = ("-" if leak is None else f"{leak:.4g}" for leak in leaks)
        known.add_row(f"{p.site}/{p.release}", p.reader, decimal_string(p.units["device_w_event"]), *told)
    if known.row_count:
        console.print(known)
    for release in models:
        told_of = _model(release)
        if told_of["cap"] is not None:
            left_out = ", ".join(told_of["left_out"]) or "none"
            rule = f"{release.guard} guard, ln factor at most {release.cap:g}"
            console.print(f"{release.name}: {rule}; never asked: {left_out}.")
        if release.days_per_month is not None:
            console.print(f"{release.name}: asked on at most {release.days_per_month} days of any 30.")


_KNOWLEDGE = ("any w\nwindows", "knows how\npeople move", "knows who\nmeets whom")


def _print_counts(console: Console, policy: Policy, site: str) -> None:
    counts = table(f"Site {site}: epsilons of counts", ("release", "reader"), tuple(_UNITS.values()))
    for p in count_promises(policy):
        if p.site == site:
            counts.add_row(f"{p.release}, {p.mechanism}", p.reader, *(decimal_string(p.units[u]) for u in _UNITS))
    if counts.row_count:
        console.print(counts)


def _print_attributes(console: Console, promises: list[AttributePromise], title: str) -> None:
    odds = table(title, ("attribute", "reader"), ("epsilon", "factor", "with\ncounts", "habit,\n5 days", "20 days"))
    for a in promises:
        odds.add_row(
            a.attribute, a.reader, decimal_string(a.epsilon),
            *(f"{value:.4g}" for value in (a.factor, a.with_counts, a.habit[5], a.habit[20])),
        )  # fmt: skip
    console.print(odds)
