"""Access rules on Kafka: one user for each role and audience.

Names are literal, except for the consumer groups of an audience's own programs and for the engine's transactions. Their
prefixes end in a dot or a dash, so a user of ``dean`` has no access to names that begin with ``deanery``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, NamedTuple

from connectors.storage.kafka.cluster import ENGINE_FENCE, GROUP
from connectors.storage.kafka.cluster import FENCE as CONTROL_FENCE
from connectors.storage.kafka.heads import FENCE as HEADS_FENCE
from connectors.storage.kafka.topics import BESIDES, topic_names
from stream.policy.document import PolicyDocument
from stream.records import JsonObject
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

Kind = Literal["topic", "group", "transactional-id"]
MEBIBYTE = 1 << 20
BROKER_SETTINGS: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    "auto.create.topics.enable": "false",
}
"""Settings that brokers and controllers must have; without them no rule takes effect."""
_READER = {"producer_byte_rate": 1024, "request_percentage": 50}


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """The operations that a user may perform on resources of one name, or on all whose names begin with it."""

    kind: Kind
    prefixed: bool
    operations: tuple[str, ...]
    """Kafka's names of the operations; Read and Write include Describe."""
    name: str


@dataclass(frozen=True, slots=True)
class User:
    """The Kafka user of one role."""

    name: str
    role: str
    audience: str | None
    rules: tuple[Rule, ...]
    quotas: Mapping[str, int] = field(default_factory=dict)
    """By Kafka's names, for each broker: bytes per second, and percent of a thread's time."""


class Foreign(NamedTuple):
    """Topics that other programs write and that ingest reads."""

    counts: str | None = None
    """Topics of people counters' counts; read without a group."""
    traps: str | None = None
    """Topics that telegraf writes."""
    groups: tuple[str, ...] = ()
    """Consumer groups under which Kafka stores the offsets of trap readers, one for each reader."""


NOTHING = Foreign()


def users(
    policy: PolicyDocument, served: Iterable[str] | None = None, *, account: bool = False, operator: bool = False,
    foreign: Foreign = NOTHING,
) -> list[User]:  # fmt: skip
    """Return the users that a policy's cluster needs; the service reads the ``served`` audiences (default: all).

    ``account`` and ``operator``: the service also reads the account, or the operators' figures. ``foreign``: topics of
    other programs that ingest reads.
    """
    audiences = [audience.name for audience in policy.audience]
    private = {name: _private_of(policy, name) for name in audiences}
    every = [topic for topics in private.values() for topic in topics]
    shown = [topic for name in (audiences if served is None else served) for topic in private[name]]
    return [
        User("tacet-ingest", "ingest", None, tuple(_ingest(foreign)), {"producer_byte_rate": 10 * MEBIBYTE}),
        User("tacet-engine", "engine", None, tuple(_engine(every))),
        *(_audience(name, private[name]) for name in audiences),
        _reader("tacet-serve", "serve", [*shown, *_shown_besides(account=account, operator=operator)]),
        _reader("tacet-account", "account", [LEAKAGE, AUDIT, CONTROL, *every]),
        _reader("tacet-auditor", "auditor", [AUDIT, HEADS, CONTROL, *every]),
        User("tacet-signer", "signer", None, tuple(_signer()), {"consumer_byte_rate": 20 * MEBIBYTE}),
        User("tacet-operator", "operator", None, tuple(_operator(policy))),
    ]


def run_user(foreign: Foreign) -> User:
    """Return the user of ``tacet run``, which has its own store and only reads topics of a cluster."""
    return User("tacet-run", "run", None, tuple(_foreign(foreign)), {"consumer_byte_rate": 20 * MEBIBYTE} | _READER)


def _shown_besides(*, account: bool, operator: bool) -> list[str]:
    return [LEAKAGE, QUARANTINE, CONTROL] if operator else [LEAKAGE] if account else []


def _private_of(policy: PolicyDocument, audience: str) -> list[str]:
    own = private_topic(audience, "")[: -len(".v1")]
    return [name for name in topic_names(policy) if name.startswith(own)]


def _topics(operations: str, *names: str) -> Iterator[Rule]:
    for name in names:
        yield Rule("topic", False, tuple(operations.split()), name)


def _changes_control() -> Iterator[Rule]:
    """Yield the rules of a user that changes the control topic; a change fences every other writer meanwhile."""
    yield from _topics("Read Write", CONTROL)
    yield Rule("transactional-id", False, ("Write", "Describe"), CONTROL_FENCE)


def _ingest(foreign: Foreign) -> Iterator[Rule]:
    yield from _topics("Write", OBSERVATIONS)
    yield from _foreign(foreign)
    yield from _changes_control()


def _foreign(foreign: Foreign) -> Iterator[Rule]:
    yield from _topics("Read", *(topic for topic in (foreign.counts, foreign.traps) if topic is not None))
    for group in foreign.groups:
        yield Rule("group", False, ("Read",), group)


def is_reserved(group: str) -> bool:
    """Return whether a group is the engine's, or may be an audience's: a foreign member could stop its consumption."""
    return group == GROUP or group.startswith(private_topic("", "")[: -len("..v1")])


def _engine(private: Iterable[str]) -> Iterator[Rule]:
    yield from _topics("Read", OBSERVATIONS)
    yield from _topics("Read Write", SNAPSHOT, AUDIT, METADATA)
    yield from _topics("Write", PRESENCE, OCCUPANCY, QUARANTINE, LEAKAGE)
    yield from _topics("Read Write", *private)  # 'recover' and 'republish' compare them with the ledger
    settled = (CONTROL, OBSERVATIONS, SNAPSHOT, AUDIT, LEAKAGE, QUARANTINE, PRESENCE, OCCUPANCY, *private, *BESIDES)
    yield from _topics("Describe DescribeConfigs", *settled)  # it refuses settings that would lose something
    yield from _changes_control()
    yield Rule("transactional-id", True, ("Write", "Describe"), f"{ENGINE_FENCE}-")
    yield Rule("group", False, ("Read",), GROUP)


def _audience(name: str, topics: list[str]) -> User:
    group = f"tacet.private.{name}"
    groups = (Rule("group", False, ("Read",), group), Rule("group", True, ("Read",), f"{group}."))
    rules = (*_topics("Read", *topics, METADATA), *groups)
    return User(f"tacet-audience-{name}", "audience", name, rules, {"consumer_byte_rate": 5 * MEBIBYTE} | _READER)


def _reader(name: str, role: str, topics: list[str]) -> User:
    rules = tuple(_topics("Read", *topics, METADATA))
    return User(name, role, None, rules, {"consumer_byte_rate": 20 * MEBIBYTE} | _READER)


def _signer() -> Iterator[Rule]:
    """Yield the rules of the signer: nobody else writes signed heads, and it writes nothing else."""
    yield from _topics("Read", AUDIT, CONTROL)
    yield from _topics("Read Write", HEADS)
    yield Rule("transactional-id", False, ("Write", "Describe"), HEADS_FENCE)


def _operator(policy: PolicyDocument) -> Iterator[Rule]:
    """Yield the rules of an operator, who creates topics and reads their settings, but only records of quarantine and
    control.
    """
    yield from _topics("Create Describe DescribeConfigs AlterConfigs", *topic_names(policy), *BESIDES)
    yield from _topics("Read", QUARANTINE, METADATA)
    yield from _changes_control()
    yield Rule("group", False, ("Describe",), GROUP)


# --- as JSON, and as shell commands ---------------------------------------------------------------

ASKING = ("--bootstrap-server", "$TACET_KAFKA", "--command-config", "admin.properties")
"""Options with which Kafka's own tools reach a broker as an administrator."""


def document(users: Iterable[User]) -> JsonObject:
    """Return the settings of brokers and users as JSON, with one entry for each name and operation."""
    return {"brokers": dict(BROKER_SETTINGS), "principals": [_described(user) for user in users]}


def _described(user: User) -> JsonObject:
    rules = [
        {"resource": rule.kind, "name": rule.name, "pattern": "prefixed" if rule.prefixed else "literal",
         "operation": operation}
        for rule in user.rules for operation in rule.operations
    ]  # fmt: skip
    head = {"principal": f"User:{user.name}", "role": user.role, "audience": user.audience}
    return head | {"acls": rules, "quotas": dict(user.quotas)}


def commands(user: User) -> list[str]:
    """Return the shell commands that give a user its rules and quotas with Kafka's own tools; each may be repeated."""
    lines = [
        _line("kafka-acls.sh", "--add", "--force", "--allow-principal", f"User:{user.name}",
              *(("--resource-pattern-type", "prefixed") if prefixed else ()),
              *(word for operation in operations for word in ("--operation", operation)),
              *(word for rule in rules for word in (f"--{kind}", rule.name)))
        for (kind, prefixed, operations), rules in groupby(sorted(user.rules), key=_sort)
    ]  # fmt: skip
    if user.quotas:
        rates = ",".join(f"{name}={value}" for name, value in user.quotas.items())
        entity = ("--entity-type", "users", "--entity-name", user.name)
        lines.append(_line("kafka-configs.sh", "--alter", "--add-config", rates, *entity))
    return lines


def _sort(rule: Rule) -> tuple[Kind, bool, tuple[str, ...]]:
    return rule.kind, rule.prefixed, rule.operations


def _line(tool: str, *words: str) -> str:
    server, address, option, file = ASKING
    return f'{tool} {server} "{address}" {option} {file} {shlex.join(words)}'
