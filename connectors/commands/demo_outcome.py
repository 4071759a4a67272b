"""What has come of a demo: traps, windows, counts beside the exact ones, and what was spent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from connectors import keyfile
from connectors.commands.account import summary
from connectors.commands.day_promises import signed
from connectors.commands.poor import marked_poor
from connectors.commands.tables import table
from connectors.embedded.readings import read_outbox, read_topic
from connectors.intake.admission import Counters
from connectors.reports.commitments import counted_window
from connectors.reports.quality import Quality, by_level_quality
from connectors.reports.units import unit_rows
from stream.policy.document import CountRelease, Policy
from stream.release.count_plan import ByLevel, CountPlan, by_level
from stream.schemas import LEAKAGE, OCCUPANCY, parse_record


@dataclass(slots=True)
class Demo:
    """What a demo leaves behind."""

    folder: Path
    policy: Policy
    counters: Counters
    sent: int


def outcome(made: Demo) -> dict[str, Any]:
    """Return the summary as one object."""
    store = made.folder / "store"
    truth = {
        record["window_end"]: record
        for record in map(parse_record, read_topic(store, OCCUPANCY, keyfile.FileKeys(made.folder / "key").vault))
    }
    releases = {
        audience.name: [parse_record(value) for _, value in read_outbox(store, audience.name, 0)]
        for audience in made.policy.audience
    }
    exact = _exact(made.policy, truth)
    counts = {name: _errors(records, exact) for name, records in releases.items()}
    account = summary([parse_record(value) for value in read_topic(store, LEAKAGE)])
    return {
        "traps": {
            "sent": made.sent,
            "received": made.counters.datagrams,
            "observations": made.counters.accepted,
            "dropped": {reason: n for reason, n in made.counters.dropped.items() if n},
            "kernel_drops": made.counters.kernel_drops,
        },
        "windows": max(row["released"] + row["refused"] for row in counts.values()),
        "counts": counts,
        "attributes": {name: _attributes(records) for name, records in releases.items()},
        "account": account["sites"],
        "promises": [line.strip() for line in signed(made.policy)],
    }


Exact = dict[tuple[str, str], ByLevel]
"""Release and window -> what exact counts would have told, which a laboratory alone keeps, and for a day."""


def _exact(policy: Policy, truth: dict[str, dict[str, Any]]) -> Exact:
    """Return what exact counts would have told: bounded ones, where a release counts those."""
    [(site, place)] = policy.site.items()
    plans = [CountPlan(policy, release, site) for release in policy.release if isinstance(release, CountRelease)]
    windows = {end: counted_window(place, site, record) for end, record in truth.items()}
    return {(plan.release.name, end): plan.truth(window) for plan in plans for end, window in windows.items()}


def _errors(records: list[dict[str, Any]], exact: Exact) -> dict[str, Any]:
    """Compare an audience's counts with the exact ones, which its one count release would have told."""
    counts = [record for record in records if "values" in record]
    released = [record for record in counts if record["released"]]
    known = [(exact[at], record) for record in released if (at := (record["release"], record["window_end"])) in exact]
    told = [by_level(record["values"], record.get("levels")) for _, record in known]
    levels = by_level_quality([row for row, _ in known], told)
    first = next(iter(levels.values()), None)
    return {
        "releases": sorted({record["release"] for record in released}),
        "released": len(released),
        "refused": len(counts) - len(released),
        "mean_count": None if first is None else round(first.mean, 2),
        "mean_error": None if first is None else round(first.error, 2),
        "mean_error_building": round(levels["building"].error, 2) if "building" in levels else None,
        "worse_than_zero": first is not None and first.worse_than_zero,
        "levels": {
            level: {name: round(figure, 2) for name, figure in q._asdict().items()} for level, q in levels.items()
        },
    }


def _attributes(records: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    report: dict[str, dict[str, int]] = {}
    for record in records:
        if "attribute" in record:
            row = report.setdefault(record["attribute"], {"shown": 0, "not_shown": 0})
            row["shown" if record["released"] else "not_shown"] += 1
    return report


def print_outcome(report: dict[str, Any], made: Demo) -> None:
    """Say on a terminal how it went."""
    console, traps = Console(highlight=False), report["traps"]
    dropped = ", ".join(f"{n:,} {reason.replace('_', ' ')}" for reason, n in traps["dropped"].items()) or "none"
    console.print("[bold]One simulated day, from traps to private releases[/bold]\n")
    for name, words in (
        ("Traps", f"{traps['sent']:,} sent, {traps['received']:,} received, {traps['observations']:,} accepted"),
        ("Dropped", f"{dropped}; lost by the kernel: {traps['kernel_drops']:,}"),
        ("Windows", f"{report['windows']} of five minutes, each released once, empty ones included\n"),
    ):
        console.print(f"{name:<10}{words}")
    _print_counts(console, report["counts"])
    attributes = table("Attributes of the offices' day", ("audience", "attribute"), ("shown", "not shown"))
    for name, rows in report["attributes"].items():
        for attribute, row in rows.items():
            attributes.add_row(name, attribute, str(row["shown"]), str(row["not_shown"]))
    console.print(attributes)
    _print_spend(console, report)
    for line in report["promises"]:
        console.print(f"{line}\n")
    console.print(f"Everything is in {made.folder}. Look further:", soft_wrap=True)
    for line in (
        f"tacet subscribe --store {made.folder}/store --audience facilities --from-start --until-end",
        f"tacet account --store {made.folder}/store",
        f"tacet policy show {made.folder}/policy.toml",
    ):
        console.print(f"  {line}", soft_wrap=True)


def _print_counts(console: Console, report: dict[str, dict[str, Any]]) -> None:
    columns = ("windows\nreleased", "mean true\ncount", "mean\nerror", "error of\nthe median")
    counts = table("Counts, against what an exact count would have said", ("audience", "release", "level"), columns)
    poor = []
    for name, row in report.items():
        release, windows = ", ".join(row["releases"]), f"{row['released']} of {row['released'] + row['refused']}"
        for level, figures in row["levels"].items():
            expected = Quality(**figures)
            shown = (str(figure) for figure in (expected.mean, expected.error, expected.median))
            counts.add_row(name, release, level, windows, *shown)
            if expected.poor:
                poor.append(marked_poor(release, name, level, expected))
    console.print(counts)
    for line in poor:
        console.print(line)


def _print_spend(console: Console, report: dict[str, Any]) -> None:
    for site, account in report["account"].items():
        last = account["last"]
        readers = {**last["audiences"], "all together": last["coalition"]}
        spent = table(f"Spent at {site}, in epsilons", ("what is protected",), tuple(readers))
        for row in unit_rows(list(readers.values()), ("presence_tuple", "observation", "device_total", "person_total")):
            spent.add_row(*row)
        console.print(spent)
