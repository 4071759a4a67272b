"""What 'tacet policy show' prints for people: promises, declared models, budgets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import fill

from rich.console import Console
from rich.table import Table

from connectors.commands.day_promises import days_paid
from connectors.commands.poor import marked_poor
from connectors.commands.tables import table
from connectors.reports.promised import counted_lines
from connectors.reports.quality import Qualities
from connectors.reports.units import COUNTED, unit_words
from stream.accounting.attribute_model import DayModel, asked_attributes, day_model, largest_epsilons
from stream.accounting.knowledge import Knowledge
from stream.policy.document import AttributeRelease, CountRelease, Policy, audiences_of, decimal_string
from stream.release.count_promises import count_promises
from stream.release.promises import AttributePromise, attribute_promises
from stream.release.threshold_promises import threshold_promises

MOST_ROWS = 16
"""Patterns of a joint distribution that are printed; --json has all."""
MOST_STATES = 8
"""States of a mobility model that are printed."""

_UNIT = (
    "The unit is one MAC address at one site. A person is taken to carry {devices} of them (devices_per_person), "
    "and what several sites give away adds up. Everything below holds for observations that the connector accepted, "
    "and as long as the key is secret (computational differential privacy). 'all' is everybody together. The account "
    "('tacet account') keeps the running sums.\n"
)
_COUNTS = (
    "Counts: adding or removing the unit changes the probability of any output by at most a factor exp(epsilon); "
    "having it elsewhere instead costs twice the epsilon. Budgets may keep it lower.\n"
)
_ATTRIBUTES = (
    "Attributes: a day whose value is sensitive is never shown, and not showing it raises the odds that it is "
    "sensitive. Every other value is shown exactly, about whoever caused it: for one device these releases have no "
    "bound. The odds grow at most by these factors:"
)
_ALONE = """\
  alone        by this attribute alone; all there is if attributes do not
               depend on each other"""
_WITH_MODEL = """\
  with model   by any outcome of the whole day, values shown included, if the
               declared model is right"""
_WITH_COUNTS = """\
  with counts  by the largest of these and the counts of the same zone
  habit        of somebody who is sensitive on each of so many days
"""

_SHOWN = ("presence_tuple", "observation", "device_w_event", "person_w_event", "device_day", "person_day")
_HEADS = 8
"""Letters a line in which the words of a unit stand above a column."""


def print_promises(policy: Policy, expected: Qualities) -> None:
    """Print everything that a policy promises, in the order in which one would ask."""
    console = Console(highlight=False)
    console.print(f"[bold]Policy {policy.version}[/bold]\n")
    console.print(_UNIT.format(devices=policy.privacy.devices_per_person))
    for line in counted_lines(policy):
        console.print(f"{line}\n")
    if not all(isinstance(release, AttributeRelease) for release in policy.release):
        console.print(_COUNTS)
        for made in (*_counts(policy), *days_paid(policy), *_worse(expected), *_budgets(policy), *_knowledge(policy)):
            console.print(made)
    for promise in threshold_promises(policy):
        console.print(f"{promise.sentence()}\n")
    _print_attributes(console, policy)
    for line in _rest(policy):
        console.print(line)


# --- counts -------------------------------------------------------------------------------------------


def _counts(policy: Policy) -> Iterator[Table]:
    """Yield, per site, what each reader's counts cost in each unit."""
    by_window = [promise for promise in count_promises(policy) if promise.terms is None]
    for site, promises in groupby(by_window, lambda p: p.site):
        counted = policy.site[site].feed == "counts"
        shown = [unit for unit in _SHOWN if not counted or unit in COUNTED]
        names = tuple(fill(unit_words(unit, counted=counted), _HEADS) for unit in shown)
        made = table(f"Site {site}: epsilons of counts; w is {policy.privacy.w} windows", ("release", "reader"), names)
        for column in made.columns[:2]:
            column.min_width = 10  # names before numbers, where the terminal is narrow
        for p in promises:
            made.add_row(f"{p.release}, {p.mechanism}", p.reader, *(decimal_string(p.units[u]) for u in shown))
        yield made


def _worse(qualities: Qualities) -> Iterator[str]:
    """Yield what is expected to say less than a constant does, release by release and level by level."""
    marked = [
        marked_poor(release, audience, level, held)
        for (_, release, audience), levels in qualities.items()
        for level, held in levels.items()
        if held.poor
    ]
    yield from marked
    if marked:
        yield "(On the simulated day of 'tacet simulate --scale 0.45 --always-on 75'.)\n"


def _budgets(policy: Policy) -> Iterator[Table | str]:
    """Yield what each release is charged a window, and where that ends."""
    releases = [release for release in policy.release if isinstance(release, CountRelease)]
    columns = ("charged a\nwindow", "daily\nbudget", "begins\nanew", f"any {policy.privacy.w}\nwindows")
    made = table("Budgets: a window that they cannot pay is denied", ("release", "audience"), columns)
    for release in releases:
        for audience in audiences_of(release):
            if release.by_day:
                continue
            daily, w = release.daily_budget.get(audience), release.w_budget.get(audience)
            days = "each day" if release.refresh_days == 1 else f"every {release.refresh_days} days"
            made.add_row(
                _with_w(release), audience, decimal_string(release.charge(audience)),
                "none" if daily is None else decimal_string(daily), "" if daily is None else days,
                "none" if w is None else decimal_string(w),
            )  # fmt: skip
    yield made
    for release in releases:
        if len(set(release.epsilon.values())) < len(release.epsilon) and (release.daily_budget or release.w_budget):
            yield f"{release.name}: audiences of equal epsilon get a window all together or not at all.\n"
    for release in releases:
        if release.revise:
            when = " and ".join(_REVISED[span] for span in release.revise)
            yield (
                f"{release.name}: revised {when}, on {release.revised_name}: at no further cost, since each audience's "
                "are made of its own noisy values.\n"
            )


_REVISED = {"1h": "an hour after each hour", "1d": "when each day is over"}


def _with_w(release: CountRelease) -> str:
    return release.name if release.w is None else f"{release.name}, w = {release.w}"


def _knowledge(policy: Policy) -> Iterator[Table | str]:
    """Yield the declared models of moves and meetings, and what they make of one tick."""
    privacy, knowledge = policy.privacy, Knowledge.of(policy.privacy)
    columns = (["knows how\npeople move"] if privacy.mobility else []) + (
        ["knows who\nmeets whom"] if privacy.meetings else []
    )
    if not columns:
        return
    if privacy.mobility is not None:
        yield "How people move from one tick to the next (privacy.mobility): probabilities"
        yield _moves(privacy.mobility.forward)
    for m in privacy.meetings:
        yield (
            f"Meeting (privacy.meetings): {m.size} people, each there at a tick with probability {m.presence:g}, "
            f"correlation {m.correlation:g}."
        )
    title = "\nAdversaries with knowledge: epsilons of one tick"
    made = table(title, ("release", "reader"), ("knows\nnothing", *columns))
    for p in count_promises(policy):
        epsilon = float(p.units["presence_tuple"])
        leaks = (knowledge.temporal(epsilon), knowledge.meeting(epsilon))
        report = [_number(leak) for leak in leaks if leak is not None]
        made.add_row(f"{p.site}/{p.release}", p.reader, decimal_string(p.units["presence_tuple"]), *report)
    yield made


def _moves(forward: Sequence[Sequence[float]]) -> Table | str:
    states = range(len(forward))
    if len(forward) > MOST_STATES:
        return f"{len(forward)} states, see --json\n"
    made = table("", ("from state",), tuple(f"to {state}" for state in states))
    for state, row in zip(states, forward, strict=True):
        made.add_row(str(state), *(f"{probability:g}" for probability in row))
    return made


# --- attributes ---------------------------------------------------------------------------------------


def _print_attributes(console: Console, policy: Policy) -> None:
    promises, releases = attribute_promises(policy), {release.name: release for release in policy.release}
    if promises:
        console.print(_ATTRIBUTES)
        modelled = any(a.exact is not None for a in promises)
        console.print("\n".join([_ALONE, *([_WITH_MODEL] if modelled else []), _WITH_COUNTS]))
    for (site, name), group in groupby(promises, lambda a: (a.site, a.release)):
        release = releases[name]
        assert isinstance(release, AttributeRelease)  # noqa: S101
        console.print(_sensitive(release))
        console.print(_odds(list(group), f"\nSite {site}: odds factors of {name}"))
        model = day_model(release)
        if model is not None:
            console.print(f"How often each kind of day is, as declared for {name} (model.joint, model.cuts):")
            console.print(_joint(model))
        for line in _rules(release, model):
            console.print(line)
        console.print()


def _sensitive(release: AttributeRelease) -> str:
    """Return what is sensitive, as the keys say it: ``arrival after 10:00``."""
    tests = (
        f"{name} {' or '.join(f'{key} {value}' for key, value in rule.sensitive.model_dump(exclude_none=True).items())}"
        for name, rule in release.attributes.items()
    )
    absent = "counts as sensitive" if release.absent == "sensitive" else "may be published"
    return f"{release.name}: sensitive is {', '.join(tests)}; a day without anybody {absent}."


def _odds(promises: list[AttributePromise], title: str) -> Table:
    modelled = any(a.exact is not None for a in promises)
    columns = ("epsilon", "alone", *(("with\nmodel",) if modelled else ()), "with\ncounts", "habit,\n5 days", "20 days")
    made = table(title, ("attribute", "reader"), columns)
    for a in promises:
        exact = (a.exact,) if modelled else ()
        factors = (a.factor, *exact, a.with_counts, a.habit[5], a.habit[20])
        made.add_row(a.attribute, a.reader, decimal_string(a.epsilon), *map(_number, factors))
    return made


def _joint(model: DayModel) -> Table:
    """Return the joint distribution in words, the likeliest patterns first."""
    made = table("", model.order, ("probability",))
    places = sorted(zip(*model.joint.nonzero(), strict=True), key=lambda place: -float(model.joint[place]))
    for place in places[:MOST_ROWS]:
        words = (_class(model, attribute, int(number)) for attribute, number in enumerate(place))
        made.add_row(*words, f"{float(model.joint[place]):.4g}")
    if len(places) > MOST_ROWS:
        rest = sum(float(model.joint[place]) for place in places[MOST_ROWS:])
        made.add_row(f"and {len(places) - MOST_ROWS} more", *[""] * (len(model.order) - 1), f"{rest:.4g}")
    return made


def _class(model: DayModel, attribute: int, number: int) -> str:
    """Return a class of an attribute in words: between which cuts, and whether it is sensitive."""
    cuts, sensitive = model.cuts[attribute], bool(model.sensitive[attribute][number])
    if not cuts:
        return "sensitive" if sensitive else "other"
    least = f"from {cuts[number - 1]}" if number else ""
    under = "before" if isinstance(cuts[0], str) else "below"
    below = f"{under} {cuts[number]}" if number < len(cuts) else ""
    return ", ".join(word for word in (least, below) if word) + (" (sensitive)" if sensitive else "")


def _rules(release: AttributeRelease, model: DayModel | None) -> Iterator[str]:
    """Yield what else the release keeps to, by the names of its keys."""
    asked = asked_attributes(release, model)
    if release.cap is not None:
        left_out = ", ".join(name for name in release.attributes if name not in asked) or "none"
        how = "by leaving attributes out" if release.guard == "static" else "by asking no question that may break it"
        yield (
            f"{release.name}: under the model no odds grow by more than e^{release.cap:g} = "
            f"{math.exp(release.cap):.4g} (cap), kept {how} ({release.guard} guard); never asked: {left_out}."
        )
    if release.days_per_month is not None:
        yield f"{release.name}: asked on at most {release.days_per_month} days of any 30 (days_per_month)."
    if model is not None:
        epsilons = {name: epsilon for name, epsilon in largest_epsilons(release).items() if name in asked}
        bits, target = math.fsum(model.information_bits(epsilons).values()), release.information_target
        aim = "no information_target" if target is None else f"information_target {target:g}"
        yield f"{release.name}: reveals {bits:.3g} bits of a zone's day on average ({aim})."


# --- the rest -----------------------------------------------------------------------------------------


def _rest(policy: Policy) -> Iterator[str]:
    yield (
        f"Pseudonyms change {_when_names_change(policy)}. "
        f"Largest factor allowed: {policy.privacy.max_factor:.4g} (max_factor), for any "
        "coalition with the counts of the attribute's own zone; counts of other zones, where people go, are not in it."
    )
    kept = [what for what, on in (("stays", policy.restricted.presence), ("counts", policy.restricted.occupancy)) if on]
    if kept:
        yield f"Restricted topics hold the true {' and '.join(kept)}: whoever reads them is promised nothing."


def _when_names_change(policy: Policy) -> str:
    if policy.pseudonym.ttl is not None:
        return f"every {policy.pseudonym.ttl / 1e6:g} s"
    days = {name: site for name, site in policy.site.items() if site.day_starts is not None}
    at_sites = [f"at {site.day_starts} ({site.timezone}) at {name}" for name, site in days.items()]
    return ", ".join([*at_sites, *(["each UTC day"] if len(days) < len(policy.site) else [])])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
