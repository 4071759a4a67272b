"""Attackers who track one person through a day, compared with the bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from connectors.lab.attacks.published import Channel, Nodes, PublishedDay
from connectors.lab.attacks.recording import Day, RecordedSightings
from stream.accounting.leakage.temporal import learn_transitions, stationary
from stream.errors import UsageError
from stream.lab.attackers.beliefs import Floats, Ints
from stream.lab.attackers.likelihoods import NoiseDistribution
from stream.lab.attackers.localised import Success, wilson
from stream.lab.attackers.tracking import (
    OUTSIDE,
    Mobility,
    bounds,
    collectively,
    filtered_beliefs,
    knowing_others,
    most_believed,
    unobserved,
)
from stream.pseudonyms.rotation import Sightings
from stream.records import Micros

PSEUDO = 0.5
"""Added to each number of moves, so that unseen moves are not impossible."""
VICTIMS = 100
"""The maximal number of tracked people."""
PEOPLE = 2
"""The assumed number of people inside and outside together, as a multiple of the fullest training tick's."""


class TrackingResult(NamedTuple):
    """The results of tracking, over the ticks at which victims were in a counted place.

    The attacker knows that they are in one, like the thesis' attackers: beliefs and guesses are among places.
    """

    channel: Channel
    victims: int
    mobility: Success
    """Right guesses of an attacker who knows how people move and reads nothing."""
    alike: Success
    """Right guesses of an attacker who assumes that all people move alike."""
    knowing: Success
    """Right guesses of an attacker who knows where each of the others is."""
    believed: tuple[float, float, float]
    """Mean belief in the true place, for these three."""
    bound: float | None
    """The temporal bound on the mean belief; None if the noise has no pure epsilon."""
    leakage: float | None
    """Backward temporal leakage at the day's last tick, nats."""


def follow(
    channel: Channel,
    nodes: Nodes,
    published: PublishedDay,
    days: tuple[Sequence[Day], Day],
    recorded: RecordedSightings,
) -> TrackingResult | None:
    """Track people of a day by what one run published of it; None if nobody was in a counted place.

    Args:
        channel: with exact laws.
        nodes: of the channel.
        told: the published values at all ticks of the day.
        days: the days of training, then the attacked day.
        recorded: the whole recording.

    Raises:
        UsageError: the law of the noise is unknown, or not a single one.
    """
    if published.laws is None or len(set(published.laws)) != 1:
        raise UsageError("the noise of the tracked release must have one law, which is known exactly")
    (law,) = set(published.laws)
    training, day = days
    places = np.append(nodes.of_zones() + 1, OUTSIDE)  # the last entry is for devices in no zone
    known = _mobility(recorded, training, places, len(nodes.names))
    paths = _victims(places[paths_of(recorded.sightings, day.ticks, recorded.site.counts_for)])
    if len(paths) == 0:
        return None
    people = PEOPLE * max(int(each.counts.sum(axis=1).max()) for each in training)
    alike = collectively(known, law, published.values, published.released, people)
    return _outcome(channel, known, law, published, _Truth(paths, day.counts @ nodes.holds.T.astype(np.int64), alike))


class _Truth(NamedTuple):
    paths: Ints
    """Place of each victim, shape [victims, ticks]."""
    counts: Ints
    """Shape [ticks, nodes]."""
    alike: Floats
    """Beliefs of the attacker who assumes that all people move alike, shape [ticks, states]."""


def _outcome(
    channel: Channel, known: Mobility, law: NoiseDistribution, published: PublishedDay, truth: _Truth
) -> TrackingResult:
    ticks, places = truth.counts.shape
    unread, before = ~published.released[:, None], unobserved(known, ticks)
    others = truth.counts - (truth.paths[..., None] == np.arange(1, places + 1))
    knowing = np.where(unread, 0.0, knowing_others(law, published.values, others))
    beliefs = [_inside(each) for each in (before[None], truth.alike[None], filtered_beliefs(known, knowing))]
    epsilon = 1 / law.scale if law.kind == "laplace" else None
    leakage = None if epsilon is None else bounds(known, epsilon, ticks)
    by_mobility, by_alike, by_knowing = (_right(each, truth.paths) for each in beliefs)
    one, two, three = (_mean(each, truth.paths) for each in beliefs)
    return TrackingResult(
        channel, len(truth.paths), by_mobility, by_alike, by_knowing, (one, two, three),
        bound=None if leakage is None else _mean(most_believed(beliefs[0][0], leakage)[None], truth.paths),
        leakage=None if leakage is None else float(leakage[-1]),
    )  # fmt: skip


def paths_of(seen: Sightings, ticks: Ints, validity: Micros) -> Ints:
    """Return the zone of each device at each tick, -1 if it is in none; shape [devices seen then, ticks]."""
    first, last = np.searchsorted(seen.time, [ticks[0] - validity, ticks[-1]], side="right")
    time, device, zone = (column[first:last] for column in seen)
    order = np.lexsort((np.arange(len(time)), time, device))
    time, zone = time[order], zone[order]
    rows = np.unique(device[order], return_inverse=True)[1]
    end = time + validity
    same = rows[1:] == rows[:-1]
    end[:-1] = np.where(same, np.minimum(end[:-1], time[1:]), end[:-1])
    begins, ends = np.searchsorted(ticks, time), np.searchsorted(ticks, end)
    paths = np.full((int(rows.max(initial=-1)) + 1, len(ticks)), -1, dtype=np.int64)
    for ahead in range(int((ends - begins).max(initial=0))):
        is_long = begins + ahead < ends
        paths[rows[is_long], begins[is_long] + ahead] = zone[is_long]
    return paths


def _mobility(recorded: RecordedSightings, training: Sequence[Day], places: Ints, number: int) -> Mobility:
    """Return how people moved from tick to tick on days of training, between places and outside."""
    states = number + 1
    moves = np.zeros(states * states, dtype=np.int64)
    for day in training:
        paths = places[paths_of(recorded.sightings, day.ticks, recorded.site.counts_for)]
        moves += np.bincount((paths[:, :-1] * states + paths[:, 1:]).ravel(), minlength=states * states)
    forward = learn_transitions(moves.reshape(states, states), PSEUDO)
    return Mobility(stationary(forward), forward)


def _victims(paths: Ints) -> Ints:
    """Return the paths of at most ``VICTIMS`` devices, evenly spaced among all that were in some place."""
    present = np.flatnonzero((paths != OUTSIDE).any(axis=1))
    if len(present) > VICTIMS:
        present = present[np.linspace(0, len(present) - 1, VICTIMS).astype(np.int64)]
    return np.asarray(paths[present])


def _inside(beliefs: Floats) -> Floats:
    """Return beliefs given that the person is in some place: 0 outside, the others scaled to sum 1."""
    among = beliefs.copy()
    among[..., OUTSIDE] = 0.0
    return np.asarray(among / among.sum(axis=-1, keepdims=True))


def _right(beliefs: Floats, paths: Ints) -> Success:
    """Return the share of right guesses; the interval counts all guesses about one person as one."""
    inside = paths != OUTSIDE
    right, tried = int((beliefs.argmax(axis=-1) == paths)[inside].sum()), int(inside.sum())
    of_people = wilson(round(right / tried * len(paths)), len(paths))
    return Success(right, tried, of_people.low, of_people.high)


def _mean(beliefs: Floats, paths: Ints) -> float:
    spread = np.broadcast_to(beliefs, (*paths.shape, beliefs.shape[-1]))
    return float(np.take_along_axis(spread, paths[..., None], axis=-1)[..., 0][paths != OUTSIDE].mean())
