"""attack membership: whether what is released about a device shows more than its epsilon promises."""

from __future__ import annotations

from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

from connectors.attacks.membership import Tried, report
from connectors.attacks.membership import membership as attack_by_membership
from connectors.attacks.recording import record, site_of
from connectors.commands.choosing import dialect_options
from connectors.commands.options import FILE, json_option, policy_option, print_json, progress, read_policy
from connectors.files.dialect import Dialect
from stream.attackers.membership import LEVEL, most_shown
from stream.errors import TacetError, UsageError
from stream.policy.document import Policy


@click.command()
@click.option("--observations", type=FILE, required=True, help="A recording of at least two whole days.")
@policy_option
@click.option("--promised", type=FILE, help="Policy whose promises are held against it.  [default: --policy]")
@click.option("--release", "only", multiple=True, help="Only this release; may be repeated.  [default: all]")
@click.option("--site", help="Which site, where the policy has several.")
@click.option(
    "--runs", type=click.IntRange(10, 1_000_000), default=1000, show_default=True,
    help="Measured on each side; as many more choose the threshold.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Same seed, same noise.")
@dialect_options
@json_option
def membership(
    *, observations: Path, policy_file: Path, promised: Path | None, only: tuple[str, ...], site: str | None,
    runs: int, seed: int, dialect: Dialect, as_json: bool,
) -> None:  # fmt: skip
    """Try to tell whether a device was there, from each release of a policy, and print the epsilon that this shows.

    \b
    tacet attack membership --observations observations.csv --policy policy.toml --runs 1000

    Each release is run with and without a device that changes as much of it as one can. What is shown is a lower bound
    on epsilon and must stay below what is promised; exit code 1 where it does not.
    """
    policy = read_policy(policy_file)
    held = policy if promised is None else read_policy(promised)
    policy, held = (_with_only(each, only) for each in (policy, held))
    name = site_of(policy, site)
    with progress("rows read") as tick:
        recorded = record(observations, policy, name, seed, dialect, tick)
    with progress("runs") as tick:
        tried = list(attack_by_membership(policy, recorded, runs, seed, held, tick))
    if as_json:
        print_json(report(tried, runs))
    else:
        Console().print(_table(tried, runs))
    broken = [each.promise for each in tried if each.exceeded]
    if broken:
        raise TacetError(f"release '{broken[0].release}' for '{broken[0].audience}' shows more than it promises")


def _with_only(policy: Policy, names: tuple[str, ...]) -> Policy:
    """Return a policy with the releases that are named, or all of them where none is."""
    known = [release.name for release in policy.release]
    for name in names:
        if name not in known:
            raise UsageError(f"--release: must be a release of the policy ({', '.join(known)}), got {name!r}")
    kept = tuple(release for release in policy.release if not names or release.name in names)
    return policy.model_copy(update={"release": kept})


def _table(tried: list[Tried], runs: int) -> Table:
    most = most_shown(runs, LEVEL / max(1, len(tried)))
    title = (
        f"Epsilon shown by {runs} runs with a device and {runs} without; at most {most:.2f} can be.\n"
        "The largest ratio is exact, |ln| of how much likelier one run was with it."
    )
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("release", "audience", "unit"):
        made.add_column(column, overflow="fold")
    for column in ("promised", "delta", "shown", "largest ratio", ""):
        made.add_column(column, justify="right")
    for each in tried:
        promise, ratio = each.promise, each.largest_ratio
        made.add_row(
            promise.release, promise.audience, promise.unit, f"{promise.epsilon:g}", f"{promise.delta:g}",
            f"{each.bound.epsilon:.3f}", "-" if ratio is None else f"{ratio:.3f}", "BROKEN" if each.exceeded else "",
        )  # fmt: skip
    return made
