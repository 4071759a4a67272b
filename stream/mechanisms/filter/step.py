"""The regime-switching filter: exact Bayesian smoothing of noisy counts.

The whole price pays for the noise; the filter reads noisy values only and costs nothing. For each zone the filter
stores the joint posterior P(z, j, k) of the count z, the copy j and the regime of movement k. Copy 0 moves
freely; copy 1, where the calendar is on, is weighed by the usual counts of this hour. A tick mixes copies and
regimes, moves the counts, weighs them by the likelihood of the noisy value y, which is e**(-ε|y-z|) or
e**(-(y-z)²/2σ²), and returns the median. There is one joint posterior, not one per regime normalised apart: a regime
that was wrong for a while returns by mixing, so that the filter follows a jump after a quiet week at once.

A tick works on ranges of the counts that are not practically excluded (``support``); the mass of the calendar's copy
beyond them is computed separately (``support.above``, ``support.below``). Inside a tick, cells have the shape
[16, copies, counts, zones]: regimes come first, since mixing works on them most. Counts are those of ranges: nothing
moves in from beyond their ends; what moves out is dropped when counts are weighed, or computed separately. Zeros after
a range do not change a sum over counts.

Bytes do not depend on the machine: elementwise + − × ÷ in a fixed order, own exp and ln, sums in a fixed
order (halves, or running), and a tolerance where a sum decides an integer. P is computed and stored in 32 bits, and
between ticks values below 1e-9 of an even share of the counts are 0. Compared with the formulas in 64 bits, over whole
grids and without omissions, a posterior differs by at most 2e-6 in total variation, and medians and quantiles differ
only where a cumulated share is that close to its level.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.base import WeekSlot
from stream.mechanisms.exact import Floats, Ints, half_widths, ordered_sum, quantiles
from stream.mechanisms.filter import calendar as filter_calendar
from stream.mechanisms.filter import support
from stream.mechanisms.filter.model import LEAST_CELL, REGIMES, Cells, likelihood_at, none_counted, rates, stationary
from stream.mechanisms.filter.posterior import TAKE, Posterior, joined
from stream.mechanisms.filter.state import FilterState, Prepared, StateForm
from stream.mechanisms.filter.support import Chunk, CountRanges, Grids, chunks, count_ranges, stored_posterior
from stream.mechanisms.filter.updates import mix, move, observe, running_sum, switched, weigh_by_calendar
from stream.mechanisms.noise_parameters import NoiseParameter

BAND = 0.96
"""Probability of a half-width by the posterior. Published bands are to cover 95 %; a posterior is that of a model,
which no building follows exactly, so they are a little wider (measured: ``docs/bands.md``)."""
_NEGLIGIBLE = 1e-9
LARGEST_CAPACITY = 1 << 20


class FilterItem(NamedTuple):
    """The filter's input for a tick."""

    noisy: Ints
    """Counts with noise, shape [zones]."""
    slot: WeekSlot
    """Its position in the local week; unused where the calendar is off."""


class Estimate(NamedTuple):
    """The filter's output for a tick; each of shape [zones]."""

    median: Ints
    half_width: Ints
    """The smallest one within which the count lies with probability ``BAND``, by the posterior."""


@dataclass(frozen=True)
class RegimeFilter:
    """The filter for one noise over all zones of a site, an operator of the stream."""

    capacities: tuple[int, ...]
    """Each zone's largest count, from the policy: a size that depended on data would reveal them."""
    noise: NoiseParameter
    calendar: bool = True

    def __post_init__(self) -> None:
        if not self.capacities:
            raise UsageError("capacities must not be empty")
        for place, capacity in enumerate(self.capacities):
            if not 1 <= capacity <= LARGEST_CAPACITY:
                raise UsageError(f"capacities[{place}] must be in 1 … {LARGEST_CAPACITY}, got {capacity}")

    @cached_property
    def grids(self) -> Grids:
        """The layout of all zones' counts in arrays, and their movement."""
        return Grids(self.capacities)

    @cached_property
    def form(self) -> StateForm:
        """The shapes of the states, and their byte form."""
        return StateForm(self.grids, self.calendar)

    def initial(self) -> FilterState:
        """Return the initial state: all counts equally likely, regimes by their stationary distribution."""
        return self.form.initial()

    def shape(self, capacity: int, zones: int) -> tuple[int, int, int, int]:
        """Return the shape of P for this number of zones of one capacity, over all counts."""
        return REGIMES, capacity + 1, self.form.copies, zones

    def dense(self, state: FilterState) -> list[Cells]:
        """Return P of all counts, by capacity, shape [16, C+1, copies, zones]; zeros before the first tick."""
        return [state.posterior.dense(zones, capacity) for capacity, zones in self.grids.families]

    def step(self, state: FilterState, item: FilterItem) -> tuple[FilterState, list[Estimate]]:
        """Process one tick of all zones; return the state after it and the estimates, in registry order."""
        zones = len(self.capacities)
        estimate = Estimate(np.zeros(zones, np.int64), np.zeros(zones, np.int64))
        processed = count_ranges(state.posterior, self.grids.capacities, item.noisy, self.noise)
        prepared = self._prepared(state, item.slot)
        tails = self._tails(prepared, processed)
        parts: list[tuple[Ints, Posterior]] = []
        for chunk in chunks(processed):
            p = self._predicted(chunk, state, prepared, tails)
            capacities, noisy = self.grids.capacities[chunk.zones], item.noisy[chunk.zones]
            likelihood = likelihood_at(self.noise, capacities, noisy, chunk.counts) * chunk.is_inside
            weights = observe(p, likelihood)
            of_counts = ordered_sum(weights)
            (median,) = quantiles(of_counts, 0.5)
            estimate.median[chunk.zones] = chunk.low + median
            estimate.half_width[chunk.zones] = half_widths(of_counts, median, BAND)
            parts.append((chunk.zones, self._stored_posterior(chunk, p)))
        return FilterState(True, joined(parts), state.learnt, prepared), [estimate]

    def _prepared(self, state: FilterState, slot: WeekSlot) -> Prepared:
        """Return transition rates and the calendar's weights for a tick: those of the tick before, if they hold."""
        before = state.prepared
        if before and before.is_for(state.learnt, slot):
            return before
        rate = before.rate if before and before.learnt is state.learnt else self._rates(state)
        return Prepared(state.learnt, slot, rate, self._weight(state, slot) if self.calendar else None)

    def _rates(self, state: FilterState) -> Cells:
        """Return the transition rates of every zone, shape [76, zones]."""
        counted = none_counted(len(self.capacities))
        for (_, zones), learnt in zip(self.grids.families, state.learnt, strict=True):
            counted[:, zones] = learnt.counted
        return rates(counted)

    def _weight(self, state: FilterState, slot: WeekSlot) -> Cells:
        """Return the calendar's weight h of every count of every zone, in the layout of ``Grids``."""
        weight = self.grids.zeros(np.float32)
        calendars = [each.calendar for each in state.learnt if each.calendar]
        for calendar, (capacity, _), h in zip(calendars, self.grids.families, self.grids.parts(weight), strict=True):
            h[:] = filter_calendar.expect(calendar, capacity, slot, self.noise.inverse_scale)
        return weight

    def _tails(self, prepared: Prepared, processed: CountRanges) -> tuple[Floats, Floats] | None:
        """Return the weighed mass below and above each range, for mass 1 at its ends; shape [15, zones] each.

        Only the calendar's copy has some: None where it is off.
        """
        if prepared.weight is None:
            return None
        below, above = np.zeros((2, REGIMES - 1, len(self.capacities)))
        for (_, zones), h in zip(self.grids.families, self.grids.parts(prepared.weight), strict=True):
            below[:, zones] = support.below(h, processed.low[zones])
            above[:, zones] = support.above(h, (processed.low + processed.width)[zones])
        return below, above

    def _predicted(
        self, chunk: Chunk, state: FilterState, prepared: Prepared, tails: tuple[Floats, Floats] | None
    ) -> Cells:
        """Return P of a chunk before the observation: copies mix, regimes switch, counts move, copy 1 is weighed."""
        if not state.started:
            each = stationary().astype(np.float32)[:, None, None, None] * chunk.is_inside  # all counts equally likely
            return np.repeat(each, self.form.copies, axis=1)
        columns = state.posterior.columns(chunk.zones, chunk.counts)
        p = np.take(state.posterior.values, columns, axis=1, mode=TAKE).reshape(
            REGIMES, self.form.copies, *columns.shape
        )
        mix(p)
        p = switched(p, prepared.rate[:, chunk.zones])
        norm, up, down = self.grids.kernels(chunk)
        before = running_sum(p[1:, -1].swapaxes(0, 1))
        p *= norm
        p += LEAST_CELL * chunk.is_inside.astype(np.float32)
        move(p, up, down)
        if tails and prepared.weight is not None:
            ends = p[1:, 1, 0], p[1:, 1][:, chunk.width - 1, np.arange(len(chunk.zones))]
            beyond = sum(end * tail[:, chunk.zones] for end, tail in zip(ends, tails, strict=True))
            weight = prepared.weight[self.grids.places(chunk)]
            weigh_by_calendar(p[1:, 1], weight, before, np.asarray(beyond, np.float32))
        return p

    def _stored_posterior(self, chunk: Chunk, p: Cells) -> Posterior:
        """Return the stored posterior of a chunk until the next tick."""
        least = _NEGLIGIBLE / (self.grids.capacities[chunk.zones] + 1)
        is_kept = p >= least.astype(np.float32)
        p *= is_kept
        return stored_posterior(chunk, p, np.logical_or.reduce(is_kept, axis=(0, 1)))

    def encode(self, state: FilterState) -> bytes:
        """Return the stable byte form of a state."""
        return self.form.encode(state)

    def decode(self, data: bytes) -> FilterState:
        """Return the state of a byte form; DataError where it is not one of this filter."""
        return self.form.decode(data)
