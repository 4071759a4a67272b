"""What a doctor says: of which thing, how it is, and what can be done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from stream.errors import TacetError

State = Literal["fine", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """How one thing is."""

    check: str
    """Of what: a word or two."""
    state: State
    """``note``: nobody but an operator can tell whether that is as it should be."""
    text: str


def fine(check: str, text: str) -> Finding:
    """Return that something is as it should be."""
    return Finding(check, "fine", text)


def note(check: str, text: str) -> Finding:
    """Return what an operator has to judge."""
    return Finding(check, "note", text)


def wrong(check: str, text: str) -> Finding:
    """Return what has to be mended, and how."""
    return Finding(check, "wrong", text)


def looked_at(check: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield what a look finds; where it cannot be had that is a finding too, and the last of this look."""
    try:
        yield from look()
    except (TacetError, OSError) as error:
        yield wrong(check, str(error))
