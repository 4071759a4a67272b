"""Exact inversion: keyed words of a uniform number, and as many more of its digits as a draw needs.

A draw Z of a law that is symmetric about 0 is a sign and a magnitude. The magnitude is the number of k >= 1 with
U < p_k, where p_k = Pr[|Z| >= k] and U is a uniform real in [0, 1). A word shows a sign and the first 63 binary digits
of U, which decide nearly always; where they do not, more digits are drawn until they do. So the law is exact:
nothing is cut off and nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import shake_256
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.mechanisms.labels import label

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Digits = Callable[[int], Iterator[int]]
"""Gives, for the index of a draw, the further 64-bit words of its uniform number."""
Magnitudes = tuple[Ints, NDArray[np.bool_]]
"""Magnitudes by the first 63 digits, and where these do not decide."""

_LOW_63 = np.uint64((1 << 63) - 1)


def words(key: bytes, label: bytes, n: int) -> Words:
    """Return ``n`` pseudo-random 64-bit words, from one keyed SHAKE-256 call over the label.

    Key and label are length-prefixed. A longer call begins with the words of a shorter one.
    """
    return np.frombuffer(_sponge(b"tacet.words.1", key, label).digest(8 * n), dtype=">u8").astype(np.uint64)


def _sponge(domain: bytes, key: bytes, label: bytes) -> Any:
    parts = (domain, key, label)
    return shake_256(b"".join(len(part).to_bytes(8, "big") + part for part in parts))


def refinement(key: bytes, label_: bytes) -> Digits:
    """Return the stream of further digits of each draw of a label, apart from its words."""

    def digits(index: int) -> Iterator[int]:
        for place in count():
            block = _sponge(b"tacet.digits.1", key, label(label_, index, place)).digest(8)
            yield int.from_bytes(block, "big")

    return digits


def signed(
    drawn: Words, first: Callable[[Ints], Magnitudes], decide: Callable[[int, Iterator[int]], int], digits: Digits
) -> Ints:
    """Map uniform words to draws: the top bit is the sign, the other 63 are the first digits of U.

    Args:
        drawn: the words.
        first: what 63 digits say of each magnitude.
        decide: the magnitude of a U that begins with these 63 digits, and goes on with as many words as it takes.
        digits: ``digits(i)`` gives the further words of draw ``i``; it is asked only where the first do not decide.
    """
    uniform = (drawn & _LOW_63).astype(np.int64)
    magnitude, undecided = first(uniform)
    for index in np.flatnonzero(undecided):
        magnitude[index] = decide(int(uniform[index]), digits(int(index)))
    return np.where(drawn >> np.uint64(63), -magnitude, magnitude)


def by_table(uniform: Ints, table: Ints) -> Magnitudes:
    """Return #{k: u < T_k}, and where u equals some T_k, so that more digits must decide.

    Args:
        uniform: u, the first 63 digits of each U.
        table: T_1 >= T_2 >= … with T_k = ⌊2**63 p_k⌋; the last is the first that is 0.
    """
    ascending = table[::-1]
    above = np.searchsorted(ascending, uniform, side="right")
    return len(table) - above, ascending[above - 1] == uniform


def frozen(table: NDArray[Any]) -> NDArray[Any]:
    """Return the table, which nobody can change any more."""
    table.setflags(write=False)
    return table
