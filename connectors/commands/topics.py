"""topics: the topics of a policy on Kafka."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.commands.options import json_option, policy_option, print_json, read_policy, run_async
from connectors.topics import create_topics, topic_names


@click.group()
def topics() -> None:
    """Create the topics of a policy on Kafka."""


@topics.command("create")
@click.option("--kafka", required=True, help="Bootstrap servers, HOST:PORT.")
@policy_option
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True)
@click.option("--replication", type=click.IntRange(1), help="Default: the smaller of 3 and the brokers.")
@json_option
def create_all(kafka: str, policy_file: Path, partitions: int, replication: int | None, *, as_json: bool) -> None:
    """Create what is missing; refuse to change the number of partitions of what is there."""
    names = topic_names(read_policy(policy_file))
    made = run_async(create_topics(kafka, names, partitions=partitions, replication=replication))
    if as_json:
        print_json(
            {"created": made.created, "existing": made.existing, "partitions": made.partitions,
             "replication": made.replication}
        )  # fmt: skip
        return
    for name in made.created:
        click.echo(f"created  {name}")
    for name in made.existing:
        click.echo(f"existed  {name}")
    click.echo(f"{made.partitions} partitions, {made.replication} replicas")
