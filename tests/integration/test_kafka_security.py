"""Who may do what on a real Kafka with TLS, SCRAM, mTLS and an authorizer: under the rules that the product prints.

What each user may read and write is tried with kcat, which shares no code with the project nor with its client library,
by the user's certificate; the programs themselves come by password.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.errors import TransactionalIdAuthorizationFailed

from connectors.keys import key_files
from connectors.runtime.clock import wall_clock
from connectors.sources.external_topic import ExternalTopic
from connectors.sources.ingest.followed_logs import Piece
from connectors.sources.recorded import TopicSource
from connectors.sources.snmp.sender import Association, encode_associate, send
from connectors.storage.kafka.acls import commands, users
from connectors.storage.kafka.client import partitions_of, reader_of
from connectors.storage.kafka.topics import BESIDES, existing_topics, topic_names
from stream.errors import TacetError, UsageError
from stream.release.validation import load_policy
from stream.schemas import AUDIT, CONTROL, OBSERVATIONS, private_topic
from tests.acceptance.command_line import command, here, run
from tests.integration.secured_kafka import (
    ADMIN,
    FOREIGN,
    POLICY,
    SecuredKafka,
    admin_of,
    all_users,
    asked,
    kafka_tools,
    quotas_of,
    rules_of,
)
from tests.support.patience import PATIENCE, waiting_for
from tests.support.ports import free_port
from tests.support.receivers import Log
from tests.unit.kafka.test_acls import READS, WRITES

pytestmark = [pytest.mark.kafka]

TOPICS = (*topic_names(load_policy(POLICY)), *BESIDES)
SAMPLE = "tacet-audience-dean"
"""The user with which an ordinary run tries the rules; all others are tried each night."""
OTHERS = [*sorted(READS.keys() - {SAMPLE}), "tacet-run"]
REFUSED = ("Topic authorization failed", "Group authorization failed")


def kcat(kafka: SecuredKafka, name: str, *words: str, given: str = "") -> str | None:
    """Run kcat as a user; return what it was refused, None when it could do it."""
    if shutil.which("kcat") is None:
        if os.environ.get("TACET_REQUIRE_KCAT") == "1":
            pytest.fail("TACET_REQUIRE_KCAT=1, but there is no kcat on the path")
        pytest.skip("no kcat on the path")
    folder = kafka.secured.folder
    options = {
        "security.protocol": "SSL", "ssl.ca.location": folder / "ca.pem", "message.timeout.ms": 10_000,
        "ssl.certificate.location": folder / f"{name}.pem", "ssl.key.location": folder / f"{name}.key",
        "ssl.endpoint.identification.algorithm": "none",  # this version knows names only, and the broker is an address
    }  # fmt: skip
    given_as = [word for key, value in options.items() for word in ("-X", f"{key}={value}")]
    line = ["kcat", "-b", kafka.by_certificate, *given_as, *words]
    done = subprocess.run(line, input=given, capture_output=True, text=True, timeout=PATIENCE, check=False)
    found = [what for what in REFUSED if what in done.stderr]
    assert bool(found) or done.returncode == 0, done.stderr
    return found[0] if found else None


def may_read(kafka: SecuredKafka, name: str, topic: str) -> bool:
    return kcat(kafka, name, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") is None


def may_write(kafka: SecuredKafka, name: str, topic: str) -> bool:
    return kcat(kafka, name, "-P", "-t", topic, "-p", "0", given="nothing of this cluster's\n") is None


# --- topics -------------------------------------------------------------------------------------------------------


def assert_topics_are_closed(kafka: SecuredKafka, name: str) -> None:
    """Assert that a user reads what its role reads, and writes nothing that its role does not.

    What it may write is shown by the programs at work: a message of nobody's would be in their way.
    """
    assert {topic for topic in TOPICS if may_read(kafka, name, topic)} == READS.get(name, set())
    closed = [topic for topic in TOPICS if topic not in WRITES.get(name, set())]
    assert not [topic for topic in closed if may_write(kafka, name, topic)]


def test_the_cluster_has_the_rules_that_are_printed_and_the_broker_follows_them(
    secured_kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``tests/unit/kafka/test_acls.py`` says of every user what these rules let it do."""
    held = asyncio.run(rules_of(secured_kafka.bootstrap, secured_kafka.secured))
    assert {rule for rule in held if "provost" not in rule[3]} == asked(all_users(load_policy(POLICY)))
    assert_topics_are_closed(secured_kafka, SAMPLE)
    assert may_read(secured_kafka, ADMIN, OBSERVATIONS), "who administers the cluster reads everything"
    assert not may_read(secured_kafka, "tacet-engine", "another.topic"), "a topic of no rule is closed to all"
    assert {group for group in GROUPS if may_join(secured_kafka, group)} == OWN_GROUPS
    be(secured_kafka, "tacet-operator", monkeypatch)
    topics = asyncio.run(existing_topics(secured_kafka.bootstrap, TOPICS))
    assert set(topics) == set(TOPICS)
    assert topics[OBSERVATIONS].config["message.timestamp.type"] == "LogAppendTime"
    be(secured_kafka, SAMPLE, monkeypatch)
    with pytest.raises(UsageError, match="must be allowed to read its settings"):
        asyncio.run(existing_topics(secured_kafka.bootstrap, TOPICS))
    for name, transaction in (("tacet-ingest", "tacet-engine-0"), (SAMPLE, "tacet-control")):
        asyncio.run(assert_it_fences_nobody(secured_kafka, name, transaction))


@pytest.mark.long
@pytest.mark.parametrize("name", OTHERS)
def test_a_user_reaches_what_its_role_does_and_nothing_else(secured_kafka: SecuredKafka, name: str) -> None:
    assert_topics_are_closed(secured_kafka, name)


# --- topics of other programs ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def foreign_kafka(secured_kafka: SecuredKafka) -> SecuredKafka:
    """The cluster, with two topics that other programs write."""

    async def make() -> None:
        async with admin_of(secured_kafka.bootstrap, secured_kafka.secured.arguments(ADMIN)) as admin:
            await admin.create_topics([NewTopic(name, 1, 1) for name in (FOREIGN.traps, FOREIGN.counts)])

    asyncio.run(make())
    return secured_kafka


async def written(kafka: SecuredKafka, topic: str, *values: bytes) -> None:
    """Write as another program, whose user is none of ours."""
    options = kafka.secured.arguments(ADMIN)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, **options) as producer:
        for value in values:
            await producer.send_and_wait(topic, value)


def be(kafka: SecuredKafka, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in kafka.secured.variables(name).items():
        monkeypatch.setenv(variable, value)


@pytest.mark.long
@pytest.mark.parametrize("name", ["tacet-ingest", "tacet-run"])
async def test_who_reads_telegrafs_topic_may_read_it_and_keep_its_place_under_its_own_group(
    foreign_kafka: SecuredKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(foreign_kafka, name, monkeypatch)
    topic, (group,) = FOREIGN.traps or "", FOREIGN.groups
    log = ExternalTopic(foreign_kafka.bootstrap, topic, group)
    await log.open()
    found: list[Piece] = []
    try:
        await written(foreign_kafka, topic, b"one", b"two")
        async with waiting_for("two messages of a foreign topic"):
            while len(found) < 2:
                found += (await log.read(10))[0]
        assert [piece.content for piece in found] == [b"one", b"two"]
        assert await log.store_positions({0: found[-1].end}), "the group must be open to this user"
    finally:
        await log.close()


@pytest.mark.long
@pytest.mark.parametrize(("name", "group"), [("tacet-engine", "tacet-engine"), ("tacet-ingest", "tacet-engine")])
async def test_nobody_else_reads_it_and_under_no_other_group(
    foreign_kafka: SecuredKafka, name: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(foreign_kafka, name, monkeypatch)
    log = ExternalTopic(foreign_kafka.bootstrap, FOREIGN.traps or "", group)
    with pytest.raises(TacetError, match=r"must be open to this user|cannot be read any more"):
        await log.open()
    await log.close()


@pytest.mark.long
@pytest.mark.parametrize("name", ["tacet-ingest", "tacet-run"])
async def test_who_reads_counters_topic_may_read_it(
    foreign_kafka: SecuredKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = load_policy(
        '[site.hall]\nfeed = "counts"\nlateness = "1s"\nzones = [{ id = "1", capacity = 30 }]\n'
        '[[audience]]\nname = "dean"\n'
        '[[release]]\nname = "o"\nquery = "count"\nmechanism = "laplace"\nepsilon = { dean = "1" }\n'
    )
    await written(foreign_kafka, FOREIGN.counts or "", b"no row of counts")
    be(foreign_kafka, name, monkeypatch)
    topic = TopicSource(foreign_kafka.bootstrap, FOREIGN.counts or "").opened(policy, wall_clock(), {})
    stop = asyncio.Event()
    delivering = asyncio.create_task(topic.deliver(Log(), stop))
    try:
        async with waiting_for("a row, or the end of the source"):
            while not (delivering.done() or topic.collector.rows):
                await asyncio.sleep(0.1)
    finally:
        stop.set()
        await delivering
    assert topic.is_read


# --- groups and transactions --------------------------------------------------------------------------------------

OWN_GROUPS = {"tacet.private.dean", "tacet.private.dean.lobby-screen"}
GROUPS = (*OWN_GROUPS, "tacet.private.deanery", "tacet-engine", "another")


def may_join(kafka: SecuredKafka, group: str) -> bool:
    """Whether the audience's user may join a group."""
    words = ("-G", group, "-e", "-q", "-X", "auto.offset.reset=earliest", private_topic("dean", "occupancy"))
    refused = kcat(kafka, SAMPLE, *words)
    assert refused in (None, "Group authorization failed")
    return refused is None


async def assert_it_fences_nobody(kafka: SecuredKafka, name: str, transaction: str) -> None:
    options = kafka.secured.arguments(name)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=transaction, **options)
    with pytest.raises(TransactionalIdAuthorizationFailed):
        await producer.start()
    await producer.stop()


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "transaction"), [("tacet-operator", "tacet-engine-0"), ("tacet-account", "tacet-control")]
)
async def test_who_is_not_the_engine_cannot_fence_a_writer(
    secured_kafka: SecuredKafka, name: str, transaction: str
) -> None:
    await assert_it_fences_nobody(secured_kafka, name, transaction)


# --- Kafka's own tools --------------------------------------------------------------------------------------------


async def test_printed_lines_run_with_kafkas_own_tools_which_exchange_a_password_without_a_restart(
    secured_kafka: SecuredKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of one audience here; all of them in ``tests/docs/test_commands.py``.

    A reader goes on over new connections by the new password, on a broker that takes the old one no more.
    """
    policy = load_policy(POLICY.replace("deanery", "provost"))
    (provost,) = [user for user in users(policy) if user.audience == "provost"]
    await asyncio.to_thread(_with_tools, secured_kafka, tmp_path, "\n".join(commands(provost)))
    held = await rules_of(secured_kafka.bootstrap, secured_kafka.secured)
    assert {rule for rule in held if rule[3] == f"User:{provost.name}"} == asked([provost])
    assert await quotas_of(secured_kafka.bootstrap, secured_kafka.secured, provost.name) == dict(provost.quotas)

    secured, name = secured_kafka.secured, "tacet-auditor"
    be(secured_kafka, name, monkeypatch)
    async with reader_of(secured_kafka.bootstrap) as reader:
        assert await partitions_of(reader, AUDIT) == [0]
        changed = (
            f"--alter --add-config 'SCRAM-SHA-512=[password=another-password]' --entity-type users --entity-name {name}"
        )
        line = f"kafka-configs.sh --bootstrap-server $TACET_KAFKA --command-config admin.properties {changed}"
        await asyncio.to_thread(_with_tools, secured_kafka, tmp_path, line)
        secured.give(name, "another-password")
        for connection in list(reader._client._conns.values()):
            connection.close()
        assert await partitions_of(reader, AUDIT) == [0]
    secured.give(name, secured.users[name])
    with pytest.raises(ConnectionError, match="the broker rejects the user"):
        async with reader_of(secured_kafka.bootstrap):
            pass
    secured.give(name, "another-password")


def _with_tools(kafka: SecuredKafka, folder: Path, lines: str) -> None:
    """Run lines of shell where Kafka's own tools are on the path."""
    env = os.environ | kafka_tools(kafka.secured, folder) | {"TACET_KAFKA": kafka.bootstrap}
    subprocess.run(["sh", "-e"], input=lines, text=True, cwd=folder, env=env, check=True, capture_output=True)


# --- who is let in, and what is said to others --------------------------------------------------------------------

OF_DEANERY = ("subscribe", "--audience", "deanery", "--from-start", "--until-end", "--json")
READ = ("subscribe", "--audience", "dean", *OF_DEANERY[3:])


def test_who_is_let_in_and_what_is_said_to_others(secured_kafka: SecuredKafka, tmp_path: Path) -> None:
    """A certificate where certificates are asked for; no wrong password, no other authority, no plain text."""
    there = secured_kafka.by_certificate
    secured_kafka.tacet(SAMPLE, *READ, certificate=True, TACET_KAFKA=there)
    other = secured_kafka.tacet(SAMPLE, *OF_DEANERY, code=2, certificate=True, TACET_KAFKA=there)
    assert "audience deanery: must have a private topic" in other.stderr

    wrong = tmp_path / "wrong"
    wrong.touch(0o600)
    wrong.write_text("hunter2hunter2")
    done = secured_kafka.tacet(SAMPLE, *READ, code=1, TACET_KAFKA_PASSWORD_FILE=str(wrong))
    said = done.stderr.splitlines()[-1]
    assert "by SASL_SSL, user tacet-audience-dean by SCRAM-SHA-512: the broker rejects the user" in said
    assert "hunter2" not in done.stderr

    authority = tmp_path / "other.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=other", "-keyout", str(tmp_path / "other.key"), "-out", str(authority)],
        check=True, capture_output=True,
    )  # fmt: skip
    done = secured_kafka.tacet(SAMPLE, *READ, code=1, TACET_KAFKA_CA_FILE=str(authority))
    assert "the broker's certificate is rejected" in done.stderr.splitlines()[-1], "which gets no password"

    plain = here(*READ, "--kafka", secured_kafka.bootstrap, code=1)
    assert f"no Kafka broker answers at {secured_kafka.bootstrap}" in plain.stderr.splitlines()[-1]

    done = secured_kafka.tacet(SAMPLE, "account", code=2)
    assert f"topic {CONTROL}: does not exist, or is not open to this user" in done.stderr


# --- the whole way ----------------------------------------------------------------------------------------------------


@contextmanager
def running(kafka: SecuredKafka, name: str, *words: str, **more: str) -> Iterator[None]:
    """A program that runs as a user until it is told to stop; it must end well."""
    env = kafka.secured.environment(name, TACET_KAFKA=kafka.bootstrap, TACET_LOG_LEVEL="warning", **more)
    process = subprocess.Popen(command(words), env=env, stdout=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None, f"{words[0]} has ended by itself"
        process.terminate()
        assert process.wait(timeout=PATIENCE) == 0, words[0]
    finally:
        process.kill()
        process.wait()


NOBODY = Association(bytes(6), bytes(6))


def until_answered(port: int, told: Association = NOBODY) -> None:
    """Wait until an inform, of nobody unless told, is answered: ingest listens, and its broker takes what it sends."""
    patience = time.monotonic() + PATIENCE
    inform = encode_associate(told, community=b"s3cret", uptime=1, request_id=1, inform=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as controller:
        controller.settimeout(0.5)
        while time.monotonic() < patience:
            controller.sendto(inform, ("127.0.0.1", port))
            with suppress(OSError):
                if controller.recv(65_535):
                    return
    raise AssertionError(f"waited {PATIENCE:.0f} s for an answer to an inform")


def released(kafka: SecuredKafka, audience: str) -> list[dict[str, Any]]:
    done = kafka.tacet(f"tacet-audience-{audience}", "subscribe", "--audience", audience, *READ[3:])
    return [orjson.loads(line) for line in done.stdout.splitlines()]


def test_traps_come_to_subscribers_the_account_auditors_and_the_service_each_as_a_user_of_its_own(
    secured_kafka: SecuredKafka, tmp_path: Path
) -> None:
    """Every program is the real one, over TLS, with its own password and the rules that are printed, no more."""
    key_files.create(tmp_path / "key", laboratory=False)
    (tmp_path / "communities").touch(0o600)
    (tmp_path / "communities").write_text("s3cret\n")
    tokens, token = (
        ("--tokens", str(tmp_path / "tokens")),
        ("--name", "officer", "--audience", "dean", "--account", "--operator"),
    )
    bearer = secured_kafka.tacet("tacet-serve", "token", "new", *tokens, *token).stdout.split()[0]
    traps, page = free_port(), free_port()
    policy = ("--policy", str(secured_kafka.policy_file))
    with ExitStack() as ending:

        def begin(name: str, *words: str, **more: str) -> None:
            ending.enter_context(running(secured_kafka, name, *words, **more))

        begin("tacet-engine", "worker", *policy, "--key-file", str(tmp_path / "key"))
        ingest = ("ingest", *policy, "--key-file", str(tmp_path / "key"), "--udp", f"127.0.0.1:{traps}")
        communities = str(tmp_path / "communities")
        with running(secured_kafka, "tacet-ingest", *ingest, TACET_SNMP_COMMUNITIES_FILE=communities):
            until_answered(traps, Association(bytes([2, 0, 0, 0, 1, 99]), bytes.fromhex("5c521e002011")))
        begin("tacet-ingest", *ingest, TACET_SNMP_COMMUNITIES_FILE=communities)  # again, on a log that it may not read
        until_answered(traps)
        begin("tacet-serve", "serve", *policy, "--audience", "dean", "--audience", "deanery", "--account", "--operator",
              *tokens, "--index", str(tmp_path / "index"), "--listen", f"127.0.0.1:{page}")  # fmt: skip
        associated = [encode_associate(Association(bytes([2, 0, 0, 0, 1, number]), bytes.fromhex("5c521e002012")),
                                       community=b"s3cret", uptime=1) for number in range(5)]  # fmt: skip
        asyncio.run(send([(0, trap) for trap in associated], ("127.0.0.1", traps), None))
        patience, found = time.monotonic() + PATIENCE, list[dict[str, Any]]()
        while time.monotonic() < patience and not found:
            time.sleep(2)
            found = [record for record in released(secured_kafka, "dean") if (record["values"] or {}).get("102") == 5]
        assert found, "a window with the five devices in it must have come"
        assert found[0]["laboratory"] is False
        assert {record["audience"] for record in released(secured_kafka, "deanery")} == {"deanery"}
        window = found[0]["window_end"]
        account = orjson.loads(secured_kafka.tacet("tacet-account", "account", "--json").stdout)
        assert account["sites"]["hall"]["last"]["window_end"] >= window
        together = secured_kafka.tacet("tacet-account", "account", "--coalition", "dean,deanery", "--json").stdout
        assert "dean+deanery" in together
        audit = orjson.loads(secured_kafka.tacet("tacet-auditor", "audit", "verify", "--json").stdout)
        assert audit["ok"]
        assert audit["entries"] == audit["records"] > 0
        assert "head against the state" in audit["unchecked"], "an auditor sees no state, and says so"
        sign_and_verify(secured_kafka, tmp_path)
        status = orjson.loads(secured_kafka.tacet("tacet-engine", "status", *policy, "--json").stdout)
        assert [part["partition"] for part in status["partitions"]] == [0]
        headers = {"Authorization": f"Bearer {bearer}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{page}/api/v1", headers=headers, timeout=PATIENCE) as client:
            shown = client.get("/latest", params={"audience": "dean", "site": "hall"})
            assert shown.status_code == 200, shown.text
            assert shown.json()
            assert "hall" in client.get("/account").json()["sites"]
            assert client.get("/operator").status_code == 200
    another_key_goes_on(secured_kafka, tmp_path)


def sign_and_verify(kafka: SecuredKafka, folder: Path) -> None:
    """Sign as the signer, in the cluster's topic and elsewhere; a third party verifies with one file and no cluster."""
    key, heads = folder / "signing.key", folder / "heads"
    assert run("audit", "keygen", key).code == 0
    signing = ("audit", "sign", "--key-file", str(key), "--heads", str(heads))
    assert "give --first only for the first head of all" in kafka.tacet("tacet-signer", *signing, code=2).stderr
    kafka.tacet("tacet-signer", *signing, "--first")
    heads.unlink()
    kafka.tacet("tacet-signer", *signing)
    assert len(heads.read_bytes().splitlines()) == 2, "what a file has lost the topic has"
    by_key = ("--public-key", f"{key}.pub")
    report = orjson.loads(kafka.tacet("tacet-auditor", "audit", "verify", *by_key, "--json").stdout)
    assert (report["ok"], report["signed"]["heads"]) == (True, 2)
    kafka.tacet("tacet-auditor", "audit", "export", "--out", str(folder / "books"))
    alone = run("audit", "verify", "--books", folder / "books", *by_key, "--json").answer
    assert (alone["ok"], alone["signed"]["heads"]) == (True, 2)
    for name in ("tacet-engine", "tacet-auditor"):
        assert "open to this user" in kafka.tacet(name, *signing, code=2).stderr, "heads are written by nobody else"


def another_key_goes_on(kafka: SecuredKafka, folder: Path) -> None:
    """Retire the key as the engine's user, whose rules are enough for that; signed heads stay good."""
    key_files.create(folder / "new.key", laboratory=False)
    retiring = ("key", "retire", "--key-file", str(folder / "key"), "--new-key", str(folder / "new.key"), "--json")
    made = orjson.loads(kafka.tacet("tacet-engine", *retiring).stdout)
    assert made["entries"] > 0
    by_key = ("--public-key", str(folder / "signing.key.pub"))
    assert orjson.loads(kafka.tacet("tacet-auditor", "audit", "verify", *by_key, "--json").stdout)["ok"]
    signing = ("--key-file", str(folder / "signing.key"), "--heads", str(folder / "heads"))
    kafka.tacet("tacet-signer", "audit", "sign", *signing)
