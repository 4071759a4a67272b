"""When a zone is booked: rows of a schedule file, which is public and part of the policy's meaning."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from stream.policy.fields import Clock, Frozen, Ident

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
COLUMNS = ("zone", "day", "start", "end")
MOST_BOOKINGS = 10_000


def _day(text: str) -> str:
    if text in WEEKDAYS:
        return text
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        msg = f"must be one of {', '.join(WEEKDAYS)}, or a date such as '2026-03-02'"
        raise ValueError(msg) from None


class Booking(Frozen):
    """A stretch of a day for which a zone is booked, at the site's clocks."""

    zone: Ident
    day: Annotated[str, AfterValidator(_day)]
    """``mon`` … ``sun``, each week, or one date."""
    start: Clock
    end: Clock

    @model_validator(mode="after")
    def _in_order(self) -> Booking:
        if self.start >= self.end:
            msg = f"start must be before end, got {self.start} and {self.end}"
            raise ValueError(msg)
        return self

    def holds(self, local: datetime) -> bool:
        """Whether an instant, in the site's time, lies in it; its end does not."""
        clock = local.strftime("%H:%M")
        today = self.day in (WEEKDAYS[local.weekday()], local.date().isoformat())
        return today and self.start <= clock < self.end


Bookings = Annotated[tuple[Booking, ...], Field(max_length=MOST_BOOKINGS)]


class ScheduleError(Exception):
    """A schedule file broke a rule; the message says where it is named, which rule, and its name."""


def attach_schedules(document: Mapping[str, Any], attached: Callable[[str], str] | None) -> None:
    """Put the rows of each schedule file that a release of a policy names in the place of its name.

    Args:
        document: the policy as it was parsed.
        attached: gives the text of a file, ValueError where it cannot; without it no file may be named.

    Raises:
        ScheduleError: a file cannot be had, or is none.
    """
    releases = document.get("release")
    for number, release in enumerate(releases if isinstance(releases, list) else []):
        name = release.get("schedule") if isinstance(release, dict) else None
        if isinstance(name, str):
            try:
                release["schedule"] = read_schedule(_text(name, attached))
            except (ValueError, csv.Error) as error:
                msg = f"release[{number}].schedule: {error}, got {name!r}"
                raise ScheduleError(msg) from None


def _text(name: str, attached: Callable[[str], str] | None) -> str:
    if attached is None:
        msg = "must be a list where the policy is no file"
        raise ValueError(msg)
    return attached(name)


def read_schedule(text: str) -> list[dict[str, str]]:
    """Return the rows of a schedule file, CSV with the columns ``zone``, ``day``, ``start`` and ``end``.

    Raises:
        ValueError: the columns are others, a row has more or fewer, or there is none. What stands in the fields is
            checked with the policy.
    """
    rows = list(csv.reader(text.splitlines()))
    if not rows or tuple(name.strip() for name in rows[0]) != COLUMNS:
        msg = f"must have the columns {', '.join(COLUMNS)}"
        raise ValueError(msg)
    held = [row for row in rows[1:] if row]
    if not held:
        msg = "must have at least one booking"
        raise ValueError(msg)
    for number, row in enumerate(held, start=2):
        if len(row) != len(COLUMNS):
            msg = f"row {number} must have {len(COLUMNS)} fields, got {len(row)}"
            raise ValueError(msg)
    return [dict(zip(COLUMNS, (field.strip() for field in row), strict=True)) for row in held]
