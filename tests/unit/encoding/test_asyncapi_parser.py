"""The official AsyncAPI parser accepts the contracts and rejects broken ones."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.operations.policy.contracts import asyncapi
from tests.support.patience import PATIENCE
from tests.support.small_building import building

ROOT = Path(__file__).parents[3]
SCENARIO = ROOT / "tests" / "asyncapi"


def unavailable(reason: str) -> None:
    if os.environ.get("TACET_REQUIRE_ASYNCAPI") == "1":
        pytest.fail(f"TACET_REQUIRE_ASYNCAPI=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def parser() -> Path:
    """The parser as its lock file pins it, in the user's cache; fetched by npm the first time."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        unavailable("there is no node or no npm on the path")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    lock = hashlib.sha256((SCENARIO / "package-lock.json").read_bytes()).hexdigest()[:16]
    folder = base / "tacet" / "asyncapi" / lock
    if not (folder / "whole").exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(SCENARIO, folder, ignore=shutil.ignore_patterns("node_modules"))
        words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode:
            unavailable(f"npm could not fetch the parser: {done.stderr[-300:]}")
        (folder / "whole").touch()
    shutil.copy(SCENARIO / "check.mjs", folder)
    return folder


def documents() -> dict[str, dict[str, Any]]:
    """What the parser is asked about: a policy with every mechanism, the committed document, and a broken one."""
    broken = asyncapi(building())
    broken["operations"]["send.board.plain"]["channel"] = {"$ref": "#/channels/attic"}
    broken["channels"]["board.plain"]["address"] = 7
    committed = orjson.loads((ROOT / "deploy" / "contracts" / "asyncapi.json").read_bytes())
    return {"every mechanism": asyncapi(building()), "the committed one": committed, "broken": broken}


@pytest.fixture(scope="module")
def parsed(parser: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the parser says of each document: it is started once for all of them, as that takes most of the time."""
    folder = tmp_path_factory.mktemp("documents")
    for name, document in documents().items():
        (folder / name).write_bytes(orjson.dumps(document))
    words = ["node", str(parser / "check.mjs"), *(str(folder / name) for name in documents())]
    done = subprocess.run(words, cwd=parser, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1, "one of them has an error"
    return dict(zip(documents(), map(orjson.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("name", ["every mechanism", "the committed one"])
def test_the_official_parser_takes_the_document(parsed: dict[str, dict[str, Any]], name: str) -> None:
    output = parsed[name]
    assert output["errors"] == []
    addresses = sorted(channel["address"] for channel in documents()[name]["channels"].values())
    assert sorted(output["addresses"]) == addresses
    assert output["priced"] == len(addresses)


def test_the_official_parser_refuses_a_broken_document(parsed: dict[str, dict[str, Any]]) -> None:
    assert parsed["broken"]["errors"]
