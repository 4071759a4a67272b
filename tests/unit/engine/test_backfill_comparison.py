"""A backfill compares a recording with what was released under the same policy, and with nothing else.

Otherwise people would decide whether it goes on: zones of another policy hold the same counts while nobody is there.
"""

from __future__ import annotations

import orjson
import pytest

from stream.encoding import encode_message
from stream.engine.backfill import Backfill, Backfilled
from stream.engine.outputs import OutputRecord
from stream.engine.partition import PartitionEngine
from stream.errors import FinalityError
from stream.pipeline import Options
from stream.release.validation import Policy
from stream.schemas import AUDIT
from tests.support.small_building import SITE, building, laboratory, messages, people

PLAIN = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
epsilon = { board = "1" }
"""
POLICY = building(releases=PLAIN)
SEEN = people(hours=18, devices=6)


class Book:
    """What has been released."""

    def __init__(self, emitted: list[OutputRecord]) -> None:
        self._emitted = emitted

    def record(self, release_id: str) -> bytes | None:
        return next((out.value for out in self._emitted if out.topic != AUDIT and out.id == release_id), None)

    def entries(self, site: str) -> list[dict[str, object]]:
        return [orjson.loads(out.value) for out in self._emitted if out.topic == AUDIT]


def settled(policy: Policy, recording: int) -> Backfilled:
    """Return what a backfill under a policy finds of a recording that lacks the first so many sightings."""
    live = PartitionEngine(POLICY, laboratory())
    log = [encode_message(item) for item in messages(SEEN, POLICY)]
    book = Book([out for offset, value in enumerate(log) for out in live.process(offset, None, value)])
    partition = PartitionEngine(policy, laboratory(), accept_policy=True)
    partition.restore(live.snapshot(len(log), 0))
    first, *rest = SEEN
    backfill = Backfill(policy, laboratory(), partition, book, Options(), [POLICY])
    for message in messages([first, *rest[recording:]], policy):
        backfill.process(message)
    backfill.close()
    return backfill.made


def moved() -> Policy:
    """Return the policy in which what was heard in one zone is in another."""
    site = POLICY.site[SITE]
    one, other, *rest = site.zones
    zones = (
        one.model_copy(update={"access_points": other.access_points}),
        other.model_copy(update={"access_points": one.access_points}),
        *rest,
    )
    return POLICY.model_copy(update={"site": {SITE: site.model_copy(update={"zones": zones})}})


def test_other_observations_of_a_window_that_the_same_policy_released_are_refused() -> None:
    assert settled(POLICY, 0).unchecked == 0
    with pytest.raises(FinalityError, match="made from other observations"):
        settled(POLICY, len(SEEN) // 2)


def test_what_another_policy_released_comes_out_as_it_was_and_is_not_compared() -> None:
    made = settled(moved(), 0)
    assert made.unchecked == made.again > 50
    assert made.released == 0
