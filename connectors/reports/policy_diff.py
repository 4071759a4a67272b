"""What changes when one policy replaces another, in words: prices first, then what begins anew and when.

A price is compared unit by unit and reader by reader, as ``policy show`` prints it. ``policy_turn`` says what the
change does to a site that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, TypeVar

from connectors.reports.policy_names import renamed
from connectors.reports.policy_turn import Turn, turns
from connectors.reports.units import COUNTED, unit_words
from stream.policy.document import CountRelease, Policy, audiences_of, decimal_string
from stream.release.count_promises import CountPromise, count_promises
from stream.release.promises import AttributePromise, attribute_promises

Kind = Literal["cheaper", "dearer", "anew", "day_starts", "otherwise"]
COMPARED = ("presence_tuple", "device_day", "person_day")
Held = TypeVar("Held")
Key = TypeVar("Key", bound=Hashable)
Figure = Fraction | float
Prices = tuple[Figure | None, Figure | None]
"""Before, and now."""
Names = Mapping[str, str]
"""What releases of the old policy are called in the new one, of those that have another name and nothing else."""
SAME: Names = {}
_SUPPRESSED = "suppressing a value, with counts of its zone,"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference that matters to somebody."""

    kind: Kind
    where: str
    """Key of the policy, or site, release and reader."""
    text: str


@dataclass(frozen=True, slots=True)
class Difference:
    """All that one policy changes against another."""

    old: str
    new: str
    """Policy versions."""
    changes: tuple[Change, ...]

    @property
    def begins_anew(self) -> bool:
        """Whether something that has been learnt, paid for or waited for is given up."""
        return any(change.kind in {"anew", "day_starts"} for change in self.changes)

    def figures(self) -> dict[str, Any]:
        """Return what programs are given."""
        changes = [asdict(change) for change in self.changes]
        return {"old": self.old, "new": self.new, "begins_anew": self.begins_anew, "changes": changes}


def difference(old: Policy, new: Policy) -> Difference:
    """Return what ``new`` changes against ``old``; nothing where they mean the same."""
    if old.version == new.version:
        return Difference(old.version, new.version, ())
    names = renamed(old, new)
    changes = [*_counts(old, new, names), *_attributes(old, new, names), *_budgets(old, new, names), *_bounds(old, new)]
    changes += [_by_another_name(new, former, name) for former, name in names.items()]
    changes += [_turned(turn) for turn in turns(old, new)]
    return Difference(old.version, new.version, tuple(changes))


def _by_another_name(new: Policy, former: str, name: str) -> Change:
    same = f"is {former!r} by another name, at the same price:"
    (release,) = (each for each in new.release if each.name == name)
    if isinstance(release, CountRelease) and release.declared.carries:
        return Change("otherwise", name, f"{same} goes on with what that carried, on topics of its own")
    budgeted = any(getattr(release, budget, None) for budget in ("daily_budget", "w_budget"))
    whole = f", and with whole budgets beside what {former!r} has spent" if budgeted else ""
    return Change("anew", name, f"{same} begins anew as a release of its own, on topics of its own{whole}")


def _turned(turn: Turn) -> Change:
    return Change(turn.kind, turn.where, turn.text)


def paired(old: Mapping[Key, Held], new: Mapping[Key, Held]) -> Iterator[tuple[Key, Held | None, Held | None]]:
    """Yield each key of either with what it has in both, the old one's keys first."""
    for key in dict.fromkeys([*old, *new]):
        yield key, old.get(key), new.get(key)


# --- prices -------------------------------------------------------------------------------------------


def _compared(where: str, what: str, prices: Prices, unit: str = "epsilon ") -> list[Change]:
    """Return the change of one price; None stands for a price that nobody pays."""
    before, now = prices
    if before == now:
        return []
    if before is None:
        return [Change("dearer", where, f"{what} costs {unit}{_number(now)} now")]
    if now is None:
        return [Change("cheaper", where, f"{what} no longer costs {unit}{_number(before)}")]
    kind: Kind = "dearer" if now > before else "cheaper"
    return [Change(kind, where, f"{what} costs {unit}{_number(now)} instead of {_number(before)}")]


def _counts(old: Policy, new: Policy, names: Names) -> Iterator[Change]:
    for (site, release, reader), before, now in paired(_promised(old, names), _promised(new)):
        delta = next((float(p.delta) for p in (now, before) if p is not None and p.delta), None)
        held = "" if delta is None else f", at delta {delta:g},"
        counted = site in new.site and new.site[site].feed == "counts"
        for unit in (unit for unit in COMPARED if not counted or unit in COUNTED):
            prices = _price(before, unit), _price(now, unit)
            words = unit_words(unit, counted=counted)
            yield from _compared(f"{site}/{release} for {reader}", f"{words}{held}", prices)


def _promised(policy: Policy, names: Names = SAME) -> dict[tuple[str, str, str], CountPromise]:
    return {(p.site, names.get(p.release, p.release), p.reader): p for p in count_promises(policy)}


def _price(promise: CountPromise | None, unit: str) -> Figure | None:
    """Return an epsilon: at its delta where the day is what is paid for."""
    return None if promise is None else promise.tight.get(unit, promise.units[unit])


def _attributes(old: Policy, new: Policy, names: Names) -> Iterator[Change]:
    for (site, release, attribute, reader), before, now in paired(_odds(old, names), _odds(new)):
        where = f"{site}/{release}/{attribute} for {reader}"
        yield from _compared(where, _SUPPRESSED, (_factor(before), _factor(now)), "an odds factor of ")
        if before is not None and now is not None:
            yield from _compared(where, "the attribute", (before.epsilon, now.epsilon))


def _factor(promise: AttributePromise | None) -> float | None:
    return None if promise is None else max(promise.with_counts, promise.exact or 0.0)


def _odds(policy: Policy, names: Names = SAME) -> dict[tuple[str, str, str, str], AttributePromise]:
    promised = attribute_promises(policy)
    return {(p.site, names.get(p.release, p.release), p.attribute, p.reader): p for p in promised}


# --- budgets and bounds -------------------------------------------------------------------------------


def _budgets(old: Policy, new: Policy, names: Names) -> Iterator[Change]:
    """Yield what may be spent at most: a budget a day of its period; none is without limit."""
    both: tuple[tuple[str, Callable[[CountRelease, str], Fraction | None]], ...] = (
        ("daily_budget", _a_day), ("w_budget", lambda release, audience: release.w_budget.get(audience)),
    )  # fmt: skip
    for name, before, now in paired(_count_releases(old, names), _count_releases(new)):
        if before is None or now is None:
            continue
        for audience in sorted({*audiences_of(before)} & {*audiences_of(now)}):
            for key, budget in both:
                yield from _limit(f"{name}.{key}.{audience}", budget(before, audience), budget(now, audience))


def _a_day(release: CountRelease, audience: str) -> Fraction | None:
    budget = release.daily_budget.get(audience)
    return None if budget is None else budget / release.refresh_days


def _limit(where: str, before: Fraction | None, now: Fraction | None) -> Iterator[Change]:
    if before != now:
        words = ["without limit" if each is None else f"epsilon {_number(each)}" for each in (before, now)]
        dearer = now is None or (before is not None and now > before)
        yield Change("dearer" if dearer else "cheaper", where, f"{words[1]} may be spent, instead of {words[0]}")


def _count_releases(policy: Policy, names: Names = SAME) -> dict[str, CountRelease]:
    return {names.get(r.name, r.name): r for r in policy.release if isinstance(r, CountRelease)}


def _bounds(old: Policy, new: Policy) -> Iterator[Change]:
    """Yield what is assumed of people and adversaries, and what bounds all releases; larger bounds are dearer."""
    dearer_when_larger = {"max_factor", "delta", "factor_delta"}
    for key, before in old.privacy:
        now = getattr(new.privacy, key)
        if before == now:
            continue
        if key in dearer_when_larger:
            kind: Kind = "dearer" if (now or 0) > (before or 0) else "cheaper"
            yield Change(kind, f"privacy.{key}", f"{_said(now)} instead of {_said(before)}")
        else:
            yield Change("otherwise", f"privacy.{key}", f"{_said(now)} instead of {_said(before)}: the account says so")
    for key, before in old.restricted:
        now = getattr(new.restricted, key)
        if before != now:
            held = "is published: whoever reads it is promised nothing" if now else "is published no longer"
            yield Change("dearer" if now else "cheaper", f"restricted.{key}", f"the true {key} {held}")


def _said(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Fraction | float | int):
        return _number(value)
    return "another model" if value else "no model"


def _number(value: Figure | None) -> str:
    """Return a figure: exact where it is a fraction, else with six digits."""
    if value is None:
        return "none"
    return decimal_string(value) if isinstance(value, Fraction) else f"{value:.6g}"
