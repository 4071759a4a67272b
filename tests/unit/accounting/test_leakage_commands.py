"""The leakage questions as commands and as functions: fields, order, infinity, errors."""

import json
import math

import pytest
from click.testing import CliRunner

from connectors.leakage import leakage, optimise
from stream.accounting import leakage as questions

PAIR = {"00": 0.3, "01": 0.2, "10": 0.1, "11": 0.4}
XOR = {"000": 0.25, "011": 0.25, "101": 0.25, "110": 0.25}
OSDP = {"joint": PAIR, "epsilon": [1, 0.5], "queries": [1, 1], "released": [0, 0]}
PRIOR = {"domains": [[0, 1], [0, 1]], "joint": [[0.3, 0.2], [0.2, 0.3]], "scale": 1}
GAUSSIAN = {"covariance": [[1, 0.5], [0.5, 2]], "range": 2, "scale": 1.5}
TEMPORAL = {"forward": [[0.9, 0.1], [0.1, 0.9]], "stationary": True, "epsilon": [0.1] * 5}


def run(command, *arguments, model=None, text=None):
    source = json.dumps(model) if text is None else text
    return CliRunner().invoke(command, [*arguments, "-"], input=source)


def answer(command, *arguments, model):
    result = run(command, *arguments, "--json", model=model)
    assert result.exit_code == 0, result.output
    assert result.output.count("\n") == 1
    return json.loads(result.output)


def test_osdp_answers_for_each_attribute_and_the_worst():
    found = answer(leakage, "osdp", model=OSDP)
    assert list(found) == ["attributes", "worst_factor"]
    second = found["attributes"][1]
    assert list(second) == ["prior_odds", "factor", "posterior_odds", "pairwise_factor"]
    assert second["prior_odds"] == pytest.approx(2 / 3)
    assert second["factor"] == second["pairwise_factor"] == pytest.approx(2.399250781, abs=5e-10)
    assert second["posterior_odds"] == pytest.approx(2 / 3 * 2.399250781)
    assert found["worst_factor"][1] == pytest.approx(2.399250781)


def test_osdp_writes_infinity_as_a_string_and_asks_once_by_default():
    found = answer(leakage, "osdp", model={"joint": XOR, "epsilon": [1, 1, 1], "released": [1, 1, 0]})
    assert found["attributes"][2]["factor"] == "inf"
    assert found["attributes"][2]["pairwise_factor"] == pytest.approx(math.e)
    assert found["attributes"][0]["factor"] == 0
    assert found["worst_factor"] == ["inf"] * 3


def test_osdp_takes_infinite_epsilons():
    found = answer(leakage, "osdp", model={"joint": PAIR, "epsilon": ["inf", 0.5], "queries": [1, 0]})
    assert found["attributes"][1]["factor"] == pytest.approx(0.75 * 3)


def test_prior_answers_for_every_adversary_in_order():
    found = answer(leakage, "prior", model=PRIOR)
    assert found["leakage"] == pytest.approx(1.185375903, abs=5e-10)
    assert [(a["target"], a["knows"]) for a in found["adversaries"]] == [(0, []), (0, [1]), (1, []), (1, [0])]
    assert "heuristic" not in found


def test_prior_labels_the_chain_rule_heuristic():
    for arguments in (("--method", "full"), ("--method", "fast", "--keep", "1")):
        assert answer(leakage, "prior", *arguments, model=PRIOR)["heuristic"] is True
        assert "heuristic" in run(leakage, "prior", *arguments, model=PRIOR).output


def test_prior_takes_weights():
    found = answer(leakage, "prior", model=PRIOR | {"weights": [2, 0]})
    assert found["leakage"] == pytest.approx(2.0)


def test_gaussian_has_the_form_of_prior():
    found = answer(leakage, "gaussian", model=GAUSSIAN)
    assert found["leakage"] == pytest.approx(2.0)
    assert found["adversaries"][1] == {"target": 0, "knows": [1], "leakage": pytest.approx(2 / 1.5)}


def test_temporal_answers_in_order_of_time():
    found = answer(leakage, "temporal", model=TEMPORAL)
    assert list(found) == ["backward", "forward", "total", "supremum"]
    assert [found["backward"][-1], found["forward"][0]] == pytest.approx([0.335166] * 2, abs=5e-7)
    assert found["total"][2] == pytest.approx(0.387682, abs=5e-7)
    assert found["supremum"]["total"] == pytest.approx(0.8724, abs=5e-5)
    explicit = {"backward": TEMPORAL["forward"], "forward": TEMPORAL["forward"], "epsilon": [0.1] * 5}
    assert answer(leakage, "temporal", model=explicit)["total"] == pytest.approx(found["total"])


@pytest.mark.parametrize(("given", "missing"), [("forward", "backward"), ("backward", "forward")])
def test_temporal_gives_null_for_a_direction_it_was_not_told(given, missing):
    found = answer(leakage, "temporal", model={given: [[1, 0], [0.1, 0.9]], "epsilon": [0.05, 0.2]})
    assert found[missing] is None
    assert found["supremum"] == {given: "inf", missing: None, "total": "inf"}
    assert found["total"] == pytest.approx(found[given])
    assert run(leakage, "temporal", model={given: TEMPORAL["forward"], "epsilon": [0.05]}).exit_code == 0


def test_temporal_finds_epsilons_for_a_target():
    model = {"forward": [[0.95, 0.05], [0.05, 0.95]], "stationary": True}
    bound = answer(leakage, "temporal", "--target", "1", "--horizon", "3", model=model)
    assert bound == {"epsilon": pytest.approx([0.054845] * 3, abs=5e-7)}
    options = ("--target", "1", "--horizon", "3", "--method", "quantified")
    quantified = answer(leakage, "temporal", *options, model=model | {"epsilon": [0.1]})
    assert quantified == {"epsilon": pytest.approx([0.527423, 0.054845, 0.527423], abs=5e-7)}


def test_optimise_reports_the_choice_and_its_certificate():
    found = answer(optimise, "--budget", "0.2", model={"joint": PAIR})
    assert list(found) == [
        "epsilon", "objective", "upper_bound", "leakage", "leakage_total", "expected_releases",
    ]  # fmt: skip
    assert found["objective"] == found["expected_releases"] <= found["upper_bound"]
    assert sum(found["leakage"]) == pytest.approx(found["leakage_total"]) == pytest.approx(0.2)


def test_optimise_takes_objective_cap_queries_and_weights():
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
        (leakage, ("temporal",), TEMPORAL),
        (leakage, ("temporal", "--target", "1", "--horizon", "2"), TEMPORAL),
        (optimise, ("--budget", "0.2"), {"joint": PAIR}),
    ],
)
def test_people_get_a_table(command, arguments, model):
    result = run(command, *arguments, model=model)
    assert result.exit_code == 0
    assert "┃" in result.output
    assert not result.output.startswith("{")


def test_a_model_is_read_from_a_file(tmp_path):
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
        (leakage, ("temporal",), TEMPORAL | {"forward": [[0.9, 0.1], [0.5, 0.6]]}, "forward[1]"),
        (leakage, ("temporal",), TEMPORAL | {"epsilon": [0.1, None]}, "epsilon[1]"),
        (leakage, ("temporal",), TEMPORAL | {"epsilon": []}, "epsilon"),
        (leakage, ("temporal",), {"epsilon": [0.1]}, "backward or forward"),
        (leakage, ("temporal",), {"forward": [[1, 0], [0, 1]], "stationary": True, "epsilon": [1]}, "stationary"),
        (leakage, ("temporal", "--target", "-1", "--horizon", "2"), TEMPORAL, "target"),
        (leakage, ("temporal", "--target", "1"), TEMPORAL, "--horizon"),
        (optimise, ("--budget", "0"), {"joint": PAIR}, "budget"),
        (optimise, ("--budget", "nan"), {"joint": PAIR}, "budget"),
        (optimise, ("--budget", "1", "--cap", "0"), {"joint": PAIR}, "cap"),
        (optimise, ("--budget", "1"), {"joint": PAIR, "queries": [0, 1]}, "queries[0]"),
        (optimise, ("--budget", "1"), {"joint": PAIR, "weights": [1, -1]}, "weights[1]"),
    ],
)
def test_a_malformed_model_names_the_entry_and_exits_2(command, arguments, model, entry):
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
def test_text_that_is_not_a_model_exits_2(text, message):
    result = run(leakage, "osdp", text=text)
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_a_file_that_cannot_be_read_exits_2(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        assert CliRunner().invoke(leakage, ["osdp", str(path)]).exit_code == 2
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    assert CliRunner().invoke(leakage, ["osdp", str(binary)]).exit_code == 2


def test_the_functions_have_the_names_and_fields_of_the_commands():
    assert questions.osdp(**OSDP)["worst_factor"] == answer(leakage, "osdp", model=OSDP)["worst_factor"]
    assert questions.prior(**PRIOR) == answer(leakage, "prior", model=PRIOR)
    assert questions.gaussian(**GAUSSIAN) == answer(leakage, "gaussian", model=GAUSSIAN)
    assert questions.temporal(**TEMPORAL) == answer(leakage, "temporal", model=TEMPORAL)
    assert questions.optimise(joint=PAIR, budget=0.2) == answer(optimise, "--budget", "0.2", model={"joint": PAIR})
    unbounded = questions.optimise(joint=PAIR, budget=0.9, objective="epsilon")
    assert unbounded["objective"] == math.inf
