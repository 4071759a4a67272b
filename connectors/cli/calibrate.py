"""calibrate: learn from counts of people how many there are per device."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console

from connectors.cli.options import FILE, FOLDER, NEW_FILE, json_option, policy_option, read_policy
from connectors.cli.output import print_json, table
from connectors.lab.plots import drawing, need_matplotlib
from connectors.operations.people import history as released
from connectors.operations.people.calibration import Calibrated, Compared, Subject, provisional
from connectors.operations.people.calibration import calibrate as calibrated
from connectors.operations.people.history import History, Subscription
from connectors.operations.people.truth import GroundTruth, noised, read_truth, write_noised
from connectors.operations.policy.guarantees import provisional_sentence
from connectors.sources.recordings.text_rows import named
from stream.errors import DataError, UsageError
from stream.policy.counts import CountRelease
from stream.policy.fields import decimal_string, parse_epsilon
from stream.policy.people import THOUSAND, Truth, published_nodes, terms_of
from stream.policy.sites import Site
from stream.records import HOUR
from stream.release.validation import Policy

KEY_BYTES = 32


class _TruthTerms(NamedTuple):
    """How ground truth was declared."""

    public: bool
    epsilon: Fraction | None
    noised: Path | None


@click.command()
@click.argument("truth", type=FILE)
@policy_option
@click.option("--site", help="Site of the policy.  [default: the only one]")
@click.option("--release", "name", required=True, help="The count release.")
@click.option("--audience", required=True, help="Its audience, whose released values are used.")
@click.option("--store", type=FOLDER, help="Released history: folder of an embedded store.")
@click.option(
    "--history", type=FILE, help="Released history: records (.jsonl), or rows with the columns end, node and value."
)
@click.option(
    "--truth", "declared", type=click.Choice(["public"]), help="Declare that the counts of people are public."
)
@click.option("--truth-epsilon", help="Or pay: epsilon of one person at one moment, spent on noise in the counts.")
@click.option("--noised", "noised_file", type=NEW_FILE, help="With --truth-epsilon: new file for the noised counts.")
@click.option(
    "--provisional",
    "may_be_provisional",
    is_flag=True,
    help="With too few days, make a model of a few counts: a wide band, no promise, for two weeks.",
)
@click.option("--out", type=NEW_FILE, required=True, help="New file for the model.")
@click.option("--figures", type=FOLDER, help="Folder for a figure of people and bands on days that were held back.")
@json_option
def calibrate(
    truth: Path, *, policy_file: Path, site: str | None, name: str, audience: str, store: Path | None,
    history: Path | None, declared: str | None, truth_epsilon: str | None, noised_file: Path | None,
    may_be_provisional: bool, out: Path, figures: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Learn how many people there are per device, with a band that holds on days that were held back.

    TRUTH has the columns time, node and people: door counters or head counts, at any spacing. Nodes are zone:2011,
    floor:2 and building. The model is a file that a policy names by its digest, under [people]; the release then also
    publishes people, at no further cost.

    Counts of people are about people. Declare them public (--truth public), or pay for them (--truth-epsilon): then
    they get noise before anything reads them. Every run with --truth-epsilon costs again; the file of --noised can be
    used any number of times instead. The command refuses too little evidence: a level needs people on 12 days. With
    --provisional three windows with people are enough, for a model that says that it is provisional.

    \b
    tacet calibrate heads.csv --policy policy.toml --store store --release occupancy \\
        --audience facilities --truth public --out people.json
    """
    if figures is not None:
        need_matplotlib("--figures")
    terms = _terms(declared, truth_epsilon, noised_file)
    if (store is None) == (history is None):
        raise click.UsageError("--store or --history: exactly one of them must be given")
    policy = read_policy(policy_file)
    of = _subscription(policy, site, name, audience)
    nodes = frozenset(published_nodes(of.site, of.release))
    past = released.from_store(store, of) if store is not None else released.from_file(history or Path(), of, nodes)
    true_people = _ground_truth(read_truth(truth, of.site.tick, of.timezone, nodes), terms)
    result = _calibrated(of, past, true_people, may_be_provisional=may_be_provisional)
    out.write_bytes(result.model.to_bytes())
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        _draw(figures, result)
    _report(result, past, true_people, out, as_json=as_json)


def _terms(declared: str | None, epsilon: str | None, noised_file: Path | None) -> _TruthTerms:
    if declared is not None and epsilon is not None:
        raise click.UsageError("--truth public: must not be given with --truth-epsilon")
    if (noised_file is None) != (epsilon is None):
        raise click.UsageError("--noised: must be given with --truth-epsilon, and only then")
    try:
        return _TruthTerms(declared is not None, None if epsilon is None else parse_epsilon(epsilon), noised_file)
    except ValueError as error:
        raise click.UsageError(f"--truth-epsilon: {error}") from None


def _subscription(policy: Policy, site: str | None, name: str, audience: str) -> Subscription:
    if site is None and len(policy.site) > 1:
        raise click.UsageError(f"--site: must be one of {', '.join(policy.site)}")
    site = site if site is not None else next(iter(policy.site))
    release = next((each for each in policy.release if each.name == name), None)
    if site not in policy.site:
        raise UsageError(f"--site: must be a site of the policy, got {site!r}")
    if not isinstance(release, CountRelease) or not policy.zones_of(release, site):
        raise UsageError(f"--release: must be a count release of the policy at {site}, got {name!r}")
    if audience not in release.epsilon:
        raise UsageError(f"--audience: must be an audience of release {name}, got {audience!r}")
    if policy.site[site].feed == "counts":
        raise UsageError(f"--site: must count devices, but {site} has people counters, whose counts are of people")
    return Subscription(site, policy.site[site], release, audience)


def _ground_truth(read: GroundTruth, terms: _TruthTerms) -> GroundTruth:
    """Return the counts of people that everything else reads: public ones, or those with noise."""
    if read.epsilon is not None:
        if terms.public or terms.epsilon is not None:
            raise UsageError("truth: already has noise and an epsilon; give neither --truth nor --truth-epsilon")
        return read
    if terms.public:
        return read
    if terms.epsilon is None or terms.noised is None:
        raise UsageError(
            "truth: must be declared public (--truth public), or be paid for (--truth-epsilon E --noised FILE)"
        )
    private = noised(read, terms.epsilon, secrets.token_bytes(KEY_BYTES))
    write_noised(terms.noised, private)
    return private


def _calibrated(
    of: Subscription, past: History, true_people: GroundTruth, *, may_be_provisional: bool
) -> Calibrated:  # fmt: skip
    histories = released.node_histories(past, of)
    epsilon = None if true_people.epsilon is None else decimal_string(true_people.epsilon)
    subject = Subject(
        of.name, of.release.name, of.audience, terms_of(of.site, of.release, of.audience), past.laboratory,
        Truth(public=epsilon is None, epsilon=epsilon), _working_hours(of.site),
    )  # fmt: skip
    found = released.evidence(past, histories, true_people, of)
    try:
        return calibrated(subject, histories, found)
    except DataError as few:
        if may_be_provisional:
            return provisional(subject, found)
        raise DataError(
            f"{few}\nWith --provisional three counts are enough, for a band that promises nothing"
        ) from None


def _working_hours(site: Site) -> frozenset[int]:
    """Return the local hours of which a part lies in the site's working hours."""
    first, last = (tick * site.tick for tick in site.working_ticks)
    return frozenset(range(first // HOUR, -(-last // HOUR)))


def _draw(folder: Path, result: Calibrated) -> None:
    with drawing(folder, "people", columns=max(1, len(result.compared))) as made:
        for panel, (level, found) in zip(made.panels, result.compared.items(), strict=False):
            _panel(panel, level, found)


def _panel(panel: Any, level: str, found: Compared) -> None:
    """Draw the mean band over each estimate, and what was counted."""
    panel.set_title(f"{level}: windows that were held back")
    panel.set_xlabel("estimated people")
    panel.set_ylabel("counted people")
    if not len(found.people):
        return
    estimates = np.unique(found.estimates)
    low, high = ([side[found.estimates == at].mean() for at in estimates] for side in (found.low, found.high))
    panel.fill_between(estimates, low, high, alpha=0.2, label="90 % band")
    panel.plot(found.estimates, found.people, "o", markersize=2, alpha=0.3, label="windows")


def _report(result: Calibrated, past: History, true_people: GroundTruth, out: Path, *, as_json: bool) -> None:
    model, paid = result.model, true_people.epsilon
    if as_json:
        print_json({
            "model": str(out), "digest": model.digest, "laboratory": model.laboratory,
            "truth": model.truth.model_dump(), "nodes": len(model.nodes),
            "levels": {
                level: {name: value if name in _COUNTS else value / THOUSAND for name, value in check}
                for level, check in model.checked.items()
            },
            "left_out": list(result.left_out),
            "provisional": None if model.provisional is None else model.provisional.model_dump(mode="json"),
            "records_left_out": past.left_out,
            "truth_rows": true_people.tally.figures(),
        })  # fmt: skip
        return
    shown = table("Days that were held back", ("level",), _HEADER)
    for level, check in model.checked.items():
        figures = (f"{check.covered / 10:.0f} %", f"{check.covered_occupied / 10:.0f} %")
        sizes = (each / THOUSAND for each in (check.width, check.width_occupied, check.error, check.fixed_error))
        shown.add_row(level, f"{check.windows:,}", f"{check.days:,}", *figures, *(f"{size:.2f}" for size in sizes))
    if model.provisional is None:
        Console().print(shown)
    else:
        click.echo(provisional_sentence(model.provisional))
    for name, of_level in model.levels.items():
        others = "no other hour was counted on enough days" if model.provisional is None else "none for other hours"
        click.echo(f"{name}: numbers for {_spans(sorted(map(int, of_level.hours)))}; {others}")
    for line in result.left_out:
        click.echo(f"left out: {line}")
    if past.left_out:
        click.echo(f"left out: {past.left_out:,} record(s) or row(s) of the history, bad or with other terms")
    if true_people.tally.bad:
        click.echo(named(true_people.tally))
    cost = (
        "public" if paid is None else f"epsilon {decimal_string(paid)} for one person at one moment, besides the counts"
    )
    click.echo(f"truth: {cost}")
    if model.laboratory:
        click.echo("laboratory: the history does not come from a production key; such a key refuses the model")
    click.echo(f'{len(model.nodes):,} node(s) → {out}\n\n[people]\nmodel = "{out.name}"\ndigest = "{model.digest}"')


def _spans(hours: Sequence[int]) -> str:
    """Return hours of the day as spans, such as 09:00 to 11:59."""
    firsts = (hour for hour in hours if hour - 1 not in hours)
    lasts = (hour for hour in hours if hour + 1 not in hours)
    return ", ".join(f"{first:02}:00 to {last:02}:59" for first, last in zip(firsts, lasts, strict=True))


_COUNTS = {"windows", "occupied", "days"}
_HEADER = ("windows", "days", "covered", "with people", "width", "with people", "error", "best factor")
