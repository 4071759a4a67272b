"""Which privacy days the day releases of a site have been paid for, and under which terms.

A day's price buys one continuous run of the counters (``sensing.contribution``) under one set of terms. The first
window of a day is charged with all of it, the others with nothing. Whatever would change what one device can be
counted for (epsilon, delta, noise, contribution, residents, zones, shares, levels, audiences, the day itself) takes
effect when the next day begins: until then the release waits, and publishes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import orjson

from stream.policy.document import CountRelease, Policy
from stream.records import DAY, Micros, PrivacyDay

KEPT_DAYS = 2
"""Days whose payment is remembered: the one at hand, and the one before where zones of time have changed."""

ELSEWHERE = "elsewhere"
"""Stands for the terms of a day that was paid for a recording: no terms are equal to it."""


class Standing(Enum):
    """How a release stands to a day."""

    UNPAID = "to be paid"
    PAID = "paid, on these terms"
    OTHERWISE = "paid, on other terms"


@dataclass(slots=True)
class PaidDays:
    """The latest days for which each release was paid."""

    terms: dict[str, dict[PrivacyDay, str]] = field(default_factory=dict)
    """Release -> day -> digest of the terms on which it was paid."""

    def standing(self, release: str, day: PrivacyDay, terms: str) -> Standing:
        """Return how a release stands to a day.

        Days that overlap it are looked at, and those of its number, by which the account knows a day: of another time
        zone, or another start, they need not be the same.
        """
        for other, paid in self.terms.get(release, {}).items():
            if other.number == day.number or (other.start < day.end and day.start < other.end):
                return Standing.PAID if (other, paid) == (day, terms) else Standing.OTHERWISE
        return Standing.UNPAID

    def pay(self, release: str, day: PrivacyDay, terms: str) -> None:
        """Remember that a day was paid for, and let go of days long over."""
        held = self.terms.get(release, {})
        kept = {other: paid for other, paid in held.items() if other.end > day.start - KEPT_DAYS * DAY}
        self.terms[release] = kept | {day: terms}

    def close_to_others(self, late: PaidDays) -> None:
        """Take note of days that something else has paid for, whose price buys no other run of the counters."""
        for release, held in late.terms.items():
            own = self.terms.get(release, {})
            self.terms[release] = own | {day: ELSEWHERE for day in held if day not in own}


def terms_digest(policy: Policy, release: CountRelease, site: str) -> str:
    """Return the digest of the terms of a release's day at a site."""
    place = policy.site[site]
    zones = [(zone.id, zone.floor, zone.largest) for zone in policy.zones_of(release, site)]
    day = [place.day_starts, place.timezone, place.contribution, place.residents, place.tick, place.validity]
    terms = [release.model_dump(mode="json"), zones, day, str(policy.privacy.delta)]
    return hashlib.sha256(orjson.dumps(terms, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def encode_paid(days: PaidDays) -> dict[str, list[tuple[int, Micros, Micros, str]]]:
    """Return the JSON form."""
    return {
        release: [(*day, terms) for day, terms in sorted(held.items())] for release, held in sorted(days.terms.items())
    }


def decode_paid(data: Mapping[str, Iterable[tuple[int, Micros, Micros, str]]]) -> PaidDays:
    """Return the days of their JSON form."""
    return PaidDays({release: {PrivacyDay(*day): terms for *day, terms in rows} for release, rows in data.items()})
