"""The topics of a policy: their names, their creation, and checks of what a cluster has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError, RequestTimedOutError, for_code

from connectors.storage.kafka.aiokafka_client import answering, brokers_without
from connectors.storage.kafka.client import NoAnswerError, connect, with_retry
from connectors.storage.kafka.timeouts import BROKER_PATIENCE, PATIENCE_MS
from connectors.storage.kafka.topic_settings import (
    FOR_EVER,
    MIN_INSYNC,
    TopicSettings,
    WrongSetting,
    is_result,
    min_insync,
    topic_config,
    wrong_settings,
)
from stream.errors import UsageError
from stream.policy.document import PolicyDocument, Release, audiences_of
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
"""Topics of every policy that workers do not need."""
_NO_ANSWER = (KafkaConnectionError, NodeNotReadyError, RequestTimedOutError)
"""Errors of an administrator's request, which goes to any one broker; a repeated request goes to another."""


def topic_names(policy: PolicyDocument) -> list[str]:
    """Return every topic that a policy's sites, releases, queries and revisions need.

    The topics in ``BESIDES`` are created with them, but no worker stops if they are missing.
    """
    private = [
        private_topic(reader, name)
        for r in policy.release
        for name in _published(policy, r)
        for reader in audiences_of(r)
        if name in policy.published_names(r, reader)
    ]
    return [CONTROL, OBSERVATIONS, SNAPSHOT, AUDIT, LEAKAGE, QUARANTINE, PRESENCE, OCCUPANCY, *private]


def result_topics(existing: Iterable[str], policies: Iterable[PolicyDocument]) -> tuple[str, ...]:
    """Return the topics that contain releases made under some policies, and their account.

    These must match the ledger.
    """
    known = {name for policy in policies for name in topic_names(policy)}
    return tuple(name for name in existing if name in known and is_result(name))


def _published(policy: PolicyDocument, release: Release) -> list[str]:
    names = (name for reader in audiences_of(release) for name in policy.published_names(release, reader))
    return list(dict.fromkeys(names))


def refuse_missing(existing: Iterable[str], policy: PolicyDocument) -> None:
    """Raise UsageError with the first topic that a policy needs and the cluster lacks."""
    missing = [name for name in topic_names(policy) if name not in set(existing)]
    if missing:
        msg = f"topic {missing[0]}: must exist; 'tacet topics create' makes what is missing ({len(missing)} topics)"
        raise UsageError(msg)


@dataclass(frozen=True, slots=True)
class Created:
    """The result of ``create_topics``."""

    created: tuple[str, ...]
    existing: tuple[str, ...]
    partitions: int
    replication: int


async def create_topics(
    bootstrap: str,
    names: Collection[str],
    *,
    partitions: int = 4,
    replication: int | None = None,
    private_retention_ms: int = FOR_EVER,
) -> Created:
    """Create the missing topics, all with the same number of partitions; return when every broker knows them.

    A controller answers before its brokers know a topic; whoever asks one of these at once would miss it.
    ``replication`` defaults to 3 or the number of brokers, whichever is smaller. An existing topic is left as it is. If
    it has another number of partitions, UsageError: a site would move to another partition and lose its state.
    """
    if partitions < 1:
        msg = f"partitions: must be at least 1, got {partitions}"
        raise UsageError(msg)
    admin = _admin(bootstrap)
    try:
        await connect(admin, bootstrap)
        brokers = len((await with_retry(admin.describe_cluster, *_NO_ANSWER))["brokers"])
        copies = min(3, brokers) if replication is None else replication
        if not 1 <= copies <= brokers:
            msg = f"replication: must be in [1, {brokers}], the number of brokers, got {copies}"
            raise UsageError(msg)
        existing = await with_retry(lambda: _existing(admin, names), *_NO_ANSWER)
        _refuse_other_counts({name: len(copies) for name, copies in existing.items()}, partitions)
        missing = [name for name in dict.fromkeys(names) if name not in existing]
        await _create(admin, missing, partitions, copies, private_retention_ms)
        if missing:
            await _wait_until_known(admin, missing)
    finally:
        await admin.close()
    return Created(tuple(missing), tuple(existing), partitions, copies)


def _admin(bootstrap: str) -> Any:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=PATIENCE_MS)
    answering(admin)
    return admin


async def existing_topics(bootstrap: str, names: Collection[str]) -> dict[str, TopicSettings]:
    """Return the settings of those topics that exist; UsageError if this user may not read them."""
    admin = _admin(bootstrap)
    try:
        await connect(admin, bootstrap)
        existing = await with_retry(lambda: _existing(admin, names), *_NO_ANSWER)
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in existing]
        answers = await with_retry(lambda: admin.describe_configs(resources), *_NO_ANSWER) if resources else []
    finally:
        await admin.close()
    found = {}
    for code, _, _, name, settings in (resource for answer in answers for resource in answer.resources):
        if code:
            msg = f"topic {name}: this user must be allowed to read its settings, got {for_code(code).__name__}"
            raise UsageError(msg)
        config = {setting[0]: setting[1] for setting in settings}
        found[name] = TopicSettings(len(existing[name]), config, min(existing[name]))
    return found


async def refuse_settings(bootstrap: str, policy: PolicyDocument) -> None:
    """Raise UsageError where a setting of a policy's topics would lose or fork something."""
    for fault in await dangerous_settings(bootstrap, policy):
        raise UsageError(f"{fault}; {fault.remedy()}")


async def dangerous_settings(bootstrap: str, policy: PolicyDocument) -> list[WrongSetting]:
    """Return the settings of a policy's topics, as far as they exist, that would lose or fork something."""
    existing = await existing_topics(bootstrap, [*topic_names(policy), *BESIDES])
    return [
        fault for name, topic in sorted(existing.items()) for fault in wrong_settings(name, topic) if fault.dangerous
    ]


async def _existing(admin: Any, names: Collection[str]) -> dict[str, list[int]]:
    """Return the number of copies of each partition, by topic, for those topics that exist."""
    there = set(await admin.list_topics())
    wanted = [name for name in names if name in there]
    if not wanted:
        return {}
    return {
        topic["topic"]: [len(partition["replicas"]) for partition in topic["partitions"]]
        for topic in await admin.describe_topics(wanted)
    }


def _refuse_other_counts(existing: Mapping[str, int], partitions: int) -> None:
    for name, count in existing.items():
        if name != CONTROL and count != partitions:
            msg = f"topic {name}: must have {partitions} partitions like all others, has {count}; not altered"
            raise UsageError(msg)


async def _create(admin: Any, names: list[str], partitions: int, copies: int, private_retention_ms: int) -> None:
    durable = {MIN_INSYNC: min_insync(copies)}
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


async def _wait_until_known(admin: Any, names: list[str]) -> None:
    """Return when every broker that answers knows the topics and their leaders; NoAnswerError names one that does not.

    Without an answer of any broker, the error says so.
    """
    lacking: list[int] = []

    async def refuse_unknown() -> None:
        nonlocal lacking
        if lacking := await brokers_without(admin, names):
            raise ConnectionError

    try:
        await with_retry(refuse_unknown, ConnectionError, *_NO_ANSWER)
    except NoAnswerError:
        if not lacking:
            raise
        msg = f"broker {lacking[0]}: must know the new topics within {BROKER_PATIENCE:g} s; they are created"
        raise NoAnswerError(msg) from None
