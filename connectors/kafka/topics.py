"""The topics: how many partitions, how long each is kept, how large a record may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError, RequestTimedOutError, for_code

from connectors.kafka.answering import answering
from connectors.kafka.client import MAX_MESSAGE, PATIENCE_MS, connect
from connectors.kafka.patience import patiently
from stream.errors import UsageError
from stream.policy.document import CountRelease, Policy, Release, audiences_of
from stream.schemas import (
    AUDIT,
    CONTROL,
    HEADS,
    LEAKAGE,
    METADATA,
    OBSERVATIONS,
    OCCUPANCY,
    PRESENCE,
    QUARANTINE,
    SNAPSHOT,
    private_topic,
)

BESIDES = (METADATA, HEADS)
"""Topics of every policy that workers can do without."""
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
FOR_EVER = -1
_NO_ANSWER = (KafkaConnectionError, NodeNotReadyError, RequestTimedOutError)
"""What an administrator's question may end in, which goes to any one broker; asked again, it goes to another."""
_RESTRICTED = {"retention.ms": str(DAY_MS), "segment.ms": str(60 * MINUTE_MS)}
_BROKERS_TIME = {"message.timestamp.type": "LogAppendTime"}
# A record's time is its window's end: a simulated or replayed day may lie anywhere.
_ANY_TIME = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}


def topic_config(name: str, *, private_retention_ms: int = FOR_EVER) -> dict[str, str]:
    """Return the broker's settings for a topic; names other than the engine's own are private topics."""
    engine: dict[str, dict[str, str]] = {
        # The broker's time bounds what a message may claim; a producer's own would bound nothing.
        OBSERVATIONS: _RESTRICTED | _BROKERS_TIME,
        PRESENCE: _RESTRICTED,
        OCCUPANCY: _RESTRICTED,
        SNAPSHOT: {
            # An old snapshot shows where people were: it is compacted away within ten minutes. The last one
            # of a partition outlives the observations, so that a long outage is noticed as a loss.
            "cleanup.policy": "compact,delete",
            "segment.ms": str(5 * MINUTE_MS),
            "max.compaction.lag.ms": str(5 * MINUTE_MS),
            "min.cleanable.dirty.ratio": "0.01",
            "retention.ms": str(7 * DAY_MS),
            "max.message.bytes": str(MAX_MESSAGE),
        },
        CONTROL: _BROKERS_TIME
        | {
            "cleanup.policy": "compact",
            "segment.ms": str(10 * MINUTE_MS),
            "max.compaction.lag.ms": str(10 * MINUTE_MS),
            "max.message.bytes": str(MAX_MESSAGE),
        },
        METADATA: {"cleanup.policy": "compact"},
        AUDIT: {"retention.ms": str(FOR_EVER)},
        HEADS: {"retention.ms": str(FOR_EVER)},
        LEAKAGE: {"retention.ms": str(private_retention_ms)},
        QUARANTINE: {"retention.ms": str(7 * DAY_MS)},
    }
    config = {"cleanup.policy": "delete"} | engine.get(name, {"retention.ms": str(private_retention_ms)})
    return config if name in (OBSERVATIONS, SNAPSHOT, CONTROL, METADATA, HEADS) else config | _ANY_TIME


def topic_names(policy: Policy) -> list[str]:
    """Return every topic that a policy's sites, releases, queries and revisions need.

    ``BESIDES`` are made along with them, but no worker stops where they are missing.
    """
    private = [
        private_topic(reader, name) for r in policy.release for name in _published(r) for reader in audiences_of(r)
    ]
    return [CONTROL, OBSERVATIONS, SNAPSHOT, AUDIT, LEAKAGE, QUARANTINE, PRESENCE, OCCUPANCY, *private]


def result_topics(existing: Iterable[str], policies: Iterable[Policy]) -> tuple[str, ...]:
    """Return those topics in which releases made under some policies, and their account, lie: these have books."""
    known = {name for policy in policies for name in topic_names(policy)}
    return tuple(name for name in existing if name in known and (name == LEAKAGE or name.startswith("tacet.private.")))


def _published(release: Release) -> list[str]:
    return [*release.published_names] if isinstance(release, CountRelease) else [release.name]


def refuse_missing(existing: Iterable[str], policy: Policy) -> None:
    """Raise UsageError with the first topic that a policy needs and the cluster does not have."""
    missing = [name for name in topic_names(policy) if name not in set(existing)]
    if missing:
        msg = f"topic {missing[0]}: must exist; 'tacet topics create' makes what is missing ({len(missing)} topics)"
        raise UsageError(msg)


@dataclass(frozen=True, slots=True)
class Created:
    """What ``create_topics`` did."""

    created: tuple[str, ...]
    existing: tuple[str, ...]
    partitions: int
    replication: int


async def create_topics(
    bootstrap: str,
    names: Iterable[str],
    *,
    partitions: int = 4,
    replication: int | None = None,
    private_retention_ms: int = FOR_EVER,
) -> Created:
    """Create the topics that are missing, all with the same number of partitions.

    ``replication`` defaults to the smaller of 3 and the brokers. A topic that exists is left as it is; if
    its number of partitions is another one, UsageError: a site would move to another partition and lose its
    state.
    """
    if partitions < 1:
        msg = f"partitions: must be at least 1, got {partitions}"
        raise UsageError(msg)
    admin = _admin(bootstrap)
    try:
        await connect(admin, bootstrap)
        brokers = len((await patiently(admin.describe_cluster, *_NO_ANSWER))["brokers"])
        copies = min(3, brokers) if replication is None else replication
        if not 1 <= copies <= brokers:
            msg = f"replication: must be in [1, {brokers}], the brokers there are, got {copies}"
            raise UsageError(msg)
        existing = await patiently(lambda: _existing(admin, names), *_NO_ANSWER)
        _refuse_other_counts(existing, partitions)
        missing = [name for name in dict.fromkeys(names) if name not in existing]
        await _create(admin, missing, partitions, copies, private_retention_ms)
    finally:
        await admin.close()
    return Created(tuple(missing), tuple(existing), partitions, copies)


def _admin(bootstrap: str) -> Any:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=PATIENCE_MS)
    answering(admin._client)  # noqa: SLF001 - see there
    return admin


async def refuse_producers_time(bootstrap: str) -> None:
    """Raise UsageError unless the broker stamps the observations: a producer's own time bounds nothing."""
    admin = _admin(bootstrap)
    try:
        await connect(admin, bootstrap)
        asked = [ConfigResource(ConfigResourceType.TOPIC, OBSERVATIONS)]
        (answer,) = await patiently(lambda: admin.describe_configs(asked), *_NO_ANSWER)
    finally:
        await admin.close()
    ((code, _, _, _, settings),) = answer.resources
    if code:
        msg = f"topic {OBSERVATIONS}: a worker must be allowed to read its settings, got {for_code(code).__name__}"
        raise UsageError(msg)
    name, wanted = next(iter(_BROKERS_TIME.items()))
    if {setting[0]: setting[1] for setting in settings}.get(name) != wanted:
        msg = f"topic {OBSERVATIONS}: must have {name}={wanted}; set it with kafka-configs.sh"
        raise UsageError(msg)


@dataclass(frozen=True, slots=True)
class Held:
    """A topic as a broker has it."""

    partitions: int
    config: Mapping[str, str]
    """Its settings, the broker's own included."""


async def held_topics(bootstrap: str, names: Iterable[str]) -> dict[str, Held]:
    """Return those of these topics that exist, as they are; UsageError where their settings may not be read."""
    admin = _admin(bootstrap)
    try:
        await connect(admin, bootstrap)
        existing = await patiently(lambda: _existing(admin, names), *_NO_ANSWER)
        asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in existing]
        answers = await patiently(lambda: admin.describe_configs(asked), *_NO_ANSWER) if asked else []
    finally:
        await admin.close()
    held = {}
    for code, _, _, name, settings in (resource for answer in answers for resource in answer.resources):
        if code:
            msg = f"topic {name}: who asks must be allowed to read its settings, got {for_code(code).__name__}"
            raise UsageError(msg)
        held[name] = Held(existing[name], {setting[0]: setting[1] for setting in settings})
    return held


async def _existing(admin: Any, names: Iterable[str]) -> dict[str, int]:
    """Return the partitions of those topics that exist, without asking for any that does not."""
    there = set(await admin.list_topics())
    wanted = [name for name in names if name in there]
    if not wanted:
        return {}
    return {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics(wanted)}


def _refuse_other_counts(existing: Mapping[str, int], partitions: int) -> None:
    for name, count in existing.items():
        if name != CONTROL and count != partitions:
            msg = f"topic {name}: must have {partitions} partitions like all others, has {count}; not altered"
            raise UsageError(msg)


async def _create(admin: Any, names: list[str], partitions: int, copies: int, private_retention_ms: int) -> None:
    durable = {"min.insync.replicas": "2" if copies >= 3 else "1"}
    wanted = [
        NewTopic(
            name,
            1 if name == CONTROL else partitions,
            copies,
            topic_configs=topic_config(name, private_retention_ms=private_retention_ms) | durable,
        )
        for name in names
    ]
    if not wanted:
        return
    response = await admin.create_topics(wanted)
    for name, code, *reason in response.topic_errors:
        if code:
            msg = f"topic {name}: {for_code(code).__name__}: {reason[0] if reason else ''}"
            raise UsageError(msg)
