"""Workers killed and paused, brokers killed: nothing lost, nothing twice with other bytes.

Two engines stand in the storm: the whole one, against what one process makes of the same messages, and a hash
chain under a much higher load, in which one lost, doubled or reordered message shows in every later output.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from stream.schemas import AUDIT, parse_time, private_topic
from tests.conftest import had
from tests.integration.chain_storm import chain_storm, share_out, verify
from tests.integration.engine_storm import EngineStorm
from tests.integration.kafka_brokers import Broker, JavaCluster
from tests.integration.one_process import AUDIENCES, PRIVACY_DAYS
from tests.integration.secured_storm import SecuredStorm, secured_brokers
from tests.integration.storm import Plan

pytestmark = pytest.mark.kafka


SUPERSEDED = 15.0
"""Seconds in which a worker that slept through a change of policy has woken and ended, as it must: with exit code 2."""


@pytest.fixture
def three_secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    """Three brokers that only their users reach; skips or fails like ``kafka``."""
    with contextlib.ExitStack() as ending:
        yield had(lambda: ending.enter_context(secured_brokers(tmp_path_factory.mktemp("secured"))))


EVERYTHING = {
    "kill": 5, "pause": 3, "broker": 2, "zombie": 3, "roll": 3, "misplaced": 1, "clock": 1, "bomb": 1, "twin": 1,
    "grown": 1, "recreated": 1,
}  # fmt: skip


def paid_day(entry: dict[str, Any]) -> tuple[str, str, int] | None:
    """Return site, audience and privacy day where an entry has charged for one."""
    if entry["release"] != "day" or not entry["nano"]:
        return None
    return entry["site"], entry["audience"], PRIVACY_DAYS.at(parse_time(entry["window_end"])).number


@pytest.mark.storm
async def test_long_storm_releases_every_window_once_and_as_one_process_would(kafka: Broker, tmp_path: Path) -> None:
    """Killed and paused workers, a killed broker, zombies with and without a change of policy, hostile senders, topics
    that an admin has grown and made anew."""
    faults = int(os.environ.get("TACET_STORM_FAULTS", "200"))
    scenario = EngineStorm(kafka, tmp_path, Plan(seed=11, faults=faults, calm=(1.0, 4.0), weights=EVERYTHING))
    report = await scenario.run()
    compared = await scenario.verify(report)
    print(f"long storm: {compared} records, {report}, {scenario.outcomes}")
    assert report.faults.total() >= faults
    assert report.exits == [0, 0]
    assert scenario.outcomes["rolled"]
    wanted = (await scenario.reference()).topics
    windows = scenario.movement.tick * len(scenario.policy.site)
    assert len(wanted[AUDIT]) > windows * len(AUDIENCES) * 0.9
    assert len(wanted[private_topic("public", "occupancy")]) > windows * 0.9
    charged = Counter(paid_day(entry) for entry in map(orjson.loads, wanted[AUDIT].values()) if paid_day(entry))
    assert set(charged.values()) == {1}, "a day is paid once, whoever takes it over"
    assert len(charged) >= 2 * len(scenario.policy.site), "by two audiences"


@pytest.mark.storm
async def test_three_brokers_lose_one_for_good_and_the_storm_goes_on(
    three_brokers: JavaCluster, tmp_path: Path
) -> None:
    """Every topic has three replicas, of which two must have a record; the lost one is among those that lead."""
    faults = int(os.environ.get("TACET_STORM_FAULTS", "40"))
    before, after = faults // 3, faults - faults // 3
    plan = Plan(seed=3, faults=before + 1 + after, calm=(1.0, 4.0), weights=EVERYTHING, fixed={before: "lose"})
    scenario = EngineStorm(three_brokers, tmp_path, plan)
    report = await scenario.run()
    compared = await scenario.verify(report)
    print(f"storm on three brokers: {compared} records, {report}, {scenario.outcomes}")
    assert report.faults["lose"] == 1
    assert report.exits == [0, 0]


@pytest.mark.storm
async def test_three_secured_brokers_lose_one_for_good_and_leaders_while_the_storm_goes_on(
    three_secured: JavaCluster, tmp_path: Path
) -> None:
    """By TLS and SCRAM, each program with its own user's rules; leaders are moved, too, while no broker falls."""
    faults = int(os.environ.get("TACET_STORM_FAULTS", "40"))
    before, after = faults // 3, faults - faults // 3
    weights = {kind: weight for kind, weight in EVERYTHING.items() if kind not in ("grown", "recreated")} | {"lead": 4}
    plan = Plan(
        seed=3, faults=before + 1 + after, calm=(1.0, 4.0), weights=weights, fixed={before: "lose"}, rest=SUPERSEDED
    )  # fmt: skip
    scenario = SecuredStorm(three_secured, tmp_path, plan)
    report = await scenario.run()
    compared = await scenario.verify(report)
    print(f"storm on three secured brokers: {compared} records, {report}, {scenario.outcomes}")
    assert report.faults["lose"] == 1
    assert sum(times for what, times in scenario.outcomes.items() if what.startswith("led anew")) >= faults // 20
    assert report.exits == [0, 0]


@pytest.mark.storm
async def test_long_storm_under_load_loses_repeats_and_reorders_nothing(
    kafka: Broker, prefix: str, tmp_path: Path
) -> None:
    plan = Plan(seed=7, faults=200, calm=(1.0, 4.0))
    report, topics = await chain_storm(
        kafka, prefix, plan, tmp_path, module="tests.integration.chain_worker", per_second=400
    )
    outputs = await verify(kafka, topics, report)
    print(f"long storm under load: {outputs} outputs, {report}")
    assert report.faults.total() >= 200
    assert report.exits == [0, 0]


@pytest.mark.storm
async def test_the_same_storm_on_fausts_own_consumer_loses_messages(kafka: Broker, prefix: str, tmp_path: Path) -> None:
    async def twin(name: str, plan: Plan) -> float:
        """Run the twin; return the share of outputs that are there, or raise what is wrong with them."""
        report, topics = await chain_storm(
            kafka, name, plan, tmp_path, module="tests.integration.plain_worker", per_second=400, until_read=True
        )
        share = await share_out(kafka, topics)
        print(f"twin: {share:.2%} of the outputs, {report}")
        assert share > 0.5, "the twin must work at all"
        with contextlib.suppress(AssertionError):
            await verify(kafka, topics, report)
            return 1.0
        return share

    in_peace = Plan(seed=7, faults=0, rest=15.0)
    assert await twin(f"{prefix}-peace", in_peace) == 1.0
    in_storm = Plan(seed=7, faults=40, calm=(1.0, 5.0), weights={"kill": 7, "pause": 3})
    assert await twin(f"{prefix}-storm", in_storm) < 1.0
