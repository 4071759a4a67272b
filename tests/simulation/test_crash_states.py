"""A power cut at any instant: the product opens what is left, and ends with the bytes of an undisturbed run.

``crash_states.py`` states the rules of what may be left. Each state is inspected; a sample of them is also run to the
end of the recording.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from connectors.keys import key_files
from connectors.sources.snmp.usm.receiver import EngineFile
from connectors.storage.embedded.reader import outboxes, read_identity, read_outbox, read_topic
from connectors.storage.embedded.rollback_mark import read_marks
from connectors.storage.embedded.sqlite_file import StoreError
from stream.records import SECOND
from stream.schemas import AUDIT, LEAKAGE, parse_record
from tests.simulation import recorded_run
from tests.simulation.crash_states import Disk, Operation, crash_points, promised, record, require_strace
from tests.simulation.recorded_run import log_messages, mark
from tests.support.hash_chain import verify_chain

KEY, STORE = Path("keys/key"), Path("stores/store")
Outputs = dict[str, list[bytes]]


class Recording(NamedTuple):
    """What a run did, where it ran, its inputs, and what it published."""

    operations: list[Operation]
    root: Path
    inputs: Path
    outputs: Outputs


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A run of two processes, the first of which ends without warning."""
    require_strace()
    folder = tmp_path_factory.mktemp("recording").resolve()
    root, inputs = folder / "root", folder / "inputs"
    recorded_run.prepare(root)
    inputs.mkdir()
    key_files.create(inputs / "key", laboratory=False)
    (inputs / "log").touch(0o640)
    words = [sys.executable, "-m", "tests.simulation.recorded_run", str(root), str(inputs)]
    made = record(words, root, folder / "trace")
    undisturbed = recorded_run.prepare(folder / "undisturbed")
    os.truncate(inputs / "log", 0)
    asyncio.run(recorded_run.run(undisturbed, inputs, lambda _: None, key_made=False))
    outputs = published(undisturbed / STORE)
    assert published(root / STORE) == outputs
    assert len(outputs[AUDIT]) >= 6
    verify_chain([parse_record(value) for value in outputs[AUDIT]], key_files.FileKeys(root / KEY).audit)
    first, last = (key_files.oldest_key_day(path) for path in (inputs / "key", root / KEY))
    assert first is None
    assert last is not None
    return Recording(made, root, inputs, outputs)


def published(store: Path) -> Outputs:
    """Return the records of each outbox, and of the ledger and the account; nothing of a file that is being made."""
    files: dict[str, Callable[[], list[bytes]]] = {}
    if (store / "store.sqlite").exists():
        files = {topic: partial(read_topic, store, topic) for topic in (AUDIT, LEAKAGE)}
    for audience, _ in outboxes(store):
        files[audience] = partial(_outbox, store, audience)
    return {name: records for name, read in files.items() if (records := _unless_begun(read)) is not None}


def _outbox(store: Path, audience: str) -> list[bytes]:
    return [value for _, value in read_outbox(store, audience, 0)]


def _unless_begun(read: Callable[[], list[bytes]]) -> list[bytes] | None:
    """Return records; None if the file has no table yet, or a journal of its very first change that a run undoes."""
    try:
        return read()
    except StoreError as error:
        if str(error).endswith(("SQLITE_ERROR", "SQLITE_READONLY_ROLLBACK")):
            return None
        raise


def inspect(folder: Path, disk: Disk, recording: Recording) -> None:
    """Check what others may see of a state before anything has opened it."""
    if "key" not in disk.reports:
        return
    key_file, store = folder / KEY, folder / STORE
    bound, marks = key_files.store_of(key_file), read_marks(key_file)
    if bound is not None:
        assert set(marks) == {bound}
        assert read_identity(store) == bound
    found = published(store)
    audit = found.pop(AUDIT, [])
    for entries, _ in (link for sites in marks.values() for link in sites.values()):
        assert entries <= len(audit), "the mark knows of an entry that the store has lost"
    charged = {parse_record(value)["release_id"] for value in audit}
    assert audit == recording.outputs[AUDIT][: len(audit)]
    for topic, values in found.items():
        assert values == recording.outputs[topic][: len(values)], "released twice, with other bytes"
        if topic != LEAKAGE:
            assert {parse_record(value)["release_id"] for value in values} <= charged, "released before its charge"


def go_on(folder: Path, disk: Disk, recording: Recording) -> None:
    """Check that a run opens the state, keeps what it promised, and ends as if nothing had happened."""
    numbers = promised(disk, ("line", "start", "received", "accepted", "stored"))
    if numbers["received"] >= 0:
        file = EngineFile(folder / "state" / "engines")
        engines = file.engines()
        file.close()
        for line in range(numbers["received"] + 1):
            assert engines.accept(mark(line), line * SECOND) is not None, "a message would be accepted twice"
    with (recording.inputs / "log").open("wb") as log:
        log.writelines(b"%d\n" % line for line in range(numbers["line"] + 1))
    reports: list[str] = []
    asyncio.run(recorded_run.run(folder, recording.inputs, reports.append, key_made="key" in disk.reports))
    starts = [int(report.split()[1]) for report in reports if report.startswith("start")]
    assert starts[0] > numbers["start"], "the receiver counted a start twice"
    lines = [int(report.split()[1]) for report in reports if report.startswith("accepted")]
    first = len(log_messages()) - len(lines)
    assert lines == [*range(first, len(log_messages()))]
    assert first <= numbers["accepted"] + 1, "a line of the log was skipped"
    assert first >= numbers["stored"] + 1, "the position in the log was lost"
    assert published(folder / STORE) == recording.outputs


def try_states(recording: Recording, tmp_path: Path, seed: int, number: int, every: int) -> None:
    """Inspect so many states, and go on from every so manieth."""
    points = crash_points(recording.operations, recording.root, recorded_run.FOLDERS, seed, number)
    for place, (disk, rng) in enumerate(points):
        folder = tmp_path / "state"
        disk.crash(rng, folder)
        try:
            inspect(folder, disk, recording)
            if place % every == 0:
                go_on(folder, disk, recording)
        except BaseException as error:
            error.add_note(f"seed {seed}, state {place} of {number}, after {disk.reports[-1:]}")
            raise
        shutil.rmtree(folder)


def test_a_run_goes_on_from_what_a_power_cut_leaves(recording: Recording, tmp_path: Path) -> None:
    try_states(recording, tmp_path, seed=1, number=150, every=10)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_a_run_goes_on_from_many_states(recording: Recording, tmp_path: Path, seed: int) -> None:
    try_states(recording, tmp_path, seed, number=200, every=2)
