"""key, policy."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import click

from connectors import keyfile
from connectors.commands.differing import diff
from connectors.commands.inventory import init
from connectors.commands.options import FILE, FOLDER, json_option, print_json, read_policy, working
from connectors.commands.planning import plan
from connectors.commands.promises import print_promises
from connectors.commands.retiring import retire
from connectors.reports.contracts import contract_files
from connectors.reports.quality import Qualities, qualities
from stream.accounting.attribute_model import asked_attributes, day_model
from stream.accounting.knowledge import Knowledge
from stream.errors import UsageError
from stream.policy.document import AttributeRelease, CountRelease, Policy, decimal_string
from stream.release.count_promises import CountPromise, count_promises
from stream.release.promises import attribute_promises
from stream.release.threshold_promises import threshold_promises
from stream.schemas import json_float


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


@key.command("upgrade")
@click.argument("file", type=FILE)
@click.option("--from", "source", type=FILE, help="The other file of the same key, which has the data key already.")
def upgrade(file: Path, source: Path | None) -> None:
    """Add a data key to a key FILE that was made before there was one.

    Where ingest and worker have files of their own, do it to one, and to the other with --from.
    """
    keyfile.upgrade(file, source)
    click.echo(f"{file}: data key added")


key.add_command(retire)


@click.group()
def policy() -> None:
    """Write a first policy, check one, or print what it promises."""


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
    with working("errors to expect"):
        expected = qualities(checked)
    if as_json:
        print_json(promises(checked, expected))
    else:
        print_promises(checked, expected)


@policy.command("contracts")
@click.argument("file", type=FILE)
@click.option("--out", required=True, type=FOLDER, help="Folder of the documents; made where it is missing.")
@click.option("--audience", "audiences", multiple=True, help="Only topics of this audience; may be repeated.")
def contracts(file: Path, *, out: Path, audiences: tuple[str, ...]) -> None:
    """Write what is published as contracts: a JSON Schema of each record, and an AsyncAPI document of the topics.

    The document says with each topic what its records cost whom (x-privacy). Documents that are there are replaced.
    """
    checked = read_policy(file)
    unknown = sorted(set(audiences) - {audience.name for audience in checked.audience})
    if unknown:
        raise UsageError(f"--audience must be one of the policy's, got {', '.join(unknown)}")
    out.mkdir(parents=True, exist_ok=True)
    for name, document in contract_files(checked, audiences).items():
        (out / name).write_bytes(document)
        click.echo(f"{out / name}")


for verb in (init, diff, plan):
    policy.add_command(verb)


def _pseudonyms(policy: Policy) -> str | dict[str, Any]:
    """Return when names change: each UTC day, after a salt life, or at some sites with their privacy day."""
    if policy.pseudonym.ttl is not None:
        return {"ttl_seconds": policy.pseudonym.ttl / 1e6}
    days = {name: site.day_starts for name, site in policy.site.items() if site.day_starts is not None}
    return {"day_starts": days} if days else "daily"


def promises(policy: Policy, expected: Qualities) -> dict[str, Any]:
    """Return what ``policy show`` reports, as one object."""
    knowledge = Knowledge.of(policy.privacy)
    return {
        "policy_version": policy.version,
        "devices_per_person": policy.privacy.devices_per_person,
        "max_factor": policy.privacy.max_factor,
        "w": policy.privacy.w,
        "mobility": None if policy.privacy.mobility is None else policy.privacy.mobility.forward,
        "meetings": [meeting.model_dump() for meeting in policy.privacy.meetings],
        "pseudonyms": _pseudonyms(policy),
        "counted_sites": [name for name, site in policy.site.items() if site.feed == "counts"],
        "restricted_topics": policy.restricted.model_dump(),
        "counts": [
            {
                "site": p.site, "release": p.release, "reader": p.reader, "mechanism": p.mechanism,
                "zones": p.zones, "epsilon": {unit: decimal_string(e) for unit, e in p.units.items()},
                "temporal": json_float(knowledge.temporal(float(p.units["presence_tuple"]))),
                "meeting": json_float(knowledge.meeting(float(p.units["presence_tuple"]))),
            }
            | _of_day(p)
            for p in count_promises(policy)
        ],
        "attributes": [
            {
                "site": p.site, "release": p.release, "attribute": p.attribute, "reader": p.reader,
                "epsilon": decimal_string(p.epsilon), "factor": p.factor, "exact": json_float(p.exact),
                "with_counts": json_float(p.with_counts),
                "habit": {str(days): json_float(factor) for days, factor in p.habit.items()},
            }
            for p in attribute_promises(policy)
        ],
        "worse_than_zero": [
            {
                "site": site, "release": release, "audience": audience, "level": level,
                "expected_mean_absolute_error": round(q.error, 4), "expected_mean_count": round(q.mean, 4),
            }
            for (site, release, audience), levels in expected.items()
            for level, q in levels.items() if q.worse_than_zero
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
        "thresholds": [promise.figures() for promise in threshold_promises(policy)],
        "models": {r.name: _model(r) for r in policy.release if isinstance(r, AttributeRelease)},
    }  # fmt: skip


def _of_day(promise: CountPromise) -> dict[str, Any]:
    """Return what a promise for a whole day says besides: its noise, and epsilon at delta in each unit."""
    terms = promise.terms
    if terms is None:
        return {}
    delta = float(promise.delta)
    return {
        "unit": "device_day", "noise": terms.noise, "ticks": terms.ticks, "delta": decimal_string(promise.delta),
        "noise_scale": [math.sqrt(e) if terms.noise == "gaussian" else float(1 / e) for e in terms.parameters],
        "tight": {unit: {"epsilon": round(e, 6), "delta": delta} for unit, e in promise.tight.items()},
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
