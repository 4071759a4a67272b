"""The catalogue locates each mutant; the runner tells killed, surviving and broken ones apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.__main__ import spread
from tests.mutants.catalogue import STANDARD, CatalogueError, Mutant, locate, mutated, read_catalogue
from tests.mutants.run import BROKEN, KILLED, SURVIVED, run
from tests.mutants.standard import Equivalent, Findings, module, nearest, quickest, read_findings, some_of

ROOT = Path(__file__).parents[3]
CODE = """\
LIMIT = 10


class Budget:
    def left(self, spent):
        return LIMIT - spent

    def over(self, spent):
        return spent > LIMIT


def left(spent):
    return 0
"""
TESTS = """\
from stream.budget import LIMIT, Budget


def test_what_is_left():
    assert Budget().left(3) == LIMIT - 3
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # pytest starts in a fifth of the time
    for name, text in {"stream/budget.py": CODE, "connectors/none.py": "", "tests/test_budget.py": TESTS}.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path / "tree"


def entry(
    old: str = "LIMIT - spent",
    new: str = "LIMIT + spent",
    function: str = "Budget.left",
    file: str = "stream/budget.py",
) -> Mutant:
    return Mutant("m", file, function, old, new, "a promise", ("tests/test_budget.py",), "c.toml")


# --- the catalogue ------------------------------------------------------------------------------------------


def test_every_entry_of_the_catalogue_stands_in_one_place_and_has_tests_that_exist() -> None:
    wrong = []
    for mutant in read_catalogue():
        try:
            locate(mutant, ROOT)
        except CatalogueError as error:
            wrong.append(str(error))
        wrong += [f"{mutant.name}: {t}" for t in mutant.tests if not (ROOT / t.partition("::")[0]).exists()]
        wrong += [mutant.name] if mutant.old == mutant.new else []
    assert not wrong


def test_the_catalogue_holds_at_least_sixty_entries_over_all_that_carries_promises() -> None:
    mutants = read_catalogue()
    assert len(mutants) >= 60
    subjects = {Path(mutant.file).stem for mutant in mutants}
    assert subjects >= {
        "noise", "gaussian", "osdprr", "ledger", "account", "attributes", "presence", "watermark", "counts",
        "backfill", "partition", "store", "faust_app", "partition_tasks", "receiver",
    }  # fmt: skip


def test_a_text_is_found_in_its_function_and_in_no_other_of_that_name(tree: Path) -> None:
    place = locate(entry(), tree)
    assert mutated(entry(), CODE, place) == CODE.replace("LIMIT - spent", "LIMIT + spent")
    with pytest.raises(CatalogueError, match="must hold"):
        locate(entry(function="left"), tree)


def test_what_stands_outside_of_functions_is_found_there_alone(tree: Path) -> None:
    constant = entry(old="LIMIT = 10", new="LIMIT = 11", function="*")
    assert locate(constant, tree).start == 0
    with pytest.raises(CatalogueError, match="must hold"):
        locate(entry(function="*"), tree)


def test_an_entry_follows_code_that_moves_to_another_file(tree: Path) -> None:
    (tree / "stream/budget.py").rename(tree / "connectors/budget.py")
    assert locate(entry(), tree).file == Path("connectors/budget.py")


def test_an_entry_that_could_mean_two_places_is_refused(tree: Path) -> None:
    (tree / "connectors/other.py").write_text(CODE)
    with pytest.raises(CatalogueError, match="in one file"):
        locate(entry(file="stream/gone.py"), tree)
    with pytest.raises(CatalogueError, match="occur once"):
        locate(entry(old="spent"), tree)


def test_a_field_too_many_or_too_few_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[[mutant]]\nname = "short"\ntests = []\n')
    with pytest.raises(CatalogueError, match="entry short"):
        read_catalogue(tmp_path)


# --- the runner ---------------------------------------------------------------------------------------------


def outcomes(tree: Path, folder: Path, *mutants: Mutant, jobs: int = 1, passed: bool = False) -> list[str]:
    return [result.outcome for result in run(mutants, tree, folder, jobs, lambda _: None, passed=passed)]


def test_killed_is_what_fails_a_test_and_survived_what_fails_none(tree: Path, tmp_path: Path) -> None:
    unseen = entry(old="spent > LIMIT", new="spent < LIMIT", function="Budget.over")
    assert outcomes(tree, tmp_path / "copies", entry(), unseen, entry()) == [KILLED, SURVIVED, KILLED]
    assert (tree / "stream/budget.py").read_text() == CODE, "the tree itself is never touched"


def test_side_by_side_each_is_tried_alone_in_a_copy_of_its_own(tree: Path, tmp_path: Path) -> None:
    unseen = entry(old="spent > LIMIT", new="spent < LIMIT", function="Budget.over")
    tried = [entry(), unseen] * 3
    assert outcomes(tree, tmp_path / "copies", *tried, jobs=3) == [KILLED, SURVIVED] * 3


def test_code_that_cannot_be_imported_is_a_broken_entry_and_no_kill(tree: Path, tmp_path: Path) -> None:
    assert outcomes(tree, tmp_path / "copies", entry(new="LIMIT -"), entry(old="gone")) == [BROKEN, BROKEN]


def test_a_standard_mutant_that_tests_cannot_import_is_killed(tree: Path, tmp_path: Path) -> None:
    sound = replace(entry(old="LIMIT = 10", new="LIMIT = 10 - None", function="*"), catalogue=STANDARD)
    assert outcomes(tree, tmp_path / "copies", sound) == [KILLED]


def test_tests_that_fail_without_a_mutant_kill_nothing(tree: Path, tmp_path: Path) -> None:
    (tree / "stream/budget.py").write_text(CODE.replace("LIMIT - spent", "LIMIT  - spent - 1"))
    assert outcomes(tree, tmp_path / "copies", entry()) == [BROKEN]


def test_tests_that_are_known_to_pass_are_not_run_without_a_mutant(tree: Path, tmp_path: Path) -> None:
    once = tmp_path / "ran"
    counted = TESTS.replace("def test", f"open({str(once)!r}, 'x').close()\n\n\ndef test", 1)
    (tree / "tests/test_budget.py").write_text(counted)  # fails when it is run for the second time
    unseen = entry(old="spent > LIMIT", new="spent < LIMIT", function="Budget.over")
    assert outcomes(tree, tmp_path / "copies", unseen, passed=True) == [SURVIVED]


def test_a_sample_is_spread_over_the_whole_catalogue() -> None:
    catalogue = read_catalogue()
    few = spread(catalogue, 3)
    assert few == [catalogue[0], catalogue[len(catalogue) // 3], catalogue[2 * len(catalogue) // 3]]
    assert spread(catalogue, len(catalogue)) == catalogue


# --- standard mutants ---------------------------------------------------------------------------------------

DECIDES = """\
LIMIT = 3


class Budget:
    def over(self, spent: int, more: list[int]) -> bool:
        if not more and spent + 1 > LIMIT:
            raise ValueError("too much")
        self.note(spent)
        return spent is not None


def largest(of: list[int]) -> int:
    \"\"\"Return the largest.\"\"\"
    return max(of)
"""


@pytest.fixture
def decides(tree: Path) -> Path:
    (tree / "stream/decides.py").write_text(DECIDES)
    (tree / "tests/unit").mkdir()
    (tree / "tests/unit/test_decides.py").write_text("from stream.decides import (\n    Budget,\n    largest,\n)\n")
    (tree / "tests/test_far.py").write_text("import stream.decides\n")
    return tree


def test_standard_mutants_are_small_wrongs_of_every_kind_each_in_one_place(decides: Path) -> None:
    made = module(Path("stream/decides.py"), decides)
    wrongs = {(mutant.name.rpartition("-")[2], mutant.promise) for mutant in made.mutants}
    assert wrongs == {
        ("boundary", "3 -> 4"), ("boundary", "1 -> 2"), ("negation", "not more -> (more)"), ("boolean", "and -> or"),
        ("arithmetic", "+ -> -"), ("compare", "> -> >="), ("compare", "is not -> is"), ("extreme", "max -> min"),
        ("always", "not more and spent + 1 > LIMIT -> True"), ("never", "not more and spent + 1 > LIMIT -> False"),
        ("removed", 'raise ValueError("too much") -> pass'), ("removed", "self.note(spent) -> pass"),
        ("default", "spent is not None -> False"), ("default", "max(of) -> 0"),
    }  # fmt: skip
    assert made.decisions == 4
    for mutant in made.mutants:
        assert mutant.tests == ("tests/unit/test_decides.py", "tests/test_far.py")
        text = mutated(mutant, DECIDES, locate(mutant, decides))
        assert text != DECIDES
        compile(text, "decides", "exec")


def test_an_equivalent_mutant_is_passed_over_and_a_modules_nearest_tests_can_be_named(decides: Path) -> None:
    file, every = Path("stream/decides.py"), module(Path("stream/decides.py"), decides).mutants
    known = Equivalent(str(file), "Budget.over", "return spent is not None", "is not -> is", "a reason")
    made = module(file, decides, Findings((known,), {str(file): ("tests/test_budget.py",)})).mutants
    assert [mutant.name for mutant in every if mutant.promise != "is not -> is"] == [mutant.name for mutant in made]
    assert {mutant.tests for mutant in made} == {("tests/test_budget.py",)}


def test_every_equivalent_mutant_of_the_list_is_one_and_its_tests_exist() -> None:
    findings = read_findings()
    for file in sorted({each.file for each in findings.equivalent}):
        listed = {each for each in findings.equivalent if each.file == file}
        without = [
            each for each in listed
            if len(module(Path(file), ROOT, Findings(tuple(listed - {each}))).mutants)
            == len(module(Path(file), ROOT, Findings(tuple(listed))).mutants)
        ]  # fmt: skip
        assert not without, "an entry that names no standard mutant"
    for file, tests in findings.nearest.items():
        assert (ROOT / file).exists()
        assert all((ROOT / test).exists() for test in tests)


def test_tests_of_units_run_first() -> None:
    tests = ["tests/docs/b.py", "tests/integration/a.py", "tests/unit/z.py", "tests/laws/a.py", "tests/unit/a.py"]
    assert quickest(tests) == tuple(tests[place] for place in (4, 2, 3, 0, 1))


def test_some_of_a_modules_mutants_are_of_all_its_functions(decides: Path) -> None:
    made = module(Path("stream/decides.py"), decides)
    assert {mutant.function for mutant in some_of(made, 3)} == {"*", "Budget.over", "largest"}
    assert some_of(made, 99) == list(made.mutants)


def test_what_no_test_imports_has_no_nearest_test(decides: Path) -> None:
    assert nearest(Path("connectors/none.py"), decides) == ()
