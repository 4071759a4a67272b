"""attack: what releases let somebody find out of where people are, on a recording whose truth is known."""

from __future__ import annotations

from pathlib import Path

import click
import orjson
from rich.console import Console

from connectors.attacks.laboratory import Terms, attack_day
from connectors.attacks.recording import opened_at_random, record, site_of
from connectors.attacks.told import NOTICE, draw, report, tables
from connectors.commands.attacking_membership import membership
from connectors.commands.choosing import dialect_options
from connectors.commands.options import FILE, FOLDER, json_option, print_json, progress, read_policy
from connectors.files.dialect import Dialect
from connectors.files.replay import refuse_used
from connectors.plots import need_matplotlib
from connectors.private_folder import private_folder
from stream.attackers.priors import OPEN_KINDS, opened
from stream.errors import UsageError
from stream.policy.document import Policy
from stream.records import MINUTE


@click.group(invoke_without_command=True)
@click.option("--observations", type=FILE, help="A recording of at least two whole days; the last is attacked.")
@click.option("--policy", "policy_file", type=FILE, help="The policy file (TOML) whose count releases are read.")
@click.option("--attacker", type=click.Choice(list(OPEN_KINDS)), help="Which zones it sees into, by their kinds.")
@click.option("--open", "open_kinds", multiple=True, help="Kind of zones that it sees into besides; may be repeated.")
@click.option(
    "--known", type=click.FloatRange(0, 1), default=0.0, help="Zones opened at random, for a share of people."
)
@click.option("--out", type=FOLDER, help="New folder for what was found (mode 0700).")
@click.option("--site", help="Which site, where the policy has several.")
@click.option("--runs", type=click.IntRange(1, 1000), default=30, show_default=True, help="Each with noise of its own.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Same seed, same noise.")
@click.option(
    "--span", type=click.IntRange(1, 720), default=10, show_default=True, help="Minutes of a span of the day."
)
@click.option(
    "--learn-days", type=click.IntRange(1, 3660), default=7, show_default=True,
    help="From how many days before the last laws of values are learnt; the prior is from all.",
)  # fmt: skip
@click.option(
    "--ttl", "lives", type=click.IntRange(1, 86_400), multiple=True, default=(120,), show_default=True,
    help="Seconds that a name lives, for counts under names that are changed; may be repeated.",
)  # fmt: skip
@dialect_options
@json_option
@click.pass_context
def attack(
    context: click.Context, *, observations: Path | None, policy_file: Path | None, attacker: str | None,
    open_kinds: tuple[str, ...], known: float, out: Path | None, site: str | None, runs: int, seed: int, span: int,
    learn_days: int, lives: tuple[int, ...], dialect: Dialect, as_json: bool,
) -> None:  # fmt: skip
    """Look for people in what a policy releases of a recording, as an external visitor, a student or an administrator.

    \b
    tacet attack --observations observations.csv --policy policy.toml --attacker student --out found

    Writes found.json, and figures as PNG and SVG. Noise comes from --seed: nothing made here is anybody's release, and
    no key is needed.
    """
    if context.invoked_subcommand is not None:
        return None
    if observations is None or policy_file is None or attacker is None or out is None:
        raise click.UsageError("give --observations, --policy, --attacker and --out, or membership")
    need_matplotlib("attack")
    refuse_used(out)
    policy = read_policy(policy_file)
    name = site_of(policy, site)
    terms = Terms(span * MINUTE, runs, seed, learn_days, tuple(life * 1_000_000 for life in lives))
    _check_span(policy, name, span)
    with progress("rows read") as tick:
        recorded = record(observations, policy, name, seed, dialect, tick)
    is_open = opened([zone.kind for zone in recorded.site.zones], {*OPEN_KINDS[attacker], *open_kinds})
    is_open |= opened_at_random(recorded, known, seed)
    with progress("days released") as tick:
        found = attack_day(policy, recorded, is_open, terms, tick)
    made = report(found, attacker, span)
    folder = private_folder(out)
    draw(found, folder, span)
    (folder / "found.json").write_bytes(orjson.dumps(made, option=orjson.OPT_APPEND_NEWLINE))
    for path in folder.iterdir():
        path.chmod(0o600)
    if as_json:
        return print_json(made)
    for table in tables(found, attacker):
        Console().print(table)
    click.echo(f"{NOTICE} → {out}")
    return None


def _check_span(policy: Policy, site: str, minutes: int) -> None:
    tick = policy.site[site].tick
    if minutes * MINUTE % tick or (24 * 60) % minutes:
        rule = f"must divide a day and be a multiple of the tick ({tick // MINUTE:g} min)"
        raise UsageError(f"--span: {rule}, got {minutes}")


attack.add_command(membership)
