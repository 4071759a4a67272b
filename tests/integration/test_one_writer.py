"""A partition has one writer: zombies, other policies, other keys, and messages that lie on the wrong partition.

All of this runs each night. An ordinary run has the same on simulated brokers: tests/simulation/test_one_writer.py for
policies and keys, kept schedules for zombies and for topics that are made anew or grow, and
tests/integration/test_refused_topics.py for settings.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from connectors.keys import key_files
from connectors.operations.recovery import cluster as kafka_recovery
from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.topic_readers import end_offsets, last_snapshot, last_snapshots
from connectors.storage.kafka.topic_settings import topic_config
from connectors.storage.kafka.topic_tail import Record
from connectors.storage.kafka.topics import create_topics
from stream.encoding import encode_message
from stream.engine.snapshot import open_snapshot
from stream.records import Heartbeat
from stream.release.validation import load_policy
from stream.schemas import AUDIT, CONTROL, OBSERVATIONS, QUARANTINE, SNAPSHOT
from tests.acceptance.command_line import POLICY, here, tacet
from tests.integration.kafka_brokers import Broker
from tests.integration.kafka_topics import administrator, delete_topics
from tests.integration.storm import is_stopped, records
from tests.integration.two_writers import (
    CHANGED,
    PARTITIONS,
    PRIVATE,
    SITES,
    Scenario,
    all_out,
    assert_one_history,
    bodies,
    findings,
    later_out,
    prepared,
    send_an_hour_more,
)
from tests.support.patience import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.long]


@pytest.fixture
def scenario(kafka: Broker, tmp_path: Path) -> Iterator[Scenario]:
    with prepared(kafka, tmp_path) as scenario:
        yield scenario


def test_a_zombie_that_wakes_writes_nothing_and_ends_where_its_heir_has_another_policy(scenario: Scenario) -> None:
    """It stops in the middle of a window's records; its heir finishes what it began and goes on."""
    zombie = scenario.worker(*scenario.words(), stop_at=f"{PRIVATE}:2", log="zombie")
    wait_until(lambda: is_stopped(zombie), "the worker must come so far")
    heir = scenario.worker(*scenario.words("changed"), "--accept-policy", log="heir")
    wait_until(lambda: all_out(scenario.kafka), scenario.log("heir")[-2000:])
    zombie.send_signal(signal.SIGCONT)
    assert zombie.wait(60) == 2
    assert "which the cluster has accepted in the meantime" in scenario.log("zombie")
    assert heir.poll() is None
    heir.terminate()
    assert heir.wait(20) == 0
    entries = assert_one_history(scenario.kafka)
    assert {entry["policy_version"] for entry in entries} <= {load_policy(text).version for text in (POLICY, CHANGED)}


def test_one_policy_and_one_key_work_at_a_time(scenario: Scenario) -> None:
    """Another key or policy is refused in one line; who carries consent takes over, and the former displaces nobody."""
    asyncio.run(misplace(scenario.kafka))
    first = scenario.worker(*scenario.words(), "--accept-policy")
    wait_until(lambda: all_out(scenario.kafka), "the first must work")
    assert findings(scenario) == [], "nothing keeps a whole cluster from going on"
    wait_until(lambda: bodies(scenario.kafka, QUARANTINE), "it must be refused")
    (refused,) = bodies(scenario.kafka, QUARANTINE)
    assert refused["reason"] == "wrong_partition"
    for words, problem in (
        (scenario.words("changed"), "policy: must be version"), (scenario.words(key="other"), "key: must be the one"),
    ):  # fmt: skip
        done = tacet("worker", *words, code=2)
        assert "Traceback" not in done.stderr
        assert [problem in line for line in done.stderr.splitlines()].count(True) == 1
        assert problem in done.stderr.splitlines()[-1]
    assert first.poll() is None

    second = scenario.worker(*scenario.words("changed"), "--accept-policy", log="second")
    wait_until(lambda: first.poll() == 2, "the second takes its place")
    output = tacet("worker", *scenario.words(), "--accept-policy", code=2).stderr.splitlines()[-1]
    assert "accepted as number 2 in place of the one given" in output
    (replaced,) = findings(scenario)
    assert "'tacet worker --accept-policy --again 2'" in replaced["ways"][-1]["do"]
    send_an_hour_more(scenario)
    wait_until(lambda: later_out(scenario.kafka), "the second must go on")
    assert second.poll() is None
    scenario.worker(*scenario.words(), "--accept-policy", "--again", "2", log="third")
    wait_until(lambda: second.poll() == 2, "who names the present one takes its place")
    assert len({entry["policy_version"] for entry in assert_one_history(scenario.kafka)}) == 2
    assert_an_account_of_every_policy(scenario)


def assert_an_account_of_every_policy(scenario: Scenario) -> None:
    """Assert that an account made of private records knows the policies that came before."""
    coalition = ["--coalition", "facilities,public", "--json"]
    reported = orjson.loads(here("account", "--kafka", scenario.kafka.bootstrap, *coalition).stdout)
    streamed = orjson.loads(here("account", "--kafka", scenario.kafka.bootstrap, "--json").stdout)
    for site in SITES:
        (added,) = reported["sites"][site]["last"]["audiences"].values()
        assert added == streamed["sites"][site]["last"]["coalition"]


def test_topics_that_are_set_otherwise_or_were_made_anew_are_refused_with_their_ways_out(scenario: Scenario) -> None:
    """A worker refuses each, ``recover`` names it, and where the loss is accepted the next worker goes on."""
    assert_settings_are_refused(scenario)
    released(scenario)
    kept = asyncio.run(records(scenario.kafka.bootstrap, SNAPSHOT))
    make_anew(scenario.kafka, SNAPSHOT)
    assert_a_lost_snapshot_is_found(scenario)
    asyncio.run(put_back(scenario.kafka, kept))
    assert findings(scenario) == [], "its records, put back from a mirror, are a way out"

    make_anew(scenario.kafka, CONTROL)
    output = tacet("worker", *scenario.words(key="other"), code=2).stderr.splitlines()[-1]
    assert "the control topic is new" in output

    make_anew(scenario.kafka, OBSERVATIONS)
    send_an_hour_more(scenario)
    done = tacet("worker", *scenario.words(), code=1)
    assert "holds another message than the one that was read there; the topic was made anew" in done.stderr
    assert any("was deleted and created again" in found["what"] for found in findings(scenario))
    accepting = scenario.worker(*scenario.words(), "--accept-loss")
    wait_until(lambda: later_out(scenario.kafka), "it must go on")
    accepting.terminate()
    assert accepting.wait(timeout=PATIENCE) == 0
    assert_one_history(scenario.kafka)

    before = len(bodies(scenario.kafka, PRIVATE))
    make_anew(scenario.kafka, AUDIT)
    make_anew(scenario.kafka, SNAPSHOT)
    done = tacet("worker", *scenario.words(), code=2)
    said = done.stderr.splitlines()[-1]
    assert "with an empty ledger their windows would be released a second time; 'tacet recover --kafka'" in said
    assert len(bodies(scenario.kafka, PRIVATE)) == before
    report = findings(scenario)
    assert any("audit and snapshot hold none" in found["what"] for found in report)
    assert all("new ledger" in found["ways"][-1]["do"] for found in report)


def released(scenario: Scenario) -> None:
    """Let a worker release the recording, and stop it."""
    worker = scenario.worker(*scenario.words())
    wait_until(lambda: all_out(scenario.kafka), "the worker must work")
    worker.terminate()
    assert worker.wait(timeout=PATIENCE) == 0


def assert_settings_are_refused(scenario: Scenario) -> None:
    """What a message may claim is bounded by the broker's time, a producer's own bounds nothing; audits stay."""
    for topic, key, right, wrong in (
        (OBSERVATIONS, "message.timestamp.type", "LogAppendTime", "CreateTime"),
        (AUDIT, "retention.ms", "-1", "3600000"),
    ):
        asyncio.run(set_otherwise(scenario.kafka, topic, {key: wrong}))
        output = tacet("worker", *scenario.words(), code=2).stderr.splitlines()[-1]
        problem = f"topic {topic}: must have {key}={right}, has {wrong}"
        assert f"{problem}; 'kafka-configs.sh" in output
        (found,) = findings(scenario)
        assert found["what"] == problem
        assert f"--add-config {key}={right}" in found["ways"][0]["do"]
        asyncio.run(set_otherwise(scenario.kafka, topic, {}))
    asyncio.run(set_otherwise(scenario.kafka, OBSERVATIONS, {"retention.ms": str(7 * 24 * 3600 * 1000)}))  # longer
    assert findings(scenario) == []


def assert_a_lost_snapshot_is_found(scenario: Scenario) -> None:
    report = findings(scenario)
    assert {found["what"].partition(": ")[0] for found in report} == {
        f"partition {partition_of(site, PARTITIONS)}" for site in SITES
    }
    for found in report:
        assert "the audit holds records, but there is no state" in found["what"]
        copy, again, anew = found["ways"]
        assert "put the records of the topic back from a mirror" in copy["do"]
        assert "if the observations reach back to the first window" in again["do"]
        assert "new ledger" in anew["do"]


async def put_back(kafka: Broker, kept: list[Record]) -> None:
    """Write records where they were."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    for each in kept:
        await producer.send_and_wait(
            SNAPSHOT, each.value, key=each.key, partition=each.partition, timestamp_ms=each.timestamp_ms
        )
    await producer.stop()


def test_nothing_is_found_where_workers_go_on_while_recover_reads(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's end that a state is compared with is not older than the state."""
    scenario.worker(*scenario.words())
    wait_until(lambda: all_out(scenario.kafka), "the worker must work")

    async def after_an_hour_more(servers: str, partition: int) -> bytes | None:
        if partition == partition_of("east", PARTITIONS):
            await asyncio.to_thread(send_an_hour_more, scenario)
            await asyncio.to_thread(wait_until, lambda: later_out(scenario.kafka), "it must go on")
        return await last_snapshot(servers, partition)

    monkeypatch.setattr(kafka_recovery, "last_snapshot", after_an_hour_more)
    assert (
        kafka_recovery.cluster_obstacles(scenario.kafka.bootstrap, scenario.folder / "key", load_policy(POLICY)) == []
    )


def test_a_zombie_of_a_cluster_whose_control_topic_was_made_anew_writes_nothing(scenario: Scenario) -> None:
    zombie = scenario.worker(*scenario.words(), stop_at=f"{PRIVATE}:2", log="zombie")
    wait_until(lambda: is_stopped(zombie), "the worker must come so far")
    make_anew(scenario.kafka, CONTROL)
    heir = scenario.worker(*scenario.words(), log="heir")
    wait_until(lambda: all_out(scenario.kafka), scenario.log("heir")[-2000:])
    zombie.send_signal(signal.SIGCONT)
    wait_until(lambda: "another owner has taken it" in scenario.log("zombie"), "the zombie must find out")
    assert heir.poll() is None
    assert_one_history(scenario.kafka)


def make_anew(kafka: Broker, topic: str) -> None:
    asyncio.run(delete_topics(kafka.bootstrap, [topic]))
    asyncio.run(create_topics(kafka.bootstrap, [topic], partitions=PARTITIONS))


def test_a_production_key_whose_control_topic_is_gone_or_was_made_anew_is_told_its_ways_out(scenario: Scenario) -> None:
    bound = scenario.folder / "bound"
    key_files.create(bound, laboratory=False, first_day=20_000)
    key_files.serve(bound, "former")
    assert "belongs to cluster former" in tacet("worker", *scenario.words(key="bound"), code=2).stderr
    (anew,) = findings(scenario, key="bound")
    assert anew["what"].startswith(f"the key belongs to cluster former, but topic {CONTROL} holds those of cluster ")
    assert_ways_to_the_records_of_the_cluster(anew)
    asyncio.run(delete_topics(scenario.kafka.bootstrap, [CONTROL]))
    (gone,) = findings(scenario, key="bound")
    assert gone["what"] == f"topic {CONTROL}: is not there, and the key belongs to cluster former"
    assert_ways_to_the_records_of_the_cluster(gone)


def assert_ways_to_the_records_of_the_cluster(found: dict[str, Any]) -> None:
    copy, retire = found["ways"][-2:]
    assert "put its records back from a mirror" in copy["do"]
    assert "nothing is released twice" in copy["price"]
    assert "retire the key" in retire["do"]
    assert "begin a new ledger" in retire["do"]
    assert "budgets start again" in retire["price"]


def test_of_two_keys_on_fresh_topics_the_first_wins_and_the_other_ends_at_once(scenario: Scenario) -> None:
    both = [scenario.worker(*scenario.words(key=key), log=key) for key in ("key", "other")]
    wait_until(lambda: any(process.poll() is not None for process in both), "one must end")
    logs = scenario.log("key") + scenario.log("other")
    assert "key: must be the one this cluster was begun with" in logs
    if both[0].poll() is None:  # the first to come had the key of those who sent
        assert both[1].returncode == 2
        wait_until(lambda: all_out(scenario.kafka), "the other must work")
        assert_one_history(scenario.kafka)
    else:
        assert both[1].wait(timeout=PATIENCE) == both[0].returncode == 2
        assert "data key: must be the one under which this was encrypted" in scenario.log("other")


async def grow(kafka: Broker, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    await admin.create_partitions({topic: NewPartitions(2 * PARTITIONS)})
    await admin.close()


def test_a_topic_that_somebody_has_grown_is_refused_by_every_start(scenario: Scenario) -> None:
    asyncio.run(grow(scenario.kafka, OBSERVATIONS))
    output = f"topic {OBSERVATIONS}: must have 4 partitions like the whole cluster, has 8"
    for line in (
        ["worker", *scenario.words()],
        ["ingest", *scenario.words(), "--observations", str(scenario.folder / "rows.csv")],
        ["account", "--kafka", scenario.kafka.bootstrap],
    ):
        start = tacet if line[0] == "worker" else here
        assert output in start(*line, code=2).stderr
    (found,) = findings(scenario)
    assert found["what"].startswith(f"topic {OBSERVATIONS}: has 8 partitions, the cluster 4")
    keeping, losing, ending = found["ways"]
    assert "copy what is unread of partitions 0 to 3 elsewhere" in keeping["do"]
    assert "no message is lost" in keeping["price"]
    assert "'tacet worker --accept-loss'" in losing["do"]
    assert "'tacet key retire --kafka'" in ending["do"]


def test_a_private_topic_that_somebody_has_grown_is_refused_by_who_subscribes(scenario: Scenario) -> None:
    asyncio.run(grow(scenario.kafka, PRIVATE))
    read = ["--kafka", scenario.kafka.bootstrap, "--audience", "facilities", "--from-start", "--until-end"]
    assert (
        f"topic {PRIVATE}: must have 4 partitions like the whole cluster, has 8"
        in here("subscribe", *read, code=2).stderr
    )
    account = here("account", "--kafka", scenario.kafka.bootstrap, "--coalition", "facilities", code=2)
    assert f"topic {PRIVATE}: must have 4 partitions" in account.stderr


async def set_otherwise(kafka: Broker, topic: str, settings: dict[str, str]) -> None:
    async with administrator(kafka.bootstrap) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, topic_config(topic) | settings)])


async def misplace(kafka: Broker) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    beat = encode_message(Heartbeat("east", "127.0.0.1", 1, 1_772_460_000_000_000, 0))
    await producer.send_and_wait(OBSERVATIONS, beat, key=b"east", partition=(partition_of("east", PARTITIONS) + 1) % 4)
    await producer.stop()


async def expire(kafka: Broker, share: float) -> dict[int, tuple[int, int]]:
    """Delete the first messages that no worker has read, a share of them; return how many of which partition, and
    where it then begins."""
    ends = await end_offsets(kafka.bootstrap, OBSERVATIONS)
    gone: dict[int, tuple[int, int]] = {}
    for partition, snapshot in (await last_snapshots(kafka.bootstrap)).items():
        if snapshot is not None and ends[partition] > open_snapshot(snapshot)[0].next_offset:
            position = open_snapshot(snapshot)[0].next_offset
            begin = position + int(share * (ends[partition] - position))
            gone[partition] = begin - position, begin
    async with administrator(kafka.bootstrap) as admin:
        await admin.delete_records(
            {TopicPartition(OBSERVATIONS, number): RecordsToDelete(before_offset=begin) for number, (_, begin)
             in gone.items()}
        )  # fmt: skip
    return gone


@pytest.mark.timeout(900)
def test_observations_that_expired_are_named_with_the_way_out_and_its_price_by_recover_and_by_the_worker(
    scenario: Scenario,
) -> None:
    """It was said that nothing prevents a run from continuing, while each worker ended with 1."""
    first = scenario.worker(*scenario.words())
    wait_until(lambda: all_out(scenario.kafka), "the worker must release the recording")
    first.terminate()
    assert first.wait(120) == 0
    send_an_hour_more(scenario)
    gone = asyncio.run(expire(scenario.kafka, 0.6))
    assert gone.keys() == {partition_of(site, PARTITIONS) for site in SITES}

    output = tacet("worker", *scenario.words(), code=1).stderr
    assert any(f"but the log begins at {begin}: {count} messages are gone; 'tacet worker --accept-loss'" in output
               for count, begin in gone.values())  # fmt: skip
    assert re.search(r"windows of site (east|west) from the one that ends at \S+Z on, .* have coverage 0", output)

    report = findings(scenario)
    assert {each["what"].partition(": ")[0] for each in report} == {f"partition {partition}" for partition in gone}
    named: dict[str, tuple[str, str]] = {}
    for each in report:
        count, begin = gone[int(each["what"].partition(":")[0].removeprefix("partition "))]
        assert f"they begin at {begin}: {count} messages expired" in each["what"]
        accept = each["ways"][0]
        assert "'tacet worker --accept-loss'" in accept["do"]
        for site, since, until in re.findall(
            r"of site (\w+) the \d+ windows that end from (\S+Z) to (\S+Z) have coverage 0", accept["price"]
        ):
            named[site] = since, until
    assert named.keys() == set(SITES)

    scenario.worker(*scenario.words(), "--accept-loss", log="again")
    wait_until(lambda: later_out(scenario.kafka), scenario.log("again")[-2000:])
    assert_one_history(scenario.kafka)
    for site, (since, until) in named.items():
        share = {
            body["window_end"]: body["coverage"] for body in bodies(scenario.kafka, PRIVATE) if body["site"] == site
        }
        assert {share[end] for end in share if since <= end <= until} == {0.0}
        behind = min(end for end in share if end > until)
        assert share[behind] > 0, "no window more than those that were named"
