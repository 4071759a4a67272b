"""Fixtures for the whole test tree."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator

import pytest

from tests.integration.kafka_ground import Broker, NoKafkaError, find_broker

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start what runs in their background so, and processes inherit it: tests that send Ctrl-C would wait.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """A running broker; skips with the reason where there is none, fails under TACET_REQUIRE_KAFKA=1."""
    try:
        broker = find_broker()
    except NoKafkaError as reason:
        if os.environ.get("TACET_REQUIRE_KAFKA") == "1":
            pytest.fail(f"TACET_REQUIRE_KAFKA=1, but no Kafka: {reason}")
        pytest.skip(f"no Kafka: {reason}")
    yield broker
    broker.close()


@pytest.fixture
def prefix() -> str:
    """A prefix for topic and group names that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"
