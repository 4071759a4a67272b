"""What an attacker believes before any count of the day is read: where an average person is at this time of day.

    symbol   here        meaning
    t        span        a span of the day, such as 10 minutes
    l        zone        column
    m_l^t    recorded    people recorded in zone l at span t, added up over the days of training
    p_l^t    the result  m_l^t / Σ_l m_l^t

Ghayyur (2022), section 4.5.1. Everybody is alike to this attacker: one row a span, whoever the victim is. Zones into
which the attacker sees are *open*: who is there is known, so nobody else is there, and the other zones' probabilities
are scaled up to 1 (section 4.5.2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from stream.errors import UsageError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

OPEN_KINDS: Mapping[str, tuple[str, ...]] = {
    "external": (),
    "student": ("classroom", "open"),
    "admin": ("open", "corridor"),
}
"""Attacker -> kinds of zones into which it sees: nowhere; where students may go; what cameras see (section 4.6.2)."""


def opened(kinds: Collection[str], seen: Collection[str]) -> Flags:
    """Return which zones are open: those of the kinds that an attacker sees.

    Args:
        kinds: of each zone, in registry order.
        seen: kinds into which the attacker sees; one that no zone has opens nothing.
    """
    return np.array([kind in seen for kind in kinds], dtype=bool)


def opened_for(people: Ints, order: Ints, share: float) -> Flags:
    """Return the fewest first zones of an order, open ones, in which so large a share of people was (δ in 4.6.1).

    At least one zone stays closed, so that somebody can be looked for.

    Args:
        people: recorded in each zone, shape [zones].
        order: in which zones are opened, each once.
        share: δ, in [0, 1].
    """
    so_far = np.cumsum(people[order]) - people[order]
    is_open = np.zeros(len(people), dtype=bool)
    is_open[order[(so_far < share * people.sum()) & (np.arange(len(order)) < len(order) - 1)]] = True
    return is_open


def by_span(counts: Ints, spans: Ints, number: int) -> Ints:
    """Return people recorded at each span of a day, added up over windows.

    Args:
        counts: true counts, shape [windows, zones].
        spans: the span of each window, in [0, number), shape [windows].
        number: how many spans a day has.
    """
    recorded = np.zeros((number, counts.shape[1]), dtype=np.int64)
    np.add.at(recorded, spans, counts)
    return recorded


def prior(recorded: Ints) -> Floats:
    """Return p_l^t, rows sum to 1; a span at which nobody was ever recorded tells nothing: all zones alike.

    Args:
        recorded: m_l^t, at least 0, shape [spans, zones], of at least one zone.

    Raises:
        UsageError: there is no zone, or a negative number.
    """
    if recorded.ndim != 2 or recorded.shape[1] == 0 or recorded.min(initial=0) < 0:
        raise UsageError("recorded must be numbers of people of at least 0, shape [spans, at least one zone]")
    return _shares(recorded.astype(np.float64))


def closed_prior(known: Floats, is_open: Flags) -> Floats:
    """Return the prior of somebody who is in no open zone: 0 there, the others scaled to 1.

    Args:
        known: a prior, shape [spans, zones].
        is_open: which zones the attacker sees, shape [zones].

    Raises:
        UsageError: all zones are open, so that there is nobody to look for.
    """
    if is_open.all():
        raise UsageError("at least one zone must be closed; in open ones nobody is looked for")
    return _shares(np.where(is_open, 0.0, known), ~is_open)


def _shares(weights: Floats, among: Flags | None = None) -> Floats:
    total = weights.sum(axis=1, keepdims=True)
    alike = np.ones(weights.shape[1]) if among is None else among.astype(np.float64)
    return np.where(total > 0, weights / np.where(total > 0, total, 1.0), alike / alike.sum())
