"""Whether releases keep what they promise: each is run often with a canary and without, and a bound is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from connectors.attacks.alarms import SCORES as ALARMS
from connectors.attacks.alarms import alarm_releases, alarm_scores, deciding, promised
from connectors.attacks.canary import Attributed, Worlds, attributed, worlds
from connectors.attacks.published import Channel, Nodes, Publisher, Told, count_releases
from connectors.attacks.recording import Recorded, days_of, laboratory
from stream.attackers.membership import LEVEL, Bound, best_threshold, measure, most_shown
from stream.attackers.priors import Floats, Ints
from stream.errors import UsageError
from stream.policy.count_release import CountRelease
from stream.policy.document import AttributeRelease, Policy
from stream.policy.threshold_release import ThresholdRelease
from stream.records import OccupancyWindow, Published
from stream.release.stage import Releases
from stream.schemas import private_topic

Tick = Callable[[int], None]
SCORES = ("likelihood", "values")
"""What an attacker makes of a run: the exact log-likelihood ratio, 0 where it cannot be had (to nine digits, so that
outcomes of one ratio are one); values added up."""
WITHHELD = ("withheld",)
"""Of attributes: how many are not shown."""


class Promise(NamedTuple):
    """What one audience's share of a release promises about the canary."""

    release: str
    audience: str
    unit: str
    epsilon: float
    delta: float


class Tried(NamedTuple):
    """What runs have shown of one promise."""

    promise: Promise
    bound: Bound
    score: str
    """By which score, chosen with the threshold."""
    largest_ratio: float | None
    """Largest exact |log-likelihood ratio| of a measured run; None where it cannot be had."""

    @property
    def exceeded(self) -> bool:
        """Whether more was shown than is promised."""
        return self.bound.exceeds(self.promise.epsilon)


class Scores(NamedTuple):
    """Of runs on both sides, each of shape [runs, scores]."""

    names: tuple[str, ...]
    there: Floats
    away: Floats


def membership(policy: Policy, recorded: Recorded, runs: int, seed: int, held: Policy, tick: Tick) -> Iterator[Tried]:
    """Yield what runs show of each count and attribute release and audience.

    Args:
        policy: whose releases are run.
        recorded: people among whom the canary is.
        runs: measured on each side; as many more choose the threshold.
        seed: of the noise.
        held: whose promises are held against them; it has the same releases and audiences.
        tick: called with the number of runs made.

    Raises:
        UsageError: nothing is promised of a release.
        DataError: the recording has no whole days.
    """
    counts, attributes = count_releases(policy, recorded.name), _attribute_releases(policy, recorded.name)
    promises = {(p.release, p.audience): p for p in _promises(held, recorded.name)}
    for each in _promises(policy, recorded.name):
        if (each.release, each.audience) not in promises:
            raise UsageError(f"--promised: must have release '{each.release}' for audience '{each.audience}' too")
    level, day, done = LEVEL / max(1, len(promises)), days_of(recorded)[-1], _Made(tick)
    for release in counts:
        both = worlds(policy, recorded, day, release)
        scored = _count_scores(policy, recorded.name, release, both, _Plan(2 * runs, seed, done))
        for audience in release.epsilon:
            yield _tried(promises[release.name, audience], scored[audience], level)
    for attribute_release in attributes:
        asked = attributed(policy, recorded, day, attribute_release)
        scored = _attribute_scores(policy, recorded.name, attribute_release, asked, _Plan(2 * runs, seed, done))
        for audience, mine in scored.items():
            found = _tried(promises[attribute_release.name, audience], mine, level, one_way=True)
            yield found._replace(largest_ratio=_withheld_ratio(attribute_release, audience, asked))
    for stream in alarm_releases(policy, recorded.name):
        both = deciding(policy, recorded, day, stream)
        for audience, mine in _alarm_scores(policy, recorded.name, stream, both, _Plan(2 * runs, seed, done)).items():
            yield _tried(promises[stream.name, audience], mine, level)


class _Made:
    """How many runs have been made."""

    def __init__(self, tick: Tick) -> None:
        self._tick, self._runs = tick, 0

    def one(self) -> None:
        self._runs += 1
        self._tick(self._runs)


class _Plan(NamedTuple):
    runs: int
    """On each side, those that choose the threshold among them."""
    seed: int
    done: _Made


def _tried(promise: Promise, scored: Scores, level: float, *, one_way: bool = False) -> Tried:
    """Choose score and threshold on the first half of the runs, and measure them on the second."""
    half, delta = len(scored.there) // 2, promise.delta
    chosen: tuple[float, int, float] = (-1.0, 0, 0.0)  # shown, less the score's place, threshold
    exact = np.abs(np.concatenate([scored.there[half:, 0], scored.away[half:, 0]]))
    known = scored.names[0] == SCORES[0] and bool(exact.any())
    for kind in range(scored.names == SCORES and not known, len(scored.names)):
        there, away = scored.there[:half, kind], scored.away[:half, kind]
        threshold = best_threshold(there, away, level, delta, one_way=one_way)
        shown = measure(there, away, threshold, level, delta, one_way=one_way).epsilon
        chosen = max(chosen, (shown, -kind, threshold))
    kind, threshold = -chosen[1], chosen[2]
    there, away = scored.there[half:, kind], scored.away[half:, kind]
    bound = measure(there, away, threshold, level, delta, one_way=one_way)
    return Tried(promise, bound, scored.names[kind], float(exact.max()) if known else None)


def _promises(policy: Policy, site: str) -> Iterator[Promise]:
    for release in count_releases(policy, site):
        windows = "window" if release.windows_paid == 1 else f"{release.windows_paid} windows"
        unit = "device_day" if release.by_day else windows
        gaussian = release.by_day and release.noise == "gaussian"
        delta = float(policy.privacy.delta if release.delta is None else release.delta) if gaussian else 0.0
        for audience, epsilon in release.epsilon.items():
            yield Promise(release.name, audience, unit, float(epsilon), delta)
    for attributes in _attribute_releases(policy, site):
        for audience in _audiences(attributes):
            total = sum(float(rule.epsilon.get(audience, 0)) for rule in attributes.attributes.values())
            yield Promise(attributes.name, audience, "attributes of a day", total, 0.0)
    for stream in alarm_releases(policy, site):
        for audience in stream.audiences:
            yield Promise(stream.name, audience, "device_day", promised(policy, site, stream), 0.0)


def _attribute_releases(policy: Policy, site: str) -> list[AttributeRelease]:
    return [r for r in policy.release if isinstance(r, AttributeRelease) and policy.zones_of(r, site)]


def _audiences(release: AttributeRelease) -> list[str]:
    return list(dict.fromkeys(name for rule in release.attributes.values() for name in rule.epsilon))


# --- counts -------------------------------------------------------------------------------------------


def _count_scores(policy: Policy, site: str, release: CountRelease, both: Worlds, plan: _Plan) -> dict[str, Scores]:
    """Run a release in both worlds; return the scores of each audience."""
    publisher = Publisher(policy, site, [release], measured=True)
    nodes = publisher.nodes[release.name]
    truth = _Truth(*(_counts(windows, nodes, bounded=release.by_day) for windows in (both.there, both.away)))
    scored: dict[str, tuple[list[tuple[float, ...]], ...]] = {name: ([], []) for name in release.epsilon}
    for run in range(plan.runs):
        for side, windows in enumerate((both.there, both.away)):
            told = publisher.run(windows, laboratory(plan.seed, f"canary {release.name} {side} {run}"))
            for audience in release.epsilon:
                scored[audience][side].append(_score(told, Channel(release.name, audience, "values"), nodes, truth))
        plan.done.one()
    return {name: Scores(SCORES, *(np.array(side) for side in sides)) for name, sides in scored.items()}


class _Truth(NamedTuple):
    """Counts of each node in both worlds, shape [windows, nodes]."""

    there: Ints
    away: Ints


def _counts(windows: Sequence[OccupancyWindow], nodes: Nodes, *, bounded: bool) -> Ints:
    read = [window.bounded if bounded and window.bounded is not None else window.counts for window in windows]
    return np.asarray(np.array(read, dtype=np.int64) @ nodes.holds.T.astype(np.int64))


def _score(told: dict[Channel, Told], values: Channel, nodes: Nodes, truth: _Truth) -> tuple[float, ...]:
    """Return the scores of one run: by what is told with a known law, and by values in windows of the canary."""
    changed = truth.there != truth.away
    shown, likelihood = told[values], 0.0
    exact = told.get(values._replace(reads="noisy"), shown)
    for node, law in enumerate(exact.laws or ()):
        at = changed[:, node] & exact.released
        seen = exact.values[at, node]
        ratio = law.log(seen - truth.there[at, node]) - law.log(seen - truth.away[at, node])
        likelihood += float(ratio.sum())
    return round(likelihood, 9), float((shown.values * changed * shown.released[:, None]).sum())


# --- attributes ---------------------------------------------------------------------------------------


def _attribute_scores(
    policy: Policy, site: str, release: AttributeRelease, asked: Attributed, plan: _Plan
) -> dict[str, Scores]:
    """Ask for a day's attributes; the score is how many are withheld, *there* the world whose values are protected."""
    only = policy.model_copy(update={"release": (release,)})
    audiences = _audiences(release)
    scored: dict[str, tuple[list[tuple[float, ...]], ...]] = {name: ([], []) for name in audiences}
    for run in range(plan.runs):
        for side, closed in enumerate((asked.away, asked.there)):
            stage = Releases(only, site, laboratory(plan.seed, f"canary {release.name} {side} {run}"))
            _, outputs = stage.step(stage.initial(), closed)
            for audience in audiences:
                topic = private_topic(audience, release.name)
                records = [orjson.loads(o.value) for o in outputs if isinstance(o, Published) and o.topic == topic]
                scored[audience][side].append((float(sum(_withheld(each, asked.zone) for each in records)),))
        plan.done.one()
    return {name: Scores(WITHHELD, *(np.array(side) for side in sides)) for name, sides in scored.items()}


def _withheld(record: dict[str, Any], zone: str) -> bool:
    return bool(record["zone"] == zone and not record["released"])


def _withheld_ratio(release: AttributeRelease, audience: str, asked: Attributed) -> float:
    """Return the exact log-likelihood ratio of all being withheld: certain where protected, e^-ε each where not."""
    mine = {each.attribute: each.value for each in asked.there.attributes if each.zone == asked.zone}
    total = 0.0
    for name, rule in release.attributes.items():
        value = mine.get(name)
        if value is not None and not rule.sensitive.holds(value):
            total += float(rule.epsilon.get(audience, 0))
    return total


# --- threshold streams --------------------------------------------------------------------------------


def _alarm_scores(policy: Policy, site: str, release: ThresholdRelease, both: Worlds, plan: _Plan) -> dict[str, Scores]:
    """Run a threshold stream in both worlds; return the scores of each audience."""
    scored: dict[str, tuple[list[tuple[float, ...]], ...]] = {name: ([], []) for name in release.audiences}
    for run in range(plan.runs):
        for side, windows in enumerate((both.there, both.away)):
            key = f"canary {plan.seed} {release.name} {side} {run}"
            for audience, score in alarm_scores(policy, site, release, windows, key).items():
                scored[audience][side].append(score)
        plan.done.one()
    return {name: Scores(ALARMS, *(np.array(side) for side in sides)) for name, sides in scored.items()}


def report(tried: Sequence[Tried], runs: int) -> dict[str, Any]:
    """Return what was shown as plain objects."""
    level = LEVEL / max(1, len(tried))
    rows = [
        {
            **each.promise._asdict(), "shown": each.bound.epsilon, "exceeded": each.exceeded,
            "largest_ratio": each.largest_ratio, "score": each.score, "threshold": each.bound.threshold,
            "rate_there": each.bound.there, "rate_away": each.bound.away,
        }
        for each in tried
    ]  # fmt: skip
    return {
        "laboratory": True, "runs": runs, "confidence": 1 - LEVEL, "releases": len(tried),
        "most_that_can_be_shown": most_shown(runs, level), "tried": rows,
    }  # fmt: skip
