"""topics: the topics of a policy on Kafka."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.commands.options import bootstrap, json_option, policy_option, print_json, read_policy, run_async
from connectors.kafka.control import found_cluster
from connectors.kafka.topics import Created, create_topics, topic_names
from stream.schemas import METADATA
from stream.settings import Settings


@click.group()
def topics() -> None:
    """Create the topics of a policy on Kafka."""


@topics.command("create")
@click.option("--kafka", help="Bootstrap servers, HOST:PORT.  [env: TACET_KAFKA]")
@policy_option
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True)
@click.option("--replication", type=click.IntRange(1), help="Default: the smaller of 3 and the brokers.")
@json_option
@click.pass_obj
def create_all(
    settings: Settings, *, kafka: str | None, policy_file: Path, partitions: int, replication: int | None, as_json: bool
) -> None:
    """Create what is missing; refuse to change the number of partitions of what is there.

    The number of partitions is the cluster's from then on: the control topic keeps it.
    """
    servers = bootstrap(settings, kafka)
    names = [*topic_names(read_policy(policy_file)), METADATA]
    made = run_async(_create(servers, names, partitions, replication))
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


async def _create(servers: str, names: list[str], partitions: int, replication: int | None) -> Created:
    made = await create_topics(servers, names, partitions=partitions, replication=replication)
    await found_cluster(servers, partitions)
    return made
