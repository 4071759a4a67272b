"""demo: the whole data flow in one command, from simulated controllers to releases.

A slow machine plays the day more slowly and loses nothing (``lab/simulation/trap_playback.py``). If traps or windows
are missing all the same, the demo lists them, compares nothing and exits with 1: no conclusion is drawn from a part of
a day.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from connectors.cli.options import FOLDER, Address, json_option, read_policy, run_async
from connectors.cli.output import print_json, progress, table, utility_warning
from connectors.cli.serve import serve_here
from connectors.http.server import free_port
from connectors.keys import key_files
from connectors.lab.simulation import policy as simulation_policy
from connectors.lab.simulation.trap_playback import TrapPlayback
from connectors.lab.simulation.traps import trap_schedule
from connectors.operations.account import SiteAccount, spent_by_reader, summary
from connectors.operations.audit.verification import counted_window
from connectors.operations.policy.guarantee_figures import sentences_to_sign
from connectors.operations.policy.guarantees import spaced, unit_rows
from connectors.operations.policy.quality import Quality, by_level_quality
from connectors.runtime.signals import first_to_end
from connectors.secrets.private_files import private_folder
from connectors.serve.startup import ServeConfig
from connectors.sources.ingest.queue import Counters
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.live import UdpSource, receiver
from connectors.sources.recordings.replay import refuse_used
from connectors.storage.embedded.reader import read_outbox, read_topic
from connectors.storage.embedded.runner import FileSink, embedded
from connectors.subscribe.order import Release
from stream.lab.simulator.events import DAY_SHOWN, simulate
from stream.lab.simulator.radio import Heard
from stream.pipeline import Options
from stream.policy.counts import CountRelease
from stream.policy.fields import EVERYBODY
from stream.records import DAY, MINUTE, JsonObject, Micros
from stream.release.count_plan import ByLevel, by_level, count_plan
from stream.release.validation import Policy
from stream.schemas import LEAKAGE, OCCUPANCY, parse_record

# The results of a demo: traps, windows, counts compared with exact ones, and costs.


@dataclass(slots=True)
class Demo:
    """The results of a demo."""

    folder: Path
    policy: Policy
    counters: Counters
    traps: int
    """Of the whole day."""
    sent: int
    harmless: Collection[str]
    """Reasons for dropped traps that occur in normal operation."""

    @property
    def dropped(self) -> dict[str, int]:
        """Reason -> number of traps that were dropped for it."""
        return {reason: n for reason, n in self.counters.dropped.items() if n}


@dataclass(frozen=True, slots=True)
class AudienceCounts:
    """The counts of one audience, compared with exact ones."""

    releases: tuple[str, ...]
    released: int
    """Windows."""
    refused: int
    levels: Mapping[str, Quality]

    def to_json(self) -> JsonObject:
        """Return one object of ``counts``."""
        first = next(iter(self.levels.values()), None)
        return {
            "releases": list(self.releases),
            "released": self.released,
            "refused": self.refused,
            "mean_count": None if first is None else round(first.mean, 2),
            "mean_error": None if first is None else round(first.error, 2),
            "mean_error_building": round(self.levels["building"].error, 2) if "building" in self.levels else None,
            "worse_than_zero": first is not None and first.worse_than_zero,
            "levels": {level: _rounded(quality)._asdict() for level, quality in self.levels.items()},
        }


def _rounded(quality: Quality) -> Quality:
    return Quality(*(round(figure, 2) for figure in quality))


@dataclass(frozen=True, slots=True)
class ShownDays:
    """How many days of an attribute were shown, and how many were not."""

    shown: int = 0
    not_shown: int = 0


@dataclass(frozen=True, slots=True)
class Results:
    """What a complete day has shown."""

    counts: Mapping[str, AudienceCounts]
    attributes: Mapping[str, Mapping[str, ShownDays]]
    """Audience -> attribute -> its days."""
    account: Mapping[str, SiteAccount]
    """Site -> what it has spent (``operations.account.summary``)."""
    bounds: Sequence[str]
    """A sentence for each release whose counts are bounded."""
    guarantees: Sequence[str]
    """The sentences to sign."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The summary of a demo."""

    made: Demo
    windows: int
    missing: Sequence[str]
    """What is missing of the day, in words."""
    results: Results | None
    """None for an incomplete day, from which nothing is concluded."""

    def to_json(self) -> JsonObject:
        """Return the object that ``--json`` prints."""
        counters = self.made.counters
        report: JsonObject = {
            "traps": {
                "sent": self.made.sent,
                "received": counters.datagrams,
                "observations": counters.accepted,
                "dropped": self.made.dropped,
                "kernel_drops": counters.kernel_drops,
            },
            "windows": self.windows,
            "missing": list(self.missing),
        }
        if self.results is None:
            return report
        found = self.results
        return report | {
            "counts": {name: counts.to_json() for name, counts in found.counts.items()},
            "attributes": {
                name: {attribute: asdict(days) for attribute, days in rows.items()}
                for name, rows in found.attributes.items()
            },
            "account": found.account,
            "bounds": list(found.bounds),
            "promises": list(found.guarantees),
        }


def outcome(made: Demo) -> Outcome:
    """Return the summary; for an incomplete day only what is missing."""
    store = made.folder / "store"
    truth = {
        record["window_end"]: record
        for record in map(parse_record, read_topic(store, OCCUPANCY, key_files.FileKeys(made.folder / "key").vault))
    }
    releases = {
        audience.name: [parse_record(value) for _, value in read_outbox(store, audience.name, 0)]
        for audience in made.policy.audience
    }
    exact = _exact(made.policy, truth)
    counts = {name: _compared(records, exact) for name, records in releases.items()}
    windows = [each.released + each.refused for each in counts.values()]
    lacking = list(missing(made, min(windows)))
    if lacking:
        return Outcome(made, min(windows), lacking, None)
    account = summary([parse_record(value) for value in read_topic(store, LEAKAGE)])
    attributes = {name: _attributes(records) for name, records in releases.items()}
    sentences = list(_bounds(made.policy)), list(sentences_to_sign(made.policy))
    return Outcome(made, max(windows), (), Results(counts, attributes, account["sites"], *sentences))


def missing(made: Demo, windows: int) -> Iterator[str]:
    """Yield what is missing of the day, in words."""
    counters = made.counters
    if made.sent < made.traps:
        yield f"{made.traps - made.sent:,} of {made.traps:,} traps were not sent: the receiver accepted no more"
    lost = made.sent - counters.datagrams
    if lost:
        yield f"{lost:,} of {made.sent:,} traps that were sent were not received"
    for reason, n in made.dropped.items():
        if reason in made.harmless:
            continue
        yield f"{n:,} of {counters.datagrams:,} received traps were dropped ({reason.replace('_', ' ')})"
    if counters.waiting:
        yield f"{counters.waiting:,} received traps were not processed"
    [(_, site)] = made.policy.site.items()
    if windows < DAY // site.tick:
        yield f"{windows} of {DAY // site.tick} windows were released"


Exact = dict[tuple[str, str], ByLevel]
"""Release and window -> the counts without noise, which only a laboratory stores, and for a day."""


def _exact(policy: Policy, truth: Mapping[str, JsonObject]) -> Exact:
    """Return what exact counts would have published: bounded ones if a release counts those."""
    [(site, place)] = policy.site.items()
    plans = [count_plan(policy, release, site) for release in policy.release if isinstance(release, CountRelease)]
    windows = {end: counted_window(place, site, record) for end, record in truth.items()}
    return {(plan.release.name, end): plan.truth(window) for plan in plans for end, window in windows.items()}


def _compared(records: list[Release], exact: Exact) -> AudienceCounts:
    """Compare an audience's counts with the exact ones."""
    counts = [record for record in records if "values" in record]
    released = [record for record in counts if record["released"]]
    known = [(exact[at], record) for record in released if (at := (record["release"], record["window_end"])) in exact]
    published = [by_level(record["values"], record.get("levels")) for _, record in known]
    return AudienceCounts(
        tuple(sorted({record["release"] for record in released})), len(released), len(counts) - len(released),
        by_level_quality([row for row, _ in known], published),
    )  # fmt: skip


def _attributes(records: list[Release]) -> dict[str, ShownDays]:
    days: dict[str, ShownDays] = {}
    for record in records:
        if "attribute" in record:
            known = days.get(record["attribute"], ShownDays())
            shown, not_shown = known.shown + record["released"], known.not_shown + (not record["released"])
            days[record["attribute"]] = ShownDays(shown, not_shown)
    return days


def print_outcome(found: Outcome) -> None:
    """Print the results on a terminal."""
    console, made, counters = Console(highlight=False), found.made, found.made.counters
    dropped = ", ".join(f"{n:,} {reason.replace('_', ' ')}" for reason, n in made.dropped.items()) or "none"
    console.print("[bold]One simulated day, from traps to private releases[/bold]\n")
    for name, words in (
        ("Traps", f"{made.sent:,} sent, {counters.datagrams:,} received, {counters.accepted:,} accepted"),
        ("Dropped", f"{dropped}; lost by the kernel: {counters.kernel_drops:,}"),
        ("Windows", f"{found.windows} of five minutes, each released once, empty ones included\n"),
    ):
        console.print(f"{name:<10}{words}")
    if found.results is None:
        _print_missing(console, found.missing, made)
    else:
        _print_results(console, found.results, made.folder)


def _print_results(console: Console, found: Results, folder: Path) -> None:
    _print_counts(console, found.counts)
    for line in found.bounds:
        console.print(f"{line}\n")
    attributes = table("Attributes of the offices' day", ("audience", "attribute"), ("shown", "not shown"))
    for name, rows in found.attributes.items():
        for attribute, days in rows.items():
            attributes.add_row(name, attribute, str(days.shown), str(days.not_shown))
    console.print(attributes)
    _print_spend(console, found.account)
    for line in found.guarantees:
        console.print(f"{line}\n")
    console.print(f"All files are in {folder}. Next steps:", soft_wrap=True)
    for line in (
        f"tacet subscribe --store {folder}/store --audience facilities --from-start --until-end",
        f"tacet account --store {folder}/store",
        f"tacet policy show {folder}/policy.toml",
    ):
        console.print(f"  {line}", soft_wrap=True)


def _print_missing(console: Console, lines: Iterable[str], made: Demo) -> None:
    console.print("[bold]The day is incomplete, so its counts are not compared with the truth:[/bold]")
    for line in lines:
        console.print(f"  {line}", soft_wrap=True)
    console.print(f"\nAll files are in {made.folder}. Run the demo again, with a smaller --speed.", soft_wrap=True)


def _bounds(policy: Policy) -> Iterator[str]:
    """Yield a sentence for each release with a contribution bound, because its counts are lower than others."""
    [(name, site)] = policy.site.items()
    for release in policy.release:
        if isinstance(release, CountRelease) and release.by_day and policy.zones_of(release, name):
            machines = " and no device that was present when the day started" if site.residents == "ignore" else ""
            most = site.bound_text(changes=True) if release.by_changes else f"{spaced(site.bounded_to or '')} of"
            bound = f"for at most {most} a day{machines}"
            lower = "its counts are lower than those of a release that counts all devices"
            yield f"Release '{release.name}' counts each device {bound}: {lower}."


def _print_counts(console: Console, report: Mapping[str, AudienceCounts]) -> None:
    columns = ("windows\nreleased", "mean\ncount", "mean\nerror", "error of\nthe median")
    counts = table(
        "Counts, compared with exact counts of the devices that each release counts",
        ("audience", "release", "level"),
        columns,
    )
    poor = []
    for name, row in report.items():
        release, windows = ", ".join(row.releases), f"{row.released} of {row.released + row.refused}"
        for level, quality in row.levels.items():
            expected = _rounded(quality)
            shown = (str(figure) for figure in (expected.mean, expected.error, expected.median))
            counts.add_row(name, release, level, windows, *shown)
            if expected.poor:
                poor.append(utility_warning(release, name, level, expected))
    console.print(counts)
    for line in poor:
        console.print(line)


def _print_spend(console: Console, accounts: Mapping[str, SiteAccount]) -> None:
    for site, account in accounts.items():
        readers = spent_by_reader(account["last"])
        names = tuple("all together" if reader == EVERYBODY else reader for reader in readers)
        spent = table(f"Spent at {site}, in epsilons", ("protected unit",), names)
        for row in unit_rows(list(readers.values()), ("presence_tuple", "observation", "device_total", "person_total")):
            spent.add_row(*row)
        console.print(spent)


COMMUNITY = b"public"
SPEED = 1900
"""Times real time: a day in about 45 seconds."""
PORT = 8050
PLAYED = 60.0
"""Speed relative to real time at which the page plays the day."""


@click.command()
@click.option(
    "--dir",
    "folder",
    type=FOLDER,
    help="Folder for store, policy and key.  [default: a new temporary folder]",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the simulated day.")
@click.option(
    "--speed", type=click.FloatRange(1, 5000), default=SPEED, show_default=True, help="How many times real time."
)
@click.option(
    "--serve/--no-serve",
    "served",
    default=None,
    help="Serve the day as a web page afterwards.  [default: on a terminal]",
)
@click.option("--listen", type=Address(), help="Address of the page.  [default: loopback, port 8050 or a free one]")
@json_option
def demo(
    folder: Path | None, seed: int, speed: float, *, served: bool | None, listen: tuple[str, int] | None, as_json: bool
) -> None:
    """Run one simulated day from SNMP traps to private releases, and print the results.

    A building with 64 access points is simulated. Its controller sends real traps over UDP on loopback. The pipeline
    counts, releases and accounts, and the releases are compared with the truth. This takes about a minute, longer on a
    slow machine. On a terminal the day is then served as a web page and played again, until Ctrl-C. If a part of the
    day is missing, the demo lists it and exits with 1.
    """
    made = run_async(play(folder or Path(tempfile.mkdtemp(prefix="tacet-demo-")), seed, speed))
    found = outcome(made)
    print_json(found.to_json()) if as_json else print_outcome(found)
    if found.missing:
        sys.exit(1)
    if is_served(served, terminal=sys.stdin.isatty() and sys.stdout.isatty(), as_json=as_json):
        click.echo("\nThe day as a web page, played 60 times as fast as real time; Ctrl-C ends it.")
        serve_here(shown(made.folder, made.policy, listen))


def is_served(requested: bool | None, *, terminal: bool, as_json: bool) -> bool:
    """Whether a demo serves its day at the end: as requested, else only on a terminal."""
    return terminal and not as_json if requested is None else requested


def shown(folder: Path, policy: Policy, listen: tuple[str, int] | None = None) -> ServeConfig:
    """Return the configuration to serve a demo: everything, at the usual port if that is free."""
    audiences = tuple(audience.name for audience in policy.audience)
    return ServeConfig(
        policy, audiences, folder / "store", account=True, operator=True,
        listen=listen or ("127.0.0.1", free_port(PORT)), play=PLAYED, simulated=True,
    )  # fmt: skip


async def play(folder: Path, seed: int, speed: float) -> Demo:
    """Simulate, listen, send, and drain.

    Raises:
        UsageError: the folder exists and is not empty; an existing policy or key belongs to another installation.
    """
    refuse_used(folder)
    private_folder(folder)
    simulation = simulate(replace(DAY_SHOWN, seed=seed, heard=Heard.SELDOM))
    policy_file, key_file = folder / "policy.toml", folder / "key"
    policy_file.write_text(simulation_policy.policy_text(simulation))
    key_files.create(key_file, laboratory=True)
    policy = read_policy(policy_file)
    key = key_files.pseudonym_key(key_file)
    with embedded(policy, key_file, folder / "store", Options(occupancy=True)) as runner:
        # A simulated day can be repeated, so incomplete windows are not stored, and a slow disk can keep up.
        sink = FileSink(runner, asyncio.Event())
        source = UdpSource(("127.0.0.1", 0), (COMMUNITY,), start=simulation.start)
        async with receiver([source], policy, key, sink) as listening:
            _listened_before(listening, policy, simulation.start)
            with progress("windows released", 288) as advance:
                traps = trap_schedule(simulation, [], seed, 1)
                playing = TrapPlayback(traps, listening, speed, lambda: advance(runner.partition.counters.windows))
                await first_to_end(playing.run(), listening.wait())
    return Demo(folder, policy, listening.counters, len(traps), playing.sent, listening.harmless)


def _listened_before(listening: Receiver, policy: Policy, start: Micros) -> None:
    """Mark the window that ends at the start of the simulated day as covered: nobody was present yet."""
    for site in policy.site.values():
        for source in site.sources:
            listening.state.simulated[source] = start - site.tick - MINUTE
