"""Read an iCalendar file (RFC 5545): times and places of its events, with every recurrence inside a span.

A calendar comes from outside, and a line of it can ask for any amount of work: a rule that recurs every second, or one
that never matches and is searched up to the year 9999. So it is read in a process of its own:

1. ``read_calendar`` starts Python with an empty environment and sends it span and file. Nothing is on disk.
2. The process limits its own processor time and memory, and that it can write no file.
3. It refuses too many components and rules that recur more than once a day, then expands the others (``icalendar``,
   ``recurring-ical-events``).
4. It answers with starts, ends and the places that were asked for. Titles, people and descriptions never leave it.
5. If it is stopped by a limit, the file is refused.

A file with one event that cannot be read is refused as a whole: a booking that is missing makes a used room look
unbooked. Cancelled events are left out.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from zoneinfo import ZoneInfo

import orjson

from stream.errors import OPTIONAL, DataError, UsageError
from stream.records import DAY, EPOCH, LATEST, JsonObject, Micros

if TYPE_CHECKING:
    from icalendar import Calendar, Component

LARGEST_FILE = 2 << 20
"""Maximum number of bytes of a file."""
MOST_COMPONENTS = 10_000
"""Maximum number of events, time zones and other parts of a file."""
MOST_OCCURRENCES = 20_000
"""Maximum number of occurrences inside the span."""
LONGEST_PLACE = 200
"""Maximum number of characters of a place; longer ones match nothing."""
PROCESSOR_SECONDS = 10
"""Processor time for one file."""
MEMORY = 512 << 20
"""Bytes of address space for one file."""
PATIENCE_SECONDS = 60
"""Seconds after which a process that got too little processor time is ended."""
PROGRAM = f"from {__name__} import main; main()"
"""What the process runs."""
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_WITHIN_A_DAY = ("BYHOUR", "BYMINUTE", "BYSECOND")
_TIMES = ("DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE", "RECURRENCE-ID")
_DAY = timedelta(days=1)


class Occurrence(NamedTuple):
    """One time that an event takes place."""

    start: Micros
    end: Micros
    """After the start. Whole days end at the next midnight of the site."""
    place: str
    """One of the places that were asked for; empty if all events were."""
    whole_days: bool
    """Whether it is of whole days, such as a holiday, and has no time of day."""


def read_calendar(
    content: bytes,
    span: tuple[Micros, Micros],
    timezone: str,
    *,
    places: Iterable[str] | None = None,
    transparent: bool = False,
) -> list[Occurrence]:
    """Return the occurrences that overlap a span, in order of time.

    Args:
        content: the file.
        span: first instant and the one after the last.
        timezone: zone of whole days, and of times that name none.
        places: return events at these places only, as their location says; several are separated by ``;`` or ``,``.
            By default all events, whatever their location.
        transparent: return events also that leave their time free (TRANSP:TRANSPARENT), such as holidays.

    Raises:
        DataError: the file is no iCalendar file, has too much in it, or takes too long to read. Nothing of its content
            is in the message.
        UsageError: the optional libraries are not installed.
    """
    for library in ("icalendar", "recurring_ical_events"):
        if find_spec(library) is None:
            msg = f"calendars: need {library.replace('_', '-')}; {OPTIONAL}"
            raise UsageError(msg)
    if len(content) > LARGEST_FILE:
        msg = f"calendar: must have at most {LARGEST_FILE} bytes"
        raise DataError(msg)
    wanted = None if places is None else sorted(set(places))
    asked = {"span": span, "timezone": timezone, "places": wanted, "transparent": transparent}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM],
            input=orjson.dumps(asked) + b"\n" + content,
            env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            capture_output=True, check=True, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        msg = f"calendar: must be readable within {PROCESSOR_SECONDS} s of processor time and {MEMORY >> 20} MiB"
        raise DataError(msg) from None
    except OSError:  # no process can be started now
        raise DataError("calendar: cannot be read, because the process that reads it cannot be started") from None
    answer = orjson.loads(done.stdout)
    if "refused" in answer:
        raise DataError(answer["refused"])
    return [Occurrence(*each) for each in answer["occurrences"]]


def whole_days(content: bytes, years: tuple[int, int]) -> list[str]:
    """Return the dates that whole-day events cover, such as holidays, from a first year to a last one.

    Raises:
        DataError: as for ``read_calendar``.
        UsageError: the optional libraries are not installed.
    """
    first, last = date(years[0], 1, 1), date(years[1] + 1, 1, 1)
    span = (_micros(first, ZoneInfo("UTC")), _micros(last, ZoneInfo("UTC")))
    found = read_calendar(content, span, "UTC", transparent=True)
    covered = (day for each in found if each.whole_days for day in range(each.start // DAY, each.end // DAY))
    dates = (EPOCH.date() + timedelta(days=day) for day in sorted(set(covered)))
    return [day.isoformat() for day in dates if first <= day < last]


# In the process.


def main(processor_seconds: int = PROCESSOR_SECONDS, most_occurrences: int = MOST_OCCURRENCES) -> NoReturn:
    """Answer one request on standard input; run in a process of its own."""
    resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    asked = orjson.loads(sys.stdin.buffer.readline())
    answer: JsonObject
    try:
        answer = {"occurrences": sorted(map(tuple, _occurrences(sys.stdin.buffer.read(), asked, most_occurrences)))}
    except DataError as error:
        answer = {"refused": str(error)}
    except MemoryError:
        sys.exit(1)
    except Exception:  # whatever the libraries raise: its text may show the file
        answer = {"refused": "calendar: must be an iCalendar file (RFC 5545) whose times and rules can be read"}
    sys.stdout.buffer.write(orjson.dumps(answer))
    sys.exit(0)


def _occurrences(content: bytes, asked: JsonObject, most: int) -> Iterator[Occurrence]:
    import icalendar  # noqa: PLC0415 - optional, and of this process only
    import recurring_ical_events  # noqa: PLC0415

    if content.upper().count(b"BEGIN:") > MOST_COMPONENTS:
        msg = f"calendar: must have at most {MOST_COMPONENTS} components"
        raise DataError(msg)
    calendar = icalendar.Calendar.from_ical(content)
    zone = ZoneInfo(asked["timezone"])
    _refuse(calendar, zone)
    first, last = asked["span"]
    around = [EPOCH + timedelta(microseconds=at) for at in (first, last)]
    found = recurring_ical_events.of(calendar).between(around[0] - _DAY, around[1] + _DAY)
    if len(found) > most:
        msg = f"calendar: must have at most {most} occurrences within the days that are read"
        raise DataError(msg)
    for event in found:
        if _text(event, "STATUS").upper() == "CANCELLED":
            continue
        if _text(event, "TRANSP").upper() == "TRANSPARENT" and not asked["transparent"]:
            continue
        start, end = (max(0, min(_micros(each, zone), LATEST)) for each in (event.start, event.end))
        if start < last and end > first and start < end:
            for place in _places(_text(event, "LOCATION"), asked["places"]):
                yield Occurrence(start, end, place, not isinstance(event.start, datetime))


def _refuse(calendar: Calendar, zone: ZoneInfo) -> None:
    for event in calendar.walk("VEVENT"):
        if any(name in _TIMES for name, _ in event.errors):
            raise DataError("calendar: must have events whose times and rules can be read")
        for name in ("DTSTART", "DTEND"):
            moment: Any = event.get(name)
            if "TZID" in getattr(moment, "params", {}) and getattr(moment.dt, "tzinfo", None) is None:
                raise DataError("calendar: must have no event in a time zone that is neither known nor in the file")
        if _ends_before_start(event, zone):
            raise DataError("calendar: must have no event that ends before it starts")
        if "EXRULE" in event:
            raise DataError("calendar: must have no event with EXRULE")
        rules = event.get("RRULE", [])
        for rule in rules if isinstance(rules, list) else [rules]:
            if any(str(each).upper() not in _FREQUENCIES for each in rule.get("FREQ", [""])):
                msg = f"calendar: must have no event that recurs more than once a day ({', '.join(_FREQUENCIES)})"
                raise DataError(msg)
            if any(len(rule.get(part, [])) > 1 for part in _WITHIN_A_DAY):
                msg = f"calendar: must have no event with several times a day ({', '.join(_WITHIN_A_DAY)})"
                raise DataError(msg)


def _ends_before_start(event: Component, zone: ZoneInfo) -> bool:
    start, end, length = (getattr(event.get(name), "dt", None) for name in ("DTSTART", "DTEND", "DURATION"))
    if length is not None and length < timedelta():
        return True
    return end is not None and start is not None and _micros(end, zone) < _micros(start, zone)


def _text(event: Component, name: str) -> str:
    value = event.get(name, "")
    return str(value[0] if isinstance(value, list) else value)


def _micros(moment: date, zone: ZoneInfo) -> Micros:
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return (moment.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def _places(location: str, wanted: list[str] | None) -> list[str]:
    if wanted is None:
        return [""]
    if len(location) > LONGEST_PLACE:
        return []
    named = {location, *location.split(";"), *location.split(","), *location.replace(";", ",").split(",")}
    return sorted({name.strip() for name in named} & set(wanted))
