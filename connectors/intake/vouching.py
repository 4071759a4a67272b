"""What probes tell of sources, and what a heartbeat may vouch for by it; pure.

A source that is asked every minute is vouched for up to a question that it answered, and from the first of an
unbroken run of answers on. Nothing that it sends by itself counts: that is people. One answer is one word: between two
questions a heartbeat vouches for nothing, so that a source that falls silent is not vouched for beyond its last answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stream.records import MINUTE, Micros

PROBE_GRID: Micros = 1 * MINUTE
"""Sources are asked at multiples of it on the connector's clock."""

Pair = tuple[str, str]
"""(site, source)."""


@dataclass(slots=True)
class Run:
    """Answers without a miss."""

    since: Micros
    """When the first of them was asked for."""
    latest: Micros
    """When the last was."""
    told: bool = False
    """Whether a heartbeat has vouched by it."""


@dataclass(slots=True)
class Vouching:
    """The last run of each source; a question that is not answered, or not asked, ends it."""

    runs: dict[Pair, Run] = field(default_factory=dict)

    def note(self, pair: Pair, at: Micros, *, answered: bool) -> None:
        """Take note of what came of the question that was asked at ``at``, a point of the probes' grid."""
        run = self.runs.get(pair)
        if not answered:
            return
        if run is None or at - run.latest > PROBE_GRID:  # one between was not answered, or never asked
            self.runs[pair] = Run(at, at)
        elif at > run.latest:
            run.latest, run.told = at, False

    def since(self, pair: Pair, watermark: Micros, listened: Micros) -> Micros | None:
        """Return from when on a heartbeat vouches up to ``watermark``; None: it does not.

        ``listened`` is since when the connector has.
        """
        run = self.runs.get(pair)
        if run is None or run.told or watermark < run.latest:
            return None
        run.told = True
        return max(run.since, listened)
