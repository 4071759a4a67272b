"""The privacy days that releases have paid for as a whole.

A day's price pays for one continuous run of the counters (``sensing.contribution``) under one set of terms. The first
window of a day is charged with the whole day, the others with nothing. A change of anything that affects what one
device can be counted for (epsilon, delta, noise, contribution, residents, zones, shares, levels, audiences, the day
itself) takes effect when the next day begins. Until then the release waits and publishes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from stream.records import DAY, Micros, PrivacyDay

KEPT_DAYS = 2
"""Number of days whose payment is stored: the current day, and the previous one in case the time zone has changed."""

ELSEWHERE = "elsewhere"
"""Replaces the terms of a day that was paid for a recording; it equals no other terms."""

STREAMS = "#thresholds"
"""The name under which ``PaidDays`` stores the terms of all streams of a site; no release can have it."""


class DayPaymentStatus(Enum):
    """Whether and how a release has paid for a day."""

    UNPAID = "to be paid"
    PAID = "paid, on these terms"
    OTHER_TERMS = "paid, on other terms"


@dataclass(slots=True)
class PaidDays:
    """The latest days that each release has paid for."""

    terms: dict[str, dict[PrivacyDay, str]] = field(default_factory=dict)
    """Release -> day -> digest of the terms on which the day was paid."""

    def status(self, release: str, day: PrivacyDay, terms: str) -> DayPaymentStatus:
        """Return whether and how a release has paid for a day.

        Both the days that overlap it and the day of the same number are checked: with another time zone or start they
        may differ, and runs of threshold streams identify a day by its number.
        """
        for other, paid in self.terms.get(release, {}).items():
            if other.number == day.number or (other.start < day.end and day.start < other.end):
                return DayPaymentStatus.PAID if (other, paid) == (day, terms) else DayPaymentStatus.OTHER_TERMS
        return DayPaymentStatus.UNPAID

    def record_payment(self, release: str, day: PrivacyDay, terms: str) -> None:
        """Record that a day was paid for, and drop days that are long over."""
        paid_days = self.terms.get(release, {})
        kept = {other: paid for other, paid in paid_days.items() if other.end > day.start - KEPT_DAYS * DAY}
        self.terms[release] = kept | {day: terms}

    def close_for_live_runs(self, late: PaidDays) -> None:
        """Record days that a backfill has paid for; their price pays for no other run of the counters."""
        for release, paid_days in late.terms.items():
            own = self.terms.get(release, {})
            self.terms[release] = own | {day: ELSEWHERE for day in paid_days if day not in own}


def encode_paid(days: PaidDays) -> dict[str, list[tuple[int, Micros, Micros, str]]]:
    """Return the JSON form."""
    return {
        release: [(*day, terms) for day, terms in sorted(paid_days.items())]
        for release, paid_days in sorted(days.terms.items())
    }


def decode_paid(data: Mapping[str, Iterable[tuple[int, Micros, Micros, str]]]) -> PaidDays:
    """Return the days of their JSON form."""
    return PaidDays({release: {PrivacyDay(*day): terms for *day, terms in rows} for release, rows in data.items()})
