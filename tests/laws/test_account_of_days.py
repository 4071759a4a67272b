"""The account of a device's day where a site defines its days anew, against a plain sum over all windows.

The rule. A day counts at a window if what is observed in it can change the window's counts, and one of its windows came
under its definition. It costs what each window that it can change was charged: once for the device itself, and once
more in the first windows, in which the device's last observation before the day may count instead. A day that was paid
as a whole costs its price if the device's day holds all of it, and twice that where the device's day holds a part. The
account tells the dearest day.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import orjson
import pytest

from stream.accounting.account_state import AccountState
from stream.policy.fields import decimal_string
from stream.policy.privacy_days import PrivacyDays
from stream.records import DAY, MINUTE, CountCharge, DayTerms, Micros, PrivacyDay, WindowCharges
from stream.release.account_stage import account_stage
from stream.schemas import parse_time
from tests.support.small_building import SITE, building

STAGE = account_stage(building(), SITE, laboratory=True)
PUBLIC = ("public",)
EVERYBODY = ("board", "facilities", "public")
STARTS = ("00:00", "04:00", "12:00", "20:00", "23:00")
ZONES = ("America/Los_Angeles", "Asia/Tokyo", "Europe/Berlin", "Pacific/Apia", "UTC")
BEGINS = ("2026-03-07T12:00:00Z", "2026-10-24T12:00:00Z", "2011-12-28T12:00:00Z")
"""Before the clocks change in Los Angeles, in Berlin, and before Apia leaves a date out."""


class Charged(NamedTuple):
    """What happened at one window."""

    end: Micros
    days: PrivacyDays | None
    reach: Micros
    windows: dict[str, Fraction]
    """Audience -> epsilon of the window."""
    run: bool
    """Whether a release whose epsilon of 1 pays for 4 windows was charged too."""
    broken: bool
    """Whether that release waited, so that it begins anew."""
    day: PrivacyDay | None
    """What was paid as a whole, at 2 for the public."""

    def charges(self) -> tuple[CountCharge, ...]:
        one = [CountCharge("plain", audience, "laplace", epsilon) for audience, epsilon in self.windows.items()]
        if self.run:
            one.append(CountCharge("four", "public", "laplace", Fraction(1), w=4))
        if self.broken:
            one.append(CountCharge("four", "public", "laplace", Fraction(0), reason="waiting", w=4))
        if self.day is not None:
            terms = DayTerms(self.day, "laplace", (Fraction(1, 50),), 100)
            one.append(CountCharge("daily", "public", "laplace", Fraction(2), terms=terms))
        return tuple(one)


def of_days(days: PrivacyDays | None, end: Micros, reach: Micros) -> set[tuple[Micros, Micros]]:
    """Return the days of a definition that a window belongs to; UTC's begin with their first instant."""
    if days is None:
        found = [(day * DAY - 1, (day + 1) * DAY - 1) for day in range(end // DAY - 2, end // DAY + 2)]
    else:
        moments = {days.at(end - back) for back in (0, reach, DAY, 2 * DAY)}
        found = [(day.start, day.end) for day in moments]
    return {(start, last) for start, last in found if start < end <= last + reach}


def cost(day: tuple[Micros, Micros], so_far: list[Charged], audiences: tuple[str, ...]) -> Fraction:
    """Return what one device's day was charged: a sum over all windows."""
    start, last = day
    total, stretches = Fraction(0), defaultdict[int, list[int]](lambda: [0, 0])
    anew, stored = 0, set[tuple[Micros, Micros]]()
    for one in so_far:
        less, more = start < one.end <= last + one.reach, start < one.end <= start + one.reach
        finest = max((one.windows.get(audience, Fraction(0)) for audience in audiences), default=Fraction(0))
        total += (less + more) * finest
        anew += one.broken
        if one.run:
            stretches[anew][0] += less
            stretches[anew][1] += more
        if one.day is not None:
            stored.add((one.day.start, one.day.end))
    total += sum((-(-n // 4) for stretch in stretches.values() for n in stretch), 0)
    for begin, over in stored:
        if start < over and begin < last:
            total += 2 if start <= begin and over <= last else 4
    return total


def course(rng: random.Random) -> list[Charged]:
    """Return some days of windows, under definitions that change; what is paid by the day never overlaps."""
    tick, reach = rng.choice(((30, 30), (30, 90), (60, 60)))
    end, days, made, paid = parse_time(rng.choice(BEGINS)), None, list[Charged](), list[PrivacyDay]()
    for _ in range(4 * 24 * 60 // tick):
        end += tick * MINUTE * (1 if rng.random() < 0.97 else rng.randrange(1, 40))
        if rng.random() < 0.02 * tick / 15:
            days = rng.choice((None, PrivacyDays(rng.choice(STARTS), rng.choice(ZONES))))
        if rng.random() < 0.005:
            reach = rng.choice((30, 60, 120))
        windows = {who: Fraction(rng.choice((0, 1, 1, 3)), 4) for who in EVERYBODY if rng.random() < 0.8}
        day = None if days is None or rng.random() < 0.5 else days.at(end)
        if day is not None and all(other == day or other.end <= day.start or day.end <= other.start for other in paid):
            paid.append(day)
        else:
            day = None
        run, broken = rng.random() < 0.6, rng.random() < 0.03
        made.append(Charged(end, days, reach * MINUTE, windows, run and not broken, broken, day))
    return made


@pytest.mark.parametrize("seed", [1, *(pytest.param(each, marks=pytest.mark.long) for each in range(8) if each != 1)])
def test_the_account_tells_the_dearest_day_of_every_definition_that_was_in_force(seed: int) -> None:
    rng = random.Random(seed)
    state, so_far, known = AccountState(), list[Charged](), set[tuple[Micros, Micros]]()
    zones = dict.fromkeys(("plain", "four", "daily"), ())
    for one in course(rng):
        stage = replace(
            STAGE, privacy_days=one.days, tick_length=MINUTE, ticks_per_observation=one.reach // MINUTE, zones=zones
        )
        if rng.random() < 0.05:
            state = stage.decode(stage.encode(state))
        state, [record] = stage.step(state, WindowCharges(SITE, one.end, one.charges()))
        so_far.append(one)
        known = {day for day in known if one.end <= day[1] + one.reach} | of_days(one.days, one.end, one.reach)
        reported = orjson.loads(record.value)
        for units, audiences in ((reported["audiences"]["public"], PUBLIC), (reported["coalition"], EVERYBODY)):
            wanted = max(cost(day, so_far, audiences) for day in known)
            assert units["device_day"] == decimal_string(wanted), (seed, reported["window_end"])
