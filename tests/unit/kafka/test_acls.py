"""Kafka's access rules, as ``tacet topics acls`` prints them."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.storage.kafka.acls import User, commands, document, users
from connectors.storage.kafka.topics import BESIDES, topic_names
from stream.release.validation import Policy, load_policy
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
from tests.acceptance.command_line import run

POLICY = """
[site.hall]
sources = ["192.0.2.1"]
[[site.hall.zones]]
id = "1"
capacity = 30
access_points = ["02:00:00:00:0e:01"]
[[audience]]
name = "dean"
[[audience]]
name = "deanery"
[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
epsilon = { dean = "1", deanery = "0.5" }
"""
RESTRICTED = (OBSERVATIONS, SNAPSHOT, PRESENCE, OCCUPANCY)
"""What tells of people."""
ENGINE = "tacet-engine"
DEAN, DEANERY = (private_topic(name, "occupancy") for name in ("dean", "deanery"))
READS = {
    "tacet-ingest": {CONTROL},
    "tacet-engine": {OBSERVATIONS, SNAPSHOT, AUDIT, CONTROL, METADATA, DEAN, DEANERY},
    "tacet-audience-dean": {DEAN, METADATA},
    "tacet-audience-deanery": {DEANERY, METADATA},
    "tacet-serve": {DEAN, DEANERY, METADATA, LEAKAGE, QUARANTINE, CONTROL},
    "tacet-account": {LEAKAGE, AUDIT, CONTROL, DEAN, DEANERY, METADATA},
    "tacet-auditor": {AUDIT, HEADS, CONTROL, DEAN, DEANERY, METADATA},
    "tacet-signer": {AUDIT, HEADS, CONTROL},
    "tacet-operator": {QUARANTINE, CONTROL, METADATA},
}
WRITES = {
    "tacet-ingest": {OBSERVATIONS, CONTROL},
    "tacet-engine": {
        SNAPSHOT, AUDIT, CONTROL, METADATA, PRESENCE, OCCUPANCY, QUARANTINE, LEAKAGE, DEAN, DEANERY,
    },
    "tacet-signer": {HEADS},
    "tacet-operator": {CONTROL},
}  # fmt: skip
"""By user, the topics that it reads and writes; a broker is asked in ``tests/integration/test_kafka_security.py``."""


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(POLICY)


@pytest.fixture(scope="module")
def by_name(policy: Policy) -> dict[str, User]:
    return {user.name: user for user in users(policy)}


def may(user: User, operation: str, kind: str, name: str) -> bool:
    """Whether Kafka lets a user do this: a rule of this name, or one of a prefix of it."""
    return any(
        rule.kind == kind
        and operation in rule.operations
        and (name.startswith(rule.name) if rule.prefixed else name == rule.name)
        for rule in user.rules
    )


def who_may(people: Iterable[User], operation: str, kind: str, name: str) -> set[str]:
    return {user.name for user in people if may(user, operation, kind, name)}


def test_there_is_one_user_for_each_role_and_audience(by_name: dict[str, User]) -> None:
    assert sorted(by_name) == [
        "tacet-account", "tacet-audience-dean", "tacet-audience-deanery", "tacet-auditor", "tacet-engine",
        "tacet-ingest", "tacet-operator", "tacet-serve", "tacet-signer",
    ]  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_each_user_reads_and_writes_what_its_role_does_and_nothing_else(policy: Policy, name: str) -> None:
    (user,) = [each for each in users(policy, operator=True) if each.name == name]
    topics = (*topic_names(policy), *BESIDES)
    assert {topic for topic in topics if may(user, "Read", "topic", topic)} == READS[name]
    assert {topic for topic in topics if may(user, "Write", "topic", topic)} == WRITES.get(name, set())


@pytest.mark.parametrize("topic", RESTRICTED)
def test_what_tells_of_people_is_read_by_the_engine_alone(by_name: dict[str, User], topic: str) -> None:
    assert who_may(by_name.values(), "Read", "topic", topic) <= {ENGINE}


def test_dean_reads_what_is_deans_and_nothing_of_the_deanery(policy: Policy, by_name: dict[str, User]) -> None:
    dean = by_name["tacet-audience-dean"]
    readable = {name for name in (*topic_names(policy), METADATA) if may(dean, "Read", "topic", name)}
    assert readable == {"tacet.private.dean.occupancy.v1", METADATA}
    for name in ("tacet.private.deanery.occupancy.v1", "tacet.private.deanery.later.v1"):
        assert not may(dean, "Read", "topic", name)


def test_an_audience_has_groups_of_its_own_and_may_not_join_another_nor_the_engines(by_name: dict[str, User]) -> None:
    dean = by_name["tacet-audience-dean"]
    assert may(dean, "Read", "group", "tacet.private.dean")
    assert may(dean, "Read", "group", "tacet.private.dean.lobby-screen")
    for name in ("tacet.private.deanery", "tacet.private.deanery.screen", "tacet-engine", "tacet.private."):
        assert not may(dean, "Read", "group", name)


def test_the_engines_group_is_the_engines(by_name: dict[str, User]) -> None:
    assert who_may(by_name.values(), "Read", "group", "tacet-engine") == {ENGINE}


@pytest.mark.parametrize("name", ["tacet-engine-0", "tacet-engine-31"])
def test_who_fences_a_partitions_writer_is_the_engine(by_name: dict[str, User], name: str) -> None:
    assert who_may(by_name.values(), "Write", "transactional-id", name) == {ENGINE}


def test_released_records_the_account_and_the_books_are_written_by_the_engine_alone(
    policy: Policy, by_name: dict[str, User]
) -> None:
    for topic in topic_names(policy):
        if topic not in (CONTROL, OBSERVATIONS):
            assert who_may(by_name.values(), "Write", "topic", topic) == {ENGINE}, topic


def test_ingest_writes_observations_and_its_claim(policy: Policy, by_name: dict[str, User]) -> None:
    ingest = by_name["tacet-ingest"]
    everything = (*topic_names(policy), METADATA)
    assert {name for name in everything if may(ingest, "Write", "topic", name)} == {OBSERVATIONS, CONTROL}
    assert {name for name in everything if may(ingest, "Read", "topic", name)} == {CONTROL}
    assert who_may(by_name.values(), "Write", "topic", OBSERVATIONS) == {"tacet-ingest"}


def test_the_account_is_read_by_its_readers_and_quarantine_by_operators(by_name: dict[str, User]) -> None:
    assert who_may(by_name.values(), "Read", "topic", LEAKAGE) == {"tacet-account"}
    assert who_may(by_name.values(), "Read", "topic", AUDIT) == {
        "tacet-account",
        "tacet-auditor",
        "tacet-signer",
        ENGINE,
    }
    assert who_may(by_name.values(), "Read", "topic", QUARANTINE) == {"tacet-operator"}


def test_the_service_reads_the_audiences_that_it_is_given_and_the_account_when_it_shows_it(policy: Policy) -> None:
    def shown(served: tuple[str, ...] | None, *, account: bool = False, operator: bool = False) -> set[str]:
        made = users(policy, served, account=account, operator=operator)
        (serve,) = [user for user in made if user.role == "serve"]
        return {rule.name for rule in serve.rules}

    dean, deanery = (f"tacet.private.{name}.occupancy.v1" for name in ("dean", "deanery"))
    assert shown(None) == {dean, deanery, METADATA}
    assert shown(("dean",)) == {dean, METADATA}
    assert shown(("dean",), account=True) == {dean, METADATA, LEAKAGE}
    assert shown(("dean",), operator=True) == {dean, METADATA, LEAKAGE, QUARANTINE, CONTROL}


def test_heads_are_signed_by_one_user_that_writes_nothing_else(policy: Policy, by_name: dict[str, User]) -> None:
    everything = (*topic_names(policy), *BESIDES)
    assert who_may(by_name.values(), "Write", "topic", HEADS) == {"tacet-signer"}
    assert who_may(by_name.values(), "Write", "transactional-id", "tacet-heads") == {"tacet-signer"}
    assert {name for name in everything if may(by_name["tacet-signer"], "Write", "topic", name)} == {HEADS}
    assert who_may(by_name.values(), "Read", "topic", HEADS) == {"tacet-signer", "tacet-auditor"}


def test_every_prefix_ends_where_a_name_does(by_name: dict[str, User]) -> None:
    prefixes = {rule.name for user in by_name.values() for rule in user.rules if rule.prefixed}
    assert prefixes == {"tacet-engine-", "tacet.private.dean.", "tacet.private.deanery."}


def test_readers_of_all_kinds_and_ingest_have_a_quota_and_the_engine_has_none(by_name: dict[str, User]) -> None:
    assert {name for name, user in by_name.items() if not user.quotas} == {ENGINE, "tacet-operator"}
    assert by_name["tacet-ingest"].quotas == {"producer_byte_rate": 10_485_760}
    assert by_name["tacet-audience-dean"].quotas["consumer_byte_rate"] == 5_242_880
    assert by_name["tacet-signer"].quotas == {"consumer_byte_rate": 20_971_520}


# --- as it is printed -----------------------------------------------------------------------------------------------


def meant(line: str) -> set[tuple[str, str, str, str]]:
    """Return resource, name, pattern and operation of what a line of kafka-acls.sh adds."""
    words = shlex.split(line)
    given: dict[str, list[str]] = {}
    for name, value in itertools.pairwise(words):
        given.setdefault(name, []).append(value)
    (kind,) = {"--topic", "--group", "--transactional-id"} & set(given)
    (pattern,) = given.get("--resource-pattern-type", ["literal"])
    assert {"--add", "--force"} <= set(words)
    return {(kind[2:], name, pattern, operation) for name in given[kind] for operation in given["--operation"]}


def test_lines_of_shell_and_json_mean_the_same(by_name: dict[str, User]) -> None:
    for user in by_name.values():
        (described,) = document([user])["principals"]
        lines = [line for line in commands(user) if line.startswith("kafka-acls.sh ")]
        assert all(f"--allow-principal User:{user.name} " in line for line in lines)
        from_shell = {rule for line in lines for rule in meant(line)}
        wanted = {(r["resource"], r["name"], r["pattern"], r["operation"]) for r in described["acls"]}
        assert from_shell == wanted
        quotas = [line for line in commands(user) if line.startswith("kafka-configs.sh ")]
        rates = ",".join(f"{name}={value}" for name, value in described["quotas"].items())
        assert all(f" {rates} --entity-type users --entity-name {user.name}" in line for line in quotas)
        assert len(quotas) == bool(user.quotas)


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


def test_the_verb_prints_lines_that_shell_can_run_and_what_brokers_are_to_be_set_to(policy_file: Path) -> None:
    done = run("topics", "acls", "--policy", policy_file)
    assert done.code == 0
    lines = done.out.splitlines()
    assert "#   allow.everyone.if.no.acl.found=false" in lines
    assert "#   authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer" in lines
    wanted = [line for user in users(load_policy(POLICY)) for line in commands(user)]
    assert [line for line in lines if line and not line.startswith("#")] == wanted


def test_json_has_the_same(policy_file: Path, policy: Policy) -> None:
    answer: Any = run("topics", "acls", "--policy", policy_file, "--json", "--serve", "dean", "--serve-account").answer
    assert answer == orjson.loads(orjson.dumps(document(users(policy, ("dean",), account=True))))
    assert answer["brokers"]["allow.everyone.if.no.acl.found"] == "false"


def test_an_audience_that_the_policy_does_not_have_is_named(policy_file: Path) -> None:
    done = run("topics", "acls", "--policy", policy_file, "--serve", "provost")
    assert done.code == 2
    assert "--serve: must name audiences of the policy (dean, deanery), got 'provost'" in done.problem


# --- topics of other programs -----------------------------------------------------------------------------------------


def printed(policy_file: Path, *words: str) -> dict[str, set[tuple[str, str, str, str]]]:
    """Return what each user may do by the verb's JSON: resource, name, pattern and operation."""
    done = run("topics", "acls", "--policy", policy_file, "--json", *words)
    assert done.code == 0, done.problem
    return {
        user["principal"].removeprefix("User:"): {
            (rule["resource"], rule["name"], rule["pattern"], rule["operation"]) for rule in user["acls"]
        }
        for user in done.answer["principals"]
    }


TRAPS, GROUP = ("topic", "telegraf.traps", "literal", "Read"), ("group", "tacet.telegraf", "literal", "Read")
COUNTERS = ("topic", "counters", "literal", "Read")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--counts", "counters"], {COUNTERS}),
        (["--telegraf", "telegraf.traps"], {TRAPS, GROUP}),
        (["--counts", "counters", "--telegraf", "telegraf.traps"], {COUNTERS, TRAPS, GROUP}),
        (
            ["--telegraf", "telegraf.traps", "--telegraf-group", "east", "--telegraf-group", "west"],
            {TRAPS, ("group", "east", "literal", "Read"), ("group", "west", "literal", "Read")},
        ),
    ],
)
def test_an_ingest_reads_the_topics_of_others_that_it_is_given_and_nobody_else_does(
    policy_file: Path, words: list[str], wanted: set[tuple[str, str, str, str]]
) -> None:
    before, after = printed(policy_file), printed(policy_file, *words)
    assert {name: after[name] - before.get(name, set()) for name in after if after[name] != before.get(name)} == {
        "tacet-ingest": wanted
    }
    assert all(before[name] <= after[name] for name in before)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [(["--counts", "counters"], {COUNTERS}), (["--telegraf", "telegraf.traps"], {TRAPS, GROUP})],
)
def test_a_run_needs_one_user_for_what_it_reads_and_no_other(
    policy_file: Path, words: list[str], wanted: set[tuple[str, str, str, str]]
) -> None:
    """It keeps its store itself, so it has no topic of a cluster's."""
    assert printed(policy_file, "--run", *words) == {"tacet-run": wanted}


def test_the_group_is_the_one_of_the_environment_unless_it_is_given(
    policy_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACET_TELEGRAF_GROUP", "north")
    group = ("group", "north", "literal", "Read")
    assert group in printed(policy_file, "--telegraf", "telegraf.traps")["tacet-ingest"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--run"], "--run: must be used with --counts or --telegraf, the topics that 'tacet run' reads"),
        (["--telegraf-group", "east"], "--telegraf-group: must be used with --telegraf"),
        (["--telegraf", OBSERVATIONS], "--telegraf: must be the topic that telegraf writes, not one of tacet.…"),
        (["--counts", OBSERVATIONS], "--counts: must be the topic that people counters write, not one of tacet.…"),
        (["--telegraf", "a topic"], "--telegraf: must be a topic's name"),
        (
            ["--telegraf", "telegraf.traps", "--telegraf-group", ENGINE],
            "--telegraf-group: must not be a group that Tacet uses itself, got 'tacet-engine'",
        ),
        (
            ["--telegraf", "telegraf.traps", "--telegraf-group", "tacet.private.dean.screen"],
            "--telegraf-group: must not be a group that Tacet uses itself, got 'tacet.private.dean.screen'",
        ),
        (["--telegraf", "telegraf.traps", "--telegraf-group", "a group"], "--telegraf-group: must be 1 to 200 letters"),
    ],
)
def test_what_would_open_too_much_or_nothing_is_refused(policy_file: Path, words: list[str], said: str) -> None:
    done = run("topics", "acls", "--policy", policy_file, *words)
    assert done.code == 2
    assert said in done.problem
