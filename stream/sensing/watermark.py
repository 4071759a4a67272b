"""How far each source has reported: sessions, the site's watermark, and who listened when.

Each source (a controller, reported on by a connector) says by heartbeats how far it has come. The site has
come as far as the slowest of its sources that still reports; a source that falls more than the timeout behind
the fastest one is left out until it catches up. A heartbeat also says since when its connector has listened
without a break. Coverage is read from that alone: it never depends on whether anything was heard, for what is
heard is people. All of this is log time: nothing here knows what the clock on the wall says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from stream.records import Heartbeat, Micros

BREAKS_REMEMBERED = 64
"""So many stretches of listening are kept of a source; older ones vouch for nothing any more."""


@dataclass(slots=True)
class SourceProgress:
    """What is remembered of one source."""

    session: int
    """The latest start of its connector that was seen, in batches or heartbeats."""
    sequence: int = -1
    """The greatest batch number of that session; -1 before its first batch."""
    watermark: Micros | None = None
    """Its greatest heartbeat, over all sessions; None before the first."""
    listened: list[tuple[Micros, Micros]] = field(default_factory=list)
    """(since, until), in order and apart: the stretches for which its heartbeats vouch."""
    vouches_from: Micros | None = 0
    """It vouches for nothing before this; None: part of its log was lost, and it has not reported since."""


@dataclass(slots=True)
class SiteClock:
    """The state of a site's time: its sources and the watermark that follows from them."""

    progress: dict[str, SourceProgress] = field(default_factory=dict)
    first: Micros | None = None
    """Watermark of the first heartbeat of any source."""
    watermark: Micros | None = None
    """The site's watermark; None until it exists, then never going back."""


def admit(clock: SiteClock, source: str, session: int, sequence: int) -> str | None:
    """Take note of a batch; return None when it is new, else the reason for which it is dropped.

    Reasons: ``stale_session`` (the connector has restarted since), ``repeated_batch`` (this number or a
    later one of the same session was seen before).
    """
    progress = _progress(clock, source, session)
    if progress is None:
        return "stale_session"
    if sequence <= progress.sequence:
        return "repeated_batch"
    progress.sequence = sequence
    return None


def record_heartbeat(clock: SiteClock, beat: Heartbeat) -> bool:
    """Take note of a heartbeat; return False when it comes from a session that has been replaced."""
    progress = _progress(clock, beat.source, beat.session)
    if progress is None:
        return False
    if clock.first is None:
        clock.first = beat.watermark
    if progress.watermark is None or beat.watermark > progress.watermark:
        progress.watermark = beat.watermark
        if progress.vouches_from is None:
            progress.vouches_from = beat.watermark
        if beat.listened_since is not None:
            _extend(progress.listened, max(beat.listened_since, progress.vouches_from), beat.watermark)
    return True


def _extend(listened: list[tuple[Micros, Micros]], since: Micros, until: Micros) -> None:
    """Add the stretch from ``since`` to ``until``, which is later than all there are, in place."""
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


def settle(clock: SiteClock, sources: tuple[str, ...], timeout: Micros) -> None:
    """Bring the site's watermark up to date with its sources' heartbeats.

    It comes into being when every listed source has reported, or when the greatest heartbeat is ``timeout``
    past the first one. From then on it is the least over the sources within ``timeout`` of the greatest, and
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
    """Return the share of the listed sources that vouch for the whole window (start, end]."""
    listed = (clock.progress.get(source) for source in sources)
    covering = sum(progress is not None and _covers(progress, start, end) for progress in listed)
    return Fraction(covering, len(sources))


def _covers(progress: SourceProgress, start: Micros, end: Micros) -> bool:
    return any(since <= start and end <= until for since, until in progress.listened)


def lose(clock: SiteClock, sources: tuple[str, ...]) -> None:
    """Take note that part of the log is gone: each source vouches only from its next heartbeat on."""
    for source in sources:
        progress = clock.progress.setdefault(source, SourceProgress(-1))
        progress.listened, progress.vouches_from = [], None


def forget_listened(clock: SiteClock, before: Micros) -> None:
    """Let go of what no window that begins at ``before`` or later needs."""
    for progress in clock.progress.values():
        progress.listened = [stretch for stretch in progress.listened if stretch[1] > before]


def _marks(clock: SiteClock, sources: tuple[str, ...]) -> Iterable[Micros | None]:
    for source in sources:
        progress = clock.progress.get(source)
        yield None if progress is None else progress.watermark


def newest_session(clock: SiteClock) -> Micros:
    """Return the latest session that any source has had, -1 before the first."""
    return max((progress.session for progress in clock.progress.values()), default=-1)


def reached(clock: SiteClock) -> Micros:
    """Return the time that a site has come to by its own clock: watermark or newest session, 0 before both."""
    return max(newest_session(clock), clock.watermark or 0, 0)


def to_plain(clock: SiteClock) -> list[object]:
    """Return the clock as lists, numbers and strings, in one fixed order."""
    rows = [
        [name, p.session, p.sequence, p.watermark, p.listened, p.vouches_from]
        for name, p in sorted(clock.progress.items())
    ]
    return [clock.first, clock.watermark, rows]


def from_plain(plain: list[Any], *, form: int) -> SiteClock:
    """Return the clock of which ``to_plain`` made ``plain``.

    Form 1 knew no ``listened_since``: what it says of silences vouches for nothing.
    """
    first, watermark, rows = plain
    progress = {
        name: SourceProgress(session, at, mark)
        if form == 1
        else SourceProgress(session, at, mark, [(since, until) for since, until in rest[0]], rest[1])
        for name, session, at, mark, *rest in rows
    }
    return SiteClock(progress, first, watermark)
