"""decide: which counts are above their thresholds, privately and with a bound on misses."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console
from rich.table import Table as Printed

from connectors import keyfile
from connectors.commands.options import FILE, json_option, key_option, print_json
from connectors.files.measures import Aggregate, Measure
from connectors.files.predicates import DECIMAL
from connectors.files.query_tree import Source, question
from stream.decisions.compound import Split, betas_of, decide_tree, price_of_tree, truth_of
from stream.decisions.min_entropy import min_entropy
from stream.decisions.plan import Form, Mechanism, Terms
from stream.decisions.progressive import Run
from stream.decisions.rates import ex_post, rates
from stream.keys import subkey


class Decimal(click.ParamType):
    """A number as it stands: 0.05, or 1e-5."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        """Return it exactly."""
        if isinstance(value, Fraction):
            return value
        if not DECIMAL.fullmatch(str(value)):
            self.fail(f"{value!r} must be a number, such as 0.05 or 1e-5", param, ctx)
        return Fraction(str(value))


NUMBER = Decimal()


@click.command()
@click.argument("counts", type=FILE, required=False)
@click.argument("thresholds", type=FILE, required=False)
@click.option("--mechanism", type=click.Choice(get_args(Mechanism)), required=True)
@click.option("--alpha", type=NUMBER, help="Counts within 2 alpha below their threshold may be taken for above.")
@click.option("--beta", type=NUMBER, required=True, help="Largest probability that one above is missed.")
@click.option("--epsilon-max", type=NUMBER, required=True, help="What costs more is denied.")
@click.option("--epsilon-first", type=NUMBER, default="1e-5", show_default=True, help="Of a progressive first step.")
@click.option("--steps", type=int, default=4, show_default=True, help="Of ppwlm and dppwlm.")
@click.option("--fine-steps", type=int, default=3, show_default=True, help="Parts of a step, of dppwlm.")
@click.option("--sensitivity", type=int, default=1, show_default=True, help="What one person changes in all counts.")
@click.option("--aggregate", type=click.Choice(get_args(Aggregate)), default="count", show_default=True)
@click.option("--bounds", type=NUMBER, nargs=2, help="Within which each value of a sum or mean is held.")
@click.option("--resolution", type=NUMBER, help="The step to which values are rounded.")
@click.option("--as-printed", is_flag=True, help="Epsilons and shares of beta as the thesis has them: more misses.")
@click.option(
    "--query", type=FILE, help="Several tables: a JSON file of and, or, not over counts, thresholds, alpha, operator."
)
@click.option(
    "--split", type=click.Choice(get_args(Split)), default="optimal", show_default=True, help="Of beta over --query."
)
@click.option("--runs", type=click.IntRange(1, 100_000), default=1, show_default=True, help="With --evaluate.")
@click.option("--evaluate", is_flag=True, help="Also how good the runs were, by the true counts; restricted.")
@click.option("--restricted", is_flag=True, help="Also what was spent on whom; never to be published.")
@key_option
@json_option
def decide(
    counts: Path | None, thresholds: Path | None, *, mechanism: Mechanism, alpha: Fraction | None, beta: Fraction,
    epsilon_max: Fraction, epsilon_first: Fraction, steps: int, fine_steps: int, sensitivity: int,
    aggregate: Aggregate, bounds: tuple[Fraction, Fraction] | None, resolution: Fraction | None, as_printed: bool,
    query: Path | None, split: Split, runs: int, evaluate: bool, restricted: bool, key_file: Path, as_json: bool,
) -> None:  # fmt: skip
    """Decide which COUNTS (columns predicate, count) are above THRESHOLDS (predicate, threshold, perhaps alpha).

    Predicates exclude each other: one person is counted in one of them, or changes all counts together by
    --sensitivity at most. A count of more than its threshold is missed with probability --beta at most, by all
    mechanisms but laplace. What costs more than --epsilon-max is denied, whatever the counts. With --query COUNTS,
    THRESHOLDS and --alpha are what a table of it leaves out. The same files, options and key give the same answer;
    anything else gives another, and costs again. Takes a laboratory key only, and keeps no ledger.

    \b
    tacet decide counts.csv thresholds.csv --mechanism dppwlm --alpha 1 --beta 0.05 \\
        --epsilon-max 4 --key-file lab.key
    """
    if runs > 1 and not evaluate:
        raise click.UsageError("--runs goes with --evaluate: only one run's decisions are given")
    form: Form = "thesis" if as_printed else "safe"
    terms = Terms(mechanism, beta, epsilon_first, steps, fine_steps, sensitivity, form)
    measure = Measure(aggregate, bounds, resolution)
    asked = question(Source(counts, thresholds, alpha, measure=measure), query)
    betas = betas_of(asked.tree, terms, split)
    price = price_of_tree(asked.tree, terms, betas)
    if price > epsilon_max:
        _print(Answer(denied=True, epsilon=0.0, decisions=[]), as_json, f"{float(price):g}")
        return
    tables = asked.tables()
    key = subkey(keyfile.laboratory_keys(key_file).noise_key(0), "decide")
    made = [decide_tree(asked.tree, tables, terms, betas, key, attempt) for attempt in range(1, runs + 1)]
    answer = Answer(denied=False, epsilon=float(price), decisions=_decisions(asked.predicates, made[0]))
    if restricted or evaluate:
        answer.restricted = _restricted(made[0])
    if evaluate:
        answer.evaluation = rates(truth_of(asked.tree, tables), made)._asdict() | {"restricted": True}
    _print(answer, as_json, f"{float(price):g}")


@dataclass(slots=True)
class Answer:
    """What is printed."""

    denied: bool
    epsilon: float
    decisions: list[dict[str, Any]]
    restricted: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None


def _decisions(predicates: tuple[str, ...], made: Run) -> list[dict[str, Any]]:
    pairs = zip(predicates, made.above.tolist(), strict=True)
    return [{"predicate": predicate, "above": above} for predicate, above in pairs]


def _restricted(made: Run) -> dict[str, Any]:
    spent = [float(each) for each in made.epsilons]
    return {"ex_post": ex_post(made), "epsilons": spent, "min_entropy": min_entropy(spent).lower}


def _print(answer: Answer, as_json: bool, price: str) -> None:
    if as_json:
        made = {"denied": answer.denied, "epsilon": answer.epsilon, "decisions": answer.decisions}
        made |= {} if answer.restricted is None else {"restricted": answer.restricted}
        made |= {} if answer.evaluation is None else {"evaluation": answer.evaluation}
        return print_json(made | {"laboratory": True})
    if answer.denied:
        click.echo(f"denied: would cost epsilon {price}, which is more than --epsilon-max; nothing was spent")
        return None
    shown = Printed("predicate", "above", title=f"epsilon {price}", title_justify="left")
    for each in answer.decisions:
        shown.add_row(each["predicate"], "above" if each["above"] else "-")
    Console().print(shown)
    for name, part in (("restricted", answer.restricted), ("evaluation, restricted", answer.evaluation)):
        if part is not None:
            told = ", ".join(f"{key} {_brief(part[key])}" for key in part if key not in ("epsilons", "restricted"))
            click.echo(f"{name}: {told}")
    return None


def _brief(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
