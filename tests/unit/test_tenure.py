"""What a tenure publishes, in which order, and when it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import orjson
import pytest
from integration.chain_engine import EVERY, ChainEngine, Topics

from stream.errors import FinalityError
from stream.tenure import DeliveryError, LossError, Output, Tenure, Tenures

TOPICS = Topics.of("t")


@pytest.fixture(autouse=True)
def spacing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots follow each other at once, unless a test says otherwise."""
    monkeypatch.setattr("stream.tenure.SNAPSHOT_SPACING", 0.0)


class FakeJournal:
    """A journal in memory that notes what happened in order."""

    def __init__(self) -> None:
        self.audit: list[bytes] = []
        self.snapshots: list[bytes] = []
        self.snapshot_lost = False
        self.happened: list[str] = []
        self.during: dict[str, object] = {}

    async def last_snapshot(self, partition: int) -> bytes | None:
        if self.snapshot_lost:
            msg = "its snapshot was deleted"
            raise LossError(msg)
        return self.snapshots[-1] if self.snapshots else None

    async def audit_since(self, partition: int, offset: int) -> tuple[list[bytes], int]:
        return self.audit[offset:], len(self.audit)

    async def publish(self, partition: int, outputs: Sequence[Output]) -> list[int]:
        self.happened += [f"publish {output.topic}" for output in outputs]
        offsets = []
        for output in outputs:
            if output.topic == TOPICS.audit:
                offsets.append(len(self.audit))
                self.audit.append(output.value)
        action = self.during.get("publish")
        if callable(action):
            action()
        return offsets

    async def write_snapshot(self, partition: int, value: bytes) -> None:
        self.happened.append("snapshot")
        self.snapshots.append(value)


def tenures(journal: FakeJournal, *, accept_loss: bool = False) -> Tenures:
    return Tenures(lambda partition: ChainEngine(TOPICS), journal, audit_topic=TOPICS.audit, accept_loss=accept_loss)


async def feed(tenure: Tenure, count: int, first: int = 0) -> None:
    """Feed numbered messages of one site, and let the checkpoint that they may begin come to its end."""
    for number in range(first, first + count):
        await tenure.feed(number, number, b"s", orjson.dumps({"n": number}), None)
        await asyncio.sleep(0)  # as between two messages of a stream
    await asyncio.sleep(0.01)


async def test_checkpoint_publishes_audit_then_the_rest_then_the_snapshot_then_acknowledges() -> None:
    journal = FakeJournal()
    tenure = await tenures(journal).open(0, 0, 100)
    await feed(tenure, EVERY - 1)
    assert journal.happened == []
    assert tenure.acknowledged is None
    await feed(tenure, 1, EVERY - 1)
    assert journal.happened == ["publish t.audit", "publish t.private", "snapshot"]
    assert tenure.acknowledged == EVERY


async def test_a_snapshot_that_cannot_be_written_acknowledges_nothing_and_ends_the_work() -> None:
    journal = FakeJournal()

    async def broken(partition: int, value: bytes) -> None:
        raise OSError

    journal.write_snapshot = broken  # type: ignore[method-assign]
    held = tenures(journal)
    tenure = await held.open(0, 0, 100)
    await feed(tenure, EVERY)
    assert tenure.acknowledged is None
    assert isinstance(held.failure, OSError)
    assert held.failed.is_set()
    assert tenure.ended


async def test_messages_are_folded_in_while_a_checkpoint_is_written_and_the_next_covers_them_all() -> None:
    journal, gate = FakeJournal(), asyncio.Event()
    write = journal.write_snapshot

    async def slow(partition: int, value: bytes) -> None:
        await gate.wait()
        await write(partition, value)

    journal.write_snapshot = slow  # type: ignore[method-assign]
    tenure = await tenures(journal).open(0, 0, 100)
    await feed(tenure, 3 * EVERY + 1)
    assert tenure.position == 3 * EVERY + 1
    assert journal.happened == ["publish t.audit", "publish t.private"]  # the first window; the others wait
    assert tenure.acknowledged is None
    gate.set()
    await asyncio.sleep(0.01)
    first, second = journal.happened[:3], journal.happened[3:]
    assert first == ["publish t.audit", "publish t.private", "snapshot"]
    assert second == ["publish t.audit"] * 2 + ["publish t.private"] * 2 + ["snapshot"]
    assert [orjson.loads(value)["next"] for value in journal.snapshots] == [EVERY, 3 * EVERY + 1]
    assert tenure.acknowledged == 3 * EVERY + 1


async def test_windows_that_close_together_are_published_at_once_and_share_a_later_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stream.tenure.SNAPSHOT_SPACING", 0.2)
    journal = FakeJournal()
    held = tenures(journal)
    tenure = await held.open(0, 0, 100)
    await feed(tenure, 3 * EVERY)
    assert journal.happened.count("publish t.private") == 3
    assert [orjson.loads(value)["next"] for value in journal.snapshots] == [EVERY]
    assert tenure.acknowledged == EVERY
    await asyncio.sleep(0.3)
    assert [orjson.loads(value)["next"] for value in journal.snapshots] == [EVERY, 3 * EVERY]
    assert tenure.acknowledged == 3 * EVERY
    await feed(tenure, 1, 3 * EVERY)
    monkeypatch.setattr("stream.tenure.SNAPSHOT_SPACING", 30.0)
    await held.checkpoint()
    await feed(tenure, 1, 3 * EVERY + 1)
    await asyncio.wait_for(held.checkpoint(last=True), 5)  # the end of work does not wait
    assert orjson.loads(journal.snapshots[-1])["next"] == 3 * EVERY + 2


async def test_too_much_held_back_makes_the_input_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.tenure.PENDING_LIMIT", 4)
    journal, gate = FakeJournal(), asyncio.Event()
    publish = journal.publish

    async def slow(partition: int, outputs: Sequence[Output]) -> list[int]:
        await gate.wait()
        return await publish(partition, outputs)

    journal.publish = slow  # type: ignore[method-assign]
    tenure = await tenures(journal).open(0, 0, 100)
    feeding = asyncio.create_task(feed(tenure, 10 * EVERY))
    await asyncio.sleep(0.05)
    assert tenure.position == 3 * EVERY  # one window under way, two held back
    gate.set()
    await feeding
    assert tenure.acknowledged == 10 * EVERY


async def test_a_snapshot_holds_the_state_of_its_own_moment_though_the_engine_has_gone_on() -> None:
    journal, gate = FakeJournal(), asyncio.Event()
    publish = journal.publish

    async def slow(partition: int, outputs: Sequence[Output]) -> list[int]:
        await gate.wait()
        return await publish(partition, outputs)

    journal.publish = slow  # type: ignore[method-assign]
    tenure = await tenures(journal).open(0, 0, 100)
    await feed(tenure, 2 * EVERY - 1)
    gate.set()
    await asyncio.sleep(0.01)
    saved = orjson.loads(journal.snapshots[-1])
    assert saved["next"] == EVERY
    assert saved["sites"]["s"][0] == EVERY


async def test_checkpoint_between_windows_saves_state_and_position_and_nothing_twice() -> None:
    journal = FakeJournal()
    held = tenures(journal)
    tenure = await held.open(0, 0, 100)
    await feed(tenure, 3)
    await held.checkpoint()
    await held.checkpoint()
    assert journal.happened == ["snapshot"]
    assert orjson.loads(journal.snapshots[0])["next"] == 3
    again = await tenures(journal).open(0, 0, 100)
    assert again.delivered == 3


async def test_a_message_that_does_not_follow_is_refused_and_not_processed() -> None:
    tenure = await tenures(FakeJournal()).open(0, 0, 100)
    await feed(tenure, 2)
    with pytest.raises(DeliveryError, match="partition 0: offset 2 was due, 3 came"):
        await tenure.feed(3, 3, b"s", b'{"n":3}', None)
    assert tenure.position == 2


async def test_an_ended_tenure_processes_publishes_and_saves_nothing() -> None:
    journal = FakeJournal()
    held = tenures(journal)
    tenure = await held.open(0, 0, 100)
    await feed(tenure, EVERY - 1)
    held.end()
    await feed(tenure, 1, EVERY - 1)
    await tenure.checkpoint()
    assert journal.happened == []
    assert tenure.position == EVERY - 1


async def test_a_tenure_that_ends_while_publishing_leaves_the_newer_snapshot_alone() -> None:
    journal = FakeJournal()
    held = tenures(journal)
    tenure = await held.open(0, 0, 100)
    journal.during["publish"] = held.end
    await feed(tenure, EVERY)
    assert "snapshot" not in journal.happened
    assert tenure.acknowledged is None


async def test_a_window_that_waits_for_its_turn_is_not_published_once_the_tenure_has_ended() -> None:
    journal, gate = FakeJournal(), asyncio.Event()
    write = journal.write_snapshot

    async def slow(partition: int, value: bytes) -> None:
        await gate.wait()
        await write(partition, value)

    journal.write_snapshot = slow  # type: ignore[method-assign]
    held = tenures(journal)
    await feed(await held.open(0, 0, 100), 2 * EVERY)
    held.end()
    gate.set()
    await asyncio.sleep(0.01)
    assert journal.happened.count("publish t.private") == 1


async def test_what_another_owner_published_meanwhile_must_be_the_same() -> None:
    journal = FakeJournal()
    tenure = await tenures(journal).open(0, 0, 100)
    await feed(tenure, EVERY)
    other = orjson.dumps({"release_id": f"s/{2 * EVERY + EVERY}", "head": "00"})
    journal.audit.append(other)  # published by another owner, further on than this one
    await feed(tenure, EVERY, EVERY)
    published = len(journal.happened)
    with pytest.raises(FinalityError):
        await feed(tenure, EVERY, 2 * EVERY)
    assert len(journal.happened) == published


async def test_after_a_restart_a_different_rerun_of_a_published_window_is_refused() -> None:
    journal = FakeJournal()
    journal.audit.append(orjson.dumps({"release_id": f"s/{EVERY}", "head": "00"}))
    tenure = await tenures(journal).open(0, 0, 100)
    with pytest.raises(FinalityError):
        await feed(tenure, EVERY)
    assert journal.happened == []


async def test_the_snapshot_keeps_the_audit_offset_back_until_all_that_was_published_came_out_again() -> None:
    journal = FakeJournal()
    tenure = await tenures(journal).open(0, 0, 100)
    await feed(tenure, 3 * EVERY)
    journal.snapshots.clear()  # a crash that lost every snapshot but no audit record
    again = await tenures(journal).open(0, 0, 100)
    await feed(again, EVERY)
    assert orjson.loads(journal.snapshots[-1])["audit"] == 0
    await feed(again, 2 * EVERY, EVERY)
    known = orjson.loads(journal.snapshots[-1])["audit"]
    assert known == len(journal.audit) - 1  # all but the entry that was written with it


async def test_a_position_before_the_log_stops_with_partition_and_how_much_is_gone() -> None:
    journal = FakeJournal()
    tenure = await tenures(journal).open(2, 0, 100)
    await feed(tenure, EVERY)
    with pytest.raises(LossError, match=r"partition 2 .* offset 5 is next, .* begins at 9: 4 messages are gone"):
        await tenures(journal).open(2, 9, 100)
    with pytest.raises(LossError, match=r"ends at 3: 2 messages that were read are gone"):
        await tenures(journal).open(2, 0, 3)
    accepted = await tenures(journal, accept_loss=True).open(2, 9, 100)
    assert accepted.delivered == 9


async def test_a_position_at_either_end_of_the_log_is_no_loss() -> None:
    journal = FakeJournal()
    await feed(await tenures(journal).open(0, 0, 100), EVERY)
    assert (await tenures(journal).open(0, EVERY, 100)).delivered == EVERY
    assert (await tenures(journal).open(0, 0, EVERY)).delivered == EVERY


async def test_a_deleted_snapshot_is_a_loss_and_not_a_fresh_start() -> None:
    journal = FakeJournal()
    journal.snapshot_lost = True
    with pytest.raises(LossError):
        await tenures(journal).open(0, 0, 100)
    assert (await tenures(journal, accept_loss=True).open(0, 7, 100)).delivered == 7
