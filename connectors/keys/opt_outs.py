"""Opt-outs: the file of devices and logins that are not counted, as keyed digests.

A digest is the first 128 bits of HMAC-SHA-256 over the address or the login, under the opt-out key of the key file.
That key stays the same for as long as the list is used, so whoever holds both files can ask whether any address or
login is on the list, and can try all of them: there are only 2**48 addresses, and a directory lists all logins.

An entry takes effect at the first start of a day after it was added, and ends at the first start of a day after it was
removed: a whole day is counted or left out. The day is the site's privacy day, else the UTC day. Each ingest reads a
copy of the file, and entries bear their own times, so copies that arrive before a day starts act alike on that day.

No error, log line or output says how many entries there are, or whether one was there before.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from connectors.secrets.private_files import locked, read_private, replace_file
from connectors.secrets.secret_files import ReloadingSecrets
from stream.domains import Domain
from stream.errors import KeyFileError
from stream.records import DAY, LATEST, Micros

HOLDS = "opt-outs"
KEPT_AFTER_REMOVAL: Micros = 7 * DAY
"""For so long a removed entry stays in the file: by then every site's day of the removal has ended."""
_DIGEST = re.compile("[0-9a-f]{32}")
_KEY_ID = re.compile("[0-9a-f]{16}")
_CACHED = 65_536


class _Entry(NamedTuple):
    """When a device was added, and when it was removed; None: it was not."""

    added: Micros
    removed: Micros | None

    def counts_at(self, start: Micros) -> bool:
        """Return whether a day that starts at ``start`` leaves the device out."""
        return self.added <= start and (self.removed is None or self.removed > start)


class OptOuts:
    """The entries of a file, with the key that finds an address among them; its repr hides both."""

    def __init__(self, key: bytes, entries: dict[bytes, _Entry]) -> None:
        self._key, self._entries = key, entries
        self._found: dict[bytes, _Entry | None] = {}

    def __repr__(self) -> str:
        """Show nothing: the number of entries is not public."""
        return "OptOuts()"

    def leaves_out(self, address: bytes, start: Micros) -> bool:
        """Return whether a device is left out of the day that starts at ``start``."""
        return self._leaves_out(Domain.OPT_OUT + address, start)

    def leaves_out_login(self, login: bytes, start: Micros) -> bool:
        """Return whether a login is left out of the day that starts at ``start``."""
        return self._leaves_out(Domain.OPT_OUT_LOGIN + login, start)

    def _leaves_out(self, subject: bytes, start: Micros) -> bool:
        try:
            entry = self._found[subject]
        except KeyError:
            if len(self._found) >= _CACHED:
                self._found.clear()
            entry = self._found[subject] = self._entries.get(_digest(self._key, subject))
        return entry is not None and entry.counts_at(start)


def digest(key: bytes, address: bytes) -> bytes:
    """Return the digest of an address, 16 octets."""
    return _digest(key, Domain.OPT_OUT + address)


def _digests(key: bytes, addresses: Iterable[bytes], logins: Iterable[bytes]) -> Iterator[bytes]:
    yield from (digest(key, address) for address in addresses)
    yield from (_digest(key, Domain.OPT_OUT_LOGIN + login) for login in logins)


def _digest(key: bytes, subject: bytes) -> bytes:
    return hmac.digest(key, subject, "sha256")[:16]


class OptOutFile(ReloadingSecrets[OptOuts]):
    """The present opt-outs of a file. While it is missing or invalid, those that were read before stay in effect.

    A successful read is neither logged nor counted: the number of changes would bound the number of entries.
    """

    def __init__(self, path: Path, key: bytes) -> None:
        """Read the file; KeyFileError if it is missing, invalid, or was written under another key."""
        super().__init__(path, HOLDS, lambda file: OptOuts(key, _read(file, key)), announce=False)

    def leaves_out(self, address: bytes, start: Micros) -> bool:
        """Return whether a device is left out of the day that starts at ``start``."""
        return self.content.leaves_out(address, start)

    def leaves_out_login(self, login: bytes, start: Micros) -> bool:
        """Return whether a login is left out of the day that starts at ``start``."""
        return self.content.leaves_out_login(login, start)


def add(path: Path, key: bytes, addresses: Iterable[bytes], now: Micros, logins: Iterable[bytes] = ()) -> None:
    """Add devices, and logins in the form in which they are compared; the file is created if it is missing.

    One that is on the list keeps its entry. One whose removal may not have taken effect yet stays on it without a
    break.
    """
    with locked(path):
        entries = _read(path, key) if path.exists() else {}
        for name in _digests(key, addresses, logins):
            found = entries.get(name)
            entries[name] = _Entry(now, None) if found is None else found._replace(removed=None)
        _write(path, key, entries, now)


def remove(path: Path, key: bytes, addresses: Iterable[bytes], now: Micros, logins: Iterable[bytes] = ()) -> None:
    """Remove devices and logins from the next day on; one that is not on the list changes nothing."""
    with locked(path):
        entries = _read(path, key)
        for name in _digests(key, addresses, logins):
            if (found := entries.get(name)) is not None and found.removed is None:
                entries[name] = found._replace(removed=now)
        _write(path, key, entries, now)


def _write(path: Path, key: bytes, entries: dict[bytes, _Entry], now: Micros) -> None:
    kept = {
        name.hex(): list(entry)
        for name, entry in sorted(entries.items())
        if entry.removed is None or entry.removed > now - KEPT_AFTER_REMOVAL
    }
    document = {"tacet_opt_outs": 1, "key": _key_id(key), "entries": kept}
    replace_file(path, document)  # also a new one: a power cut leaves none or a whole one


def _read(path: Path, key: bytes) -> dict[bytes, _Entry]:
    """Return a file's entries; KeyFileError says which rule the file breaks, and nothing of its content."""
    content = read_private(path, HOLDS)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("tacet_opt_outs") != 1:
        msg = f"{path}: must be a file made by 'tacet optout add'"
        raise KeyFileError(msg)
    made_under = document.get("key")
    if not isinstance(made_under, str) or not _KEY_ID.fullmatch(made_under):
        raise _damaged(path)
    if not hmac.compare_digest(made_under, _key_id(key)):
        msg = f"{path}: must have been written under the opt-out key of this key file"
        raise KeyFileError(msg)
    entries = document.get("entries")
    if not isinstance(entries, dict) or not all(map(_DIGEST.fullmatch, entries)):
        raise _damaged(path)
    return {bytes.fromhex(name): _entry(path, times) for name, times in entries.items()}


def _entry(path: Path, times: Any) -> _Entry:
    if not isinstance(times, list) or len(times) != 2 or not _is_time(times[0]):
        raise _damaged(path)
    if times[1] is not None and not (_is_time(times[1]) and times[1] >= times[0]):
        raise _damaged(path)
    return _Entry(*times)


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LATEST


def _damaged(path: Path) -> KeyFileError:
    return KeyFileError(f"{path}: must be a file made by 'tacet optout add', but a part of it is damaged")


def _key_id(key: bytes) -> str:
    return hmac.digest(key, Domain.OPT_OUT_KEY, "sha256")[:8].hex()
