"""attack: find people in releases of a recording, and test promised epsilons."""

from __future__ import annotations

import os
from pathlib import Path

import click
import orjson
from rich import box
from rich.console import Console
from rich.table import Table

from connectors.cli.options import (
    FILE,
    FOLDER,
    VerbGroup,
    dialect_options,
    json_option,
    observed_site,
    policy_option,
    read_policy,
)
from connectors.cli.output import print_json, progress
from connectors.lab.attacks.membership import MembershipTrial, attacked_guarantees
from connectors.lab.attacks.membership import membership as attack_by_membership
from connectors.lab.attacks.recording import opened_at_random, record
from connectors.lab.attacks.report import NOTICE, draw, membership_report, report, tables
from connectors.lab.attacks.study import AttackTerms, attack_day
from connectors.lab.plots import need_matplotlib
from connectors.secrets.private_files import check_private_folder, private_folder
from connectors.sources.recordings.dialect import Dialect
from connectors.sources.recordings.replay import refuse_used
from stream.errors import TacetError, UsageError
from stream.lab.attackers.beliefs import OPEN_KINDS, Flags, check_closed, opened
from stream.lab.attackers.membership import LEVEL, most_shown
from stream.records import MINUTE
from stream.release.validation import Policy

# attack membership


@click.command()
@click.option("--observations", type=FILE, required=True, help="A recording of at least two whole days.")
@policy_option
@click.option("--promised", type=FILE, help="Policy whose guarantees are tested.  [default: --policy]")
@click.option("--release", "only", multiple=True, help="Only this release. May be repeated.  [default: all]")
@click.option("--site", help="The site, if the policy has several.")
@click.option(
    "--runs", type=click.IntRange(10, 1_000_000), default=1000, show_default=True,
    help="Runs with and without the device; as many more choose the threshold.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="The same seed gives the same noise."
)
@dialect_options
@json_option
def membership(
    *, observations: Path, policy_file: Path, promised: Path | None, only: tuple[str, ...], site: str | None,
    runs: int, seed: int, dialect: Dialect, as_json: bool,
) -> None:  # fmt: skip
    """Try to infer whether a device was present, from each release, and print the epsilon that this shows.

    \b
    tacet attack membership --observations observations.csv --policy policy.toml --runs 1000

    Each release is run with and without a device that changes it as much as possible. The result is a lower bound on
    epsilon. If it exceeds the promised epsilon, the exit code is 1.
    """
    policy = read_policy(policy_file)
    bounding = policy if promised is None else read_policy(promised)
    policy, bounding = (_with_only(each, only) for each in (policy, bounding))
    name = observed_site(policy, site)
    attacked_guarantees(policy, bounding, name)
    with progress("rows read") as advance:
        recorded = record(observations, policy, name, seed, dialect, advance)
    with progress("runs") as advance:
        tried = list(attack_by_membership(policy, recorded, runs, seed, bounding, advance))
    if as_json:
        print_json(membership_report(tried, runs))
    else:
        Console().print(_table(tried, runs))
    broken = [each.guarantee for each in tried if each.exceeded]
    if recorded.problem is not None:
        if not broken:
            raise recorded.problem
        click.echo(f"tacet: {recorded.problem}", err=True)
    if broken:
        raise TacetError(f"release '{broken[0].release}' for '{broken[0].audience}' shows more than it promises")


def _with_only(policy: Policy, names: tuple[str, ...]) -> Policy:
    """Return a policy with only the named releases, or with all of them if no name is given."""
    known = [release.name for release in policy.release]
    for name in names:
        if name not in known:
            raise UsageError(f"--release: must be a release of the policy ({', '.join(known)}), got {name!r}")
    return policy.with_releases(release for release in policy.release if not names or release.name in names)


def _table(tried: list[MembershipTrial], runs: int) -> Table:
    most = most_shown(runs, LEVEL / max(1, len(tried)))
    title = (
        f"Epsilon shown by {runs} runs with a device and {runs} without; these can show at most {most:.2f}.\n"
        "The largest ratio is exact: the largest |ln| of the likelihood ratio of one run."
    )
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("release", "audience", "unit"):
        made.add_column(column, overflow="fold")
    for column in ("promised", "delta", "shown", "largest ratio", ""):
        made.add_column(column, justify="right")
    for each in tried:
        guarantee, ratio = each.guarantee, each.largest_ratio
        made.add_row(
            guarantee.release, guarantee.audience, guarantee.unit, f"{guarantee.epsilon:g}", f"{guarantee.delta:g}",
            f"{each.bound.epsilon:.3f}", "-" if ratio is None else f"{ratio:.3f}", "BROKEN" if each.exceeded else "",
        )  # fmt: skip
    return made


@click.group(cls=VerbGroup, invoke_without_command=True)
@click.option("--observations", type=FILE, help="A recording of at least two whole days. The last day is attacked.")
@click.option("--policy", "policy_file", type=FILE, help="The policy (TOML) whose count releases are attacked.")
@click.option(
    "--attacker", type=click.Choice(list(OPEN_KINDS)), help="The attacker; decides which kinds of zones it can observe."
)
@click.option("--open", "open_kinds", multiple=True, help="Another kind of zones that it can observe. May be repeated.")
@click.option(
    "--known",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Also let it observe random zones, to know this share of people.",
)
@click.option("--out", type=FOLDER, help="New folder for the results (mode 0700).")
@click.option("--site", help="The site, if the policy has several.")
@click.option(
    "--runs",
    type=click.IntRange(1, 1000),
    default=30,
    show_default=True,
    help="Number of runs, each with different noise.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="The same seed gives the same noise."
)
@click.option(
    "--span",
    type=click.IntRange(1, 720),
    default=10,
    show_default=True,
    help="Length of the attacked spans of the day, in minutes.",
)
@click.option(
    "--learn-days", type=click.IntRange(1, 3660), default=7, show_default=True,
    help="Days before the last one from which distributions of values are learnt; the prior uses all days.",
)  # fmt: skip
@click.option(
    "--ttl", "lives", type=click.IntRange(1, 86_400), multiple=True, default=(120,), show_default=True,
    help="Pseudonym lifetime in seconds, for the attack on counts by pseudonym. May be repeated.",
)  # fmt: skip
@dialect_options
@json_option
@click.pass_context
def attack(
    context: click.Context, *, observations: Path | None, policy_file: Path | None, attacker: str | None,
    open_kinds: tuple[str, ...], known: float, out: Path | None, site: str | None, runs: int, seed: int, span: int,
    learn_days: int, lives: tuple[int, ...], dialect: Dialect, as_json: bool,
) -> None:  # fmt: skip
    """Try to find people in the releases of a recording: as a visitor, a student or an administrator.

    \b
    tacet attack --observations observations.csv --policy policy.toml --attacker student --out found

    Writes found.json, and figures as PNG and SVG. Noise comes from --seed, so nothing is published and no key needed.
    """
    if context.invoked_subcommand is not None:
        return
    if observations is None or policy_file is None or attacker is None or out is None:
        raise click.UsageError("give --observations, --policy, --attacker and --out, or membership")
    need_matplotlib("attack")
    _check_out(out)
    policy = read_policy(policy_file)
    name = observed_site(policy, site)
    is_open = _opened(policy, name, attacker, open_kinds)
    terms = AttackTerms(span * MINUTE, runs, seed, learn_days, tuple(life * 1_000_000 for life in lives))
    _check_span(policy, name, span)
    with progress("rows read") as advance:
        recorded = record(observations, policy, name, seed, dialect, advance)
    is_open |= opened_at_random(recorded, known, seed)
    with progress("days released") as advance:
        found = attack_day(policy, recorded, is_open, terms, advance)
    document = report(found, attacker, span)
    folder = private_folder(out)
    draw(found, folder, span)
    (folder / "found.json").write_bytes(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
    for path in folder.iterdir():
        path.chmod(0o600)
    if as_json:
        print_json(document)
    else:
        for table in tables(found, attacker):
            Console().print(table)
        click.echo(f"{NOTICE} → {out}")
    if recorded.problem is not None:
        raise recorded.problem


def _opened(policy: Policy, site: str, attacker: str, more: tuple[str, ...]) -> Flags:
    """Return which zones of a site the attacker can observe."""
    kinds = [zone.kind for zone in policy.site[site].zones]
    for kind in more:
        if kind not in kinds:
            rule = f"must be a kind of the site's zones ({', '.join(sorted(set(kinds)))})"
            raise UsageError(f"--open: {rule}, got {kind!r}")
    is_open = opened(kinds, {*OPEN_KINDS[attacker], *more})
    check_closed(is_open)
    return is_open


def _check_out(out: Path) -> None:
    """Raise UsageError unless the folder is empty and private to its owner, or can be created."""
    refuse_used(out)
    check_private_folder(out)
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"--out: must be a folder that can be written, got '{out}'")


def _check_span(policy: Policy, site: str, minutes: int) -> None:
    tick = policy.site[site].tick
    if minutes * MINUTE % tick or (24 * 60) % minutes:
        rule = f"must divide a day and be a multiple of the tick ({tick // MINUTE:g} min)"
        raise UsageError(f"--span: {rule}, got {minutes}")


attack.add_command(membership)
