"""The official AsyncAPI parser accepts the contracts and rejects broken ones."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.operations.policy.contracts import asyncapi
from stream.release.validation import Policy
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


def parsed(parser: Path, document: dict[str, Any], folder: Path) -> tuple[int, dict[str, Any]]:
    path = folder / "asyncapi.json"
    path.write_bytes(orjson.dumps(document))
    words = ["node", str(parser / "check.mjs"), str(path)]
    done = subprocess.run(words, cwd=parser, capture_output=True, text=True, timeout=PATIENCE, check=False)
    output: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, output


@pytest.mark.parametrize("policy", [building(), None], ids=["every mechanism", "the committed one"])
def test_the_official_parser_takes_the_document(parser: Path, policy: Policy | None, tmp_path: Path) -> None:
    committed = orjson.loads((ROOT / "deploy" / "contracts" / "asyncapi.json").read_bytes())
    document = committed if policy is None else asyncapi(policy)
    code, output = parsed(parser, document, tmp_path)
    assert (code, output["errors"]) == (0, [])
    addresses = sorted(channel["address"] for channel in document["channels"].values())
    assert sorted(output["addresses"]) == addresses
    assert output["priced"] == len(addresses)


def test_the_official_parser_refuses_a_broken_document(parser: Path, tmp_path: Path) -> None:
    document = asyncapi(building())
    document["operations"]["send.board.plain"]["channel"] = {"$ref": "#/channels/attic"}
    document["channels"]["board.plain"]["address"] = 7
    code, output = parsed(parser, document, tmp_path)
    assert code == 1
    assert output["errors"]
