"""AboveThreshold in runs: nodes beyond a threshold, at a price per run.

    symbol   here               meaning
    f_t      counts             a node's count at a window; the device's day changes it by one at most
    T        thresholds         public
    ε_run    law.epsilon        price of one run
    ρ        a node's ``rho``   DLap(ε_run/2), drawn when a run is opened, kept while it is open
    ν_t                         DLap(ε_run/2), drawn for each window
    K        ticks              windows of a day at which one device counts at most, at one node each

A run tests at each window whether m_t + ν_t >= ρ, with the margin m_t = ±(f_t - T) and public constants. It ends when
it crosses, and with the privacy day. Only crossings are published: no count, and no ρ, ever is.

**The cost of a run** (Dwork, Roth 2014, Algorithms 1 and 2; Lyu, Su, Li 2017). Let f' be the counts with one device's
day more, so that 0 <= m'_t - m_t <= 1 at all windows where the run tests "above" (and -1 <= m'_t - m_t <= 0 where it
tests "below", which is the same with f and f' exchanged). Take a transcript of silence before window k and a crossing
at k, and let G(x) = Pr[ν < x], S = 1 - G; its probability is Σ_ρ Pr[ρ] Π_{t<k} G(ρ - m_t) S(ρ - m_k).
(1) From m to m': substitute ρ + 1 for ρ. G(ρ + 1 - m'_t) >= G(ρ - m_t), as m'_t <= m_t + 1. S(ρ + 1 - m'_k) >=
S(ρ + 1 - m_k) >= e^(-ε_run/2) S(ρ - m_k), as m'_k >= m_k. Pr[ρ + 1] >= e^(-ε_run/2) Pr[ρ]. Together e^(-ε_run).
(2) From m' to m: keep ρ. G(ρ - m_t) >= G(ρ - m'_t), and S(ρ - m_k) >= S(ρ - m'_k + 1) >= e^(-ε_run/2) S(ρ - m'_k).
Together e^(-ε_run/2).
A run that never crosses lacks the factor of S: it still costs ε_run/2, so it is charged like any other, on each day on
which it is open. Nothing is doubled, because all of a device's changes have the same sign. That holds for a whole
privacy day added or removed under the day's cut and its contribution bound, and for nothing smaller: moving a part of a
day shifts which of the device's ticks count, and is priced as a day removed and another added.

**The cost of a day.** Earlier answers, clock and schedule determine which run is tested at a window (up while the state
is below, down while it is above), and at each window a node tests at most one run. So the probability of a day's
answers is a product over runs. Two neighbouring days differ in the factors of only those runs in which the device
changed a window: at most K of them, since it changes K windows at one node each, and at most as many as were opened. A
day of n opened runs costs min(K, n) ε_run; n is at most events x vectors x nodes, since each direction crosses
``events`` times at most and no run is opened after that. (The usual (events + 1) ε_run per vector includes a run that
stays open after the last event: here there is none, as its answers could not be published.)

Never published: counts, ρ, ν, the distance to a threshold. The state contains ρ and is as restricted as a count.

**States of a node** on one privacy day, which begins with "below, no run". A crossing starts the cool-down: the last
answer is repeated and nothing is tested. "At once" means that the rows of the next state apply to the same window.

    state            event                                   next                     answer
    below            the schedule does not query the node    the same                 none (unbooked)
    above            the schedule does not query the node    below, no run            none (unbooked)
    below, no run    its alerts of the day are used up       the same                 none (events)
                     the day's budget pays no further run    the same                 none (budget)
                     otherwise                               below, run open at once
    below, run open  m_t + ν_t >= ρ                          above, no run            above
                     m_t + ν_t < ρ                           the same                 below
    above, no run    no hysteresis, and the cool-down over   below, no run at once
                     its ends of alerts are used up          the same                 none (events)
                     the day's budget pays no further run    the same                 none (budget)
                     otherwise                               above, run open at once
    above, run open  m_t + ν_t >= ρ                          below, no run            below
                     m_t + ν_t < ρ                           the same                 above
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from stream.domains import Draw, Magic
from stream.errors import DataError, UsageError
from stream.mechanisms.exact import Ints
from stream.mechanisms.noise import discrete_laplace
from stream.mechanisms.noise_labels import Context, counts_digest
from stream.mechanisms.run_distribution import RunDistribution
from stream.records import Micros

EVENTS, BUDGET, UNBOOKED = "events", "budget", "unbooked"
"""Why a node has no answer: its events of the day are used up, the day's budget opens no further run, or the schedule
does not query it."""
_MAGIC, _OWNER, _FIELDS = Magic.SPARSE_VECTOR, 16, 6


@dataclass(slots=True)
class Node:
    """State of one node on the current day (restricted: ``rho``)."""

    above: bool = False
    """Whether an alert lasts."""
    ups: int = 0
    downs: int = 0
    """Crossings so far, counted apart."""
    waits: Micros = 0
    """Nothing is queried before this instant."""
    open: bool = False
    """Whether a run is open."""
    rho: int = 0
    """ρ of the open run."""


@dataclass(slots=True)
class Runs:
    """The runs of one privacy day."""

    day: int
    """Number of the privacy day; -1 before the first."""
    opened: int
    """Runs opened so far on this day, over all nodes."""
    nodes: list[Node]


class SparseVectorInput(NamedTuple):
    """The mechanism's input for one window."""

    counts: Ints
    """One per node."""
    end: Micros
    day: int
    scheduled: tuple[bool, ...]
    """Whether the schedule queries a node."""
    key: bytes
    context: Context


class SparseVectorOutput(NamedTuple):
    """The published answers for one window, and their cost."""

    above: tuple[bool | None, ...]
    """One per node; None where it has no answer."""
    denied: dict[int, str]
    """Node without an answer -> why."""
    charged: int
    """Number of runs that one device's day is charged for with this window."""


@dataclass(frozen=True)
class SparseVector:
    """A threshold at each of several nodes."""

    run_distribution: RunDistribution
    thresholds: tuple[int, ...]
    above: bool
    """Whether a count above its threshold is the event, or one below it."""
    shift: int
    """Number of devices by which alerts come early, so that an event is rarely missed."""
    events: int
    """Largest number of alerts per day, and of their ends, at each node."""
    ticks: int
    """K."""
    cooldown: Micros = 0
    """Time after a crossing during which nothing is queried."""
    hysteresis: int | None = None
    """An alert ends when a count is this far on the other side, by a run of its own; None: with its cool-down."""
    most_runs: int | None = None
    """Number of runs that a day's budget pays; None: all possible runs."""
    terms: str = field(default="", repr=False)
    """Digest of everything that a day is paid for: a state with other terms does not belong to this mechanism."""

    def __post_init__(self) -> None:
        if not self.thresholds or self.events < 1 or self.ticks < 1:
            raise UsageError("thresholds, events and ticks must be at least one")

    def initial(self) -> Runs:
        """Return the state before the first day."""
        return self._new_day(-1)

    def _new_day(self, day: int) -> Runs:
        return Runs(day, 0, [Node() for _ in self.thresholds])

    def step(self, state: Runs, item: SparseVectorInput) -> tuple[Runs, list[SparseVectorOutput]]:
        """Query every node that may be queried; the first window of a day ends all runs of the day before."""
        if item.day != state.day:
            state = self._new_day(item.day)
        digest = counts_digest(item.counts, np.array([*self._numbers(state)], dtype=np.int64))
        half, n = self.run_distribution.half, len(self.thresholds)
        rho, nu = (
            discrete_laplace(item.key, item.context.label(draw, half, digest=digest), half, n).tolist()
            for draw in (Draw.THRESHOLD_RUN, Draw.THRESHOLD_QUERY)
        )
        before, above, denied = self._charged(state), list[bool | None](), dict[int, str]()
        for place, node in enumerate(state.nodes):
            reason = self._query(state, node, place, item, (rho[place], nu[place]))
            above.append(None if reason else node.above)
            if reason:
                denied[place] = reason
        return state, [SparseVectorOutput(tuple(above), denied, self._charged(state) - before)]

    def _query(
        self, state: Runs, node: Node, place: int, item: SparseVectorInput, drawn: tuple[int, int]
    ) -> str | None:
        """Query one node and update it; return why it has no answer, None where it has one."""
        if not item.scheduled[place]:
            if node.above:
                node.above, node.open = False, False
            return UNBOOKED
        if item.end < node.waits:
            return None
        if node.above and self.hysteresis is None:
            node.above = False
        if (node.downs if node.above else node.ups) >= self.events:
            return EVENTS
        rho, nu = drawn
        if not node.open:
            if not self._pays_one_more(state):
                return BUDGET
            node.open, node.rho = True, rho
            state.opened += 1
        if self.margin(place, int(item.counts[place]), above=node.above) + nu >= node.rho:
            node.ups, node.downs = node.ups + (not node.above), node.downs + node.above
            node.above, node.open, node.rho, node.waits = not node.above, False, 0, item.end + self.cooldown
        return None

    def margin(self, place: int, count: int, *, above: bool) -> int:
        """Return how far a count is beyond what the open run tests."""
        beyond = count - self.thresholds[place] if self.above else self.thresholds[place] - count
        return -beyond - (self.hysteresis or 0) if above else beyond - 1 + self.shift

    def _charged(self, state: Runs) -> int:
        return min(self.ticks, state.opened)

    def _pays_one_more(self, state: Runs) -> bool:
        return self.most_runs is None or min(self.ticks, state.opened + 1) <= self.most_runs

    # --- bytes ----------------------------------------------------------------------------------------

    @staticmethod
    def _numbers(state: Runs) -> Iterator[int]:
        yield from (state.day, state.opened)
        for node in state.nodes:
            yield from (node.above, node.ups, node.downs, node.waits, node.open, node.rho)

    def encode(self, state: Runs) -> bytes:
        """Return the stable byte form."""
        numbers = [*self._numbers(state)]
        return _MAGIC + self._owner() + struct.pack(f"<{len(numbers)}q", *numbers)

    def fits(self, data: bytes) -> bool:
        """Whether bytes are a state with the same terms."""
        length = len(_MAGIC) + _OWNER + 8 * (2 + _FIELDS * len(self.thresholds))
        return len(data) == length and data.startswith(_MAGIC + self._owner())

    def decode(self, data: bytes) -> Runs:
        """Return the state of a byte form; DataError where it has other terms."""
        if not self.fits(data):
            raise DataError("threshold state: must have the same terms")
        day, opened, *rest = struct.unpack_from(f"<{2 + _FIELDS * len(self.thresholds)}q", data, len(_MAGIC) + _OWNER)
        parts = (rest[at : at + _FIELDS] for at in range(0, len(rest), _FIELDS))
        nodes = [
            Node(bool(above), ups, downs, waits, bool(open_), rho) for above, ups, downs, waits, open_, rho in parts
        ]
        return Runs(day, opened, nodes)

    def _owner(self) -> bytes:
        return hashlib.sha256(f"{self!r}/{self.terms}".encode()).digest()[:_OWNER]
