"""Key files: five unrelated keys in one JSON file that only its owner can read.

A production file holds the noise key and the data key of the oldest day still needed and steps forward; a laboratory
file holds the noise key's root instead. ``export`` writes the part that one host needs: ``ingest`` gets the pseudonym
key and the opt-out key, ``worker`` noise and audit keys, both the data key.
"""

from __future__ import annotations

import json
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from connectors.keys.data_keys import DataKeys
from connectors.secrets.private_files import locked, replace_file, write_new
from stream.errors import KeyFileError
from stream.keys import ForwardKeys, LaboratoryKeys
from stream.records import DAY, LATEST, JsonObject

# The content of a key file.

Secret = Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")]
"""32 octets in hexadecimal digits."""
Day = Annotated[int, Field(ge=0, le=LATEST // DAY)]
"""A UTC day: days since 1970-01-01."""


class _Stored(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Show nothing: every part may be secret."""
        return []

    def __str__(self) -> str:
        return repr(self)


class RootKey(_Stored):
    """A laboratory's noise key, from which every day's key follows."""

    root: Secret


class NoiseKey(_Stored):
    """The noise key of a day, and of all later ones."""

    day: Day | None
    """None until the key's first use."""
    key: Secret


class DataKey(_Stored):
    """The data key of a day, and of all later ones."""

    day: Day
    key: Secret


class KeyFile(_Stored):
    """The content of a key file; a key that its host does not need is absent. Fields are written in this order."""

    tacet_key: Literal[1] = 1
    laboratory: bool
    ledger: Annotated[str, Field(min_length=1)]
    pseudonym: Secret | None = None
    opt_out: Secret | None = None
    noise: RootKey | NoiseKey | None = None
    audit: Secret | None = None
    data: DataKey | None = None
    store: Annotated[str, Field(min_length=1)] | None
    """The store or ``cluster ID`` that the key serves; None before its first use."""

    def document(self) -> JsonObject:
        """Return the JSON form."""
        return self.model_dump(exclude_unset=True)


def read_keys(path: Path) -> KeyFile:
    """Return the content of a key file; KeyFileError if it is not one, is damaged, or others can read it."""
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
        msg = (
            f"{path}: was retired and its keys are destroyed; use the key of ledger {document['retired']}, which "
            "continues its budgets"
        )
        raise KeyFileError(msg)
    try:
        return KeyFile.model_validate(document)
    except ValidationError:
        raise _damaged(path) from None


def _damaged(path: Path) -> KeyFileError:
    return KeyFileError(f"{path}: must be a key file made by 'tacet key create', but a part of it is damaged")


def _missing(path: Path, name: str) -> KeyFileError:
    return KeyFileError(f"{path}: must contain the {name} key, which this command needs")


def _data_keys(path: Path, keys: KeyFile) -> DataKeys:
    """Return the data keys of a file.

    Raises:
        KeyFileError: it has none.
        UsageError: the cryptography library has no AES-GCM-SIV.
    """
    if keys.data is None:
        raise _missing(path, "data")
    return DataKeys(keys.data.day, bytes.fromhex(keys.data.key))


def _stepped(path: Path, keys: KeyFile, key_day: int) -> KeyFile:
    """Return a file's keys without the data keys of days before ``key_day``."""
    vault = _data_keys(path, keys)
    vault.forget_before(key_day)
    return keys.model_copy(update={"data": DataKey(day=vault.first, key=vault.key_of(vault.first).hex())})


# Making, copying, binding and retiring key files.

PARTS = {"ingest": ("pseudonym", "opt_out", "data"), "worker": ("noise", "audit", "data")}


def create(path: Path, *, laboratory: bool, first_day: int | None = None, opt_out: bytes | None = None) -> None:
    """Write a new key file with mode 0600.

    A production key begins with the UTC day ``first_day`` (days since 1970-01-01), else with the first day for which it
    is used. ``opt_out`` is the opt-out key of an earlier file, whose list then stays valid; None: a new one.

    Raises:
        KeyFileError: the file exists, or no key can begin with that day.
    """
    if first_day is not None and laboratory:
        msg = "--first-day: must be used with a production key; a laboratory key can draw any day"
        raise KeyFileError(msg)
    if first_day is not None and not 0 <= first_day <= LATEST // DAY:
        msg = "--first-day: must be from 1970 to 2254"
        raise KeyFileError(msg)
    DataKeys(0, bytes(32))  # a library without the cipher is refused before anything is written
    keys = KeyFile(
        tacet_key=1,
        laboratory=laboratory,
        ledger=secrets.token_hex(8),
        pseudonym=secrets.token_hex(32),
        opt_out=secrets.token_hex(32) if opt_out is None else opt_out.hex(),
        noise=RootKey(root=secrets.token_hex(32)) if laboratory else NoiseKey(day=first_day, key=secrets.token_hex(32)),
        audit=secrets.token_hex(32),
        data=DataKey(day=first_day or 0, key=secrets.token_hex(32)),
        store=None,
    )
    write_new(path, keys.document())


def export(path: Path, part: Literal["ingest", "worker"], target: Path) -> None:
    """Write the keys that one kind of host needs to a new file."""
    keys = read_keys(path)
    if part == "worker" and isinstance(_worker_keys(path, keys), _Unpinned):
        msg = (
            f"{path}: must have a first day before a part of it is exported; create it with 'tacet key create "
            "--first-day'"
        )
        raise KeyFileError(msg)
    dropped = set(PARTS["ingest"]) | set(PARTS["worker"])
    dropped -= set(PARTS[part])
    write_new(target, keys.model_dump(exclude=dropped, exclude_unset=True))


def store_of(path: Path) -> str | None:
    """Return the store (or ``cluster ID``) that a key serves, None before its first use."""
    return read_keys(path).store


def bind(path: Path, store: str) -> None:
    """Record permanently which store a key serves; the caller must have called ``locked``."""
    replace_file(path, read_keys(path).model_copy(update={"store": store}).document())


def retire(path: Path, follower: str) -> None:
    """Destroy the keys of a file and record permanently which ledger continues. A repeated call changes nothing."""
    with locked(path):
        if not is_retired(path):
            identity = read_keys(path).model_dump(include={"tacet_key", "laboratory", "ledger"})
            replace_file(path, identity | {"retired": follower})


def is_retired(path: Path) -> bool:
    """Return whether the keys of a file were destroyed and another ledger continues."""
    return follower(path) is not None


def follower(path: Path) -> str | None:
    """Return the ledger that continues since the keys of a file were destroyed; None if they were not."""
    try:
        return str(json.loads(path.read_text())["retired"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def serve(path: Path, cluster: str) -> None:
    """Bind a production key to a cluster; UsageError if it serves a store or another cluster."""
    with locked(path):
        bound = store_of(path)
        if bound and bound != f"cluster {cluster}":
            raise other_ledger(path, bound, f"cluster {cluster}")
        if not bound:
            bind(path, f"cluster {cluster}")


def other_ledger(path: Path, bound: str, home: str) -> KeyFileError:
    """Return the error for a production key that is bound elsewhere: it would draw fresh noise for a second ledger."""
    mine = bound if bound.startswith("cluster ") else f"store {bound}"
    return KeyFileError(
        f"{path}: this production key belongs to {mine}, got {home}: its releases are final, so a new ledger needs a "
        "new key; 'tacet recover' lists the remedies"
    )


# Reading keys.


def pseudonym_key(path: Path) -> bytes:
    """Return the key for the pseudonyms of devices."""
    return _needed(path, read_keys(path).pseudonym, "pseudonym")


def opt_out_key(path: Path) -> bytes:
    """Return the key for the digests of opt-outs."""
    return _needed(path, read_keys(path).opt_out, "opt_out")


def _needed(path: Path, key: str | None, name: str) -> bytes:
    if key is None:
        raise _missing(path, name)
    return bytes.fromhex(key)


def is_laboratory(path: Path) -> bool:
    """Return whether the file is a laboratory's."""
    return read_keys(path).laboratory


def oldest_key_day(path: Path) -> int | None:
    """Return the oldest UTC day of a production key; None for a laboratory's, and before the first use.

    For a file without a noise key, such as an ingest's, it is the oldest day of its data keys.

    Raises:
        KeyFileError: the file does not exist, is accessible to others, or is damaged.
    """
    keys = read_keys(path)
    if keys.noise is None:
        return None if keys.laboratory else _data_keys(path, keys).first or None
    worker = _worker_keys(path, keys)
    return worker.first if isinstance(worker, ForwardKeys) else None


def has_key_day(path: Path, key_day: int) -> bool:
    """Return whether a key can still draw the noise of a UTC day."""
    keys = _worker_keys(path, read_keys(path))
    return not isinstance(keys, ForwardKeys) or keys.first <= key_day


def laboratory_keys(path: Path) -> LaboratoryKeys:
    """Return a laboratory file's keys; KeyFileError for a production file, which replay must not use."""
    keys = FileKeys(path)
    if not isinstance(keys.keys, LaboratoryKeys):
        msg = f"{path}: must be a laboratory key for this command, got a production key"
        raise KeyFileError(msg)
    return keys.keys


@dataclass(frozen=True, slots=True, repr=False)
class _Unpinned:
    """A production file that was not used for any day yet."""

    key: bytes
    ledger: str
    audit: bytes


class FileKeys:
    """The worker's keys, backed by their file; a production file only ever moves forward."""

    def __init__(self, path: Path) -> None:
        self.path = path
        stored = read_keys(path)
        self.keys = _worker_keys(path, stored)
        self.vault = _data_keys(path, stored)
        """The data keys."""

    @property
    def laboratory(self) -> bool:
        """Whether all output of this key is marked as made in a laboratory."""
        return isinstance(self.keys, LaboratoryKeys)

    @property
    def ledger(self) -> str:
        """Public id of the ledger of this key."""
        return self.keys.ledger

    @property
    def audit(self) -> bytes:
        """The key that signs the audit chain."""
        return self.keys.audit

    def noise_key(self, key_day: int) -> bytes:
        """Return a day's noise key; the first requested day becomes the file's oldest."""
        if isinstance(self.keys, _Unpinned):
            self.keys = self._pin(key_day)
        return self.keys.noise_key(key_day)

    def forget_before(self, key_day: int) -> None:
        """Destroy the production keys of all days before ``key_day``."""
        if isinstance(self.keys, ForwardKeys) and key_day > self.keys.first:
            with locked(self.path):
                on_disk = _worker_keys(self.path, read_keys(self.path))
                if isinstance(on_disk, ForwardKeys) and on_disk.first < key_day:
                    self._write(on_disk.from_key_day(key_day), data_from=key_day)
            self.keys = self.keys.from_key_day(key_day)
            self.vault.forget_before(key_day)

    def _pin(self, key_day: int) -> LaboratoryKeys | ForwardKeys:
        """Make ``key_day`` the file's oldest day, unless another process has already set one."""
        with locked(self.path):
            on_disk = _worker_keys(self.path, read_keys(self.path))
            if isinstance(on_disk, _Unpinned):
                on_disk = ForwardKeys(key_day, on_disk.key, on_disk.ledger, on_disk.audit)
                self._write(on_disk)
        return on_disk

    def _write(self, keys: ForwardKeys, data_from: int = 0) -> None:
        noise = NoiseKey(day=keys.first, key=keys.key.hex())
        stored = read_keys(self.path).model_copy(update={"noise": noise})
        replace_file(self.path, _stepped(self.path, stored, data_from).document())


class IngestKeys:
    """The keys of an ingest: the pseudonym key and the data keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        keys = read_keys(path)
        self.pseudonym = _needed(path, keys.pseudonym, "pseudonym")
        self.ledger = keys.ledger
        """Public id of the ledger for which it sends."""
        self.vault = _data_keys(path, keys)
        self._steps = keys.noise is None and not keys.laboratory
        """Whether the file is the ingest's own.

        A file that is shared with a worker is stepped forward by the worker.
        """

    def forget_before(self, key_day: int) -> None:
        """Destroy the data keys of all days before ``key_day`` in an ingest's own production file."""
        if self._steps and key_day > self.vault.first:
            with locked(self.path):
                replace_file(self.path, _stepped(self.path, read_keys(self.path), key_day).document())
            self.vault.forget_before(key_day)


def _worker_keys(path: Path, stored: KeyFile) -> LaboratoryKeys | ForwardKeys | _Unpinned:
    """Return the worker's keys of a file; KeyFileError if one is missing or not of the file's kind."""
    audit, noise, ledger = _needed(path, stored.audit, "audit"), stored.noise, stored.ledger
    if noise is None:
        raise _missing(path, "noise")
    if stored.laboratory != isinstance(noise, RootKey):
        raise _damaged(path)
    if isinstance(noise, RootKey):
        return LaboratoryKeys(bytes.fromhex(noise.root), ledger, audit)
    key = bytes.fromhex(noise.key)
    return _Unpinned(key, ledger, audit) if noise.day is None else ForwardKeys(noise.day, key, ledger, audit)
