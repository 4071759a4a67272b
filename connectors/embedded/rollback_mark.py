"""The mark beside the key: how far each site's hash chain has been published, per store.

It shows a store that was set back or replaced. It only moves forward and survives the store. A production
key knows one store, from the moment the store is first opened, and its file says so too: a copy serves no other
store, and a mark that is gone is missed. A laboratory key may serve many, also at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from connectors import keyfile
from connectors.private_file import itself, locked, replace
from stream.errors import AuditError, UsageError
from stream.release.stage import MECHANISMS
from stream.runners.embedded import Chains


class DamagedMarkError(UsageError):
    """A mark that is there and cannot be read: it says as little as one that is gone."""


class MarkFile:
    """``<key file>.mark``."""

    def __init__(self, key_file: Path, store: str, *, laboratory: bool) -> None:
        self._path = mark_path(key_file)
        self._store = store
        with locked(self._path):
            marks = _load(self._path)
            if not laboratory:
                _refuse_other(key_file, marks, store)
            self._made_by = read_versions(key_file).get(store)
            if store not in marks:
                self._write(marks | {store: {}})
            if not laboratory and keyfile.store_of(key_file) != store:
                keyfile.bind(key_file, store)
        self._held = marks.get(store, {})

    def _write(self, marks: dict[str, Chains]) -> None:
        versions = _versions(self._path)
        if self._made_by is not None:
            versions[self._store] = self._made_by
        _replace(self._path, marks, versions)

    def read(self) -> Chains:
        """Return this store's mark."""
        return dict(self._held)

    def made_by(self) -> str | None:
        """Return the mechanism version that published last; None where the mark is of before that was noted."""
        return self._made_by

    def advance(self, chains: Chains) -> None:
        """Move forward the sites whose hash chains have grown; written only when one has."""
        grown = {site: mark for site, mark in chains.items() if mark[0] > self._held.get(site, (0, ""))[0]}
        if grown:
            self._held |= grown
            self._made_by = MECHANISMS
            with locked(self._path):
                self._write(_load(self._path) | {self._store: self._held})


def _refuse_other(key_file: Path, marks: Iterable[str], store: str) -> None:
    """Raise UsageError where a production key serves another store, or has lost what it knew of this one."""
    bound = keyfile.store_of(key_file)
    others = sorted({*marks, *([bound] if bound else [])} - {store})
    if others:
        raise keyfile.other_ledger(key_file, others[0], f"store {store}")
    if bound is not None and store not in marks:
        msg = (
            f"{mark_path(key_file)}: must be there, since this production key has been used: without it nobody can "
            "tell whether the store was set back; 'tacet recover' says what can be done"
        )
        raise UsageError(msg)


def mark_path(key_file: Path) -> Path:
    """Return where the mark of a key lies: beside the file itself, by whatever link it is named."""
    held = itself(key_file)
    return held.with_name(held.name + ".mark")


def read_marks(key_file: Path) -> dict[str, Chains]:
    """Return the marks of a key, by store."""
    return _load(mark_path(key_file))


def read_mark(key_file: Path, store: str) -> Chains:
    """Return a store's mark; AuditError when the key has none of it."""
    marks = read_marks(key_file)
    if store not in marks:
        msg = f"{mark_path(key_file)}: must know store {store}, which this key then belongs to"
        raise AuditError(msg)
    return marks[store]


def read_versions(key_file: Path) -> dict[str, str]:
    """Return the mechanism version that published last, by store; a store of which that is not known is left out."""
    return _versions(mark_path(key_file))


def bind_again(key_file: Path, store: str, chains: Mapping[str, tuple[int, str]], made_by: str) -> None:
    """Write the mark of a production key that has lost it; UsageError where it has one, or serves another store.

    ``made_by`` is the mechanism version that published last.
    """
    with locked(key_file):
        bound = keyfile.store_of(key_file)
        try:
            marks = read_marks(key_file)
        except DamagedMarkError:
            marks = {}
        if marks or bound not in {"", store}:
            msg = f"{key_file}: must be the key of store {store}, whose mark is gone; nothing is written"
            raise UsageError(msg)
        _replace(mark_path(key_file), {store: dict(chains)}, {store: made_by})
        keyfile.bind(key_file, store)


def _replace(path: Path, marks: Mapping[str, Chains], versions: Mapping[str, str]) -> None:
    replace(path, {"tacet_mark": 1, "stores": marks, "mechanisms": versions})


def _load(path: Path) -> dict[str, Chains]:
    return _document(path)[0]


def _versions(path: Path) -> dict[str, str]:
    return _document(path)[1]


def _document(path: Path) -> tuple[dict[str, Chains], dict[str, str]]:
    """Return each store's mark, and the mechanism version that moved it last where that is known."""
    if not path.exists():
        return {}, {}
    try:
        document = json.loads(path.read_text())
        marks = {
            store: {site: (int(entries), str(head)) for site, (entries, head) in sites.items()}
            for store, sites in document["stores"].items()
        }
        return marks, {store: str(version) for store, version in document.get("mechanisms", {}).items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        msg = (
            f"{path}: must be the mark that 'tacet run' wrote, but it is damaged; 'tacet recover' says what can be done"
        )
        raise DamagedMarkError(msg) from None
