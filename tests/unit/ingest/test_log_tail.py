"""Following snmptrapd's log over rotation, truncation and restarts: whole lines, each once."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from connectors.sources.ingest.followed_logs import Piece, TailedFile
from connectors.sources.snmp.snmptrapd import written_at
from stream.errors import KeyFileError, UsageError

LONGEST = 200


def line(number: int) -> str:
    """One of the lines that are all of one length, of second 1,795,000,000 and so many."""
    return f"T|UDP: [10.2.0.5]:5->x|{1_795_000_000 + number}|rest"


class Logged:
    """The log, as its writer and logrotate treat it, and who follows it."""

    def __init__(self, folder: Path, name: str = "traps.log") -> None:
        self.path, self.state = folder / name, folder / "state"
        self.path.touch(0o640)
        self.followed: TailedFile | None = None

    def write(self, *numbers: int, end: str = "\n") -> None:
        with self.path.open("a") as log:
            log.write("\n".join(line(number) for number in numbers) + end)

    def rotate(self) -> None:
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))

    def renew(self) -> None:
        self.path.touch(0o640)

    async def start(self) -> TailedFile:
        self.followed = TailedFile(self.path, self.state, LONGEST, written_at)
        await self.followed.open()
        return self.followed

    async def read(self, *, keep: bool = True) -> list[str | None]:
        """Return everything there is, and keep how far that is."""
        assert self.followed is not None
        found: list[Piece] = []
        while True:
            pieces, whole = await self.followed.read(500)
            found += pieces
            if whole and not pieces:
                break
        assert [piece.end for piece in found] == sorted({piece.end for piece in found})
        if keep and found:
            assert await self.followed.store_positions({"": found[-1].end})
        return [None if piece.content is None else piece.content.decode() for piece in found]

    async def restart(self) -> None:
        assert self.followed is not None
        await self.followed.close()
        await self.start()


@pytest.fixture
async def log(tmp_path: Path) -> Logged:
    made = Logged(tmp_path)
    made.write(1, 2)
    await made.start()
    return made


async def test_at_first_it_is_followed_from_its_end(log: Logged) -> None:
    assert await log.read() == []
    log.write(3)
    assert await log.read() == [line(3)]


async def test_what_is_written_after_the_first_start_is_read_also_if_that_run_stored_nothing(log: Logged) -> None:
    log.write(3)
    assert await log.read(keep=False) == [line(3)]
    log.write(4)
    await log.restart()
    assert await log.read() == [line(3), line(4)]


async def test_any_name_of_a_log_is_taken_as_it_stands(tmp_path: Path) -> None:
    log = Logged(tmp_path, "traps[1]*.log")
    log.write(1)
    await log.start()
    log.write(2, 3)
    assert await log.read() == [line(2), line(3)]
    log.write(4)
    log.rotate()
    log.renew()
    log.write(5)
    await log.restart()
    assert await log.read() == [line(4), line(5)]


async def test_a_line_counts_when_it_ends_also_one_that_had_begun_before(tmp_path: Path) -> None:
    log = Logged(tmp_path)
    log.write(1)
    log.write(2, end="")
    await log.start()
    assert await log.read() == []
    with log.path.open("a") as file:
        file.write("-tail\n")
    assert await log.read() == [f"{line(2)}-tail"]


async def test_after_a_restart_it_goes_on_where_it_was_kept_and_what_was_not_comes_again(log: Logged) -> None:
    log.write(3)
    assert await log.read() == [line(3)]
    log.write(4, 5)
    assert await log.read(keep=False) == [line(4), line(5)]
    log.write(6)
    await log.restart()
    assert await log.read() == [line(4), line(5), line(6)]
    await log.restart()
    assert await log.read() == []


async def test_what_is_written_into_a_renamed_file_until_the_new_one_is_begun_is_read(log: Logged) -> None:
    log.write(3)
    log.rotate()
    assert await log.read() == [line(3)]
    log.renew()
    assert await log.read() == []
    with log.path.with_name("traps.log.1").open("a") as old:
        old.write(f"{line(4)}\n")
    assert await log.read() == [line(4)], "the new one is empty, so the writer may still have the old one"
    log.write(5)
    assert await log.read() == [line(5)]


async def test_what_a_renamed_file_held_when_nobody_read_comes_first_after_a_restart(log: Logged) -> None:
    log.write(3)
    await log.read()
    log.write(4)
    log.rotate()
    log.renew()
    log.write(5)
    await log.restart()
    assert await log.read() == [line(4), line(5)]


async def test_a_file_that_was_cut_off_is_read_from_its_beginning(log: Logged) -> None:
    log.write(3)
    await log.read()
    os.truncate(log.path, 0)
    log.write(4)
    assert await log.read() == [line(4)]


@pytest.mark.parametrize("as_long", [3, 5], ids=["as far as it was read", "further"])
async def test_a_file_that_was_cut_off_while_nobody_read_is_known_by_its_lines(log: Logged, as_long: int) -> None:
    """Lines of one length: an offset alone would fit."""
    log.write(3)
    await log.read()
    assert log.followed is not None
    await log.followed.close()
    os.truncate(log.path, 0)
    log.write(*range(11, 11 + as_long))
    await log.start()
    assert await log.read() == [line(number) for number in range(11, 11 + as_long)]


@pytest.mark.parametrize("how", ["rotated", "cut off"])
async def test_a_line_that_will_never_end_is_one_that_could_not_be_read(log: Logged, how: str) -> None:
    log.write(3, end="")
    assert await log.read() == []
    if how == "rotated":
        log.rotate()
        log.renew()
    else:
        os.truncate(log.path, 0)
    log.write(4)
    assert await log.read() == [None, line(4)]


async def test_a_line_that_is_too_long_is_lost_alone_however_much_of_it_there_is(log: Logged) -> None:
    with log.path.open("a") as file:
        file.write("x" * (3 * LONGEST))
    assert await log.read() == []
    with log.path.open("a") as file:
        file.write("y" * 150_000 + "\n")
    log.write(3)
    assert await log.read() == [None, line(3)]
    await log.restart()
    assert await log.read() == []


async def test_more_than_is_read_at_once_is_read_in_turns(log: Logged) -> None:
    log.write(*range(3, 5003))
    assert await log.read() == [line(number) for number in range(3, 5003)]


@pytest.mark.parametrize("mode", [0o644, 0o642, 0o641])
async def test_a_log_that_anybody_could_read_or_write_is_refused(log: Logged, mode: int) -> None:
    log.path.chmod(mode)
    with pytest.raises(UsageError, match="only its owner and group can read"):
        await log.restart()


async def test_a_new_file_of_the_name_is_looked_at_as_the_first_was(log: Logged) -> None:
    log.rotate()
    log.path.touch()
    log.path.chmod(0o644)
    log.write(3)
    with pytest.raises(UsageError, match="only its owner and group can read"):
        await log.read()


@pytest.mark.parametrize("what", ["nothing", "a folder", "a pipe"])
async def test_only_a_file_is_a_log(tmp_path: Path, what: str) -> None:
    log = Logged(tmp_path)
    log.path.unlink()
    if what == "a folder":
        log.path.mkdir()
    elif what == "a pipe":
        os.mkfifo(log.path, 0o600)
    with pytest.raises(UsageError, match=r"traps\.log: must be a (log that can be read|file)"):
        await log.start()


async def test_two_readers_cannot_share_a_place(log: Logged) -> None:
    with pytest.raises(KeyFileError, match="held by one process only"):
        await TailedFile(log.path, log.state, LONGEST, written_at).open()


async def test_of_lines_no_more_is_kept_than_where_and_when_the_last_one_was(log: Logged) -> None:
    log.write(3)
    await log.read()
    assert log.followed is not None
    await log.followed.close()
    (row,) = sqlite3.connect(log.state).execute("SELECT offset, said FROM place").fetchall()
    assert row == (log.path.stat().st_size, 1_795_000_003_000_000)
    assert log.state.stat().st_mode & 0o777 == 0o600
    assert b"10.2.0.5" not in b"".join(path.read_bytes() for path in log.path.parent.glob("state*"))
