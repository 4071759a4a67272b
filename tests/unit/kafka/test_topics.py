"""The topics of a policy."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from connectors.cli import topics as topics_verb
from connectors.storage.kafka.client import NoAnswerError
from connectors.storage.kafka.topics import BESIDES, Created, create_topics, refuse_missing, topic_names
from stream.errors import UsageError
from stream.keys import LaboratoryKeys
from stream.operators import scan
from stream.records import MINUTE, OccupancyWindow, Published
from stream.release.stage import ReleaseStage
from stream.release.validation import load_policy
from tests.acceptance.command_line import run
from tests.simulation import kafka_brokers
from tests.support.any_broker import SimulatedBroker

TEXT = """
[site.dbh]
sources = ["10.0.0.1"]
[[site.dbh.zones]]
id = "1"
capacity = 5
access_points = ["02:00:00:00:00:01"]
[[audience]]
name = "a"
[[audience]]
name = "b"
[[release]]
name = "r"
query = "count"
mechanism = "laplace"
epsilon = { a = "1", b = "0.5" }
queries = [{ name = "hourly", kind = "window-sum", windows = 12 }]
"""
POLICY = load_policy(TEXT)


def test_every_topic_that_is_published_to_is_among_those_created() -> None:
    stage = ReleaseStage(POLICY, "dbh", LaboratoryKeys(b"k" * 32, "ledger", b"a" * 32))
    _, outputs = scan(stage, [OccupancyWindow("dbh", 1_000_000 * 5 * MINUTE, (3,), Fraction(1))])
    published = {output.topic for output in outputs if isinstance(output, Published)}
    assert len(published) == 5
    assert published <= set(topic_names(POLICY))


def test_a_worker_is_told_of_a_topic_that_is_missing() -> None:
    names = topic_names(POLICY)
    refuse_missing(names, POLICY)
    with pytest.raises(UsageError, match=r"topic tacet\.private\.b\.hourly\.v1: must exist"):
        refuse_missing([name for name in names if name != "tacet.private.b.hourly.v1"], POLICY)


def test_created_topics_are_listed_before_those_that_existed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = list[Any]()

    async def create(servers: str, names: Any, *, partitions: int, replication: int | None) -> Created:
        asked.append((servers, {*names}, partitions, replication))
        return Created(("b", "c"), ("a",), partitions, 3)

    async def found(servers: str, partitions: int) -> None:
        asked.append((servers, partitions))

    monkeypatch.setattr(topics_verb, "create_topics", create)
    monkeypatch.setattr(topics_verb, "found_cluster", found)
    (tmp_path / "policy.toml").write_text(TEXT)
    words = ("topics", "create", "--kafka", "broker:9092", "--policy", tmp_path / "policy.toml", "--partitions", "2")
    assert run(*words).out == "created  b\ncreated  c\nexisted  a\n2 partitions, 3 replicas\n"
    answer = run(*words, "--json").answer
    assert answer == {"created": ["b", "c"], "existing": ["a"], "partitions": 2, "replication": 3}
    assert asked == [("broker:9092", {*topic_names(POLICY), *BESIDES}, 2, None), ("broker:9092", 2)] * 2


@pytest.mark.parametrize("lacking", ["the topics", "their leaders"])
def test_topics_are_created_when_every_broker_knows_them(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    """A controller answers first; its brokers, of which the third is slow, hear of the topics two seconds later."""
    asked = _third_broker_learns_after(2, monkeypatch, lacking)
    broker = SimulatedBroker(brokers=3)

    async def create() -> None:
        created = await create_topics(broker.bootstrap, ["x", "y"], partitions=2)
        assert created.created == ("x", "y")
        assert asked[-1] >= asked[0] + 2

    broker.run(create)


def test_a_broker_that_does_not_hear_of_new_topics_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _third_broker_learns_after(600, monkeypatch, "the topics")
    broker = SimulatedBroker(brokers=3)

    async def create() -> None:
        with pytest.raises(NoAnswerError, match=r"^broker 3: must know the new topics within 60 s; they are created$"):
            await create_topics(broker.bootstrap, ["x", "y"], partitions=2)

    broker.run(create)


def test_a_broker_that_hangs_after_it_created_topics_gives_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, broker = kafka_brokers.HANDLERS[19], SimulatedBroker()

    def create_and_hang(simulated: kafka_brokers.Broker, request: Any) -> None:
        answer(simulated, request)
        simulated.hang()

    async def create() -> None:
        with pytest.raises(NoAnswerError, match=r"^Kafka: must answer within 60 s; no answer came$"):
            await create_topics(broker.bootstrap, ["x"], partitions=2)

    monkeypatch.setitem(kafka_brokers.HANDLERS, 19, create_and_hang)
    broker.run(create)


def _third_broker_learns_after(seconds: float, monkeypatch: pytest.MonkeyPatch, lacking: str) -> list[float]:
    """Let the third broker hear of topics, or of their leaders, so late; return the times at which it is asked."""
    answer, asked = kafka_brokers.HANDLERS[3], list[float]()

    def metadata(broker: kafka_brokers.Broker, request: Any) -> None:
        topics, now = broker.cluster.topics, broker.cluster.world.now
        leaders = {place: place.leader for places in topics.values() for place in places}
        if broker.number == 3 and topics:
            asked.append(now)
            if now < asked[0] + seconds and lacking == "the topics":
                broker.cluster.topics = {}
            elif now < asked[0] + seconds:
                for place in leaders:
                    place.leader = None
        answer(broker, request)
        broker.cluster.topics = topics
        for place, leader in leaders.items():
            place.leader = leader

    monkeypatch.setitem(kafka_brokers.HANDLERS, 3, metadata)
    return asked


def test_a_broker_that_is_away_delays_no_topic() -> None:
    broker = SimulatedBroker(brokers=3)

    async def create() -> None:
        await create_topics(broker.bootstrap, ["x"], replication=2)
        await broker.kill()
        created = await create_topics(broker.bootstrap, ["y"], replication=2)
        assert created.created == ("y",)

    broker.run(create)
