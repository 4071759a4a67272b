"""A message that closes thousands of windows blocks neither the event loop nor the end of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.engine.ports import Output
from stream.records import DAY, Heartbeat
from stream.runners.partition_tasks import PartitionTask
from stream.schemas import AUDIT
from stream.sensing.occupancy import WINDOWS_AT_ONCE
from tests.support.small_building import COUNTS, EVENING, SITE, SOURCES, building, laboratory

POLICY = building(releases=COUNTS.split('[[release]]\nname = "smooth"', maxsplit=1)[0])
WINDOWS = 2 * DAY // POLICY.site[SITE].tick
BEGIN = [encode_message(Heartbeat(SITE, source, 1, EVENING, 0)) for source in SOURCES]
LONG_AFTER = encode_message(Heartbeat(SITE, SOURCES[0], 1, EVENING + 2 * DAY, 0))


class MemoryWriter:
    """Commits into lists."""

    def __init__(self) -> None:
        self.audit: list[bytes] = []
        self.snapshots: list[bytes] = []

    async def last_snapshot(self) -> bytes | None:
        return self.snapshots[-1] if self.snapshots else None

    async def audit_since(self, offset: int) -> tuple[list[bytes], int]:
        return self.audit[offset:], len(self.audit)

    async def missing(self, start: int, end: int) -> int:
        del start, end
        return 0

    async def message(self, offset: int) -> tuple[bytes | None, bytes] | None:
        raise NotImplementedError

    async def released(self) -> str | None:
        raise NotImplementedError

    async def commit(self, outputs: Sequence[Output], snapshot: bytes) -> int | None:
        self.audit += [out.value for out in outputs if out.topic == AUDIT]
        self.snapshots.append(snapshot)
        return len(self.audit)

    async def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def spacing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.runners.partition_tasks.SNAPSHOT_SPACING", 0.0)


def failed(problem: Exception, accepted: str = "") -> None:
    pytest.fail(f"{problem!r} {accepted}")


async def opened(writer: MemoryWriter) -> PartitionTask:
    engine = PartitionEngine(POLICY, laboratory())
    position = engine.restore(await writer.last_snapshot()) or 0
    return PartitionTask(
        0, engine, writer, audit_topic=AUDIT, position=position, audit_end=len(writer.audit), fail=failed,
        consent=failed,
    )  # fmt: skip


async def fed(task: PartitionTask, values: Sequence[bytes], first: int = 0) -> None:
    for offset, value in enumerate(values, first):
        await task.process(offset, offset, SITE.encode(), value, None)


def windows(audit: Sequence[bytes]) -> int:
    return len({value.split(b'"window_end":"')[1][:20] for value in audit})


async def test_the_loop_has_its_turn_while_thousands_of_windows_close() -> None:
    task = await opened(MemoryWriter())
    await fed(task, BEGIN)
    feeding = asyncio.create_task(task.process(2, 2, SITE.encode(), LONG_AFTER, None))
    turns = 0
    while not feeding.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= WINDOWS // WINDOWS_AT_ONCE
    assert task.position == 3


async def test_a_task_told_to_end_amid_many_windows_ends_at_once_and_the_next_one_goes_on_there() -> None:
    straight, cut = MemoryWriter(), MemoryWriter()
    whole = await opened(straight)
    await fed(whole, [*BEGIN, LONG_AFTER])
    await whole.checkpoint(last=True)
    assert windows(straight.audit) >= WINDOWS - 1

    task = await opened(cut)
    await fed(task, BEGIN)
    feeding = asyncio.create_task(task.process(2, 2, SITE.encode(), LONG_AFTER, None))
    await asyncio.sleep(0)
    await task.checkpoint(last=True)
    await feeding
    assert 0 < windows(cut.audit) <= 3 * WINDOWS_AT_ONCE
    assert task.committed_offset == 2, "the heartbeat is not done with"
    await task.process(3, 3, SITE.encode(), LONG_AFTER, None)  # what is handed on all the same is not taken

    again = await opened(cut)
    assert again.position == 2
    await fed(again, [LONG_AFTER], 2)
    await again.checkpoint(last=True)
    assert cut.audit == straight.audit
    assert again.committed_offset == 3
