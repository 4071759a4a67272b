"""Fixtures for the whole test tree."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import settings

if TYPE_CHECKING:  # what needs no broker does not load a client of Kafka
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

    from tests.integration.kafka_brokers import Broker, JavaCluster
    from tests.integration.secured_kafka import SecuredKafka
    from tests.support.any_broker import AnyBroker

T = TypeVar("T")
# Collecting makes half a million objects and no garbage: searching them again and again takes a tenth of its time.
gc.disable()

# What one example takes says how busy the machine is.
settings.register_profile("tacet", deadline=None)
settings.load_profile("tacet")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start what runs in their background so, and processes inherit it: tests that send Ctrl-C would wait.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are processors: workers that wait for a broker leave theirs to the others."""
    return len(os.sched_getaffinity(0)) + 2


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Let some workers run the files that wait for brokers, and the others all the rest meanwhile."""
    if config.option.dist != "loadfile":
        return None
    from tests.support.file_scheduling import FileScheduling

    return FileScheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Run the quickest tests first where a file of durations is given."""
    if durations := os.environ.get("TACET_TEST_DURATIONS"):
        from tests.support.quickest_first import QuickestFirst

        config.pluginmanager.register(QuickestFirst(Path(durations)))


def pytest_collection_finish() -> None:
    """Leave what collecting has made, half a million objects, out of every later garbage collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter collect them at its end."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def _broker() -> Iterator[Broker]:
    from tests.integration.kafka_brokers import find_broker

    broker = had(find_broker)
    yield broker
    broker.close()


@pytest.fixture(scope="module")
def kafka(_broker: Broker) -> Broker:
    """A running broker without a topic of other modules' clusters.

    Skips with the reason where there is none, fails under TACET_REQUIRE_KAFKA=1.
    """
    from tests.integration.kafka_topics import clear_topics

    asyncio.run(clear_topics(_broker.bootstrap))
    return _broker


@pytest.fixture(params=["simulated", pytest.param("real", marks=[pytest.mark.kafka, pytest.mark.long])])
def broker(request: pytest.FixtureRequest) -> AnyBroker:
    """A simulated broker without a topic; each night a real one."""
    from tests.support.any_broker import RealBroker, SimulatedBroker

    return SimulatedBroker() if request.param == "simulated" else RealBroker(request.getfixturevalue("kafka"))


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[JavaCluster]:
    """Three brokers, each with a copy of everything; skips or fails like ``kafka``."""
    from tests.integration.kafka_brokers import find_cluster

    cluster = had(find_cluster)
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A broker with TLS, users and their rules; skips or fails like ``kafka``."""
    from tests.integration.secured_kafka import secured_kafka_in

    with contextlib.ExitStack() as ending:
        yield had(lambda: ending.enter_context(secured_kafka_in(tmp_path_factory.mktemp("secured"))))


def had(find: Callable[[], T]) -> T:
    """Return what was found of Kafka; skip with the reason where there is none, or fail under TACET_REQUIRE_KAFKA=1."""
    from tests.integration.kafka_brokers import NoKafkaError

    try:
        return find()
    except NoKafkaError as reason:
        if os.environ.get("TACET_REQUIRE_KAFKA") == "1":
            pytest.fail(f"TACET_REQUIRE_KAFKA=1, but no Kafka: {reason}")
        pytest.skip(f"no Kafka: {reason}")


@pytest.fixture
def prefix() -> str:
    """A prefix for topic and group names that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"
