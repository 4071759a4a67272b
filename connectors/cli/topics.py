"""topics: the topics of a policy on Kafka, and their access rules."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.cli.options import VerbGroup, bootstrap, json_option, policy_option, read_policy, run_async
from connectors.cli.output import print_json
from connectors.sources.counters.topic import check_topic
from connectors.storage.kafka.acls import (
    BROKER_SETTINGS,
    NOTHING,
    Foreign,
    commands,
    document,
    is_reserved,
    run_user,
    users,
)
from connectors.storage.kafka.cluster import found_cluster
from connectors.storage.kafka.topics import BESIDES, Created, create_topics, topic_names
from stream.errors import UsageError
from stream.settings import Settings, group_name


@click.group(cls=VerbGroup)
def topics() -> None:
    """Create the topics of a policy on Kafka, and print the access rules that they need."""


@topics.command("create")
@click.option("--kafka", help="Bootstrap servers, HOST:PORT.  [env: TACET_KAFKA]")
@policy_option
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True, help="Partitions of each topic.")
@click.option(
    "--replication",
    type=click.IntRange(1),
    help="Replicas of each partition.  [default: 3, or the number of brokers if that is smaller]",
)
@json_option
@click.pass_obj
def create_all(
    settings: Settings, *, kafka: str | None, policy_file: Path, partitions: int, replication: int | None, as_json: bool
) -> None:
    """Create the missing topics; never change the number of partitions of existing ones.

    The control topic stores the number of partitions, which from then on holds for the whole cluster.

    \b
    tacet topics create --kafka broker:9092 --policy policy.toml
    """
    servers = bootstrap(settings, kafka)
    names = [*topic_names(read_policy(policy_file)), *BESIDES]
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


@topics.command("acls")
@policy_option
@click.option("--serve", "served", multiple=True, help="An audience that 'tacet serve' serves.  [default: all]")
@click.option("--serve-account", is_flag=True, help="'tacet serve' also serves the account.")
@click.option("--serve-operator", is_flag=True, help="'tacet serve' also serves figures for operators.")
@click.option("--counts", help="External topic that 'tacet ingest --counts --topic' reads.")
@click.option("--telegraf", help="External topic that 'tacet ingest --telegraf' reads.")
@click.option(
    "--telegraf-group",
    "groups",
    multiple=True,
    help="Consumer group that reads it. May be repeated.  [env: TACET_TELEGRAF_GROUP]",
)
@click.option("--run", "for_run", is_flag=True, help="'tacet run' reads these topics: print only its user.")
@json_option
@click.pass_obj
def acls(
    settings: Settings, *, policy_file: Path, served: tuple[str, ...], serve_account: bool, serve_operator: bool,
    counts: str | None, telegraf: str | None, groups: tuple[str, ...], for_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print the Kafka users that a policy needs and what each may do, as shell commands for Kafka's own tools.

    \b
    tacet topics acls --policy policy.toml > acls.sh
    TACET_KAFKA=broker:9093 sh -e acls.sh

    This command contacts no broker and changes nothing. Run it again after audiences or releases were added. Remove
    rules of removed ones with kafka-acls.sh --remove.
    """
    policy = read_policy(policy_file)
    known = [audience.name for audience in policy.audience]
    if unknown := sorted({*served} - {*known}):
        raise UsageError(f"--serve: must name audiences of the policy ({', '.join(known)}), got {unknown[0]!r}")
    foreign = _foreign(settings, counts, telegraf, groups)
    if for_run and foreign == NOTHING:
        raise click.UsageError("--run: must be used with --counts or --telegraf, the topics that 'tacet run' reads")
    accounts = [run_user(foreign)] if for_run else users(
        policy, served or None, account=serve_account, operator=serve_operator, foreign=foreign
    )  # fmt: skip
    if as_json:
        print_json(document(accounts))
        return
    click.echo(
        "# for brokers and controllers, in server.properties; also set super.users to whoever runs these commands:"
    )
    for name, value in BROKER_SETTINGS.items():
        click.echo(f"#   {name}={value}")
    for user in accounts:
        click.echo(f"\n# {user.role}{f' {user.audience}' if user.audience else ''}")
        for line in commands(user):
            click.echo(line)


def _foreign(settings: Settings, counts: str | None, telegraf: str | None, groups: tuple[str, ...]) -> Foreign:
    """Return the external topics that are read; UsageError if a rule for one would open Tacet's own topics."""
    if counts is not None:
        check_topic("--counts", counts)
    if telegraf is None:
        if groups:
            raise click.UsageError("--telegraf-group: must be used with --telegraf")
        return Foreign(counts)
    check_topic("--telegraf", telegraf, "telegraf writes")
    groups = groups or (settings.telegraf_group,)
    for group in groups:
        _check_group(group)
    return Foreign(counts, telegraf, groups)


def _check_group(group: str) -> None:
    try:
        group_name(group)
    except ValueError as error:
        raise UsageError(f"--telegraf-group: {error}, got {group!r}") from None
    if is_reserved(group):
        raise UsageError(f"--telegraf-group: must not be a group that Tacet uses itself, got {group!r}")


async def _create(servers: str, names: list[str], partitions: int, replication: int | None) -> Created:
    made = await create_topics(servers, names, partitions=partitions, replication=replication)
    await found_cluster(servers, partitions)
    return made
