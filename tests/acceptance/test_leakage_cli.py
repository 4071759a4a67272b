"""Leakage questions on the command line: file or standard input, table or JSON, exit codes.

Most go through the command's own ``main`` in this process, which is the same from arguments to exit code and
takes milliseconds; three start a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command_line import TIMEOUT, Done, command, run
from tests.support.leakage_models import COMPOSE, OSDP, PAIR, PRIOR, XOR

GAUSSIAN = {"covariance": [[1, 0.5, -0.3], [0.5, 2, 0.4], [-0.3, 0.4, 1.5]], "range": 2, "scale": 1.5}
STAY = [[0.9, 0.1], [0.1, 0.9]]
TEMPORAL = {"backward": STAY, "forward": STAY, "epsilon": [0.1] * 5}
W = {
    "000": 0.20, "001": 0.05, "010": 0.08, "011": 0.07, "100": 0.06, "101": 0.09, "110": 0.05, "111": 0.40,
}  # fmt: skip


def started(words: str, text: str | None) -> Done:
    """Ask in a process of its own."""
    arguments = [*words.split(), "-"]
    done = subprocess.run(command(arguments), input=text, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def ask(words: str, text: str | None, path: Path | None = None) -> Done:
    """Ask in this process, on standard input or in a file."""
    return run(*words.split(), "-" if path is None else path, given=text or "")


def together(questions: Any) -> Any:
    return [ask(*question) for question in questions]


@pytest.fixture(scope="module")
def asked() -> dict[str, Done]:
    """Ask every question once, on standard input, as JSON."""
    questions = {
        "osdp": ("leakage osdp --json", OSDP),
        "osdp xor": ("leakage osdp --json", {"joint": XOR, "epsilon": [1, 1, 1], "released": [1, 1, 0]}),
        "prior": ("leakage prior --json", PRIOR),
        "prior weights": ("leakage prior --json", PRIOR | {"weights": [2, 0]}),
        "prior full": ("leakage prior --method full --json", PRIOR),
        "prior fast": ("leakage prior --method fast --keep 2 --json", PRIOR),
        "gaussian": ("leakage gaussian --json", GAUSSIAN),
        "compose": ("leakage compose --json", COMPOSE),
        "temporal": ("leakage temporal --json", TEMPORAL),
        "stationary": ("leakage temporal --json", {"forward": STAY, "stationary": True, "epsilon": [0.1] * 5}),
        "backward": ("leakage temporal --json", {"backward": [[1, 0], [0.1, 0.9]], "epsilon": [0.2, 0.1]}),
        "bound": ("leakage temporal --target 1 --horizon 4 --json", {"forward": [[0.95, 0.05], [0.05, 0.95]],
                                                                    "stationary": True}),
        "quantified": ("leakage temporal --target 1 --horizon 4 --method quantified --json",
                       {"forward": [[0.95, 0.05], [0.05, 0.95]], "stationary": True}),
        "releases": ("optimise --budget 0.2 --objective releases --json", {"joint": W}),
        "epsilon": ("optimise --budget 0.2 --objective epsilon --cap 5 --json",
                    {"joint": W, "queries": [1, 1, 1], "weights": [1, 1, 1]}),
        "free": ("optimise --budget 100 --objective epsilon --json", {"joint": PAIR}),
    }  # fmt: skip
    made = together([(words, json.dumps(model)) for words, model in questions.values()])
    return dict(zip(questions, made, strict=True))


def test_osdp(asked: Any) -> None:
    report = asked["osdp"].answer
    assert list(report) == ["attributes", "worst_factor"]
    assert [list(a) for a in report["attributes"]] == [
        ["prior_odds", "factor", "posterior_odds", "pairwise_factor"]
    ] * 2
    assert report["attributes"][1]["factor"] == pytest.approx(2.399250781, abs=1e-9)
    assert report["worst_factor"][1] == pytest.approx(2.399250781, abs=1e-9)


def test_infinity_is_a_string(asked: Any) -> None:
    assert asked["osdp xor"].answer["attributes"][2]["factor"] == "inf"
    assert asked["backward"].answer["supremum"]["backward"] == "inf"
    assert asked["free"].answer["epsilon"] == ["inf", "inf"]


def test_prior(asked: Any) -> None:
    report = asked["prior"].answer
    assert list(report) == ["leakage", "adversaries"]
    assert report["leakage"] == pytest.approx(1.185375903, abs=1e-9)
    assert [(a["target"], a["knows"]) for a in report["adversaries"]] == [(0, []), (0, [1]), (1, []), (1, [0])]
    assert asked["prior weights"].answer["leakage"] == pytest.approx(2)
    for heuristic in ("prior full", "prior fast"):
        assert asked[heuristic].answer["leakage"] == pytest.approx(1.185375903, abs=1e-9)


def test_gaussian_has_the_form_of_prior(asked: Any) -> None:
    report = asked["gaussian"].answer
    assert list(report) == ["leakage", "adversaries"]
    found = {(a["target"], tuple(a["knows"])): a["leakage"] for a in report["adversaries"]}
    assert found[0, (2,)] == report["leakage"] == pytest.approx(2.156028, abs=1e-6)
    assert found[1, (2,)] == pytest.approx(1.741784, abs=1e-6)


def test_compose(asked: Any) -> None:
    report = asked["compose"].answer
    assert list(report) == ["epsilon", "delta"]
    assert report["epsilon"] == {"pure": "inf", "approximate": pytest.approx(5.24, rel=0.005)}
    assert report["delta"] == 1e-6


def test_mixed_noises_are_composed_without_scipy() -> None:
    """Loading it takes longer than the composition, and ``policy show`` composes."""
    source = (
        "import sys, connectors.cli.main, connectors.cli.leakage, stream.pipeline\n"
        "from stream.accounting.leakage.queries import compose\n"
        "gaussian = {'noise': 'gaussian', 'sigma': 22, 'times': 96}\n"
        "compose(delta=1e-6, releases=[gaussian, gaussian | {'sigma': 30}])\n"
        "sys.exit('scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr


def test_no_verb_waits_for_scipy_before_it_is_asked_what_only_scipy_answers() -> None:
    """Loading it takes as long as loading everything else that a verb needs."""
    source = (
        "import sys\n"
        "from connectors.cli.main import tacet\n"
        "from tests.support.verb_tree import all_verbs\n"
        "all_verbs(tacet)\n"
        "sys.exit('scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr


def test_temporal(asked: Any) -> None:
    report = asked["temporal"].answer
    assert list(report) == ["backward", "forward", "total", "supremum"]
    assert report["backward"] == pytest.approx([0.1, 0.179976, 0.243841, 0.294725, 0.335166], abs=1e-6)
    assert report["total"] == pytest.approx([0.335166, 0.374701, 0.387682, 0.374701, 0.335166], abs=1e-6)
    assert report["supremum"]["total"] == pytest.approx(0.8724, abs=1e-4)
    assert asked["stationary"].answer["total"] == pytest.approx(report["total"], abs=1e-9)
    one_side = asked["backward"].answer
    assert one_side["forward"] is None
    assert one_side["supremum"]["forward"] is None


def test_epsilons_for_a_target(asked: Any) -> None:
    assert asked["bound"].answer == {"epsilon": pytest.approx([0.054845] * 4, abs=1e-6)}
    assert asked["quantified"].answer["epsilon"] == pytest.approx([0.527423, 0.054845, 0.054845, 0.527423], abs=1e-6)


def test_optimise(asked: Any) -> None:
    fields = ["epsilon", "objective", "upper_bound", "leakage", "leakage_total", "expected_releases"]
    added = ["expected_releases_each", "maximises"]
    releases, epsilon = asked["releases"].answer, asked["epsilon"].answer
    assert list(releases) == list(epsilon) == [*fields, *added, "other"]
    assert list(releases["other"]) == [*fields, *added]
    assert releases["epsilon"] == pytest.approx([0.1502, 0.2116, 0.1588], abs=1e-4)
    assert epsilon["epsilon"] == pytest.approx([0, 0.5584, 0], abs=1e-3)
    for report in (releases, epsilon):
        assert report["objective"] <= report["upper_bound"] * (1 + 1e-12)
        assert report["leakage_total"] <= 0.2 * (1 + 1e-9)


QUESTIONS = {
    "leakage osdp": OSDP,
    "leakage prior": PRIOR,
    "leakage gaussian": GAUSSIAN,
    "leakage temporal": TEMPORAL,
    "optimise --budget 0.2": {"joint": W},
}


def test_a_file_answers_like_standard_input_and_without_json_there_is_a_table(tmp_path: Path, asked: Any) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(OSDP))
    from_file, *tables = together(
        [("leakage osdp --json", None, path), *[(words, json.dumps(model)) for words, model in QUESTIONS.items()]]
    )
    assert from_file.out == asked["osdp"].out
    for table in tables:
        assert table.code == 0
        assert "┃" in table.out or "│" in table.out
        assert max(map(len, table.out.splitlines())) <= 100


MALFORMED = {
    "pattern": ("leakage osdp", OSDP | {"joint": {"00": 0.5, "0x": 0.5}}, 'joint["0x"]'),
    "probability": ("leakage osdp", OSDP | {"joint": PAIR | {"01": -0.2}}, 'joint["01"]'),
    "sum": ("leakage osdp", OSDP | {"joint": PAIR | {"01": 0.4}}, "joint must sum to 1"),
    "epsilon": ("leakage osdp", OSDP | {"epsilon": [1, -1]}, "epsilon[1]"),
    "length": ("leakage osdp", OSDP | {"epsilon": [1]}, "epsilon must have 2 entries"),
    "released": ("leakage osdp", OSDP | {"released": [0, 2]}, "released[1]"),
    "unknown": ("leakage osdp", OSDP | {"quieries": [1, 1]}, '"quieries"'),
    "missing": ("leakage osdp", {"joint": PAIR}, '"epsilon" is missing'),
    "nested": ("leakage prior", PRIOR | {"joint": [[0.3, 0.2], [0.2]]}, "joint[1]"),
    "scale": ("leakage prior", PRIOR | {"scale": 0}, "scale"),
    "covariance": ("leakage gaussian", GAUSSIAN | {"covariance": [[1, 2], [2, 1]]}, "covariance"),
    "row": ("leakage temporal", TEMPORAL | {"forward": [[0.9, 0.1], [0.5, 0.6]]}, "forward[1]"),
    "neither": ("leakage temporal", {"epsilon": [0.1]}, "backward or forward"),
    "weights": ("optimise --budget 1", {"joint": PAIR, "weights": [1, -1]}, "weights[1]"),
    "queries": ("optimise --budget 1", {"joint": PAIR, "queries": [0, 1]}, "queries[0]"),
    "budget": ("optimise --budget 0", {"joint": PAIR}, "budget"),
}


def test_a_malformed_model_exits_with_2_and_names_the_entry() -> None:
    made = together([(f"{words} --json", json.dumps(model)) for words, model, _ in MALFORMED.values()])
    for (name, (_, _, entry)), done in zip(MALFORMED.items(), made, strict=True):
        assert done.code == 2, (name, done)
        assert entry in done.problem, (name, done.problem)
        assert "Traceback" not in done.problem
        assert done.out == ""


def test_what_is_no_model_at_all_exits_with_2(tmp_path: Path) -> None:
    made = together(
        [
            ("leakage osdp --json", "{"), ("leakage osdp", "[]"), ("leakage osdp", '{"joint": NaN, "epsilon": [1]}'),
            ("leakage osdp", '{"joint": {}, "joint": {}}'), ("leakage osdp", None, tmp_path / "nothing.json"),
        ]
    )  # fmt: skip
    assert [done.code for done in made] == [2] * 5
    words = ("line 1", "one JSON object", "NaN", '"joint" is given twice', "nothing.json")
    for word, done in zip(words, made, strict=True):
        assert word in done.problem


def test_a_process_of_its_own_says_the_same(asked: Any) -> None:
    osdp, xor, malformed = (
        started("leakage osdp --json", json.dumps(OSDP)),
        started("optimise --budget 100 --objective epsilon --json", json.dumps({"joint": PAIR})),
        started("leakage temporal --json", json.dumps(MALFORMED["row"][1])),
    )
    assert osdp == asked["osdp"]
    assert xor == asked["free"]
    assert (malformed.code, malformed.out) == (2, "")
    assert "forward[1]" in malformed.problem
