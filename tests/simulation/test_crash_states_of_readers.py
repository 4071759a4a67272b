"""A power cut at any instant: cursors, lists and copies keep what they promised, and whoever reads goes on.

As ``test_crash_states.py``, for the run of ``recorded_readers.py``.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from connectors.keys import key_files
from connectors.keys.opt_outs import OptOutFile
from connectors.serve.history.index import HistoryError
from connectors.sources.cloud.processor import ReplayCache
from connectors.storage.embedded.backup import restore
from connectors.storage.embedded.reader import read_topic
from stream.records import HOUR
from stream.schemas import AUDIT
from tests.simulation import recorded_readers, recorded_run
from tests.simulation.crash_states import Disk, Operation, crash_points, promised, record, require_strace
from tests.simulation.recorded_readers import AUDIENCE, KEY, STORE, name, releases

LATER = recorded_run.START + 1 * HOUR


class Recording(NamedTuple):
    """What a run did, where it ran, and what it followed."""

    operations: list[Operation]
    root: Path
    inputs: Path


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A run of two processes, the first of which ends without warning."""
    require_strace()
    folder = tmp_path_factory.mktemp("readers").resolve()
    root, made = folder / "root", folder / "made"
    made.mkdir()
    key_files.create(made / "key", laboratory=False)
    (made / "log").touch(0o640)
    inputs = recorded_run.prepare(folder / "inputs")
    asyncio.run(recorded_run.run(inputs, made, lambda _: None, key_made=False))
    assert len(releases(inputs)) >= 6
    for each in recorded_readers.FOLDERS:
        (root / each).mkdir(mode=0o700, parents=True)
    words = [sys.executable, "-m", "tests.simulation.recorded_readers", str(root), str(inputs)]
    return Recording(record(words, root, folder / "trace"), root, inputs)


def remove_damaged_index(folder: Path, disk: Disk) -> bool:
    """Do what the error of a damaged index says; return whether that was necessary.

    DuckDB overwrites blocks of its file that are in use, so a cut in the middle of a checkpoint may damage it, and only
    then. It is built again from the records.
    """
    file, problem = folder / recorded_readers.INDEX, ""
    try:
        if file.exists():
            recorded_readers.history(folder).close()
    except HistoryError as error:
        problem = str(error)
    if problem:
        assert problem.endswith("a damaged one may be removed: it is built again")
        assert not disk.is_synced(recorded_readers.INDEX), "damaged, although no checkpoint was being written"
        for each in file.parent.glob(f"{file.name}*"):
            each.unlink()
    return bool(problem)


def check_kept(folder: Path, disk: Disk, *, index_was_damaged: bool) -> None:
    """Check that hooks and opt-outs know whatever they promised to know, and the index what it was given."""
    numbers = promised(disk, ("taken", "out", "indexed"))
    with closing(ReplayCache(folder / "state" / "hooks")) as taken:
        assert all(taken.knows(name(each)) for each in range(1, numbers["taken"] + 1)), "a request is accepted twice"
    if numbers["out"] > 0:
        left_out = OptOutFile(folder / "state" / "opt-outs", KEY)
        assert all(left_out.leaves_out(name(each), LATER) for each in range(1, numbers["out"] + 1)), "counted again"
    if not index_was_damaged:
        with closing(recorded_readers.history(folder)) as indexed:
            assert len(indexed.since(AUDIENCE, "start")) >= numbers["indexed"], "the index lost what it had"


def check_copies(folder: Path, disk: Disk, recording: Recording, target: Path) -> None:
    """Check that a backup and a restored store that are there are whole, and that promised ones are there."""
    audit = read_topic(recording.inputs / STORE, AUDIT)
    for copy in ("copy", "again"):
        there = (folder / "backups" / copy).exists()
        assert there or copy not in disk.reports, f"{copy} is gone"
        if there and copy == "copy":
            restore(folder / "backups" / copy, target, recording.inputs / "keys" / "key", accept_loss=False)
            assert read_topic(target, AUDIT) == audit
        elif there:
            assert read_topic(folder / "backups" / copy, AUDIT) == audit


def go_on(folder: Path, disk: Disk, recording: Recording) -> None:
    """Check that a run goes on from the state, skips nothing, repeats no more than it must, and ends as it should."""
    numbers, reports, last = promised(disk, ("saved", "given")), list[str](), len(releases(recording.inputs))
    asyncio.run(recorded_readers.run(folder, recording.inputs, reports.append))
    given = [int(report.split()[1]) for report in reports if report.startswith("given")]
    first = last + 1 - len(given)
    assert given == [*range(first, last + 1)]
    assert first <= max(numbers["given"], 0) + 1, "a release was skipped"
    assert first > numbers["saved"], "a release came again that the cursor had passed"
    with closing(recorded_readers.history(folder)) as indexed:
        assert sorted(body for _, body in indexed.since(AUDIENCE, "start")) == sorted(
            value for _, value in releases(recording.inputs)
        )


def try_states(recording: Recording, tmp_path: Path, seed: int, number: int) -> None:
    """Let the product open so many states, and go on from each."""
    points = crash_points(recording.operations, recording.root, recorded_readers.FOLDERS, seed, number)
    for place, (disk, rng) in enumerate(points):
        folder = tmp_path / "state"
        disk.crash(rng, folder)
        try:
            damaged = remove_damaged_index(folder, disk)
            if "open" in disk.reports:
                check_kept(folder, disk, index_was_damaged=damaged)
            else:
                assert not damaged, "the first start left an index that cannot be opened"
            check_copies(folder, disk, recording, tmp_path / "restored")
            go_on(folder, disk, recording)
        except BaseException as error:
            error.add_note(f"seed {seed}, state {place} of {number}, after {disk.reports[-1:]}")
            raise
        shutil.rmtree(folder)
        shutil.rmtree(tmp_path / "restored", ignore_errors=True)


def test_readers_go_on_from_what_a_power_cut_leaves(recording: Recording, tmp_path: Path) -> None:
    try_states(recording, tmp_path, seed=1, number=20)


def test_readers_start_again_whose_first_start_a_power_cut_has_ended(recording: Recording, tmp_path: Path) -> None:
    first = next(number for number, each in enumerate(recording.operations) if each.path == Path("open"))
    try_states(recording._replace(operations=recording.operations[:first]), tmp_path, seed=2, number=12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_readers_go_on_from_many_states(recording: Recording, tmp_path: Path, seed: int) -> None:
    try_states(recording, tmp_path, seed, number=100)
