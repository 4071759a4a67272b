"""Settings of topics: retention, cleanup and maximum size of a record, and which differences lose something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from connectors.storage.kafka.client import MAX_MESSAGE
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
)

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
FOR_EVER = -1
MIN_INSYNC = "min.insync.replicas"
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


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic in the cluster."""

    partitions: int
    config: Mapping[str, str]
    """Its settings, the broker's own included."""
    replication: int = 1


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
    own = is_result(name)
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


def is_result(name: str) -> bool:
    """Return whether a topic contains releases or their account."""
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
    key, required = MIN_INSYNC, min_insync(topic.replication)
    value = topic.config.get(key, "nothing")
    if _is_shorter(value, required):
        yield WrongSetting(name, key, required, value, durable, at_least=True)
    elif int(value) > topic.replication:
        yield WrongSetting(name, key, required, value, dangerous=False)


def min_insync(replication: int) -> str:
    """Return how many replicas of a durable topic must have a record before its writer goes on."""
    return "2" if replication >= 3 else "1"
