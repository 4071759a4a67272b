"""Operators and coalitions get the same figures of one run from a store and from a cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from aiokafka import AIOKafkaProducer

from connectors.cli.options import read_policy
from connectors.monitoring.catalogue import TRAFFIC_INTERVAL
from connectors.runtime.clock import wall_clock
from connectors.serve.ledger_views import NOT_IN_TOPICS
from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.cluster import decide, found_cluster
from connectors.storage.kafka.topics import create_topics
from stream.engine.cluster_state import admit, claim
from stream.engine.outputs import quarantined
from stream.records import HOUR, MINUTE, SECOND, Micros, Rejected
from stream.schemas import CONTROL, LEAKAGE, OBSERVATIONS, QUARANTINE, parse_record, private_topic
from tests.acceptance.serve.services import FIRST, POLICY, eventually, make_store, records, served, wanted
from tests.integration.kafka_brokers import Broker
from tests.integration.kafka_topics import clear_topics

AUDIENCES = ("facilities", "public")
LAST = FIRST + 9 * HOUR
ROLES: dict[str, Any] = {"audiences": (), "account": True, "operator": True}


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A morning of which the public's budget pays five windows."""
    less = POLICY.replace('daily_budget = { public = "100" }', 'daily_budget = { public = "2.5" }')
    return make_store(tmp_path_factory.mktemp("poor"), last=LAST, policy=less)


def denied(folder: Path, site: str) -> list[dict[str, Any]]:
    """Return what the audiences' own records say was denied."""
    every = [parse_record(value) for name in AUDIENCES for value in records(folder, name)]
    found = Counter(
        (each["release"], each["audience"], each["reason"])
        for each in every
        if each["site"] == site and "values" in each and not each["released"]
    )
    names = ("release", "audience", "reason", "windows")
    return [dict(zip(names, (*of, number), strict=True)) for of, number in sorted(found.items())]


def rows_of(client: httpx.Client) -> dict[str, dict[str, Any]]:
    return {row["site"]: row for row in client.get("/api/v1/operator").json()["sites"]}


def told(client: httpx.Client, folder: Path) -> dict[str, Any]:
    """Return what is told by site when all of the account has come, and of every coalition."""
    windows = {record["window_end"] for record in map(parse_record, records(folder, "_account"))}

    def whole() -> bool:
        return {row["window_end"] for row in rows_of(client).values()} == {max(windows)}

    eventually(whole)
    coalitions = {
        names: client.get("/api/v1/account/coalition", params={"audiences": names}).json()["sites"]
        for names in ("facilities", "public", "facilities,public")
    }
    return {"rows": rows_of(client), "account": client.get("/api/v1/account").json(), "coalitions": coalitions}


def test_operators_are_told_how_many_windows_were_denied_to_whom(poor: Path) -> None:
    with served(wanted(poor, audiences=(), operator=True)) as running, running.browser() as client:
        expected = denied(poor, "east")
        assert [row["reason"] for row in expected] == ["budget"]
        eventually(lambda: rows_of(client).get("east", {}).get("denied") == expected)
        assert rows_of(client)["west"]["denied"] == []
        assert client.get("/api/v1/account").status_code == 403


async def publish(kafka: Broker, folder: Path) -> None:
    """Write what a cluster has after such a run: private records, the account, what was refused and agreed on."""
    policy = read_policy(folder / "policy.toml")
    each = [(private_topic(name, parse_record(v)["release"]), v) for name in AUDIENCES for v in records(folder, name)]
    each += [(LEAKAGE, value) for value in records(folder, "_account")]
    await create_topics(
        kafka.bootstrap, [OBSERVATIONS, CONTROL, QUARANTINE, *{topic for topic, _ in each}], partitions=2
    )
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    for topic, value in each:
        site = orjson.loads(value)["site"]
        await producer.send(topic, value, key=site.encode(), partition=partition_of(site, 2))
    for reason in ("json", "row"):
        output = quarantined(Rejected("127.0.0.1", reason, "message"), b"?", now=0, sources=(), audit_key=b"a" * 32)
        await producer.send(QUARANTINE, output.value, key=output.key)
    await producer.stop()
    await found_cluster(kafka.bootstrap, 2)
    await decide(kafka.bootstrap, lambda control: admit(control, policy, "key", "3", accept=False))
    pairs = [("east", "127.0.0.1"), ("west", "127.0.0.1")]
    await decide(kafka.bootstrap, lambda control: claim(control, "a", pairs, 100, now=0, take_over=False)[1])


@pytest.fixture
def cluster(kafka: Broker, poor: Path) -> Iterator[str]:
    """A cluster that holds what the store does; its topics are gone afterwards."""
    asyncio.run(clear_topics(kafka.bootstrap))
    asyncio.run(publish(kafka, poor))
    yield kafka.bootstrap
    asyncio.run(clear_topics(kafka.bootstrap))


@pytest.mark.kafka
def test_a_cluster_tells_operators_and_coalitions_what_the_store_of_the_same_run_tells(
    cluster: str, poor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was put aside is told as of points of a grid, so the clock of the second service is moved on."""
    monkeypatch.setattr("connectors.serve.ledger_views.LEAST_ACCESS_POINTS", 1)
    ahead = [0]

    def later() -> Micros:
        return wall_clock() + ahead[0]

    def all_put_aside() -> bool:
        ahead[0] += TRAFFIC_INTERVAL
        return all(row["rejected_messages"] == 2 for row in rows_of(client).values())

    with served(wanted(poor, **ROLES)) as running, running.browser() as client:
        of_store = told(client, poor)
    with served(wanted(poor, store=None, kafka=cluster, **ROLES), later) as running, running.browser() as client:
        eventually(lambda: all(row["policy_version"] for row in rows_of(client).values()))
        eventually(all_put_aside)
        of_topics = told(client, poor)
    assert of_topics["coalitions"] == of_store["coalitions"]
    assert of_topics["account"] == of_store["account"]
    assert set(of_topics["rows"]) == set(of_store["rows"])
    own = {*NOT_IN_TOPICS, "lag_seconds", "state", "rejected_messages", "silent_sources"}
    for site, row in of_topics["rows"].items():
        same = {name: value for name, value in of_store["rows"][site].items() if name not in own}
        assert {name: value for name, value in row.items() if name not in own} == same
        assert (row["silent_sources"], row["denied"]) == (1, denied(poor, site))
        assert {row[name] for name in NOT_IN_TOPICS} == {None}


@pytest.mark.parametrize(
    ("age", "state"), [(0, "live"), (5 * 15 * MINUTE, "late"), (8 * HOUR, "silent")], ids=["new", "late", "old"]
)
def test_whether_windows_come_is_told_by_the_age_of_the_newest(poor: Path, age: Micros, state: str) -> None:
    def now() -> Micros:
        return LAST + age

    with served(wanted(poor, audiences=(), operator=True), now) as running, running.browser() as client:
        eventually(lambda: rows_of(client).get("east", {}).get("state") == state)
        assert rows_of(client)["east"]["lag_seconds"] == age / SECOND
