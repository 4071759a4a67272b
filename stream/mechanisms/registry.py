"""The registry of count mechanisms by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.base import CountMechanism, Parameters, TickInput, Values, WeekSlot, noisy_of
from stream.mechanisms.exact import Ints
from stream.mechanisms.filter.history import DayRevision, HourRevision, RevisedWindow, RevisionInput, window_of
from stream.mechanisms.filter.mechanism import Revisable, filtered
from stream.mechanisms.grouper import SMOOTHERS
from stream.mechanisms.laplace import laplace
from stream.mechanisms.noise_labels import Context, counts_digest
from stream.mechanisms.noise_parameters import laplace_noise, noise_chain
from stream.mechanisms.pegasus import pegasus
from stream.mechanisms.wevent import ba, sample, uniform
from stream.policy.counts import Span
from stream.policy.mechanisms import mechanism_named, names_where
from stream.records import DAY, MINUTE, Micros

REGISTERED: dict[str, Callable[[Parameters], CountMechanism]] = {
    "laplace": laplace,
    "pegasus": pegasus,
    "filter": filtered,
    "uniform": uniform,
    "sample": sample,
    "ba": ba,
}
"""Name of each mechanism declared in ``policy.mechanisms.MECHANISMS`` -> the function that makes it."""


def count_mechanism(
    name: str,
    *,
    epsilon: Fraction,
    max_counts: Sequence[int],
    smoother: str = "median",
    calendar: bool = True,
    windows: int = 1,
) -> CountMechanism:
    """Return the mechanism of this name with Laplace noise, over as many zones as ``max_counts`` has entries.

    Raises:
        UsageError: unknown mechanism or smoother, or an epsilon that the mechanism does not support.
    """
    mechanism_named(name)
    return mechanism_of(name, Parameters(laplace_noise(epsilon), tuple(max_counts), smoother, calendar, windows))


def mechanism_of(name: str, parameters: Parameters) -> CountMechanism:
    """Return the mechanism of this name in the registry for these parameters.

    Raises:
        UsageError: unknown mechanism or smoother, a kind of noise that the mechanism does not declare, or a
            parameter that it does not support.
    """
    declared = mechanism_named(name)
    if parameters.noise.kind not in declared.noises:
        raise UsageError(f"noise must be {' or '.join(declared.noises)} with {name}, got {parameters.noise.kind}")
    if parameters.smoother not in SMOOTHERS:
        raise UsageError(f"smoother must be one of {', '.join(SMOOTHERS)}, got {parameters.smoother!r}")
    if name not in REGISTERED:
        raise UsageError(f"mechanism must be one of {', '.join(REGISTERED)}, got {name!r}")
    return REGISTERED[name](parameters)


@dataclass(frozen=True)
class ReleaseContext:
    """Labels, keys and calendar for the windows of a table."""

    site: str
    release: str
    zones: tuple[str, ...]
    day_key: Callable[[int], bytes]
    """Secret of a key day, given as days since 1970-01-01."""
    slot: Callable[[Micros], WeekSlot]
    """Position of a window's end in the site's local week."""
    window: Micros = 5 * MINUTE
    attempt: int = 1

    def input_of(self, mechanism: CountMechanism, end: Micros, counts: Ints) -> TickInput:
        """Return a mechanism's input for one window, for a release with a single audience."""
        context = Context(self.site, self.release, end, self.attempt, self.zones)
        key, law = self.day_key(self.key_day(end)), mechanism.noise
        noise = noise_chain(key, context, counts_digest(counts), [law], len(self.zones))[law]
        return TickInput(counts, noise, key, context, self.slot(end))

    def key_day(self, end: Micros) -> int:
        """Return the key day of a window: the UTC day in which it starts."""
        return (end - self.window) // DAY


def release_counts(
    mechanism: CountMechanism,
    naming: ReleaseContext,
    times: Ints,
    counts: Ints,
    progress: Callable[[int], None] | None = None,
) -> tuple[Ints, Ints]:
    """Return (values, half widths) of a whole table of counts, equal to those of the stream.

    Args:
        mechanism: from :func:`count_mechanism`, over ``len(naming.zones)`` zones.
        naming: labels, keys and calendar.
        times: ends of the windows, strictly ascending microseconds, shape [T].
        counts: shape [T, zones], at least 0.
        progress: called with the number of finished windows.

    Raises:
        UsageError: shapes do not fit, times do not ascend, or a count is negative.
    """
    values, widths = np.zeros_like(counts), np.zeros_like(counts)
    for row, (_, _, made) in enumerate(_windows(mechanism, naming, times, counts)):
        values[row], widths[row] = made.values, made.half_width
        if progress is not None:
            progress(row + 1)
    return values, widths


def revised_counts(
    mechanism: CountMechanism,
    naming: ReleaseContext,
    times: Ints,
    counts: Ints,
    span: Span,
    progress: Callable[[int], None] | None = None,
) -> tuple[Ints, Ints]:
    """Return (values, half widths) of a table as the stream returns them after revision.

    The last windows, which a stream would not have revised yet, are revised from what is known.

    Args:
        mechanism: as for :func:`release_counts`.
        naming: likewise.
        times: likewise.
        counts: likewise.
        span: when they are revised: an hour after their hour, or when their day is over.
        progress: called with the number of finished windows.

    Raises:
        UsageError: as for :func:`release_counts`, or the mechanism's values cannot be revised.
    """
    if not isinstance(mechanism, Revisable):
        raise UsageError(f"revise must be used with {' or '.join(names_where('revisable'))}")
    revision: HourRevision | DayRevision = HourRevision(mechanism) if span == "1h" else DayRevision(mechanism)
    revision_state: Any = revision.initial()
    made, after = list[RevisedWindow](), mechanism.initial()
    for row, (before, after, fresh) in enumerate(_windows(mechanism, naming, times, counts)):  # noqa: B007
        end = int(times[row])
        window = window_of(end, Fraction(1), noisy_of(fresh), naming.slot(end))
        revision_state, due = revision.step(revision_state, RevisionInput(end, window, before, fresh))
        made += due
        if progress is not None:
            progress(row + 1)
    revised = [each.values for each in (*made, *revision.finish(revision_state, after))]
    return np.array([v.values for v in revised]), np.array([v.half_width for v in revised])


def _windows(
    mechanism: CountMechanism, naming: ReleaseContext, times: Ints, counts: Ints
) -> Iterator[tuple[Any, Any, Values]]:
    """Yield for each window the mechanism's states before and after it, and its publishable values."""
    _check(naming, times, counts)
    state, key_day = mechanism.initial(), None
    for end, row in zip((int(time) for time in times), counts, strict=True):
        if key_day != naming.key_day(end):
            state, key_day = mechanism.pause(state), naming.key_day(end)
        before = state
        state, [made] = mechanism.step(before, naming.input_of(mechanism, end, row))
        yield before, state, made


def _check(naming: ReleaseContext, times: Ints, counts: Ints) -> None:
    if counts.shape != (len(times), len(naming.zones)):
        raise UsageError(f"counts must have the shape {(len(times), len(naming.zones))}, got {counts.shape}")
    if counts.dtype != np.int64 or (counts < 0).any():
        raise UsageError("counts must be 64-bit integers of at least 0")
    if (np.diff(times) <= 0).any():
        raise UsageError("times must be strictly ascending")
