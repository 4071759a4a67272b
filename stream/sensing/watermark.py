"""A site's clock: watermark, coverage, and the bound on clock skew.

Each source (a controller, on which a connector reports) sends heartbeats that contain its progress. The site's
watermark is that of the slowest source that still reports. A source that falls more than the timeout behind the fastest
one is ignored until it catches up. A heartbeat also contains the time since which its connector has listened without a
break. Coverage is computed from that time alone. It never depends on the arrival of observations, because observations
are people. All times are log time: this module does not read the wall clock.

A log stamps every message when it appends it (Kafka's append time, the receive time in the embedded store). A
connector's clock is ahead of that stamp by no more than its error, so no time in a message may lie further than
``MAX_CLOCK_SKEW`` beyond its stamp. Otherwise one forged or mistaken heartbeat could close the windows of future
years, and one session of the future could exclude every later connector. The stamp is stored with the message, so
processing the log again gives the same decisions. Recordings have no stamp and no bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from stream.records import MINUTE, Columns, CountedWindow, Heartbeat, Message, Micros, ObservationBatch, Rejected

BREAKS_REMEMBERED = 64
"""Listening intervals stored per source; older ones no longer count for coverage."""
MAX_CLOCK_SKEW: Micros = 5 * MINUTE
"""A message or row whose time is further than this ahead of the message's stamp is rejected."""
REASON = "ahead"


@dataclass(slots=True)
class SourceProgress:
    """The progress of one source."""

    session: int
    """The latest start of its connector, from batches or heartbeats."""
    sequence: int = -1
    """The greatest batch number of that session; -1 before its first batch."""
    watermark: Micros | None = None
    """Its greatest heartbeat, over all sessions; None before the first."""
    listened: list[tuple[Micros, Micros]] = field(default_factory=list)
    """(since, until), ordered and disjoint: the intervals in which its connector listened, by its heartbeats."""
    covers_from: Micros | None = 0
    """The source covers no time before this; None: part of its log was lost, and it has not reported since."""


@dataclass(slots=True)
class SiteClock:
    """The state of a site's time: its sources and the watermark that follows from them."""

    progress: dict[str, SourceProgress] = field(default_factory=dict)
    first: Micros | None = None
    """Watermark of the first heartbeat of any source."""
    watermark: Micros | None = None
    """The site's watermark; None until it exists. It never goes back."""


def admit(clock: SiteClock, source: str, session: int, sequence: int) -> str | None:
    """Record a batch; return None if it is new, otherwise the reason why it is dropped.

    Reasons: ``stale_session`` (the connector has restarted since), ``repeated_batch`` (this number or a
    later one of the same session came before).
    """
    progress = _progress(clock, source, session)
    if progress is None:
        return "stale_session"
    if sequence <= progress.sequence:
        return "repeated_batch"
    progress.sequence = sequence
    return None


def record_heartbeat(clock: SiteClock, beat: Heartbeat) -> bool:
    """Record a heartbeat; return False if it comes from a session that has been replaced."""
    progress = _progress(clock, beat.source, beat.session)
    if progress is None:
        return False
    if clock.first is None:
        clock.first = beat.watermark
    if progress.watermark is None or beat.watermark > progress.watermark:
        progress.watermark = beat.watermark
        if progress.covers_from is None:
            progress.covers_from = beat.watermark
        if beat.listened_since is not None:
            _extend(progress.listened, max(beat.listened_since, progress.covers_from), beat.watermark)
    return True


def _extend(listened: list[tuple[Micros, Micros]], since: Micros, until: Micros) -> None:
    """Add the interval from ``since`` to ``until``, which is later than all others, in place."""
    if since >= until:
        return
    while listened and listened[-1][1] >= since:
        since = min(since, listened.pop()[0])
    listened.append((since, until))
    del listened[:-BREAKS_REMEMBERED]


def _progress(clock: SiteClock, source: str, session: int) -> SourceProgress | None:
    progress = clock.progress.get(source)
    if progress is None:
        progress = clock.progress[source] = SourceProgress(session)
    elif session > progress.session:
        progress.session, progress.sequence = session, -1
    elif session < progress.session:
        return None
    return progress


def update_watermark(clock: SiteClock, sources: tuple[str, ...], timeout: Micros) -> None:
    """Update the site's watermark from its sources' heartbeats.

    The watermark exists from the moment when every listed source has reported, or when the greatest heartbeat is
    ``timeout`` past the first one. It is the least heartbeat among the sources within ``timeout`` of the greatest, and
    it never goes back.
    """
    reported = [mark for mark in _marks(clock, sources) if mark is not None]
    if not reported or clock.first is None:
        return
    greatest = max(reported)
    if clock.watermark is None and len(reported) < len(sources) and greatest - clock.first < timeout:
        return
    least = min(mark for mark in reported if greatest - mark <= timeout)
    if clock.watermark is None or least > clock.watermark:
        clock.watermark = least


def coverage(clock: SiteClock, sources: tuple[str, ...], start: Micros, end: Micros) -> Fraction:
    """Return the share of the listed sources whose connectors listened throughout the window (start, end]."""
    listed = (clock.progress.get(source) for source in sources)
    covering = sum(progress is not None and _covers(progress, start, end) for progress in listed)
    return Fraction(covering, len(sources))


def _covers(progress: SourceProgress, start: Micros, end: Micros) -> bool:
    return any(since <= start and end <= until for since, until in progress.listened)


def mark_data_loss(clock: SiteClock, sources: tuple[str, ...]) -> None:
    """Record that part of the log is lost: each source covers time only from its next heartbeat on."""
    for source in sources:
        progress = clock.progress.setdefault(source, SourceProgress(-1))
        progress.listened, progress.covers_from = [], None


def remove_intervals(clock: SiteClock, before: Micros) -> None:
    """Remove the listening intervals that no window beginning at ``before`` or later needs."""
    for progress in clock.progress.values():
        progress.listened = [stretch for stretch in progress.listened if stretch[1] > before]


def _marks(clock: SiteClock, sources: tuple[str, ...]) -> Iterable[Micros | None]:
    for source in sources:
        progress = clock.progress.get(source)
        yield None if progress is None else progress.watermark


def has_begun(clock: SiteClock) -> bool:
    """Return whether any source has sent a heartbeat. A batch does not count: whether one comes depends on people."""
    return clock.first is not None


def newest_session(clock: SiteClock) -> Micros:
    """Return the latest session that any source has had, -1 before the first."""
    return max((progress.session for progress in clock.progress.values()), default=-1)


def newest_session_of(clock: SiteClock, source: str) -> Micros:
    """Return the latest session that a source has had, -1 before the first."""
    progress = clock.progress.get(source)
    return -1 if progress is None else progress.session


def present_time(clock: SiteClock) -> Micros:
    """Return a site's present time by its own clock: watermark or newest session, 0 before both."""
    return max(newest_session(clock), clock.watermark or 0, 0)


def to_plain(clock: SiteClock) -> list[object]:
    """Return the clock as lists, numbers and strings, in one fixed order."""
    rows = [
        [name, p.session, p.sequence, p.watermark, p.listened, p.covers_from]
        for name, p in sorted(clock.progress.items())
    ]
    return [clock.first, clock.watermark, rows]


def from_plain(plain: list[Any]) -> SiteClock:
    """Return the clock that ``to_plain`` wrote as ``plain``."""
    first, watermark, rows = plain
    progress = {
        name: SourceProgress(session, at, mark, [(since, until) for since, until in listened], vouches)
        for name, session, at, mark, listened, vouches in rows
    }
    return SiteClock(progress, first, watermark)


def bounded(message: Message, stamp: Micros | None) -> tuple[Message | None, list[Rejected]]:
    """Return the admissible part of a message, None if there is none, and rejections of times too far ahead."""
    if stamp is None:
        return message, []
    latest = stamp + MAX_CLOCK_SKEW
    for name, claimed in _claims(message):
        if claimed > latest:
            return None, [Rejected(message.source, REASON, name)]
    if not isinstance(message, ObservationBatch):
        return message, []
    columns = Columns.of(message.rows)
    if max(columns.times, default=latest) <= latest:
        return message, []
    early = [number for number, time in enumerate(columns.times) if time > latest]
    rows = columns.where(time <= latest for time in columns.times)
    return replace(message, rows=rows), [Rejected(message.source, REASON, f"rows[{number}].time") for number in early]


def _claims(message: Message) -> Iterator[tuple[str, Micros]]:
    """Yield the field and value of each time that the message as a whole has."""
    yield "session", message.session
    if isinstance(message, Heartbeat):
        yield "watermark", message.watermark
    elif isinstance(message, CountedWindow):
        yield "window_end", message.window_end
