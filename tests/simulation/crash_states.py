"""Crash states: what a power cut may leave of files, from the system calls of a real run.

``strace`` records a run; ``operations`` reads its output; ``Disk`` carries operations out one after the other, and
draws what a crash at that point may leave. The rules are weaker than those of any file system in use, so that a store
that survives them survives on ext4, XFS and Btrfs too (Pillai et al., *All File Systems Are Not Created Equal*, OSDI
2014, table 1: no order among writes, nor among changes of folders):

1. What was in a file at its last ``fsync`` or ``fdatasync`` is on the disk. Afterwards each sector (512 octets) or page
   (4096) has, independently of all others, what it had at one moment between then and the crash. So does the length.
   What a lasting truncation removed is gone; one that did not last removed nothing. What was never written is zero.
2. An entry of a folder is on the disk when that folder was synced. Of later creations, renames and removals any subset
   may have reached the disk, each completely or not at all. Half of the states keep them in order, as a journal does.
3. A sync of a file does not sync its name. A process that is killed loses nothing: that state is drawn as well.

The shared memory of SQLite (``-shm``) is written through a mapping and does not survive a restart of the machine; a
file that has none gets a new one.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from tests.integration.external_programs import program
from tests.support.patience import PATIENCE

_CALLS = (
    "openat", "write", "pwrite64", "writev", "pwritev", "ftruncate", "truncate", "fallocate", "fsync", "fdatasync",
    "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat",
    "copy_file_range", "sendfile",
)  # fmt: skip
_LINE = re.compile(rb"^(\d+) +(\w+)\((.*)\) += (-?\d+)(?:<[^>]*>)?(?: |$)")
_ARGUMENT = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"|(\w+)<((?:\\x[0-9a-f]{2})*)>|([^,\s][^,]*)')
REPORT = "reported"
"""The file to which a recorded run writes what it has promised to others by then; it is no part of the state."""


class Operation(NamedTuple):
    """One change of the recorded files."""

    kind: Literal["create", "folder", "write", "truncate", "sync", "rename", "unlink", "report"]
    path: Path
    offset: int = 0
    """Of a write; the new length of a truncation."""
    content: bytes = b""
    target: Path = Path()
    """The new name of a renamed file."""


def record(words: Sequence[str], root: Path, trace: Path) -> list[Operation]:
    """Run a program to its end and return what it changed below ``root``."""
    traced = [
        "strace",
        "-f",
        "-y",
        "--seccomp-bpf",
        "-qq",
        "-xx",
        "-s",
        "16777216",
        "-e",
        "trace=" + ",".join(f"?{call}" for call in _CALLS),
    ]
    subprocess.run([*traced, "-o", str(trace), *words], check=True, timeout=PATIENCE)
    return list(operations(trace.read_bytes(), root))


def operations(trace: bytes, root: Path) -> Iterator[Operation]:
    """Yield the operations of a trace that concern files below ``root``; ValueError for calls without a rule here."""
    offsets: dict[bytes, dict[int, int | None]] = {}
    for line in trace.splitlines():
        found = _LINE.match(line)
        if found is None:
            if b"unfinished" in line and _hex(root) in line:
                msg = "two threads that write at the same time have no rule"
                raise ValueError(msg)
            continue
        if found[4].startswith(b"-") or _hex(root) not in line:
            continue
        call, result = found[2].decode(), int(found[4])
        for each in _of_call(call, found[3], result, offsets.setdefault(found[1], {})):
            if root in each.path.parents or (each.kind == "sync" and each.path == root):
                if each.path.name == REPORT:
                    yield from (Operation("report", Path(said)) for said in each.content.decode().splitlines())
                elif not each.path.name.endswith("-shm"):
                    yield each


def _hex(path: Path) -> bytes:
    return "".join(f"\\x{octet:02x}" for octet in str(path).encode()).encode()


def _plain(text: bytes) -> bytes:
    return bytes.fromhex(text.replace(b"\\x", b"").decode())


def _of_call(call: str, arguments: bytes, result: int, offsets: dict[int, int | None]) -> Iterator[Operation]:
    words = [match for match in _ARGUMENT.finditer(arguments) if not (match[2] or b"").startswith(b"AT_")]
    texts = [_plain(match[1]) for match in words if match[1] is not None]
    numbers = [match[4].strip() for match in words if match[4] is not None]
    if call == "openat":
        path, flags = Path(texts[0].decode()), numbers[0].split(b"|")
        offsets[result] = None if b"O_APPEND" in flags else 0
        if b"O_CREAT" in flags:
            yield Operation("create", path)
        if b"O_TRUNC" in flags:
            yield Operation("truncate", path)
    elif call in {"mkdir", "mkdirat"}:
        yield Operation("folder", Path(texts[0].decode()))
    elif call in {"unlink", "unlinkat"}:
        yield Operation("unlink", Path(texts[0].decode()))
    elif call in {"rename", "renameat", "renameat2"}:
        yield Operation("rename", Path(texts[0].decode()), target=Path(texts[1].decode()))
    else:
        handle, path = next((int(match[2]), Path(_plain(match[3]).decode())) for match in words if match[3] is not None)
        if call in {"fsync", "fdatasync"}:
            yield Operation("sync", path)
        elif call == "ftruncate":
            yield Operation("truncate", path, int(numbers[0]))
        elif call == "pwrite64":
            yield Operation("write", path, int(numbers[1]), texts[0][:result])
        elif call == "write":
            at = offsets.get(handle)
            yield Operation("write", path, -1 if at is None else at, texts[0][:result])
            offsets[handle] = None if at is None else at + result
        else:
            msg = f"{call}: has no rule"
            raise ValueError(msg)


# --- the disk ------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class _File:
    synced: bytes = b""
    later: list[bytes] = field(default_factory=list)
    """The whole content after each change since the last sync."""

    @property
    def content(self) -> bytes:
        return self.later[-1] if self.later else self.synced

    def change(self, operation: Operation) -> None:
        content = self.content
        if operation.kind == "truncate":
            self.later.append(content[: operation.offset].ljust(operation.offset, b"\0"))
            return
        at = len(content) if operation.offset < 0 else operation.offset
        end = at + len(operation.content)
        self.later.append(content[:at].ljust(at, b"\0") + operation.content + content[end:])

    def sync(self) -> None:
        self.synced, self.later = self.content, []

    def torn(self, rng: random.Random, unit: int) -> bytes:
        moments = [self.synced, *self.later]
        last = rng.randrange(len(moments))
        result = bytearray(len(moments[last]))
        for start in range(0, len(result), unit):
            if possible := [piece for piece in self._pieces(moments, last, start, unit) if piece]:
                piece = rng.choice(possible)
                result[start : start + len(piece)] = piece
        return bytes(result[: len(moments[last])])

    @staticmethod
    def _pieces(moments: Sequence[bytes], last: int, start: int, unit: int) -> Iterator[bytes]:
        """Yield what a piece of the file had at each moment, but not what a lasting truncation removed later."""
        for moment, content in enumerate(moments):
            if all(len(each) > start for each in moments[moment : last + 1]):
                yield content[start : start + unit]


@dataclass(eq=False, repr=False)
class _Folder:
    entries: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)
    """The entries that are on the disk."""


class _Entry(NamedTuple):
    """A change of a folder's entries: ``old`` is removed, ``new`` gets the file."""

    folder: _Folder
    old: str
    new: str
    file: _File | _Folder | None

    def apply(self, entries: dict[str, _File | _Folder]) -> None:
        if self.new and (self.file is None or (self.old and entries.get(self.old) is not self.file)):
            return
        if self.old:
            entries.pop(self.old, None)
        if self.new and self.file is not None:
            entries[self.new] = self.file


class Disk:
    """The files below a folder, which is on the disk itself, as are the empty ``folders`` in it."""

    def __init__(self, root: Path, folders: Sequence[str]) -> None:
        self._root = root
        self._top = _Folder({name: _Folder() for name in folders})
        self._top.synced = dict(self._top.entries)
        self._pending: list[_Entry] = []
        """Changes of folders that were not synced, in order."""
        self.reports: list[str] = []

    def carry_out(self, operation: Operation) -> None:
        """Carry out one operation."""
        kind, path = operation.kind, operation.path
        if kind == "report":
            self.reports.append(str(path))
        elif kind == "sync":
            self._sync(path)
        elif kind in {"write", "truncate"}:
            file = self._at(path)
            assert isinstance(file, _File), path
            file.change(operation)
        else:
            folder = self._at(path.parent)
            assert isinstance(folder, _Folder), path
            if kind == "rename":
                assert operation.target.parent == path.parent, "a file that moves to another folder has no rule"
                self._enter(_Entry(folder, path.name, operation.target.name, folder.entries[path.name]))
            elif kind == "unlink":
                self._enter(_Entry(folder, path.name, "", None))
            elif path.name not in folder.entries:
                self._enter(_Entry(folder, "", path.name, _File() if kind == "create" else _Folder()))

    def is_synced(self, path: Path) -> bool:
        """Return whether a file has no change since its last sync."""
        file = self._at(self._root / path)
        return isinstance(file, _File) and not file.later

    def _enter(self, entry: _Entry) -> None:
        entry.apply(entry.folder.entries)
        self._pending.append(entry)

    def _sync(self, path: Path) -> None:
        synced = self._at(path)
        if isinstance(synced, _File):
            synced.sync()
            return
        for entry in self._pending:
            if entry.folder is synced:
                entry.apply(synced.synced)
        self._pending = [entry for entry in self._pending if entry.folder is not synced]

    def _at(self, path: Path) -> _File | _Folder:
        found: _File | _Folder = self._top
        for name in path.relative_to(self._root).parts:
            assert isinstance(found, _Folder)
            found = found.entries[name]
        return found

    def crash(self, rng: random.Random, target: Path) -> None:
        """Write a state that a crash may leave here to a folder."""
        manner = rng.choice(("lost", "lost", "kept", "torn", "torn", "torn"))
        unit = rng.choice((512, 4096))
        if rng.random() < 0.5:
            most = {"lost": 0, "kept": len(self._pending)}.get(manner, rng.randint(0, len(self._pending)))
            reached = self._pending[:most]
        else:
            share = {"lost": 0.0, "kept": 1.0}.get(manner, 0.5)
            reached = [entry for entry in self._pending if rng.random() < share]
        self._write(self._top, target, reached, rng, manner, unit)

    def _write(
        self, folder: _Folder, target: Path, reached: Sequence[_Entry], rng: random.Random, manner: str, unit: int
    ) -> None:
        target.mkdir(mode=0o700)
        entries = dict(folder.synced)
        for entry in reached:
            if entry.folder is folder:
                entry.apply(entries)
        for name, found in sorted(entries.items()):
            if isinstance(found, _Folder):
                self._write(found, target / name, reached, rng, manner, unit)
                continue
            how = rng.choice(("lost", "kept", "torn")) if manner == "torn" else manner
            content = {"lost": found.synced, "kept": found.content}.get(how)
            (target / name).write_bytes(found.torn(rng, unit) if content is None else content)
            (target / name).chmod(0o600)


def crash_points(
    made: Sequence[Operation], root: Path, folders: Sequence[str], seed: int, number: int
) -> Iterator[tuple[Disk, random.Random]]:
    """Yield crash points in the order of a run, spread evenly, each with the chance for its state."""
    rng = random.Random(seed)
    disk, done, whole = Disk(root, folders), 0, len(made)
    for each in range(number):
        until = (each * whole + rng.randrange(whole)) // number
        for operation in made[done:until]:
            disk.carry_out(operation)
        done = until
        yield disk, random.Random(rng.random())


def promised(disk: Disk, words: Sequence[str]) -> dict[str, int]:
    """Return the highest number that was reported with each of these words; -1 if there is none."""
    said = [report.split() for report in disk.reports]
    return {word: max((int(each[1]) for each in said if each[0] == word), default=-1) for word in words}


def require_strace() -> None:
    """Skip, or fail with ``TACET_REQUIRE_STRACE=1``, if no process can be traced here."""
    path = program("strace", "TACET_REQUIRE_STRACE")
    if subprocess.run([path, "-qq", "-o", os.devnull, "true"], capture_output=True, check=False).returncode:
        reason = "strace may trace no process on this machine"
        if os.environ.get("TACET_REQUIRE_STRACE") == "1":
            pytest.fail(f"TACET_REQUIRE_STRACE=1, but {reason}")
        pytest.skip(reason)
