"""Noise under which two worlds with different people publish the same values.

Wherever a mechanism adds noise to something true, the noise becomes ``target + drawn - truth``: ``drawn`` is the keyed
noise of the same label without its digest of the truth, and ``target`` a number of the label's own. Both are the same
in every world, so the noisy value is; and the true counts still go through all code that reads them. What a mechanism
decides on a noisy comparison (groups, pruning, publications, crossings) is coupled in the same way, and so is what an
attribute's day is read to be. Nothing else of the product is touched: what differs between two worlds under this noise
does not follow from a released value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream.mechanisms import grouper, hierarchy, measured_tree, sparse_vector, wevent
from stream.mechanisms.changes import mechanism as changes
from stream.mechanisms.changes.noise import change_noise
from stream.mechanisms.exact import Ints
from stream.mechanisms.grouper import Grouper, GrouperState, GroupItem
from stream.mechanisms.noise import discrete_laplace
from stream.mechanisms.noise_labels import Context, counts_digest
from stream.mechanisms.sparse_vector import Node, Runs, SparseVector, SparseVectorInput
from stream.mechanisms.wevent import BudgetAbsorption
from stream.policy.attributes import ATTRIBUTES
from stream.release import counts
from stream.sensing.day_attributes import DayAttributes, DayState, ZoneDay

NO_DIGEST = bytes(32)
HIGHEST = 8
"""No target is as large."""


def target(*what: object, size: int) -> Ints:
    """Return counts that follow from what they are for alone."""
    drawn = hashlib.shake_256(repr(what).encode()).digest(size)
    return np.frombuffer(drawn, dtype=np.uint8).astype(np.int64) % HIGHEST


class _Truths:
    """The vectors of counts that were digested: which one a draw of noise is for follows from its digest."""

    def __init__(self) -> None:
        self._of: dict[bytes, Ints] = {}

    def digest(self, *vectors: Ints) -> bytes:
        made = _DIGEST(*vectors)
        self._of[made] = np.array(vectors[0], dtype=np.int64)
        return made

    def shift(self, digest: bytes, *what: object) -> Ints:
        """Return what noise has to be moved by, so that a noisy value follows from what it is for alone."""
        truth = self._of[digest]
        return target(*what, size=len(truth)) - truth


_DIGEST = counts_digest


@contextmanager
def coupled_noise() -> Iterator[None]:
    """Couple all noise that the product draws while the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        truths = _Truths()
        _couple_chains(patch, truths)
        _couple_changes(patch, truths)
        _couple_pruning(patch, truths)
        _couple_groups(patch)
        _couple_publications(patch)
        _couple_crossings(patch)
        _couple_attributes(patch)
        yield


def _couple_chains(patch: pytest.MonkeyPatch, truths: _Truths) -> None:
    """Noise on counts: the chain of a window's audiences, and that of each level."""
    for module, name in ((counts, "noise_chain"), (measured_tree, "noise_chain"), (hierarchy, "chain")):
        original = getattr(module, name)

        def coupled(
            key: bytes, context: Context, digest: bytes, laws: Sequence[Any], n: int, original: Any = original
        ) -> dict[Any, Ints]:
            shift = truths.shift(digest, context)
            return {law: noise + shift for law, noise in original(key, context, NO_DIGEST, laws, n).items()}

        patch.setattr(module, "counts_digest", truths.digest)
        patch.setattr(module, name, coupled)


def _couple_changes(patch: pytest.MonkeyPatch, truths: _Truths) -> None:
    """Noise on the sums of a day's changes."""
    original = change_noise

    def coupled(
        key: bytes, context: Context, digest: bytes, variances: Sequence[Fraction], n: int
    ) -> dict[Fraction, Ints]:
        shift = truths.shift(digest, context)
        return {law: noise + shift for law, noise in original(key, context, NO_DIGEST, variances, n).items()}

    patch.setattr(changes, "counts_digest", truths.digest)
    patch.setattr(changes, "change_noise", coupled)


def _couple_pruning(patch: pytest.MonkeyPatch, truths: _Truths) -> None:
    """The tests of which nodes are skipped; nothing else in this module draws by itself."""

    def coupled(key: bytes, label: bytes, epsilon: Fraction, n: int) -> Ints:
        name, digest = label[:-32], label[-32:]
        return discrete_laplace(key, name + NO_DIGEST, epsilon, n) + truths.shift(digest, name)

    patch.setattr(hierarchy, "discrete_laplace", coupled)


def _couple_groups(patch: pytest.MonkeyPatch) -> None:
    """The tests of which windows are alike."""
    draw = Grouper.draw

    def coupled(self: Grouper, key: bytes, context: Context, state: GrouperState, counts: Ints) -> tuple[Ints, Ints]:
        rho, nu = draw(self, key, context, state, counts)
        grown = grouper._append(state, GroupItem(counts, counts, rho, nu))
        return rho, nu - grouper.deviation(grown.counts, grown.size)

    patch.setattr(grouper, "counts_digest", lambda *_: NO_DIGEST)
    patch.setattr(Grouper, "draw", coupled)


def _couple_publications(patch: pytest.MonkeyPatch) -> None:
    """Values of ``uniform``, ``sample`` and ``ba``, and the tests of whether counts have moved."""
    noisy, moved = wevent._WEvent._noisy, BudgetAbsorption._moved

    def coupled(self: Any, item: Any, units: int) -> Ints:
        made: Ints = noisy(self, item, units) - item.counts + target(item.context, size=self.zones)
        return made

    def coupled_test(self: Any, state: Any, item: Any, units: int) -> bool:
        return moved(self, state, item._replace(counts=target(item.context, size=self.zones)), units)

    patch.setattr(wevent, "counts_digest", lambda *_: NO_DIGEST)
    patch.setattr(wevent._WEvent, "_noisy", coupled)
    patch.setattr(BudgetAbsorption, "_moved", coupled_test)


def _couple_crossings(patch: pytest.MonkeyPatch) -> None:
    """The tests of threshold streams; their digest is left what it holds of earlier answers."""
    ask = SparseVector._query

    def coupled(
        self: SparseVector, state: Runs, node: Node, place: int, item: SparseVectorInput, drawn: tuple[int, int]
    ) -> str | None:  # fmt: skip
        counts = target(item.context, size=len(self.thresholds))
        return ask(self, state, node, place, item._replace(counts=counts), drawn)

    patch.setattr(sparse_vector, "counts_digest", lambda _, *earlier: counts_digest(*earlier))
    patch.setattr(SparseVector, "_query", coupled)


def _couple_attributes(patch: pytest.MonkeyPatch) -> None:
    """What a zone's day is read to be: sensitive, shown or empty by its name alone."""
    value = DayAttributes._value

    def coupled(self: DayAttributes, state: DayState, zone_day: ZoneDay, attribute: str) -> str | int | float | None:
        value(self, state, zone_day, attribute)
        zone = self.zones[next(place for place, each in enumerate(state.zones) if each is zone_day)][0]
        number = int(target(self.site, zone, attribute, state.local_day, size=1)[0])
        if number == 0:
            return None
        return f"{6 + number:02d}:30" if ATTRIBUTES[attribute].is_time else number / HIGHEST

    patch.setattr(DayAttributes, "_value", coupled)
