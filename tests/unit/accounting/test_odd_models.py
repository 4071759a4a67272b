"""Odd models: whatever stands in a file, the answer is a result or a refusal that names the entry.

Valid models of all five verbs are spoilt at random: wrong types, wrong nesting, numbers at and beyond the end of
the doubles, rows of unequal length, entries left out, added or given twice. Warnings are errors here.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from click.core import Command, Group
from click.testing import CliRunner

from connectors.cli.leakage import leakage
from connectors.cli.optimise import optimise

STAY = [[0.9, 0.1], [0.1, 0.9]]
JOINT = {"00": 0.3, "01": 0.2, "10": 0.1, "11": 0.4}
THREE = {"000": 0.2, "001": 0.05, "010": 0.08, "011": 0.07, "100": 0.06, "101": 0.09, "110": 0.05, "111": 0.4}
OPTIMISE = {"joint": JOINT, "queries": [1, 2], "weights": [1, 0.5]}
TEMPORAL = {"backward": STAY, "forward": STAY, "epsilon": [0.1, 0.2, 0.3]}
ASKED: list[tuple[Command | Group, tuple[str, ...], dict[str, Any]]] = [
    (leakage, ("osdp",), {"joint": JOINT, "epsilon": [1, 0.5], "queries": [2, 1], "released": [1, 0]}),
    (leakage, ("osdp",), {"joint": THREE, "epsilon": [1, "inf", 0.5]}),
    (leakage, ("prior",), {"domains": [[0, 1], [0, 5]], "joint": [[0.3, 0.2], [0.2, 0.3]], "scale": 1}),
    (leakage, ("prior", "--method", "full"),
     {"domains": [[0, 1], [0, 1, 2]], "joint": [[0.3, 0.1, 0.1], [0, 0.2, 0.3]], "scale": 2, "weights": [1, -1]}),
    (leakage, ("prior", "--method", "fast", "--keep", "1"),
     {"domains": [[0, 1], [0, 1]], "joint": [[0.5, 0], [0, 0.5]], "scale": 1}),
    (leakage, ("gaussian",), {"covariance": [[1, 0.5, -0.3], [0.5, 2, 0.4], [-0.3, 0.4, 1.5]], "range": 2, "scale": 1}),
    (leakage, ("gaussian",), {"covariance": [[1, 1], [1, 1]], "range": [2, 1], "scale": 1.5, "weights": [1, 2]}),
    (leakage, ("temporal",), TEMPORAL),
    (leakage, ("temporal",), {"forward": STAY, "stationary": True, "epsilon": [0.1]}),
    (leakage, ("temporal",), {"backward": [[1, 0], [0, 1]], "epsilon": [0.1, 1]}),
    (leakage, ("temporal", "--target", "1", "--horizon", "3"), TEMPORAL),
    (leakage, ("temporal", "--target", "0.1", "--horizon", "4", "--method", "quantified"), {"forward": STAY}),
    (optimise, ("--budget", "0.2"), OPTIMISE),
    (optimise, ("--budget", "1e-15", "--objective", "epsilon"), OPTIMISE),
    (optimise, ("--budget", "0.4", "--cap", "0.5"), {"joint": THREE}),
    (optimise, ("--budget", "10", "--cap", "1e40"), OPTIMISE),
]  # fmt: skip
NUMBERS = [
    0, -0.0, 1, -1, 0.5, 2, 1e-5, 1 - 1e-16, 1e-16, 1e-49, 1e-100, 1e-101, 1e-300, 5e-324, 1e16, 1e49, 1e50, 2e50, 1e99,
    1e300, 1.7976931348623157e308, -1e308, math.nan, math.inf, -math.inf, 10**9, 10**19, -(10**19), 10**400, 2**63,
    2**63 - 1, "<1e400>", "<-1e400>", f"<{'9' * 5000}>", "<1e-400>",
]  # fmt: skip
OTHERS: list[Any] = [
    None, True, False, "", "inf", "-inf", "nan", "1", "x", "\ud800", [], {}, [[]], [0], [None], {"0": 1}, {"": 1},
    {"0": 0.5, "1": 0.5}, {"00": 1}, {"0": 1, "1": 0}, [[0.5, 0.5], [0.5]], [[1]], [[1, 0], [0, 1]], ["inf"], [[[[1]]]],
    [1] * 40, {"0" * 40: 1}, [[0]] * 30, [1e50, 1e50], [1e-100, 1e50],
]  # fmt: skip
NAMES = (
    "joint", "epsilon", "queries", "released", "domains", "scale", "weights", "covariance", "range", "backward",
    "forward", "stationary", "target", "horizon", "budget", "cap", "keep",
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[Any]:
    """Return the path of every entry, the whole model first."""
    found = [path]
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in inside:
        found += places(entry, (*path, key))
    return found


def spoilt(rng: np.random.Generator, model: dict[str, Any]) -> dict[str, Any]:
    """Return the model with one to three entries replaced, wrapped, removed, repeated or renamed."""
    model = copy.deepcopy(model)
    for _ in range(int(rng.integers(1, 4))):
        paths = [p for p in places(model) if p]
        if not paths:
            return model
        path = paths[int(rng.integers(len(paths)))]
        holder = model
        for key in path[:-1]:
            holder = holder[key]
        change(rng, holder, path[-1])
    return model


def change(rng: np.random.Generator, holder: Any, key: Any) -> None:
    kind = rng.choice(["number", "number", "number", "other", "wrap", "remove", "repeat"])
    if kind == "number":
        holder[key] = NUMBERS[int(rng.integers(len(NUMBERS)))]
    elif kind == "other":
        holder[key] = copy.deepcopy(OTHERS[int(rng.integers(len(OTHERS)))])
    elif kind == "wrap":
        holder[key] = [holder[key]] if rng.uniform() < 0.5 else {"0": holder[key]}
    elif kind == "remove":
        del holder[key]
    elif isinstance(holder, list):
        holder.insert(int(rng.integers(len(holder) + 1)), copy.deepcopy(holder[key]))
    else:
        holder[f"{key}0"] = copy.deepcopy(holder[key])


def written(rng: np.random.Generator, model: dict[str, Any]) -> str:
    """Return the model as text: literals that Python cannot hold as such, at times an entry twice."""
    text = re.sub(r'"<([-0-9e]+)>"', r"\1", json.dumps(model))
    if rng.uniform() < 0.03 and model:
        key = next(iter(model))
        text = f'{{"{key}": 0, {text[1:]}'
    return text


def unfit(value: Any, path: tuple[Any, ...] = ()) -> list[Any]:
    """Return the places of an answer that hold neither a number nor "inf" (null stands for an unknown direction)."""
    if isinstance(value, dict):
        return [p for key, entry in value.items() for p in unfit(entry, (*path, key))]
    if isinstance(value, list):
        return [p for i, entry in enumerate(value) for p in unfit(entry, (*path, i))]
    known = value == "inf" or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
    unknown_direction = value is None and path[-1] in ("backward", "forward")
    return [] if known or unknown_direction or path[-1] == "maximises" else [path]


def problem(command: Command | Group, arguments: tuple[Any, ...], text: str) -> Any:
    """Return what is wrong with the outcome, None if nothing is."""
    done = CliRunner().invoke(command, [*arguments, "-", "--json"], input=text)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return repr(done.exception)
    if done.exit_code == 0:
        return unfit(json.loads(done.output)) or None
    named = any(name in done.output for name in (*NAMES, "unknown entry", "given twice", "one JSON object"))
    return None if done.exit_code == 2 and named and len(done.output) < 1000 else (done.exit_code, done.output[:500])


def outcomes(rng: np.random.Generator, number: int) -> Iterator[tuple[Any, ...]]:
    """Yield (arguments, text, problem) of this many spoilt models."""
    for n in range(number):
        command, arguments, model = ASKED[n % len(ASKED)]
        text = written(rng, spoilt(rng, model))
        yield arguments, text, problem(command, asked_otherwise(rng, arguments), text)


def asked_otherwise(rng: np.random.Generator, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments, at times with another number as an option."""
    options = [
        i for i, word in enumerate(arguments) if word in ("--budget", "--cap", "--target", "--horizon", "--keep")
    ]
    if not options or rng.uniform() < 0.8:
        return arguments
    at = options[int(rng.integers(len(options)))] + 1
    value = str(NUMBERS[int(rng.integers(len(NUMBERS)))]).strip("<>")
    return (*arguments[:at], value[:400], *arguments[at + 1 :])


def test_every_odd_model_has_an_answer_in_numbers_or_a_refusal_that_names_the_entry(seeded: Any) -> None:
    wrong = [outcome for outcome in outcomes(seeded(41), 1000) if outcome[2] is not None]
    assert wrong == []


HUGE = 10**400
REFUSED = [
    (leakage, ("osdp",), f'{{"joint": {{"0": 0.5, "1": 0.5}}, "epsilon": [1], "queries": [{10**19}]}}', "queries[0]"),
    (leakage, ("osdp",), '{"joint": {"0": 0.5, "1": 0.5}, "epsilon": [1], "released": [1000000001]}', "released[0]"),
    (leakage, ("osdp",), '{"joint": {"0": 0.5, "1": 0.5}, "epsilon": [1e400]}', "epsilon[0]"),
    (leakage, ("osdp",), '{"joint": {"0": 0.5, "1": NaN}, "epsilon": [1]}', 'joint["1"]'),
    (leakage, ("osdp",), f'{{"joint": {{"0": 0.5, "1": 0.5}}, "epsilon": [{"9" * 5000}]}}', "epsilon[0]"),
    (optimise, ("--budget", "1"), f'{{"joint": {{"0": 0.5, "1": 0.5}}, "queries": [{HUGE}]}}', "queries[0]"),
    (optimise, ("--budget", "1"), '{"joint": {"0": 0.5, "1": 0.5}, "weights": [1e308]}', "weights[0]"),
    (optimise, ("--budget", "1e-101"), '{"joint": {"0": 0.5, "1": 0.5}}', "budget"),
    (optimise, ("--budget", "1", "--cap", "1e60"), '{"joint": {"0": 0.5, "1": 0.5}}', "cap"),
    (leakage, ("prior",), '{"domains": [[0, 1e308]], "joint": [0.5, 0.5], "scale": 1}', "domains[0][1]"),
    (leakage, ("prior",), '{"domains": [[0, 1]], "joint": [0.5, 0.5], "scale": 1e-300}', "scale"),
    (leakage, ("prior",), json.dumps({"domains": [[0]] * 13, "joint": 1, "scale": 1}), "domains"),
    (leakage, ("prior",), '{"domains": [[0, 1e20], [0, 1]], "joint": [[1, 0], [0, 0]], "scale": 1}', "domains[1]"),
    (leakage, ("gaussian",), json.dumps({"covariance": [[0] * 17] * 17, "range": 1, "scale": 1}), "covariance"),
    (leakage, ("gaussian",), '{"covariance": [[1, 1e-9], [1e-9, 1e-30]], "range": 1, "scale": 1}', "covariance[0][1]"),
    (leakage, ("temporal",), '{"forward": [[1, 0], [0, 1]], "epsilon": [1e308]}', "epsilon[0]"),
    (leakage, ("temporal", "--target", "1", "--horizon", str(10**12)), '{"forward": [[1, 0], [0, 1]]}', "horizon"),
    (leakage, ("temporal", "--target", "1", "--horizon", "2"), '{"forward": [[1]], "epsilon": "garbage"}', "epsilon"),
    (leakage, ("temporal", "--target", "1", "--horizon", "2"), '{"forward": [[1]], "epsilon": []}', "epsilon"),
    (leakage, ("temporal", "--target", "1", "--horizon", "2"), '{"forward": [[1]], "epsilon": null}', "epsilon"),
    (leakage, ("temporal", "--target", "1", "--horizon", "2"), '{"forward": [[1]], "epsilon": [1, -1]}', "epsilon[1]"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "arguments", "text", "entry"), REFUSED)
def test_a_number_beyond_its_limit_is_refused_by_name(
    command: Command | Group, arguments: tuple[Any, ...], text: str, entry: str
) -> None:
    done = CliRunner().invoke(command, [*arguments, "-", "--json"], input=text)
    assert (done.exit_code, entry in done.output) == (2, True), done.output
    assert len(done.output) < 400


def test_within_the_limits_extremes_are_computed() -> None:
    """Weights at the limit change the scale of the objective and nothing else; so do large epsilons."""
    one, large = (
        json.loads(CliRunner().invoke(optimise, ["--budget", "0.1", "-", "--json"], input=json.dumps(model)).output)
        for model in ({"joint": JOINT}, {"joint": JOINT, "weights": [1e50, 1e50]})
    )
    assert large["epsilon"] == pytest.approx(one["epsilon"], rel=1e-9)
    assert large["objective"] == pytest.approx(1e50 * one["objective"], rel=1e-12)
    frozen = {"backward": [[1, 0], [0, 1]], "epsilon": [1e49, 1e49]}
    found = json.loads(CliRunner().invoke(leakage, ["temporal", "-", "--json"], input=json.dumps(frozen)).output)
    assert found["backward"] == pytest.approx([1e49, 2e49])
