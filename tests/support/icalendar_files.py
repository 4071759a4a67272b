"""iCalendar files for tests."""

from __future__ import annotations

NEEDLES = ("needle-title", "needle-person", "needle-text", "needle-host", "needle-note")
"""What a file says beside times and places; none of it may be kept."""


def event(start: str, *lines: str, place: str = "") -> str:
    """Return an event of an hour from a start such as ``20260302T090000Z``, with more lines and all needles."""
    title, person, text, host, note = NEEDLES
    own = [f"DTSTART:{start}" if start[0].isdigit() else f"DTSTART{start}", *lines]
    if not any(line.startswith(("DTEND", "DURATION")) for line in own) and "VALUE=DATE:" not in start:
        own.append("DURATION:PT1H")
    more = [f"SUMMARY:{title}", f"ATTENDEE;CN={person}:mailto:{person}@example.org", f"DESCRIPTION:{text}"]
    more += [f"ORGANIZER:mailto:{host}@example.org", f"COMMENT:{note}", f"LOCATION:{place}"]
    return "\r\n".join([*own, *more])


def calendar(*events: str) -> bytes:
    """Return a file of events."""
    parts = [
        f"BEGIN:VEVENT\r\nUID:{number}@example.org\r\nDTSTAMP:20260101T000000Z\r\n{each}\r\nEND:VEVENT\r\n"
        for number, each in enumerate(events)
    ]
    head = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//tests//rooms//EN\r\n"
    return f"{head}{''.join(parts)}END:VCALENDAR\r\n".encode()
