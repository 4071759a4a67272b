"""Who may do what on Kafka: one user for each role and audience, with the least that its programs need.

Names are literal, but for consumer groups of an audience's own programs and for the engine's transactions, whose prefix
ends in a dot or a dash: what begins with ``dean`` is not open to who begins with ``deanery``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, NamedTuple

from connectors.kafka.control import FENCE as CONTROL_FENCE
from connectors.kafka.heads import FENCE as HEADS_FENCE
from connectors.kafka.joining import FENCE as ENGINE_FENCE
from connectors.kafka.joining import GROUP
from connectors.kafka.topics import BESIDES, topic_names
from stream.policy.document import Policy
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
BROKERS: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    "auto.create.topics.enable": "false",
}
"""What brokers and controllers must be set to, or else no rule counts for anything."""
_READER = {"producer_byte_rate": 1024, "request_percentage": 50}


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """What a user may do with things of one name, or with all whose names begin so."""

    kind: Kind
    prefixed: bool
    operations: tuple[str, ...]
    """As Kafka calls them; reading and writing are also seeing that it is there."""
    name: str


@dataclass(frozen=True, slots=True)
class User:
    """One role's user on Kafka."""

    name: str
    role: str
    audience: str | None
    rules: tuple[Rule, ...]
    quotas: Mapping[str, int] = field(default_factory=dict)
    """By Kafka's names, for each broker: bytes a second, and percent of a thread's time."""


class Foreign(NamedTuple):
    """Topics that other programs write, and that are read."""

    counts: str | None = None
    """What people counters have counted; read without a group."""
    traps: str | None = None
    """What telegraf has collected."""
    groups: tuple[str, ...] = ()
    """Under these names Kafka keeps how far traps were read, one for each who reads them."""


NOTHING = Foreign()


def users(
    policy: Policy, served: Iterable[str] | None = None, *, account: bool = False, operator: bool = False,
    foreign: Foreign = NOTHING,
) -> list[User]:  # fmt: skip
    """Return the users that a policy's cluster needs; ``served`` audiences, all unless told, are the service's.

    ``account``, ``operator``: the service shows the account, or how things stand, as well. ``foreign``: what ingest
    reads of others.
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
    """Return the user of ``tacet run``, which has a store of its own and nothing on a cluster but what it reads."""
    return User("tacet-run", "run", None, tuple(_foreign(foreign)), {"consumer_byte_rate": 20 * MEBIBYTE} | _READER)


def _shown_besides(*, account: bool, operator: bool) -> list[str]:
    return [LEAKAGE, QUARANTINE, CONTROL] if operator else [LEAKAGE] if account else []


def _private_of(policy: Policy, audience: str) -> list[str]:
    own = private_topic(audience, "")[: -len(".v1")]
    return [name for name in topic_names(policy) if name.startswith(own)]


def _topics(operations: str, *names: str) -> Iterator[Rule]:
    for name in names:
        yield Rule("topic", False, tuple(operations.split()), name)


def _changes_control() -> Iterator[Rule]:
    """Who changes what the cluster agrees on fences everybody else meanwhile."""
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


def is_taken(group: str) -> bool:
    """Whether a group is the engine's, or may be an audience's: whoever joins it could hold it up."""
    return group == GROUP or group.startswith(private_topic("", "")[: -len("..v1")])


def _engine(private: Iterable[str]) -> Iterator[Rule]:
    yield from _topics("Read DescribeConfigs", OBSERVATIONS)
    yield from _topics("Read Write", SNAPSHOT, AUDIT, METADATA)
    yield from _topics("Write", PRESENCE, OCCUPANCY, QUARANTINE, LEAKAGE, *private)
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
    """Signs where the books stand: nobody else writes heads, and it writes nothing else."""
    yield from _topics("Read", AUDIT, CONTROL)
    yield from _topics("Read Write", HEADS)
    yield Rule("transactional-id", False, ("Write", "Describe"), HEADS_FENCE)


def _operator(policy: Policy) -> Iterator[Rule]:
    """Makes topics and looks at their settings; what is in them it may read of quarantine and control only."""
    yield from _topics("Create Describe DescribeConfigs AlterConfigs", *topic_names(policy), *BESIDES)
    yield from _topics("Read", QUARANTINE, METADATA)
    yield from _changes_control()
    yield Rule("group", False, ("Describe",), GROUP)


# --- as JSON, and as commands ----------------------------------------------------------------------

ASKING = ("--bootstrap-server", "$TACET_KAFKA", "--command-config", "admin.properties")
"""How Kafka's own tools reach a broker as an administrator."""


def document(users: Iterable[User]) -> dict[str, Any]:
    """Return settings of brokers and users as JSON has them: one entry for each name and operation."""
    return {"brokers": dict(BROKERS), "principals": [_described(user) for user in users]}


def _described(user: User) -> dict[str, Any]:
    rules = [
        {"resource": rule.kind, "name": rule.name, "pattern": "prefixed" if rule.prefixed else "literal",
         "operation": operation}
        for rule in user.rules for operation in rule.operations
    ]  # fmt: skip
    head = {"principal": f"User:{user.name}", "role": user.role, "audience": user.audience}
    return head | {"acls": rules, "quotas": dict(user.quotas)}


def commands(user: User) -> list[str]:
    """Return the lines of shell that give a user its rules and quotas, for Kafka's own tools; each may be run again."""
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
