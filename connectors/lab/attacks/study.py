"""An attack on one day: beliefs about each zone, and whom they find.

The attacker has the prior of earlier days, sees into open zones, knows how many people are in the closed ones, and
reads one count per node at one tick per span. There is a fresh attacker for each node and span, as in the thesis
(section 4.5.2), so the result is what one count discloses. Beliefs in a floor or the building are distributed among
their zones by the prior.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from connectors.lab.attacks.published import Channel, Nodes, PublishedDay, Publisher, count_releases
from connectors.lab.attacks.recording import (
    Day,
    RecordedSightings,
    control_counts,
    days_of,
    laboratory,
    renamed_counts,
    spans_of,
)
from connectors.lab.attacks.tracking import TrackingResult, follow
from stream.lab.attackers.beliefs import (
    Flags,
    Floats,
    Ints,
    by_span,
    closed_prior,
    from_true_counts,
    noisy_posterior,
    prior,
    worst_case,
)
from stream.lab.attackers.likelihoods import LearntDistribution, NoiseDistribution, learn
from stream.lab.attackers.localised import (
    Success,
    class_of,
    found_by_confidence,
    found_by_guess,
    guesses,
    success,
    wilson,
)
from stream.policy.counts import CountRelease
from stream.records import DAY, SECOND, Micros
from stream.release.validation import Policy

Likelihoods = Sequence[NoiseDistribution] | LearntDistribution


class Scene(NamedTuple):
    """What is attacked, at one tick per span, and the attacker's background knowledge."""

    counts: Ints
    """True counts, shape [spans, zones]."""
    control: Ints
    """Counts of devices that no release contains, same shape."""
    prior: Floats
    """By span of the day, same shape; of everybody."""
    is_open: Flags
    """Zones that the attacker can see, shape [zones]."""

    @property
    def closed(self) -> Floats:
        """The prior of a person who is in no open zone."""
        return closed_prior(self.prior, self.is_open)


class FoundPeople(NamedTuple):
    """The results of an attack, over its runs."""

    title: str
    """Display name of the source and method."""
    reads: Mapping[str, object]
    """The same for programs."""
    by_guess: Floats
    """People found by right guesses beyond the prior's: mean over runs, shape [spans, classes]."""
    by_confidence: Floats
    """People by belief in the zone where they are, where it is above the prior's class: mean over runs."""
    single: Ints
    """``by_confidence`` of the first run alone."""
    runs: int
    success: Success
    """Right guesses of all, over all runs and spans."""
    control: Success
    """The same for devices that no release contains."""


def beliefs(published: PublishedDay, nodes: Nodes, laws: Likelihoods, scene: Scene) -> Floats:
    """Return Pr[in the zone | published values], shape [spans, zones]; the prior for unpublished spans.

    Args:
        published: the published values at the scene's ticks.
        nodes: of the channel.
        laws: of the noise: one per node, or one learnt for all.
        scene: with as many spans.
    """
    closed, node_of = scene.closed, nodes.of_zones()
    weights = closed @ nodes.holds.T.astype(np.float64)  # the prior of each node
    people = np.where(scene.is_open, 0, scene.counts).sum(axis=1)
    known = np.where(scene.is_open, scene.counts, 0) @ nodes.holds.T.astype(np.int64)
    found = closed.copy()
    for span in np.flatnonzero(published.released & (people > 0)):
        believed = noisy_posterior(
            _log_likelihood(laws, published.values[span], int(people[span]), known[span]),
            np.minimum(weights[span], 1.0),
        )
        share = np.divide(believed, weights[span], out=np.zeros_like(believed), where=weights[span] > 0)
        found[span] = np.where(node_of >= 0, closed[span] * share[node_of], closed[span])
    return np.minimum(found, 1.0)


def _log_likelihood(laws: Likelihoods, values: Ints, people: int, known: Ints) -> Floats:
    if isinstance(laws, LearntDistribution):
        return laws.log_likelihood(values, people, known)
    if len(set(laws)) == 1:
        return laws[0].log_likelihood(values, people, known)
    each = zip(laws, values, known, strict=True)
    return np.stack([law.log_likelihood(np.array(value), people, int(there)) for law, value, there in each])


def attacked(title: str, reads: Mapping[str, object], runs: Sequence[Floats], scene: Scene) -> FoundPeople:
    """Return the results of beliefs, given as one array of shape [spans, zones] per run."""
    closed = scene.closed
    guessed = [found_by_guess(run, closed, scene.counts, scene.is_open) for run in runs]
    sure = [found_by_confidence(run, closed, scene.counts, scene.is_open) for run in runs]
    return FoundPeople(
        title, reads, np.mean(guessed, axis=0), np.mean(sure, axis=0), sure[0], len(runs),
        _successes(runs, scene.counts, scene), _successes(runs, scene.control, scene),
    )  # fmt: skip


def _pooled(each: Sequence[Success], most: int) -> Success:
    """Return the share over all runs and spans, with an interval for ``most`` guesses, those of the busiest span.

    Guesses are not independent: people stay where they are from span to span, and all runs concern the same people.
    """
    right, tried = sum(one.right for one in each), sum(one.tried for one in each)
    busiest = wilson(round(right / max(1, tried) * most), most)
    return Success(right, tried, busiest.low, busiest.high)


def _successes(runs: Sequence[Floats], counts: Ints, scene: Scene) -> Success:
    most = int(counts[:, ~scene.is_open].sum(axis=1).max(initial=0))
    return _pooled([success(run, counts, scene.is_open) for run in runs], most)


def from_prior(scene: Scene) -> FoundPeople:
    """Return what the prior alone finds; it excludes nobody."""
    closed = scene.closed
    sure = found_by_confidence(closed, None, scene.counts, scene.is_open)
    made = guesses(closed, scene.is_open)
    by_guess = np.zeros_like(sure)
    spans = np.flatnonzero(made.zone >= 0)
    by_guess[spans, class_of(made.confidence)[spans]] = scene.counts[spans, made.zone[spans]]
    return FoundPeople(
        "nothing: the prior", {"reads": "nothing"}, by_guess.astype(np.float64), sure.astype(np.float64), sure, 1,
        _successes([closed], scene.counts, scene), _successes([closed], scene.control, scene),
    )  # fmt: skip


def from_counts(scene: Scene) -> FoundPeople:
    """Return what true counts allow an attacker to find (4.3)."""
    believed = from_true_counts(scene.counts, scene.is_open)
    return attacked("true counts", {"reads": "counts"}, [believed], scene)


def worst_cases(channel: Channel, epsilon: float, scene: Scene) -> Iterator[FoundPeople]:
    """Yield the maximal confidence of an attacker who knows where all others are, for one region and for all."""
    closed = scene.closed
    for observed in ("one", "all"):
        title = f"{channel.title}: at most, {observed} seen"
        reads = {**channel._asdict(), "reads": "bound", "observed": observed}
        yield attacked(title, reads, [worst_case(closed, epsilon, observed)], scene)


def drawn_at_random(scene: Scene) -> Success:
    """Return the baseline: the mean for a random closed zone."""
    looked_for = scene.counts[:, ~scene.is_open].sum(axis=1)
    closed, most = int((~scene.is_open).sum()), int(looked_for.max(initial=0))
    interval = wilson(round(most / closed), most)
    return Success(round(int(looked_for.sum()) / closed), int(looked_for.sum()), interval.low, interval.high)


def pairs(published: PublishedDay, nodes: Nodes, counts: Ints) -> tuple[Ints, Ints]:
    """Return true counts and published values of released windows, for one node each, to learn from."""
    truth = counts @ nodes.holds.T.astype(np.int64)
    return truth[published.released].ravel(), published.values[published.released].ravel()


WIDTHS = (None, 0.1)
"""Of learnt laws, in standard deviations: n^(-1/5), and what the thesis found best."""


class AttackTerms(NamedTuple):
    """Parameters of an attack."""

    span: Micros
    runs: int
    seed: int
    learn_days: int
    """Days before the last from which learnt laws are learnt; the prior is from all days."""
    lives: tuple[Micros, ...]
    """Lives of pseudonyms (TTL) that are attacked in addition to the policy's releases."""


class Attack(NamedTuple):
    """The results of an attack on a day."""

    date: str
    training: int
    """Days that the prior is from."""
    is_open: Flags
    people: Ints
    """The number of devices searched for at each span."""
    found: list[FoundPeople]
    baseline: Success
    tracking: list[TrackingResult]


def attack_day(
    policy: Policy, recorded: RecordedSightings, is_open: Flags, terms: AttackTerms, tick: Callable[[int], None]
) -> Attack:
    """Attack the last day of a recording with everything that a policy's count releases publish of it.

    Args:
        policy: supplies the releases.
        recorded: the recording of the site.
        is_open: the zones that the attacker can see, shape [zones].
        terms: the attack's parameters.
        tick: called with the number of completed runs.

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
    followed: list[TrackingResult] = []
    releases = count_releases(policy, recorded.name)
    for number, release in enumerate(releases):
        publisher = Publisher(policy, recorded.name, [release])
        found += lab.release(publisher, release, lambda run, done=number: tick(done * terms.runs + run))  # type: ignore[misc]
        followed += lab.tracking(publisher)
    people = scene.counts[:, ~is_open].sum(axis=1)
    return Attack(day.date, len(training), is_open, people, found, drawn_at_random(scene), followed)


def _scene(
    recorded: RecordedSightings, training: Sequence[Day], day: Day, is_open: Flags, span: Micros
) -> tuple[Ints, Scene]:
    """Return the indices of the attacked ticks, the last of each span, and the scene at them."""
    number = DAY // span
    past = sum(by_span(each.counts, spans_of(recorded, each, span), number) for each in training)
    spans = spans_of(recorded, day, span)
    at = np.flatnonzero(np.append(spans[1:] != spans[:-1], True))
    control = control_counts(recorded, day)
    return at, Scene(day.counts[at], control[at], prior(np.asarray(past))[spans[at]], is_open)


class _Laboratory:
    """The attacked day and the attack's means."""

    def __init__(
        self, recorded: RecordedSightings, training: Sequence[Day], day: Day, at: Ints, scene: Scene, terms: AttackTerms
    ) -> None:
        self._recorded, self._training, self._day = recorded, training, day
        self._at, self._scene, self._terms = at, scene, terms
        self._last: dict[Channel, PublishedDay] = {}

    def renamed(self, life: Micros) -> Iterator[FoundPeople]:
        """Yield what counts under pseudonyms of limited life disclose, by laws learnt on days of training."""
        nodes = _every_zone(self._recorded)
        past = [(renamed_counts(self._recorded, each, life), each.counts) for each in self._learnt_from()]
        published = [PublishedDay(values, np.ones(len(values), dtype=bool), None) for values, _ in past]
        learnt = [pairs(each, nodes, counts) for each, (_, counts) in zip(published, past, strict=True)]
        values = renamed_counts(self._recorded, self._day, life)
        now = PublishedDay(values, np.ones(len(values), dtype=bool), None)
        name, reads = f"TTL {life // SECOND} s", {"reads": "ttl", "seconds": life // SECOND}
        yield from self._by_learnt_noise(name, reads, nodes, learnt, [now])

    def release(
        self, publisher: Publisher, release: CountRelease, tick: Callable[[int], None]
    ) -> Iterator[FoundPeople]:
        """Yield what each channel of a release discloses."""
        runs: dict[Channel, list[PublishedDay]] = {}
        for run in range(self._terms.runs):
            published = publisher.run(self._day.windows, laboratory(self._terms.seed, f"{release.name} {run}"))
            for channel, each in published.items():
                runs.setdefault(channel, []).append(each)
            tick(run + 1)
        self._last = {channel: each[0] for channel, each in runs.items()}
        learnt = self._pairs_of(publisher, release)
        for channel, told_runs in runs.items():
            nodes = publisher.nodes[release.name]
            reads = {**channel._asdict(), "mechanism": release.mechanism}
            yield from self._by_exact_noise(channel, reads, nodes, told_runs)
            if channel.reads == "values" and channel in learnt:
                yield from self._by_learnt_noise(channel.title, reads, nodes, learnt[channel], told_runs)
        if not release.by_day:
            for audience, epsilon in release.epsilon.items():
                yield from worst_cases(Channel(release.name, audience, "values"), float(epsilon), self._scene)

    def tracking(self, publisher: Publisher) -> Iterator[TrackingResult]:
        """Yield the results of tracking, by each channel of the last release whose noise has one known law."""
        for channel, published in self._last.items():
            if published.laws is not None and len(set(published.laws)) == 1 and published.released.any():
                nodes = publisher.nodes[channel.release]
                found = follow(channel, nodes, published, (self._training, self._day), self._recorded)
                if found is not None:
                    yield found

    def _learnt_from(self) -> Sequence[Day]:
        return self._training[-self._terms.learn_days :]

    def _pairs_of(self, publisher: Publisher, release: CountRelease) -> dict[Channel, list[tuple[Ints, Ints]]]:
        """Return each channel's published values on days of training, with the truth."""
        found: dict[Channel, list[tuple[Ints, Ints]]] = {}
        for day in self._learnt_from():
            keys = laboratory(self._terms.seed, f"{release.name} {day.date}")
            for channel, published in publisher.run(day.windows, keys).items():
                found.setdefault(channel, []).append(pairs(published, publisher.nodes[release.name], day.counts))
        return {channel: each for channel, each in found.items() if any(len(truth) for truth, _ in each)}

    def _by_exact_noise(
        self, channel: Channel, reads: Mapping[str, object], nodes: Nodes, runs: Sequence[PublishedDay]
    ) -> Iterator[FoundPeople]:
        laws = [run.laws for run in runs]
        if all(each is not None for each in laws):
            made = [beliefs(self._now(run), nodes, run.laws or (), self._scene) for run in runs]
            yield attacked(f"{channel.title}: exact law", {**reads, "law": "exact"}, made, self._scene)

    def _by_learnt_noise(
        self,
        name: str,
        reads: Mapping[str, object],
        nodes: Nodes,
        learnt: Sequence[tuple[Ints, Ints]],
        runs: Sequence[PublishedDay],
    ) -> Iterator[FoundPeople]:
        truth, values = (np.concatenate(part) for part in zip(*learnt, strict=True))
        shown = [self._now(run) for run in runs]
        low, high = min(int(each.values.min()) for each in shown), max(int(each.values.max()) for each in shown)
        most = int(self._scene.counts.sum(axis=1).max())
        for width in WIDTHS:
            law = learn(truth, values, width, low, high, most)
            made = [beliefs(run, nodes, law, self._scene) for run in shown]
            width_text = "n^-1/5" if width is None else f"{width:g}"
            yield attacked(
                f"{name}: learnt {width_text}", {**reads, "law": "learnt", "width": width_text}, made, self._scene
            )

    def _now(self, published: PublishedDay) -> PublishedDay:
        """Return the published values at the attacked ticks."""
        return PublishedDay(published.values[self._at], published.released[self._at], published.laws)


def _every_zone(recorded: RecordedSightings) -> Nodes:
    names = tuple(("zone", zone.id) for zone in recorded.site.zones)
    return Nodes(names, np.eye(len(names), dtype=bool))
