"""Public names, the structure of outputs and released bytes are what they were; texts may change.

Where a test here fails, the change is not a rearrangement: name it in the changelog and run ``python -m tests.frozen``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command_line import run
from tests.frozen import surface


def frozen(name: str) -> Any:
    return json.loads((surface.FOLDER / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def names() -> Any:
    return json.loads(json.dumps(surface.names()))


@pytest.mark.parametrize("what", sorted(frozen("names")))
def test_public_names_are_what_they_were(what: str, names: Any) -> None:
    assert names[what] == frozen("names")[what]


def test_released_bytes_are_what_they_were() -> None:
    assert surface.released() == frozen("released")


def test_every_verb_prints_the_same_structure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surface.fixed_secrets(monkeypatch)
    found = json.loads(json.dumps(surface.structures(tmp_path, run)))
    expected = frozen("verbs")
    assert sorted(found) == sorted(expected)
    for call, structure in found.items():
        assert structure == expected[call], call
