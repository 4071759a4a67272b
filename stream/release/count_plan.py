"""One count release at one site: counters, mechanisms and noise. There is one class for each kind of plan.

A release counts zones, or the policy's target states. With ``shares`` a mechanism releases zones, floors and building
at once, each with its own noise; otherwise floors and building are sums of zones. There is one mechanism for each
distinct epsilon, over zones, states or a tree of levels; audiences of equal epsilon share its values.

Where a day pays for changes, the counts of each level are counted separately (``sensing.visits``), and mechanisms read
sums of their changes (``ChangeSums``), which all audiences share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from stream.domains import Suffix
from stream.mechanisms.base import CountMechanism, Parameters, Values
from stream.mechanisms.changes.levels import LevelChanges
from stream.mechanisms.changes.mechanism import Changes, ChangeSums, DayTick
from stream.mechanisms.consistency import leaf_of_zone, site_tree
from stream.mechanisms.exact import Ints
from stream.mechanisms.filter.learning import LearningFilter
from stream.mechanisms.filter.step import RegimeFilter
from stream.mechanisms.hierarchy import Hierarchy, Pruning
from stream.mechanisms.level_sums import level_sums
from stream.mechanisms.measured_tree import MeasuredTree, noise_scales
from stream.mechanisms.registry import mechanism_of
from stream.mechanisms.target_states import States, target_states
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument
from stream.policy.fields import decimal_string
from stream.policy.sites import Zone
from stream.records import CHANGES, LevelCounts, OccupancyWindow, PrivacyDay
from stream.release.prices import DayPrices, Laws, noise_laws
from stream.release.state import PublicationKey, ReleaseState, publication_key
from stream.schemas import Levels, LevelScales

Entry = TypeVar("Entry")
ByLevel = dict[str, dict[str, int]]
"""Level -> count of each of its zones (or states), floors, or of the building."""


class CountPlan(ABC):
    """A count release at a site, fixed before the first window. What it counts, and where its noise lies:

    | plan         | counters                       | noise                   | floors and building |
    |--------------|--------------------------------|-------------------------|---------------------|
    | `ZonePlan`   | zones, or target states        | of each counter         | sums of zones       |
    | `TreePlan`   | leaves of a tree of levels     | of each node            | nodes of the tree   |
    | `ChangePlan` | nodes of the tree, by visits   | of the changes of a day | nodes of the tree   |
    """

    names: tuple[str, ...]
    """Names of the counters, in order: the registry in the labels of the noise."""
    mechanisms: Mapping[Fraction, CountMechanism]
    """One for each distinct epsilon, the largest first: audiences of equal epsilon share its values."""
    draws_own_noise: bool
    """Whether the mechanism draws its noise itself, so that no noise chain over the counts is needed."""
    publishes_noisy: bool
    """Whether records also contain noisy values: those of filters, and of groups without pruning, do."""
    level_scales: Mapping[Fraction, LevelScales]
    """For each epsilon the scales of the noise of floors and building; empty where records do not contain them."""
    level_draws: Levels
    """How many draws of noise each noisy value of floors and building has; empty where each has one."""

    def __init__(self, policy: PolicyDocument, release: CountRelease, site: str) -> None:
        self.release = release
        self.site = site
        self.zones: tuple[Zone, ...] = policy.zones_of(release, site)
        self.covered = tuple(zone.id for zone in self.zones)
        self._indices = [i for i, zone in enumerate(policy.site[site].zones) if release.zones.covers(zone)]
        self._largest = np.array([zone.largest for zone in self.zones], dtype=np.int64)
        self._listed = "zone" in release.levels
        """Whether records list the counters; otherwise they contain levels only."""
        self.day_prices: DayPrices | None = None
        """The cost of its days, if a whole day is paid at once."""
        self._bound = ""
        """The bound of a day release, as noise labels contain it."""
        if release.by_day:
            self.day_prices = DayPrices.of(policy, release, site)
            self._bound = f"{CHANGES if release.by_changes else ''}{self.day_prices.ticks}"
        self.counted = policy.site[site].counted_in_records
        """What its numbers count, where the site counts logins; otherwise empty."""
        self.bounded_to = policy.site[site].bound_text(changes=release.by_changes) if release.by_day else None
        """How long or how often a device is counted within a privacy day; None if the release counts every device."""
        self.publication_key: PublicationKey | None = (
            publication_key(policy, release, site) if release.declared.carries else None
        )
        """The key of its publications, if it carries any."""
        self._floors: dict[str, list[int]] = {}
        for place, zone in enumerate(self.zones):
            self._floors.setdefault(zone.floor, []).append(place)

    # --- what each kind of plan defines ---------------------------------------------------------------

    @abstractmethod
    def is_made_consistent(self, mechanism: CountMechanism) -> bool:
        """Whether the noise in its values is smaller than the drawn noise, and independent from window to window."""

    @abstractmethod
    def scales(self, epsilon: Fraction, values: Values | None = None) -> Sequence[float]:
        """Return the scale of each name's noise: for these values, or without values the largest possible one."""

    @abstractmethod
    def _named(self, zones: Ints) -> Ints:
        """Return the counts of the names from those of the zones that the release covers."""

    @abstractmethod
    def level_values(self, mechanism: CountMechanism, values: Values) -> tuple[Levels, Levels]:
        """Return the values of floors and building, and their half-widths."""

    @abstractmethod
    def noisy_level_values(self, noisy: Ints) -> Levels:
        """Return the noisy values of floors and building."""

    # --- counts ---------------------------------------------------------------------------------------

    def counts(self, window: OccupancyWindow) -> Ints:
        """Return the true counts that the noise covers, bounded for a day release; restricted."""
        return self._named(self._zone_counts(window))

    def is_counted(self, window: OccupancyWindow) -> bool:
        """Whether a window has the bounded counts of its privacy day, for a release that is paid by the day."""
        return window.bounded is not None

    def continues(self, state: ReleaseState, day: PrivacyDay) -> bool:
        """Whether a release may go on with a day that it has paid for."""
        del state, day
        return True

    def _zone_counts(self, window: OccupancyWindow) -> Ints:
        """Return the counts of the zones that the release covers."""
        read = window.counts if self.day_prices is None or window.bounded is None else window.bounded
        return np.array([read[index] for index in self._indices], dtype=np.int64)

    def suffix(self, window: OccupancyWindow) -> str:
        """Return the additional part of a window's noise labels (``Context``).

        It has the day and the bound of a day release: no two days, and no two bounds, share a draw.
        """
        day = window.privacy_day
        if self.day_prices is None or day is None:
            return ""
        return f"{Suffix.DAY} {day.number}/{self._bound}"

    def truth(self, window: OccupancyWindow) -> ByLevel:
        """Return the true counts of the published names, by level; bounded like ``counts``, restricted."""
        zones = self._zone_counts(window)
        floors = {floor: int(zones[self._floors[floor]].sum()) for floor in sorted(self._floors)}
        named = dict(zip(self.names, self._named(zones).tolist(), strict=True))
        levels: ByLevel = {"zone": named, "floor": floors, "building": {"building": int(zones.sum())}}
        return {level: levels[level] for level in self.release.levels_up}

    def published_counts(self, mechanism: CountMechanism, values: Values) -> ByLevel:
        """Return the counts that a record of these values publishes, by level."""
        listed = self.by_name([int(value) for value in values.values[: len(self.names)]])
        return by_level(listed, {} if self.release.levels == ("zone",) else self.level_values(mechanism, values)[0])

    def state_name(self, epsilon: Fraction) -> str:
        """Return the name under which an epsilon's operator state is stored."""
        return f"{self.release.name}/{decimal_string(epsilon)}"

    def by_name(self, entries: Sequence[Entry]) -> dict[str, Entry]:
        """Return entries, one for each of ``names`` in order, by name; empty where a record lists no names."""
        return dict(zip(self.names, entries, strict=True)) if self._listed else {}


class ZonePlan(CountPlan):
    """A release of zones, or of target states; its floors and building are sums of zones."""

    def __init__(self, policy: PolicyDocument, release: CountRelease, site: str) -> None:
        super().__init__(policy, release, site)
        self._states: States | None = target_states(self.covered, release.states) if release.states else None
        self.names = self.covered if self._states is None else self._states.names
        most = self._largest.tolist()
        largest = tuple(most) if self._states is None else self._states.largest(most)
        multiplicity = 1 if self._states is None else self._states.multiplicity
        laws = noise_laws(release, self.day_prices, multiplicity)
        self.mechanisms = {
            epsilon: mechanism_of(
                release.mechanism,
                Parameters(laws[epsilon][0], largest, release.smoother, release.calendar, release.windows_paid),
            )
            for epsilon in sorted(laws, reverse=True)
        }
        self.draws_own_noise = release.declared.own_noise
        self.publishes_noisy = release.declared.revisable or release.declared.grouped
        self._clamped = release.declared.clamped
        self.level_scales = dict.fromkeys(self.mechanisms, LevelScales())
        self.level_draws = {}
        if release.levels != ("zone",):
            self.level_draws = self.noisy_level_values(np.ones(len(self.names), np.int64))

    def is_made_consistent(self, mechanism: CountMechanism) -> bool:
        """Return False: nothing makes zones consistent."""
        del mechanism
        return False

    def scales(self, epsilon: Fraction, values: Values | None = None) -> Sequence[float]:
        """Return the scale of the noise, the same for all names."""
        noise = None if values is None else values.noise
        return [(noise or self.mechanisms[epsilon].noise).scale] * len(self.names)

    def _named(self, zones: Ints) -> Ints:
        return zones if self._states is None else self._states.counts(zones)

    def level_values(self, mechanism: CountMechanism, values: Values) -> tuple[Levels, Levels]:
        """Return the sums of zones, and their half-widths."""
        sums = level_sums(
            mechanism, values, [self._floors[floor] for floor in sorted(self._floors)], clamped=self._clamped
        )  # fmt: skip
        return self._sums(sums.building, sums.floors), self._sums(sums.building_width, sums.floor_widths)

    def noisy_level_values(self, noisy: Ints) -> Levels:
        """Return the sums of noisy values."""
        floors = [int(noisy[self._floors[floor]].sum()) for floor in sorted(self._floors)]
        return self._sums(int(noisy.sum()), floors)

    def _sums(self, building: int, floors: Sequence[int]) -> Levels:
        """Levels that are sums of zones, if the release publishes them."""
        levels: Levels = {}
        if "floor" in self.release.levels:
            levels["floor"] = dict(zip(sorted(self._floors), floors, strict=True))
        if "building" in self.release.levels:
            levels["building"] = building
        return levels


class TreePlan(CountPlan):
    """A release of all levels at once, each with noise of its own; the values of a tree are consistent."""

    def __init__(self, policy: PolicyDocument, release: CountRelease, site: str) -> None:
        super().__init__(policy, release, site)
        floors = [zone.floor for zone in self.zones]
        self.tree = site_tree(self.covered, floors, release.levels_up)
        self._leaves = leaf_of_zone(floors, release.levels_up)
        """Index of each zone's leaf."""
        self.names = self.tree.names[0]
        self._levels = tuple(zip(release.levels_up, self.tree.names, self.tree.levels, strict=True))
        """Each level with the names of its nodes and their range, leaves first."""
        self._most: Ints = self.tree.sums(self._named(self._largest))
        """The largest count of each node, from the policy."""
        self.mechanisms = self._mechanisms()
        self.draws_own_noise = True
        self.publishes_noisy = release.prune is None and (release.declared.revisable or release.declared.grouped)
        self._scales = {epsilon: _node_scales(mechanism) for epsilon, mechanism in self.mechanisms.items()}
        hidden = not self.publishes_noisy and any(isinstance(each, Hierarchy) for each in self.mechanisms.values())
        self.level_scales = {epsilon: {} if hidden else self._nodes(each) for epsilon, each in self._scales.items()}
        self.level_draws = {}

    def _mechanisms(self) -> dict[Fraction, CountMechanism]:
        laws = noise_laws(self.release, self.day_prices, 1)
        return {epsilon: self._mechanism(laws, epsilon) for epsilon in sorted(laws, reverse=True)}

    def _mechanism(self, laws: Laws, epsilon: Fraction) -> CountMechanism:
        release, prune = self.release, self.release.prune
        if release.mechanism == "filter" or release.by_day:
            return self._measured(laws, epsilon)
        return Hierarchy(
            self.tree, epsilon, tuple(release.shares[level] for level in release.levels_up), release.mechanism,
            release.smoother, None if prune is None else Pruning(prune.share, prune.below), tuple(laws),
        )  # fmt: skip

    def _measured(self, laws: Laws, epsilon: Fraction) -> MeasuredTree:
        filters: tuple[LearningFilter, ...] = ()
        if self.release.mechanism == "filter":
            filters = tuple(
                LearningFilter(RegimeFilter(tuple(self._most[here].tolist()), law, self.release.calendar))
                for here, law in zip(self.tree.levels, laws[epsilon], strict=True)
            )
        return MeasuredTree(self.tree, laws[epsilon], tuple(zip(*laws.values(), strict=True)), filters)

    def is_made_consistent(self, mechanism: CountMechanism) -> bool:
        """Whether its values are not smoothed as well."""
        return mechanism.half_width_kind == "noise"

    def scales(self, epsilon: Fraction, values: Values | None = None) -> Sequence[float]:
        """Return the scale of each leaf's own noise."""
        del values
        return self._scales[epsilon][: len(self.names)]

    def _named(self, zones: Ints) -> Ints:
        counts = np.zeros(len(self.names), dtype=np.int64)
        np.add.at(counts, self._leaves, zones)
        return counts

    def level_values(self, mechanism: CountMechanism, values: Values) -> tuple[Levels, Levels]:
        """Return the values of the tree's nodes, and their half-widths."""
        del mechanism
        return self._nodes(values.values.tolist()), self._nodes(values.half_width.tolist())

    def noisy_level_values(self, noisy: Ints) -> Levels:
        """Return the noisy values of the tree's nodes."""
        return dict(self._nodes(noisy.tolist()))

    def _nodes(self, entries: Sequence[Entry]) -> dict[str, dict[str, Entry] | Entry]:
        """Floors and building of a tree whose nodes were measured themselves, one entry per node."""
        levels = dict[str, dict[str, Entry] | Entry]()
        for level, names, here in self._levels:
            if level == "floor":
                levels["floor"] = dict(zip(names, entries[here], strict=True))
            elif level == "building":
                (levels["building"],) = entries[here]
        return levels


class ChangePlan(TreePlan):
    """A release whose days pay for changes: each level is counted separately, and the noise lies on their sums.

    That noise is not independent from window to window, so no noisy values are published.
    """

    def __init__(self, policy: PolicyDocument, release: CountRelease, site: str, days: DayPrices) -> None:
        self._paid = days
        super().__init__(policy, release, site)
        self.publishes_noisy = False
        self._tick_length = policy.site[site].tick
        self._whole = len(self.zones) == len(policy.site[site].zones)
        self.sums = ChangeSums(days.matrix_factor, self.tree.nodes)
        """The sums of a day's changes, which all audiences share."""
        self.sums_name = f"{release.name}/{CHANGES}"
        """The name under which they are stored."""

    def _mechanisms(self) -> dict[Fraction, CountMechanism]:
        by_epsilon = {price.epsilon: price for price in self._paid.prices.values()}
        chains = [tuple(sorted(set(level))) for level in zip(*(p.variances for p in by_epsilon.values()), strict=True)]
        return {
            epsilon: LevelChanges(
                self.tree,
                tuple(
                    Changes(
                        self._paid.matrix_factor, own, chain, tuple(self._most[here].tolist()), self.release.calendar
                    )
                    for here, own, chain in zip(self.tree.levels, by_epsilon[epsilon].variances, chains, strict=True)
                ),
            )
            for epsilon in sorted(by_epsilon, reverse=True)
        }

    def counts(self, window: OccupancyWindow) -> Ints:
        """Return the true counts of all nodes of all levels, leaves first; restricted."""
        if window.by_visits is None:
            return super().counts(window)
        levels = self._visits_by_level(window.by_visits)
        return np.array([count for counts in levels.values() for count in counts.values()], dtype=np.int64)

    def truth(self, window: OccupancyWindow) -> ByLevel:
        """Return the true counts of the published names, by level; restricted."""
        return super().truth(window) if window.by_visits is None else self._visits_by_level(window.by_visits)

    def is_counted(self, window: OccupancyWindow) -> bool:
        """Whether a window has counts of visits, at a tick that the price covers."""
        return window.by_visits is not None and self.day_tick(window).position < self._paid.matrix_factor.ticks

    def continues(self, state: ReleaseState, day: PrivacyDay) -> bool:
        """Whether the same run of changes goes on: another one would cost another day."""
        return state.change_days.get(self.release.name) == day and self.sums_name in state.operator_states

    def day_tick(self, window: OccupancyWindow) -> DayTick:
        """Return a window's place in its privacy day, with its counts."""
        day = window.privacy_day
        assert day is not None  # noqa: S101
        return DayTick(day.number, (window.window_end - day.start) // self._tick_length - 1, self.counts(window))

    def _visits_by_level(self, counts: LevelCounts) -> ByLevel:
        """Return the counts of the nodes of each published level, leaves first."""
        levels: ByLevel = {
            "zone": dict(zip(self.covered, [counts.zone[index] for index in self._indices], strict=True)),
            "floor": dict(zip(sorted(self._floors), counts.floor, strict=True)) if self._whole else {},
            "building": {"building": counts.building[0]},
        }
        return {level: levels[level] for level in self.release.levels_up}


def _node_scales(mechanism: CountMechanism) -> tuple[float, ...]:
    """Return the scale of each node's own noise."""
    if isinstance(mechanism, MeasuredTree):
        return noise_scales(mechanism)
    assert isinstance(mechanism, Hierarchy | LevelChanges)  # noqa: S101
    return mechanism.noise_scales()


def count_plan(policy: PolicyDocument, release: CountRelease, site: str) -> CountPlan:
    """Return the plan of a count release at a site."""
    if release.by_changes:
        return ChangePlan(policy, release, site, DayPrices.of(policy, release, site))
    return TreePlan(policy, release, site) if release.shares else ZonePlan(policy, release, site)


def count_plans(policy: PolicyDocument, site: str) -> tuple[CountPlan, ...]:
    """Return the plans of the count releases of a site, in the order of the policy."""
    return tuple(
        count_plan(policy, release, site)
        for release in policy.release
        if isinstance(release, CountRelease) and policy.zones_of(release, site)
    )


def by_level(values: Mapping[str, int], levels: Mapping[str, Any] | None) -> ByLevel:
    """Return the counts of a record, from its ``values`` and ``levels``, level by level."""
    floors, building = (levels or {}).get("floor"), (levels or {}).get("building")
    found: ByLevel = {"zone": dict(values)} if values else {}
    if floors is not None:
        found["floor"] = dict(floors)
    if building is not None:
        found["building"] = {"building": building}
    return found
