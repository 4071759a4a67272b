"""The whole of an attack: each way of reading what a policy releases, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from connectors.attacks.followers import Followed, follow
from connectors.attacks.published import Channel, Nodes, Publisher, Told, count_releases
from connectors.attacks.recording import (
    Day,
    Recorded,
    control_counts,
    days_of,
    laboratory,
    renamed_counts,
    spans_of,
)
from connectors.attacks.study import (
    Found,
    Scene,
    attacked,
    beliefs,
    drawn_at_random,
    from_counts,
    from_prior,
    pairs,
    worst_cases,
)
from stream.attackers.laws import learn
from stream.attackers.localised import Success
from stream.attackers.priors import Flags, Ints, by_span, prior
from stream.policy.count_release import CountRelease
from stream.policy.document import Policy
from stream.records import DAY, SECOND, Micros

WIDTHS = (None, 0.1)
"""Of learnt laws, in standard deviations: n^(-1/5), and what the thesis found best."""


class Terms(NamedTuple):
    """How an attack is made."""

    span: Micros
    runs: int
    seed: int
    learn_days: int
    """Days before the last from which learnt laws are learnt; the prior is from all days."""
    lives: tuple[Micros, ...]
    """Times to live of names (TTL) that are attacked beside the policy's releases."""


class Attack(NamedTuple):
    """What an attacker came to on a day."""

    date: str
    training: int
    """Days that the prior is from."""
    is_open: Flags
    people: Ints
    """Devices that are looked for at each span."""
    found: list[Found]
    baseline: Success
    followed: list[Followed]


def attack_day(policy: Policy, recorded: Recorded, is_open: Flags, terms: Terms, tick: Callable[[int], None]) -> Attack:
    """Attack the last day of a recording by all that a policy's count releases tell of it.

    Args:
        policy: whose releases are run.
        recorded: the recording of the site.
        is_open: zones into which the attacker sees, shape [zones].
        terms: how.
        tick: called with the number of runs made.

    Raises:
        DataError: fewer than two whole days.
        UsageError: all zones are open.
    """
    days = days_of(recorded)
    training, day = days[:-1], days[-1]
    at, scene = _scene(recorded, training, day, is_open, terms.span)
    found = [from_prior(scene), from_counts(scene)]
    lab = _Laboratory(recorded, training, day, at, scene, terms)
    for life in terms.lives:
        found += lab.renamed(life)
    followed: list[Followed] = []
    releases = count_releases(policy, recorded.name)
    for number, release in enumerate(releases):
        publisher = Publisher(policy, recorded.name, [release])
        found += lab.release(publisher, release, lambda run, done=number: tick(done * terms.runs + run))  # type: ignore[misc]
        followed += lab.followed(publisher)
    people = scene.counts[:, ~is_open].sum(axis=1)
    return Attack(day.date, len(training), is_open, people, found, drawn_at_random(scene), followed)


def _scene(recorded: Recorded, training: Sequence[Day], day: Day, is_open: Flags, span: Micros) -> tuple[Ints, Scene]:
    """Return the ticks that are attacked, the last of each span, by their index, and what stands there."""
    number = DAY // span
    past = sum(by_span(each.counts, spans_of(recorded, each, span), number) for each in training)
    spans = spans_of(recorded, day, span)
    at = np.flatnonzero(np.append(spans[1:] != spans[:-1], True))
    control = control_counts(recorded, day)
    return at, Scene(day.counts[at], control[at], prior(np.asarray(past))[spans[at]], is_open)


class _Laboratory:
    """What is attacked, and with what."""

    def __init__(
        self, recorded: Recorded, training: Sequence[Day], day: Day, at: Ints, scene: Scene, terms: Terms
    ) -> None:
        self._recorded, self._training, self._day = recorded, training, day
        self._at, self._scene, self._terms = at, scene, terms
        self._last: dict[Channel, Told] = {}

    def renamed(self, life: Micros) -> Iterator[Found]:
        """Yield what counts under names of a time to live let one find, by laws learnt on days of training."""
        nodes = _every_zone(self._recorded)
        past = [(renamed_counts(self._recorded, each, life), each.counts) for each in self._learnt_from()]
        told = [Told(values, np.ones(len(values), dtype=bool), None) for values, _ in past]
        learnt = [pairs(each, nodes, counts) for each, (_, counts) in zip(told, past, strict=True)]
        values = renamed_counts(self._recorded, self._day, life)
        now = Told(values, np.ones(len(values), dtype=bool), None)
        name, reads = f"TTL {life // SECOND} s", {"reads": "ttl", "seconds": life // SECOND}
        yield from self._by_learnt_laws(name, reads, nodes, learnt, [now])

    def release(self, publisher: Publisher, release: CountRelease, tick: Callable[[int], None]) -> Iterator[Found]:
        """Yield what each channel of a release lets one find."""
        runs: dict[Channel, list[Told]] = {}
        for run in range(self._terms.runs):
            told = publisher.run(self._day.windows, laboratory(self._terms.seed, f"{release.name} {run}"))
            for channel, each in told.items():
                runs.setdefault(channel, []).append(each)
            tick(run + 1)
        self._last = {channel: each[0] for channel, each in runs.items()}
        learnt = self._pairs_of(publisher, release)
        for channel, told_runs in runs.items():
            nodes = publisher.nodes[release.name]
            reads = {**channel._asdict(), "mechanism": release.mechanism}
            yield from self._by_exact_law(channel, reads, nodes, told_runs)
            if channel.reads == "values" and channel in learnt:
                yield from self._by_learnt_laws(channel.title, reads, nodes, learnt[channel], told_runs)
        if not release.by_day:
            for audience, epsilon in release.epsilon.items():
                yield from worst_cases(Channel(release.name, audience, "values"), float(epsilon), self._scene)

    def followed(self, publisher: Publisher) -> Iterator[Followed]:
        """Yield what following people comes to, by each channel of the last release whose noise has one known law."""
        for channel, told in self._last.items():
            if told.laws is not None and len(set(told.laws)) == 1 and told.released.any():
                nodes = publisher.nodes[channel.release]
                found = follow(channel, nodes, told, (self._training, self._day), self._recorded)
                if found is not None:
                    yield found

    def _learnt_from(self) -> Sequence[Day]:
        return self._training[-self._terms.learn_days :]

    def _pairs_of(self, publisher: Publisher, release: CountRelease) -> dict[Channel, list[tuple[Ints, Ints]]]:
        """Return what each channel told on days of training, beside the truth."""
        found: dict[Channel, list[tuple[Ints, Ints]]] = {}
        for day in self._learnt_from():
            keys = laboratory(self._terms.seed, f"{release.name} {day.date}")
            for channel, told in publisher.run(day.windows, keys).items():
                found.setdefault(channel, []).append(pairs(told, publisher.nodes[release.name], day.counts))
        return {channel: each for channel, each in found.items() if any(len(truth) for truth, _ in each)}

    def _by_exact_law(
        self, channel: Channel, reads: dict[str, Any], nodes: Nodes, runs: Sequence[Told]
    ) -> Iterator[Found]:
        laws = [told.laws for told in runs]
        if all(each is not None for each in laws):
            made = [beliefs(self._now(told), nodes, told.laws or (), self._scene) for told in runs]
            yield attacked(f"{channel.title}: exact law", {**reads, "law": "exact"}, made, self._scene)

    def _by_learnt_laws(
        self, name: str, reads: dict[str, Any], nodes: Nodes, learnt: Sequence[tuple[Ints, Ints]], runs: Sequence[Told]
    ) -> Iterator[Found]:
        truth, values = (np.concatenate(part) for part in zip(*learnt, strict=True))
        shown = [self._now(told) for told in runs]
        low, high = min(int(each.values.min()) for each in shown), max(int(each.values.max()) for each in shown)
        most = int(self._scene.counts.sum(axis=1).max())
        for width in WIDTHS:
            law = learn(truth, values, width, low, high, most)
            made = [beliefs(told, nodes, law, self._scene) for told in shown]
            said = "n^-1/5" if width is None else f"{width:g}"
            yield attacked(f"{name}: learnt {said}", {**reads, "law": "learnt", "width": said}, made, self._scene)

    def _now(self, told: Told) -> Told:
        """Return what is told at the ticks that are attacked."""
        return Told(told.values[self._at], told.released[self._at], told.laws)


def _every_zone(recorded: Recorded) -> Nodes:
    names = tuple(("zone", zone.id) for zone in recorded.site.zones)
    return Nodes(names, np.eye(len(names), dtype=bool))
