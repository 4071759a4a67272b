"""policy diff: what one policy changes against another, in words."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from connectors.cli.options import FILE, json_option, print_json, read_policy
from connectors.operations.policy.diff import Change, Difference, difference

TITLES = {
    "cheaper": "Cheaper",
    "dearer": "Dearer",
    "anew": "Begins anew",
    "day_starts": "Changes when a privacy day begins",
    "otherwise": "Otherwise",
}
BEGINS_ANEW = 1
"""Exit code where something begins anew."""
_CLOSING = (
    "Books go on, and what has been released stays as it is: a window is released again only where an operator orders "
    "another attempt, which is charged again. --accept-policy lets the new policy begin with the next window."
)


@click.command("diff")
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@json_option
def diff(old: Path, new: Path, *, as_json: bool) -> None:
    """Say what the policy NEW changes against OLD: what gets cheaper or dearer, what begins anew, and when.

    Exit code 1 where something begins anew: a filter or groups, a day at hand, counters, a publication that is
    carried; 0 where nothing does.
    """
    found = difference(read_policy(old), read_policy(new))
    if as_json:
        print_json(found.figures())
    else:
        _print(found)
    sys.exit(BEGINS_ANEW if found.loses_state else 0)


def _print(found: Difference) -> None:
    if found.old == found.new:
        click.echo(f"Both are policy {found.old}: nothing changes.")
        return
    click.echo(f"Policy {found.new} instead of {found.old}.")
    for kind, title in TITLES.items():
        _print_kind(title, [change for change in found.changes if change.kind == kind])
    click.echo(f"\n{_CLOSING}")


def _print_kind(title: str, changes: list[Change]) -> None:
    if changes:
        click.echo(f"\n{title}:")
        for change in changes:
            click.echo(f"  {change.where}: {change.text}")
