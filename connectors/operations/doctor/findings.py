"""Findings of the doctor: what was checked, its state, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from stream.errors import TacetError

State = Literal["fine", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one checked thing."""

    check: str
    """What was checked, in a word or two."""
    state: State
    """``note``: only the operator can judge it."""
    text: str


def fine(check: str, text: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(check, "fine", text)


def note(check: str, text: str) -> Finding:
    """Return a finding that an operator has to judge."""
    return Finding(check, "note", text)


def wrong(check: str, text: str) -> Finding:
    """Return a problem, with its remedy."""
    return Finding(check, "wrong", text)


def findings_of(check: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield a check's findings; if the check fails, yield that as its last finding."""
    try:
        yield from look()
    except (TacetError, OSError) as error:
        yield wrong(check, str(error))
