"""One attacker against all that is released of a day: what it believes of each zone, whom it finds, how surely.

The attacker has the prior of days before, sees into open zones, knows how many people are in the others, and reads one
count a node at one tick a span: a fresh attacker for each node and span, as in the thesis (section 4.5.2), so what is
found is what one count gives away. Beliefs in a floor or the building are shared out among their zones by the prior.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from connectors.attacks.published import Channel, Nodes, Told
from stream.attackers.laws import LearntLaw, NoiseLaw
from stream.attackers.localised import (
    Success,
    class_of,
    found_by_confidence,
    found_by_guess,
    guesses,
    success,
    wilson,
)
from stream.attackers.posteriors import from_true_counts, noisy_posterior, worst_case
from stream.attackers.priors import Flags, Floats, Ints, closed_prior

Likelihoods = Sequence[NoiseLaw] | LearntLaw


class Scene(NamedTuple):
    """What is attacked, at one tick a span, and what the attacker has beforehand."""

    counts: Ints
    """Who truly is there, shape [spans, zones]."""
    control: Ints
    """Devices that are in nothing released, same shape."""
    prior: Floats
    """By span of the day, same shape; of everybody."""
    is_open: Flags
    """Zones into which the attacker sees, shape [zones]."""

    @property
    def closed(self) -> Floats:
        """The prior of somebody who is in no open zone."""
        return closed_prior(self.prior, self.is_open)


class Found(NamedTuple):
    """What an attack came to, over its runs."""

    title: str
    """What was read, and how, for people."""
    reads: dict[str, Any]
    """The same for programs."""
    by_guess: Floats
    """People found by right guesses, the prior's left out: mean over runs, shape [spans, classes]."""
    by_confidence: Floats
    """People by belief in the zone where they are, where it is above the prior's class: mean over runs."""
    single: Ints
    """``by_confidence`` of the first run alone."""
    runs: int
    success: Success
    """Right guesses of all, over all runs and spans."""
    control: Success
    """The same about devices that were not in what was released."""


def beliefs(told: Told, nodes: Nodes, laws: Likelihoods, scene: Scene) -> Floats:
    """Return Pr[in the zone | what was told], shape [spans, zones]; the prior where nothing was.

    Args:
        told: at the scene's ticks.
        nodes: of the channel.
        laws: of the noise: one a node, or one learnt for all.
        scene: of as many spans.
    """
    closed, node_of = scene.closed, nodes.of_zones()
    weights = closed @ nodes.holds.T.astype(np.float64)  # the prior of each node
    people = np.where(scene.is_open, 0, scene.counts).sum(axis=1)
    known = np.where(scene.is_open, scene.counts, 0) @ nodes.holds.T.astype(np.int64)
    found = closed.copy()
    for span in np.flatnonzero(told.released & (people > 0)):
        believed = noisy_posterior(
            _log_likelihood(laws, told.values[span], int(people[span]), known[span]), np.minimum(weights[span], 1.0)
        )
        share = np.divide(believed, weights[span], out=np.zeros_like(believed), where=weights[span] > 0)
        found[span] = np.where(node_of >= 0, closed[span] * share[node_of], closed[span])
    return np.minimum(found, 1.0)


def _log_likelihood(laws: Likelihoods, values: Ints, people: int, known: Ints) -> Floats:
    if isinstance(laws, LearntLaw):
        return laws.log_likelihood(values, people, known)
    if len(set(laws)) == 1:
        return laws[0].log_likelihood(values, people, known)
    each = zip(laws, values, known, strict=True)
    return np.stack([law.log_likelihood(np.array(value), people, int(there)) for law, value, there in each])


def attacked(title: str, reads: dict[str, Any], runs: Sequence[Floats], scene: Scene) -> Found:
    """Return what came of beliefs, one array of shape [spans, zones] a run."""
    closed = scene.closed
    guessed = [found_by_guess(run, closed, scene.counts, scene.is_open) for run in runs]
    sure = [found_by_confidence(run, closed, scene.counts, scene.is_open) for run in runs]
    return Found(
        title, reads, np.mean(guessed, axis=0), np.mean(sure, axis=0), sure[0], len(runs),
        _successes(runs, scene.counts, scene), _successes(runs, scene.control, scene),
    )  # fmt: skip


def _pooled(each: Sequence[Success], most: int) -> Success:
    """Return the share over all runs and spans, with an interval for ``most`` guesses, those of the busiest span.

    People stay where they are from span to span, and runs are about the same people: neither makes guesses independent.
    """
    right, tried = sum(one.right for one in each), sum(one.tried for one in each)
    busiest = wilson(round(right / max(1, tried) * most), most)
    return Success(right, tried, busiest.low, busiest.high)


def _successes(runs: Sequence[Floats], counts: Ints, scene: Scene) -> Success:
    most = int(counts[:, ~scene.is_open].sum(axis=1).max(initial=0))
    return _pooled([success(run, counts, scene.is_open) for run in runs], most)


def from_prior(scene: Scene) -> Found:
    """Return what the prior finds by itself; of it nobody is left out."""
    closed = scene.closed
    sure = found_by_confidence(closed, None, scene.counts, scene.is_open)
    made = guesses(closed, scene.is_open)
    by_guess = np.zeros_like(sure)
    spans = np.flatnonzero(made.zone >= 0)
    by_guess[spans, class_of(made.confidence)[spans]] = scene.counts[spans, made.zone[spans]]
    return Found(
        "nothing: the prior", {"reads": "nothing"}, by_guess.astype(np.float64), sure.astype(np.float64), sure, 1,
        _successes([closed], scene.counts, scene), _successes([closed], scene.control, scene),
    )  # fmt: skip


def from_counts(scene: Scene) -> Found:
    """Return what true counts let one find (4.3)."""
    believed = from_true_counts(scene.counts, scene.is_open)
    return attacked("true counts", {"reads": "counts"}, [believed], scene)


def worst_cases(channel: Channel, epsilon: float, scene: Scene) -> Iterator[Found]:
    """Yield how sure who knows where all others are may be at most, of one region and of all."""
    closed = scene.closed
    for observed in ("one", "all"):
        title = f"{channel.title}: at most, {observed} seen"
        reads = {**channel._asdict(), "reads": "bound", "observed": observed}
        yield attacked(title, reads, [worst_case(closed, epsilon, observed)], scene)


def drawn_at_random(scene: Scene) -> Success:
    """Return the baseline: a zone drawn among the closed ones, in the mean."""
    looked_for = scene.counts[:, ~scene.is_open].sum(axis=1)
    closed, most = int((~scene.is_open).sum()), int(looked_for.max(initial=0))
    interval = wilson(round(most / closed), most)
    return Success(round(int(looked_for.sum()) / closed), int(looked_for.sum()), interval.low, interval.high)


def pairs(told: Told, nodes: Nodes, counts: Ints) -> tuple[Ints, Ints]:
    """Return true counts and published values of the windows that were released, one of each node: for learning."""
    truth = counts @ nodes.holds.T.astype(np.int64)
    return truth[told.released].ravel(), told.values[told.released].ravel()
