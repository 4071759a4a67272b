"""A key file as a document: read, its parts checked, none of them ever shown."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from connectors.data_keys import DataKeys
from stream.errors import KeyFileError
from stream.records import DAY, LATEST

NO_DATA_KEY = "must hold the data key, which files made before have not; 'tacet key upgrade' adds it"


def read_keys(path: Path) -> dict[str, Any]:
    """Return what a key file holds; KeyFileError where it is none, or others can read it."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        document = json.loads(path.read_text())
    except OSError as error:
        msg = f"{path}: key file cannot be read ({error.strerror})"
        raise KeyFileError(msg) from None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("tacet_key") != 1:
        msg = f"{path}: must be a key file made by 'tacet key create'"
        raise KeyFileError(msg)
    if mode & 0o077:
        msg = f"{path}: must be readable by its owner only (mode 0600), got {mode:04o}"
        raise KeyFileError(msg)
    if "retired" in document:
        msg = f"{path}: was retired, its keys are destroyed; ledger {document['retired']} goes on with what it spent"
        raise KeyFileError(msg)
    return document


def part_of(path: Path, document: dict[str, Any], name: str) -> Any:
    """Return one of a file's keys; KeyFileError where it is not there."""
    if name not in document:
        msg = f"{path}: must hold the {name} key, which this command needs"
        raise KeyFileError(msg)
    return document[name]


def damaged(path: Path) -> KeyFileError:
    """Return the error of a file of which a part is no key."""
    return KeyFileError(f"{path}: must be a key file made by 'tacet key create', but a part of it is damaged")


def day_of(value: Any) -> int | None:
    """Return the oldest day of a key; ValueError where it is none."""
    if value is not None and not (type(value) is int and 0 <= value <= LATEST // DAY):
        msg = "must be days since 1970-01-01, or null"
        raise ValueError(msg)
    return value


def data_keys(path: Path, document: dict[str, Any]) -> DataKeys:
    """Return the data keys of a file; KeyFileError where it has none, or they are damaged."""
    if "data" not in document:
        raise KeyFileError(f"{path}: {NO_DATA_KEY}")
    try:
        return DataKeys.of_document(document["data"])
    except (KeyError, ValueError, TypeError):
        raise damaged(path) from None


def stepped(path: Path, document: dict[str, Any], key_day: int) -> dict[str, Any]:
    """Return a file's keys without the data keys of days before ``key_day``."""
    if "data" not in document:
        return document
    data = data_keys(path, document)
    data.forget_before(key_day)
    return document | {"data": data.document()}
