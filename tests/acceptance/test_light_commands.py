"""Commands that only print load only what they need, and a plan reports its progress."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from connectors.cli import output
from connectors.cli.main import SECTIONS, tacet
from stream.mechanisms.filter.mechanism import Filtered
from tests.support.day_policies import day_release, day_site, shared
from tests.support.small_building import policy_text
from tests.support.verb_tree import subcommands

TIMEOUT = 300
HEAVY = {"aiokafka", "duckdb", "fastapi", "faust", "matplotlib", "scipy", "uvicorn"}
"""Libraries that take long to load, and that nothing needs to print what a policy promises."""
FILTERED = """
[[release]]
name = "rooms"
query = "count"
mechanism = "filter"
zones = { kind = "hall" }
epsilon = { facilities = "1" }
"""


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a process of its own has loaded once it has run a command."""
    source = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('LOADED', *sys.modules, file=sys.stderr))\n"
        f"sys.argv = {['tacet', *arguments]!r}\n"
        "from connectors.cli.main import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("LOADED")[2].split())


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(policy_text(FILTERED))
    return path


def invoke(*arguments: str | Path) -> Any:
    done = CliRunner().invoke(tacet, list(map(str, arguments)))
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def test_help_loads_no_verb_and_no_library_that_verbs_need() -> None:
    loaded = loaded_by("--help")
    assert not loaded & (HEAVY | {"cryptography", "numpy", "stream.pipeline"})
    modules = {name for name in loaded if name.startswith("connectors.cli.")}
    assert modules == {"connectors.cli.main"}


def test_help_groups_all_verbs_by_what_they_are_for() -> None:
    printed = invoke("--help").output
    titles = re.findall(r"^(\w[\w ]*):$", printed, flags=re.MULTILINE)
    assert titles[1:] == ["Start", "Run", "Read", "Look after", "Laboratory"]
    listed = re.findall(r"^  ([a-z-]+)  ", printed.partition("Start:\n")[2], flags=re.MULTILINE)
    assert listed == list(subcommands(tacet))


def test_each_help_text_is_how_the_verbs_own_begins() -> None:
    """A list of verbs is printed without loading them, so it has texts of its own."""
    texts = {name: text for verbs in SECTIONS.values() for name, text in verbs.items()}
    for name, verb in subcommands(tacet).items():
        own = " ".join((verb.help or "").split())
        assert own.startswith(texts[name]), name
        assert own[len(texts[name])] in ".,:;", f"{name}: {texts[name]!r} ends in the middle of {own!r}"


def test_no_verb_is_in_two_sections() -> None:
    names = [name for verbs in SECTIONS.values() for name in verbs]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("levels", [pytest.param("", marks=pytest.mark.long), shared(floor="0.25", building="0.75")])
def test_policy_show_loads_neither_servers_nor_clients_nor_scipy(policy: Path, levels: str) -> None:
    """Levels of a day have noises of two variances, whose composition is a mixture."""
    policy.write_text(policy_text(FILTERED + day_release(more=levels), site=day_site()))
    loaded = loaded_by("policy", "show", str(policy))
    assert not loaded & HEAVY
    assert "connectors.sources.recordings.observations" not in loaded
    assert not loaded & {"connectors.operations.policy.quality", "connectors.operations.policy.contracts"}
    assert "rich.progress" not in loaded


def test_a_verb_without_a_policy_loads_nothing_of_one() -> None:
    loaded = loaded_by("token", "--help")
    assert not loaded & (HEAVY | {"numpy", "stream.release.validation", "stream.policy.document"})


def test_a_sink_loads_nothing_that_makes_reports_before_it_makes_one() -> None:
    assert not {name for name in loaded_by("sink", "mail", "--help") if name.startswith("connectors.documents")}


def test_policy_show_tries_no_day(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(*_: object) -> None:
        raise AssertionError("the filter is stepped")

    monkeypatch.setattr(Filtered, "step", step)
    printed = invoke("policy", "show", policy).output
    assert "worth publishing" not in printed
    assert "'tacet policy plan' tries a day" in " ".join(printed.split())
    assert "worse_than_zero" not in json.loads(invoke("policy", "show", policy, "--json").stdout)
    assert isinstance(CliRunner().invoke(tacet, ["policy", "plan", str(policy)]).exception, AssertionError)


def test_a_plan_says_how_many_windows_it_has_tried_of_how_many(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of a day are tried with zones, too, which they leave out."""
    sums = day_release(more=shared(floor="0.5", building="0.5"))
    policy.write_text(policy_text(FILTERED.replace("filter", "laplace") + sums, site=day_site()))
    made: list[output.TaskProgress] = []

    class Noted(output.TaskProgress):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.steps: list[int] = []
            made.append(self)

        def update(self, done: int, *_: object) -> None:
            super().update(done)
            self.steps.append(done)

    monkeypatch.setattr(output, "TaskProgress", Noted)
    invoke("policy", "plan", policy)
    (task,) = [each for each in made if each.what == "windows tried"]
    assert task.total
    assert task.steps == list(range(1, task.total + 1))  # type: ignore[attr-defined]
