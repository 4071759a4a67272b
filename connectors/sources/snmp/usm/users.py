"""The users of SNMPv3 with their passwords, and each source's engines.

The file is TOML, readable by its owner only (mode 0600). A source that it names must use SNMPv3, so that no sender can
fall back to a community for it. While passwords are being changed a user may be listed twice, and both are valid.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from connectors.secrets.secret_files import ReloadingSecrets, Table, read_tables
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.usm.messages import AUTHENTICATED, LONGEST_NAME, PRIVATE, SHORTEST_ENGINE
from connectors.sources.snmp.usm.protocols import CIPHERS, TAGS, Keys, local_key, master_key
from stream.errors import KeyFileError

MOST_PASSWORDS = 2
"""Number of one user's passwords that are valid while they are being changed."""
SHORTEST_PASSWORD = 8
"""Characters (RFC 3414, section 11.2)."""


def _engine(text: str) -> str:
    octets = text.lower().removeprefix("0x").replace(":", "")
    if not re.fullmatch(rf"(?:[0-9a-f]{{2}}){{{SHORTEST_ENGINE},{LONGEST_NAME}}}", octets):
        msg = "must be an engine ID of 5 to 32 octets in hexadecimal, such as '800000090300f84f57abcdef'"
        raise ValueError(msg)
    return octets


Password = Annotated[SecretStr, Field(min_length=SHORTEST_PASSWORD)]
EngineId = Annotated[str, AfterValidator(_engine)]


class User(Table):
    """One user of the controllers; the same passwords make other keys at each engine."""

    name: str = Field(min_length=1, max_length=LONGEST_NAME)
    auth: Literal["SHA-1", "SHA-256", "SHA-384", "SHA-512"] = "SHA-256"
    auth_password: Password
    privacy: Literal["AES-128", "AES-256"] = "AES-128"
    privacy_password: Password | None = None
    level: Literal["authPriv", "authNoPriv"] = "authPriv"
    """The lowest accepted level; a message without a tag is never accepted."""

    @model_validator(mode="after")
    def _check_algorithms(self) -> User:
        if self.level == "authPriv" and self.privacy_password is None:
            msg = "privacy_password: must be given for level 'authPriv'"
            raise ValueError(msg)
        if self.privacy_password is not None and CIPHERS[self.privacy] > TAGS[self.auth][2]:
            msg = f"privacy: must be 'AES-128' with auth '{self.auth}', whose keys are too short for '{self.privacy}'"
            raise ValueError(msg)
        return self


class Source(Table):
    """A controller, or a block of addresses; its traps come over SNMPv3."""

    address: str
    engines: tuple[EngineId, ...] = Field(default=(), strict=False)
    """The engines whose traps are accepted from it; informs need none."""
    also_v2c: bool = False
    """Whether communities are accepted, too, while the controller is being changed over."""


class _File(Table):
    user: tuple[User, ...] = Field(min_length=1, strict=False)
    source: tuple[Source, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _name_each_once(self) -> _File:
        _refuse_repeated("source.address", [source.address for source in self.source], 1)
        _refuse_repeated("user.name", [user.name for user in self.user], MOST_PASSWORDS)
        kinds = {(user.name, user.level, user.privacy_password is None) for user in self.user}
        names = [name for name, *_ in kinds]
        if differing := sorted({name for name in names if names.count(name) > 1}):
            rule = "must be the same both times, and privacy_password be given both times or never"
            msg = f"user.level: {rule}, is not for {differing[0]!r}"
            raise ValueError(msg)
        return self


def _refuse_repeated(what: str, names: list[str], most: int) -> None:
    if repeated := sorted({name for name in names if names.count(name) > most}):
        msg = f"{what}: must be given at most {most} time(s), got {repeated[0]!r} more often"
        raise ValueError(msg)


class Users:
    """The users of a file with their keys, and the rules of each source."""

    def __init__(self, users: Iterable[User], sources: Iterable[Source] = ()) -> None:
        """Raises ``UsageError`` for a source that is no address; deriving the keys takes milliseconds for each user."""
        self._set(users, sources)

    def _set(self, users: Iterable[User], sources: Iterable[Source]) -> None:
        by_name: dict[bytes, list[tuple[User, tuple[bytes, bytes]]]] = {}
        for user in users:
            by_name.setdefault(user.name.encode(), []).append((user, _masters(user)))
        self._users = by_name
        self._sources = {source.address: source for source in sources}
        self._listed = AllowList(self._sources) if self._sources else None
        self.all_keys = functools.lru_cache(maxsize=4096)(self._all_keys)

    def renew(self) -> bool:
        """Reload the users from their origin; return whether anything changed."""
        return False

    def least(self, name: bytes) -> int | None:
        """Return the flags that a user's message must have at least; None: no such user."""
        if name not in self._users:
            return None
        user = self._users[name][0][0]
        return AUTHENTICATED | PRIVATE if user.level == "authPriv" else AUTHENTICATED

    def has_privacy(self, name: bytes) -> bool:
        """Return whether a user has a key for encryption."""
        return self._users[name][0][0].privacy_password is not None

    def knows(self, host: str, engine: bytes) -> bool:
        """Return whether the traps of an engine are accepted from an address."""
        source = self._source(host)
        return source is not None and engine.hex() in source.engines

    def may_be(self, host: str, engine: bytes) -> bool:
        """Return whether a probed agent at an address may be this engine: one that is listed there, if any is."""
        source = self._source(host)
        return source is None or not source.engines or engine.hex() in source.engines

    def has(self, name: str) -> bool:
        """Return whether there is such a user."""
        return name.encode() in self._users

    def requires_v3(self, host: str) -> bool:
        """Return whether an address must use SNMPv3."""
        source = self._source(host)
        return source is not None and not source.also_v2c

    def _source(self, host: str) -> Source | None:
        entry = None if self._listed is None else self._listed.listed(host)
        return None if entry is None else self._sources[entry]

    def _all_keys(self, name: bytes, engine: bytes) -> tuple[Keys, ...]:
        """Return all of a user's keys that are valid now; none if the user no longer exists."""
        return tuple(self._keys(user, masters, engine) for user, masters in self._users.get(name, ()))

    @staticmethod
    def _keys(user: User, masters: tuple[bytes, bytes], engine: bytes) -> Keys:
        tag, cipher = masters
        kind, size = TAGS[user.auth][:2]
        private = local_key(user.auth, cipher, engine)[: CIPHERS[user.privacy]] if cipher else b""
        return Keys(kind, size, local_key(user.auth, tag, engine), private)


def _masters(user: User) -> tuple[bytes, bytes]:
    """Return the keys of both passwords before they are bound to an engine; empty without privacy."""
    tag, private = user.auth_password.get_secret_value(), user.privacy_password
    cipher = b"" if private is None else master_key(user.auth, private.get_secret_value().encode())
    return master_key(user.auth, tag.encode()), cipher


def _read(path: Path) -> _File:
    file = read_tables(path, _File, "SNMPv3 users")
    try:
        AllowList([source.address for source in file.source], allow_any=True)
    except ValueError as error:
        msg = f"{path}: {error}"
        raise KeyFileError(msg) from None
    return file


class UserFile(Users):
    """The users of a file, with its present content."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            KeyFileError: the file is missing, can be read by group or others, or breaks a rule; no password is shown.
        """
        self.file = ReloadingSecrets(path, "users of SNMPv3", _read)
        self._content = self.file.content
        super().__init__(self._content.user, self._content.source)

    def renew(self) -> bool:
        """Read the file if it has changed; return whether it was.

        While it is invalid, the previous users stay valid.
        """
        self.file.renew()
        if self.file.content is self._content:
            return False
        self._content = self.file.content
        self._set(self._content.user, self._content.source)
        return True
