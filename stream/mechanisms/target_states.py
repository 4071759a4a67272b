"""Target states: named sets of zones that may overlap.

A state is a set of zones; its count is the number of devices in any of them (Chen, Machanavajjhala, Hay,
Miklau, CCS 2017, where a user is in at most m states at a time; Ghayyur's thesis, section 3.1.2). A device is
in one zone at a tick, so one presence tuple changes the counts of exactly those states that its zone belongs
to, each by one.

    symbol   here               meaning
    m        multiplicity       largest number of states that one zone belongs to
    ε        a release's ε      what one presence tuple costs over all states together
    ε/m      share              what each state's own mechanism may spend

A mechanism at ε/m has noise DLap(m/ε) (PeGaSus: DLap(m/ε_p), a grouper at ε_g/m and θ = 5m/ε_g): all
parameters follow from ε/m. A tuple that is moved instead of removed costs twice as much.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.exact import Ints


@dataclass(frozen=True)
class States:
    """The target states of a release, over a registry of zones."""

    names: tuple[str, ...]
    matrix: Ints
    """1 where a state has a zone, else 0; shape [states, zones]."""

    @property
    def multiplicity(self) -> int:
        """m, at least 1."""
        return multiplicity(self.matrix)

    def counts(self, zones: Ints) -> Ints:
        """Return the states' counts, shape [states], of the zones' counts, shape [zones]."""
        return np.asarray((self.matrix * zones).sum(axis=1))

    def largest(self, zones: Sequence[int]) -> tuple[int, ...]:
        """Return the largest count that each state can have, from those of its zones."""
        return tuple(int(count) for count in self.counts(np.array(zones, dtype=np.int64)))

    def share(self, epsilon: Fraction) -> Fraction:
        """Return the ε of each state's mechanism if a presence tuple must cost ``epsilon`` in total."""
        return epsilon / self.multiplicity

    def cost(self, epsilons: Sequence[Fraction]) -> Fraction:
        """Return the cost of one presence tuple if state i is released at ``epsilons[i]``.

        It is the largest sum over the states of one zone: with one ε for all, m ε.

        Raises:
            UsageError: the number of epsilons differs from that of the states.
        """
        if len(epsilons) != len(self.names):
            raise UsageError(f"epsilons must be {len(self.names)}, one a state, got {len(epsilons)}")
        zones = (np.flatnonzero(zone).tolist() for zone in self.matrix.T)
        return max(sum((epsilons[state] for state in states), Fraction(0)) for states in zones)


def states_matrix(zones: Sequence[str], states: Mapping[str, Collection[str]]) -> Ints:
    """Return which state has which zone as 0 and 1, shape [states, zones], in the order given.

    Args:
        zones: the registry, ids unique.
        states: the zones of each state.

    Raises:
        UsageError: no state, a state without zones, or a zone that the registry does not have.
    """
    if not states:
        raise UsageError("states must not be empty")
    matrix = np.zeros((len(states), len(zones)), dtype=np.int64)
    places = {zone: place for place, zone in enumerate(zones)}
    for row, (name, members) in enumerate(states.items()):
        if not members:
            raise UsageError(f"states.{name} must have at least one zone")
        for zone in members:
            if zone not in places:
                raise UsageError(f"states.{name} must consist of zones of the release, got {zone!r}")
            matrix[row, places[zone]] = 1
    return matrix


def multiplicity(matrix: Ints) -> int:
    """Return m, the largest number of states that one zone belongs to."""
    return int(matrix.sum(axis=0).max())


def target_states(zones: Sequence[str], states: Mapping[str, Collection[str]]) -> States:
    """Return the states of a release; see :func:`states_matrix`."""
    return States(tuple(states), states_matrix(zones, states))
