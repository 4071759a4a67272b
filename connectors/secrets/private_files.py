"""Private files and folders: key files, marks, and secrets of one line."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

from stream.errors import KeyFileError, UsageError
from stream.records import JsonObject


def itself(path: Path) -> Path:
    """Return the target of a link: replacing the link itself would leave the target unchanged."""
    return path.resolve() if path.is_symlink() else path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from changing key and mark files in a file's folder meanwhile."""
    handle = os.open(itself(path).parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def read_private(path: Path, holds: str) -> bytes:
    """Return the content of a file of secrets; KeyFileError if it cannot be read, or group or others can read it."""
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except OSError as error:
        msg = f"{path}: must be a readable file of {holds}: {error.strerror}"
        raise KeyFileError(msg) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        msg = f"{path}: must be readable by its owner only (chmod 600), has mode {stat.S_IMODE(mode):04o}"
        raise KeyFileError(msg)
    return content


def replace_file(path: Path, document: JsonObject) -> None:
    """Replace a private JSON file atomically: after a crash it is the old one or the new one, never a part."""
    path = itself(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        # A failed write names no file, and a folder that cannot be written to names the temporary one.
        error.filename = str(path)
        del error.filename2  # None would be shown
        raise


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_new(path: Path, document: JsonObject) -> None:
    """Write a new private JSON file; KeyFileError if it exists, or cannot be written."""
    write_new_bytes(path, json.dumps(document).encode() + b"\n")


def write_new_bytes(path: Path, content: bytes) -> None:
    """Write a new private file durably; KeyFileError if it exists, or cannot be written."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        msg = f"{path}: must not exist yet; a key file is never overwritten"
        raise KeyFileError(msg) from None
    except OSError as error:
        msg = f"{path}: cannot be written ({error.strerror})"
        raise KeyFileError(msg) from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def read_secret(path: Path) -> str:
    """Return the first line of a private file; KeyFileError if others can read it, or it is empty."""
    return read_secrets(path, 1)[0]


def read_secrets(path: Path, most: int) -> tuple[str, ...]:
    """Return the first lines of a private file up to the first empty one; KeyFileError if there is none."""
    refuse_open(path)
    try:
        lines = path.read_text(encoding="ascii").split("\n")
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})"
        raise KeyFileError(msg) from None
    except UnicodeDecodeError:
        lines = []
    secrets = tuple(takewhile(bool, (line.strip() for line in lines[:most])))
    if not secrets:
        msg = f"{path}: must contain one line of text"
        raise KeyFileError(msg)
    return secrets


def refuse_open(path: Path) -> None:
    """Raise KeyFileError for a file that does not exist, or that others than its owner can read."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})"
        raise KeyFileError(msg) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        msg = f"{path}: must be readable by its owner only (mode 0600)"
        raise KeyFileError(msg)


def private_folder(folder: Path) -> Path:
    """Create a folder durably that only its owner can enter; UsageError when others can."""
    created = [*takewhile(lambda each: not each.exists(), (folder, *folder.parents))]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in created:
        sync_folder(each.parent)
    check_private_folder(folder)
    return folder


def check_private_folder(folder: Path) -> None:
    """Raise UsageError if others can enter a folder."""
    if folder.exists() and folder.stat().st_mode & 0o077:
        msg = f"{folder}: must be a folder that only its owner can enter (mode 0700)"
        raise UsageError(msg)
