"""Publishes the records of one site, each after its ledger entry.

The entry commits to the record's input with a key of the day and the attempt.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from typing import NamedTuple, TypedDict

from stream.accounting.ledger import ChargeEvent, Ledger, nano
from stream.domains import Purpose
from stream.keys import Keys, subkey
from stream.mechanisms.noise_labels import label
from stream.policy.counts import LONGEST_W
from stream.policy.document import PolicyDocument
from stream.records import HOUR, Micros, Published, ReleaseId
from stream.release.state import ReleaseState
from stream.schemas import AUDIT, AttributeRecord, CountRecord, ThresholdRecord, private_topic, rfc3339


class CommonFields(TypedDict):
    """The fields that every record of a window, or of a day, has."""

    release_id: str
    site: str
    audience: str
    release: str
    window_start: str
    window_end: str
    coverage: float
    policy_version: str
    laboratory: bool


class RecordHeader(NamedTuple):
    """What all records of one window, or of one day, have in common. Records are made from it, never from the window,
    which contains true counts."""

    site: str
    window_start: str
    window_end: str
    coverage: float
    """Rounded to four decimals."""
    policy_version: str
    laboratory: bool
    attempt: int
    """Part of release ids when above 1."""

    def fields(self, release: str, audience: str, where: str | None = None) -> CommonFields:
        """Return the common fields of a record; ``where`` ends its release id, by default the window's end."""
        identity = ReleaseId(self.site, release, audience, where or self.window_end, self.attempt)
        return {
            "release_id": str(identity), "site": self.site, "audience": audience, "release": release,
            "window_start": self.window_start, "window_end": self.window_end, "coverage": self.coverage,
            "policy_version": self.policy_version, "laboratory": self.laboratory,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class LedgerWriter:
    """Writes ledger entries of one site under one policy and one attempt."""

    site: str
    tick_length: Micros
    keys: Keys
    attempt: int
    ledger: Ledger

    @classmethod
    def of(cls, policy: PolicyDocument, site: str, keys: Keys, attempt: int) -> LedgerWriter:
        """Return the writer of a site's entries under a policy."""
        tick_length = policy.site[site].tick
        keep = LONGEST_W * max(tick_length, HOUR)
        ledger = Ledger(site, keys.ledger, keys.audit, policy.version, keys.laboratory, keep)
        return cls(site, tick_length, keys, attempt, ledger)

    def header(self, start: Micros, end: Micros, coverage: Fraction) -> RecordHeader:
        """Return the header of the records of a window or a day."""
        return RecordHeader(
            self.site, rfc3339(start), rfc3339(end), round(float(coverage), 4),
            self.ledger.policy_version, self.keys.laboratory, self.attempt,
        )  # fmt: skip

    def commitment(self, key_day: int, release: str, end: Micros, digest: bytes) -> str:
        """Return the commitment to an input; it differs between attempts, so that inputs cannot be compared.

        Raises:
            KeyFileError: the key of ``key_day`` no longer exists.
        """
        attempt = (self.attempt,) if self.attempt > 1 else ()
        key = subkey(self.keys.noise_key(key_day), Purpose.COMMITMENT)
        return hmac.new(key, label(self.site, release, end, *attempt, digest), sha256).hexdigest()[:32]

    def publish(
        self, state: ReleaseState, record: CountRecord | ThresholdRecord | AttributeRecord, *, end: Micros,
        key_day: int, commitment: str, zones: Collection[str] = (), time: Micros | None = None,
    ) -> tuple[Published, Published]:  # fmt: skip
        """Charge a record; return its ledger entry and the record, in the order in which they are published.

        Args:
            state: contains the ledger, which is updated.
            record: a record with a reason is a denial, which costs nothing.
            end: end of the window or of the local day.
            key_day: the day whose budget pays.
            commitment: commits to the record's input.
            zones: the zones of a count release.
            time: that of the record, if it is not ``end``.
        """
        event = ChargeEvent(
            record.release, record.audience, record.release_id, self.attempt, end, key_day,
            record.epsilon, nano(Fraction(record.spend)), record.reason, tuple(zones),
        )  # fmt: skip
        state.ledger, entry = self.ledger.enter(state.ledger, event, commitment)
        topic = private_topic(record.audience, record.release)
        return (
            Published(AUDIT, self.site, entry, end, f"{self.site}/{state.ledger.sequence - 1}"),
            Published(topic, self.site, record.to_bytes(), end if time is None else time, record.release_id),
        )
