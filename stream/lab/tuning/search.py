"""The search for the most private candidate that reaches a utility.

Utility need not grow with epsilon.

Candidates ascend from the most private one. Each is run, every time with independent noise, until there is a verdict
(``verdict``) or the number of runs is exhausted. The search goes up in strides until a candidate reaches the
utility, bisects the last stride down to two neighbours, and then tries those just below. Where one of them reaches the
utility too, it continues from there. Every verdict is wrong with probability α / n at most, n being the number of all
candidates, whichever of them are tried and for however long: so with probability 1 - α no verdict is wrong.
There is no statement about candidates that were not tried; the answer lists those that were.

**The verdict** is whether runs reach a utility more often than not, valid after any number of runs. A run either
reaches the utility or not; runs are independent and identically distributed, as each has its own noise. Of n runs k
reached it. The hypothesis "with probability 1/2 at most" is tested by the likelihood ratio of a larger probability,
with equal weight for all larger ones:

    M = 2 ∫ p^k (1-p)^(n-k) dp / 2^-n,  p from 1/2 to 1
      = Σ C(n+1, j) / ((n+1) C(n, k)),  j from 0 to k

If the probability is 1/2 at most, M has a mean of at most 1 and exceeds 1/α with probability at most α (Ville, 1939),
at whatever time the runs stop. Nothing is assumed about the distribution of a run's utility. All of it is integer
arithmetic. "With probability 1/2 at least" is refuted in the same way, by the runs that did not reach the utility.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import Literal, NamedTuple

from stream.errors import UsageError

# The verdict.

Verdict = Literal["reached", "missed", "open"]
"""The utility is reached more often than not, it is not, or there is no verdict yet."""


@lru_cache(maxsize=65_536)
def verdict(reached: int, runs: int, error: Fraction) -> Verdict:
    """Return the verdict after some runs; wrong with probability ``error`` at most, whenever it is queried.

    Args:
        reached: runs that reached the utility, 0 to ``runs``.
        runs: number of runs.
        error: above 0, below 1.

    Raises:
        UsageError: a number is out of range.
    """
    if not 0 <= reached <= runs or not 0 < error < 1:
        raise UsageError(f"verdict must be on 0 to all runs, wrong in part of them, got {reached} of {runs}, {error}")
    if wealth(reached, runs) * error >= 1:
        return "reached"
    return "missed" if wealth(runs - reached, runs) * error >= 1 else "open"


def wealth(reached: int, runs: int) -> Fraction:
    """Return M: the value of a bet of 1 against "at most every second run reaches the utility"."""
    below = sum(comb(runs + 1, each) for each in range(reached + 1))
    return Fraction(below, (runs + 1) * comb(runs, reached))


def fewest_runs(error: Fraction) -> int:
    """Return the number of runs, all with the same result, after which there is a verdict."""
    runs = 1
    while verdict(runs, runs, error) == "open":
        runs += 1
    return runs


Status = Literal["found", "boundary", "unreachable", "open"]
"""``found``: reached, and not reached, or not shown to be, just below. ``boundary``: the most private candidate reaches
it. ``unreachable``: no tried candidate does. ``open``: none is shown to, some are not shown not to."""
TrialRun = Callable[[int, int], float]
"""(candidate, number of the run from 0 on) -> utility; deterministic."""


class Rules(NamedTuple):
    """The rules of a search."""

    target: float
    """The utility to reach."""
    error: Fraction
    """α: probability with which any verdict may be wrong."""
    most_runs: int = 200
    """Largest number of runs of one candidate."""
    stride: int = 8
    """Distance of the candidates that are tried on the way up."""
    below: int = 3
    """Number of candidates just below the answer that are always tried."""
    chance: bool = True
    """Whether runs differ; otherwise one run decides with certainty."""


@dataclass(slots=True)
class TriedCandidate:
    """The runs of a candidate."""

    utilities: list[float] = field(default_factory=list)
    """The utility of each run, in order."""
    reached: int = 0
    """Runs that reached the utility."""
    verdict: Verdict = "open"

    def add_run(self, utility: float, rules: Rules, error: Fraction) -> None:
        """Add a run."""
        self.utilities.append(utility)
        self.reached += utility >= rules.target
        if rules.chance:
            self.verdict = verdict(self.reached, len(self.utilities), error)
        else:
            self.verdict = "reached" if self.reached else "missed"


class SearchResult(NamedTuple):
    """The result of a search."""

    status: Status
    place: int | None
    """The candidate; None where no candidate was shown to reach the utility."""
    tried: dict[int, TriedCandidate]
    """The tried candidates, from the most private on."""

    @property
    def next_below(self) -> int | None:
        """The least private candidate below the answer that is known to miss the utility; None where none is."""
        below = [place for place, each in self.tried.items() if each.verdict == "missed"]
        return max((place for place in below if self.place is None or place < self.place), default=None)

    def open_below(self) -> list[int]:
        """Return the tried candidates below the answer without a verdict."""
        limit = len(self.tried) and max(self.tried) + 1 if self.place is None else self.place
        return [place for place, each in self.tried.items() if place < limit and each.verdict == "open"]


def check_rules(candidates: int, rules: Rules) -> None:
    """Raise UsageError for no candidate, no stride, a wrong probability, or fewer runs than any verdict needs."""
    if candidates < 1 or rules.stride < 1 or not 0 < rules.error < 1:
        raise UsageError("search must have a candidate, a stride of at least 1, and an error between 0 and 1")
    if rules.chance and rules.most_runs < (fewest := fewest_runs(rules.error / candidates)):
        rule = f"runs must be at least {fewest} of {candidates} candidates for this confidence"
        raise UsageError(f"{rule}, got {rules.most_runs}")


def search(candidates: int, run: TrialRun, rules: Rules) -> SearchResult:
    """Return the most private candidate that reaches a utility.

    Args:
        candidates: number of candidates, at least 1; 0 is the most private one.
        run: makes a run.
        rules: of the search.

    Raises:
        UsageError: no candidate, no stride, an invalid probability, or fewer runs than any verdict needs.
    """
    check_rules(candidates, rules)
    trying = _Trying(candidates, run, rules)
    found = trying.first([*range(0, candidates, rules.stride), candidates - 1])
    if found is not None:
        found = trying.lowest(found)
    tried = dict(sorted(trying.tried.items()))
    if found is not None:
        return SearchResult("boundary" if found == 0 else "found", found, tried)
    missed = all(each.verdict == "missed" for each in tried.values())
    return SearchResult("unreachable" if missed else "open", None, tried)


class _Trying:
    """The state of a search."""

    def __init__(self, candidates: int, run: TrialRun, rules: Rules) -> None:
        self.tried: dict[int, TriedCandidate] = {}
        self._run = run
        self._rules = rules
        self._error = rules.error / candidates

    def reaches(self, place: int) -> bool:
        """Return whether a candidate is shown to reach the utility; each is run once."""
        if place not in self.tried:
            known = self.tried[place] = TriedCandidate()
            while known.verdict == "open" and len(known.utilities) < self._rules.most_runs:
                known.add_run(self._run(place, len(known.utilities)), self._rules, self._error)
        return self.tried[place].verdict == "reached"

    def first(self, places: Sequence[int]) -> int | None:
        """Return the first of some candidates that reaches the utility."""
        return next((place for place in places if self.reaches(place)), None)

    def lowest(self, found: int) -> int:
        """Return the candidate below which the next ones do not reach the utility, or are not shown to."""
        while True:
            found = self._neighbour(found)
            near = range(max(0, found - self._rules.below), found)
            lower = self.first(near)
            if lower is None:
                return found
            found = lower

    def _neighbour(self, high: int) -> int:
        """Bisect between a candidate and the next lower tried one, down to two neighbours."""
        low = max((place for place in self.tried if place < high), default=-1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.reaches(middle) else (middle, high)
        return high
