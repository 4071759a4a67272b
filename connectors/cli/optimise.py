"""optimise: choose epsilons of attributes from an information target."""

from __future__ import annotations

from typing import Any

import click

from connectors.cli.leakage import JSON, MODEL, answer_of, cell, print_answer, print_table
from stream.accounting.leakage import queries
from stream.accounting.leakage.information import bits


@click.command()
@MODEL
@click.option("--budget", type=float, required=True, help="Total information T, in nats.")
@click.option(
    "--objective",
    type=click.Choice(["releases", "epsilon"]),
    default="releases",
    show_default=True,
    help="What to maximise.",
)
@click.option("--cap", type=float, help="Largest epsilon.")
@JSON
def optimise(model: str, budget: float, objective: str, cap: float | None, as_json: bool) -> None:
    """Choose epsilons of attributes from an information target, with a bound on what any choice can reach.

    FILE contains joint (probability per pattern, a digit per attribute, 0 = sensitive), queries and weights. The
    choices for both objectives are printed; the selected objective is marked with *.
    """
    fields = ("queries", "weights")
    answer = answer_of(queries.optimise, model, ("joint",), fields, budget=budget, objective=objective, cap=cap)
    if as_json:
        return print_answer(answer)
    return _print_choices(answer, answer["other"])


_EACH = ("epsilon", "leakage", "expected_releases_each")


def _print_choices(selected: queries.Answer, other: queries.Answer) -> None:
    """Print each attribute's result under both objectives, side by side; the selected one is marked."""
    columns = ["attribute"]
    for choice, mark in ((selected, "*"), (other, "")):
        columns += [f"{choice['maximises']}{mark}\nepsilon", "leakage\nnats", "expected\nreleases"]
    each = zip(*(choice[name] for choice in (selected, other) for name in _EACH), strict=True)
    rows: list[list[Any]] = [[i, *map(_brief, values)] for i, values in enumerate(each)]
    totals = (("", _brief(c["leakage_total"]), _brief(c["expected_releases"])) for c in (selected, other))
    rows.append(["all", *(cell for total in totals for cell in total)])
    note = "\n".join(_certificate(choice) for choice in (selected, other))
    return print_table("Epsilons by objective (* selected)", columns, rows, note)


def _brief(value: float) -> str:
    """Return a number in at most nine characters."""
    return f"{value:.4g}" if value >= 1e-4 else f"{value:.3g}"


def _certificate(choice: queries.Answer) -> str:
    """Return an objective's value with its bound, and the information in bits."""
    value, bound = cell(choice["objective"]), cell(choice["upper_bound"])
    return f"{choice['maximises']}: {value}, upper bound {bound}; {bits(choice['leakage_total']):.6g} bits"
