"""The mechanisms of one count release: one for each distinct epsilon, over zones, states or a tree of levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from stream.mechanisms.consistency import Tree, leaf_of_zone, site_tree
from stream.mechanisms.contract import CountMechanism, Parameters
from stream.mechanisms.counts import mechanism_of
from stream.mechanisms.filter import RegimeFilter
from stream.mechanisms.hierarchy import Hierarchy
from stream.mechanisms.level_budget import Pruning
from stream.mechanisms.measured_tree import MeasuredTree
from stream.mechanisms.nightly import NightlyFilter
from stream.mechanisms.noise import Ints
from stream.mechanisms.states import States, target_states
from stream.policy.count_release import CountRelease
from stream.policy.sites import Zone
from stream.release.noise_laws import Laws


@dataclass(frozen=True)
class Counted:
    """What a release counts: zones, states, or the leaves of a tree of levels."""

    names: tuple[str, ...]
    """In order: the registry in the labels of the noise."""
    largest: tuple[int, ...]
    """The largest count of each name, from the policy."""
    states: States | None
    tree: Tree | None
    """Where every level has noise of its own."""
    leaves: Ints
    """For each zone, the place of its leaf; unread without a tree."""

    @property
    def multiplicity(self) -> int:
        """How many names one device is counted under at once, at most."""
        return 1 if self.states is None else self.states.multiplicity

    def counts(self, zones: Ints) -> Ints:
        """Return the counts of the names from those of the zones that the release covers."""
        if self.states is not None:
            return self.states.counts(zones)
        if self.tree is None:
            return zones
        counts = np.zeros(len(self.names), dtype=np.int64)
        np.add.at(counts, self.leaves, zones)
        return counts


def counted(release: CountRelease, zones: Sequence[Zone]) -> Counted:
    """Return what a release counts of the zones that it covers at one site."""
    names, floors = [zone.id for zone in zones], [zone.floor for zone in zones]
    largest = np.array([zone.largest for zone in zones], dtype=np.int64)
    if release.states:
        states = target_states(names, release.states)
        return Counted(states.names, states.largest(largest.tolist()), states, None, np.arange(len(zones)))
    leaves = leaf_of_zone(floors, release.levels_up)
    tree = site_tree(names, floors, release.levels_up) if release.shares else None
    found = Counted(tuple(names) if tree is None else tree.names[0], (), None, tree, leaves)
    return Counted(found.names, tuple(found.counts(largest).tolist()), None, tree, leaves)


def count_mechanisms(release: CountRelease, what: Counted, laws: Laws) -> dict[Fraction, CountMechanism]:
    """Return the mechanism of each distinct epsilon, the largest first: audiences of equal epsilon share its values."""
    return {epsilon: _mechanism(release, what, laws, epsilon) for epsilon in sorted(laws, reverse=True)}


def _mechanism(release: CountRelease, what: Counted, laws: Laws, epsilon: Fraction) -> CountMechanism:
    if what.tree is None:
        parameters = Parameters(
            laws[epsilon][0], what.largest, release.smoother, release.calendar, release.windows_paid
        )  # fmt: skip
        return mechanism_of(release.mechanism, parameters)
    if release.mechanism == "filter" or release.by_day:
        return _measured_tree(release, what, what.tree, laws, epsilon)
    prune = release.prune
    return Hierarchy(
        what.tree, epsilon, tuple(release.shares[level] for level in release.levels_up), release.mechanism,
        release.smoother, None if prune is None else Pruning(prune.share, prune.below), tuple(laws),
    )  # fmt: skip


def _measured_tree(release: CountRelease, what: Counted, tree: Tree, laws: Laws, epsilon: Fraction) -> MeasuredTree:
    filters: tuple[NightlyFilter, ...] = ()
    if release.mechanism == "filter":
        largest = tree.sums(np.array(what.largest, dtype=np.int64))
        filters = tuple(
            NightlyFilter(RegimeFilter(tuple(largest[here].tolist()), law, release.calendar))
            for here, law in zip(tree.levels, laws[epsilon], strict=True)
        )
    return MeasuredTree(tree, laws[epsilon], tuple(zip(*laws.values(), strict=True)), filters)
