"""policy show: promises, declared models and budgets, for people and as one object."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from connectors.cli.options import FILE, json_option, print_json, read_policy
from connectors.cli.output import table
from connectors.operations.reports.contribution_loss import loss_sentence, simulated_stays
from connectors.operations.reports.contribution_loss import losses as losses_of
from connectors.operations.reports.guarantees import COUNTED, counted_lines, describe_unit, signed_sentence
from stream.accounting.adversaries import Knowledge
from stream.accounting.attributes import DayModel, day_model, largest_epsilons, queried_attributes
from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.policy.document import audiences_of
from stream.policy.fields import EVERYBODY, decimal_string
from stream.release.guarantees import AttributePromise, CountPromise, attribute_promises, count_promises
from stream.release.threshold_guarantees import threshold_promises
from stream.release.validation import Policy
from stream.schemas import json_float

# Releases that are charged per day.


def days_paid(policy: Policy, counted: Sequence[CountPromise]) -> Iterator[Table | str]:
    """Yield what is paid by the day: how much noise that leaves, and what to sign."""
    by_day = [promise for promise in counted if promise.terms is not None]
    columns = ("sigma, or\nepsilon", "one device,\nits day", "any part of\nit changed", "one person,\none day")
    for site, promises in groupby(by_day, lambda p: p.site):
        made = table(f"Site {site}: epsilons of whole days", ("release", "reader"), columns)
        held = list(promises)
        for p in held:
            tight = (p.tight[unit] for unit in ("device_day", "device_day_moved", "person_day"))
            made.add_row(f"{p.release}, {p.mechanism}", p.reader, _noise(p), *(f"{epsilon:.3g}" for epsilon in tight))
        yield made
        yield from (signed_sentence(policy, p) + "\n" for p in held if p.reader != EVERYBODY)
    if any(p.delta for p in by_day) and policy.privacy.factor_delta is not None:
        yield (
            f"max_factor holds beside gaussian counts except with probability {float(policy.privacy.factor_delta):.2g} "
            "for each paid day of each release (factor_delta).\n"
        )


def signed(policy: Policy) -> Iterator[str]:
    """Yield the sentence to sign for each release that is charged per day and each of its audiences."""
    for promise in count_promises(policy):
        if promise.terms is not None and promise.reader != EVERYBODY:
            yield signed_sentence(policy, promise) + "\n"


def _noise(promise: CountPromise) -> str:
    """Return the scale of the noise of each level, leaves first."""
    assert promise.terms is not None  # noqa: S101
    gaussian = promise.terms.noise == "gaussian"
    scales = (math.sqrt(each) if gaussian else float(each) for each in promise.terms.parameters)
    return ", ".join(f"{scale:.4g}" for scale in scales)


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

_ERRORS = (
    "This does not say how good the counts are: 'tacet policy plan' tries a day, and names each level at which always "
    "saying 0 would be nearer to the truth.\n"
)
_TRIED = "(The tried day is the simulated one; 'tacet policy plan --observations' tries a recording.)"
_SHOWN = ("presence_tuple", "observation", "device_w_event", "person_w_event", "device_day", "person_day")
_HEADS = 8
"""Letters a line in which the words of a unit stand above a column."""


@click.command("show")
@click.argument("file", type=FILE)
@json_option
def show(file: Path, *, as_json: bool) -> None:
    """Print what is promised: for every privacy unit, audience and coalition.

    How good the releases will be says 'tacet policy plan', which tries them on a day.
    """
    checked = read_policy(file)
    hidden = losses_of(checked, simulated_stays(checked))
    if as_json:
        print_json(promises(checked) | {"losses": hidden})
    else:
        print_promises(checked, hidden)


def print_promises(policy: Policy, losses: Sequence[Mapping[str, Any]]) -> None:
    """Print everything that a policy promises, in the order in which one would ask."""
    console = Console(highlight=False)
    console.print(f"[bold]Policy {policy.version}[/bold]\n")
    console.print(_UNIT.format(devices=policy.privacy.devices_per_person))
    for line in counted_lines(policy):
        console.print(f"{line}\n")
    if not all(isinstance(release, AttributeRelease) for release in policy.release):
        console.print(_COUNTS)
        counted = count_promises(policy)
        tables = (
            *_counts(policy, counted), *days_paid(policy, counted), *_budgets(policy), *_knowledge(policy, counted)
        )  # fmt: skip
        for made in tables:
            console.print(made)
        console.print(_ERRORS)
    for promise in threshold_promises(policy):
        console.print(f"{promise.sentence()}\n")
    for loss in losses:
        console.print(f"{loss_sentence(loss)} {_TRIED}\n")
    _print_attributes(console, policy)
    for line in _rest(policy):
        console.print(line)


# --- counts -------------------------------------------------------------------------------------------


def _counts(policy: Policy, counted: Sequence[CountPromise]) -> Iterator[Table]:
    """Yield, per site, what each reader's counts cost in each unit."""
    by_window = [promise for promise in counted if promise.terms is None]
    for site, promises in groupby(by_window, lambda p: p.site):
        people = policy.site[site].feed == "counts"
        shown = [unit for unit in _SHOWN if not people or unit in COUNTED]
        names = tuple(fill(describe_unit(unit, counted=people), _HEADS) for unit in shown)
        made = table(f"Site {site}: epsilons of counts; w is {policy.privacy.w} windows", ("release", "reader"), names)
        for column in made.columns[:2]:
            column.min_width = 10  # on a narrow terminal names take precedence over numbers
        for p in promises:
            made.add_row(f"{p.release}, {p.mechanism}", p.reader, *(decimal_string(p.units[u]) for u in shown))
        yield made


def _budgets(policy: Policy) -> Iterator[Table | str]:
    """Yield each release's charge per window, and its limit."""
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


def _knowledge(policy: Policy, counted: Sequence[CountPromise]) -> Iterator[Table | str]:
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
    for p in counted:
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
    """Return what is sensitive, in the words of the keys: ``arrival after 10:00``."""
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
    """Return the joint distribution in words, the most probable patterns first."""
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
    """Return a class of an attribute in words: its cuts, and whether it is sensitive."""
    cuts, sensitive = model.cuts[attribute], bool(model.sensitive[attribute][number])
    if not cuts:
        return "sensitive" if sensitive else "other"
    least = f"from {cuts[number - 1]}" if number else ""
    under = "before" if isinstance(cuts[0], str) else "below"
    below = f"{under} {cuts[number]}" if number < len(cuts) else ""
    return ", ".join(word for word in (least, below) if word) + (" (sensitive)" if sensitive else "")


def _rules(release: AttributeRelease, model: DayModel | None) -> Iterator[str]:
    """Yield the release's other rules, by the names of their keys."""
    asked = queried_attributes(release, model)
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
    yield (
        "Not protected: a production key of which a copy is in use elsewhere. One key serves one process on one host, "
        "or one cluster; a copy on another host, or under a second cluster, is not noticed, and both then release the "
        "same windows with different noise."
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


# --- as one object -------------------------------------------------------------------------------------


def _pseudonyms(policy: Policy) -> str | dict[str, Any]:
    """Return when names change: each UTC day, after a salt life, or at some sites with their privacy day."""
    if policy.pseudonym.ttl is not None:
        return {"ttl_seconds": policy.pseudonym.ttl / 1e6}
    days = {name: site.day_starts for name, site in policy.site.items() if site.day_starts is not None}
    return {"day_starts": days} if days else "daily"


def promises(policy: Policy) -> dict[str, Any]:
    """Return what ``policy show`` reports, as one object."""
    knowledge = Knowledge.of(policy.privacy)
    return {
        "policy_version": policy.version,
        "devices_per_person": policy.privacy.devices_per_person,
        "max_factor": policy.privacy.max_factor,
        "w": policy.privacy.w,
        "mobility": None if policy.privacy.mobility is None else policy.privacy.mobility.forward,
        "meetings": [meeting.model_dump() for meeting in policy.privacy.meetings],
        "pseudonyms": _pseudonyms(policy),
        "counted_sites": [name for name, site in policy.site.items() if site.feed == "counts"],
        "zeros": {name: site.zeros for name, site in policy.site.items() if site.feed == "counts"},
        "restricted_topics": policy.restricted.model_dump(),
        "counts": [
            {
                "site": p.site, "release": p.release, "reader": p.reader, "mechanism": p.mechanism,
                "zones": p.zones, "epsilon": {unit: decimal_string(e) for unit, e in p.units.items()},
                "temporal": json_float(knowledge.temporal(float(p.units["presence_tuple"]))),
                "meeting": json_float(knowledge.meeting(float(p.units["presence_tuple"]))),
            }
            | _of_day(p)
            for p in count_promises(policy)
        ],
        "attributes": [
            {
                "site": p.site, "release": p.release, "attribute": p.attribute, "reader": p.reader,
                "epsilon": decimal_string(p.epsilon), "factor": p.factor, "exact": json_float(p.exact),
                "with_counts": json_float(p.with_counts),
                "habit": {str(days): json_float(factor) for days, factor in p.habit.items()},
            }
            for p in attribute_promises(policy)
        ],
        "budgets": {
            f"{r.name}/{name}": decimal_string(budget)
            for r in policy.release if isinstance(r, CountRelease)
            for name, budget in sorted(r.daily_budget.items())
        },
        "w_budgets": {
            f"{r.name}/{name}": decimal_string(budget)
            for r in policy.release if isinstance(r, CountRelease)
            for name, budget in sorted(r.w_budget.items())
        },
        "refresh_days": {r.name: r.refresh_days for r in policy.release if isinstance(r, CountRelease)},
        "thresholds": [promise.figures() for promise in threshold_promises(policy)],
        "models": {r.name: _model(r) for r in policy.release if isinstance(r, AttributeRelease)},
    }  # fmt: skip


def _of_day(promise: CountPromise) -> dict[str, Any]:
    """Return what a promise for a whole day says besides: its noise, and epsilon at delta in each unit."""
    terms = promise.terms
    if terms is None:
        return {}
    delta = float(promise.delta)
    return {
        "unit": "device_day", "noise": terms.noise, "ticks": terms.ticks, "delta": decimal_string(promise.delta),
        "noise_scale": [math.sqrt(e) if terms.noise == "gaussian" else float(1 / e) for e in terms.parameters],
        "tight": {unit: {"epsilon": round(e, 6), "delta": delta} for unit, e in promise.tight.items()},
    }  # fmt: skip


def _model(release: AttributeRelease) -> dict[str, Any]:
    """Return the declared model of an attribute release and what its guard does with it."""
    asked = queried_attributes(release, day_model(release))
    return {
        "model": None if release.model is None else release.model.model_dump(),
        "cap": release.cap,
        "guard": release.guard,
        "asked": [name for name in release.attributes if name in asked],
        "left_out": [name for name in release.attributes if name not in asked],
        "days_per_month": release.days_per_month,
        "information_target": release.information_target,
    }
