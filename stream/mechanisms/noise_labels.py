"""Labels: unique names of the draws of keyed noise.

Two draws with the same label and key are the same draw. A label therefore contains everything that distinguishes
draws: site, release and time, purpose, exact epsilon, and a digest of the mechanism's input. A digest of a small count
reveals the count: it enters the key stream and is used nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.domains import Draw, Label
from stream.errors import UsageError
from stream.records import Micros

Field = str | bytes | int | Fraction


def label(*fields: Field) -> bytes:
    """Return an injective byte form of ``fields``.

    Each field is a type tag, the length of its payload in eight bytes, and the payload. So neither
    a moved boundary (``"ab", "c"`` and ``"a", "bc"``) nor a changed type (``1``, ``"1"``, ``1/1``) can
    give two lists of fields the same label.

    Raises:
        UsageError: a field is not a str, bytes, int or Fraction (a bool is none of them).
    """
    payloads = (_payload(place, field) for place, field in enumerate(fields))
    return b"".join(tag + len(payload).to_bytes(8, "big") + payload for tag, payload in payloads)


def _payload(place: int, field: Field) -> tuple[bytes, bytes]:
    """Return the type tag and the payload of a field."""
    if isinstance(field, str):
        return b"s", field.encode()
    if isinstance(field, bytes):
        return b"b", field
    if isinstance(field, int) and not isinstance(field, bool):
        return b"i", str(field).encode()
    if isinstance(field, Fraction):
        return b"q", f"{field.numerator}/{field.denominator}".encode()
    raise UsageError(f"label field {place} must be str, bytes, int or Fraction, got {type(field).__name__}")


@dataclass(frozen=True, slots=True)
class Context:
    """Identifies a count release of one window; all labels of its noise begin with it."""

    site: str
    release: str
    window: Micros
    """End of the window."""
    attempt: int
    """1 for the first release of a window; each operator-requested re-release has the next number and fresh noise."""
    zones: tuple[str, ...]
    """The zone registry: the order in which zones read the words of a label."""
    suffix: str = ""
    """Follows the purpose of every draw: empty, or ``/`` and the day's identity for a release paid by the day."""

    def label(self, draw: Draw, *epsilons: Fraction, digest: bytes) -> bytes:
        """Return the label of one draw.

        Args:
            draw: the purpose; each is used once.
            epsilons: the exact parameters of the draw (both ends for a step of a noise chain), such as ε or σ².
            digest: digest of all that the noise is added to: of the counts, or of counts and state if the noise is in
                a test of both.
        """
        named = (self.site, self.release, self.window, self.attempt, _registry_digest(self.zones))
        return label(Label.COUNT, *named, draw + self.suffix, len(epsilons), *epsilons, digest)


@lru_cache(maxsize=256)
def _registry_digest(zones: tuple[str, ...]) -> bytes:
    """Return the digest of a zone registry; cached, since every label of every window contains it."""
    return sha256(label(*zones)).digest()


def counts_digest(*vectors: NDArray[Any]) -> bytes:
    """Return the SHA-256 of integer vectors, each with its length; restricted, never stored or published."""
    hashed = sha256()
    for vector in vectors:
        data = np.ascontiguousarray(vector, dtype="<i8").tobytes()
        hashed.update(len(data).to_bytes(8, "big") + data)
    return hashed.digest()
