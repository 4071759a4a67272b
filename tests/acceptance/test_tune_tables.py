"""The tables of the tuning document, made again by the lines that stand above them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.acceptance.command_line import run
from tests.documents import DOCUMENTS

BLOCKS = re.findall(r"^```text\n(.*?)^```", DOCUMENTS["docs/tuning.md"], flags=re.MULTILINE | re.DOTALL)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.long
def test_tables_are_what_their_lines_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise comes from the seed, so that they are the same to the last digit; the second has ``--clamp`` besides."""
    monkeypatch.chdir(tmp_path)
    words, table, clamped = BLOCKS
    simulate, tune = (shlex.split(line)[1:] for line in words.replace("\\\n", "").splitlines())
    assert run(*simulate).code == 0
    plain = [word for word in tune if word not in ("pegasus", "ttl")]
    first = plain.index("--mechanism")
    for block, asked in ((table, tune), (clamped, [*plain[: first + 2], "--clamp"])):
        done = run(*asked)
        assert done.code == 0, done.problem
        assert lines(done.out)[: len(lines(block))] == lines(block)
