"""account: the cost of all releases, for each audience or any coalition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from connectors.cli.options import FILE, Time, json_option, kafka_unless, read_policy, run_async, storage_options
from connectors.cli.output import print_json, table, working
from connectors.operations.audit.kafka_bundle import kafka_bundle
from connectors.operations.audit.verification import merged_policies, store_bundle, verified
from connectors.operations.policy.guarantees import unit_rows
from connectors.operations.policy.promises import people_figures
from connectors.storage.embedded.reader import read_outbox, read_topic
from connectors.storage.kafka.cluster import check_cluster
from connectors.storage.kafka.topic_readers import Record, consume
from connectors.subscribe.order import Release
from connectors.subscribe.subscriber import subscribe as follow
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.policy.fields import EVERYBODY
from stream.records import Micros
from stream.release.account_stage import past_account
from stream.schemas import LEAKAGE, parse_record, parse_time
from stream.settings import Settings

Records = list[Mapping[str, Any]]


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
            records = _streamed(store, servers)
            for gap in gaps(audit, records):
                click.echo(gap, err=True)
        else:
            policies = _policies(bundle.policies, policy_files, "--tight" if coalition is None else "--coalition")
            audiences = None if coalition is None else coalition.split(",")
            records = _recomputed(store, servers, audit, policies, audiences, at, tight=tight)
    known = merged_policies(bundle.policies, [read_policy(file) for file in policy_files])
    report = summary(
        [r for r in records if at is None or parse_time(r["window_end"]) <= at],
        counted_sites(known),
        login_sites(known),
    )
    if truths := people_truths(known):
        report["people"] = truths
    print_json(report) if as_json else _print_account(report, all_rows=all_rows)


def published_account(store: Path | None, kafka: str | None) -> dict[str, Any]:
    """Return the account as it was published: what ``--json`` prints."""
    bundle = store_bundle(store) if store is not None else kafka_bundle(kafka or "")
    known = merged_policies(bundle.policies, [])
    return summary(_streamed(store, kafka), counted_sites(known), login_sites(known))


def people_truths(policies: Iterable[PolicyDocument]) -> list[dict[str, Any]]:
    """Return the models of people of all policies, each once, with what their ground truth cost."""
    found = {each.digest: people_figures(each) for policy in policies for each in policy.people}
    return list(found.values())


def counted_sites(policies: Iterable[PolicyDocument]) -> frozenset[str]:
    """Return the sites that have people counters under every policy that contains them."""
    feeds = [(name, site.feed) for policy in policies for name, site in policy.site.items()]
    return frozenset(name for name, _ in feeds) - {name for name, feed in feeds if feed != "counts"}


def login_sites(policies: Iterable[PolicyDocument]) -> frozenset[str]:
    """Return the sites that count logins under every policy that contains them."""
    counts = [(name, site.counts_logins) for policy in policies for name, site in policy.site.items()]
    return frozenset(name for name, _ in counts) - {name for name, logins in counts if not logins}


def _policies(stored: Sequence[bytes], files: Sequence[Path], option: str) -> list[PolicyDocument]:
    policies = merged_policies(stored, [read_policy(file) for file in files])
    if not policies:
        raise click.UsageError(f"{option} needs --policy: no policy is stored with this ledger")
    return policies


def _streamed(store: Path | None, kafka: str | None) -> Records:
    values = read_topic(store, LEAKAGE) if store is not None else run_async(_topic(kafka or "", LEAKAGE))
    return in_order([parse_record(value) for value in values])


def gaps(audit: Records, records: Records) -> list[str]:
    """Return a warning for each site whose account ends before its ledger does.

    Both are written together, so account records were lost, and the sums in the last one may be too small.
    """
    last: dict[str, str] = {}
    for record in records:
        last[record["site"]] = max(last.get(record["site"], ""), record["window_end"], key=_time)
    charged: dict[str, str] = {}
    for entry in audit:
        charged[entry["site"]] = max(charged.get(entry["site"], ""), entry["window_end"], key=_time)
    return [
        f"account: site {site}: its last record is of {last.get(site, 'no window')}, the ledger goes on to {end}: "
        "records are missing, and sums may be too small; 'tacet account --tight' adds up the ledger"
        for site, end in sorted(charged.items())
        if _time(last.get(site, "")) < _time(end)
    ]


def _time(text: str) -> Micros:
    return parse_time(text) if text else -1


def in_order(records: Records) -> Records:
    """Return account records by window, a day's attributes before its window's counts.

    A late release changes the account of all later windows: the last record of a window counts.
    """
    last = {(record["site"], record["window_end"], record["kind"]): record for record in records}
    return sorted(last.values(), key=lambda r: (parse_time(r["window_end"]), r["kind"] != "attributes"))


def _recomputed(
    store: Path | None, kafka: str | None, audit: Records, policies: Sequence[PolicyDocument],
    audiences: list[str] | None, at: Micros | None, *, tight: bool,
) -> Records:  # fmt: skip
    """Return the account of some audiences combined, or else of each and of all."""
    known = {audience.name for policy in policies for audience in policy.audience}
    if unknown := sorted(set(audiences or ()) - known):
        msg = f"--coalition: must name audiences of the policy, got {unknown[0]!r}"
        raise UsageError(msg)
    audit = [entry for entry in audit if at is None or parse_time(entry["window_end"]) <= at]
    outcomes = {
        record["release_id"]: record["value"]
        for name in audiences or sorted(known)
        for record in _private(store, kafka, name)
        if "attribute" in record and record["released"]
    }
    readers = None if audiences is None else {"+".join(audiences): frozenset(audiences)}
    sites = dict.fromkeys(entry["site"] for entry in audit)
    return [r for site in sites for r in past_account(policies, site, readers, audit, outcomes, exact=tight)]


def _private(store: Path | None, kafka: str | None, audience: str) -> list[Release]:
    if store is not None:
        return [parse_record(value) for _, value in read_outbox(store, audience, 0)]

    async def read() -> list[Release]:
        return [r async for r in follow(audience=audience, kafka=kafka, from_start=True, until_end=True)]

    return run_async(read())


async def _topic(kafka: str, topic: str) -> list[bytes]:
    return [record.value async for record in consume(kafka, topic, until_end=True, identity=by_account_window)]


def by_account_window(record: Record) -> tuple[Any, ...]:
    """Identify a leakage record by site, window and kind."""
    body = parse_record(record.value)
    return body["site"], body["window_end"], body["kind"]


def summary(records: Records, counted: Collection[str] = (), logins: Collection[str] = ()) -> dict[str, Any]:
    """Return, per site, the last account and the disclosure by its last day's attributes, and what it counts.

    ``counted`` are the sites that have counters, ``logins`` those that count logins.
    """
    sites: dict[str, Any] = {}
    for record in records:
        site = sites.setdefault(record["site"], {"records": 0, "attributes": {}})
        if record["site"] in counted:
            site["feed"] = "counts"
        if record["site"] in logins:
            site["identity"] = "login"
        site["records"] += 1
        site["last"] = {name: record[name] for name in ("window_end", "audiences", "coalition", "left", "refused")}
        if record["kind"] == "attributes":
            site |= {name: record[name] for name in ("attributes", "habit", "information") if name in record}
    return {"sites": sites}


def _print_account(report: dict[str, Any], *, all_rows: bool) -> None:
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
        readers = {**last["audiences"], **({EVERYBODY: last["coalition"]} if last["coalition"] else {})}
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


def _print_attributes(console: Console, name: str, attributes: dict[str, Any], readers: tuple[str, ...]) -> None:
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
