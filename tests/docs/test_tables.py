"""The tables of commands and metrics in docs/reference are those of the code, and leave none out."""

from __future__ import annotations

import re
import runpy

import pytest

from connectors.cli.main import tacet
from connectors.monitoring.catalogue import METRICS
from tests.support.documents import ROOT, part
from tests.support.verb_tree import all_verbs


def test_generated_tables_are_up_to_date() -> None:
    pages = runpy.run_path(str(ROOT / "docs/tables.py"))["pages"]()
    assert len(pages) == 2
    for path, text in pages.items():
        assert path.read_text() == text, "run 'make docs'"


@pytest.mark.parametrize(("name", "pattern", "there"), [
    ("commands", r"`([a-z -]+)`", set(all_verbs(tacet))),
    ("metrics", r"`(\w+)`", {metric.name for metric in METRICS}),
])  # fmt: skip
def test_every_row_is_there_once(name: str, pattern: str, there: set[str]) -> None:
    listed = re.findall(pattern, part(name), flags=re.MULTILINE)
    assert sorted(listed) == sorted(there)
