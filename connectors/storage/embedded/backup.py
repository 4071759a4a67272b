"""Back up a running store; restore it where nothing newer was released.

A backup contains the store's own files and nothing else. It contains no key, and not the mark, which lies beside the
key and has to survive the store. The mark that exists when a backup is restored decides whether it may be restored: it
knows what was released since. No file is ever overwritten.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import Any

import orjson

from connectors.secrets.private_files import replace_file, sync_folder
from connectors.storage.audit_chains import Heads, audit_of, heads_of, parse_entries
from connectors.storage.embedded.reader import read_identity, read_state_and_entries, require_store
from connectors.storage.embedded.rollback_mark import read_mark
from connectors.storage.embedded.sqlite_file import naming_errors, reading
from stream.accounting.audit import ChainLink
from stream.errors import AuditError, DataError, UsageError

CONTENTS = "backup.json"
"""The list of a backup's files, with a digest of each."""
_STORE, _PARTS = "store.sqlite", ("private/*.sqlite", "private/_sites.json")
TRIES = 20
"""How often the copy of a store is repeated while windows close during the copy. After that the backup fails."""


def back_up(folder: Path, target: Path) -> Heads:
    """Copy a store, which may be running, to a new folder; return the last link of each audit chain in the copy.

    The store's file is copied first, as of one moment, then the outboxes. No window closes in between, so the outboxes
    contain nothing that the store's ledger does not charge.

    Raises:
        UsageError: the target exists, there is no store, or windows close faster than they can be copied.
        AuditError: the ledger or the audit log is not whole; such a backup would be useless.
    """
    require_store(folder)
    with becoming(target) as copy:
        for _ in range(TRIES):
            if _copied(folder, copy):
                break
        else:
            msg = f"{folder}: changes faster than it can be copied; stop the run first"
            raise UsageError(msg)
        heads = _heads(copy)
        contents = {name: _digest(copy / name) for name in sorted(_names(copy))}
        sites = {site: link._asdict() for site, link in sorted(heads.items())}
        replace_file(
            copy / CONTENTS, {"tacet_backup": 1, "store": read_identity(copy), "sites": sites, "files": contents}
        )
    return heads


def restore(backup: Path, folder: Path, key_file: Path, *, accept_loss: bool) -> dict[str, int]:
    """Restore a backup to a folder that does not exist; return the number of newer entries that are lost, by site.

    Args:
        backup: the folder that ``back_up`` wrote.
        folder: the store to create.
        key_file: the key whose mark records what was released.
        accept_loss: restore although something newer was released. A run then starts only if the same observations
            produce the same entries again.

    Raises:
        UsageError: the folder exists, the backup is not one, or (unless accepted) something newer was released.
        AuditError: the backup was altered, or comes from another store than the one that released.
    """
    files = _contents(backup)
    for name in files:
        if name.endswith(".sqlite"):
            _refuse_damaged(backup / name)
    lost = _missing_entries(backup, key_file)
    if lost and not accept_loss:
        site, entries = next(iter(lost.items()))
        msg = (
            f"{backup}: is too old: {entries} newer ledger entries of site {site} were published; restore a newer "
            "backup, or give --accept-loss, after which 'tacet recover' lists the remedies"
        )
        raise UsageError(msg)
    with becoming(folder) as copy:
        for name in files:
            (copy / name).parent.mkdir(mode=0o700, exist_ok=True)
            _copy_private(backup / name, copy / name)
    return lost


@contextmanager
def becoming(target: Path) -> Iterator[Path]:
    """Yield a private folder that is renamed to the target on success and removed on failure."""
    if target.exists():
        msg = f"{target}: must not exist yet; no store or backup is overwritten"
        raise UsageError(msg)
    if not target.absolute().parent.is_dir():
        msg = f"{target}: must be in a folder that exists"
        raise UsageError(msg)
    copy = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
    try:
        yield copy
        for each in (copy, copy / "private"):
            sync_folder(each)
        copy.rename(target)
        sync_folder(target.absolute().parent)
    except BaseException:
        shutil.rmtree(copy, ignore_errors=True)
        raise


def _copied(folder: Path, copy: Path) -> bool:
    """Copy every file of a store; return False if a window closed during the copy."""
    (copy / "private").mkdir(mode=0o700, exist_ok=True)
    _copy_database(folder / _STORE, copy / _STORE)
    for name in _names(folder) - {_STORE}:
        _COPY[Path(name).suffix](folder / name, copy / name)
    return _written(folder / _STORE) == _written(copy / _STORE)


def _names(folder: Path) -> set[str]:
    """Return the names of the store's own files; other files in the folder are not copied."""
    found = {path.relative_to(folder).as_posix() for part in _PARTS for path in folder.glob(part)}
    return found | {_STORE}


def _written(path: Path) -> int:
    """Return the number of the last record that a store has committed."""
    with reading(path) as store:
        row = store.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outputs'").fetchone()
    return 0 if row is None else int(row[0])


def _copy_database(source: Path, target: Path) -> None:
    """Copy a database and the contents of its write-ahead log, as of one moment, to a single file."""
    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o600))
    with naming_errors(target), reading(source) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)
        written.execute("PRAGMA journal_mode = DELETE")


def _copy_private(source: Path, target: Path) -> None:
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as written, source.open("rb") as read:
        shutil.copyfileobj(read, written)
        written.flush()
        os.fsync(written.fileno())


_COPY: dict[str, Callable[[Path, Path], None]] = {".sqlite": _copy_database, ".json": _copy_private}


def _heads(folder: Path) -> Heads:
    """Verify a store's audit chains against its snapshot; return the last link of each."""
    state, entries = read_state_and_entries(folder)
    return audit_of([heads_of(state)]).chains(parse_entries(entries))


def _missing_entries(backup: Path, key_file: Path) -> dict[str, int]:
    """Return how many entries the mark knows beyond a backup, by site; AuditError if the two contradict each other."""
    heads = _heads(backup)
    mark = {site: ChainLink(*link) for site, link in read_mark(key_file, read_identity(backup)).items()}
    beyond = {site: link.sequence - heads.get(site, ChainLink()).sequence for site, link in mark.items()}
    within = {site: link for site, link in mark.items() if beyond[site] <= 0}
    audit_of([], within).chains(parse_entries(read_state_and_entries(backup)[1]))
    return {site: entries for site, entries in sorted(beyond.items()) if entries > 0}


def _contents(backup: Path) -> list[str]:
    """Return the files of a backup; AuditError if one of them has changed since it was written."""
    try:
        document: Any = orjson.loads((backup / CONTENTS).read_bytes())
        files = {str(name): str(digest) for name, digest in document["files"].items()}
    except OSError as error:
        msg = (
            f"{backup / CONTENTS}: cannot be read ({error.strerror}); a backup must be a folder that 'tacet store "
            "backup' wrote"
        )
        raise UsageError(msg) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        msg = f"{backup / CONTENTS}: must be a file that 'tacet store backup' wrote"
        raise DataError(msg) from None
    if set(files) != _names(backup):
        msg = f"{backup}: must contain the files that {CONTENTS} names, and no others"
        raise AuditError(msg)
    for name, digest in files.items():
        if (backup / name).is_symlink() or not (backup / name).is_file() or _digest(backup / name) != digest:
            msg = f"{backup / name}: must be unchanged since the backup was made"
            raise AuditError(msg)
    return sorted(files)


def _refuse_damaged(path: Path) -> None:
    """Raise AuditError unless SQLite finds a file intact.

    Digests alone do not suffice: whoever writes a backup writes its digests too.
    """
    with reading(path) as database:
        if database.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
            msg = f"{path}: must be a complete file of a store"
            raise AuditError(msg)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
