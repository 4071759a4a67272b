"""leakage learn: models learnt from a restricted history, into a restricted report."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.commands.leakage import leakage
from connectors.commands.options import FILE, FOLDER, json_option, policy_option, print_json, read_policy
from connectors.files.history import read_history
from connectors.reports.learning import NOTICE, States, report_of, write_report


@click.command()
@click.argument("history", type=FOLDER)
@policy_option
@click.option("--states", type=click.Choice(["floors", "zones"]), default="floors", show_default=True)
@click.option("--out", type=FILE, help="The report to write, mode 0600.  [default: HISTORY/learnt.json]")
@json_option
def learn(history: Path, *, policy_file: Path, states: States, out: Path | None, as_json: bool) -> None:
    """Learn how attributes are jointly distributed and how people move, from a replay folder HISTORY.

    HISTORY must have been made with 'tacet replay --include-restricted'. What is learnt is personal data: it
    goes into one file that only you can read, never to a topic, into the account or onto the screen.
    """
    target = out if out is not None else history / "learnt.json"
    policy = read_policy(policy_file)
    report = report_of(policy, read_history(history, policy), states)
    write_report(report, target)
    days = max((release["days"] for release in report["attributes"].values()), default=0)
    if as_json:
        print_json({"restricted": True, "out": str(target), "policy_version": policy.version})
        return
    click.echo(f"{len(report['attributes'])} attribute release(s) over {days} day(s) → {target}")
    click.echo(NOTICE)


leakage.add_command(learn)
