"""Nobody takes a broker that answers for one that hangs.

A leader whose follower hangs holds its answers back. A client that takes it for one that hangs cuts a connection that
works, and sends the same records again. And a process that is paused has not read what its brokers answered.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import occupancy
from tests.simulation.kafka_brokers import FENCED_AFTER, Broker, Cluster
from tests.simulation.kafka_logs import batches_of, header_of
from tests.simulation.started_workers import prepared

PAUSE = 22.0
"""Seconds of a pause: longer than a broker is waited for, by this project and by aiokafka on Faust's behalf."""
Sent = tuple[int, int, int, str, int]
"""Producer, its epoch, base sequence, topic and partition of a batch."""


def test_a_leader_whose_follower_hangs_gets_each_batch_once_and_nobody_takes_it_for_hanging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Counter[Sent]()
    answer = Cluster.answer

    def noted(cluster: Cluster, broker: Broker, request: Any) -> None:
        if request.kind.__name__.startswith("ProduceRequest"):
            for topic in request.fields["topics"]:
                for part in topic["partitions"]:
                    for batch in map(header_of, batches_of(part["messages"])):
                        sent[batch.producer, batch.epoch, batch.sequence, topic["topic"], part["partition"]] += 1
        answer(cluster, broker, request)

    with prepared(tmp_path) as scenario:
        hanging, *others = scenario.cluster.brokers.values()
        scenario.worker("worker")
        scenario.until(lambda: scenario.says("worker     partition"))
        monkeypatch.setattr(Cluster, "answer", noted)
        hanging.hang()
        scenario.world.run(lambda: False, occupancy.SESSION_TIMEOUT)  # four times as long as nobody asks
        partitions = [each for each in scenario.cluster.partitions() if each.leader != hanging.number]
        assert any(each.high_watermark < each.end for each in partitions)
        scenario.world.run(lambda: False, FENCED_AFTER)
        hanging.recover()
        scenario.until(scenario._complete)
        assert [batch for batch, times in sent.items() if times > 1] == []
        assert scenario.says(f"a broker at {hanging.host}:9092 hangs")
        assert not any(scenario.says(f"a broker at {other.host}:9092 hangs") for other in others)
        assert scenario.check() == []


def test_a_worker_that_is_paused_while_a_broker_greets_it_takes_none_for_hanging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it goes on, the clocks of its connections have run out, and the greeting is there."""
    answer = Cluster.answer

    def paused(cluster: Cluster, broker: Broker, request: Any) -> None:
        if request.client.startswith("faust"):  # the client whose own clock runs out first
            monkeypatch.setattr(Cluster, "answer", answer)
            worker.pause()
            cluster.world.after(PAUSE, worker.resume)
        answer(cluster, broker, request)

    with prepared(tmp_path) as scenario:
        monkeypatch.setattr(Cluster, "answer", paused)
        worker = scenario.worker("worker")
        scenario.until(scenario._complete)
        assert scenario.says("worker     goes on")
        assert not scenario.says(" hangs")
        assert scenario.check() == []
