"""The topics: number of partitions, retention, and maximum size of a record."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError, RequestTimedOutError, for_code

from connectors.storage.kafka.aiokafka_client import answering, brokers_without
from connectors.storage.kafka.client import MAX_MESSAGE, NoAnswerError, connect, with_retry
from connectors.storage.kafka.timeouts import BROKER_PATIENCE, PATIENCE_MS
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
    is_private,
    private_topic,
)

BESIDES = (METADATA, HEADS)
"""Topics of every policy that workers do not need."""
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
FOR_EVER = -1
MIN_INSYNC = "min.insync.replicas"
_NO_ANSWER = (KafkaConnectionError, NodeNotReadyError, RequestTimedOutError)
"""Errors of an administrator's request, which goes to any one broker; a repeated request goes to another."""
_RESTRICTED = {"retention.ms": str(DAY_MS), "segment.ms": str(60 * MINUTE_MS)}
_BROKERS_TIME = {"message.timestamp.type": "LogAppendTime"}
# A reader unpacks a whole batch. The broker unpacks it first and applies ``max.message.bytes`` to the result, so that a
# small message cannot unpack to gigabytes. Observations are encrypted: compression saves nothing.
_UNPACKED = {"compression.type": "uncompressed"}
# A record's time is its window's end: a simulated or replayed day may lie anywhere.
_ANY_TIME = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}


def topic_config(name: str, *, private_retention_ms: int = FOR_EVER) -> dict[str, str]:
    """Return the broker's settings for a topic; names other than the engine's own are private topics."""
    engine: dict[str, dict[str, str]] = {
        # The broker's time bounds what a message may claim; a producer's own would bound nothing.
        OBSERVATIONS: _RESTRICTED | _BROKERS_TIME | _UNPACKED,
        PRESENCE: _RESTRICTED,
        OCCUPANCY: _RESTRICTED,
        SNAPSHOT: {
            # An old snapshot reveals stays: it is compacted away within ten minutes. The last one of a partition
            # outlives the observations, so that a long outage is detected as a loss.
            "cleanup.policy": "compact,delete",
            "segment.ms": str(5 * MINUTE_MS),
            "max.compaction.lag.ms": str(5 * MINUTE_MS),
            "min.cleanable.dirty.ratio": "0.01",
            "retention.ms": str(7 * DAY_MS),
            "max.message.bytes": str(MAX_MESSAGE),
        },
        CONTROL: _BROKERS_TIME
        | _UNPACKED
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
    every = {"cleanup.policy": "delete", "unclean.leader.election.enable": "false", "retention.bytes": str(FOR_EVER)}
    config = every | engine.get(name, {"retention.ms": str(private_retention_ms)})
    return config if name in (OBSERVATIONS, SNAPSHOT, CONTROL, METADATA, HEADS) else config | _ANY_TIME


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
    return tuple(name for name in existing if name in known and (name == LEAKAGE or is_private(name)))


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


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic in the cluster."""

    partitions: int
    config: Mapping[str, str]
    """Its settings, the broker's own included."""
    replication: int = 1


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


@dataclass(frozen=True, slots=True)
class WrongSetting:
    """A setting of a topic that is not as ``create_topics`` makes it."""

    topic: str
    key: str
    required: str
    """The value to set."""
    found: str
    dangerous: bool
    """Whether something would be lost or forked; else it is unwise."""
    at_least: bool = False
    """Whether more than ``required`` is good, too."""

    def __str__(self) -> str:
        """Return topic, key, and both values."""
        least = " at least" if self.at_least else ""
        return f"topic {self.topic}: must have{least} {self.key}={self.required}, has {self.found}"

    def remedy(self) -> str:
        """Return the command that mends it."""
        value = f"[{self.required}]" if "," in self.required else self.required
        return (
            f"'kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic {self.topic} --add-config "
            f"{self.key}={value}' sets it"
        )


_NEVER_LOST = frozenset({CONTROL, OBSERVATIONS, SNAPSHOT, AUDIT, HEADS, LEAKAGE})
_KEPT_BY_OPERATORS = ("retention.ms", "retention.bytes")
"""For how long and up to which size private records and accounts are kept is the operator's to say."""


def wrong_settings(name: str, topic: TopicSettings) -> Iterator[WrongSetting]:
    """Yield each setting that is not as it is made; longer retention than that is an operator's to choose."""
    own = _is_result(name)
    durable = own or name in _NEVER_LOST
    found = topic.config
    for key, required in topic_config(name).items():
        value = found.get(key, "nothing")
        if key.startswith("message.timestamp.after") or value == required or (own and key in _KEPT_BY_OPERATORS):
            continue
        if key in _KEPT_BY_OPERATORS:
            if _is_shorter(value, required) and "delete" in found.get("cleanup.policy", ""):
                yield WrongSetting(name, key, required, value, durable, at_least=required != str(FOR_EVER))
        elif key == "cleanup.policy":
            yield WrongSetting(name, key, required, value, durable and _loses(name, value, found))
        elif key != "max.message.bytes" or _is_shorter(value, required):
            yield WrongSetting(name, key, required, value, durable and key in _OF_LOSS)
    yield from _wrong_copies(name, topic, durable=durable)


_OF_LOSS = ("unclean.leader.election.enable", "message.timestamp.type")


def _is_result(name: str) -> bool:
    return is_private(name) or name == LEAKAGE


def _is_shorter(value: str, required: str) -> bool:
    """Return whether a limit lets go of something earlier than another one; -1 is none."""
    try:
        limit, wanted = int(value), int(required)
    except ValueError:
        return True
    return limit >= 0 and (wanted < 0 or limit < wanted)


def _loses(name: str, cleanup: str, found: Mapping[str, str]) -> bool:
    """Return whether cleaning up a durable topic in this way takes away what is needed."""
    ways = set(cleanup.split(","))
    if name == SNAPSHOT:  # the newest of each partition is needed, and both ways keep it for the time that is set
        return not ways <= {"compact", "delete"}
    if name == CONTROL:  # the newest of each key is needed for ever
        limits = (found.get(key, "nothing") for key in _KEPT_BY_OPERATORS)
        return "delete" in ways and any(_is_shorter(limit, str(FOR_EVER)) for limit in limits)
    return "compact" in ways


def _wrong_copies(name: str, topic: TopicSettings, *, durable: bool) -> Iterator[WrongSetting]:
    """Yield a number of replicas to wait for that one broker's end could make worthless, or that there cannot be."""
    key, required = MIN_INSYNC, _min_insync(topic.replication)
    value = topic.config.get(key, "nothing")
    if _is_shorter(value, required):
        yield WrongSetting(name, key, required, value, durable, at_least=True)
    elif int(value) > topic.replication:
        yield WrongSetting(name, key, required, value, dangerous=False)


def _min_insync(replication: int) -> str:
    return "2" if replication >= 3 else "1"


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
    durable = {MIN_INSYNC: _min_insync(copies)}
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
