"""Exact inversion of keyed uniform numbers: the draws of integer noise, and of coins.

    symbol   here          meaning
    U        sign bit off  a uniform real in [0, 1); a word contains its first 63 binary digits
    p_k                    Pr[|Z| >= k] of the noise Z that is drawn, k >= 1
    T_k      table         ⌊2**63 · p_k⌋

|Z| is the number of k with U < p_k. A word decides that, unless its digits equal those of some p_k (which includes the
infinite tail, where the digits are all 0). Then more digits of U are drawn until they differ. So the distribution is
exact: nothing is truncated and nothing is rounded. If the words are uniform the result has exactly the distribution of
Z. The words come from SHAKE-256 under a secret key, so the guarantee is computational differential privacy: it relies
on the key's secrecy and on SHAKE-256 as a pseudo-random function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import shake_256
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.domains import Domain
from stream.mechanisms.exact import Ints, Irrational, floor_scaled
from stream.mechanisms.noise_labels import label

Words = NDArray[np.uint64]
Digits = Callable[[int], Iterator[int]]
"""Index of a draw -> the further 64-bit words of its uniform number."""
Magnitudes = tuple[Ints, NDArray[np.bool_]]
"""Magnitudes by the first 63 digits, and where these digits are not enough."""

_LOW_63 = np.uint64((1 << 63) - 1)


def words(key: bytes, label: bytes, n: int) -> Words:
    """Return ``n`` pseudo-random 64-bit words, from one keyed SHAKE-256 call over the label.

    Key and label are length-prefixed. A longer call begins with the words of a shorter one.
    """
    return np.frombuffer(_sponge(Domain.WORDS, key, label).digest(8 * n), dtype=">u8").astype(np.uint64)


def _sponge(domain: bytes, key: bytes, label: bytes) -> Any:
    parts = (domain, key, label)
    return shake_256(b"".join(len(part).to_bytes(8, "big") + part for part in parts))


def refinement(key: bytes, label_: bytes) -> Digits:
    """Return the stream of further digits of each draw of a label, independent of its words."""

    def digits(index: int) -> Iterator[int]:
        for place in count():
            block = _sponge(Domain.DIGITS, key, label(label_, index, place)).digest(8)
            yield int.from_bytes(block, "big")

    return digits


def signed(
    drawn: Words, first: Callable[[Ints], Magnitudes], decide: Callable[[int, Iterator[int]], int], digits: Digits
) -> Ints:
    """Map uniform words to draws: the top bit is the sign, the other 63 are the first digits of U.

    Args:
        drawn: the words.
        first: computes the magnitudes from 63 digits.
        decide: computes the magnitude of a U that begins with these 63 digits, from as many further words as needed.
        digits: ``digits(i)`` yields the further words of draw ``i``; called only where the first do not decide.
    """
    uniform = (drawn & _LOW_63).astype(np.int64)
    magnitude, undecided = first(uniform)
    for index in np.flatnonzero(undecided):
        magnitude[index] = decide(int(uniform[index]), digits(int(index)))
    return np.where(drawn >> np.uint64(63), -magnitude, magnitude)


def by_table(uniform: Ints, table: Ints) -> Magnitudes:
    """Return #{k: u < T_k}, and where u equals some T_k, so that more digits are needed.

    Args:
        uniform: u, the first 63 digits of each U.
        table: T_1 >= T_2 >= … with T_k = ⌊2**63 p_k⌋; the last is the first that is 0.
    """
    ascending = table[::-1]
    above = np.searchsorted(ascending, uniform, side="right")
    return len(table) - above, ascending[above - 1] == uniform


def read_only(table: NDArray[Any]) -> NDArray[Any]:
    """Return the table, made read-only."""
    table.setflags(write=False)
    return table


# Bernoulli


def bernoulli(key: bytes, label: bytes, probability: Irrational, n: int) -> NDArray[np.bool_]:
    """Return ``n`` exact Bernoulli draws: U < probability, for the uniform numbers U of the label.

    ``probability`` must be irrational and between 0 and 1. One label gives one U per index, so the
    draws of a smaller probability are a subset of those of a larger.
    """
    return below(words(key, label, n), probability, refinement(key, label))


def below(drawn: Words, probability: Irrational, digits: Digits) -> NDArray[np.bool_]:
    """Return where U < probability; ``digits(i)`` is called only where the first 64 digits are equal."""
    threshold = _top_64(probability)
    result = np.asarray(drawn < threshold)
    for index in np.flatnonzero(drawn == threshold):
        result[index] = _is_below(int(threshold), probability, digits(int(index)))
    return result


@lru_cache(maxsize=256)
def _top_64(probability: Irrational) -> np.uint64:
    """Return the first 64 binary digits of ``probability``; cached."""
    return np.uint64(floor_scaled(probability, 64))


def _is_below(first: int, probability: Irrational, further: Iterator[int]) -> bool:
    seen, bits = first, 64
    while True:
        seen, bits = seen << 64 | next(further), bits + 64
        exact = floor_scaled(probability, bits)
        if seen != exact:
            return seen < exact
