"""``tacet decide``: what it prints, leaves out and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command_line import Done, run

COUNTS = {"hall": 30, "loft": 3, "roof": 12}
THRESHOLDS = {"hall": 20, "loft": 20, "roof": 11}
WORDS = ["--mechanism", "tslm", "--alpha", "1", "--beta", "0.05"]


def write(folder: Path, name: str, column: str, values: dict[str, Any]) -> Path:
    path = folder / f"{name}.csv"
    path.write_text(f"predicate,{column}\n" + "".join(f"{each},{value}\n" for each, value in values.items()))
    return path


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    assert run("key", "create", tmp_path / "key", "--laboratory").code == 0
    write(tmp_path, "counts", "count", COUNTS)
    write(tmp_path, "thresholds", "threshold", THRESHOLDS)
    return tmp_path


def ask(folder: Path, *more: str, epsilon_max: str = "4", words: list[str] | None = None) -> Done:
    files = [folder / "counts.csv", folder / "thresholds.csv"]
    return run("decide", *files, *(words or WORDS), "--epsilon-max", epsilon_max, "--key-file", folder / "key", *more)


@pytest.mark.parametrize("mechanism", ["laplace", "tslm", "ppwlm", "dppwlm"])
def test_it_prints_decisions_in_the_order_of_the_thresholds_and_nothing_restricted(
    scenario: Path, mechanism: str
) -> None:
    words = ["--mechanism", mechanism, *WORDS[2:]]
    answer = ask(scenario, "--json", words=words).answer
    assert list(answer) == ["denied", "epsilon", "decisions", "unit", "laboratory"]
    assert answer["denied"] is False
    assert [each["predicate"] for each in answer["decisions"]] == list(THRESHOLDS)
    if mechanism in ("laplace", "tslm"):  # a step on the way may miss it; a single one does with probability 8e-7
        assert answer["decisions"][0] == {"predicate": "hall", "above": True}
    assert answer["epsilon"] == pytest.approx(1.386294 if mechanism in ("laplace", "tslm") else 2.135141, abs=1e-6)
    assert ask(scenario, "--json", words=words).answer == answer


def test_a_column_zone_names_predicates_as_a_table_of_counts_does(scenario: Path) -> None:
    """'tacet release' writes zones; such a table need not be rewritten."""
    wanted = ask(scenario, "--json").answer
    for name in ("counts", "thresholds"):
        path = scenario / f"{name}.csv"
        path.write_text(path.read_text().replace("predicate,", "zone,"))
        assert ask(scenario, "--json").answer == wanted


def test_a_table_that_names_predicates_twice_is_refused(scenario: Path) -> None:
    (scenario / "counts.csv").write_text("zone,predicate,count\na,hall,1\n")
    done = ask(scenario)
    assert done.code == 2
    assert "must have a column predicate or zone, not both" in done.problem


def test_what_is_restricted_is_printed_when_asked_for_and_evaluating_asks_for_it(scenario: Path) -> None:
    words = ["--mechanism", "dppwlm", *WORDS[2:]]
    restricted = ask(scenario, "--json", "--restricted", words=words).answer
    assert list(restricted["restricted"]) == ["ex_post", "epsilons", "min_entropy"]
    assert len(restricted["restricted"]["epsilons"]) == 3
    assert "evaluation" not in restricted
    evaluated = ask(scenario, "--json", "--evaluate", "--runs", "20", words=words).answer
    assert list(evaluated["evaluation"]) == ["fnr", "fpr", "ex_post", "min_entropy", "runs", "restricted"]
    assert evaluated["evaluation"]["runs"] == 20
    assert evaluated["evaluation"]["restricted"] is True
    assert evaluated["restricted"] == restricted["restricted"]
    assert evaluated["decisions"] == restricted["decisions"]
    assert ask(scenario, "--runs", "20").code == 2


def test_denial_follows_from_the_question_alone(scenario: Path) -> None:
    denied = ask(scenario, "--json", "--evaluate", epsilon_max="1.386")
    assert json.loads(denied.out) == {
        "denied": True, "epsilon": 0.0, "decisions": [], "unit": "one person in one predicate", "laboratory": True,
    }  # fmt: skip
    (scenario / "counts.csv").unlink()
    assert ask(scenario, "--json", "--evaluate", epsilon_max="1.386") == denied
    assert "denied: would cost epsilon 1.38629" in ask(scenario, epsilon_max="1").out


def test_the_exit_code_tells_a_denial_from_an_answer(scenario: Path) -> None:
    assert [ask(scenario, *more, epsilon_max="1").code for more in ((), ("--json",))] == [1, 1]
    assert ask(scenario).code == 0


@pytest.mark.parametrize(("alpha", "told"), [("0", 3), ("0.9", 3), ("1", 0)])
def test_where_alpha_is_no_uncertainty_that_is_said_and_no_place_in_the_answer(
    scenario: Path, alpha: str, told: int
) -> None:
    done = ask(scenario, "--json", words=["--mechanism", "tslm", "--alpha", alpha, "--beta", "0.05"])
    small = f"alpha: is less than one step of the compared values for {told} of 3 thresholds"
    output = f"{small}: these cost as much as alpha 0"
    assert done.code == 0
    assert (output in done.problem) == bool(told), done.problem
    assert list(done.answer) == ["denied", "epsilon", "decisions", "unit", "laboratory"]


def test_a_threshold_may_have_an_uncertainty_of_its_own(scenario: Path) -> None:
    path = scenario / "thresholds.csv"
    path.write_text("predicate,threshold,alpha\nhall,20,5\nloft,20,2\nroof,11.5,9\n")
    words = ["--mechanism", "tslm", "--beta", "0.05"]
    assert ask(scenario, "--json", words=words).answer["epsilon"] == pytest.approx(0.8832, abs=1e-4)
    write(scenario, "thresholds", "threshold", THRESHOLDS)
    assert "alpha must be given" in ask(scenario, words=words).problem


def test_a_table_with_a_hole_decides_nothing_and_no_value_is_said(scenario: Path) -> None:
    for counts, output in (
        ({"hall": 30, "loft": 3}, "must be of the same predicates"),
        (COUNTS | {"roof": "7654321x"}, "line 4: count must be a whole number"),
        (COUNTS | {"roof": -7654321}, "line 4: count must be a whole number"),
    ):
        write(scenario, "counts", "count", counts)
        done = ask(scenario)
        assert done.code == 3
        assert output in done.problem
        assert "7654321" not in done.problem + done.out


def test_a_key_with_a_ledger_of_its_own_is_not_taken(scenario: Path) -> None:
    (scenario / "key").unlink()
    assert run("key", "create", scenario / "key").code == 0
    done = ask(scenario)
    assert done.code == 2
    assert "must be a laboratory key" in done.problem


def test_the_table_for_people_names_the_price(scenario: Path) -> None:
    done = ask(scenario, "--restricted")
    assert done.out.startswith("epsilon 1.38629, one person in one predicate")
    assert "restricted: ex_post 1.386" in done.out
    assert json.dumps(30) not in done.out


# --- several tables ----------------------------------------------------------------------------------------------


def tree(folder: Path, node: Any, *more: str) -> Done:
    (folder / "tree.json").write_text(json.dumps(node))
    words = ["--mechanism", "tslm", "--beta", "0.05", "--epsilon-max", "40", "--json"]
    return run("decide", "--query", folder / "tree.json", *words, "--key-file", folder / "key", *more)


def far(folder: Path) -> dict[str, Any]:
    """Counts so far from their thresholds that noise decides nothing."""
    write(folder, "counts", "count", {"hall": 1000, "loft": 0, "roof": 500})
    write(folder, "thresholds", "threshold", {"roof": 500, "hall": 500, "loft": 500})
    return {"counts": "counts.csv", "thresholds": "thresholds.csv", "alpha": 20}


def above(done: Done) -> dict[str, bool]:
    return {each["predicate"]: each["above"] for each in done.answer["decisions"] if each["predicate"] != "roof"}


@pytest.mark.parametrize(
    ("operator", "hall", "loft"), [(">", True, False), (">=", True, False), ("<", False, True), ("<=", False, True)]
)
def test_every_operator_is_decided_with_its_dual_and_its_negation(
    scenario: Path, operator: str, hall: bool, loft: bool
) -> None:
    leaf = far(scenario) | {"operator": operator}
    assert above(tree(scenario, leaf)) == {"hall": hall, "loft": loft}
    assert above(tree(scenario, {"not": leaf})) == {"hall": not hall, "loft": not loft}


def test_all_and_any_and_their_negations(scenario: Path) -> None:
    leaf = far(scenario)
    few, many = leaf | {"operator": "<"}, leaf
    assert above(tree(scenario, {"and": [few, many]})) == {"hall": False, "loft": False}
    assert above(tree(scenario, {"or": [few, many]})) == {"hall": True, "loft": True}
    assert above(tree(scenario, {"not": {"or": [few, many]}})) == {"hall": False, "loft": False}
    two, one = tree(scenario, {"and": [few, many]}).answer["epsilon"], tree(scenario, few).answer["epsilon"]
    assert two > 2 * one
    assert tree(scenario, {"or": [few, many]}).answer["epsilon"] == pytest.approx(2 * one)
    assert tree(scenario, {"or": [few, many], "disjoint": True}).answer["epsilon"] == one
    assert tree(scenario, {"or": [few, many]}, "--split", "naive").answer["epsilon"] == two


def test_at_a_threshold_the_operators_differ_by_one(scenario: Path) -> None:
    """A count equal to its threshold is "at least" it, so missed by that and "more" with these probabilities only."""
    far(scenario)
    write(scenario, "counts", "count", {f"p{i}": 500 for i in range(2000)})
    write(scenario, "thresholds", "threshold", {f"p{i}": 500 for i in range(2000)})
    leaf = {"counts": "counts.csv", "thresholds": "thresholds.csv", "alpha": 1}
    reported = {}
    for operator in (">", ">=", "<", "<="):
        decisions = tree(scenario, leaf | {"operator": operator}).answer["decisions"]
        reported[operator] = sum(each["above"] for each in decisions) / 2000
    assert reported[">="] == pytest.approx(0.95, abs=0.03)  # 6 standard deviations
    assert reported["<="] == pytest.approx(0.95, abs=0.03)
    assert reported[">"] == pytest.approx(0.8, abs=0.054)
    assert reported["<"] == pytest.approx(0.8, abs=0.054)


@pytest.mark.parametrize("columns", ["predicate,threshold,alpha,alpha", "predicate,threshold,threshold,alpha"])
def test_a_column_that_is_there_twice_decides_nothing(scenario: Path, columns: str) -> None:
    (scenario / "thresholds.csv").write_text(f"{columns}\nhall,20,5,5\nloft,20,2,5\nroof,11.5,9,5\n")
    done = ask(scenario, words=["--mechanism", "tslm", "--beta", "0.05"])
    assert (done.code, done.out) == (2, "")
    assert "must name each column once" in done.problem


def test_an_entry_that_is_there_twice_decides_nothing(scenario: Path) -> None:
    far(scenario)
    text = '{"counts": "counts.csv", "thresholds": "thresholds.csv", "alpha": 1, "alpha": 20}'
    (scenario / "tree.json").write_text(text)
    words = [
        "--mechanism",
        "tslm",
        "--beta",
        "0.05",
        "--epsilon-max",
        "40",
        "--json",
        "--key-file",
        str(scenario / "key"),
    ]
    done = run("decide", "--query", scenario / "tree.json", *words)
    assert (done.code, done.out) == (2, "")
    (scenario / "tree.json").write_bytes(b"\xef\xbb\xbf" + text.replace('"alpha": 1, ', "").encode())
    assert run("decide", "--query", scenario / "tree.json", *words).code == 0


def nested(deep: int) -> Any:
    node: Any = {}
    for _ in range(deep):
        node = {"and": [node]}
    return node


@pytest.mark.parametrize("deep", [5_000, 200_000])
def test_a_tree_too_deep_to_be_read_is_refused_for_its_depth(scenario: Path, deep: int) -> None:
    (scenario / "tree.json").write_text('{"not":' * deep + "{}" + "}" * deep)
    done = run(
        "decide", "--query", scenario / "tree.json", *WORDS, "--epsilon-max", "40", "--key-file", scenario / "key"
    )
    assert done.code == 2
    assert f"{scenario / 'tree.json'}: must not be deeper than 50" in done.problem


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ([], "must be an object"),
        ({"and": []}, "must be a list of at least one"),
        ({"and": [{}], "or": [{}]}, "unknown entry"),
        ({"and": [{"operator": "=="}]}, '0: "operator" must be one of'),
        ({"and": [{"alpha": "1"}]}, '0: "alpha" must be a number'),
        (nested(51), "/".join(["0"] * 51) + ": must not be deeper than 50"),
        ({"counts": "counts.csv"}, "must name counts and thresholds"),
        ({"counts": "counts.csv", "thresholds": "thresholds.csv"}, "alpha must be given"),
    ],
)
def test_a_tree_that_is_malformed_is_refused_by_its_place(scenario: Path, node: Any, said: str) -> None:
    done = tree(scenario, node)
    assert done.code == 2
    assert said in done.problem
