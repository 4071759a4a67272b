"""Which epsilon, or salt life, is the most private one that still serves a task: what a search on a recording found.

Everything here is restricted: released values are compared with true counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from connectors.tuning.attackers import LEARN_DAYS, Looking
from connectors.tuning.recording import RecordedSite
from stream.errors import UsageError
from stream.keys import LaboratoryKeys, subkey
from stream.policy.document import decimal_string
from stream.records import DAY, SECOND
from stream.tuning.bench import Bench, NoiseBench, Task, TtlBench, prepared
from stream.tuning.candidates import EPSILONS
from stream.tuning.price import Terms, Unit
from stream.tuning.search import Rules, Tried, search
from stream.tuning.utility import Measured
from stream.tuning.world import Period, World, world_of

TTL = "ttl"
LEAD = DAY
"""So long before the first window that is released rows are read for names that live on."""
THESIS: dict[tuple[str, Period, Fraction], tuple[str, float]] = {
    ("laplace", "day", Fraction("0.75")): ("0.1", 23.7),
    ("laplace", "day", Fraction("0.9")): ("0.66", 14.5),
    ("laplace", "night", Fraction("0.75")): ("0.18", 26.6),
    ("laplace", "night", Fraction("0.9")): ("1.675", 19.3),
    ("pegasus", "day", Fraction("0.75")): ("0.04", 24.1),
    ("pegasus", "day", Fraction("0.9")): ("15", 16.9),
    ("pegasus", "night", Fraction("0.75")): ("0.00001", 26.6),
    ("pegasus", "night", Fraction("0.9")): ("4", 19.5),
    (TTL, "day", Fraction("0.75")): ("1", 20.4),
    (TTL, "day", Fraction("0.9")): ("120", 14.9),
    (TTL, "night", Fraction("0.75")): ("1", 19.5),
    (TTL, "night", Fraction("0.9")): ("1", 19.5),
}
"""Mechanism, period and utility of a heat map -> epsilon of a window or salt life in seconds, and the spread of utility
in percent: Table 4.2 of Ghayyur's thesis."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is looked for."""

    task: Task
    mechanisms: tuple[str, ...]
    utilities: tuple[Fraction, ...]
    """Each above 0, at most 1."""
    periods: tuple[Period, ...] = ("all",)
    unit: Unit = "window"
    days: int = 1
    """The last whole local days, on which utility is measured."""
    before: int = 0
    """Days before these that are released too, from which a filter learns."""
    error: Fraction = Fraction(1, 100)
    """Probability with which any verdict of a mechanism, period and utility may be wrong."""
    most_runs: int = 200
    epsilons: tuple[Fraction, Fraction] = (EPSILONS[0], EPSILONS[-1])
    """The smallest and the largest that are tried."""
    clamped: bool = False
    """Whether what is below 0 is taken for 0."""


def tune(
    recorded: RecordedSite, asked: Asked, keys: LaboratoryKeys, made: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Return the most private candidate of each mechanism, period and utility, and how sure that is.

    Args:
        recorded: the site's recording.
        asked: what is looked for.
        keys: under which noise is drawn; the same ones give the same answers.
        made: called after each run.

    Raises:
        UsageError: what is asked does not go together, or not with the site.
        DataError: the recording has too little for it.
    """
    _check(recorded, asked)
    rows = []
    for mechanism in asked.mechanisms:
        world = _world(recorded, asked, bounded=mechanism != TTL and _terms(recorded, asked, mechanism).bounded)
        bench = _bench(recorded, asked, mechanism, world, _Noise(keys, made))
        looking = Looking(recorded, world.as_one() if asked.task == "building" else world, bench)
        rows += [_row(asked, mechanism, bench, looking, _Goal(*goal)) for goal in _goals(asked)]
    return {
        "site": recorded.name, "task": asked.task, "unit": asked.unit, "days": asked.days, "before": asked.before,
        "confidence": float(1 - asked.error), "policy_version": recorded.policy.version, "answers": rows,
        "laboratory": True, "restricted": True,
    }  # fmt: skip


def _check(recorded: RecordedSite, asked: Asked) -> None:
    by_day = asked.unit == "device_day"
    if by_day and TTL in asked.mechanisms:
        raise UsageError("--unit: device_day must go with a mechanism that has an epsilon, got ttl, which has none")
    if by_day and recorded.policy.site[recorded.name].day_starts is None:
        raise UsageError(f"--unit: device_day must go with a site that has day_starts, which '{recorded.name}' has not")


class _Noise(NamedTuple):
    """Where noise comes from, and what is called when some was drawn."""

    keys: LaboratoryKeys
    made: Callable[[], None]

    def day_key(self, day: int) -> bytes:
        """Return the secret of a key day."""
        return subkey(self.keys.noise_key(day), "tune")


class _Goal(NamedTuple):
    period: Period
    utility: Fraction


def _goals(asked: Asked) -> Iterator[tuple[Period, Fraction]]:
    for period in asked.periods:
        for utility in asked.utilities:
            yield period, utility


def _terms(recorded: RecordedSite, asked: Asked, mechanism: str) -> Terms:
    site = recorded.policy.site[recorded.name]
    return Terms(
        mechanism, asked.unit, site.tick, site.ticks_per_observation, site.contribution_ticks,
        recorded.policy.privacy.delta,
    )  # fmt: skip


def _world(recorded: RecordedSite, asked: Asked, *, bounded: bool) -> World:
    times, counts = recorded.counts(bounded=bounded)
    return world_of(recorded.site, times, counts, asked.days, asked.before)


def _bench(recorded: RecordedSite, asked: Asked, mechanism: str, world: World, noise: _Noise) -> Bench:
    ready = prepared(world, asked.task, asked.periods)
    if mechanism == TTL:
        learning = world.before(LEARN_DAYS) or world
        seen = recorded.seen.since(int(learning.times[learning.begins]) - LEAD)
        validity = recorded.policy.site[recorded.name].validity
        return TtlBench(ready, seen, validity, len(world.site.zones), noise.made)
    terms = _terms(recorded, asked, mechanism)
    return NoiseBench(ready, terms, noise.day_key, noise.made, asked.epsilons, asked.clamped)


# --- answers ------------------------------------------------------------------------------------------


def _row(asked: Asked, mechanism: str, bench: Bench, looking: Looking, goal: _Goal) -> dict[str, Any]:
    def run(place: int, number: int) -> float:
        return bench.measures(place, number)[goal.period].utility

    rules = Rules(float(goal.utility), asked.error, asked.most_runs, chance=bench.chance)
    found = search(len(bench.candidates), run, rules if bench.chance else rules._replace(stride=1))
    row: dict[str, Any] = {
        "mechanism": mechanism, "period": goal.period, "utility": float(goal.utility), "status": found.status,
    }  # fmt: skip
    row |= _told(bench, found.place) | {"epsilon_a_day": None, "measured": None, "attackers": None}
    if found.place is not None:
        if isinstance(bench, NoiseBench):
            row["epsilon_a_day"] = decimal_string(bench.terms.of_day(bench.candidates[found.place]))
        row["measured"] = _measured(bench, goal.period, found.place, found.tried[found.place])
        row["attackers"] = looking.found(found.place, goal.period)
    row["next_below"] = _told(bench, found.next_below) if found.next_below is not None else None
    row["open_below"] = [_told(bench, place) for place in found.open_below()]
    row["tried"] = [_told(bench, place) | _tried(each) for place, each in found.tried.items()]
    row["thesis"] = _thesis(asked, mechanism, goal)
    return row


def _told(bench: Bench, place: int | None) -> dict[str, Any]:
    """Return a candidate as programs read it."""
    value = None if place is None else bench.candidates[place]
    if bench.chance:
        return {"epsilon": None if value is None else decimal_string(Fraction(value))}
    return {"ttl_seconds": None if value is None else float(value / SECOND)}


def _tried(each: Tried) -> dict[str, Any]:
    return {
        "runs": len(each.utilities), "reached": each.reached, "verdict": each.verdict,
        "utility": fmean(each.utilities),
    }  # fmt: skip


def _measured(bench: Bench, period: Period, place: int, known: Tried) -> dict[str, Any]:
    runs = [bench.measures(place, number)[period] for number in range(len(known.utilities))]
    means = {name: fmean(values) for name, *values in zip(Measured._fields, *runs, strict=True)}
    return {"runs": len(runs), "reached": known.reached} | means | {"between_runs": pstdev(known.utilities)}


def _thesis(asked: Asked, mechanism: str, goal: _Goal) -> dict[str, Any] | None:
    """Return what the thesis found, where it asked the same."""
    if asked.task != "heatmap" or asked.unit != "window":
        return None
    found = THESIS.get((mechanism, goal.period, goal.utility))
    if found is None:
        return None
    named = {"ttl_seconds": float(found[0])} if mechanism == TTL else {"epsilon": found[0]}
    return named | {"spread": found[1] / 100}
