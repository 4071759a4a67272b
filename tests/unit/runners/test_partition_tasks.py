"""The task of a partition: what it publishes, in which order, and when it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import orjson
import pytest

from stream.engine.ports import (
    Bounds,
    DeliveryError,
    FencedError,
    InterruptedWriteError,
    LossError,
    Output,
    UnexpectedCancellationError,
)
from stream.errors import FinalityError, UsageError
from stream.runners.partition_tasks import PartitionTask, TaskManager, TaskState
from tests.integration.chain_engine import EVERY, ChainEngine, Topics, chain
from tests.support.patience import until, within_patience

TOPICS = Topics.of("t")


@pytest.fixture(autouse=True)
def spacing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots follow each other at once, unless a test says otherwise."""
    monkeypatch.setattr("stream.runners.partition_tasks.SNAPSHOT_SPACING", 0.0)


class FakeJournal:
    """A journal in memory that notes what happened in order; the last who took it is its one writer."""

    def __init__(self) -> None:
        self.audit: list[bytes] = []
        self.snapshots: list[bytes] = []
        self.snapshot_lost = False
        self.happened: list[str] = []
        self.owner: FakeWriter | None = None
        self.gate = asyncio.Event()
        """Commits wait for it."""
        self.gate.set()
        self.log: dict[int, bytes | None] = {}
        """Messages of the input that differ from what was fed; None where there is none."""
        self.holes: set[int] = set()
        """Offsets of the input that hold nothing."""
        self.used: str | None = None
        """A topic of results that holds records."""
        self.error: Exception | None = None
        """What the next commits end with."""
        self.begun = 0
        """Commits."""
        self.marks = 0
        """Offsets of the audit that marks of transactions have taken, before its first record."""

    async def acquire(self, partition: int) -> FakeWriter:
        self.owner = FakeWriter(self)
        self.happened.append("take")
        return self.owner

    def entries(self) -> list[str]:
        """Return what happened since the last one was taken."""
        return self.happened[len(self.happened) - self.happened[::-1].index("take") :]


class FakeWriter:
    def __init__(self, journal: FakeJournal) -> None:
        self.journal = journal
        self.closed = False

    async def last_snapshot(self) -> bytes | None:
        self.journal.happened.append("read snapshot")
        if self.journal.snapshot_lost:
            msg = "its snapshot was deleted"
            raise LossError(msg)
        return self.journal.snapshots[-1] if self.journal.snapshots else None

    async def audit_since(self, offset: int) -> tuple[list[bytes], int]:
        self.journal.happened.append("read audit")
        end = len(self.journal.audit) + self.journal.marks
        if offset > end:
            msg = f"partition 0 of the audit: offset {offset} is needed, the log holds [0, {end})"
            raise LossError(msg)
        return self.journal.audit[max(0, offset - self.journal.marks) :], end

    async def missing(self, start: int, end: int) -> int:
        return len(self.journal.holes & set(range(start, end)))

    async def message(self, offset: int) -> tuple[bytes | None, bytes] | None:
        value = self.journal.log.get(offset, orjson.dumps({"n": offset}))
        return None if value is None else (b"s", value)

    async def released(self) -> str | None:
        return self.journal.used

    async def commit(self, outputs: Sequence[Output], snapshot: bytes) -> int | None:
        self.journal.begun += 1
        await self.journal.gate.wait()
        if self.journal.owner is not self:
            raise FencedError("another owner has taken it")
        if self.journal.error is not None:
            raise self.journal.error
        self.journal.happened += [*(f"publish {output.topic}" for output in outputs), "snapshot"]
        audit = [output.value for output in outputs if output.topic == TOPICS.audit]
        self.journal.audit += audit
        self.journal.snapshots.append(snapshot)
        return len(self.journal.audit) + self.journal.marks if audit else None

    async def close(self) -> None:
        self.closed = True


def bounds(begin: int, end: int) -> Bounds:
    async def report() -> tuple[int, int]:
        return begin, end

    return report


def task_manager(
    journal: FakeJournal, *, accept_loss: bool = False, engine: type[ChainEngine] = ChainEngine
) -> TaskManager:
    async def made(partition: int) -> ChainEngine:
        return engine(TOPICS)

    return TaskManager(made, journal, audit_topic=TOPICS.audit, accept_loss=accept_loss)


async def feed(task: PartitionTask, count: int, first: int = 0) -> None:
    """Feed numbered messages of one site, and let the checkpoint that they may begin come to its end."""
    for number in range(first, first + count):
        await task.process(number, number, b"s", orjson.dumps({"n": number}), None)
        await asyncio.sleep(0)  # as between two messages of a stream
    await settled()


async def settled() -> None:
    """Let everything that is under way come as far as it can; nothing here waits for the clock."""
    for _ in range(200):
        await asyncio.sleep(0)


COMMIT = ["publish t.audit", "publish t.private", "snapshot"]


async def test_a_partition_is_taken_before_its_snapshot_its_audit_and_its_bounds_are_read() -> None:
    journal = FakeJournal()

    async def asked() -> tuple[int, int]:
        journal.happened.append("bounds")
        return 0, 100

    await task_manager(journal).open(0, asked)
    assert journal.happened == ["take", "read snapshot", "read audit", "bounds"]


async def test_a_checkpoint_is_one_commit_of_audit_then_the_rest_then_the_snapshot_then_acknowledges() -> None:
    journal = FakeJournal()
    task = await task_manager(journal).open(0, bounds(0, 100))
    journal.happened.clear()
    await feed(task, EVERY - 1)
    assert journal.happened == []
    assert task.committed_offset is None
    await feed(task, 1, EVERY - 1)
    assert journal.happened == COMMIT
    assert task.committed_offset == EVERY


async def test_a_commit_that_the_broker_refuses_acknowledges_nothing_and_ends_the_work() -> None:
    journal = FakeJournal()
    stored = task_manager(journal)
    task = await stored.open(0, bounds(0, 100))
    journal.error = OSError()
    await feed(task, EVERY)
    assert task.committed_offset is None
    assert isinstance(stored.failure, OSError)
    assert stored.failed.is_set()
    assert task.ended


async def test_an_owner_that_was_fenced_ends_quietly_and_writes_nothing() -> None:
    journal = FakeJournal()
    first, second = task_manager(journal), task_manager(journal)
    asleep = await first.open(0, bounds(0, 100))
    await feed(asleep, EVERY - 1)
    await feed(await second.open(0, bounds(0, 100)), EVERY)
    written = list(journal.happened)
    await feed(asleep, 1, EVERY - 1)
    assert isinstance(asleep.loss_error, FencedError)
    assert (asleep.ended, asleep.state) == (True, TaskState.LOST)
    assert asleep.committed_offset is None
    assert journal.happened == written
    await first.checkpoint(last=True)
    first.end()
    assert asleep.state == TaskState.LOST, "the consumer opens it again as long as the group assigns it"
    await first.close()
    state: TaskState = asleep.state
    assert state.name == "CLOSED"
    assert first.failure is None


async def test_an_interrupted_commit_ends_the_task_and_the_next_finds_out_what_became_of_it() -> None:
    journal = FakeJournal()
    stored = task_manager(journal)
    task = await stored.open(0, bounds(0, 100))
    journal.error = InterruptedWriteError("no answer")
    await feed(task, EVERY)
    assert isinstance(task.loss_error, InterruptedWriteError)
    assert stored.failure is None
    journal.error = None
    again = await stored.open(0, bounds(0, 100))
    assert again.fetch_offset == 0
    assert stored.tasks == {0: again}
    await feed(again, EVERY)
    assert journal.entries()[-3:] == COMMIT


async def test_feeding_and_stopping_do_not_fail_on_a_partition_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.runners.partition_tasks.PENDING_LIMIT", 2)
    journal = FakeJournal()
    stored = task_manager(journal)
    task = await stored.open(0, bounds(0, 100))
    journal.error = FencedError("another owner has taken it")
    await feed(task, 3 * EVERY)
    await stored.checkpoint(last=True)
    await stored.close()
    assert stored.failure is None
    assert journal.owner is not None
    assert journal.owner.closed


async def test_messages_are_folded_in_while_a_checkpoint_is_written_and_the_next_covers_them_all() -> None:
    journal = FakeJournal()
    task = await task_manager(journal).open(0, bounds(0, 100))
    journal.happened.clear()
    journal.gate.clear()
    await feed(task, 3 * EVERY + 1)
    assert task.position == 3 * EVERY + 1
    assert journal.happened == []
    assert task.committed_offset is None
    journal.gate.set()
    await settled()
    first, second = journal.happened[:3], journal.happened[3:]
    assert first == COMMIT
    assert second == ["publish t.audit"] * 2 + ["publish t.private"] * 2 + ["snapshot"]
    assert [orjson.loads(value)["next"] for value in journal.snapshots] == [EVERY, 3 * EVERY + 1]
    assert task.committed_offset == 3 * EVERY + 1


async def test_what_was_folded_in_while_a_checkpoint_was_written_is_not_acknowledged_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stream.runners.partition_tasks.SNAPSHOT_SPACING", 30.0)
    journal = FakeJournal()
    stored = task_manager(journal)
    task = await stored.open(0, bounds(0, 100))
    journal.gate.clear()
    await feed(task, 2 * EVERY)
    journal.gate.set()
    await until(lambda: task.committed_offset is not None)
    assert task.committed_offset == orjson.loads(journal.snapshots[0])["next"] == EVERY
    await stored.close()


async def test_windows_that_close_soon_after_a_checkpoint_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.runners.partition_tasks.SNAPSHOT_SPACING", 0.2)
    journal = FakeJournal()
    stored = task_manager(journal)
    task = await stored.open(0, bounds(0, 100))
    await feed(task, 3 * EVERY)
    assert journal.happened.count("publish t.private") == 1
    assert task.committed_offset == EVERY
    await until(lambda: len(journal.snapshots) >= 2)
    assert journal.happened.count("publish t.private") == 3
    assert [orjson.loads(value)["next"] for value in journal.snapshots] == [EVERY, 3 * EVERY]
    await feed(task, 1, 3 * EVERY)
    monkeypatch.setattr("stream.runners.partition_tasks.SNAPSHOT_SPACING", 3600.0)
    await stored.checkpoint()
    await feed(task, 1, 3 * EVERY + 1)
    await within_patience(stored.checkpoint(last=True), "the last checkpoint")  # the end of work does not wait
    assert orjson.loads(journal.snapshots[-1])["next"] == 3 * EVERY + 2


async def test_the_end_of_work_waits_for_no_rest_after_a_checkpoint_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.runners.partition_tasks.SNAPSHOT_SPACING", 3600.0)
    journal = FakeJournal()
    stored = task_manager(journal)
    task = await stored.open(0, bounds(0, 100))
    journal.gate.clear()
    await feed(task, 2 * EVERY)
    ending = asyncio.create_task(stored.checkpoint(last=True))
    await settled()
    journal.gate.set()
    await within_patience(ending, "the last checkpoint")
    assert [orjson.loads(value)["next"] for value in journal.snapshots] == [EVERY, 2 * EVERY]


async def test_partitions_are_saved_side_by_side() -> None:
    journal = FakeJournal()
    stored = task_manager(journal)
    journal.gate.clear()
    for partition in (0, 1):
        await feed(await stored.open(partition, bounds(0, 100)), 1)
    saving = asyncio.create_task(stored.checkpoint())
    await settled()
    assert journal.begun == 2
    journal.gate.set()
    await saving


async def test_too_much_held_back_makes_the_input_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.runners.partition_tasks.PENDING_LIMIT", 4)
    journal = FakeJournal()
    task = await task_manager(journal).open(0, bounds(0, 100))
    journal.gate.clear()
    feeding = asyncio.create_task(feed(task, 10 * EVERY))
    await settled()
    assert task.position == 3 * EVERY  # one window under way, two held back
    journal.gate.set()
    await feeding
    assert task.committed_offset == 10 * EVERY


async def test_a_snapshot_holds_the_state_of_its_own_moment_though_the_engine_has_gone_on() -> None:
    journal = FakeJournal()
    task = await task_manager(journal).open(0, bounds(0, 100))
    journal.gate.clear()
    await feed(task, 2 * EVERY - 1)
    journal.gate.set()
    await settled()
    saved = orjson.loads(journal.snapshots[0])
    assert saved["next"] == EVERY
    assert saved["sites"]["s"][0] == EVERY


async def test_checkpoint_between_windows_saves_state_and_position_and_nothing_twice() -> None:
    journal = FakeJournal()
    stored = task_manager(journal)
    task = await stored.open(0, bounds(0, 100))
    await feed(task, 3)
    await stored.checkpoint()
    await stored.checkpoint()
    assert journal.happened[-2:] == ["read audit", "snapshot"]
    assert orjson.loads(journal.snapshots[0])["next"] == 3
    again = await task_manager(journal).open(0, bounds(0, 100))
    assert again.fetch_offset == 3


async def test_a_message_that_does_not_follow_is_refused_and_not_processed() -> None:
    task = await task_manager(FakeJournal()).open(0, bounds(0, 100))
    await feed(task, 2)
    with pytest.raises(DeliveryError, match="partition 0: offset 2 was due, 3 came"):
        await task.process(3, 3, b"s", b'{"n":3}', None)
    assert task.position == 2


async def test_an_ended_task_processes_publishes_and_saves_nothing() -> None:
    journal = FakeJournal()
    stored = task_manager(journal)
    task = await stored.open(0, bounds(0, 100))
    await feed(task, EVERY - 1)
    stored.end()
    await feed(task, 1, EVERY - 1)
    await task.checkpoint()
    assert journal.snapshots == []
    assert task.position == EVERY - 1


async def test_a_window_that_waits_for_its_turn_is_not_published_once_the_task_has_ended() -> None:
    journal = FakeJournal()
    stored = task_manager(journal)
    task = await stored.open(0, bounds(0, 100))
    journal.gate.clear()
    await feed(task, 2 * EVERY)
    stored.end()
    journal.gate.set()
    await settled()
    assert journal.happened.count("publish t.private") == 1


async def test_after_a_restart_a_different_rerun_of_a_published_window_is_refused() -> None:
    journal = FakeJournal()
    journal.audit.append(orjson.dumps({"release_id": f"s/{EVERY}", "head": "00"}))
    task = await task_manager(journal).open(0, bounds(0, 100))
    with pytest.raises(FinalityError):
        await feed(task, EVERY)
    assert journal.snapshots == []


async def test_the_snapshot_keeps_the_audit_offset_back_until_all_that_was_published_came_out_again() -> None:
    journal = FakeJournal()
    task = await task_manager(journal).open(0, bounds(0, 100))
    await feed(task, 3 * EVERY)
    journal.snapshots.clear()  # a crash that lost every snapshot but no audit record
    again = await task_manager(journal).open(0, bounds(0, 100))
    await feed(again, EVERY)
    assert orjson.loads(journal.snapshots[-1])["audit"] == 0
    await feed(again, 2 * EVERY, EVERY)
    known = orjson.loads(journal.snapshots[-1])["audit"]
    assert known == len(journal.audit) - 1  # all but the entry that was written with it


async def adopted(journal: FakeJournal) -> PartitionTask:
    """Open a partition whose state another policy has made."""
    return await task_manager(journal, engine=AdoptedEngine).open(0, bounds(0, 100))


class AdoptedEngine(ChainEngine):
    def adopted(self) -> bool:
        return True


async def test_consent_that_was_given_to_a_start_is_saved_though_nothing_comes() -> None:
    journal = FakeJournal()
    await feed(await task_manager(journal).open(0, bounds(0, 100)), EVERY)
    await (await adopted(journal)).checkpoint()
    assert journal.entries() == ["read snapshot", "read audit", "snapshot"]
    assert orjson.loads(journal.snapshots[-1])["next"] == EVERY


async def test_without_consent_nothing_is_saved_before_something_comes() -> None:
    journal = FakeJournal()
    await feed(await task_manager(journal).open(0, bounds(0, 100)), EVERY)
    await (await task_manager(journal).open(0, bounds(0, 100))).checkpoint()
    assert journal.entries() == ["read snapshot", "read audit"]


async def test_consent_is_not_saved_while_a_window_that_was_begun_before_is_unfinished() -> None:
    journal = FakeJournal()
    await feed(await task_manager(journal).open(0, bounds(0, 100)), 2 * EVERY)
    journal.snapshots.clear()  # a crash that lost the snapshot, but not the records of the windows
    task = await adopted(journal)
    await task.checkpoint()
    assert journal.snapshots == []


async def test_a_position_before_the_log_stops_with_partition_and_how_much_is_gone() -> None:
    journal = FakeJournal()
    task = await task_manager(journal).open(2, bounds(0, 100))
    await feed(task, EVERY)
    with pytest.raises(LossError, match=r"partition 2 .* offset 5 is next, .* begins at 9: 4 messages are gone"):
        await task_manager(journal).open(2, bounds(9, 100))
    price = r"the windows of site dbh from the one that ends at 2026-03-02T14:00:00Z on, .* coverage 0, and are charged"
    with pytest.raises(LossError, match=f"'tacet worker --accept-loss' continues .*: {price}"):
        await task_manager(journal).open(2, bounds(9, 20))
    with pytest.raises(LossError, match=r"ends at 3: 2 messages that were read are gone"):
        await task_manager(journal).open(2, bounds(0, 3))
    accepted = await task_manager(journal, accept_loss=True).open(2, bounds(9, 100))
    assert accepted.fetch_offset == 9


async def test_a_position_at_either_end_of_the_log_is_no_loss() -> None:
    journal = FakeJournal()
    await feed(await task_manager(journal).open(0, bounds(0, 100)), EVERY)
    assert (await task_manager(journal).open(0, bounds(EVERY, 100))).fetch_offset == EVERY
    assert (await task_manager(journal).open(0, bounds(0, EVERY))).fetch_offset == EVERY


async def test_a_log_made_anew_under_a_running_worker_is_told_from_one_that_comes_again() -> None:
    """Its consumer begins once more with the first message: only what lies there says whether it is the same log."""
    journal = FakeJournal()
    task = await task_manager(journal).open(2, bounds(0, 100))
    task.fetch_offset = 2 * EVERY
    await feed(task, 2 * EVERY)
    await task.check_same_log(bounds(0, 2 * EVERY))
    with pytest.raises(LossError, match=r"partition 2 .* ends at 3: 7 messages that were read are gone"):
        await task.check_same_log(bounds(0, 3))
    with pytest.raises(
        LossError, match=r"log begins at 13: 3 messages are gone; 'tacet worker --accept-loss' continues"
    ):
        await task.check_same_log(bounds(2 * EVERY + 3, 100))
    journal.log[2 * EVERY - 1] = b'{"n": 77}'
    with pytest.raises(LossError, match=r"partition 2 .* the topic was made anew"):
        await task.check_same_log(bounds(0, 100))


async def test_messages_gone_from_within_the_log_are_a_loss_and_marks_of_transactions_are_none() -> None:
    journal = FakeJournal()
    journal.holes = {EVERY + 1, EVERY + 2, 99}
    task = await task_manager(journal).open(2, bounds(0, 100))
    await feed(task, EVERY)
    task.fetch_offset = EVERY
    said = r"partition 2 .* offset 5 is next, but 2 messages between it and offset 9 are gone.*--accept-loss"
    with pytest.raises(LossError, match=said):
        await task.accept_hole(9)
    assert not await task.accept_hole(EVERY + 1)


async def test_the_engine_learns_of_an_accepted_hole_in_its_place_and_the_state_goes_on_behind_it() -> None:
    journal = FakeJournal()
    journal.holes = {EVERY + 1, EVERY + 2}
    task = await task_manager(journal, accept_loss=True).open(2, bounds(0, 100))
    task.fetch_offset = EVERY
    assert await task.accept_hole(9)
    await feed(task, EVERY)
    assert b"lost" not in journal.snapshots[-1]
    await task.process(EVERY, 9, b"s", b'{"n":9}', None, after_loss=True)
    await task.checkpoint()
    assert b"lost" in journal.snapshots[-1]
    assert task.committed_offset == 10


async def test_an_accepted_loss_is_saved_before_anything_is_published_and_though_nothing_comes() -> None:
    """A crash amid the first publication then finds entries that were made after the loss, and needs no new consent."""
    journal = FakeJournal()
    await feed(await task_manager(journal).open(2, bounds(0, 100)), EVERY)
    idle = await task_manager(journal, accept_loss=True).open(2, bounds(9, 100))
    await idle.checkpoint()
    assert b"lost" in journal.snapshots[-1]
    again = await task_manager(journal).open(2, bounds(9, 100))
    assert again.fetch_offset == 9
    made_anew = await task_manager(journal, accept_loss=True).open(2, bounds(0, 3))
    await made_anew.checkpoint()
    assert (await task_manager(journal).open(2, bounds(0, 3))).fetch_offset == 0, (
        "the message at offset 4 need not exist"
    )
    busy = await task_manager(journal, accept_loss=True).open(2, bounds(50, 100))
    await busy.process(50, 50, b"s", b'{"n":50}', None)
    await feed(busy, EVERY, 51)
    await busy.checkpoint()
    written = journal.entries()
    assert written.index("snapshot") < written.index(f"publish {TOPICS.audit}")


async def test_a_hole_is_saved_before_anything_is_made_of_what_follows() -> None:
    journal = FakeJournal()
    journal.holes = {EVERY + 1, EVERY + 2}
    task = await task_manager(journal, accept_loss=True).open(2, bounds(0, 100))
    task.fetch_offset = EVERY
    assert await task.accept_hole(9)
    await feed(task, EVERY)
    saved = len(journal.snapshots)
    await task.process(EVERY, 9, b"s", b'{"n":9}', None, after_loss=True)
    assert len(journal.snapshots) == saved + 1
    assert b"lost" in journal.snapshots[-1]
    assert task.committed_offset == 9, "the message behind the hole comes after it"


@pytest.mark.parametrize("hole", [False, True])
async def test_a_loss_of_messages_from_which_entries_were_made_is_not_accepted(hole: bool) -> None:
    """Their records would come out again with coverage 0: other bytes under the same id."""
    journal = FakeJournal()
    await feed(await task_manager(journal).open(2, bounds(0, 100)), 3 * EVERY)
    del journal.snapshots[1:]  # an unclean election: two entries lie beyond the state
    said = r"entries beyond the state were made from them.*; 'tacet recover --kafka' lists the remedies"
    if hole:
        task = await task_manager(journal, accept_loss=True).open(2, bounds(0, 100))
        with pytest.raises(LossError, match=said):
            await task.process(EVERY, 9, b"s", b'{"n":9}', None, after_loss=True)
    else:
        with pytest.raises(LossError, match=said):
            await task_manager(journal, accept_loss=True).open(2, bounds(9, 100))
    assert len(journal.snapshots) == 1, "nothing is published or saved"


async def test_an_audit_topic_made_anew_under_a_running_worker_stops_it() -> None:
    journal = FakeJournal()
    stored = task_manager(journal)
    task = await stored.open(2, bounds(0, 100))
    await feed(task, 2 * EVERY)
    journal.audit = []
    await feed(task, EVERY, 2 * EVERY)
    with pytest.raises(LossError, match="partition 2 of the audit: its records end at 1, 1 of them new, where 2 had"):
        await task.checkpoint()
    assert isinstance(stored.failure, LossError)


async def test_an_audit_topic_that_lost_its_last_records_stops_a_worker_that_has_written_more_than_were_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unclean election takes records away; one message that closes many windows writes more than that at once."""
    monkeypatch.setattr("stream.runners.partition_tasks.SNAPSHOT_SPACING", 1000.0)
    journal = FakeJournal()
    stored = task_manager(journal)
    task = await stored.open(2, bounds(0, 100))
    await feed(task, 2 * EVERY)
    await task.checkpoint()
    assert len(journal.audit) == 2
    del journal.audit[1:]
    await feed(task, 3 * EVERY, 2 * EVERY)
    with pytest.raises(LossError, match="its records end at 4, 3 of them new, where 2 had been written"):
        await task.checkpoint()
    assert isinstance(stored.failure, LossError)


async def test_an_audit_topic_whose_records_are_gone_is_a_loss_at_every_start() -> None:
    journal = FakeJournal()
    await feed(await task_manager(journal).open(0, bounds(0, 100)), 3 * EVERY)
    whole, journal.audit = journal.audit, []
    for there in ([], whole[:1], whole[2:]):
        journal.audit = list(there)
        with pytest.raises(LossError, match="offset 2 is needed"):
            await task_manager(journal, accept_loss=True).open(0, bounds(0, 100))


async def test_an_audit_topic_that_was_put_back_from_a_mirror_is_read_from_its_beginning() -> None:
    """A mirror has the records, not the marks of transactions: the same records lie at smaller offsets."""
    journal = FakeJournal()
    journal.marks = 5
    await feed(await task_manager(journal).open(0, bounds(0, 100)), 3 * EVERY)
    journal.marks = 0
    stored = task_manager(journal)
    task = await stored.open(0, bounds(0, 100))
    await feed(task, EVERY, 3 * EVERY)
    assert stored.failure is None
    assert [orjson.loads(value)["release_id"] for value in journal.audit] == ["s/5", "s/10", "s/15", "s/20"]


async def test_a_deleted_snapshot_is_a_loss_and_not_a_fresh_start() -> None:
    journal = FakeJournal()
    journal.snapshot_lost = True
    with pytest.raises(LossError, match="its snapshot was deleted; 'tacet recover --kafka' lists the remedies"):
        await task_manager(journal).open(0, bounds(0, 100))
    assert (await task_manager(journal, accept_loss=True).open(0, bounds(7, 100))).fetch_offset == 7


async def test_a_log_that_was_made_anew_is_a_loss_and_not_gone_on_with() -> None:
    journal = FakeJournal()
    await feed(await task_manager(journal).open(2, bounds(0, 100)), EVERY)
    journal.log[EVERY - 1] = b'{"n":77}'
    with pytest.raises(LossError, match=r"partition 2 .* offset 4 holds another message .* made anew"):
        await task_manager(journal).open(2, bounds(0, 100))
    accepted = await task_manager(journal, accept_loss=True).open(2, bounds(0, 100))
    assert accepted.fetch_offset == 0
    later = await task_manager(journal).open(2, bounds(EVERY, 100))  # past its time in the log: nothing to compare
    assert later.fetch_offset == EVERY


@pytest.mark.parametrize(("begins", "is_loss"), [((0, EVERY), False), ((0, EVERY + 1), True), ((0, 0), True)])
async def test_a_message_that_passes_its_time_while_a_log_is_compared_is_no_loss(
    begins: tuple[int, int], is_loss: bool
) -> None:
    """The log begins first at one offset, and then at another: behind the message, behind the position, or neither."""
    journal = FakeJournal()
    await feed(await task_manager(journal).open(2, bounds(0, 100)), EVERY)
    journal.log[EVERY - 1] = None
    read = iter(begins)

    async def report() -> tuple[int, int]:
        return next(read), 100

    if is_loss:
        with pytest.raises(LossError, match="another message"):
            await task_manager(journal).open(2, report)
    else:
        assert (await task_manager(journal).open(2, report)).fetch_offset == EVERY


async def test_a_worker_that_was_paused_reads_again_what_another_has_begun_meanwhile() -> None:
    """It found no state, was paused, and finds results: those of its heir, whose state there is by now."""

    class Paused(FakeJournal):
        async def acquire(self, partition: int) -> FakeWriter:
            writer = await super().acquire(partition)

            async def released() -> str:
                await feed(await task_manager(self.heirs).open(partition, bounds(0, 100)), EVERY)
                self.snapshots, self.audit = self.heirs.snapshots, self.heirs.audit
                return TOPICS.private

            writer.released = released  # type: ignore[method-assign]
            return writer

        heirs = FakeJournal()

    assert (await task_manager(Paused()).open(1, bounds(0, 100))).fetch_offset == EVERY


async def test_books_are_not_begun_anew_where_results_were_published() -> None:
    journal = FakeJournal()
    journal.used = TOPICS.private
    with pytest.raises(
        UsageError, match=r"partition 1: must have the audit .* t.private holds.*'tacet recover --kafka'"
    ):
        await task_manager(journal, accept_loss=True).open(1, bounds(0, 100))
    assert journal.snapshots == []


async def test_a_partition_whose_first_transaction_was_cut_off_is_begun_again() -> None:
    journal = FakeJournal()
    journal.used = TOPICS.private
    ((release_id, head),) = chain("s", range(EVERY))
    journal.audit.append(orjson.dumps({"release_id": release_id, "head": head.hex()}))
    await feed(await task_manager(journal).open(1, bounds(0, 100)), EVERY)
    assert len(journal.snapshots) == 1


async def test_a_checkpoint_that_nobody_has_cancelled_ends_the_work() -> None:
    """What it held has left the task: going on without it would lose it."""

    class Cancelled(FakeJournal):
        async def acquire(self, partition: int) -> FakeWriter:
            writer = await super().acquire(partition)

            async def commit(*_: object) -> int | None:
                raise asyncio.CancelledError

            writer.commit = commit  # type: ignore[method-assign,assignment]
            return writer

    stored = task_manager(Cancelled())
    task = await stored.open(0, bounds(0, 100))
    await feed(task, EVERY)
    for _ in range(100):
        await asyncio.sleep(0)
    assert isinstance(stored.failure, UnexpectedCancellationError)
    assert task.ended
