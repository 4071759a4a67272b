"""AboveThreshold, run after run: which nodes are above (or below) a threshold, window by window, at a price by the run.

    symbol   here               meaning
    f_t      counts             a node's count at a window; the device's day changes it by one at most
    T        thresholds         public
    ε_run    law.epsilon        price of one run
    ρ        a node's ``rho``   DLap(ε_run/2), drawn when a run is opened, kept for as long as it is
    ν_t                         DLap(ε_run/2), drawn anew for each window
    K        ticks              windows of a day at which one device counts at most, at one node each

A run asks of each window whether m_t + ν_t >= ρ, with the margin m_t = ±(f_t - T) and public constants. It ends when it
crosses, and with the privacy day. What crosses is told and nothing else: no count, and no ρ, is ever published.

What a run costs (Dwork, Roth 2014, Algorithms 1 and 2; Lyu, Su, Li 2017). Let f' be the counts with one device's day
more, so that 0 <= m'_t - m_t <= 1 at all windows where the run asks "above" (and -1 <= m'_t - m_t <= 0 where it asks
"below", which is the same with f and f' exchanged). Take a transcript of silence before window k and a crossing at k,
and let G(x) = Pr[ν < x], S = 1 - G; its probability is Σ_ρ Pr[ρ] Π_{t<k} G(ρ - m_t) S(ρ - m_k).
(1) From m to m': put ρ + 1 for ρ. G(ρ + 1 - m'_t) >= G(ρ - m_t), as m'_t <= m_t + 1. S(ρ + 1 - m'_k) >=
S(ρ + 1 - m_k) >= e^(-ε_run/2) S(ρ - m_k), as m'_k >= m_k. Pr[ρ + 1] >= e^(-ε_run/2) Pr[ρ]. Together e^(-ε_run).
(2) From m' to m: keep ρ. G(ρ - m_t) >= G(ρ - m'_t), and S(ρ - m_k) >= S(ρ - m'_k + 1) >= e^(-ε_run/2) S(ρ - m'_k).
Together e^(-ε_run/2).
A run that never crosses lacks the factor of S: it still costs ε_run/2, so it is charged like any other, on each day on
which it is open. Nothing is doubled, because all of a device's changes have one sign. That holds for a whole privacy
day added or removed under the day's cut and its contribution bound, and for nothing less: a part of a day that is moved
shifts which of the device's ticks count, and is priced as a day removed and another added.

What a day costs. Which run is asked at a window (up while the state is below, down while it is above) follows from
earlier answers, clock and schedule, and at each window a node asks one run at most. So the probability of a day's
answers is a product over runs, and two neighbouring days differ in the factors of those runs alone in which the device
changed a window: at most K of them, since it changes K windows at one node each, and at most as many as were opened. A
day of n opened runs costs min(K, n) ε_run; n is at most events x vectors x nodes, since each direction crosses
``events`` times at most and no run is opened after that. (The usual (events + 1) ε_run a vector counts a run that is
left open behind the last event: here none is, as nothing could be told of it.)

Never told: counts, ρ, ν, how near it was. The state holds ρ and is as restricted as a count.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field
from typing import NamedTuple

import numpy as np

from stream.errors import DataError, UsageError
from stream.mechanisms.labels import Context, counts_digest
from stream.mechanisms.noise import Ints, discrete_laplace
from stream.mechanisms.run_law import RunLaw
from stream.records import Micros

EVENTS, BUDGET, UNBOOKED = "events", "budget", "unbooked"
"""Why a node has no answer: its events of the day are used up, the day's budget opens no further run, or the schedule
does not ask."""


@dataclass(slots=True)
class Node:
    """Where one node stands in its day (restricted: ``rho``)."""

    above: int = 0
    """1 while an alert lasts."""
    ups: int = 0
    downs: int = 0
    """Crossings so far, counted apart."""
    waits: Micros = 0
    """Nothing is asked before this instant."""
    open: int = 0
    """1 while a run is open."""
    rho: int = 0
    """Of the open run."""


@dataclass(slots=True)
class Runs:
    """The runs of one privacy day."""

    day: int
    """Number of the privacy day; -1 before the first."""
    opened: int
    """Runs opened so far on this day, of all nodes."""
    nodes: list[Node]


class Asked(NamedTuple):
    """One window as the mechanism reads it."""

    counts: Ints
    """One a node."""
    end: Micros
    day: int
    booked: tuple[bool, ...]
    """Whether a node is asked by the schedule."""
    key: bytes
    context: Context


class Told(NamedTuple):
    """What is told of one window, and what it costs."""

    above: tuple[bool | None, ...]
    """One a node; None where it has no answer."""
    denied: dict[int, str]
    """Node without an answer -> why."""
    charged: int
    """Runs that one device's day is charged for with this window."""


@dataclass(frozen=True)
class SparseVector:
    """A threshold at each of several nodes."""

    law: RunLaw
    thresholds: tuple[int, ...]
    above: bool
    """Whether a count above its threshold is the event, or one below it."""
    shift: int
    """By how much an alert is asked for early, so that an event is missed rarely."""
    events: int
    """Alerts a day, and their ends, at each node."""
    ticks: int
    """K."""
    cooldown: Micros = 0
    """For so long nothing is asked after a crossing."""
    hysteresis: int | None = None
    """An alert ends when a count is so far on the other side, by a run of its own; None: with its cool-down."""
    most_runs: int | None = None
    """Runs that a day's budget pays; None: all that there can be."""
    terms: str = field(default="", repr=False)
    """Digest of everything that a day is paid for: a state made on other terms is none of this mechanism's."""

    def __post_init__(self) -> None:
        if not self.thresholds or self.events < 1 or self.ticks < 1:
            raise UsageError("thresholds, events and ticks must be at least one")

    @property
    def vectors(self) -> int:
        """Directions with runs of their own: up, or up and down."""
        return 1 if self.hysteresis is None else 2

    @property
    def most(self) -> int:
        """The most runs that one device's day can be charged for."""
        runs = min(self.ticks, self.vectors * self.events * len(self.thresholds))
        return runs if self.most_runs is None else min(runs, self.most_runs)

    def initial(self) -> Runs:
        """Return the state before the first day."""
        return self._begun(-1)

    def _begun(self, day: int) -> Runs:
        return Runs(day, 0, [Node() for _ in self.thresholds])

    def step(self, state: Runs, item: Asked) -> tuple[Runs, list[Told]]:
        """Ask every node that may be asked; the first window of a day ends all runs of the day before."""
        if item.day != state.day:
            state = self._begun(item.day)
        digest = counts_digest(item.counts, np.array([*self._numbers(state)], dtype=np.int64))
        half, n = self.law.half, len(self.thresholds)
        rho, nu = (
            discrete_laplace(item.key, item.context.label(stage, half, digest=digest), half, n).tolist()
            for stage in ("threshold-run", "threshold-query")
        )
        before, above, denied = self._charged(state), list[bool | None](), dict[int, str]()
        for place, node in enumerate(state.nodes):
            reason = self._ask(state, node, place, item, (rho[place], nu[place]))
            above.append(None if reason else bool(node.above))
            if reason:
                denied[place] = reason
        return state, [Told(tuple(above), denied, self._charged(state) - before)]

    def _ask(self, state: Runs, node: Node, place: int, item: Asked, drawn: tuple[int, int]) -> str | None:
        """Ask one node, and move it on; return why it has no answer, None where it has one."""
        if not item.booked[place]:
            if node.above:
                node.above, node.open = 0, 0
            return UNBOOKED
        if item.end < node.waits:
            return None
        if node.above and self.hysteresis is None:
            node.above = 0
        if (node.downs if node.above else node.ups) >= self.events:
            return EVENTS
        rho, nu = drawn
        if not node.open:
            if not self._pays_one_more(state):
                return BUDGET
            node.open, node.rho = 1, rho
            state.opened += 1
        if self.margin(place, int(item.counts[place]), above=bool(node.above)) + nu >= node.rho:
            node.ups, node.downs = node.ups + 1 - node.above, node.downs + node.above
            node.above, node.open, node.rho, node.waits = 1 - node.above, 0, 0, item.end + self.cooldown
        return None

    def margin(self, place: int, count: int, *, above: bool) -> int:
        """Return by how much a count is beyond what the run that is open asks."""
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
            yield from astuple(node)

    def encode(self, state: Runs) -> bytes:
        """Return the stable byte form."""
        numbers = [*self._numbers(state)]
        return _MAGIC + self._owner() + struct.pack(f"<{len(numbers)}q", *numbers)

    def fits(self, data: bytes) -> bool:
        """Whether bytes are a state made on the same terms."""
        length = len(_MAGIC) + _OWNER + 8 * (2 + _FIELDS * len(self.thresholds))
        return len(data) == length and data.startswith(_MAGIC + self._owner())

    def decode(self, data: bytes) -> Runs:
        """Return the state of a byte form; DataError where it is not one of these terms."""
        if not self.fits(data):
            raise DataError("threshold state: must be of the same terms")
        day, opened, *rest = struct.unpack_from(f"<{2 + _FIELDS * len(self.thresholds)}q", data, len(_MAGIC) + _OWNER)
        return Runs(day, opened, [Node(*part) for part in _parts(rest)])

    def _owner(self) -> bytes:
        return hashlib.sha256(f"{self!r}/{self.terms}".encode()).digest()[:_OWNER]


_MAGIC, _OWNER, _FIELDS = b"THR1", 16, 6


def _parts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[at : at + _FIELDS] for at in range(0, len(numbers), _FIELDS))
