"""What all records of one site share: their head, the commitment to what they read, and the charge before each."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from typing import NamedTuple

from stream.accounting.ledger import Ledger, Posting
from stream.keys import Keys, subkey
from stream.mechanisms.labels import label
from stream.policy.document import Policy
from stream.policy.queries import LONGEST_W
from stream.records import HOUR, Micros, Published
from stream.release.budgets import nano
from stream.release.state import ReleaseState
from stream.schemas import AUDIT, AttributeRecord, CountRecord, ThresholdRecord, rfc3339


class Head(NamedTuple):
    """The fields that every record of one window, or of one day, has in common."""

    site: str
    window_start: str
    window_end: str
    policy_version: str
    laboratory: bool
    attempt: int
    """In ids, above 1."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """Issues the records of one site under one policy and one attempt."""

    site: str
    tick_length: Micros
    keys: Keys
    attempt: int
    ledger: Ledger

    @classmethod
    def of(cls, policy: Policy, site: str, keys: Keys, attempt: int) -> Issuer:
        """Return who issues a site's records under a policy."""
        ledger = Ledger(site, keys.ledger, keys.audit, policy.version, keys.laboratory)
        return cls(site, policy.site[site].tick, keys, attempt, ledger)

    def head(self, start: Micros, end: Micros) -> Head:
        """Return the head of the records of a window or a day."""
        version, laboratory = self.ledger.policy_version, self.keys.laboratory
        return Head(self.site, rfc3339(start), rfc3339(end), version, laboratory, self.attempt)

    def commitment(self, key_day: int, release: str, end: Micros, digest: bytes) -> str:
        """Return the commitment to an input: another of each attempt, so that nobody can compare what they read.

        Raises:
            KeyFileError: the key of ``key_day`` no longer exists.
        """
        attempt = (self.attempt,) if self.attempt > 1 else ()
        key = subkey(self.keys.noise_key(key_day), "commitment")
        return hmac.new(key, label(self.site, release, end, *attempt, digest), sha256).hexdigest()[:32]

    def charge(
        self, state: ReleaseState, record: CountRecord | ThresholdRecord | AttributeRecord, *, end: Micros,
        key_day: int, commitment: str,
        zones: Collection[str] = (),
    ) -> Published:  # fmt: skip
        """Enter a record into the ledger, before it is published; return the entry.

        Args:
            state: holds the ledger, which moves on.
            record: a reason in it is a denial, which costs nothing.
            end: the window's, or the local day's.
            key_day: whose budget pays.
            commitment: to what the record was made from.
            zones: those of a count release.
        """
        keep = LONGEST_W * max(self.tick_length, HOUR)
        posting = Posting(
            record.release, record.audience, record.release_id, self.attempt, end, keep,
            key_day, record.epsilon, nano(Fraction(record.spend)), record.reason, commitment, zones,
        )  # fmt: skip
        state.ledger, entry = self.ledger.enter(state.ledger, posting)
        return Published(AUDIT, self.site, entry, end, f"{self.site}/{state.ledger.sequence - 1}")
