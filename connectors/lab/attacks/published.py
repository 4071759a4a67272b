"""What an audience reads of a day, as arrays by node.

Each release runs unchanged, under laboratory keys.

A *channel* is one published series of counts: the values of a release, or the noisy values from which a filter or
PeGaSus computed them, whose law is known exactly. Its nodes are the smallest published ones that contain a zone: zones
if these are published, else floors, else the building.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson

from stream.keys import Keys
from stream.lab.attackers.beliefs import Flags, Ints
from stream.lab.attackers.likelihoods import NoiseDistribution
from stream.policy.counts import CountRelease
from stream.policy.sites import Zone
from stream.records import JsonObject, OccupancyWindow, Published
from stream.release.stage import ReleaseStage
from stream.release.state import ReleaseState
from stream.release.validation import Policy
from stream.schemas import private_topic

Reads = Literal["values", "noisy"]


class Channel(NamedTuple):
    """One series of counts: its release, its audience, and which values of the record it reads."""

    release: str
    audience: str
    reads: Reads

    @property
    def title(self) -> str:
        """Display name."""
        return f"{self.release}, {self.audience}" + (", noisy" if self.reads == "noisy" else "")


class Nodes(NamedTuple):
    """The nodes of a channel."""

    names: tuple[tuple[str, str], ...]
    """Level and name of each."""
    holds: Flags
    """Which zones each counts, shape [nodes, zones]."""

    def of_zones(self) -> Ints:
        """Return the node of each zone, -1 for zones that no node counts."""
        return np.where(self.holds.any(axis=0), self.holds.argmax(axis=0), -1)


class PublishedDay(NamedTuple):
    """What a channel published in one run."""

    values: Ints
    """Shape [ticks, nodes]; 0 where nothing was released."""
    released: Flags
    """Shape [ticks]."""
    laws: tuple[NoiseDistribution, ...] | None
    """The law of each node's noise if it is known exactly; None if values combine more than one noisy count."""


def count_releases(policy: Policy, site: str) -> list[CountRelease]:
    """Return the releases of counts that cover a zone of the site."""
    return [r for r in policy.release if isinstance(r, CountRelease) and policy.zones_of(r, site)]


def nodes_of(policy: Policy, site: str, release: CountRelease, *, measured: bool = False) -> Nodes:
    """Return the smallest nodes that a release publishes and that contain its zones.

    ``measured``: all nodes with noise of their own, the smallest first; floors too if shares are charged for them.
    """
    shown = [level for level in ("zone", "floor", "building") if level in release.levels]
    levels = [level for level in shown if level in release.shares] if measured and release.shares else shown[:1]
    zones = policy.site[site].zones
    groups = [group for level in levels for group in _groups(zones, release, level)]
    holds = np.zeros((len(groups), len(zones)), dtype=bool)
    for row, (_, places) in enumerate(groups):
        holds[row, places] = True
    return Nodes(tuple(name for name, _ in groups), holds)


def _groups(zones: Sequence[Zone], release: CountRelease, level: str) -> list[tuple[tuple[str, str], list[int]]]:
    """Return the nodes of a level and the indices of their zones, the smallest first."""
    groups: dict[str, list[int]] = {}
    if level == "zone" and release.states:
        index = {zone.id: place for place, zone in enumerate(zones)}
        groups = {
            state: [index[zone] for zone in members if zone in index] for state, members in release.states.items()
        }
    else:
        for place, zone in enumerate(zones):
            if release.zones.covers(zone):
                name = {"zone": zone.id, "floor": zone.floor, "building": "building"}[level]
                groups.setdefault(name, []).append(place)
    return sorted((((level, name), places) for name, places in groups.items()), key=lambda group: len(group[1]))


class Publisher:
    """Runs the releases of a policy at a site, and reads their records as audiences would."""

    def __init__(self, policy: Policy, site: str, releases: Iterable[CountRelease], *, measured: bool = False) -> None:
        """Store the releases to run; no others are charged here."""
        self._releases = list(releases)
        self._policy = policy.with_releases(self._releases)
        self._site = site
        self.nodes = {release.name: nodes_of(policy, site, release, measured=measured) for release in self._releases}
        self._topics = {
            private_topic(audience, release.name): (release, audience)
            for release in self._releases
            for audience in release.epsilon
        }
        self.state = ReleaseState()
        """What the stage holds after the last run; restricted."""

    def run(self, windows: Sequence[OccupancyWindow], keys: Keys) -> dict[Channel, PublishedDay]:
        """Release windows from an empty state; return what each channel published."""
        stage = ReleaseStage(self._policy, self._site, keys)
        state = stage.initial()
        read: dict[Channel, list[_Read]] = {}
        for window in windows:
            state, outputs = stage.step(state, window)
            for output in outputs:
                if isinstance(output, Published) and output.topic in self._topics:
                    self._take(read, output)
        self.state = state
        return {channel: _published(each) for channel, each in read.items()}

    def _take(self, read: dict[Channel, list[_Read]], output: Published) -> None:
        release, audience = self._topics[output.topic]
        record, nodes = orjson.loads(output.value), self.nodes[release.name]
        if record.get("revises"):
            return
        for reads in ("values", "noisy"):
            if reads in record:
                channel = Channel(release.name, audience, reads)
                read.setdefault(channel, []).append(_read(record, reads, nodes, release))


class _Read(NamedTuple):
    values: list[int]
    released: bool
    laws: tuple[NoiseDistribution, ...] | None


def _read(record: JsonObject, reads: Reads, nodes: Nodes, release: CountRelease) -> _Read:
    """Return a record's value of each node, and the law of its noise if that is known exactly."""
    if not record["released"]:
        return _Read([0] * len(nodes.names), False, None)
    levels = record.get("levels" if reads == "values" else "levels_noisy") or {}
    values = [_of(record[reads], levels, *name) for name in nodes.names]
    plain = reads == "noisy" or (release.declared.plain and release.prune is None and not release.shares)
    return _Read(values, True, _laws(record, nodes) if plain else None)


def _of(zones: JsonObject | None, levels: JsonObject, level: str, name: str) -> Any:
    if level == "zone":
        return (zones or {})[name]
    return levels["building"] if level == "building" else levels["floor"][name]


def _laws(record: JsonObject, nodes: Nodes) -> tuple[NoiseDistribution, ...]:
    """Return the law of each node's noise; floors and building have noise of their own if no zones are published."""
    kind, own = record.get("noise", "laplace"), record.get("levels_noise_scale") or {}
    return tuple(NoiseDistribution(kind, _of(record["noise_scale"], own, *name)) for name in nodes.names)


def _published(read: Sequence[_Read]) -> PublishedDay:
    laws = next((each.laws for each in read if each.laws is not None), None)
    values = np.array([each.values for each in read], dtype=np.int64).reshape(len(read), -1)
    return PublishedDay(values, np.array([each.released for each in read]), laws)
