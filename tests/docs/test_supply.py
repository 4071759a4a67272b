"""What is installed: every file by its hash, under licences that the project can be given with, on one bill."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]
LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))
RUNTIME = "requirements-runtime.lock"
TOOL = Path(sys.prefix) / "supply" / "bin" / "cyclonedx-py"
"""Made by 'make sbom', in an environment of its own: nothing of it is in the image."""
PERMISSIVE = re.compile(
    r"Apache[- ](?:2\.0|Software License)|MIT(?:-0| License)?|BSD(?: License|-[23]-Clause)?|0BSD|Zlib|CC0-1\.0|"
    r"PSF-2\.0|Python Software Foundation License|Repoze Public License"
)
"""Licences that ask for nothing but notices."""
EXCEPTIONS = {"orjson": "MPL-2.0 AND (Apache-2.0 OR MIT)"}
"""Whose own files would have to be given, changed ones with their changes; it is used as it is published."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, version and hashes of each pin of a lock."""
    for block in re.split(r"\n(?=\S)", (ROOT / lock).read_text()):
        if block.strip():
            name, version = re.findall(r"^([\w.-]+)==(\S+)", block)[0]
            yield normal(name), version, re.findall(r"--hash=sha256:([0-9a-f]{64})\b", block)


def told_licence(name: str) -> str:
    """Return what a package says that it may be used under."""
    reported = metadata.metadata(name).json
    classes = [each.split(" :: ")[-1] for each in reported.get("classifier", []) if each.startswith("License")]
    return str(reported.get("license_expression") or "; ".join(classes) or reported.get("license", ""))


def permissive(licence: str) -> bool:
    return all(PERMISSIVE.fullmatch(part.strip(" ()")) for part in re.split(r" AND | OR |; ", licence))


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_its_hashes_and_nothing_comes_from_elsewhere(lock: str) -> None:
    stored = list(pins(lock))
    assert len(stored) > 20
    assert all(hashes for _, _, hashes in stored)
    assert not re.search(
        r"^(?:-e|-i|--index|--extra-index|--find-links|git\+|https?:)", (ROOT / lock).read_text(), re.M
    )


def test_every_dependency_of_the_project_is_pinned_where_it_is_installed() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, extras = document["project"], document["project"]["optional-dependencies"]
    optional = [each for name in ("frame", "http", "sinks", "calendars", "plots") for each in extras[name]]
    wanted = {
        RUNTIME: project["dependencies"] + extras["build"],
        "requirements-extras.lock": project["dependencies"] + extras["build"] + optional,
        "requirements.lock": project["dependencies"] + extras["test"],
        "requirements-bench.lock": extras["bench"],
        "requirements-supply.lock": document["dependency-groups"]["supply"],
    }
    assert sorted(wanted) == LOCKS
    for lock, requirements in wanted.items():
        stored = {name for name, _, _ in pins(lock)}
        names = {normal(re.findall(r"^[\w.-]+", each)[0]) for each in requirements} - {"tacet-occupancy"}
        assert names <= stored, lock


def test_what_is_tested_is_what_is_pinned() -> None:
    """A lock has a pin of one name for each Python, where they differ."""
    stored: dict[str, set[str]] = {}
    for name, version, _ in pins("requirements.lock"):
        stored.setdefault(name, set()).add(version)
    installed = {normal(each.name): each.version for each in metadata.distributions()}
    assert not {name: version for name, version in installed.items() if name in stored and version not in stored[name]}


def test_the_image_holds_permissive_licences_but_for_named_exceptions() -> None:
    names = {name for name, _, _ in pins(RUNTIME)} - {"colorama"}  # Windows only
    others = {name: reported for name in names if not permissive(reported := told_licence(name))}
    assert others == EXCEPTIONS


@pytest.mark.parametrize("licence", ["GPL-3.0-only", "", "MIT AND AGPL-3.0", "UNKNOWN"])
def test_a_licence_that_asks_for_more_is_seen(licence: str) -> None:
    assert not permissive(licence)


def test_the_bill_of_materials_names_every_pin_of_the_image(tmp_path: Path) -> None:
    if not TOOL.exists():
        pytest.skip("cyclonedx-bom is not here; 'make sbom' installs it")
    out = tmp_path / "sbom.json"
    subprocess.run(
        [TOOL, "requirements", ROOT / RUNTIME, "--output-reproducible", "--of", "JSON", "-o", out],
        check=True, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    bill = json.loads(out.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    listed = {(normal(each["name"]), each["version"]) for each in bill["components"]}
    assert listed == {(name, version) for name, version, _ in pins(RUNTIME)}


def test_waivers_of_known_weaknesses_say_why_and_until_when() -> None:
    lines = (ROOT / "deploy" / "waivers.txt").read_text().splitlines()
    for line in lines:
        assert line.startswith("#") or re.fullmatch(
            r"(?:CVE|GHSA|PYSEC)-\S+  # \S.{20,} until 20\d\d-\d\d-\d\d", line
        ), line


# --- what is known of it ---------------------------------------------------------------------------------------------


def audited(tmp_path: Path, answer: object, *, code: int = 0, told: str = "") -> tuple[int, str]:
    """Run ``.ci/audit`` with a tool that answers so; return its exit code and what it says."""
    tool = tmp_path / "pip-audit"
    (tmp_path / "answer").write_text(answer if isinstance(answer, str) else json.dumps({"dependencies": answer}))
    tool.write_text(
        f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\ncat {tmp_path}/answer\necho '{told}' >&2\nexit {code}\n"
    )
    tool.chmod(0o700)
    env = os.environ | {"PIP_AUDIT": str(tool)}
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "audit"], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert f"-r {ROOT / RUNTIME}" in (tmp_path / "asked").read_text()
    return done.returncode, done.stdout + done.stderr


FINE = {"name": "a", "version": "1", "vulns": []}
WEAK = {"name": "b", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": []}]}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (1)"}


def test_an_audit_says_that_all_was_looked_up_or_fails(tmp_path: Path) -> None:
    assert audited(tmp_path, [FINE]) == (0, f"audit: 1 pins of {RUNTIME} looked up, nothing is known of any\n")
    code, output = audited(tmp_path, [FINE, WEAK], code=1)
    assert (code, "audit: b: PYSEC-1" in output) == (1, True)
    code, output = audited(tmp_path, [FINE, UNKNOWN])
    assert (code, "not looked up: c" in output) == (1, True)


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [([UNKNOWN, UNKNOWN], 0, ""), ([], 0, ""), ("", 1, "ERROR: Could not connect to PyPI")],
)  # fmt: skip
def test_where_the_service_cannot_be_asked_it_says_that_nothing_was_audited(
    tmp_path: Path, answer: object, code: int, told: str
) -> None:
    """The tool itself says 'No known vulnerabilities found' then, and exits with 0."""
    assert audited(tmp_path, answer, code=code, told=told)[0] == 77
    assert "NOTHING WAS AUDITED" in audited(tmp_path, answer, code=code, told=told)[1]


def test_a_tool_that_fails_is_no_audit(tmp_path: Path) -> None:
    assert audited(tmp_path, "", code=2, told="usage: pip-audit")[0] == 1
