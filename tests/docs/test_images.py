"""Images: each reference has a digest, or stands in ``deploy/images.lock`` with a reason."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.integration.kafka_brokers import IMAGE

ROOT = Path(__file__).parents[2]
FILES = ("docker-compose.yml", "deploy/Dockerfile", "deploy/images.lock", "deploy/lock-images")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
DOCKER = """#!/bin/sh
case "$*" in
  *"$REFUSED"*) echo "no such image" >&2; exit 1 ;;
  "buildx imagetools inspect --format {{.Manifest.Digest}} "*)
    printf '%s' "$*" | sha256sum | sed 's/^/sha256:/; s/ .*//' ;;
  *) exit 2 ;;
esac
"""


def references(root: Path) -> set[str]:
    """Return every image that a file of ours has an engine fetch or run."""
    services = yaml.safe_load((root / "docker-compose.yml").read_text())["services"].values()
    built = re.findall(r"^FROM (\S+)", (root / "deploy/Dockerfile").read_text(), re.MULTILINE)
    chart = yaml.safe_load((ROOT / "deploy/helm/tacet/values.yaml").read_text())["image"]
    return {*(service["image"] for service in services), *built, chart, IMAGE}


def locked(root: Path) -> dict[str, tuple[str, str]]:
    lines = [line for line in (root / "deploy/images.lock").read_text().splitlines() if not line.startswith("#")]
    found = {line.split()[0]: (line.split()[1], " ".join(line.split()[2:])) for line in lines}
    assert len(found) == len(lines)
    return found


def check(root: Path) -> None:
    stored = locked(root)
    names = {reference.partition("@")[0] for reference in references(root)}
    assert names == set(stored), "each image is listed, and each that is listed is used"
    for reference in references(root) - {IMAGE}:
        name, _, digest = reference.partition("@")
        listed, reason = stored[name]
        if digest:
            assert DIGEST.fullmatch(digest)
            assert listed == digest
        else:
            assert listed == "-", f"{name} has a digest in images.lock and none where it is used"
            assert len(reason.split()) >= 4, f"{name} needs a digest, or a reason"
    for name in names:
        assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+(\.\d+)?(-[a-z-]+)?", name), "a version, not a moving tag"


def test_every_image_has_a_digest_or_a_reason_why_it_has_none() -> None:
    check(ROOT)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "tree" / name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").write_text(DOCKER)
    (tmp_path / "bin/docker").chmod(0o755)
    return tmp_path / "tree"


def lock(tree: Path, refused: str) -> int:
    environment = os.environ | {"PATH": f"{tree.parent / 'bin'}:{os.environ['PATH']}", "REFUSED": refused}
    done = subprocess.run([tree / "deploy/lock-images"], env=environment, capture_output=True, timeout=300, check=False)
    return done.returncode


def test_locking_writes_the_digest_of_each_image_wherever_it_is_named(copy: Path) -> None:
    assert lock(copy, "nothing") == 0
    check(copy)
    ours = {name for name, (digest, _) in locked(copy).items() if digest == "-"}
    assert ours == {"tacet:0.1.0"}
    assert all("@sha256:" in each for each in references(copy) if each.partition("@")[0] not in {*ours, IMAGE})
    once = {name: (copy / name).read_text() for name in FILES}
    assert lock(copy, "nothing") == 0
    assert {name: (copy / name).read_text() for name in FILES} == once, "locking again changes nothing"


def test_locking_changes_nothing_where_one_registry_does_not_answer(copy: Path) -> None:
    before = {name: (copy / name).read_text() for name in FILES}
    assert lock(copy, "grafana") == 1
    assert {name: (copy / name).read_text() for name in FILES} == before
