"""The most private candidate that reaches a utility, where utility need not grow with what is spent.

Candidates ascend from the most private one on. Each is run, each time with noise of its own, until its runs have told
(``stream/tuning/evidence.py``) or there were enough of them. The search goes up in strides until one reaches the
utility, halves the last stride down to two neighbours, and then tries those just below: where one of them reaches the
utility too, it goes on from there. Every verdict is wrong with probability α / n at most, n being the number of all
candidates, whichever of them are tried and for however long: so with probability 1 - α no verdict is wrong.

Of candidates that were not tried nothing is said; the answer lists those that were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

from stream.errors import UsageError
from stream.tuning.evidence import Verdict, fewest_runs, verdict

Status = Literal["found", "boundary", "unreachable", "open"]
"""``found``: reached, and what is just below it is not, or not shown to be. ``boundary``: the most private candidate of
all reaches it. ``unreachable``: no candidate that was tried does. ``open``: none is shown to, some not shown not to."""
Run = Callable[[int, int], float]
"""(candidate, number of the run from 0 on) -> utility; the same again for the same two."""


class Rules(NamedTuple):
    """How a search is made."""

    target: float
    """The utility to be reached."""
    error: Fraction
    """α: probability with which some verdict may be wrong."""
    most_runs: int = 200
    """Of one candidate."""
    stride: int = 8
    """Candidates between two that are tried on the way up."""
    below: int = 3
    """Candidates just below the answer that are tried at any rate."""
    chance: bool = True
    """Whether there is any; without it one run tells all, for certain."""


@dataclass(slots=True)
class Tried:
    """What is known of a candidate."""

    utilities: list[float] = field(default_factory=list)
    """Of its runs, in their order."""
    reached: int = 0
    """Runs that reached the utility."""
    verdict: Verdict = "open"

    def take(self, utility: float, rules: Rules, error: Fraction) -> None:
        """Take in a run."""
        self.utilities.append(utility)
        self.reached += utility >= rules.target
        if rules.chance:
            self.verdict = verdict(self.reached, len(self.utilities), error)
        else:
            self.verdict = "reached" if self.reached else "missed"


class Answer(NamedTuple):
    """What a search has found."""

    status: Status
    place: int | None
    """The candidate; None where no candidate was shown to reach the utility."""
    tried: dict[int, Tried]
    """What was tried, from the most private on."""

    @property
    def next_below(self) -> int | None:
        """The least private candidate below the answer that is known to miss the utility; None where none is."""
        below = [place for place, each in self.tried.items() if each.verdict == "missed"]
        return max((place for place in below if self.place is None or place < self.place), default=None)

    def open_below(self) -> list[int]:
        """Return the candidates that were tried below the answer and of which runs have not told."""
        limit = len(self.tried) and max(self.tried) + 1 if self.place is None else self.place
        return [place for place, each in self.tried.items() if place < limit and each.verdict == "open"]


def search(candidates: int, run: Run, rules: Rules) -> Answer:
    """Return the most private candidate that reaches a utility.

    Args:
        candidates: how many there are, at least 1; 0 is the most private one.
        run: makes a run.
        rules: what is looked for, and how.

    Raises:
        UsageError: no candidate, no stride, a probability that is none, or fewer runs than any verdict needs.
    """
    if candidates < 1 or rules.stride < 1 or not 0 < rules.error < 1:
        raise UsageError("search must have a candidate, a stride of at least 1, and an error between 0 and 1")
    if rules.chance and rules.most_runs < (fewest := fewest_runs(rules.error / candidates)):
        rule = f"runs must be at least {fewest} of {candidates} candidates for this confidence"
        raise UsageError(f"{rule}, got {rules.most_runs}")
    trying = _Trying(candidates, run, rules)
    found = trying.first([*range(0, candidates, rules.stride), candidates - 1])
    if found is not None:
        found = trying.lowest(found)
    tried = dict(sorted(trying.tried.items()))
    if found is not None:
        return Answer("boundary" if found == 0 else "found", found, tried)
    missed = all(each.verdict == "missed" for each in tried.values())
    return Answer("unreachable" if missed else "open", None, tried)


class _Trying:
    """A search under way."""

    def __init__(self, candidates: int, run: Run, rules: Rules) -> None:
        self.tried: dict[int, Tried] = {}
        self._run = run
        self._rules = rules
        self._error = rules.error / candidates

    def reaches(self, place: int) -> bool:
        """Return whether a candidate is shown to reach the utility; each is run once."""
        if place not in self.tried:
            known = self.tried[place] = Tried()
            while known.verdict == "open" and len(known.utilities) < self._rules.most_runs:
                known.take(self._run(place, len(known.utilities)), self._rules, self._error)
        return self.tried[place].verdict == "reached"

    def first(self, places: Sequence[int]) -> int | None:
        """Return the first of some candidates that reaches the utility."""
        return next((place for place in places if self.reaches(place)), None)

    def lowest(self, found: int) -> int:
        """Return the candidate from which the next lower ones do not reach the utility, or are not shown to."""
        while True:
            found = self._neighbour(found)
            near = range(max(0, found - self._rules.below), found)
            lower = self.first(near)
            if lower is None:
                return found
            found = lower

    def _neighbour(self, high: int) -> int:
        """Halve what lies between a candidate and the next lower one that was tried, down to two neighbours."""
        low = max((place for place in self.tried if place < high), default=-1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.reaches(middle) else (middle, high)
        return high
