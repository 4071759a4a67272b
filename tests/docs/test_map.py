"""The map of the code in docs/architecture.md names every room and every module, and none that is not there."""

from __future__ import annotations

import re
from fnmatch import fnmatch

import pytest

from tests.documents import ROOT, section


def map_of(folder: str) -> str:
    """Return the part of the map below ``folder/``."""
    whole = section("docs/architecture.md", "Map of the code").partition("```\n")[2].partition("```")[0]
    (found,) = [text for text in re.split(r"^(?=[a-z]+/)", whole, flags=re.MULTILINE) if text.startswith(folder)]
    return found


@pytest.mark.parametrize("folder", ["connectors", "stream", "tacet"])
def test_every_module_is_on_the_map(folder: str) -> None:
    named = set(re.findall(r"\b[a-z_]+\b\*?", map_of(folder)))
    for path in (ROOT / folder).rglob("*.py"):
        if not path.stem.startswith("__"):
            assert any(fnmatch(path.stem, name) for name in named), path.relative_to(ROOT)
            assert path.parent.name in named, path.relative_to(ROOT)


@pytest.mark.parametrize("folder", ["connectors", "stream", "tacet"])
def test_no_module_is_on_the_map_that_is_not_there(folder: str) -> None:
    there = [path.name for path in (ROOT / folder).rglob("*") if path.suffix == ".py" or path.is_dir()]
    listed = re.findall(r"\b[a-z_]+\*?\.py\b", map_of(folder))
    listed += re.findall(r"^ +([a-z]+)/", map_of(folder), flags=re.MULTILINE)
    assert listed
    assert not [name for name in listed if not any(fnmatch(each, name) for each in there)]
