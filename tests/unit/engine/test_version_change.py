"""A change of mechanism version: no window is released under both, and every state has a remedy.

An audit entry says nothing of the noise: both versions make the same entries, and other records. So that a re-run
makes the same entry is not enough.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import pytest

from connectors.storage.kafka import cluster as joining
from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.engine.ports import InterruptedWriteError, Output
from stream.engine.snapshot import open_snapshot
from stream.errors import UsageError
from stream.runners.partition_tasks import TaskManager
from stream.schemas import AUDIT, parse_record
from tests.support.hash_chain import verify_chain
from tests.support.later_mechanism_version import LATER, NOW, later
from tests.support.small_building import COUNTS, SITE, building, laboratory, messages, people

POLICY = building(releases=COUNTS)
LOG = [encode_message(item) for item in messages(people(hours=12, devices=3), POLICY)]
THIRD = len(LOG) // 3


@pytest.fixture(autouse=True)
def spacing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.runners.partition_tasks.SNAPSHOT_SPACING", 0.0)


class Cluster:
    """One partition in memory, as its topics hold it, with all that was ever sent to them."""

    def __init__(self) -> None:
        self.audit: list[bytes] = []
        self.snapshots: list[bytes] = []
        self.records: list[Output] = []
        """Private records that were committed."""
        self.sent: defaultdict[str, set[bytes]] = defaultdict(set)
        """Every private record by its id, also of transactions that were never committed."""
        self.dies_in: int | None = None
        """In which commit of releases, counted from the next, the worker dies."""
        self.versions: tuple[str, ...] = (NOW,)

    async def acquire(self, partition: int) -> Cluster:
        return self

    async def last_snapshot(self) -> bytes | None:
        return self.snapshots[-1] if self.snapshots else None

    async def audit_since(self, offset: int) -> tuple[list[bytes], int]:
        return self.audit[offset:], len(self.audit)

    async def missing(self, start: int, end: int) -> int:
        del start, end
        return 0

    async def message(self, offset: int) -> tuple[bytes | None, bytes] | None:
        return b"s", LOG[offset]

    async def released(self) -> str | None:
        return None

    async def commit(self, outputs: Sequence[Output], snapshot: bytes) -> int | None:
        audit = [output.value for output in outputs if output.topic == AUDIT]
        private = [output for output in outputs if ".private." in output.topic]
        self.audit += audit
        for output in private:
            self.sent[parse_record(output.value)["release_id"]].add(output.value)
        if outputs and self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                raise InterruptedWriteError("killed")
        self.records += private
        self.snapshots.append(snapshot)
        return len(self.audit) if audit else None

    async def close(self) -> None:
        pass

    async def work(self, end: int, *, dies_in: int | None = None) -> None:
        """Let a worker of the version that is present go on to a place in the log, or die in a commit."""
        self.dies_in = dies_in

        async def engine(partition: int) -> PartitionEngine:
            return PartitionEngine(POLICY, laboratory(), accept_policy=True, versions=self.versions)

        async def bounds() -> tuple[int, int]:
            return 0, len(LOG)

        task_manager = TaskManager(engine, self, audit_topic=AUDIT)
        task = await task_manager.open(0, bounds)
        for offset in range(task.position, end):
            await task.process(offset, offset, b"s", LOG[offset], None)
            for _ in range(10):  # the checkpoint under way comes to its end; nothing waits for the clock
                await asyncio.sleep(0)
        await task_manager.checkpoint(last=True)
        await task_manager.close()
        assert (dies_in is None) == (task.loss_error is None)

    def made_by(self) -> str:
        return open_snapshot(self.snapshots[-1])[0].mechanisms

    def assert_one_history(self) -> None:
        """Assert that the hash chain is whole, and that nobody has seen two records of one id."""
        entries = {parse_record(value)["sequence"]: value for value in self.audit}
        assert all(entries[parse_record(value)["sequence"]] == value for value in self.audit)
        verify_chain([parse_record(entries[number]) for number in sorted(entries)], laboratory().audit)
        assert all(len(each) == 1 for each in self.sent.values())
        assert len({output.value for output in self.records}) == len(self.records) == len(self.sent)


async def test_the_two_versions_make_the_same_entries_and_other_records() -> None:
    """What makes the rest of this file worth while: no comparison of entries would notice."""
    one, other = Cluster(), Cluster()
    await one.work(THIRD)
    with later():
        other.versions = (LATER,)
        await other.work(THIRD)
    assert set(one.audit) == set(other.audit)
    assert all(one.sent[name] != other.sent[name] for name in one.sent if "plain" in name)


async def test_a_state_of_the_version_before_is_gone_on_with_where_nothing_is_begun() -> None:
    cluster = Cluster()
    await cluster.work(THIRD)
    cluster.versions = (NOW, LATER)
    with later():
        await cluster.work(len(LOG))
        assert cluster.made_by() == LATER
    cluster.assert_one_history()


async def test_a_window_that_a_version_began_is_refused_by_the_next_until_its_own_has_finished_it() -> None:
    cluster = Cluster()
    await cluster.work(2 * THIRD, dies_in=6)
    before = list(cluster.snapshots)
    cluster.versions = (NOW, LATER)
    with later(), pytest.raises(UsageError, match=rf"must be {NOW}, under which .* start version {NOW} once more"):
        await cluster.work(len(LOG))
    assert cluster.snapshots == before
    await cluster.work(2 * THIRD)
    with later():
        await cluster.work(len(LOG))
    cluster.assert_one_history()


@pytest.mark.parametrize("dies_in", [0, 1])
async def test_a_worker_that_dies_in_its_first_window_of_a_new_version_makes_it_again(dies_in: int) -> None:
    cluster = Cluster()
    await cluster.work(THIRD)
    cluster.versions = (NOW, LATER)
    with later():
        await cluster.work(2 * THIRD, dies_in=dies_in)
        assert cluster.made_by() == LATER, "saved before anything was published"
        await cluster.work(len(LOG))
    cluster.assert_one_history()


async def test_a_worker_that_dies_in_the_first_window_of_all_makes_it_again_also_where_versions_have_changed() -> None:
    cluster = Cluster()
    cluster.versions = (NOW, LATER)
    with later():
        await cluster.work(THIRD, dies_in=0)
        await cluster.work(len(LOG))
    cluster.assert_one_history()


async def test_entries_without_any_state_are_made_again_only_where_one_version_alone_has_worked() -> None:
    cluster = Cluster()
    await cluster.work(THIRD)
    cluster.snapshots.clear()
    cluster.versions = (NOW, LATER)
    with later(), pytest.raises(UsageError, match=rf"mechanism versions {NOW}, {LATER} have worked here"):
        await cluster.work(len(LOG))
    cluster.versions = (NOW,)
    cluster.records.clear()
    await cluster.work(len(LOG))
    cluster.assert_one_history()


async def test_entries_without_any_state_are_not_said_to_lie_beyond_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    await cluster.work(THIRD)

    async def gone(bootstrap: str, partition: int) -> None:
        return None

    async def read_range(*_: object, committed: bool) -> tuple[list[bytes], int]:
        return await cluster.audit_since(0)

    monkeypatch.setattr(joining, "_state", gone)
    monkeypatch.setattr(joining, "read_range", read_range)
    reported = (
        rf"must be {NOW}, under which {len(cluster.audit)} ledger entries were published that no saved state belongs to"
    )
    with pytest.raises(UsageError, match=reported + ", got .* put them back"):
        await joining._check_usable_state("nowhere", 0, {SITE}, (NOW, LATER))


async def test_a_version_never_goes_back_to_a_state_of_a_later_one() -> None:
    cluster = Cluster()
    with later():
        cluster.versions = (LATER,)
        await cluster.work(THIRD)
    with pytest.raises(UsageError, match=f"mechanism version: must be .* to continue from, got {LATER}"):
        await cluster.work(len(LOG))
