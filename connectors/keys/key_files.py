"""Key files: four unrelated keys in one JSON file that only its owner can read.

A production file holds the noise key and the data key of the oldest day still needed and steps forward; a laboratory
file holds the noise key's root instead. ``export`` writes the part that one host needs: ``ingest`` gets the pseudonym
key, ``worker`` noise and audit keys, both the data key.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from connectors.data_keys import DataKeys
from connectors.key_document import NO_DATA_KEY, damaged, data_keys, day_of, part_of, read_keys, stepped
from connectors.private_file import locked, replace, write_new
from stream.errors import KeyFileError
from stream.keys import ForwardKeys, LaboratoryKeys
from stream.records import DAY, LATEST

PARTS = {"ingest": ("pseudonym", "data"), "worker": ("noise", "audit", "data")}


def create(path: Path, *, laboratory: bool, first_day: int | None = None) -> None:
    """Write a new key file with mode 0600.

    A production key begins with the UTC day ``first_day`` (days since 1970-01-01), else with the first day
    that is ever asked of it.

    Raises:
        KeyFileError: the file exists, or no key can begin with that day.
    """
    if first_day is not None and laboratory:
        msg = "--first-day: must go with a production key; a laboratory key can draw any day"
        raise KeyFileError(msg)
    if first_day is not None and not 0 <= first_day <= LATEST // DAY:
        msg = "--first-day: must be from 1970 to 2254"
        raise KeyFileError(msg)
    noise: dict[str, Any] = (
        {"root": secrets.token_hex(32)} if laboratory else {"day": first_day, "key": secrets.token_hex(32)}
    )
    document = {
        "tacet_key": 1,
        "laboratory": laboratory,
        "ledger": secrets.token_hex(8),
        "pseudonym": secrets.token_hex(32),
        "noise": noise,
        "audit": secrets.token_hex(32),
        "data": _new_data_key(first_day),
        "store": None,
    }
    write_new(path, document)


def _new_data_key(first_day: int | None = None) -> dict[str, Any]:
    return DataKeys(first_day or 0, secrets.token_bytes(32)).document()


def upgrade(path: Path, source: Path | None = None) -> None:
    """Add a data key to a file made before there was one: a new one, or that of the other file of the same key.

    Raises:
        KeyFileError: it has one, or ``source`` has none, or is of another key.
    """
    given = None if source is None else read_keys(source)
    if source is not None and given is not None:
        data_keys(source, given)
    with locked(path):
        document = read_keys(path)
        if "data" in document:
            raise KeyFileError(f"{path}: has a data key already; another one would not open what is encrypted")
        if given is not None and given.get("ledger") != document.get("ledger"):
            raise KeyFileError(f"{source}: must be of the same key as {path}, is of another ledger")
        replace(path, document | {"data": _new_data_key() if given is None else given["data"]})


def export(path: Path, part: Literal["ingest", "worker"], target: Path) -> None:
    """Write the keys that one kind of host needs to a new file."""
    document = read_keys(path)
    if part == "worker" and isinstance(_held(path, document), _Unpinned):
        msg = f"{path}: must know its first day before it is copied; make it with 'tacet key create --first-day'"
        raise KeyFileError(msg)
    dropped = set(PARTS["ingest"]) | set(PARTS["worker"])
    dropped -= set(PARTS[part])
    write_new(target, {name: value for name, value in document.items() if name not in dropped})


def store_of(path: Path) -> str | None:
    """Return the store (or ``cluster ID``) that a key serves, "" where that is not known, None before its first use.

    A key made before keys knew their store has been used once it knows a day.
    """
    document = read_keys(path)
    if "store" not in document and not isinstance(_held(path, document), _Unpinned):
        return ""
    store = document.get("store")
    if store is not None and not isinstance(store, str):
        raise damaged(path)
    return store


def bind(path: Path, store: str) -> None:
    """Let a key say for ever which store it serves; whoever calls has it ``locked``."""
    replace(path, read_keys(path) | {"store": store})


def retire(path: Path, follower: str) -> None:
    """Destroy the keys of a file; it says for ever which ledger goes on. Done again it changes nothing."""
    with locked(path):
        if not is_retired(path):
            kept = {name: read_keys(path)[name] for name in ("tacet_key", "laboratory", "ledger")}
            replace(path, kept | {"retired": follower})


def is_retired(path: Path) -> bool:
    """Whether the keys of a file were destroyed, and another ledger goes on."""
    return follower(path) is not None


def follower(path: Path) -> str | None:
    """Return the ledger that goes on since the keys of a file were destroyed; None where they were not."""
    try:
        return str(json.loads(path.read_text())["retired"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def serve(path: Path, cluster: str) -> None:
    """Let a production key serve one cluster from now on; UsageError when it serves a store or another cluster."""
    with locked(path):
        bound = store_of(path)
        if bound and bound != f"cluster {cluster}":
            raise other_ledger(path, bound, f"cluster {cluster}")
        if not bound:
            bind(path, f"cluster {cluster}")


def other_ledger(path: Path, bound: str, home: str) -> KeyFileError:
    """Return the error of a production key that belongs elsewhere: it would draw fresh noise for a second ledger."""
    mine = bound if bound.startswith("cluster ") else f"store {bound}"
    return KeyFileError(
        f"{path}: this production key belongs to {mine}, got {home}: its releases are final, so a new ledger needs a "
        "new key; 'tacet recover' says what can be done"
    )


def pseudonym_key(path: Path) -> bytes:
    """Return the key that names devices."""
    key = part_of(path, read_keys(path), "pseudonym")
    try:
        return bytes.fromhex(key)
    except (ValueError, TypeError):
        raise damaged(path) from None


def is_laboratory(path: Path) -> bool:
    """Whether the file is a laboratory's."""
    return bool(part_of(path, read_keys(path), "laboratory"))


def oldest_key_day(path: Path) -> int | None:
    """Return the oldest UTC day of which a production key still holds anything; None of a laboratory's, and before use.

    Of a file that draws no noise, such as an ingest's, it is that of its data keys.

    Raises:
        KeyFileError: the file is not there, is open to others, or is damaged.
    """
    document = read_keys(path)
    if "noise" not in document:
        return None if document["laboratory"] else data_keys(path, document).first or None
    held = _held(path, document)
    return held.first if isinstance(held, ForwardKeys) else None


def has_key_day(path: Path, key_day: int) -> bool:
    """Whether a key can still draw the noise of a UTC day."""
    held = _held(path, read_keys(path))
    return not isinstance(held, ForwardKeys) or held.first <= key_day


def laboratory_keys(path: Path) -> LaboratoryKeys:
    """Return a laboratory file's keys; KeyFileError for a production file, which replay must not use."""
    keys = FileKeys(path)
    if not isinstance(keys.held, LaboratoryKeys):
        msg = f"{path}: must be a laboratory key for this command, got a production key"
        raise KeyFileError(msg)
    return keys.held


@dataclass(slots=True, repr=False)
class _Unpinned:
    """A production file that no day has been asked of yet."""

    key: bytes
    ledger: str
    audit: bytes


class FileKeys:
    """The worker's keys, backed by their file; a production file only ever moves forward."""

    def __init__(self, path: Path) -> None:
        self.path = path
        document = read_keys(path)
        self.held = _held(path, document)
        self.data = data_keys(path, document) if "data" in document else None
        """The data keys; None of a file made before there were any."""

    @property
    def laboratory(self) -> bool:
        """Whether everything made with this key is marked as made in a laboratory."""
        return isinstance(self.held, LaboratoryKeys)

    @property
    def ledger(self) -> str:
        """Public id of the ledger this key belongs to."""
        return self.held.ledger

    @property
    def audit(self) -> bytes:
        """Key that signs the audit chain."""
        return self.held.audit

    def noise_key(self, key_day: int) -> bytes:
        """Return a day's noise key; the first day ever asked for becomes the file's oldest."""
        if isinstance(self.held, _Unpinned):
            self.held = self._pin(key_day)
        return self.held.noise_key(key_day)

    @property
    def vault(self) -> DataKeys:
        """The data keys; KeyFileError where the file was made before there were any."""
        if self.data is None:
            raise KeyFileError(f"{self.path}: {NO_DATA_KEY}")
        return self.data

    def forget_before(self, key_day: int) -> None:
        """Destroy the production keys of all days before ``key_day``."""
        if isinstance(self.held, ForwardKeys) and key_day > self.held.first:
            self.held = self.held.from_key_day(key_day)
            if self.data is not None:
                self.data.forget_before(key_day)
            with locked(self.path):
                on_disk = _held(self.path, read_keys(self.path))
                if isinstance(on_disk, ForwardKeys) and on_disk.first < key_day:
                    self._write(on_disk.from_key_day(key_day), data_from=key_day)

    def _pin(self, key_day: int) -> LaboratoryKeys | ForwardKeys:
        """Make ``key_day`` the file's oldest, unless another process has made one of its own meanwhile."""
        with locked(self.path):
            on_disk = _held(self.path, read_keys(self.path))
            if isinstance(on_disk, _Unpinned):
                on_disk = ForwardKeys(key_day, on_disk.key, on_disk.ledger, on_disk.audit)
                self._write(on_disk)
        return on_disk

    def _write(self, keys: ForwardKeys, data_from: int = 0) -> None:
        document = read_keys(self.path)
        document["noise"] = {"day": keys.first, "key": keys.key.hex()}
        replace(self.path, stepped(self.path, document, data_from))


class IngestKeys:
    """What an ingest needs: the key that names devices, and the data keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pseudonym = pseudonym_key(path)
        document = read_keys(path)
        self.ledger = str(part_of(path, document, "ledger"))
        """Public id of the ledger for which it sends."""
        self.vault = data_keys(path, document)
        self._steps = "noise" not in document and not document["laboratory"]
        """Whether the file is the ingest's own; one that a worker uses as well is stepped forward by that."""

    def forget_before(self, key_day: int) -> None:
        """Destroy the data keys of all days before ``key_day`` in an ingest's own production file."""
        if self._steps and key_day > self.vault.first:
            with locked(self.path):
                replace(self.path, stepped(self.path, read_keys(self.path), key_day))
            self.vault.forget_before(key_day)


def _held(path: Path, document: dict[str, Any]) -> LaboratoryKeys | ForwardKeys | _Unpinned:
    """Return the worker's keys of a file; KeyFileError when a part is missing or no key."""
    audit, noise = part_of(path, document, "audit"), part_of(path, document, "noise")
    try:
        secret, ledger = bytes.fromhex(audit), str(document["ledger"])
        if document["laboratory"]:
            return LaboratoryKeys(bytes.fromhex(noise["root"]), ledger, secret)
        key, key_day = bytes.fromhex(noise["key"]), day_of(noise["day"])
    except (KeyError, ValueError, TypeError):
        raise damaged(path) from None
    return _Unpinned(key, ledger, secret) if key_day is None else ForwardKeys(key_day, key, ledger, secret)
