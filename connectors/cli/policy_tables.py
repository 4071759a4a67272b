"""How the results of the policy verbs are printed: guarantees, plans, targets and differences.

Each function prints to a console or yields what is to be printed. The verbs themselves are in ``policy``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, groupby
from textwrap import fill
from typing import TYPE_CHECKING, TypeVar

import click
from rich.console import Console
from rich.table import Table

from connectors.cli.output import table, utility_warning
from connectors.operations.policy.contribution_loss import Loss, loss_sentence
from connectors.operations.policy.diff import Change, Difference
from connectors.operations.policy.guarantees import (
    COUNTED,
    counted_lines,
    describe_unit,
    forecast_lines,
    login_lines,
    opt_out_lines,
    people_lines,
    rotating_lines,
    session_lines,
    signed_sentence,
    unit_words,
)
from stream.accounting.adversaries import Knowledge
from stream.accounting.attribute_leakage import DayModel, day_model, largest_epsilons, queried_attributes
from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.policy.document import audiences_of
from stream.policy.fields import EVERYBODY, decimal_string
from stream.records import CHANGES, MINUTE
from stream.release.attribute_guarantees import AttributeGuarantee, attribute_guarantees
from stream.release.count_guarantees import CountGuarantee, count_guarantees
from stream.release.threshold_guarantees import ThresholdGuarantee, threshold_guarantees
from stream.release.validation import Policy

if TYPE_CHECKING:
    from connectors.operations.policy.comparison import ComparedLevel
    from connectors.operations.policy.plan import Plan, PlannedCounts, Targets

Row = TypeVar("Row")

MOST_ROWS = 16
"""Patterns of a joint distribution that are printed; --json has all."""


MOST_STATES = 8
"""States of a mobility model that are printed."""


_UNIT = (
    "The unit is {unit}. A person is assumed to {have} {devices} of them (devices_per_person), and the losses at "
    "several sites add up. Everything below holds for observations that the connector accepted, as long as the key is "
    "secret (computational differential privacy). 'all' means all audiences together. 'tacet account' shows what has "
    "been spent so far.\n"
)


_COUNTS = (
    "Counts: adding or removing the unit changes the probability of any output by at most a factor "
    "exp(epsilon){beyond}. {moved} Budgets may keep the cost lower.\n"
)


_BEYOND = ", and by delta where noise is gaussian"


_MOVED = "Moving it elsewhere costs twice the epsilon."


_DAY_MOVED = "For whole days, what it costs to change any part of them is in a column of its own."


_ATTRIBUTES = (
    "Attributes: a sensitive value of a day is never published, and withholding it raises the odds that it is "
    "sensitive. Every other value is published exactly, whoever caused it: for one device these releases have no "
    "bound. The odds grow by at most these factors:"
)


_ALONE = """\
  alone        from this attribute alone; the whole factor if attributes are
               independent of each other"""


_WITH_MODEL = """\
  with model   from any outcome of the whole day, published values included,
               if the declared model is right"""


_WITH_COUNTS = """\
  with counts  from the largest of these and the counts of the same zone
  habit        for a person whose value is sensitive on each of that many days
"""


_ERRORS = (
    "This does not show how accurate the counts are: 'tacet policy plan' tries a day, and names each level at which "
    "always saying 0 would be nearer to the truth.\n"
)


_TRIED = "(On the simulated day; 'tacet policy plan --observations' uses a recording.)"


_SHOWN = ("presence_tuple", "observation", "device_w_event", "person_w_event", "device_day", "person_day")


_HEADS = 8
"""Characters per line of a unit's name in a column's head."""


def print_guarantees(policy: Policy, losses: Sequence[Loss]) -> None:
    """Print all guarantees of a policy: counts, budgets, thresholds, attributes, and what is not protected."""
    console = Console(highlight=False)
    console.print(f"[bold]Policy {policy.version}[/bold]\n")
    console.print(_UNIT.format(**unit_words(policy)))
    for line in chain(counted_lines(policy), login_lines(policy), opt_out_lines(policy)):
        console.print(f"{line}\n")
    if not all(isinstance(release, AttributeRelease) for release in policy.release):
        counted = count_guarantees(policy)
        beyond = _BEYOND if any(guarantee.delta for guarantee in counted) else ""
        console.print(_COUNTS.format(moved=_moved(counted), beyond=beyond))
        parts = (_counts(policy, counted), _sessions(policy), _whole_days(policy, counted), _budgets(policy))
        for part in chain(*parts, _knowledge(policy, counted)):
            console.print(part)
        console.print(_ERRORS)
    for guarantee in threshold_guarantees(policy):
        console.print(f"{guarantee.sentence()}\n")
    for line in chain(people_lines(policy), forecast_lines(policy)):
        console.print(f"{line}\n")
    for loss in losses:
        console.print(f"{loss_sentence(loss)} {_TRIED}\n")
    _print_attributes(console, policy)
    for line in _rest(policy):
        console.print(line)


def _moved(counted: Sequence[CountGuarantee]) -> str:
    """Return what it costs to move a unit elsewhere: of days, not always twice as much."""
    by_day = {guarantee.terms is not None for guarantee in counted}
    return " ".join(text for of_days, text in ((False, _MOVED), (True, _DAY_MOVED)) if of_days in by_day)


def _counts(policy: Policy, counted: Sequence[CountGuarantee]) -> Iterator[Table]:
    """Yield a table for each site: the epsilons of each reader's counts, in each privacy unit."""
    by_window = [guarantee for guarantee in counted if guarantee.terms is None]
    for site, of_site in groupby(by_window, lambda p: p.site):
        people = policy.site[site].feed == "counts"
        shown = [unit for unit in _SHOWN if not people or unit in COUNTED]
        names = tuple(fill(describe_unit(unit, counted=people), _HEADS) for unit in shown)
        made = table(f"Site {site}: epsilons of counts; w is {policy.privacy.w} windows", ("release", "reader"), names)
        for column in made.columns[:2]:
            column.min_width = 10  # on a narrow terminal names take precedence over numbers
        for p in of_site:
            made.add_row(f"{p.release}, {p.mechanism}", p.reader, *(decimal_string(p.units[u]) for u in shown))
        yield made


def _sessions(policy: Policy) -> Iterator[str]:
    yield from (f"{line}\n" for line in session_lines(policy))


def _whole_days(policy: Policy, counted: Sequence[CountGuarantee]) -> Iterator[Table | str]:
    """Yield releases that are charged per day: the scale of their noise, their epsilons, and the sentence to sign."""
    by_day = [guarantee for guarantee in counted if guarantee.terms is not None]
    for site, group in groupby(by_day, lambda p: p.site):
        who = "login" if policy.site[site].counts_logins else "device"
        columns = ("sigma, or\nepsilon", f"one {who},\nits day", "any part of\nit changed", "one person,\none day")
        made = table(f"Site {site}: epsilons of whole days", ("release", "reader"), columns)
        of_site = list(group)
        for p in of_site:
            tight = (p.tight[unit] for unit in ("device_day", "device_day_moved", "person_day"))
            made.add_row(f"{p.release}, {p.mechanism}", p.reader, _noise(p), *(f"{epsilon:.3g}" for epsilon in tight))
        yield made
        yield from (signed_sentence(policy, p) + "\n" for p in of_site if p.reader != EVERYBODY)
    if any(p.delta for p in by_day) and policy.privacy.factor_delta is not None:
        yield (
            f"Beside gaussian counts max_factor may fail with probability {float(policy.privacy.factor_delta):.2g} "
            "for each charged day of each release (factor_delta).\n"
        )


def _noise(guarantee: CountGuarantee) -> str:
    """Return the scale of the noise of each level, leaves first."""
    assert guarantee.terms is not None  # noqa: S101
    if guarantee.terms.noise == CHANGES:
        return ", ".join(f"{scale:.4g}" for scale in guarantee.scales)
    gaussian = guarantee.terms.noise == "gaussian"
    scales = (math.sqrt(each) if gaussian else float(each) for each in guarantee.terms.parameters)
    return ", ".join(f"{scale:.4g}" for scale in scales)


def _budgets(policy: Policy) -> Iterator[Table | str]:
    """Yield each release's charge per window, and its limit."""
    releases = [release for release in policy.release if isinstance(release, CountRelease)]
    columns = ("charge per\nwindow", "daily\nbudget", "restarts", f"any {policy.privacy.w}\nwindows")
    made = table("Budgets: a window that a budget cannot pay is denied", ("release", "audience"), columns)
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
    if made.row_count:
        yield made
    for release in releases:
        if len(set(release.epsilon.values())) < len(release.epsilon) and (release.daily_budget or release.w_budget):
            yield f"{release.name}: audiences with the same epsilon get the same windows: all of them or none.\n"
    for release in releases:
        if release.revise:
            when = " and ".join(_REVISED[span] for span in release.revise)
            yield (
                f"{release.name}: revised {when}, published as {release.revised_name}, at no further cost: each "
                "audience's revisions are computed from its own noisy values.\n"
            )


_REVISED = {"1h": "an hour after each hour", "1d": "at the end of each day"}


def _with_w(release: CountRelease) -> str:
    return release.name if release.w is None else f"{release.name}, w = {release.w}"


def _knowledge(policy: Policy, counted: Sequence[CountGuarantee]) -> Iterator[Table | str]:
    """Yield the declared models of moves and meetings, and the epsilons of one tick for adversaries who know them."""
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
            f"Meeting (privacy.meetings): {m.size} people, each present at a tick with probability {m.presence:g}, "
            f"correlation {m.correlation:g}."
        )
    title = "\nAdversaries with knowledge: epsilons of one tick"
    made = table(title, ("release", "reader"), ("knows\nnothing", *columns))
    for p in counted:
        epsilon = float(p.units["presence_tuple"])
        leaks = (knowledge.temporal(epsilon), knowledge.meeting(epsilon))
        figures = [_number(leak) for leak in leaks if leak is not None]
        made.add_row(f"{p.site}/{p.release}", p.reader, decimal_string(p.units["presence_tuple"]), *figures)
    yield made


def _moves(forward: Sequence[Sequence[float]]) -> Table | str:
    states = range(len(forward))
    if len(forward) > MOST_STATES:
        return f"{len(forward)} states, see --json\n"
    made = table("", ("from state",), tuple(f"to {state}" for state in states))
    for state, row in zip(states, forward, strict=True):
        made.add_row(str(state), *(f"{probability:g}" for probability in row))
    return made


def _print_attributes(console: Console, policy: Policy) -> None:
    guarantees, releases = attribute_guarantees(policy), {release.name: release for release in policy.release}
    if guarantees:
        console.print(_ATTRIBUTES)
        modelled = any(a.exact is not None for a in guarantees)
        console.print("\n".join([_ALONE, *([_WITH_MODEL] if modelled else []), _WITH_COUNTS]))
    for (site, name), group in groupby(guarantees, lambda a: (a.site, a.release)):
        release = releases[name]
        assert isinstance(release, AttributeRelease)  # noqa: S101
        console.print(_sensitive(release))
        console.print(_odds(list(group), f"\nSite {site}: odds factors of {name}"))
        model = day_model(release)
        if model is not None:
            console.print(f"Declared probabilities of the kinds of day for {name} (model.joint, model.cuts):")
            console.print(_joint(model))
        for line in _rules(release, model):
            console.print(line)
        console.print()


def _sensitive(release: AttributeRelease) -> str:
    """Return the sensitive values, in the words of the policy's keys: ``arrival after 10:00``."""
    tests = (
        f"{name} {' or '.join(f'{key} {value}' for key, value in rule.sensitive.model_dump(exclude_none=True).items())}"
        for name, rule in release.attributes.items()
    )
    absent = "is sensitive, too" if release.absent == "sensitive" else "may be published"
    return f"{release.name}: sensitive values are {', '.join(tests)}; a day on which nobody is present {absent}."


def _odds(guarantees: list[AttributeGuarantee], title: str) -> Table:
    modelled = any(a.exact is not None for a in guarantees)
    columns = ("epsilon", "alone", *(("with\nmodel",) if modelled else ()), "with\ncounts", "habit,\n5 days", "20 days")
    made = table(title, ("attribute", "reader"), columns)
    for a in guarantees:
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
    queried = queried_attributes(release, model)
    if release.cap is not None:
        left_out = ", ".join(name for name in release.attributes if name not in queried) or "none"
        how = "leaves attributes out" if release.guard == "static" else "asks no query that may exceed it"
        yield (
            f"{release.name}: under the model no odds grow by more than e^{release.cap:g} = "
            f"{math.exp(release.cap):.4g} (cap): the {release.guard} guard {how}; never queried: {left_out}."
        )
    if release.days_per_month is not None:
        yield f"{release.name}: queried on at most {release.days_per_month} of any 30 days (days_per_month)."
    if model is not None:
        epsilons = {name: epsilon for name, epsilon in largest_epsilons(release).items() if name in queried}
        bits, target = math.fsum(model.information_bits(epsilons).values()), release.information_target
        aim = "no information_target" if target is None else f"information_target {target:g}"
        yield f"{release.name}: reveals {bits:.3g} bits about a zone's day on average ({aim})."


def _rest(policy: Policy) -> Iterator[str]:
    yield (
        f"Pseudonyms change {_when_names_change(policy)}. "
        f"The largest factor allowed is {policy.privacy.max_factor:.4g} (max_factor), for any coalition and with the "
        "counts of the attribute's own zone; it does not include counts of other zones, to which people go."
    )
    yield (
        "Not protected: a production key that is used twice. One key serves one process on one host, or one cluster. "
        "Tacet cannot detect a copy on another host or in a second cluster; both would then release the same windows "
        "with different noise."
    )
    yield from (f"Not protected: {line[0].lower()}{line[1:]}" for line in rotating_lines(policy))
    flags = (("stays", policy.restricted.presence), ("counts", policy.restricted.occupancy))
    if stored := [what for what, on in flags if on]:
        yield f"Restricted topics contain the true {' and '.join(stored)}: no guarantee holds for their readers."


def _when_names_change(policy: Policy) -> str:
    if policy.pseudonym.ttl is not None:
        return f"every {policy.pseudonym.ttl / 1e6:g} s"
    days = {name: site for name, site in policy.site.items() if site.day_starts is not None}
    at_sites = [f"at {site.day_starts} ({site.timezone}) at {name}" for name, site in days.items()]
    return ", ".join([*at_sites, *(["each UTC day"] if len(days) < len(policy.site) else [])])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


SIMULATED = "Counts and errors are those of the simulated day of 'tacet simulate --scale 0.45 --always-on 75'."


def print_plan(
    policy: Policy, found: Plan | Targets, compared: Sequence[ComparedLevel], losses: Sequence[Loss],
    notice: str | None,
) -> None:  # fmt: skip
    """Print the plan of a day, or the epsilons that reach an error, and what the figures mean.

    Args:
        policy: what was planned.
        found: the plan, or the epsilons.
        compared: ticks beside changes; empty if they were not compared.
        losses: what bounds on contributions hide.
        notice: who may see a plan that was tried on a recording; None if it was tried on the simulated day.
    """
    from connectors.operations.policy.plan import Targets  # noqa: PLC0415 - only needed here

    console = Console(highlight=False)
    parts = _targets(policy, found) if isinstance(found, Targets) else _plan(found)
    for part in chain(parts, session_lines(policy), _comparison(compared)):
        console.print(part)
    for loss in losses:
        console.print(loss_sentence(loss))
    console.print(SIMULATED if notice is None else f"[bold]{notice}[/bold]")


def _plan(plan: Plan) -> Iterator[Table | str]:
    """Yield the expected costs and errors of a day: of counts, thresholds and attributes, site by site."""
    for site, counts in _by_site(plan.counts, lambda each: each.site):
        title = f"A day at {site} under policy {plan.policy_version}"
        yield _costs(f"{title}: costs", counts)
        yield from _errors(f"{title}: counts", counts)
    for site, guarantees in _by_site(plan.thresholds, lambda each: each.site):
        yield from _thresholds(f"Threshold streams at {site}", guarantees)
    for site, attributes in _by_site(plan.attributes, lambda each: each.guarantee.site):
        columns = ("epsilon", "zones", "odds factor")
        made = table(f"Attributes at {site}", ("release", "attribute", "audience"), columns)
        for each in attributes:
            p = each.guarantee
            made.add_row(
                p.release, p.attribute, p.reader, decimal_string(p.epsilon), str(each.zones), f"{p.with_counts:.4g}"
            )
        yield made


def _comparison(rows: Sequence[ComparedLevel]) -> Iterator[Table | str]:
    """Yield the errors of ticks beside those of changes."""
    for site, of_site in _by_site(rows, lambda row: row["site"]):
        columns = ("mean\ncount", "error by\nticks", "error by\nchanges")
        made = table(
            f"Ticks or changes at {site}: what a day's price is worth", ("release", "audience", "level"), columns
        )
        for row in of_site:
            figures = (row["mean"], row["ticks"], row["changes"])
            made.add_row(row["release"], row["audience"], row["level"], *(f"{figure:.2f}" for figure in figures))
        yield made
        who = of_site[0]["unit"]
        day = {"simulated": "the simulated day", "desks": "a day of people who have a desk"}[of_site[0]["day"]]
        yield (
            f"Both with the filter, in the working hours of {day}, against all {who}s present, residents left out. "
            f"Ticks count a {who} for the site's contribution, changes for its visits (count).\n"
        )


def _thresholds(title: str, guarantees: Iterable[ThresholdGuarantee]) -> Iterator[Table | str]:
    columns = ("missed", "within", "quiet\nfrom", "false\nalarms", "denied", "epsilon\nper run", "per\nday")
    made = table(title, ("release", "audience"), columns)
    for column, width in zip(made.columns, (12, 8), strict=False):
        column.min_width = width  # on a narrow terminal names take precedence over numbers
    for p in guarantees:
        made.add_row(
            p.release, "\n".join(p.audiences), decimal_string(p.miss), f"{p.within // MINUTE} min",
            str(p.quiet.distance), f"{p.quiet.false_alarms:.2g}", f"{p.quiet.denied:.2g}",
            decimal_string(p.run), decimal_string(p.day),
        )  # fmt: skip
    yield made
    yield (
        "Quiet: a zone that stays that many devices below its threshold all day; false alarms and denied events are "
        "per day."
    )


def _costs(title: str, rows: Iterable[PlannedCounts]) -> Table:
    columns = ("epsilon per\nwindow", "epsilon\nper day", "windows\nthat fit", "cost of\na day", "one person,\none day")
    costs = table(title, ("release", "audience"), columns)
    for row in rows:
        by_day, epsilon = row.release.by_day, decimal_string(row.release.epsilon[row.audience])
        costs.add_row(
            row.release.name, row.audience, "-" if by_day else epsilon,
            epsilon if by_day else decimal_string(row.cost["device_day"]),
            f"{row.releases_that_fit} of {row.windows_per_day}", decimal_string(row.cost["day"]),
            _tight(row, "person_day"),
        )  # fmt: skip
    return costs


def _tight(row: PlannedCounts, unit: str) -> str:
    """Return a unit's epsilon, at its delta if it has one."""
    return f"{row.guarantee.tight[unit]:.3g}" if row.guarantee.tight else decimal_string(row.cost[unit])


def _errors(title: str, rows: Collection[PlannedCounts]) -> Iterator[Table | str]:
    """Yield the expected errors at each level, and a warning for each level that is worse than a constant."""
    columns = ("mean\ncount", "mean\nerror", "error of\nthe median")
    errors, warnings = table(title, ("release", "audience", "level"), columns), []
    for row in rows:
        published = ((level, level, quality) for level, quality in row.levels.items())
        left_out = ((level, f"({level})", quality) for level, quality in row.left_out.items())
        for level, name, quality in chain(published, left_out):
            figures = (quality.mean, quality.error, quality.median)
            errors.add_row(row.release.name, row.audience, name, *(f"{figure:.2f}" for figure in figures))
            if quality.poor:
                warnings.append(utility_warning(row.release.name, row.audience, level, quality))
    yield errors
    yield from warnings
    if any(row.left_out for row in rows):
        yield "In brackets: levels that are not published, as if all levels had equal shares of the price."


def _targets(policy: Policy, found: Targets) -> Iterator[Table | str]:
    """Yield the epsilon of each release and level that reaches the wanted error."""
    from connectors.operations.policy.plan import TRIED  # noqa: PLC0415 - only needed here

    share = f"{100 * float(found.target_error):g} %"
    for site, targets in _by_site(found.targets, lambda each: each.site):
        columns = ("epsilon", "epsilon\nper day", "mean\ncount", "mean\nerror")
        made = table(
            f"Epsilons at {site} for a mean error of {share} of the mean count",
            ("release", "level", "epsilon pays for"),
            columns,
        )
        who = "login" if policy.site[site].counts_logins else "device"
        for each in targets:
            pays = f"a {who}'s day" if each.release.by_day else "a window"
            figures = ["unreachable", "-", "-", "-"]
            if each.epsilon is not None and each.epsilon_a_day is not None and each.quality is not None:
                epsilons = (decimal_string(each.epsilon), decimal_string(each.epsilon_a_day))
                figures = [*epsilons, f"{each.quality.mean:.2f}", f"{each.quality.error:.2f}"]
            made.add_row(each.release.name, each.level, pays, *figures)
        yield made
    yield (
        f"Epsilons of two digits from {float(TRIED[0]):g} to {float(TRIED[-1]):g} were tried; for gaussian days only "
        "those whose noise is large enough to be supported."
    )


def _by_site(rows: Iterable[Row], site_of: Callable[[Row], str]) -> Iterator[tuple[str, list[Row]]]:
    """Yield each site with its rows, in their order."""
    sites: dict[str, list[Row]] = {}
    for row in rows:
        sites.setdefault(site_of(row), []).append(row)
    yield from sites.items()


TITLES = {
    "cheaper": "Cheaper",
    "dearer": "More expensive",
    "anew": "Restarts from an empty state",
    "day_starts": "Changes when a privacy day begins",
    "otherwise": "Other changes",
}


_CLOSING = (
    "The ledger continues, and released windows stay as they are: a window is released again only if an operator "
    "requests another attempt, which is charged again. --accept-policy lets the new policy begin with the next window."
)


def print_difference(changed: Difference) -> None:
    """Print what another policy changes, by kind of change."""
    if changed.old == changed.new:
        click.echo(f"Both are policy {changed.old}: nothing changes.")
        return
    click.echo(f"Policy {changed.new} instead of {changed.old}.")
    for kind, title in TITLES.items():
        _print_changes(title, [change for change in changed.changes if change.kind == kind])
    click.echo(f"\n{_CLOSING}")


def _print_changes(title: str, changes: list[Change]) -> None:
    if changes:
        click.echo(f"\n{title}:")
        for change in changes:
            click.echo(f"  {change.where}: {change.text}")
