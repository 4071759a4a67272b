"""The README says what is true: its commands run, and nothing that can be set or read is missing from it."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, get_args

import click
import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from connectors.cli import tacet
from connectors.commands.admin import promises
from connectors.commands.options import read_policy
from connectors.reports.plan import qualities
from connectors.simulation.policy import site_text
from stream import schemas
from stream.policy.document import Policy
from stream.settings import Settings
from stream.simulator.events import SimulatorConfig, simulate
from tests.core_ground import ATTRIBUTES, COUNTS, account_of, building, outputs_of, people
from tests.verb_tree import all_verbs

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def part(name: str) -> str:
    """Return what stands between <!-- name --> and <!-- /name -->."""
    return README.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]


# --- commands -----------------------------------------------------------------------------------------


def shell_blocks() -> list[str]:
    """Return the blocks marked ``sh``: those that need neither a broker nor a container engine."""
    return re.findall(r"^```sh\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", shell_blocks())
def test_shell_commands_run_as_they_stand(block: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if "tacet subscribe" in block:
        assert re.search('"release_id":"dbh/(office-day|floors)/public/', done.stdout)
        _run_program(tmp_path)


def _run_program(folder: Path) -> None:
    """Run the program that subscribes, out of a file, beside the store that the commands have made."""
    [program] = [block for block in re.findall(r"^```python\n(.*?)^```", README, re.M | re.S) if "subscribe(" in block]
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"20[-0-9:TZ]+ \{", done.stdout)


def test_some_commands_are_run() -> None:
    assert sum(block.count("tacet ") for block in shell_blocks()) >= 8


VERBS = all_verbs(tacet)


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_is_listed_with_exactly_its_options(verb: str) -> None:
    (row,) = re.findall(rf"^\| `tacet {verb}(?: [A-Z ]+)?` \|.*$", part("commands"), flags=re.MULTILINE)
    options = {name for o in VERBS[verb].params if isinstance(o, click.Option) for name in o.opts if name[:2] == "--"}
    assert set(re.findall(r"--[a-z-]+", row)) == options


def test_no_command_is_listed_that_is_not_there() -> None:
    listed = re.findall(r"^\| `tacet ([a-z ]+[a-z])", part("commands"), flags=re.MULTILINE)
    assert sorted(listed) == sorted(VERBS)


def test_every_make_target_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z]+)", README)) <= targets | {"up"}


# --- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_listed_with_its_default(name: str) -> None:
    (default,) = re.findall(rf"^\| `TACET_{name.upper()}` \| (.*?) \|", README, flags=re.MULTILINE)
    value = Settings.model_fields[name].default
    assert default == ("none" if value is None else f"`{str(value).lower()}`")


def test_no_setting_is_listed_that_is_not_there() -> None:
    listed = set(re.findall(r"^\| `TACET_([A-Z_]+)`", README, flags=re.MULTILINE))
    assert listed == {name.upper() for name in Settings.model_fields}


# --- policy -------------------------------------------------------------------------------------------


def models(annotation: Any) -> dict[str, type[BaseModel]]:
    """Return every model that can stand in a value of this type, by its name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        found = {annotation.__name__: annotation}
        for field in annotation.model_fields.values():
            found |= models(field.annotation)
        return found
    return {name: model for each in get_args(annotation) for name, model in models(each).items()}


MODELS = models(Policy)
TABLES = {
    "[site.NAME]": MODELS["Site"],
    "[[site.NAME.zones]]": MODELS["Zone"],
    'query = "count"': MODELS["CountRelease"],
    'query = "attributes"': MODELS["AttributeRelease"],
    "[privacy]": MODELS["Privacy"],
}
KEYS = [(title, model, name) for title, model in TABLES.items() for name in model.model_fields]


@pytest.mark.parametrize(("title", "model", "name"), KEYS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_policy_key_is_listed_with_its_default(title: str, model: type[BaseModel], name: str) -> None:
    rows = policy_table(title)
    assert name in rows, f"{name} is not in the table of {title}"
    field, shown = model.model_fields[name], rows[name]
    if field.is_required():
        assert shown == "required"
    elif isinstance(field.default, BaseModel) or field.default is None:
        assert not shown.startswith("`")
    else:
        assert shown.startswith("`")
        assert same(field, shown.strip("`"))


@pytest.mark.parametrize("title", TABLES)
def test_no_policy_key_is_listed_that_is_not_there(title: str) -> None:
    assert set(policy_table(title)) == set(TABLES[title].model_fields)


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_every_key_of_every_table_is_named(model: type[BaseModel]) -> None:
    missing = [name for name in model.model_fields if not re.search(rf"[`\[.\s{{]{name}[`\].\s}}]", part("policy"))]
    assert not missing


def policy_table(title: str) -> dict[str, str]:
    """Return key -> default of the table under a bold title."""
    text = next(text for text in re.split(r"^(?=\*\*`\[)", part("policy"), flags=re.MULTILINE) if title in text[:60])
    table = text.split("\n\n")[1]
    return dict(re.findall(r"^\| `([a-z_]+)` \| (.*?) \|", table, flags=re.MULTILINE))


def same(field: FieldInfo, shown: str) -> bool:
    """Whether a default in the README, read as TOML, is the field's."""
    value = tomllib.loads(f"x = {shown}")["x"]
    read = TypeAdapter(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
    given: Any = read.validate_python(tuple(value) if isinstance(value, list) else value)
    if isinstance(given, float):
        return bool(given == pytest.approx(field.default, rel=1e-4))
    return bool(given == field.default)


# --- what is published --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [schemas.CountRecord, schemas.AttributeRecord])
def test_every_field_of_a_released_record_is_listed(model: type[BaseModel]) -> None:
    section = README.partition("## 8.")[2].partition("### The account")[0]
    first_cells = " ".join(re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE))
    column = 2 if model is schemas.CountRecord else 3
    for name in ("v", *model.model_fields):
        assert f"`{name}`" in first_cells, name
        (row,) = [line for line in section.splitlines() if re.match(rf"\| [^|]*`{name}`", line)]
        assert row.split("|")[column].strip(), f"{name} must be marked in column {column}"


def test_every_topic_is_listed() -> None:
    topics = [value for value in vars(schemas).values() if isinstance(value, str) and value.startswith("tacet.")]
    assert len(topics) >= 7
    for topic in (*topics, schemas.private_topic("<audience>", "<release>")):
        assert f"| `{topic}` |" in README


# --- the account --------------------------------------------------------------------------------------

KNOWING = """
[privacy]
mobility = { forward = [[0.9, 0.1], [0.2, 0.8]] }
meetings = [{ size = 3, correlation = 0.5, presence = 0.3 }]
"""
MODEL = """
information_target = 0.5
model = { joint = { "00" = 0.3, "01" = 0.2, "10" = 0.1, "11" = 0.4 } }
"""
KIND = 'zones = { kind = "office" }'


@pytest.fixture(scope="module")
def account() -> list[dict[str, Any]]:
    """The account of a few days in which everything that can stand in it does."""
    attributes = ATTRIBUTES.replace(KIND, KIND + MODEL)
    assert attributes != ATTRIBUTES
    return account_of(outputs_of(building(releases=COUNTS + attributes, head=KNOWING), people()))


def test_fields_units_and_factors_of_the_account_are_exactly_those_listed(account: list[dict[str, Any]]) -> None:
    fields = {name for record in account for name in record}
    units = {name for record in account for reader in record["audiences"].values() for name in reader}
    factors = {name for record in account for figures in record["attributes"].values() for name in figures}
    assert {"exact", "temporal", "meeting", "information"} <= fields | units | factors
    cells = [re.findall(r"`([a-z_0-9]+)`", cell) for cell in re.findall(r"^\| (`.*?) \|", part("account"), flags=re.M)]
    assert sorted(name for cell in cells for name in cell) == sorted([*fields, *units, *factors])


# --- the map of the code ------------------------------------------------------------------------------


def map_of(folder: str) -> str:
    """Return the part of the map below ``folder/``."""
    section = README.partition("## 9.")[2].partition("```\n")[2].partition("```")[0]
    (found,) = [text for text in re.split(r"^(?=[a-z]+/)", section, flags=re.MULTILINE) if text.startswith(folder)]
    return found


@pytest.mark.parametrize("folder", ["connectors", "stream"])
def test_every_module_is_on_the_map(folder: str) -> None:
    named = set(re.findall(r"\b[a-z_]+\b\*?", map_of(folder)))
    for path in (ROOT / folder).rglob("*.py"):
        if not path.stem.startswith("__"):
            assert any(fnmatch(path.stem, name) for name in named), path.relative_to(ROOT)
            assert path.parent.name in named, path.relative_to(ROOT)


@pytest.mark.parametrize("folder", ["connectors", "stream"])
def test_no_module_is_on_the_map_that_is_not_there(folder: str) -> None:
    there = [path.name for path in (ROOT / folder).rglob("*") if path.suffix == ".py" or path.is_dir()]
    listed = re.findall(r"\b[a-z_]+\*?\.py\b", map_of(folder))
    listed += re.findall(r"^ +([a-z]+)/", map_of(folder), flags=re.MULTILINE)
    assert len(listed) > 8
    assert not [name for name in listed if not any(fnmatch(each, name) for each in there)]


# --- examples of policies -----------------------------------------------------------------------------


def policy_examples() -> list[str]:
    """Return the blocks marked ``toml``: releases for the simulated building."""
    return re.findall(r"^```toml\n(.*?)^```", part("policy"), flags=re.MULTILINE | re.DOTALL)


def test_examples_of_releases_make_a_policy_that_keeps_its_promises(tmp_path: Path) -> None:
    assert len(policy_examples()) == 2
    audiences = "".join(f'[[audience]]\nname = "{name}"\n' for name in ("facilities", "public"))
    site = site_text(simulate(SimulatorConfig(seed=1)))
    file = tmp_path / "policy.toml"
    file.write_text("\n".join([site, audiences, *policy_examples()]))
    policy = read_policy(file)
    told = promises(policy, qualities(policy))
    entrance = next(row for row in told["counts"] if row["release"] == "entrance")
    assert entrance["epsilon"]["device_w_event"] == "1.2"
    model = told["models"]["office-habits"]
    assert model["left_out"] == []
    assert all(row["exact"] <= math.exp(model["cap"]) for row in told["attributes"])


def test_choices_of_the_policy_are_named() -> None:
    for name in ("mechanism", "smoother"):
        for choice in get_args(MODELS["CountRelease"].model_fields[name].annotation):
            assert f'"{choice}"' in part("policy")
    attributes, _ = get_args(MODELS["AttributeRelease"].model_fields["attributes"].annotation)
    for attribute in get_args(attributes):
        assert f"`{attribute}`" in part("policy")
