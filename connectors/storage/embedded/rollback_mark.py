"""The mark beside the key: how far each hash chain has been published.

The mark reveals a store that was rolled back or replaced. It only moves forward, and it survives the store. A
production key is bound to one store from the moment the store is first opened, and its key file records that too: a
copy of the key works with no other store, and a missing mark is detected. A laboratory key may serve many stores, also
at the same time.

A production key also serves one process at a time. A restored copy of a store has the same id, so only a lock beside
the mark distinguishes a second run from the first (``one_run``). The mark is read again before each commit: a run stops
if another process has moved it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from connectors.keys import key_files
from connectors.secrets.private_files import itself, locked, replace_file
from stream.errors import AuditError, FinalityError, UsageError
from stream.records import JsonObject
from stream.release.stage import MECHANISM_VERSION
from stream.runners.embedded import Chains
from stream.schemas import rfc3339

VERSION = 1
"""Version of the mark's form."""


class DamagedMarkError(UsageError):
    """A mark exists and cannot be read, so it proves no more than a missing one."""


class RunLock:
    """``<key file>.mark.lock``: locked by the one process that releases under a production key."""

    def __init__(self, key_file: Path, folder: Path) -> None:
        """Acquire the lock for a store's folder; UsageError if another process has it."""
        mark = mark_path(key_file)
        self._path = mark.with_name(mark.name + ".lock")
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(os.pread(self._handle, 4096, 0))
            os.close(self._handle)
            msg = (
                f"{key_file}: must be used by one run at a time, but {holder}; two runs would release the same windows "
                "with different noise; stop the other run first"
            )
            raise UsageError(msg) from None
        self._write({"pid": os.getpid(), "store": str(folder.absolute()), "since": rfc3339(time.time_ns() // 1000)})

    def is_intact(self) -> bool:
        """Return whether the locked file is still at the path where other runs look for it."""
        try:
            return os.path.samestat(os.fstat(self._handle), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock for the next run."""
        with suppress(OSError):  # an owner that is still named is named to nobody: the file is not locked any more
            self._write({})
        os.close(self._handle)

    def _write(self, holder: Mapping[str, object]) -> None:
        try:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, json.dumps(holder).encode(), 0)
        except OSError as error:
            error.filename = str(self._path)
            raise


def _holder(content: bytes) -> str:
    """Return a description of the lock's owner, as far as its file names it."""
    try:
        holder = json.loads(content)
        return f"process {holder['pid']:d} has used it for store {holder['store']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):  # the owner has only just acquired the lock
        return "another process uses it"


@contextmanager
def one_run(key_file: Path, folder: Path, *, laboratory: bool) -> Iterator[RunLock | None]:
    """Prevent other processes from releasing under a production key meanwhile; UsageError if one does.

    The lock ends with the process, in whatever way the process ends. A laboratory key has no lock.
    """
    if laboratory:
        yield None
        return
    lock = RunLock(key_file, folder)
    try:
        yield lock
    finally:
        lock.release()


class MarkFile:
    """``<key file>.mark``."""

    def __init__(self, key_file: Path, store: str, *, laboratory: bool, lock: RunLock | None = None) -> None:
        """Open the mark of a store; ``lock`` prevents other processes from moving it."""
        self._path = mark_path(key_file)
        self._lock = lock
        self._store = store
        with locked(self._path):
            marks = _load(self._path)
            if not laboratory:
                _refuse_other(key_file, marks, store)
            self._made_by = read_versions(key_file).get(store)
            if store not in marks:
                self._write(marks | {store: {}})
            if not laboratory and key_files.store_of(key_file) != store:
                key_files.bind(key_file, store)
        self._marks = dict(marks.get(store, {}))

    def _write(self, marks: dict[str, Chains]) -> None:
        versions = _versions(self._path)
        if self._made_by is not None:
            versions[self._store] = self._made_by
        _replace(self._path, marks, versions)

    def read(self) -> Chains:
        """Return this store's mark."""
        return dict(self._marks)

    def mechanism_version(self) -> str | None:
        """Return the mechanism version that published last; None before the first publication."""
        return self._made_by

    def check_unmoved(self) -> None:
        """Raise FinalityError unless the mark is as this process left it and its lock is still effective."""
        self._refuse_moved(_load(self._path))

    def _refuse_moved(self, marks: Mapping[str, Chains]) -> None:
        if self._lock is not None and not self._lock.is_intact():
            raise _stopped(self._path.with_name(self._path.name + ".lock"), "was deleted or replaced")
        if marks.get(self._store) != self._marks:
            raise _stopped(self._path, "was changed" if self._store in marks else "was deleted")

    def advance(self, chains: Chains) -> None:
        """Move forward the sites whose hash chains have grown; the file is written only if one has.

        FinalityError if another process has moved the mark meanwhile.
        """
        grown = {site: mark for site, mark in chains.items() if mark[0] > self._marks.get(site, (0, ""))[0]}
        if grown:
            with locked(self._path):
                marks = _load(self._path)
                self._refuse_moved(marks)
                self._marks |= grown
                self._made_by = MECHANISM_VERSION
                self._write(marks | {self._store: self._marks})


def _stopped(path: Path, how: str) -> FinalityError:
    return FinalityError(
        f"{path}: {how} while a run was using the key; nothing more is released, because another process may have "
        "released under the same key; stop all others that use it; 'tacet recover' lists the remedies"
    )


def _refuse_other(key_file: Path, marks: Iterable[str], store: str) -> None:
    """Raise UsageError if a production key serves another store, or if it has lost its mark of this one."""
    bound = key_files.store_of(key_file)
    others = sorted({*marks, *([bound] if bound else [])} - {store})
    if others:
        raise key_files.other_ledger(key_file, others[0], f"store {store}")
    if bound is not None and store not in marks:
        msg = (
            f"{mark_path(key_file)}: must exist, because this production key has been used: without it, it is unknown "
            "whether the store was set back; 'tacet recover' lists the remedies"
        )
        raise UsageError(msg)


def mark_path(key_file: Path) -> Path:
    """Return the path of a key's mark: beside the key file itself, whatever link names that file."""
    file = itself(key_file)
    return file.with_name(file.name + ".mark")


def read_marks(key_file: Path) -> dict[str, Chains]:
    """Return the marks of a key, by store."""
    return _load(mark_path(key_file))


def read_mark(key_file: Path, store: str) -> Chains:
    """Return a store's mark; AuditError if the key has none for it."""
    marks = read_marks(key_file)
    if store not in marks:
        msg = f"{mark_path(key_file)}: must list store {store}, to which this key then belongs"
        raise AuditError(msg)
    return marks[store]


def read_versions(key_file: Path) -> dict[str, str]:
    """Return the mechanism version that published last, by store; stores without a publication are left out."""
    return _versions(mark_path(key_file))


def bind_again(key_file: Path, store: str, chains: Mapping[str, tuple[int, str]], made_by: str) -> None:
    """Write the mark of a production key that has lost it; UsageError if it has a mark, or serves another store.

    ``made_by`` is the mechanism version that published last.
    """
    with locked(key_file):
        bound = key_files.store_of(key_file)
        try:
            marks = read_marks(key_file)
        except DamagedMarkError:
            marks = {}
        if marks or bound != store:
            msg = f"{key_file}: must be the key of store {store}, whose mark is gone; nothing is written"
            raise UsageError(msg)
        _replace(mark_path(key_file), {store: dict(chains)}, {store: made_by})
        key_files.bind(key_file, store)


def _replace(path: Path, marks: Mapping[str, Chains], versions: Mapping[str, str]) -> None:
    replace_file(path, {"tacet_mark": VERSION, "stores": marks, "mechanisms": versions})


def _load(path: Path) -> dict[str, Chains]:
    return _document(path)[0]


def _versions(path: Path) -> dict[str, str]:
    return _document(path)[1]


def _document(path: Path) -> tuple[dict[str, Chains], dict[str, str]]:
    """Return each store's mark, and the mechanism version that moved it last; none before it was first moved.

    Raises:
        DamagedMarkError: the file is not a mark.
        UsageError: a later version wrote it.
    """
    if not path.exists():
        return {}, {}
    try:
        document = json.loads(path.read_text())
        version = int(document["tacet_mark"])
        parsed = _parse(document) if version == VERSION else ({}, {})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        msg = f"{path}: must be the mark that 'tacet run' wrote, but it is damaged; 'tacet recover' lists the remedies"
        raise DamagedMarkError(msg) from None
    if version != VERSION:
        raise UsageError(f"{path}: must be a mark of version {VERSION}, got {version}; use the version that wrote it")
    return parsed


def _parse(document: JsonObject) -> tuple[dict[str, Chains], dict[str, str]]:
    marks = {
        store: {site: (int(entries), str(head)) for site, (entries, head) in sites.items()}
        for store, sites in document["stores"].items()
    }
    return marks, {store: str(made_by) for store, made_by in document["mechanisms"].items()}
