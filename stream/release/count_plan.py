"""One count release at one site: counters, mechanisms, record shape.

A release counts zones, or the policy's target states. With ``shares`` a mechanism releases zones, floors and building
at once, each with its own noise; otherwise floors and building are sums of zones. There is one mechanism for each
distinct epsilon, over zones, states or a tree of levels; audiences of equal epsilon share its values.

Where a day pays for changes, the counts of each level are counted separately (``sensing.visits``), and mechanisms read
sums of their changes (``ChangeSums``), which all audiences share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypedDict, TypeVar

import numpy as np

from stream.mechanisms.base import CountMechanism, Parameters, Values, noisy_of
from stream.mechanisms.changes.levels import LevelChanges
from stream.mechanisms.changes.mechanism import Changes, ChangeSums, DayTick
from stream.mechanisms.consistency import Tree, leaf_of_zone, site_tree
from stream.mechanisms.filter.learning import NightlyFilter
from stream.mechanisms.filter.step import RegimeFilter
from stream.mechanisms.hierarchy import Hierarchy, Pruning
from stream.mechanisms.level_sums import level_sums
from stream.mechanisms.measured_tree import MeasuredTree, noise_scales
from stream.mechanisms.noise import Ints
from stream.mechanisms.registry import mechanism_of
from stream.mechanisms.target_states import States, target_states
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument
from stream.policy.fields import decimal_string
from stream.policy.sites import Zone
from stream.records import CHANGES, LevelCounts, NoiseKind, OccupancyWindow, PrivacyDay, ReleaseId
from stream.release.ledger_writer import Head
from stream.release.prices import Laws, PaidByDay, noise_laws
from stream.release.state import PublicationKey, ReleaseState, publication_key
from stream.schemas import CountRecord, Levels, LevelScales

# The counters of a release, and its mechanisms.


@dataclass(frozen=True)
class Counted:
    """The counters of a release: zones, states, or the leaves of a tree of levels."""

    names: tuple[str, ...]
    """In order: the registry in the labels of the noise."""
    largest: tuple[int, ...]
    """The largest count of each name, from the policy."""
    states: States | None
    tree: Tree | None
    """The tree, if every level has its own noise, as all have whose changes are paid for."""
    leaves: Ints
    """Index of each zone's leaf; unused without a tree."""

    @property
    def multiplicity(self) -> int:
        """The largest number of names under which one device is counted at once."""
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
    """Return the counters of a release over the zones that it covers at one site."""
    names, floors = [zone.id for zone in zones], [zone.floor for zone in zones]
    largest = np.array([zone.largest for zone in zones], dtype=np.int64)
    if release.states:
        states = target_states(names, release.states)
        return Counted(states.names, states.largest(largest.tolist()), states, None, np.arange(len(zones)))
    leaves = leaf_of_zone(floors, release.levels_up)
    tree = site_tree(names, floors, release.levels_up) if release.shares or release.by_changes else None
    found = Counted(tuple(names) if tree is None else tree.names[0], (), None, tree, leaves)
    return Counted(found.names, tuple(found.counts(largest).tolist()), None, tree, leaves)


def count_mechanisms(release: CountRelease, what: Counted, laws: Laws) -> dict[Fraction, CountMechanism]:
    """Return the mechanism of each distinct epsilon, the largest first."""
    return {epsilon: _mechanism(release, what, laws, epsilon) for epsilon in sorted(laws, reverse=True)}


def change_mechanisms(release: CountRelease, what: Counted, days: PaidByDay) -> dict[Fraction, CountMechanism]:
    """Return the mechanism of each distinct epsilon of a release that counts changes, the largest first."""
    tree = what.tree
    assert tree is not None  # noqa: S101
    largest = tree.sums(np.array(what.largest, dtype=np.int64))
    by_epsilon = {price.epsilon: price for price in days.prices.values()}
    chains = [tuple(sorted(set(level))) for level in zip(*(p.variances for p in by_epsilon.values()), strict=True)]
    return {
        epsilon: LevelChanges(
            tree,
            tuple(
                Changes(days.factor, own, chain, tuple(largest[here].tolist()), release.calendar)
                for here, own, chain in zip(tree.levels, by_epsilon[epsilon].variances, chains, strict=True)
            ),
        )
        for epsilon in sorted(by_epsilon, reverse=True)
    }


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


# Fields that only some records have; a field that is not given is absent from the record's bytes.


class DayFields(TypedDict, total=False):
    """Fields of records of a release that is paid by the day."""

    unit: str
    noise: NoiseKind
    delta: str
    counted: str
    bounded_to: str


class LevelFields(TypedDict, total=False):
    """Fields of records with floors or the building."""

    levels: Levels | None
    levels_half_width_95: Levels | None
    levels_noise_scale: LevelScales | None


class NoisyFields(TypedDict, total=False):
    """Fields of records with noisy values."""

    noisy: dict[str, int] | None
    levels_noisy: Levels | None
    levels_draws: Levels | None


Entry = TypeVar("Entry")
ByLevel = dict[str, dict[str, int]]
"""Level -> count of each of its zones (or states), floors, or of the building."""


class CountPlan:
    """A count release at a site, fixed before the first window."""

    def __init__(self, policy: PolicyDocument, release: CountRelease, site: str) -> None:
        self.release = release
        self.site = site
        self.zones: tuple[Zone, ...] = policy.zones_of(release, site)
        self.covered = tuple(zone.id for zone in self.zones)
        self._indices = [i for i, zone in enumerate(policy.site[site].zones) if release.zones.covers(zone)]
        self._counted = counted(release, self.zones)
        self.names: tuple[str, ...] = self._counted.names
        """Names of the counters, in order: the registry in the labels of the noise."""
        self._listed = "zone" in release.levels
        """Whether records list the counters; otherwise they contain levels only."""
        self.days: PaidByDay | None = PaidByDay.of(policy, release, site) if release.by_day else None
        """The cost of its days, if a whole day is paid at once."""
        self._counted_in_records = policy.site[site].counted_in_records
        self.bounded_to = policy.site[site].bound_text(changes=release.by_changes) if release.by_day else None
        """How long or how often a device is counted within a privacy day; None if the release counts every device."""
        self._tick_length = policy.site[site].tick
        self.mechanisms: dict[Fraction, CountMechanism] = (
            change_mechanisms(release, self._counted, self.days)
            if self.days is not None and release.by_changes
            else count_mechanisms(release, self._counted, noise_laws(release, self.days, self._counted.multiplicity))
        )
        """One for each distinct epsilon: audiences of equal epsilon share its values."""
        self.publication_key: PublicationKey | None = (
            publication_key(policy, release, site) if release.declared.carries else None
        )
        """The key of its publications, if it carries any."""
        declared, tree = release.declared, self._counted.tree
        self.draws_own_noise: bool = tree is not None or declared.own_noise
        """Whether the mechanism draws its noise itself, so that no noise chain over the counts is needed."""
        self.publishes_noisy: bool = (
            (declared.revisable or declared.grouped) and release.prune is None and not release.by_changes
        )
        """Whether records also contain noisy values: those of filters, and of groups without pruning, do. The noise of
        changes is not independent from window to window."""
        self.sums_name = f"{release.name}/{CHANGES}"
        """The name under which the sums of changes are stored."""
        self.sums: ChangeSums | None = None
        """The sums of a day's changes, which all audiences share; None unless the release counts changes."""
        if self.days is not None and release.by_changes:
            assert tree is not None  # noqa: S101
            self.sums = ChangeSums(self.days.factor, tree.nodes)
        self._whole = len(self.zones) == len(policy.site[site].zones)
        self._floors: dict[str, list[int]] = {}
        for place, zone in enumerate(self.zones):
            self._floors.setdefault(zone.floor, []).append(place)

    def is_made_consistent(self, mechanism: CountMechanism) -> bool:
        """Whether the noise in its values is smaller than the drawn noise, and independent from window to window."""
        return self._counted.tree is not None and mechanism.half_width_kind == "noise"

    def counts(self, window: OccupancyWindow) -> Ints:
        """Return the true counts, shape [names], bounded for a day release; restricted.

        Where changes are counted, the counts of all nodes of all levels, leaves first.
        """
        if self.release.by_changes and window.by_visits is not None:
            levels = self._visits_by_level(window.by_visits)
            return np.array([count for counts in levels.values() for count in counts.values()], dtype=np.int64)
        return self._counted.counts(self._zone_counts(window))

    def _visits_by_level(self, counts: LevelCounts) -> ByLevel:
        """Return the counts of the nodes of each published level, leaves first."""
        levels: ByLevel = {
            "zone": dict(zip(self.covered, [counts.zone[index] for index in self._indices], strict=True)),
            "floor": dict(zip(sorted(self._floors), counts.floor, strict=True)) if self._whole else {},
            "building": {"building": counts.building[0]},
        }
        return {level: levels[level] for level in self.release.levels_up}

    def is_counted(self, window: OccupancyWindow) -> bool:
        """Whether a window has the bounded counts of its privacy day, for a release that is paid by the day."""
        if self.days is None or not self.release.by_changes:
            return window.bounded is not None
        return window.by_visits is not None and self.day_tick(window).position < self.days.factor.ticks

    def continues(self, state: ReleaseState, day: PrivacyDay) -> bool:
        """Whether a release may go on with a day that it has paid for: where changes are counted, with the same run."""
        if self.sums is None:
            return True
        return state.change_days.get(self.release.name) == day and self.sums_name in state.operator_states

    def day_tick(self, window: OccupancyWindow) -> DayTick:
        """Return a window's place in its privacy day, with its counts; only where changes are counted."""
        day = window.privacy_day
        assert day is not None  # noqa: S101
        return DayTick(day.number, (window.window_end - day.start) // self._tick_length - 1, self.counts(window))

    def _zone_counts(self, window: OccupancyWindow) -> Ints:
        """Return the counts of the zones that the release covers."""
        read = window.counts if self.days is None or window.bounded is None else window.bounded
        return np.array([read[index] for index in self._indices], dtype=np.int64)

    def suffix(self, window: OccupancyWindow) -> str:
        """Return the additional part of a window's noise labels (``Context``): for a day release, its day and bound."""
        day = window.privacy_day
        return "" if self.days is None or day is None else self.days.suffix(day.number)

    def truth(self, window: OccupancyWindow) -> ByLevel:
        """Return the true counts of the published names, by level; bounded like ``counts``, restricted."""
        if self.release.by_changes and window.by_visits is not None:
            return self._visits_by_level(window.by_visits)
        zones = self._zone_counts(window)
        floors = {floor: int(zones[self._floors[floor]].sum()) for floor in sorted(self._floors)}
        named = dict(zip(self.names, self._counted.counts(zones).tolist(), strict=True))
        levels: ByLevel = {"zone": named, "floor": floors, "building": {"building": int(zones.sum())}}
        return {level: levels[level] for level in self.release.levels_up}

    def published_counts(self, mechanism: CountMechanism, values: Values) -> ByLevel:
        """Return the counts that a record of these values publishes, by level."""
        listed = self.by_name([int(value) for value in values.values[: len(self.names)]])
        return by_level(listed, {} if self.release.levels == ("zone",) else self._levels(mechanism, values)[0])

    def state_name(self, epsilon: Fraction) -> str:
        """Return the name under which an epsilon's operator state is stored."""
        return f"{self.release.name}/{decimal_string(epsilon)}"

    # --- records --------------------------------------------------------------------------------------

    def scales(self, mechanism: CountMechanism, values: Values | None = None) -> Sequence[float]:
        """Return the scale of each name's noise: for these values, or without values the largest possible one."""
        if isinstance(mechanism, Hierarchy | MeasuredTree | LevelChanges):
            return _node_scales(mechanism)[: len(self.names)]
        noise = None if values is None else values.noise
        return [(noise or mechanism.noise).scale] * len(self.names)

    def record(
        self, head: Head, window: OccupancyWindow, audience: str, values: Values | None, reason: str | None,
        spend: Fraction, *, noisy: bool = True,
    ) -> CountRecord:  # fmt: skip
        """Return the record of a release, or of a denial in the same shape: without values, and with its reason.

        Args:
            head: the fields that records of the window have in common.
            window: the window.
            audience: the audience.
            values: the released values; None for a denial.
            reason: the reason for a denial.
            spend: the amount that the audience is charged.
            noisy: whether the record contains the noisy values behind its values, where the release publishes them.
        """
        release, n, epsilon = self.release, len(self.names), self.release.epsilon[audience]
        mechanism = self.mechanisms[epsilon]
        return CountRecord(
            release_id=str(ReleaseId(self.site, release.name, audience, head.window_end, head.attempt)),
            site=head.site,
            audience=audience,
            release=release.name,
            window_start=head.window_start,
            window_end=head.window_end,
            values=None if values is None else self.by_name([int(v) for v in values.values[:n]]),
            released=values is not None,
            reason=reason,
            mechanism=release.mechanism,
            epsilon=decimal_string(epsilon),
            spend=decimal_string(spend),
            noise_scale=self.by_name(self.scales(mechanism, values)),
            half_width_95=None if values is None else self.by_name([float(w) for w in values.half_width[:n]]),
            half_width_kind=mechanism.half_width_kind,
            coverage=rounded_coverage(window.coverage),
            policy_version=head.policy_version,
            laboratory=head.laboratory,
            **self.day_fields(audience),
            **self._level_fields(mechanism, values),
            **(self._noisy_fields(values) if noisy and self.publishes_noisy else {}),
        )

    def day_fields(self, audience: str) -> DayFields:
        """Return the fields that only records of a release have that is paid by the day."""
        if self.days is None:
            return {}
        price = self.days.prices[audience]
        fields: DayFields = {"unit": "device_day", "noise": price.noise, "delta": decimal_string(price.delta)}
        if self._counted_in_records:
            fields = {**fields, "counted": self._counted_in_records}
        return fields if self.bounded_to is None else {**fields, "bounded_to": self.bounded_to}

    def _level_fields(self, mechanism: CountMechanism, values: Values | None) -> LevelFields:
        """Return the fields of floors and building, null for a denial; with the scales of their own noise, if any."""
        if self.release.levels == ("zone",):
            return {}
        levels, half_widths = self._levels(mechanism, values)
        fields: LevelFields = {"levels": levels, "levels_half_width_95": half_widths}
        if isinstance(mechanism, MeasuredTree | LevelChanges) or (
            isinstance(mechanism, Hierarchy) and self.publishes_noisy
        ):
            scales = self._nodes(_node_scales(mechanism))
            return {**fields, "levels_noise_scale": scales} if scales else fields
        return fields

    def _noisy_fields(self, values: Values | None) -> NoisyFields:
        """Return the noisy values behind a record's values, null for a denial.

        Noisy values are free. A filter's values are a function of its audience's noisy values, past and present, and of
        nothing else; the price pays for their noise. The proof of PeGaSus covers noisy counts and groups as two
        outputs, with 0.8 and 0.2 of epsilon. An audience receives the noisy values of its own epsilon, which a
        coalition has from the noise chain anyway. Those of floors and building are sums, or have separate noise that
        was paid for. Noisy values are as independent from window to window as their noise, while ``values`` lose
        that independence by smoothing.
        """
        noisy = None if values is None else noisy_of(values)
        fields: NoisyFields = {"noisy": None if noisy is None else self.by_name(noisy[: len(self.names)].tolist())}
        if self.release.levels == ("zone",):
            return fields
        fields["levels_noisy"] = None if noisy is None else self._noisy_levels(noisy)
        draws = {} if self._counted.tree is not None else self._noisy_levels(np.ones(len(self.names), np.int64))
        return {**fields, "levels_draws": draws} if draws else fields

    def _noisy_levels(self, noisy: Ints) -> Levels:
        if self._counted.tree is not None:
            return dict(self._nodes(noisy.tolist()))
        floors = [int(noisy[self._floors[floor]].sum()) for floor in sorted(self._floors)]
        return self._sums(int(noisy.sum()), floors)

    def _levels(self, mechanism: CountMechanism, values: Values | None) -> tuple[Levels | None, Levels | None]:
        if values is None:
            return None, None
        if self._counted.tree is not None:
            return self._nodes(values.values.tolist()), self._nodes(values.half_width.tolist())
        sums = level_sums(
            mechanism, values, [self._floors[floor] for floor in sorted(self._floors)],
            clamped=self.release.declared.clamped,
        )  # fmt: skip
        return self._sums(sums.building, sums.floors), self._sums(sums.building_width, sums.floor_widths)

    def _nodes(self, entries: Sequence[Entry]) -> dict[str, dict[str, Entry] | Entry]:
        """Floors and building of a tree whose nodes were measured themselves, one entry per node."""
        tree, levels = self._counted.tree, dict[str, dict[str, Entry] | Entry]()
        assert tree is not None  # noqa: S101
        for level, names, here in zip(self.release.levels_up, tree.names, tree.levels, strict=True):
            if level == "floor":
                levels["floor"] = dict(zip(names, entries[here], strict=True))
            elif level == "building":
                (levels["building"],) = entries[here]
        return levels

    def _sums(self, building: int, floors: Sequence[int]) -> Levels:
        """Levels that are sums of zones, if the release publishes them."""
        levels: Levels = {}
        if "floor" in self.release.levels:
            levels["floor"] = dict(zip(sorted(self._floors), floors, strict=True))
        if "building" in self.release.levels:
            levels["building"] = building
        return levels

    def by_name(self, entries: Sequence[Entry]) -> dict[str, Entry]:
        """Return entries, one for each of ``names`` in order, by name; empty where a record lists no names."""
        return dict(zip(self.names, entries, strict=True)) if self._listed else {}


def _node_scales(mechanism: Hierarchy | MeasuredTree | LevelChanges) -> tuple[float, ...]:
    return noise_scales(mechanism) if isinstance(mechanism, MeasuredTree) else mechanism.noise_scales()


def count_plans(policy: PolicyDocument, site: str) -> tuple[CountPlan, ...]:
    """Return the count releases of a site, in the order of the policy."""
    return tuple(
        CountPlan(policy, release, site)
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


def rounded_coverage(coverage: Fraction) -> float:
    """Return a coverage as records contain it."""
    return round(float(coverage), 4)
