"""How the results of the policy verbs are printed: guarantees, plans, targets and differences.

Each function prints to a console or yields what is to be printed. The verbs themselves are in ``policy``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeVar

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
from stream.records import CHANGES
from stream.release.guarantees import AttributePromise, CountPromise, attribute_promises, count_promises
from stream.release.threshold_guarantees import threshold_promises
from stream.release.validation import Policy

if TYPE_CHECKING:
    from connectors.operations.policy.comparison import ComparedLevel
    from connectors.operations.policy.quality import Quality

Row = TypeVar("Row", bound=Mapping[str, Any])

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


def print_promises(policy: Policy, losses: Sequence[Loss]) -> None:
    """Print all guarantees of a policy: counts, budgets, thresholds, attributes, and what is not protected."""
    console = Console(highlight=False)
    console.print(f"[bold]Policy {policy.version}[/bold]\n")
    console.print(_UNIT.format(**unit_words(policy)))
    for line in chain(counted_lines(policy), login_lines(policy), opt_out_lines(policy)):
        console.print(f"{line}\n")
    if not all(isinstance(release, AttributeRelease) for release in policy.release):
        counted = count_promises(policy)
        beyond = _BEYOND if any(promise.delta for promise in counted) else ""
        console.print(_COUNTS.format(moved=_moved(counted), beyond=beyond))
        parts = (_counts(policy, counted), _sessions(policy), _whole_days(policy, counted), _budgets(policy))
        for part in chain(*parts, _knowledge(policy, counted)):
            console.print(part)
        console.print(_ERRORS)
    for promise in threshold_promises(policy):
        console.print(f"{promise.sentence()}\n")
    for line in chain(people_lines(policy), forecast_lines(policy)):
        console.print(f"{line}\n")
    for loss in losses:
        console.print(f"{loss_sentence(loss)} {_TRIED}\n")
    _print_attributes(console, policy)
    for line in _rest(policy):
        console.print(line)


def _moved(counted: Sequence[CountPromise]) -> str:
    """Return what it costs to move a unit elsewhere: of days, not always twice as much."""
    by_day = {promise.terms is not None for promise in counted}
    return " ".join(text for of_days, text in ((False, _MOVED), (True, _DAY_MOVED)) if of_days in by_day)


def _counts(policy: Policy, counted: Sequence[CountPromise]) -> Iterator[Table]:
    """Yield a table for each site: the epsilons of each reader's counts, in each privacy unit."""
    by_window = [promise for promise in counted if promise.terms is None]
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


def _whole_days(policy: Policy, counted: Sequence[CountPromise]) -> Iterator[Table | str]:
    """Yield releases that are charged per day: the scale of their noise, their epsilons, and the sentence to sign."""
    by_day = [promise for promise in counted if promise.terms is not None]
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


def _noise(promise: CountPromise) -> str:
    """Return the scale of the noise of each level, leaves first."""
    assert promise.terms is not None  # noqa: S101
    if promise.terms.noise == CHANGES:
        return ", ".join(f"{scale:.4g}" for scale in promise.scales)
    gaussian = promise.terms.noise == "gaussian"
    scales = (math.sqrt(each) if gaussian else float(each) for each in promise.terms.parameters)
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


def _knowledge(policy: Policy, counted: Sequence[CountPromise]) -> Iterator[Table | str]:
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


def print_plan(console: Console, report: dict[str, Any]) -> None:
    """Print the expected costs and errors of a day: of counts, thresholds and attributes, site by site."""
    for site, rows in _by_site(report["counts"]):
        title = f"A day at {site} under policy {report['policy_version']}"
        _print_costs(console, f"{title}: costs", rows)
        _print_errors(console, f"{title}: counts", rows)
    for site, rows in _by_site(report["thresholds"]):
        _print_thresholds(console, f"Threshold streams at {site}", rows)
    for site, rows in _by_site(report["attributes"]):
        attributes = table(
            f"Attributes at {site}", ("release", "attribute", "audience"), ("epsilon", "zones", "odds factor")
        )
        for row in rows:
            attributes.add_row(
                row["release"], row["attribute"], row["audience"], row["epsilon"],
                str(row["zones"]), f"{row['with_counts']:.4g}",
            )  # fmt: skip
        console.print(attributes)


def print_comparison(console: Console, rows: Sequence[ComparedLevel]) -> None:
    """Print the errors of ticks beside those of changes."""
    for site, of_site in _by_site(rows):
        columns = ("mean\ncount", "error by\nticks", "error by\nchanges")
        made = table(
            f"Ticks or changes at {site}: what a day's price is worth", ("release", "audience", "level"), columns
        )
        for row in of_site:
            figures = (row["mean"], row["ticks"], row["changes"])
            made.add_row(row["release"], row["audience"], row["level"], *(f"{figure:.2f}" for figure in figures))
        console.print(made)
        who = of_site[0]["unit"]
        day = {"simulated": "the simulated day", "desks": "a day of people who have a desk"}[of_site[0]["day"]]
        console.print(
            f"Both with the filter, in the working hours of {day}, against all {who}s present, residents left out. "
            f"Ticks count a {who} for the site's contribution, changes for its visits (count).\n"
        )


def _print_thresholds(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    columns = ("missed", "within", "quiet\nfrom", "false\nalarms", "denied", "epsilon\nper run", "per\nday")
    made = table(title, ("release", "audience"), columns)
    for column, width in zip(made.columns, (12, 8), strict=False):
        column.min_width = width  # on a narrow terminal names take precedence over numbers
    for row in rows:
        quiet = row["quiet"]
        made.add_row(
            row["release"], "\n".join(row["audiences"]), row["miss"], f"{row['within_seconds'] // 60} min",
            str(quiet["devices"]), f"{quiet['false_alarms_a_day']:.2g}", f"{quiet['denied']:.2g}",
            row["epsilon_run"], row["epsilon_day"],
        )  # fmt: skip
    console.print(made)
    console.print(
        "Quiet: a zone that stays that many devices below its threshold all day; false alarms and denied events are "
        "per day."
    )


def _print_costs(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    columns = ("epsilon per\nwindow", "epsilon\nper day", "windows\nthat fit", "cost of\na day", "one person,\none day")
    costs = table(title, ("release", "audience"), columns)
    for row in rows:
        by_day, cost = row["unit"] == "device_day", row["cost"]
        costs.add_row(
            row["release"], row["audience"], "-" if by_day else row["epsilon"],
            row["epsilon"] if by_day else cost["device_day"], f"{row['releases_that_fit']} of {row['windows_per_day']}",
            cost["day"], _tight(row, "person_day"),
        )  # fmt: skip
    console.print(costs)


def _tight(row: dict[str, Any], unit: str) -> str:
    """Return a unit's epsilon, at its delta if it has one."""
    return f"{row['tight'][unit]['epsilon']:.3g}" if row["tight"] else str(row["cost"][unit])


def _print_errors(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    columns = ("mean\ncount", "mean\nerror", "error of\nthe median")
    errors, warnings = table(title, ("release", "audience", "level"), columns), []
    for row in rows:
        for level, expected, published in _levels(row):
            name = level if published else f"({level})"
            figures = (expected.mean, expected.error, expected.median)
            errors.add_row(row["release"], row["audience"], name, *(f"{figure:.2f}" for figure in figures))
            if expected.poor:
                warnings.append(utility_warning(row["release"], row["audience"], level, expected))
    console.print(errors)
    for line in warnings:
        console.print(line)
    if any(row["left_out"] for row in rows):
        console.print("In brackets: levels that are not published, as if all levels had equal shares of the price.")


def _levels(row: dict[str, Any]) -> Iterator[tuple[str, Quality, bool]]:
    """Yield each level of a release with its expected quality, and whether it is published."""
    from connectors.operations.policy.quality import Quality  # noqa: PLC0415 - only needed here

    for key in ("levels", "left_out"):
        for level, expected in row[key].items():
            figures = (
                expected["expected_mean_absolute_error"], expected["expected_mean_count"], expected["median_error"],
            )  # fmt: skip
            yield level, Quality(*figures), key == "levels"


def print_targets(console: Console, report: dict[str, Any], logins: Collection[str] = ()) -> None:
    """Print the epsilon of each release and level that reaches the wanted error.

    ``logins`` are the sites that count logins.
    """
    from connectors.operations.policy.plan import TRIED  # noqa: PLC0415 - only needed here

    share = f"{100 * report['target_error']:g} %"
    for site, rows in _by_site(report["targets"]):
        columns = ("epsilon", "epsilon\nper day", "mean\ncount", "mean\nerror")
        found = table(
            f"Epsilons at {site} for a mean error of {share} of the mean count",
            ("release", "level", "epsilon pays for"),
            columns,
        )
        for row in rows:
            pays = f"a {'login' if site in logins else 'device'}'s day" if row["unit"] == "device_day" else "a window"
            if not row["reached"]:
                found.add_row(row["release"], row["level"], pays, "unreachable", "-", "-", "-")
                continue
            figures = (f"{row[name]:.2f}" for name in ("mean_count", "mean_absolute_error"))
            found.add_row(row["release"], row["level"], pays, row["epsilon"], row["epsilon_a_day"], *figures)
        console.print(found)
    console.print(
        f"Epsilons of two digits from {float(TRIED[0]):g} to {float(TRIED[-1]):g} were tried; for gaussian days only "
        "those whose noise is large enough to be supported."
    )


def _by_site(rows: Iterable[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield each site with its rows, in their order."""
    sites: dict[str, list[Row]] = {}
    for row in rows:
        sites.setdefault(row["site"], []).append(row)
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
