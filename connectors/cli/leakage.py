"""leakage: compute what releases reveal, for a model in JSON.

Each command reads one model, calls the function of the same name in ``stream.accounting.leakage.queries`` and prints a
table for people or, with ``--json``, one object. The model is one JSON object that is parsed strictly: duplicate keys,
literals that are not numbers, unknown and missing entries are refused by name, with exit code 2. ``leakage learn``
learns models from a restricted history, and writes them to a restricted report.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
import orjson
from rich.console import Console
from rich.table import Table

from connectors.cli.options import FILE, FOLDER, VerbGroup, json_option, policy_option, read_policy
from connectors.cli.output import print_json
from connectors.lab.learning import NOTICE, States, report_of, write_report
from connectors.sources.recordings.replay import read_history
from stream.accounting.leakage import queries
from stream.accounting.leakage.queries import Answer
from stream.decisions.min_entropy import min_entropy
from stream.errors import UsageError
from stream.records import JsonObject
from stream.schemas import json_float

_MAY_BE_NULL = ("backward", "forward")
"""An unknown direction may be omitted or null."""

MODEL = click.argument("model", metavar="FILE|-", type=click.Path(allow_dash=True, dir_okay=False))
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class ModelError(click.ClickException):
    """The model is invalid; the message names the entry and the rule."""

    exit_code = 2


def _refuse(message: str) -> NoReturn:
    raise ModelError(message)


def _read(path: str) -> JsonObject:
    """Return the JSON object in a file, or on standard input for ``-``."""
    try:
        text = click.get_text_stream("stdin").read() if path == "-" else Path(path).read_text("utf-8")
        model = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_Literal, parse_int=_integer, parse_float=_decimal
        )
    except (OSError, UnicodeDecodeError) as error:
        _refuse(f"{path}: cannot be read: {error}")
    except RecursionError:
        _refuse(f"{path}: is nested too deeply")
    except json.JSONDecodeError as error:
        _refuse(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}")
    if not isinstance(model, dict):
        _refuse(f"{path}: must be one JSON object")
    return model


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    found: JsonObject = {}
    for key, value in pairs:
        if key in found:
            _refuse(f"{_quoted(key)} is given twice")
        found[key] = value
    return found


class _Literal(str):
    """A literal that is not a number (NaN, Infinity) or exceeds a double, kept so that the error can name its entry."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _integer(literal: str) -> int | _Literal:
    return int(literal) if len(literal) < sys.float_info.max_10_exp else _Literal(literal)


def _decimal(literal: str) -> float | _Literal:
    value = float(literal)
    return _Literal(literal) if math.isinf(value) else value


def _quoted(key: str) -> str:
    """Return a key as JSON, shortened, so that no control character reaches the terminal."""
    return json.dumps(key if len(key) <= 60 else f"{key[:57]}...")


def answer_of(
    query: Callable[..., Answer],
    path: str,
    required: tuple[str, ...],
    optional: tuple[str, ...] = (),
    **options: object,
) -> Answer:
    """Call a query with the model's fields; refuse unknown and missing fields by name."""
    fields = (*required, *optional)
    model = _read(path)
    for key in model:
        if key not in fields:
            _refuse(f"{path}: unknown entry {_quoted(key)}; known are {', '.join(fields)}")
        if model[key] is None and key not in _MAY_BE_NULL:
            _refuse(f'{path}: the entry "{key}" must not be null')
    missing = [name for name in required if name not in model]
    if missing:
        _refuse(f'{path}: the entry "{missing[0]}" is missing')
    try:
        return query(**model, **options)
    except UsageError as error:
        raise ModelError(f"{path}: {error}") from None


def _plain(value: Any) -> Any:
    """Return an answer with infinities as the string "inf"."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return json_float(value) if isinstance(value, float) else value


def print_answer(answer: Answer) -> None:
    """Print an answer as one line of JSON."""
    click.echo(orjson.dumps(_plain(answer)).decode())


def print_table(title: str, columns: list[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
    """Print a table of numbers, with a note below it."""
    table = Table(title=title, title_justify="left", caption=note or None, caption_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*[cell(value) for value in row])
    Console().print(table)


def cell(value: object) -> str:
    """Return a value as the text of a cell."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@click.group(cls=VerbGroup)
def leakage() -> None:
    """Compute what releases reveal, for a model in a JSON file (or - for standard input)."""


@leakage.command("osdp")
@MODEL
@JSON
def _osdp(model: str, as_json: bool) -> None:
    """Compute the odds that records are sensitive, after released and withheld values of dependent attributes.

    FILE contains joint (probability per pattern, a digit per attribute, 0 = sensitive), epsilon, queries (number of
    queries of each) and released (number of released values of each).
    """
    answer = answer_of(queries.osdp, model, ("joint", "epsilon"), ("queries", "released"))
    if as_json:
        return print_answer(answer)
    rows = [
        [i, a["prior_odds"], a["factor"], a["posterior_odds"], worst, a["pairwise_factor"]]
        for i, (a, worst) in enumerate(zip(answer["attributes"], answer["worst_factor"], strict=True))
    ]
    columns = ["attribute", "prior odds", "factor", "posterior odds", "worst factor", "pairwise product"]
    note = "odds sensitive : not; worst over all outcomes of these queries; the product is an approximation"
    return print_table("Dependent attributes", columns, rows, note)


@leakage.command("prior")
@MODEL
@click.option(
    "--method",
    type=click.Choice(["exact", "full", "fast"]),
    default="exact",
    show_default=True,
    help="Exact, or a heuristic.",
)
@click.option("--keep", type=click.IntRange(min=1), help="Nodes kept per layer, with --method fast.")
@JSON
def _prior(model: str, method: str, keep: int | None, as_json: bool) -> None:
    """Compute the leakage of a noisy sum to every adversary who knows some of the tuples.

    FILE contains domains (values per tuple), joint (nested by tuple), scale (of the Laplace noise) and, for a linear
    query, weights. The methods full and fast are the paper's chain rule: heuristics, not bounds.
    """
    required = ("domains", "joint", "scale")
    answer = answer_of(queries.prior, model, required, ("weights",), method=method, keep=keep)
    _print_adversaries(answer, as_json, "" if method == "exact" else "heuristic: may be below the truth")


@leakage.command("gaussian")
@MODEL
@JSON
def _gaussian(model: str, as_json: bool) -> None:
    """Compute the leakage of a noisy sum of Gaussian tuples, in closed form.

    FILE contains covariance, range (largest difference of two values) and scale (of the Laplace noise).
    """
    answer = answer_of(queries.gaussian, model, ("covariance", "range", "scale"), ("weights",))
    _print_adversaries(answer, as_json, "")


def _print_adversaries(answer: Answer, as_json: bool, note: str) -> None:
    if as_json:
        return print_answer(answer)
    rows = [[a["target"], ", ".join(map(str, a["knows"])) or "nothing", a["leakage"]] for a in answer["adversaries"]]
    title = f"Largest leakage {cell(answer['leakage'])}"
    return print_table(title, ["attacks", "knows", "leakage"], rows, note)


@leakage.command("temporal")
@MODEL
@click.option("--target", type=float, help="Find epsilons for this total leakage.")
@click.option("--horizon", type=click.IntRange(min=1), help="Number of releases, with --target.")
@click.option(
    "--method",
    type=click.Choice(["bound", "quantified"]),
    help="With --target: how to find the epsilons.  [default: bound]",
)
@JSON
def _temporal(model: str, target: float | None, horizon: int | None, method: str | None, as_json: bool) -> None:
    """Compute the leakage of a stream of releases to an adversary who knows how people move.

    FILE contains backward and forward (transition matrices; one may be missing), or forward and "stationary": true, and
    epsilon (per release). With --target and --horizon the epsilons are computed; those in FILE are checked, but not
    used.
    """
    if (target is None) != (horizon is None) or (method is not None and target is None):
        raise click.UsageError("--target, --horizon: must be used together, and --method only with them")
    matrices, epsilon = ("backward", "forward", "stationary"), ("epsilon",)
    required, optional = (epsilon, matrices) if target is None else ((), (*matrices, *epsilon))
    answer = answer_of(queries.temporal, model, required, optional, target=target, horizon=horizon, method=method)
    if as_json:
        return print_answer(answer)
    return _print_temporal(answer)


def _print_temporal(answer: Answer) -> None:
    if "total" not in answer:
        rows: list[list[object]] = [[t + 1, e] for t, e in enumerate(answer["epsilon"])]
        return print_table("Epsilons for the target", ["release", "epsilon"], rows)
    names = ["backward", "forward", "total"]
    lists = [answer[name] or [None] * len(answer["total"]) for name in names]
    rows = [[t + 1, *values] for t, values in enumerate(zip(*lists, strict=True))]
    rows.append(["for ever", *(answer["supremum"][name] for name in names)])
    return print_table("Temporal leakage", ["release", *names], rows)


@leakage.command("min-entropy")
@MODEL
@JSON
def _min_entropy(model: str, as_json: bool) -> None:
    """Compute the least uncertainty about which predicate holds, after an answer with an epsilon for each.

    FILE contains epsilons (one per predicate) and, unless all predicates are equally likely, priors. With few different
    pairs the result is exact; otherwise it is an interval whose lower end is the answer.
    """
    answer = answer_of(min_entropy, model, ("epsilons",), ("priors",))
    if as_json:
        return print_answer(answer)
    rows = [[answer["min_entropy"], answer["normalised"], answer["lower"], answer["upper"]]]
    note = "in nats; " + ("exact" if answer["exact"] else "the truth lies between lower and upper")
    return print_table("Min-entropy", ["min-entropy", "divided by ln k", "lower", "upper"], rows, note)


@leakage.command("compose")
@MODEL
@JSON
def _compose(model: str, as_json: bool) -> None:
    """Compute the joint cost of noisy releases: the sum of their epsilons, and epsilon at a small delta.

    FILE contains delta, releases (each with noise: laplace with epsilon, gaussian with sigma, pure with epsilon,
    changes with shift; and times, the number of values that a change alters by one, or of days of changes) and group
    (devices that change together).
    """
    answer = answer_of(queries.compose, model, ("delta", "releases"), ("group",))
    if as_json:
        return print_answer(answer)
    epsilon, delta = answer["epsilon"], answer["delta"]
    rows: list[list[object]] = [["pure", epsilon["pure"], 0], ["approximate", epsilon["approximate"], delta]]
    note = "pure: added up; approximate: holds at this delta only"
    return print_table("Composition", ["", "epsilon", "delta"], rows, note)


# leakage learn


@click.command()
@click.argument("history", type=FOLDER)
@policy_option
@click.option(
    "--states", type=click.Choice(["floors", "zones"]), default="floors", show_default=True, help="States of moves."
)
@click.option("--out", type=FILE, help="Report to write, mode 0600.  [default: HISTORY/learnt.json]")
@json_option
def learn(history: Path, *, policy_file: Path, states: States, out: Path | None, as_json: bool) -> None:
    """Learn how attributes are jointly distributed and how people move, from a replay folder HISTORY.

    HISTORY must have been made with 'tacet replay --include-restricted'. The report is personal data: it is written to
    one file that only you can read, and never to a topic, the account or the terminal.
    """
    target = out if out is not None else history / "learnt.json"
    policy = read_policy(policy_file)
    report = report_of(policy, read_history(history, policy), states)
    write_report(report, target)
    days = max((release["days"] for release in report["attributes"].values()), default=0)
    if as_json:
        print_json({"restricted": True, "out": str(target), "policy_version": policy.version})
        return
    click.echo(f"{len(report['attributes'])} attribute release(s) over {days} day(s) → {target}")
    click.echo(NOTICE)


leakage.add_command(learn)
