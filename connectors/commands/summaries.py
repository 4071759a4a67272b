"""What ``run`` and ``ingest`` say at their end: rows of a file, datagrams of live traps, and what was dropped."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from connectors.commands.options import print_json, report_drops
from connectors.counters.gathering import Gathering
from connectors.files.text_rows import Tally
from connectors.intake.ingest import UNKNOWN_ACCESS_POINT
from connectors.intake.ingest_state import most_unknown
from connectors.intake.receiver import Receiver


class Fed(NamedTuple):
    """What became of a file."""

    tally: Tally
    dropped: dict[str, int]
    """Rows that sensing dropped in this run, by reason."""
    whole: bool
    """Whether it was fed to its end."""


def report_file(tally: Tally, *, as_json: bool) -> None:
    """Say what became of a file that was sent on."""
    if as_json:
        print_json(_figures(tally))
        return
    click.echo(f"{tally.rows:,} rows, {tally.bad:,} bad")
    report_drops({}, tally.unknown_access_points, tally.outside)


def report_run(fed: Fed, *, as_json: bool) -> None:
    """Say what became of a file that was run through."""
    if as_json:
        print_json(_figures(fed.tally) | {"dropped": fed.dropped, "stopped": not fed.whole})
        return
    click.echo(f"{fed.tally.rows:,} rows, {fed.tally.bad:,} bad")
    report_drops(fed.dropped, fed.tally.unknown_access_points, fed.tally.outside)
    if not fed.whole:
        click.echo("stopped before the end of the file; the same command goes on from here")


def report_counts(gathered: Gathering, *, as_json: bool) -> None:
    """Say what became of the rows of a topic."""
    if as_json:
        print_json({"rows": gathered.rows, "dropped": dict(sorted(gathered.dropped.items()))})
        return
    click.echo(f"{gathered.rows:,} rows read")
    report_drops(gathered.dropped, 0, 0)


def _figures(tally: Tally) -> dict[str, Any]:
    return {name: getattr(tally, name) for name in ("rows", "bad", "unknown_access_points", "outside")}


def report_traps(made: Receiver, *, as_json: bool) -> None:
    """Say what a receiver has had, and what became of it."""
    counters, state = made.counters, made.state
    dropped = {reason: n for reason, n in counters.dropped.items() if n}
    unknown = most_unknown(state)
    others = dropped.get(UNKNOWN_ACCESS_POINT, 0) - sum(unknown.values())
    if as_json:
        print_json(
            {"datagrams": counters.datagrams, "accepted": counters.accepted, "dropped": dropped,
             "waiting": counters.waiting, "kernel_drops": counters.kernel_drops,
             "informs_answered": counters.informs_answered, "requests_answered": counters.requests_answered,
             "answers_unsent": counters.answers_unsent,
             "locally_administered": state.locally_administered, "unknown_access_points": unknown,
             "traps_of_other_unknown_access_points": others, "shut_sites": sorted(state.shut)}
        )  # fmt: skip
        return
    click.echo(f"{counters.datagrams:,} datagrams, {counters.accepted:,} accepted")
    for reason, n in sorted(dropped.items()):
        click.echo(f"  {n:>8,}  dropped: {reason.replace('_', ' ')}")
        if reason == UNKNOWN_ACCESS_POINT:
            _list_unknown(unknown, others)
    for n, what in (
        (counters.waiting, "still in the queue"),
        (counters.kernel_drops, "lost in the kernel, beside these"),
        (state.locally_administered, "sightings of locally administered addresses"),
        (counters.informs_answered, "informs answered"),
        (counters.requests_answered, "accounting requests answered"),
        (counters.answers_unsent, "answers that could not be sent"),
    ):
        if n:
            click.echo(f"  {n:>8,}  {what}")
    for site in sorted(state.shut):
        click.echo(f"site {site} is shut: it had more devices than max_devices")


def _list_unknown(unknown: dict[str, int], others: int) -> None:
    """List access points that the policy lacks: equipment of the network, never a client."""
    for name, n in unknown.items():
        click.echo(f"  {n:>12,}  {name}")
    if others:
        click.echo(f"  {others:>12,}  at others")
