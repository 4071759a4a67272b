"""Many readers at once: no record is lost, none is sent twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command_line import tacet
from tests.benchmarks.bench_serve import SECONDS, STREAMS, measured


async def run(folder: Path, streams: int, seconds: float) -> None:
    tacet("demo", "--json", "--dir", folder / "demo")
    figures = {figure.name: figure for figure in await measured(folder / "demo", streams, seconds)}
    assert all(figures[name].met for name in ("releases lost", "releases twice"))


@pytest.mark.long
async def test_two_hundred_streams_lose_nothing_beside_fifty_questions_a_second(tmp_path: Path) -> None:
    """How soon questions are answered, and how many are told to come again, is `make bench`'s to say: it depends on
    the machine, and what is lost does not."""
    await run(tmp_path, STREAMS, SECONDS)
