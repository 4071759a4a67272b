"""Keyed, rotating pseudonyms for radio addresses and logins.

A pseudonym (``name``) is the first 64 bits of HMAC-SHA-256 (RFC 2104) over the address, under a separate key for each
epoch. An epoch is the UTC day of the observation. At a site with privacy days it is a privacy day, and the pseudonyms
are specific to that site. In TTL mode it is the lifetime of one salt, as in the salted re-hash of Ghayyur's thesis.
Logins have keys of their own, and are named at sites with privacy days only.
Without the key a pseudonym reveals nothing. With the key, all 2**48 addresses can be tried quickly: its holder can
reverse every pseudonym that was ever derived from it. Two of n addresses share a pseudonym with probability about
n**2 / 2**65.

    symbol   name           meaning
    k        key            the connector's pseudonym key
    k_e      epoch key      HMAC(k, label || epoch)
    e        epoch          floor(t / length), counted from 1970-01-01T00:00Z, or the privacy day's number
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from datetime import timedelta

from stream.domains import Domain, Epoch
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.policy.privacy_days import PrivacyDays
from stream.records import DAY, EPOCH, Micros, PrivacyDay

_CACHED_NAMES = 65_536
_CACHED_EPOCHS = 4


def is_locally_administered(mac: bytes) -> bool:
    """Whether the device chose the address itself, at random (IEEE 802, bit 0x02 of the first octet)."""
    return bool(mac[0] & 0x02)


class Pseudonyms:
    """Pseudonyms by epoch: an address has one pseudonym within an epoch and an unrelated one in the next."""

    def __init__(
        self, epoch_key: Callable[[int], bytes], length: Micros = DAY, days: PrivacyDays | None = None
    ) -> None:
        """``epoch_key`` gives the key of an epoch, ``length`` its duration; with ``days``, epochs are privacy days."""
        if length <= 0:
            msg = f"length: must be positive, got {length}"
            raise UsageError(msg)
        self._epoch_key = epoch_key
        self._length = length
        self._days = days
        self._keys: dict[int, bytes] = {}
        self._epoch = 0
        self._names: dict[bytes, str] = {}

    @classmethod
    def daily(cls, key: bytes) -> Pseudonyms:
        """Return pseudonyms that change at each UTC midnight; ``UsageError`` for a key of under 16 octets."""
        _check_key(key)
        return cls(lambda day: _derive(key, Epoch.UTC_DAY, _date(day)))

    @classmethod
    def rotating(cls, key: bytes, ttl: Micros) -> Pseudonyms:
        """Return pseudonyms whose salt changes every ``ttl`` microseconds, on a grid from the start of 1970.

        If a salt changes during a visit, one device appears as two, as with address randomisation.
        """
        _check_key(key)
        return cls(lambda salt: _derive(key, Epoch.TTL, f"{ttl}/{salt}"), ttl)

    @classmethod
    def by_privacy_day(
        cls, key: bytes, site: str, days: PrivacyDays, domain: Domain = Domain.PSEUDONYM
    ) -> Pseudonyms:  # fmt: skip
        """Return the pseudonyms of one site, which change at the start of its privacy day.

        ``domain`` is that of addresses or ``Domain.LOGIN``.
        """
        _check_key(key)
        return cls(lambda day: _derive(key, Epoch.PRIVACY_DAY, f"{site}/{_date(day)}", domain), days=days)

    def epoch(self, time: Micros) -> int:
        """Return the epoch that an observation at ``time`` belongs to."""
        return time // self._length if self._days is None else self._days.at(time).number

    def begin(self, time: Micros) -> Micros:
        """Return the first instant of the epoch that ``time`` belongs to."""
        return time // self._length * self._length if self._days is None else self._days.at(time).start + 1

    def day(self, time: Micros) -> PrivacyDay | None:
        """Return the privacy day whose pseudonyms apply at ``time``; None if epochs are not privacy days."""
        return None if self._days is None else self._days.at(time)

    def name(self, mac: bytes, epoch: int) -> str:
        """Return the device's pseudonym in an epoch, 16 hexadecimal digits."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._names.clear()
        name = self._names.get(mac)
        if name is None:
            if len(self._names) >= _CACHED_NAMES:
                self._names.clear()
            name = hmac.digest(self._key(epoch), mac, "sha256")[:8].hex()
            self._names[mac] = name
        return name

    def outlived(self, mac: bytes, time: Micros, validity: Micros, since: int | None = None) -> list[str]:
        """Return the device's earlier pseudonyms that a sighting at ``time`` has to end, oldest first.

        They are those of every epoch in which a presence that is still valid at ``time`` may have begun; with
        ``since``, only from that epoch on. No state is needed: a pseudonym that was never used may be ended too. So a
        restarted connector, or another one of the same site, also ends presences that it did not report, and no device
        is counted under two pseudonyms.
        """
        oldest = self.epoch(time - validity)
        first = oldest if since is None else max(oldest, since)
        return [self.name(mac, epoch) for epoch in range(first, self.epoch(time))]

    def _key(self, epoch: int) -> bytes:
        key = self._keys.get(epoch)
        if key is None:
            while len(self._keys) >= _CACHED_EPOCHS:
                del self._keys[min(self._keys)]
            key = self._keys[epoch] = self._epoch_key(epoch)
        return key


def names_by_site(policy: PolicyDocument, key: bytes) -> dict[str, Pseudonyms]:
    """Return the pseudonyms of each site; sites without privacy days share theirs."""
    ttl = policy.pseudonym.ttl
    shared = Pseudonyms.daily(key) if ttl is None else Pseudonyms.rotating(key, ttl)
    return {
        name: shared if site.privacy_days is None else Pseudonyms.by_privacy_day(key, name, site.privacy_days)
        for name, site in policy.site.items()
    }


def _check_key(key: bytes) -> None:
    if len(key) < 16:
        msg = f"pseudonym key: must have at least 16 octets, got {len(key)}"
        raise UsageError(msg)


def _date(number: int) -> str:
    return (EPOCH.date() + timedelta(days=number)).isoformat()


def _derive(key: bytes, mode: Epoch, epoch: str, domain: Domain = Domain.PSEUDONYM) -> bytes:
    return hmac.digest(key, domain + mode + b" " + epoch.encode(), "sha256")
