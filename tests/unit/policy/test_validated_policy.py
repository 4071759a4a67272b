"""Only a validated policy reaches a pipeline; the command line, the SDK and the pipeline raise the same errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from connectors.cli.main import tacet
from stream.errors import PolicyError
from stream.pipeline import Pipeline
from stream.policy.document import PolicyDocument, parse
from stream.release import validation
from stream.release.validation import Policy, load_policy, validate
from tests.support.day_policies import day_site
from tests.support.small_building import ATTRIBUTES, COUNTS, SITE, laboratory, policy_text

LAPLACE = '[[release]]\nname = "r"\nquery = "count"\nmechanism = "laplace"\nepsilon = { public = "1" }\n'
DAY = (
    '[[release]]\nname = "r"\nquery = "count"\nmechanism = "laplace"\nunit = "device_day"\nnoise = "gaussian"\n'
    'epsilon = { public = "100", board = "50" }\n'
)
STREAM = (
    '[[release]]\nname = "crowded"\nquery = "threshold"\nzones = { kind = "hall" }\nthreshold = 5\nwithin = "15min"\n'
    'events = 2\nunit = "run"\nepsilon = { public = "0.0001" }\ndaily_budget = { public = "1" }\n'
)
OFFICES = """
[[release]]
name = "offices"
query = "attributes"
zones = { kind = "office" }
[release.attributes.arrival]
epsilon = { public = "1" }
sensitive = { before = "12:00" }
[release.attributes.departure]
epsilon = { public = "1" }
sensitive = { after = "12:00" }
"""
NAMES = "".join(f'{{ name = "heat{i}", kind = "heatmap", windows = 4 }},' for i in range(1700))
HEAT = LAPLACE + f"queries = [{NAMES}]\n"
REVISED = LAPLACE.replace('"laplace"', '"filter"') + 'zones = { kind = "hall" }\nrevise = "1h"\n'

BROKEN = {
    "check_noise": (policy_text(DAY, site=day_site()), "noise = 'gaussian'"),
    "check_runs": (policy_text(STREAM, site=day_site()), "release 'crowded' at dbh"),
    "check_attribute_guarantees": (
        policy_text(COUNTS + ATTRIBUTES, head="[privacy]\nmax_factor = 1.5\n"), "max_factor = 1.5",
    ),
    "check_attribute_logic": (policy_text(OFFICES), "may prove another"),
    "check_knowledge": (
        policy_text(head="[privacy.mobility]\nforward = [[1.0, 0.0], [0.0, 1.0]]\n"), "privacy.mobility.",
    ),
    "check_revisions": (policy_text(REVISED).replace("capacity = 6", "capacity = 100000"), "revise must hold at most"),
    "check_heat_maps": (policy_text(HEAT), "heat maps must hold at most"),
}  # fmt: skip
"""For each check a policy that breaks its rule only, and a part of its message."""


def test_there_is_a_case_for_every_check() -> None:
    assert [check.__name__ for check in validation.CHECKS] == list(BROKEN)


@pytest.mark.parametrize("check", BROKEN)
def test_each_check_is_made_wherever_a_policy_is_read(check: str, tmp_path: Path) -> None:
    text, rule = BROKEN[check]
    path = tmp_path / "building.toml"
    path.write_text(text)
    printed = CliRunner().invoke(tacet, ["policy", "check", str(path)])
    with pytest.raises(PolicyError) as loaded:
        load_policy(text, str(path))
    with pytest.raises(PolicyError) as validated:
        Pipeline(validate(parse(text), str(path)), SITE, laboratory())
    assert rule in str(loaded.value)
    assert str(loaded.value) == str(validated.value) == str(printed.exception)


@pytest.mark.parametrize("check", BROKEN)
def test_each_of_these_policies_breaks_one_rule(check: str) -> None:
    document = parse(BROKEN[check][0])
    for each in validation.CHECKS:
        if each.__name__ != check:
            each(document, "policy")


def test_a_policy_is_made_by_its_validation_alone() -> None:
    policy = load_policy(policy_text())
    values = dict(policy)
    with pytest.raises(TypeError, match="is made by"):
        Policy(**values)
    with pytest.raises(TypeError, match="is made by"):
        Policy.model_validate(values)
    assert type(PolicyDocument.from_document(policy.document())) is PolicyDocument


def test_a_copy_of_a_policy_is_validated() -> None:
    policy = load_policy(policy_text(COUNTS + ATTRIBUTES))
    assert type(policy.with_releases(policy.release[:1])) is Policy
    assert policy.model_copy() == policy
    assert policy.model_copy(update={"release": policy.release}).version == policy.version
    with pytest.raises(PolicyError, match=r"max_factor = 1\.5"):
        policy.model_copy(update={"privacy": policy.privacy.model_copy(update={"max_factor": 1.5})})
    with pytest.raises(ValidationError, match="release and query names must be unique"):
        policy.with_releases([*policy.release, policy.release[0]])


def test_a_pipeline_accepts_a_validated_policy_only() -> None:
    """mypy reports an unused ``type: ignore`` if the type of the constructor would let a document pass."""
    document = parse(policy_text())
    with pytest.raises(TypeError, match="policy: must be a validated Policy, got PolicyDocument"):
        Pipeline(document, SITE, laboratory())  # type: ignore[arg-type]
    Pipeline(validate(document), SITE, laboratory())


def test_a_validated_policy_means_what_its_document_says() -> None:
    document = parse(policy_text())
    assert (validate(document).version, validate(document).document()) == (document.version, document.document())
