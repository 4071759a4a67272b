"""Localisation success: guesses compared with the truth, by class of the attacker's confidence.

Ghayyur (2022), sections 4.5 and 4.6. An attacker guesses one zone for its victim. As it cannot distinguish people, it
makes one guess per span: the closed zone of the largest belief. A guess is right for the people in that zone
and counts for no others. People whom the attacker finds from the prior alone, with the same or higher confidence, are
left out: the counts have added nothing. The thesis plots another figure, which is computed too: for each person the
belief in the zone where that person is, guessed or not.

Success is a share of guesses, with Wilson's interval. It is compared with the same guesses about people who were
left out of the release (*control*: what is known of anyone), and with a random zone (*baseline*).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stream.errors import UsageError
from stream.lab.attackers.beliefs import Flags, Floats, Ints

CLASSES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Upper ends of the classes of confidence; the first begins above 0."""
_SLACK = 1e-12
"""Tolerance for rounding of a belief at the end of its class."""


def class_of(confidence: Floats) -> Ints:
    """Return the class of each belief, 0 … 5, and -1 for a belief of 0."""
    found = np.searchsorted(np.array(CLASSES) + _SLACK, confidence)
    return np.where(confidence > 0, np.minimum(found, len(CLASSES) - 1), -1)


class Guesses(NamedTuple):
    """One guess per span."""

    zone: Ints
    """Guessed zone, shape [spans]; -1 where there is no belief, and so no guess."""
    confidence: Floats
    """Belief in the guessed zone."""


def guesses(beliefs: Floats, is_open: Flags) -> Guesses:
    """Return the closed zone of the largest belief at each span; among equals the first.

    Args:
        beliefs: Pr[in the zone], shape [spans, zones]; each of one region, so rows need not sum to 1.
        is_open: zones in which no person is sought, shape [zones].
    """
    closed = np.where(is_open, -1.0, beliefs)
    zone = closed.argmax(axis=1)
    confidence = closed[np.arange(len(closed)), zone]
    return Guesses(np.where(confidence > 0, zone, -1), np.maximum(confidence, 0.0))


def found_by_guess(beliefs: Floats, prior: Floats, counts: Ints, is_open: Flags) -> Ints:
    """Return the people found by a right guess but not as confidently by the prior, by span and class.

    Args:
        beliefs: after the counts, shape [spans, zones].
        prior: before them, same shape.
        counts: true counts, same shape.
        is_open: zones in which no person is sought.

    Returns:
        People, shape [spans, classes]; each in the class of the guess that finds them.
    """
    made, before = guesses(beliefs, is_open), guesses(prior, is_open)
    gained = (made.zone != before.zone) | (class_of(made.confidence) > class_of(before.confidence))
    found = np.zeros((len(counts), len(CLASSES)), dtype=np.int64)
    spans = np.flatnonzero((made.zone >= 0) & gained)
    found[spans, class_of(made.confidence)[spans]] = counts[spans, made.zone[spans]]
    return found


def found_by_confidence(beliefs: Floats, prior: Floats | None, counts: Ints, is_open: Flags) -> Ints:
    """Return people by span and class of the belief in the zone where they are, if above the prior's class.

    This needs no guess; it is what the thesis plots. With ``prior`` None no person is left out.
    """
    classes = class_of(beliefs)
    counted = ~is_open & (classes >= 0)
    if prior is not None:
        counted &= classes > class_of(prior)
    found = np.zeros((len(counts), len(CLASSES)), dtype=np.int64)
    spans, zones = np.nonzero(counted)
    np.add.at(found, (spans, classes[spans, zones]), counts[spans, zones])
    return found


class Success(NamedTuple):
    """The share of right guesses."""

    right: int
    tried: int
    low: float
    """Ends of Wilson's 95 % interval; 0 if there was no guess."""
    high: float

    @property
    def share(self) -> float:
        """Right of tried; 0 where nothing was tried."""
        return self.right / self.tried if self.tried else 0.0


def success(beliefs: Floats, counts: Ints, is_open: Flags) -> Success:
    """Return how many of the people in closed zones are guessed right, over all spans."""
    made = guesses(beliefs, is_open)
    spans = np.flatnonzero(made.zone >= 0)
    return wilson(int(counts[spans, made.zone[spans]].sum()), int(counts[:, ~is_open].sum()))


def wilson(right: int, tried: int, z: float = 1.959963984540054) -> Success:
    """Return Wilson's score interval (1927) of a share; at z = 1.96 of 95 %.

    Raises:
        UsageError: more right than tried, or fewer than none.
    """
    if not 0 <= right <= tried:
        raise UsageError(f"right guesses must be 0 to the {tried} tried, got {right}")
    if tried == 0:
        return Success(0, 0, 0.0, 1.0)
    share, spread = right / tried, z * z / tried
    middle = (share + spread / 2) / (1 + spread)
    reach = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return Success(right, tried, max(0.0, middle - reach), min(1.0, middle + reach))
