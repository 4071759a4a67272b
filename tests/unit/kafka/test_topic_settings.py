"""Which topic settings a worker refuses, and which get a warning."""

from __future__ import annotations

import pytest

from connectors.storage.kafka.topic_settings import TopicSettings, WrongSetting, topic_config, wrong_settings
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

PRIVATE = private_topic("public", "occupancy")
EVERY = (CONTROL, OBSERVATIONS, SNAPSHOT, AUDIT, LEAKAGE, QUARANTINE, PRESENCE, OCCUPANCY, METADATA, HEADS, PRIVATE)
DURABLE = (CONTROL, OBSERVATIONS, SNAPSHOT, AUDIT, LEAKAGE, HEADS, PRIVATE)
WEEK, HOUR = str(7 * 24 * 3_600_000), "3600000"


def found(name: str, settings: dict[str, str], copies: int = 1) -> list[WrongSetting]:
    made = topic_config(name) | {"min.insync.replicas": "2" if copies >= 3 else "1"}
    return list(wrong_settings(name, TopicSettings(4, made | settings, copies)))


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("name", EVERY)
def test_topics_as_they_are_made_are_as_they_should_be(name: str, copies: int) -> None:
    assert found(name, {}, copies) == []


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        *((name, "unclean.leader.election.enable", "true") for name in DURABLE),
        *((name, "cleanup.policy", way) for name in DURABLE if name not in (CONTROL, SNAPSHOT)
          for way in ("compact", "compact,delete")),
        (OBSERVATIONS, "retention.ms", HOUR),
        (OBSERVATIONS, "retention.bytes", "1000000"),
        (AUDIT, "retention.ms", WEEK),
        (HEADS, "retention.ms", WEEK),
        (AUDIT, "retention.bytes", "1000000"),
        (SNAPSHOT, "retention.ms", HOUR),
        (OBSERVATIONS, "message.timestamp.type", "CreateTime"),
    ],
)  # fmt: skip
def test_what_would_lose_or_fork_something_is_dangerous(name: str, key: str, value: str) -> None:
    (wrong,) = found(name, {key: value})
    assert (wrong.topic, wrong.key, wrong.found, wrong.dangerous) == (name, key, value, True)
    assert f"{key}={wrong.required}, has {value}" in str(wrong)
    assert str(wrong).endswith(f", has {value}")
    assert f"--alter --topic {name} --add-config {key}={wrong.required}'" in wrong.remedy()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (SNAPSHOT, {"cleanup.policy": "delete"}),
        (SNAPSHOT, {"segment.ms": WEEK}),
        (SNAPSHOT, {"max.message.bytes": "1048588"}),
        (CONTROL, {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}),
        (PRESENCE, {"cleanup.policy": "compact"}),
        (PRESENCE, {"retention.ms": HOUR}),
        (QUARANTINE, {"unclean.leader.election.enable": "true"}),
        (AUDIT, {"min.insync.replicas": "2"}),
    ],
)
def test_what_loses_nothing_that_is_needed_is_unwise(name: str, settings: dict[str, str]) -> None:
    assert [wrong.dangerous for wrong in found(name, settings)] == [False]


@pytest.mark.parametrize("limit", [{"retention.ms": WEEK}, {}])
def test_a_control_topic_that_expires_is_dangerous(limit: dict[str, str]) -> None:
    (wrong,) = found(CONTROL, {"cleanup.policy": "compact,delete"} | limit)
    assert (wrong.key, wrong.required, wrong.dangerous) == ("cleanup.policy", "compact", True)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (OBSERVATIONS, {"retention.ms": WEEK}),
        (SNAPSHOT, {"retention.ms": "-1"}),
        (PRIVATE, {"retention.ms": HOUR, "retention.bytes": "1000"}),
        (LEAKAGE, {"retention.ms": HOUR}),
        (SNAPSHOT, {"max.message.bytes": "99999999"}),
        (AUDIT, {"message.timestamp.after.max.ms": "3600000"}),
    ],
)
def test_an_operator_may_keep_more_and_results_as_long_as_they_like(name: str, settings: dict[str, str]) -> None:
    assert found(name, settings) == []


def test_of_three_copies_two_have_to_be_waited_for() -> None:
    (wrong,) = found(AUDIT, {"min.insync.replicas": "1"}, copies=3)
    assert (str(wrong), wrong.dangerous) == (f"topic {AUDIT}: must have at least min.insync.replicas=2, has 1", True)
    assert found(AUDIT, {"min.insync.replicas": "3"}, copies=3) == []


def test_a_list_is_given_to_the_command_in_brackets() -> None:
    (wrong,) = found(SNAPSHOT, {"cleanup.policy": "delete"})
    assert "cleanup.policy=[compact,delete]'" in wrong.remedy()


def test_what_tells_of_people_is_deleted_after_a_day_and_old_states_within_ten_minutes() -> None:
    for name in (OBSERVATIONS, PRESENCE, OCCUPANCY):
        made = topic_config(name)
        assert (made["retention.ms"], made["segment.ms"]) == ("86400000", "3600000")
    made = topic_config(SNAPSHOT)
    assert int(made["segment.ms"]) + int(made["max.compaction.lag.ms"]) == 600_000
    assert made["retention.ms"] == WEEK
