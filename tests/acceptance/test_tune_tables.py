"""The tables of the most private candidates, recomputed by the commands above them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.acceptance.command_line import run
from tests.support.documents import section

PAGE = section("docs/measurements.md", "Most private candidates")
BLOCKS = re.findall(r"^```text\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.long
def test_tables_are_what_their_lines_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise comes from the seed: the same to the last digit. The second table has a day's price."""
    monkeypatch.chdir(tmp_path)
    words, table, by_day = BLOCKS
    simulate, tune = (shlex.split(line)[1:] for line in words.replace("\\\n", "").splitlines())
    assert run(*simulate).code == 0
    for block, query in ((table, tune), (by_day, [*tune[:-2], "--unit", "device_day"])):
        done = run(*query)
        assert done.code == 0, done.problem
        assert lines(done.out)[: len(lines(block))] == lines(block)
    building = "--task building --utility 0.9 --period day --period night --mechanism laplace --epsilon-min 0.001"
    [found] = [line for line in lines(run(*tune[:5], *building.split()).out) if "laplace" in line and " day " in line]
    assert found.split()[2] == "0.03"  # docs/tuning.md
