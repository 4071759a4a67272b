"""docs/measurements.md: ``make bench`` writes a section for each benchmark, a test recomputes each other one."""

from __future__ import annotations

import re
from pathlib import Path

from tests.benchmarks.__main__ import BENCHMARKS
from tests.benchmarks.page import update
from tests.benchmarks.shared import Figure
from tests.support.documents import DOCUMENTS, ROOT, section

FAST, SLOW = Figure("a | b", 0.12345, "s", "<= 1"), Figure("rows", 23456, "rows/s", ">= 50,000", met=False, note="CPU")


def test_a_section_is_replaced_and_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Measurements\n\nIntroduction.\n")
    update(page, "Traps", "before", [SLOW])
    update(page, "Noise (CPU)", "2 cores", [FAST, Figure("printed only", 1.0, "s", detail="more", aside=True)])
    before = page.read_text()
    update(page, "Traps", "after", [SLOW])
    assert page.read_text() == before.replace("before", "after")
    assert before.startswith("# Measurements\n\nIntroduction.\n\n## Traps\n\nbefore\n\n| measured |")
    assert "\n| rows | 23,456 rows/s | >= 50,000 (missed) | CPU |\n\n## Noise (CPU)\n" in before
    assert before.endswith("\n| a \\| b | 0.123 s | <= 1 |\n")


def test_each_section_belongs_to_a_benchmark_or_names_the_test_that_recomputes_it() -> None:
    page = "docs/measurements.md"
    titles = re.findall(r"^## (.*)$", DOCUMENTS[page], flags=re.MULTILINE)
    assert titles
    for title in set(titles) - {title for title, _ in BENCHMARKS.values()}:
        (path,) = re.findall(r"\ABy `(tests/\S+\.py)`\.", section(page, title).lstrip())
        assert (ROOT / path).exists()
