"""decide: decide privately which counts are above their thresholds, with a bound on misses.

With ``--ledger`` an answer is charged before its noise is drawn, and the total cost of all answers is reported.
"""

from __future__ import annotations

import hmac
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypedDict, get_args

import click
from rich.console import Console
from rich.table import Table as Printed

from connectors.cli.options import FILE, NUMBER, json_option, key_option
from connectors.cli.output import print_json
from connectors.keys import key_files
from connectors.tables.decision_ledger import DecisionLedger, opened
from connectors.tables.decisions import Aggregate, Measure, Question, Source, question
from stream.decisions.compound import (  # fmt: skip
    Betas,
    Leaf,
    Split,
    Tree,
    betas_of,
    decide_tree,
    leaves,
    planned,
    price_of_tree,
    tree_digest,
    truth_of,
)
from stream.decisions.ledger import AnswerLedger, Cells, Charge
from stream.decisions.min_entropy import minimum_entropy
from stream.decisions.plan import DecisionTerms, Form, Mechanism
from stream.decisions.progressive import Rates, Run, Table, ex_post, rates
from stream.domains import Purpose
from stream.errors import UsageError
from stream.keys import LaboratoryKeys, subkey
from stream.mechanisms.noise_labels import label as named
from stream.records import JsonObject

LONGEST_LABEL = 200


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """The options about a ledger."""

    ledger: Path | None
    label: str | None
    budget: Fraction | None
    new_cells: bool

    def check(self) -> None:
        """Raise a usage error if options contradict each other."""
        if self.ledger is None and (self.label is not None or self.budget is not None or self.new_cells):
            raise click.UsageError("--label, --budget, --new-cells: must be used with --ledger")
        if self.budget is not None and self.budget <= 0:
            raise click.UsageError(f"--budget: must be above 0, got {float(self.budget):g}")
        if self.ledger is not None and not _is_label(self.label):
            raise click.UsageError(f"--ledger: --label must name the answer, in at most {LONGEST_LABEL} characters")


def _is_label(label: str | None) -> bool:
    return bool(label) and label == str(label).strip() and str(label).isprintable() and len(str(label)) <= LONGEST_LABEL


class LedgerReport(TypedDict):
    """The totals of a ledger after an answer, as JSON."""

    label: str | None
    charged: float
    """Epsilon of this answer."""
    answers: int
    total: float
    sum: float


class Decision(TypedDict):
    """A decision, as JSON."""

    predicate: str
    above: bool


class RestrictedReport(TypedDict):
    """What was spent on each predicate, as JSON."""

    ex_post: float
    epsilons: list[float]
    min_entropy: float


class OverBudgetError(UsageError):
    """All answers together would cost more than the budget."""


@dataclass(frozen=True, slots=True)
class AnswerCharge:
    """The charge of one answer; without a ledger nothing is charged."""

    options: LedgerOptions
    keys: LaboratoryKeys
    ledger: DecisionLedger | None

    @property
    def noise_key(self) -> bytes:
        """The key of this answer's noise, a different one for each label."""
        key = subkey(self.keys.noise_key(0), Purpose.DECIDE)
        return key if self.options.label is None else subkey(key, f"{Purpose.DECIDE_LABEL} {self.options.label}")

    def enter(self, theta: dict[Cells, Fraction], everywhere: bool, digest: Callable[[], bytes]) -> None:
        """Charge the answer, once, before anything is drawn.

        Args:
            theta: the planned cost of each predicate, by cells.
            everywhere: whether a person in any cell pays the largest of them.
            digest: returns the digest of the whole query, its counts included; called only if nothing denies the
                query.

        Raises:
            OverBudgetError: together the answers would cost more than the budget.
            UsageError: cells are new without being declared so, or the label was used for another query.
        """
        if self.ledger is None:
            return
        label = str(self.options.label)
        unsigned = Charge(label, theta, everywhere, "")
        if label not in self.ledger.charges.charges:
            self._refuse(self.ledger.charges, unsigned)
        key = subkey(self.keys.noise_key(0), Purpose.DECIDE_COMMITMENT)
        commitment = hmac.new(key, named(label, digest()), sha256).hexdigest()
        self.ledger.enter(Charge(label, theta, everywhere, commitment))

    def _refuse(self, charges: AnswerLedger, charge: Charge) -> None:
        new = frozenset().union(*charge.theta) - charges.cells
        if charges.charges and new and not self.options.new_cells:
            raise UsageError(
                f"{len(new)} of the query's cells are not in the ledger: name the ledger's cells of a predicate in a "
                "column cells of the thresholds, or declare with --new-cells that nobody is in a known and a new cell"
            )
        total = charges.with_charge(charge).total
        if self.options.budget is not None and total > self.options.budget:
            raise OverBudgetError(f"the ledger would reach epsilon {float(total):g}, which is more than --budget")

    def report(self) -> LedgerReport | None:
        """Return the ledger's totals; nothing in them depends on counts."""
        if self.ledger is None:
            return None
        charges = self.ledger.charges
        charged = charges.charges.get(str(self.options.label))
        return {
            "label": self.options.label, "charged": 0.0 if charged is None else float(charged.epsilon),
            "answers": len(charges.charges), "total": float(charges.total), "sum": float(charges.sum),
        }  # fmt: skip


@contextmanager
def booking(options: LedgerOptions, keys: LaboratoryKeys) -> Iterator[AnswerCharge]:
    """Open the ledger, if there is one, for the time of one answer."""
    if options.ledger is None:
        yield AnswerCharge(options, keys, None)
        return
    with opened(options.ledger, keys) as ledger:
        yield AnswerCharge(options, keys, ledger)


DENIED = 1
"""Exit code when the query was denied by its price, so nothing was decided."""


@click.command()
@click.argument("counts", type=FILE, required=False)
@click.argument("thresholds", type=FILE, required=False)
@click.option("--mechanism", type=click.Choice(get_args(Mechanism)), required=True, help="How to decide.")
@click.option("--alpha", type=NUMBER, help="Counts up to 2 alpha below their threshold may be decided as above.")
@click.option(
    "--beta", type=NUMBER, required=True, help="Largest probability that a count above its threshold is missed."
)
@click.option("--epsilon-max", type=NUMBER, required=True, help="Deny what costs more.")
@click.option(
    "--epsilon-first",
    type=NUMBER,
    default="1e-5",
    show_default=True,
    help="Epsilon of the first step of ppwlm and dppwlm.",
)
@click.option("--steps", type=int, default=4, show_default=True, help="Steps of ppwlm and dppwlm.")
@click.option("--fine-steps", type=int, default=3, show_default=True, help="Parts of a step of dppwlm.")
@click.option(
    "--sensitivity", type=int, default=1, show_default=True, help="Largest change of all counts together by one person."
)
@click.option(
    "--aggregate", type=click.Choice(get_args(Aggregate)), default="count", show_default=True, help="What to compare."
)
@click.option("--bounds", type=NUMBER, nargs=2, help="Range to which each value of a sum or mean is clipped.")
@click.option("--resolution", type=NUMBER, help="Step to which values are rounded.")
@click.option(
    "--as-printed", is_flag=True, help="Use epsilons and shares of beta as printed in the thesis: more misses."
)
@click.option(
    "--query", type=FILE, help="Combine tables: a JSON file of and, or, not over counts, thresholds, alpha, operator."
)
@click.option(
    "--split",
    type=click.Choice(get_args(Split)),
    default="optimal",
    show_default=True,
    help="How to divide beta among the tables of --query.",
)
@click.option("--ledger", type=FILE, help="Charge the answer in this file before it is drawn; created if missing.")
@click.option("--label", help="With --ledger: name of this answer; the same query under the same label costs nothing.")
@click.option("--budget", type=NUMBER, help="With --ledger: largest cost of all its answers together.")
@click.option(
    "--new-cells", is_flag=True, help="With --ledger: declare that nobody is both in a known and in a new cell."
)
@click.option(
    "--runs", type=click.IntRange(1, 100_000), default=1, show_default=True, help="With --evaluate: number of runs."
)
@click.option("--evaluate", is_flag=True, help="Also print error rates from the true counts; restricted.")
@click.option("--restricted", is_flag=True, help="Also print what was spent on each predicate; never publish it.")
@key_option
@json_option
def decide(
    counts: Path | None, thresholds: Path | None, *, mechanism: Mechanism, alpha: Fraction | None, beta: Fraction,
    epsilon_max: Fraction, epsilon_first: Fraction, steps: int, fine_steps: int, sensitivity: int,
    aggregate: Aggregate, bounds: tuple[Fraction, Fraction] | None, resolution: Fraction | None, as_printed: bool,
    query: Path | None, split: Split, ledger: Path | None, label: str | None, budget: Fraction | None, new_cells: bool,
    runs: int, evaluate: bool, restricted: bool, key_file: Path, as_json: bool,
) -> None:  # fmt: skip
    """Decide privately which counts are above their thresholds.

    COUNTS is a table with the columns predicate (or zone) and count, THRESHOLDS one with predicate, threshold and,
    optionally, alpha. Predicates exclude each other: a person is counted in one of them, or changes all counts together
    by at most --sensitivity.

    All mechanisms but laplace miss a count above its threshold with probability --beta at most. Queries that cost more
    than --epsilon-max are denied, whatever the counts; the exit code is then 1. With --query, COUNTS, THRESHOLDS and
    --alpha are defaults for its tables.

    A laboratory key is required. The same files, options and key give the same answer. Any other query has a different
    answer and costs again; --ledger records the costs.

    \b
    tacet decide counts.csv thresholds.csv --mechanism dppwlm --alpha 1 --beta 0.05 \\
        --epsilon-max 4 --key-file lab.key --ledger decisions.ledger --label monday
    """
    if runs > 1 and not evaluate:
        raise click.UsageError("--runs: must be used with --evaluate; without it, only one run is printed")
    ledger_options = LedgerOptions(ledger, label, budget, new_cells)
    ledger_options.check()
    form: Form = "thesis" if as_printed else "safe"
    terms = DecisionTerms(mechanism, beta, epsilon_first, steps, fine_steps, sensitivity, form)
    source = Source(counts, thresholds, alpha, measure=Measure(aggregate, bounds, resolution))
    priced = _PricedQuery.of(question(source, query), terms, split)
    keys = key_files.laboratory_keys(key_file)
    _warn(priced.query.tree)
    if priced.price > epsilon_max:
        reason = f"would cost epsilon {float(priced.price):g}, which is more than --epsilon-max"
        answer = Answer(True, 0.0, [], priced.unit, why=reason)
    else:
        with booking(ledger_options, keys) as entry:
            answer = _answered(priced, entry, runs, _Shown(restricted, evaluate))
    _print(answer, as_json)
    sys.exit(DENIED if answer.denied else 0)


def _warn(tree: Tree) -> None:
    """Print a warning if alpha leaves no room for uncertainty, which is the most expensive choice."""
    alphas = [alpha for leaf in leaves(tree) for alpha in leaf.alphas]
    small = sum(alpha < 1 for alpha in alphas)
    if small:
        what = f"alpha: is less than one step of the compared values for {small} of {len(alphas)} thresholds"
        click.echo(f"{what}: these cost as much as alpha 0, the most expensive choice", err=True)


class _Shown(NamedTuple):
    restricted: bool
    evaluate: bool


@dataclass(frozen=True, slots=True)
class _PricedQuery:
    """A query, and the price that follows from it alone."""

    query: Question
    terms: DecisionTerms
    betas: Betas
    price: Fraction

    @classmethod
    def of(cls, query: Question, terms: DecisionTerms, split: Split) -> _PricedQuery:
        betas = betas_of(query.tree, terms, split)
        return cls(query, terms, betas, price_of_tree(query.tree, terms, betas))

    @property
    def unit(self) -> str:
        """The unit for which epsilon holds."""
        many = self.terms.sensitivity
        return "one person in one predicate" if many == 1 else f"one person, {many} times in all predicates together"

    def enter(self, entry: AnswerCharge, tables: Callable[[], Mapping[str, Table]]) -> None:
        each = planned(self.query.tree, self.terms, self.betas, len(self.query.predicates))
        everywhere = not isinstance(self.query.tree, Leaf) or self.terms.sensitivity > 1
        theta: dict[Cells, Fraction] = dict(zip(self.query.cells, each, strict=True))
        entry.enter(theta, everywhere, lambda: tree_digest(self.query.tree, tables(), self.terms, self.betas))


def _answered(priced: _PricedQuery, entry: AnswerCharge, runs: int, shown: _Shown) -> Answer:
    """Charge, then draw."""
    tables = cache(priced.query.tables)
    try:
        priced.enter(entry, tables)
    except OverBudgetError as denied:
        return Answer(True, 0.0, [], priced.unit, ledger=entry.report(), why=str(denied))
    tree, key = priced.query.tree, entry.noise_key
    made = [decide_tree(tree, tables(), priced.terms, priced.betas, key, attempt) for attempt in range(1, runs + 1)]
    decisions = _decisions(priced.query.predicates, made[0])
    answer = Answer(False, float(priced.price), decisions, priced.unit, ledger=entry.report())
    if shown.restricted or shown.evaluate:
        answer.restricted = _restricted(made[0])
    if shown.evaluate:
        answer.evaluation = rates(truth_of(tree, tables()), made)
    return answer


@dataclass(slots=True)
class Answer:
    """The printed answer."""

    denied: bool
    epsilon: float
    decisions: list[Decision]
    unit: str
    ledger: LedgerReport | None = None
    restricted: RestrictedReport | None = None
    evaluation: Rates | None = None
    why: str = ""
    """The reason of a denial; empty if the query was answered."""


def _decisions(predicates: tuple[str, ...], made: Run) -> list[Decision]:
    pairs = zip(predicates, made.above.tolist(), strict=True)
    return [{"predicate": predicate, "above": above} for predicate, above in pairs]


def _restricted(made: Run) -> RestrictedReport:
    spent = [float(each) for each in made.epsilons]
    return {"ex_post": ex_post(made), "epsilons": spent, "min_entropy": minimum_entropy(spent).lower}


def _print(answer: Answer, as_json: bool) -> None:
    if as_json:
        return print_json(_document(answer))
    if answer.denied:
        click.echo(f"denied: {answer.why}; nothing was spent")
        return None
    click.echo(f"epsilon {answer.epsilon:g}, {answer.unit}")
    shown = Printed("predicate", "above")
    for each in answer.decisions:
        shown.add_row(each["predicate"], "above" if each["above"] else "-")
    Console().print(shown)
    if answer.ledger is not None:
        click.echo(f"ledger: {answer.ledger['answers']} answer(s), epsilon {answer.ledger['total']:g} together")
    if (spent := answer.restricted) is not None:
        click.echo(f"restricted: ex_post {_brief(spent['ex_post'])}, min_entropy {_brief(spent['min_entropy'])}")
    if answer.evaluation is not None:
        figures = ", ".join(f"{name} {_brief(value)}" for name, value in answer.evaluation._asdict().items())
        click.echo(f"evaluation, restricted: {figures}")
    return None


def _document(answer: Answer) -> JsonObject:
    """Return the answer as one JSON object."""
    document: JsonObject = {
        "denied": answer.denied, "epsilon": answer.epsilon, "decisions": answer.decisions, "unit": answer.unit,
    }  # fmt: skip
    if answer.ledger is not None:
        document["ledger"] = answer.ledger
    if answer.restricted is not None:
        document["restricted"] = answer.restricted
    if answer.evaluation is not None:
        document["evaluation"] = answer.evaluation._asdict() | {"restricted": True}
    return document | {"laboratory": True}


def _brief(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
