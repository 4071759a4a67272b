"""The leakage questions as commands and as functions: fields, order, infinity, errors."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.core import Command, Group
from click.testing import CliRunner, Result

from connectors.cli.leakage import leakage
from connectors.cli.optimise import optimise
from connectors.operations.policy.guarantee_figures import guarantee_figures
from stream.accounting.gaussian_shift import epsilon_of
from stream.accounting.leakage import queries
from stream.errors import UsageError
from stream.release.validation import load_policy
from tacet import leakage as public
from tests.support.day_policies import change_release, visit_site
from tests.support.leakage_models import COMPOSE, OSDP, PAIR, PRIOR, XOR
from tests.support.small_building import policy_text

GAUSSIAN = {"covariance": [[1, 0.5], [0.5, 2]], "range": 2, "scale": 1.5}
TEMPORAL = {"forward": [[0.9, 0.1], [0.1, 0.9]], "stationary": True, "epsilon": [0.1] * 5}


def run(
    command: Command | Group, *arguments: str, model: dict[str, Any] | None = None, text: str | None = None
) -> Result:
    source = json.dumps(model) if text is None else text
    return CliRunner().invoke(command, [*arguments, "-"], input=source)


def answer(command: Command | Group, *arguments: str, model: dict[str, Any]) -> dict[str, Any]:
    result = run(command, *arguments, "--json", model=model)
    assert result.exit_code == 0, result.output
    assert result.output.count("\n") == 1
    found: dict[str, Any] = json.loads(result.output)
    return found


def test_osdp_answers_for_each_attribute_and_the_worst() -> None:
    found = answer(leakage, "osdp", model=OSDP)
    assert list(found) == ["attributes", "worst_factor"]
    second = found["attributes"][1]
    assert list(second) == ["prior_odds", "factor", "posterior_odds", "pairwise_factor"]
    assert second["prior_odds"] == pytest.approx(2 / 3)
    assert [second["factor"], second["pairwise_factor"]] == [pytest.approx(2.399250781, abs=5e-10)] * 2
    assert second["posterior_odds"] == pytest.approx(2 / 3 * 2.399250781)
    assert found["worst_factor"][1] == pytest.approx(2.399250781)


def test_osdp_writes_infinity_as_a_string_and_asks_once_by_default() -> None:
    found = answer(leakage, "osdp", model={"joint": XOR, "epsilon": [1, 1, 1], "released": [1, 1, 0]})
    assert found["attributes"][2]["factor"] == "inf"
    assert found["attributes"][2]["pairwise_factor"] == pytest.approx(math.e)
    assert found["attributes"][0]["factor"] == 0
    assert found["worst_factor"] == ["inf"] * 3


def test_osdp_takes_infinite_epsilons() -> None:
    found = answer(leakage, "osdp", model={"joint": PAIR, "epsilon": ["inf", 0.5], "queries": [1, 0]})
    assert found["attributes"][1]["factor"] == pytest.approx(0.75 * 3)


def test_prior_answers_for_every_adversary_in_order() -> None:
    found = answer(leakage, "prior", model=PRIOR)
    assert found["leakage"] == pytest.approx(1.185375903, abs=5e-10)
    assert [(a["target"], a["knows"]) for a in found["adversaries"]] == [(0, []), (0, [1]), (1, []), (1, [0])]
    assert "heuristic" not in found


def test_prior_labels_the_chain_rule_heuristic() -> None:
    for arguments in (("--method", "full"), ("--method", "fast", "--keep", "1")):
        assert answer(leakage, "prior", *arguments, model=PRIOR)["heuristic"] is True
        assert "heuristic" in run(leakage, "prior", *arguments, model=PRIOR).output


def test_prior_takes_weights() -> None:
    found = answer(leakage, "prior", model=PRIOR | {"weights": [2, 0]})
    assert found["leakage"] == pytest.approx(2.0)


def one_release(**fields: object) -> dict[str, Any]:
    return COMPOSE | {"releases": [fields]}


def test_compose_answers_pure_and_at_delta() -> None:
    found = answer(leakage, "compose", model=COMPOSE)
    assert list(found) == ["epsilon", "delta"]
    assert found["epsilon"]["pure"] == "inf"
    assert found["epsilon"]["approximate"] == pytest.approx(5.24, abs=0.01)
    assert found["delta"] == 1e-6


@pytest.mark.parametrize(("more", "epsilon"), [({}, 2.0), ({"times": 4}, 4.318), ({"times": 2}, 2.93)])
def test_compose_adds_up_days_of_changes(more: dict[str, int], epsilon: float) -> None:
    """Four days shift twice as much; the figures are those that are printed."""
    found = answer(leakage, "compose", model=one_release(noise="changes", shift=0.448332, **more) | {"group": 1})
    assert found["epsilon"]["pure"] == "inf"
    assert found["epsilon"]["approximate"] == pytest.approx(epsilon, rel=1e-3)
    least = epsilon_of(Fraction("0.448332") ** 2 * more.get("times", 1), Fraction(1, 10**6))
    assert found["epsilon"]["approximate"] >= least - 1e-9
    three = answer(leakage, "compose", model=one_release(noise="changes", shift=0.448332) | {"group": 3})
    assert three["epsilon"]["approximate"] == pytest.approx(6.872, rel=1e-3)


def test_compose_of_the_shifts_that_policy_show_prints_gives_the_prices_that_it_prints() -> None:
    policy = load_policy(policy_text(change_release(public="2"), site=visit_site()))
    [found] = guarantee_figures(policy).to_json()["counts"][:1]
    for shift, unit in (("shift", "device_day"), ("shift_moved", "device_day_moved")):
        model = one_release(noise="changes", shift=found[shift]) | {"group": 1}
        composed = answer(leakage, "compose", model=model)["epsilon"]["approximate"]
        assert composed == pytest.approx(found["tight"][unit]["epsilon"], rel=2e-3)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"shift": 0}, "releases[0]: mu must be above 0 and at most 16, got 0"),
        ({"shift": 17}, "releases[0]: mu must be above 0 and at most 16, got 17"),
        ({"sigma": 1}, "releases[0] must not hold 'sigma'; known are noise, shift, times"),
        ({"shift": 1, "times": 2000}, "releases[0]: times must be at most 1953 with noise changes, got 2000"),
    ],
)
def test_compose_refuses_days_of_changes_that_are_none(fields: dict[str, object], told: str) -> None:
    assert told in run(leakage, "compose", model=one_release(noise="changes", **fields)).output


def test_compose_keeps_decimal_strings_to_the_last_digit_and_asks_for_one_device_once_by_default() -> None:
    found = answer(
        leakage, "compose", model=one_release(noise="laplace", epsilon="0.30000000000000000001") | {"group": 1}
    )
    assert found["epsilon"]["pure"] == "0.30000000000000000001"
    plain = {"delta": 1e-6, "releases": [{"noise": "pure", "epsilon": 0.1, "times": 3}]}
    assert answer(leakage, "compose", model=plain)["epsilon"] == {"pure": "0.3", "approximate": 0.3}
    assert answer(leakage, "compose", model=plain | {"group": 2})["epsilon"] == {"pure": "0.6", "approximate": 0.6}


def test_compose_prices_a_day_of_windows_by_its_binomial_law() -> None:
    found = answer(leakage, "compose", model=one_release(noise="laplace", epsilon="0.1", times=292))
    assert found["epsilon"] == {"pure": "29.2", "approximate": pytest.approx(9.009, abs=5e-4)}


def test_gaussian_has_the_form_of_prior() -> None:
    found = answer(leakage, "gaussian", model=GAUSSIAN)
    assert found["leakage"] == pytest.approx(2.0)
    assert found["adversaries"][1] == {"target": 0, "knows": [1], "leakage": pytest.approx(2 / 1.5)}


def test_temporal_answers_in_order_of_time() -> None:
    found = answer(leakage, "temporal", model=TEMPORAL)
    assert list(found) == ["backward", "forward", "total", "supremum"]
    assert [found["backward"][-1], found["forward"][0]] == pytest.approx([0.335166] * 2, abs=5e-7)
    assert found["total"][2] == pytest.approx(0.387682, abs=5e-7)
    assert found["supremum"]["total"] == pytest.approx(0.8724, abs=5e-5)
    explicit = {"backward": TEMPORAL["forward"], "forward": TEMPORAL["forward"], "epsilon": [0.1] * 5}
    assert answer(leakage, "temporal", model=explicit)["total"] == pytest.approx(found["total"])


@pytest.mark.parametrize(("given", "missing"), [("forward", "backward"), ("backward", "forward")])
def test_temporal_gives_null_for_a_direction_it_was_not_told(given: str, missing: str) -> None:
    found = answer(leakage, "temporal", model={given: [[1, 0], [0.1, 0.9]], "epsilon": [0.05, 0.2]})
    assert found[missing] is None
    assert found["supremum"] == {given: "inf", missing: None, "total": "inf"}
    assert found["total"] == pytest.approx(found[given])
    assert run(leakage, "temporal", model={given: TEMPORAL["forward"], "epsilon": [0.05]}).exit_code == 0


def test_temporal_finds_epsilons_for_a_target() -> None:
    model = {"forward": [[0.95, 0.05], [0.05, 0.95]], "stationary": True}
    bound = answer(leakage, "temporal", "--target", "1", "--horizon", "3", model=model)
    assert bound == {"epsilon": pytest.approx([0.054845] * 3, abs=5e-7)}
    options = ("--target", "1", "--horizon", "3", "--method", "quantified")
    quantified = answer(leakage, "temporal", *options, model=model | {"epsilon": [0.1]})
    assert quantified == {"epsilon": pytest.approx([0.527423, 0.054845, 0.527423], abs=5e-7)}


def test_optimise_reports_the_choice_and_its_certificate() -> None:
    found = answer(optimise, "--budget", "0.2", model={"joint": PAIR})
    assert list(found) == [
        "epsilon", "objective", "upper_bound", "leakage", "leakage_total", "expected_releases",
        "expected_releases_each", "maximises", "other",
    ]  # fmt: skip
    assert found["objective"] == found["expected_releases"] <= found["upper_bound"]
    assert sum(found["leakage"]) == pytest.approx(found["leakage_total"]) == pytest.approx(0.2)


def test_optimise_reports_what_both_objectives_give_each_attribute() -> None:
    model, options = {"joint": PAIR, "weights": [1, 3], "queries": [2, 1]}, ("--budget", "0.2", "--cap", "5")
    releases = answer(optimise, *options, model=model)
    epsilon = answer(optimise, *options, "--objective", "epsilon", model=model)
    assert (releases["maximises"], releases["other"]["maximises"]) == ("releases", "epsilon")
    assert releases["other"] == {key: value for key, value in epsilon.items() if key != "other"}
    assert epsilon["other"] == {key: value for key, value in releases.items() if key != "other"}


def test_expected_releases_are_records_whatever_the_weights() -> None:
    """Attribute i is released with probability Pr(X_i = 1) (1 - e^(-n_i epsilon_i)); weights count in the objective."""
    model = {"joint": PAIR, "weights": [7, 3], "queries": [2, 1]}
    for objective in ("releases", "epsilon"):
        found = answer(optimise, "--budget", "0.2", "--cap", "5", "--objective", objective, model=model)
        each = [chance * -math.expm1(-n * e) for chance, n, e in zip((0.5, 0.6), (2, 1), found["epsilon"], strict=True)]
        assert found["expected_releases_each"] == pytest.approx(each, rel=1e-12)
        assert found["expected_releases"] == pytest.approx(math.fsum(each), rel=1e-12)
        worth = each if objective == "releases" else found["epsilon"]
        assert found["objective"] == pytest.approx(7 * worth[0] + 3 * worth[1], rel=1e-12)


@pytest.mark.parametrize(
    ("objective", "heads"), [("releases", ("releases*", "epsilon ")), ("epsilon", ("epsilon*", "releases "))]
)
def test_people_see_both_objectives_side_by_side_the_one_asked_for_marked(
    objective: str, heads: tuple[str, str]
) -> None:
    triple = {"000": 0.2, "001": 0.05, "010": 0.08, "011": 0.07, "100": 0.06, "101": 0.09, "110": 0.05, "111": 0.4}
    options = ("--budget", "0.2", "--cap", "5", "--objective", objective)
    table = run(optimise, *options, model={"joint": triple}).output.splitlines()
    header = " ".join(table[1:5])
    assert heads[0] in header
    assert heads[1] in header.replace(heads[0], "")
    assert header.count("leakage") == header.count("expected") == 2
    second = [cell.strip() for cell in next(line for line in table if line.startswith("│         1")).split("│")[2:-1]]
    releases, epsilon = ["0.2116", "0.07", "0.1144"], ["0.5584", "0.2", "0.2566"]
    own, other = (releases, epsilon) if objective == "releases" else (epsilon, releases)
    assert [float(cell) for cell in second] == pytest.approx([float(cell) for cell in own + other], abs=0.012)
    assert second[0] == own[0]
    assert second[3] == other[0]
    assert any(line.startswith("epsilon: 0.5584") for line in table)
    assert any(line.startswith("releases: 0.28") for line in table)


def test_optimise_takes_objective_cap_queries_and_weights() -> None:
    options = ("--budget", "0.9", "--objective", "epsilon")
    assert answer(optimise, *options, model={"joint": PAIR})["objective"] == "inf"
    model = {"joint": PAIR, "queries": [2, 1], "weights": [1, 2]}
    found = answer(optimise, *options, "--cap", "0.5", model=model)
    assert found["epsilon"] == [0.5, 0.5]
    assert found["objective"] == 1.5


@pytest.mark.parametrize(
    ("command", "arguments", "model"),
    [
        (leakage, ("osdp",), OSDP),
        (leakage, ("prior",), PRIOR),
        (leakage, ("gaussian",), GAUSSIAN),
        (leakage, ("compose",), COMPOSE),
        (leakage, ("temporal",), TEMPORAL),
        (leakage, ("temporal", "--target", "1", "--horizon", "2"), TEMPORAL),
        (optimise, ("--budget", "0.2"), {"joint": PAIR}),
    ],
)
def test_people_get_a_table(command: Command | Group, arguments: tuple[Any, ...], model: dict[str, Any]) -> None:
    result = run(command, *arguments, model=model)
    assert result.exit_code == 0
    assert "┃" in result.output
    assert not result.output.startswith("{")


def test_a_model_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(OSDP))
    result = CliRunner().invoke(leakage, ["osdp", str(path), "--json"])
    assert json.loads(result.output) == answer(leakage, "osdp", model=OSDP)


@pytest.mark.parametrize(
    ("command", "arguments", "model", "entry"),
    [
        (leakage, ("osdp",), OSDP | {"joint": {"00": 0.5, "0x": 0.5}}, 'joint["0x"]'),
        (leakage, ("osdp",), OSDP | {"epsilon": [1, -0.5]}, "epsilon[1]"),
        (leakage, ("osdp",), OSDP | {"epsilon": [1]}, "epsilon must have 2"),
        (leakage, ("osdp",), OSDP | {"queries": [1, 1.5]}, "queries[1]"),
        (leakage, ("osdp",), OSDP | {"released": [2, 0]}, "released[0]"),
        (leakage, ("osdp",), {"joint": PAIR}, '"epsilon" is missing'),
        (leakage, ("osdp",), OSDP | {"epsilons": []}, '"epsilons"'),
        (leakage, ("prior",), PRIOR | {"joint": [[0.3, 0.2], [0.2]]}, "joint[1]"),
        (leakage, ("prior", "--keep", "2"), PRIOR, "keep"),
        (leakage, ("prior",), PRIOR | {"scale": True}, "scale"),
        (leakage, ("gaussian",), GAUSSIAN | {"range": -1}, "range"),
        (leakage, ("gaussian",), GAUSSIAN | {"covariance": [[1, 0.5], [0.6, 1]]}, "covariance[0][1]"),
        (leakage, ("compose",), COMPOSE | {"delta": 0.5}, "delta must lie in [1e-10, 0.01], got 0.5"),
        (leakage, ("compose",), COMPOSE | {"delta": "small"}, "delta must be a number or a decimal string"),
        (leakage, ("compose",), COMPOSE | {"group": 0}, "group must be 1 to 100, got 0"),
        (leakage, ("compose",), COMPOSE | {"releases": {}}, "releases must be a list"),
        (leakage, ("compose",), COMPOSE | {"releases": ["laplace"]}, "releases[0] must be an object"),
        (leakage, ("compose",), one_release(noise="cauchy"), "releases[0].noise must be laplace, gaussian, pure"),
        (leakage, ("compose",), one_release(noise=["laplace"]), "releases[0].noise must be laplace, gaussian, pure"),
        (leakage, ("compose",), one_release(noise="gaussian"), "releases[0].sigma must be given"),
        (leakage, ("compose",), one_release(noise="laplace", epsilon="1", sigma="1"), "must not hold 'sigma'"),
        (leakage, ("compose",), one_release(noise="laplace", epsilon="-1"), "releases[0].epsilon must be a number or"),
        (leakage, ("compose",), one_release(noise="laplace", epsilon=True), "releases[0].epsilon must be a number"),
        (leakage, ("compose",), one_release(noise="laplace", epsilon="0"), "releases[0]: epsilon must lie in"),
        (leakage, ("compose",), one_release(noise="laplace", epsilon="1", times=0), "releases[0].times must be 1 to"),
        (leakage, ("compose",), one_release(noise="gaussian", sigma="1e9"), "at most 200000"),
        (leakage, ("compose",), COMPOSE | {"releases": [{}] * 10_001}, "releases must have at most 10000 entries"),
        (leakage, ("compose",), {"releases": []}, '"delta" is missing'),
        (leakage, ("temporal",), TEMPORAL | {"forward": [[0.9, 0.1], [0.5, 0.6]]}, "forward[1]"),
        (leakage, ("temporal",), TEMPORAL | {"epsilon": [0.1, None]}, "epsilon[1]"),
        (leakage, ("temporal",), TEMPORAL | {"epsilon": []}, "epsilon"),
        (leakage, ("temporal",), {"epsilon": [0.1]}, "backward or forward"),
        (leakage, ("temporal",), {"forward": [[1, 0], [0, 1]], "stationary": True, "epsilon": [1]}, "stationary"),
        (leakage, ("temporal",), TEMPORAL | {"backward": TEMPORAL["forward"]}, "stationary needs forward"),
        (leakage, ("temporal",), {"backward": [[1]], "stationary": True, "epsilon": [1]}, "stationary needs forward"),
        (leakage, ("temporal", "--target", "-1", "--horizon", "2"), TEMPORAL, "target"),
        (leakage, ("temporal", "--target", "1"), TEMPORAL, "--horizon"),
        (optimise, ("--budget", "0"), {"joint": PAIR}, "budget"),
        (optimise, ("--budget", "nan"), {"joint": PAIR}, "budget"),
        (optimise, ("--budget", "1", "--cap", "0"), {"joint": PAIR}, "cap"),
        (optimise, ("--budget", "1"), {"joint": PAIR, "queries": [0, 1]}, "queries[0]"),
        (optimise, ("--budget", "1"), {"joint": PAIR, "weights": [1, -1]}, "weights[1]"),
    ],
)
def test_a_malformed_model_names_the_entry_and_exits_2(
    command: Command | Group, arguments: tuple[Any, ...], model: dict[str, Any], entry: str
) -> None:
    result = run(command, *arguments, "--json", model=model)
    assert (result.exit_code, entry in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"joint": ', "line 1, column 11"),
        ("[1, 2]", "object"),
        ('{"joint": {"0": 0.5, "1": NaN}, "epsilon": [1]}', "NaN"),
        ('{"joint": {"0": 0.5, "0": 0.5}, "epsilon": [1]}', '"0" is given twice'),
        ("[" * 100_000, "nested"),
        ("", "line 1"),
    ],
)
def test_text_that_is_not_a_model_exits_2(text: str, message: str) -> None:
    result = run(leakage, "osdp", text=text)
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_a_file_that_cannot_be_read_exits_2(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        assert CliRunner().invoke(leakage, ["osdp", str(path)]).exit_code == 2
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    assert CliRunner().invoke(leakage, ["osdp", str(binary)]).exit_code == 2


def as_json(value: dict[str, Any] | float | list[Any]) -> Any:
    """Write an answer of a function as its verb prints it: infinity is a string."""
    if isinstance(value, dict):
        return {key: as_json(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [as_json(entry) for entry in value]
    return "inf" if value == math.inf else value


MOVES: dict[str, Any] = {"forward": [[0.95, 0.05], [0.05, 0.95]], "stationary": True}


@pytest.mark.parametrize(
    ("verb", "options", "model"),
    [
        ("osdp", {}, OSDP),
        ("osdp", {}, {"joint": XOR, "epsilon": [1, "inf", 1], "released": [1, 1, 0]}),
        ("prior", {}, PRIOR),
        ("prior", {"method": "full"}, PRIOR | {"weights": [1, -1]}),
        ("prior", {"method": "fast", "keep": 1}, PRIOR),
        ("gaussian", {}, GAUSSIAN),
        ("compose", {}, COMPOSE),
        ("compose", {}, {"delta": "1e-6", "releases": [{"noise": "pure", "epsilon": 0.3}]}),
        ("temporal", {}, TEMPORAL),
        ("temporal", {}, {"backward": [[1, 0], [0, 1]], "epsilon": [0.1]}),
        ("temporal", {"target": 1.0, "horizon": 4}, MOVES),
        ("temporal", {"target": 1.0, "horizon": 4, "method": "quantified"}, MOVES),
        ("optimise", {"budget": 0.2}, {"joint": PAIR}),
        ("optimise", {"budget": 0.9, "objective": "epsilon"}, {"joint": PAIR, "weights": [1, 2]}),
        ("optimise", {"budget": 0.2, "cap": 0.3}, {"joint": PAIR, "queries": [2, 1]}),
    ],
)
def test_each_function_has_the_name_fields_and_options_of_its_verb_and_gives_the_same_object(
    verb: str, options: dict[str, Any], model: dict[str, Any]
) -> None:
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = (optimise,) if verb == "optimise" else (leakage, verb)
    assert as_json(getattr(queries, verb)(**model, **options)) == answer(*command, *words, model=model)


def test_the_functions_are_the_verbs_and_nothing_else() -> None:
    verbs = {name.replace("-", "_") for name in leakage.commands} | {"optimise"}
    assert set(public.__all__) - {"Answer"} == verbs - {"learn"}


@pytest.mark.parametrize("options", [{"target": 1.0}, {"horizon": 3}, {"epsilon": [1], "method": "bound"}])
def test_options_that_go_together_go_together_in_python_too(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="target and horizon"):
        queries.temporal(**MOVES, **options)
