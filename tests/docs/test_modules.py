"""docs/reference/modules.md lists every module, with what its docstring says."""

from __future__ import annotations

import runpy

from tests.support.documents import ROOT


def test_the_list_of_modules_is_what_the_docstrings_say() -> None:
    made = runpy.run_path(str(ROOT / "docs/modules.py"))
    assert made["TARGET"].read_text() == made["page"](), "run 'make docs'"
