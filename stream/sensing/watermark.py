"""Up to where a site has been told of: sources, sessions and the site's watermark.

Each source (a controller, heard through a connector) says by heartbeats how far it has come. The site has
come as far as the slowest of its sources that is still heard; a source that falls more than the timeout
behind the fastest one is left out until it catches up. All of this is log time: nothing here knows what the
clock on the wall says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from stream.records import Heartbeat, Micros


@dataclass(slots=True)
class Voice:
    """What is remembered of one source."""

    session: int
    """The latest start of its connector that was seen, in batches or heartbeats."""
    sequence: int = -1
    """The greatest batch number of that session; -1 before its first batch."""
    watermark: Micros | None = None
    """Its greatest heartbeat, over all sessions; None before the first."""
    silences: list[tuple[Micros, Micros]] = field(default_factory=list)
    """(heartbeat, next heartbeat) where these lay too far apart: nobody vouches for what is between."""


@dataclass(slots=True)
class SiteClock:
    """The state of a site's time: its sources and the watermark that follows from them."""

    voices: dict[str, Voice] = field(default_factory=dict)
    first: Micros | None = None
    """Watermark of the first heartbeat heard from any source."""
    watermark: Micros | None = None
    """The site's watermark; None until it exists, then never going back."""


def admit(clock: SiteClock, source: str, session: int, sequence: int) -> str | None:
    """Take note of a batch; return None when it is new, else the reason for which it is dropped.

    Reasons: ``stale_session`` (the connector has restarted since), ``repeated_batch`` (this number or a
    later one of the same session was seen before).
    """
    voice = _voice(clock, source, session)
    if voice is None:
        return "stale_session"
    if sequence <= voice.sequence:
        return "repeated_batch"
    voice.sequence = sequence
    return None


def hear(clock: SiteClock, beat: Heartbeat, longest: Micros) -> bool:
    """Take note of a heartbeat; return False when it comes from a session that has been replaced.

    More than ``longest`` after the source's last one it ends a silence.
    """
    voice = _voice(clock, beat.source, beat.session)
    if voice is None:
        return False
    if clock.first is None:
        clock.first = beat.watermark
    if voice.watermark is None or beat.watermark > voice.watermark:
        if voice.watermark is not None and beat.watermark - voice.watermark > longest:
            voice.silences.append((voice.watermark, beat.watermark))
        voice.watermark = beat.watermark
    return True


def _voice(clock: SiteClock, source: str, session: int) -> Voice | None:
    voice = clock.voices.get(source)
    if voice is None:
        voice = clock.voices[source] = Voice(session)
    elif session > voice.session:
        voice.session, voice.sequence = session, -1
    elif session < voice.session:
        return None
    return voice


def settle(clock: SiteClock, sources: tuple[str, ...], timeout: Micros) -> None:
    """Bring the site's watermark up to date with its sources' heartbeats.

    It comes into being when every listed source has been heard, or when the greatest heartbeat is ``timeout``
    past the first one heard. From then on it is the least over the sources within ``timeout`` of the
    greatest, and it never goes back.
    """
    heard = [mark for mark in _marks(clock, sources) if mark is not None]
    if not heard or clock.first is None:
        return
    greatest = max(heard)
    if clock.watermark is None and len(heard) < len(sources) and greatest - clock.first < timeout:
        return
    least = min(mark for mark in heard if greatest - mark <= timeout)
    if clock.watermark is None or least > clock.watermark:
        clock.watermark = least


def coverage(clock: SiteClock, sources: tuple[str, ...], tick: Micros, width: Micros) -> Fraction:
    """Return the share of the listed sources whose heartbeats reached the window (tick - width, tick].

    A source that was silent during part of it does not count, though later heartbeats lie beyond it.
    """
    voices = (clock.voices.get(source) for source in sources)
    reached = sum(voice is not None and _vouches(voice, tick - width, tick) for voice in voices)
    return Fraction(reached, len(sources))


def _vouches(voice: Voice, start: Micros, end: Micros) -> bool:
    silent = any(last < end and start < first for last, first in voice.silences)
    return voice.watermark is not None and voice.watermark >= end and not silent


def forget_silences(clock: SiteClock, before: Micros) -> None:
    """Let go of silences that no window to come lies in."""
    for voice in clock.voices.values():
        if voice.silences:
            voice.silences = [silence for silence in voice.silences if silence[1] > before]


def _marks(clock: SiteClock, sources: tuple[str, ...]) -> Iterable[Micros | None]:
    for source in sources:
        voice = clock.voices.get(source)
        yield None if voice is None else voice.watermark


def to_plain(clock: SiteClock) -> list[object]:
    """Return the clock as lists, numbers and strings, in one fixed order."""
    voices = [[name, v.session, v.sequence, v.watermark, v.silences] for name, v in sorted(clock.voices.items())]
    return [clock.first, clock.watermark, voices]


def from_plain(
    plain: tuple[Micros | None, Micros | None, list[tuple[str, int, int, Micros | None, list[list[Micros]]]]],
) -> SiteClock:
    """Return the clock of which ``to_plain`` made ``plain``."""
    first, watermark, rows = plain
    voices = {
        name: Voice(session, at, mark, [(last, next_) for last, next_ in silences])
        for name, session, at, mark, silences in rows
    }
    return SiteClock(voices, first, watermark)
