"""account: the cost of all releases, for each audience or any coalition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from connectors.cli.options import FILE, Time, json_option, kafka_unless, read_policy, run_async, storage_options
from connectors.cli.output import print_json, table, working
from connectors.operations.account import (
    AccountSummary,
    counted_sites,
    gaps,
    login_sites,
    people_truths,
    published,
    recomputed,
    spent_by_reader,
    summary,
)
from connectors.operations.audit.kafka_bundle import kafka_bundle
from connectors.operations.audit.verification import merged_policies, store_bundle, verified
from connectors.operations.policy.guarantees import unit_rows
from connectors.storage.kafka.cluster import check_cluster
from stream.accounting.attribute_leakage import Factors
from stream.policy.document import PolicyDocument
from stream.records import Micros
from stream.schemas import parse_time
from stream.settings import Settings


@click.command()
@storage_options
@click.option("--coalition", metavar="A,B,…", help="Audiences that combine their releases.")
@click.option("--at", type=Time(), help="The account at this time.  [default: now]")
@click.option(
    "--policy", "policy_files", type=FILE, multiple=True,
    help="A policy under which releases were made, if it is not stored with them; once per version.",
)  # fmt: skip
@click.option("--tight", is_flag=True, help="Recompute epsilons at delta exactly, from the ledger.")
@click.option("--attributes", "all_rows", is_flag=True, help="Also list the last day's attributes, by zone.")
@json_option
@click.pass_obj
def account(
    settings: Settings, *, store: Path | None, kafka: str | None, coalition: str | None, at: Micros | None,
    policy_files: tuple[Path, ...], tight: bool, all_rows: bool, as_json: bool,
) -> None:  # fmt: skip
    """Show what all releases together have cost: per audience, coalition and privacy unit.

    \b
    tacet account --store store
    tacet account --store store --coalition facilities,public --at 2026-03-02T10:00:00Z

    Without --coalition the account is read as it was published. With --coalition it is recomputed from the ledger for
    these readers, each entry under the policy version that made it. An incomplete ledger is refused.

    Published epsilons at delta are up to 7 % too large, because they are computed incrementally. With --tight they are
    recomputed from the ledger, exactly for the last window.
    """
    servers = kafka_unless(store, kafka, settings)
    with working("reading the ledger"):
        if servers is not None:
            run_async(check_cluster(servers))
        bundle = store_bundle(store) if store is not None else kafka_bundle(servers or "")
        audit = verified(bundle)
        if coalition is None and not tight:
            records = published(store, servers)
            for gap in gaps(audit, records):
                click.echo(gap, err=True)
        else:
            policies = _policies(bundle.policies, policy_files, "--tight" if coalition is None else "--coalition")
            audiences = None if coalition is None else coalition.split(",")
            records = recomputed(store, servers, audit, policies, audiences, at, tight=tight)
    known = merged_policies(bundle.policies, [read_policy(file) for file in policy_files])
    report = summary(
        [r for r in records if at is None or parse_time(r["window_end"]) <= at],
        counted_sites(known),
        login_sites(known),
    )
    if truths := people_truths(known):
        report["people"] = truths
    print_json(report) if as_json else _print_account(report, all_rows=all_rows)


def _policies(stored: Sequence[bytes], files: Sequence[Path], option: str) -> list[PolicyDocument]:
    policies = merged_policies(stored, [read_policy(file) for file in files])
    if not policies:
        raise click.UsageError(f"{option} needs --policy: no policy is stored with this ledger")
    return policies


def _print_account(report: AccountSummary, *, all_rows: bool) -> None:
    console = Console(highlight=False)
    for each in report.get("people", ()):
        truth = each["truth"]
        price = "nothing, they are public" if truth["public"] else f"epsilon {truth['epsilon']}"
        console.print(
            f"{each['site']}: {each['release']} for {each['reader']}: the counts of people behind model "
            f"{each['model'][:16]} cost {price}, for one person at one moment; this adds to the epsilons below"
        )
    if not report["sites"]:
        console.print("Nothing has been released yet.")
    for name, site in report["sites"].items():
        last = site["last"]
        readers = spent_by_reader(last)
        spent = table(f"{name}: epsilons up to {last['window_end']}", ("protected unit",), tuple(readers))
        counted, logins = site.get("feed") == "counts", site.get("identity") == "login"
        for row in unit_rows(list(readers.values()), counted=counted, logins=logins):
            spent.add_row(*row)
        console.print(spent)
        for what, rest in last["left"].items():
            console.print(f"{what}: the budget pays for {rest} more windows")
        if site["attributes"] and not all_rows:
            reported = len(site["attributes"])
            console.print(f"{reported} attributes on the last day; --attributes lists their odds factors")
        elif site["attributes"]:
            _print_attributes(console, name, site["attributes"], tuple(readers))


def _print_attributes(console: Console, name: str, attributes: Factors, readers: tuple[str, ...]) -> None:
    title = f"{name}: largest odds factors of the last day's attributes (0: the value was published)"
    rows = table(title, ("day / zone / attribute",), readers)
    for attribute, figures in attributes.items():
        factors = figures.get("exact", figures["bound"])
        rows.add_row(attribute, *("-" if r not in factors else _factor(factors[r]) for r in readers))
    console.print(rows)


def _factor(value: float | str | None) -> str:
    if value is None:
        return "not in model"
    return value if isinstance(value, str) else "0" if value == 0 else f"{value:.4g}"
