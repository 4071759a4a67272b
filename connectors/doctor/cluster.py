"""The topics of a policy on Kafka: which are there, how many partitions they have, how they are set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from connectors.doctor.findings import Finding, fine, wrong
from connectors.kafka.topics import BESIDES, Held, held_topics, topic_config, topic_names
from stream.policy.document import Policy
from stream.schemas import CONTROL

TOPICS = "topics"
WEIGHTY = ("cleanup.policy", "message.timestamp.type", "max.message.bytes", "retention.ms", "segment.ms",
           "max.compaction.lag.ms")  # fmt: skip
"""Settings that decide what is kept, for how long, and whose time a record bears."""


async def cluster(bootstrap: str, policy: Policy) -> list[Finding]:
    """Return how a policy's topics are; nothing is written, and no group is joined."""
    names = [*topic_names(policy), *BESIDES]
    return list(topics(names, await held_topics(bootstrap, names)))


def topics(names: list[str], held: Mapping[str, Held]) -> Iterator[Finding]:
    """Yield which topics are missing, divided otherwise than the rest, or set otherwise than they should be."""
    if missing := [name for name in names if name not in held]:
        yield wrong(TOPICS, f"{len(missing)} missing, such as {missing[0]}: 'tacet topics create' makes them")
    divided = {name: topic.partitions for name, topic in held.items() if name != CONTROL}
    if len(set(divided.values())) > 1:
        least, most = min(divided, key=divided.__getitem__), max(divided, key=divided.__getitem__)
        yield wrong(TOPICS, f"must have equal partitions: {least} has {divided[least]}, {most} has {divided[most]}")
    strange = [text for name, topic in sorted(held.items()) for text in _strange(name, topic.config)]
    for text in strange:
        yield wrong(TOPICS, f"{text}; set it with kafka-configs.sh")
    if not missing and not strange:
        yield fine(TOPICS, f"{len(held)} there, set as they should be")


def _strange(name: str, config: Mapping[str, str]) -> Iterator[str]:
    """Yield each weighty setting that is not as this program makes it; how long results are kept is the operator's."""
    own = name.startswith("tacet.private.") or name == "tacet.leakage.v1"
    for key, value in topic_config(name).items():
        if key in WEIGHTY and not (own and key == "retention.ms") and config.get(key) != value:
            yield f"{name}: {key} is {config.get(key, 'not told')}, wanted {value}"
