"""Every key of the policy file is in its reference, with its default; the examples there keep their promises."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from connectors.cli.options import read_policy
from connectors.lab.simulation.policy import site_text
from connectors.operations.policy.guarantee_figures import guarantee_figures
from stream.lab.simulator.events import SimulatorConfig, simulate
from stream.policy.people import PeopleModel
from stream.release.validation import Policy
from tests.support.documents import blocks, part


def models(annotation: Any) -> dict[str, type[BaseModel]]:
    """Return every model that can stand in a value of this type, by its name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        found = {annotation.__name__: annotation}
        for field in annotation.model_fields.values():
            found |= models(field.annotation)
        return found
    return {name: model for each in get_args(annotation) for name, model in models(each).items()}


FILES = models(PeopleModel)
"""Models of files that a program writes, and whose keys nobody types."""
MODELS = {name: model for name, model in models(Policy).items() if name not in FILES}
TABLES = {
    "[site.NAME]": MODELS["Site"],
    "[[site.NAME.zones]]": MODELS["Zone"],
    "[[site.NAME.probe]]": MODELS["Probe"],
    "[[site.NAME.poll]]": MODELS["Poll"],
    'query = "count"': MODELS["CountRelease"],
    'query = "threshold"': MODELS["ThresholdRelease"],
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
    """Whether a default in the reference, read as TOML, is the field's."""
    value = tomllib.loads(f"x = {shown}")["x"]
    read: TypeAdapter[Any] = TypeAdapter(
        Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    )
    given: Any = read.validate_python(tuple(value) if isinstance(value, list) else value)
    if isinstance(given, float):
        return bool(given == pytest.approx(field.default, rel=1e-4))
    return bool(given == field.default)


def policy_examples() -> list[str]:
    """Return the blocks marked ``toml``: releases for the simulated building."""
    return [block.text for block in blocks("toml", "docs/reference/policy.md")]


def test_examples_of_releases_make_a_policy_that_keeps_its_promises(tmp_path: Path) -> None:
    assert len(policy_examples()) == 2
    audiences = "".join(f'[[audience]]\nname = "{name}"\n' for name in ("facilities", "public"))
    site = site_text(simulate(SimulatorConfig(seed=1)))
    file = tmp_path / "policy.toml"
    file.write_text("\n".join([site, audiences, *policy_examples()]))
    policy = read_policy(file)
    report = guarantee_figures(policy).to_json()
    entrance = next(row for row in report["counts"] if row["release"] == "entrance")
    assert entrance["epsilon"]["device_w_event"] == "1.2"
    model = report["models"]["office-habits"]
    assert model["left_out"] == []
    assert all(row["exact"] <= math.exp(model["cap"]) for row in report["attributes"])


def test_the_policy_in_the_readme_is_accepted_and_paid_by_the_day(tmp_path: Path) -> None:
    (block,) = blocks("toml", "README.md")
    file = tmp_path / "policy.toml"
    file.write_text(block.text)
    rows = guarantee_figures(read_policy(file)).to_json()["counts"]
    assert rows
    assert all(row["unit"] == "device_day" for row in rows)


def test_choices_of_the_policy_are_named() -> None:
    for name in ("mechanism", "smoother"):
        for choice in get_args(MODELS["CountRelease"].model_fields[name].annotation):
            assert f'"{choice}"' in part("policy")
    attributes, _ = get_args(MODELS["AttributeRelease"].model_fields["attributes"].annotation)
    for attribute in get_args(attributes):
        assert f"`{attribute}`" in part("policy")
