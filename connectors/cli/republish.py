"""republish: publish lost records again, byte for byte, from their observations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from connectors.cli.options import (
    FILE,
    dialect_options,
    json_option,
    kafka_unless,
    key_option,
    on_grid,
    policy_option,
    read_policy,
    run_async,
    storage_options,
    windows_options,
)
from connectors.cli.output import print_json, progress, working
from connectors.keys import key_files
from connectors.operations.audit.verification import merged_policies
from connectors.sources.recordings.dialect import Dialect
from connectors.sources.recordings.observations import ObservationFile, shortfall
from connectors.storage.embedded.outboxes import OutboxRecord
from connectors.storage.embedded.reader import read_mechanisms, read_policies, read_published
from connectors.storage.embedded.runner import opened
from connectors.storage.embedded.store import SqliteStore
from stream.encoding import encode_message
from stream.engine.outputs import OutputRecord
from stream.engine.republication import Republication
from stream.engine.snapshot import open_snapshot
from stream.errors import DataError
from stream.pipeline import Options
from stream.release.stage import MECHANISM_VERSION
from stream.release.validation import Policy
from stream.schemas import parse_record
from stream.settings import Settings

Feed = Callable[[Republication], DataError | None]
"""Passes all observations; returns the error about bad rows, if there is one."""


@click.command()
@click.argument("observations", type=FILE, required=False)
@policy_option
@key_option
@storage_options
@dialect_options
@windows_options
@json_option
@click.pass_obj
def republish(
    settings: Settings, *, observations: Path | None, policy_file: Path, key_file: Path, store: Path | None,
    kafka: str | None, dialect: Dialect, first_window: int | None, last_window: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Publish lost records again, byte for byte, at no cost, from the OBSERVATIONS that they were made from.

    All observations are processed again, under the same policies and key, with the --from and --to of the run that made
    the records. A record is published only if all ledger entries up to it are reproduced exactly. Records that cannot
    be reproduced are reported, and nothing is released differently. On Kafka, OBSERVATIONS may be omitted if the topic
    of observations still contains the first one.

    \b
    tacet republish observations.csv --policy policy.toml --key-file key --store store
    tacet republish --policy policy.toml --key-file key --kafka broker:9092
    """
    servers = kafka_unless(store, kafka, settings)
    if store is not None and observations is None:
        raise click.UsageError("OBSERVATIONS: must be given with --store")
    policy = read_policy(policy_file)
    since, until = on_grid(policy, first_window, up=True), on_grid(policy, last_window, up=False)
    options = Options(first_window=since, last_window=until)
    feed = partial(_feed_topic, servers or "")
    if observations is not None:
        with progress("rows") as advance:
            file = ObservationFile(
                observations, policy, key_files.pseudonym_key(key_file), since=since, until=until, dialect=dialect,
                progress=advance,
            )  # fmt: skip
            file.begin()
            feed = partial(_feed_file, file)
            made, problem = _republished(policy, key_file, store, servers, options, feed)
    else:
        made, problem = _republished(policy, key_file, store, servers, options, feed)
    _report(made, as_json=as_json)
    if problem is not None:
        raise problem
    if made.stopped:
        why = "; ".join(f"site {site}: {reason}" for site, reason in sorted(made.stopped.items()))
        raise DataError(
            f"observations: must reproduce the whole ledger; {why}. The records that were reproduced are published"
        )


def _republished(
    policy: Policy, key_file: Path, store: Path | None, servers: str | None, options: Options, feed: Feed
) -> tuple[Republication, DataError | None]:
    if store is not None:
        return _in_store(policy, key_file, store, options, feed)
    return _on_kafka(policy, key_file, servers or "", options, feed)


def _in_store(
    policy: Policy, key_file: Path, folder: Path, options: Options, feed: Feed
) -> tuple[Republication, DataError | None]:
    with opened(policy, key_file, folder) as (_, opened_store):
        published = {parse_record(value)["release_id"]: value for value in read_published(folder)}
        policies = merged_policies(read_policies(folder), [policy])
        keys = key_files.FileKeys(key_file)
        made = Republication(
            policy, policies, keys, options, opened_store.entries(), published, _versions_of(folder, opened_store)
        )
        problem = feed(made)
        made.finish()
        for audience in sorted({each.topic.split(".")[2] for each in made.lost}):
            opened_store.outboxes.append(
                audience, [_row(each) for each in made.lost if each.topic.split(".")[2] == audience]
            )
        opened_store.outboxes.sync()
        return made, problem


def _row(record: OutputRecord) -> OutboxRecord:
    release = record.topic.split(".")[3]
    return OutboxRecord(record.id, release, record.key.decode(), record.timestamp_ms, record.value)


def _versions_of(folder: Path, store: SqliteStore) -> list[str]:
    """Return the mechanism versions that may have made a store's entries."""
    snapshot = store.snapshot()
    versions = {MECHANISM_VERSION if snapshot is None else open_snapshot(snapshot)[0].made_by}
    return sorted(versions | read_mechanisms(folder))


def _on_kafka(
    policy: Policy, key_file: Path, servers: str, options: Options, feed: Feed
) -> tuple[Republication, DataError | None]:
    from connectors.storage.kafka.republication import ledger_of, put_back  # noqa: PLC0415 - loads a client of Kafka

    with working("reading the cluster"):
        state, entries, published = run_async(ledger_of(servers))
    versions = state.versions or (MECHANISM_VERSION,)
    made = Republication(policy, state.accepted(), key_files.FileKeys(key_file), options, entries, published, versions)
    problem = feed(made)
    made.finish()
    with working("publishing again"):
        run_async(put_back(servers, made.lost))
    return made, problem


def _feed_file(file: ObservationFile, made: Republication) -> DataError | None:
    for message in file.messages():
        made.take(message.site, encode_message(message))
    return shortfall(file.tally)


def _feed_topic(servers: str, made: Republication) -> DataError | None:
    from connectors.storage.kafka.republication import observations  # noqa: PLC0415 - loads a client of Kafka

    async def read() -> None:
        async for record in observations(servers):
            made.take(record.key.decode(), record.value, record.timestamp_ms * 1000)

    with working("reading the observations"):
        run_async(read())
    return None


def _report(made: Republication, *, as_json: bool) -> None:
    topics = Counter(record.topic for record in made.lost)
    if as_json:
        print_json({
            "republished": len(made.lost), "topics": dict(sorted(topics.items())),
            "stopped": dict(sorted(made.stopped.items())),
        })  # fmt: skip
        return
    for topic, records in sorted(topics.items()):
        click.echo(f"{records:>8,}  {topic}")
    click.echo(f"{len(made.lost):>8,}  records published again")
