"""A whole day in minutes: memory, descriptors and disk do not grow beyond what was released."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.soak import Sample, slope, soak

LOG_PAGES = 1200 * 4096
"""Bytes of a write-ahead log, which SQLite takes up every 1,000 pages."""


@pytest.mark.long
def test_over_a_day_with_four_sources_memory_descriptors_and_disk_of_work_do_not_grow(tmp_path: Path) -> None:
    made = soak(tmp_path)
    for of in sorted(made.samples[-1].figures):
        row = [each.figures[of] for each in made.samples]
        quarters = " ".join(f"{row[len(row) * quarter // 4 - 1]:14,.0f}" for quarter in (1, 2, 3, 4))
        print(f"{of:20} {quarters} {slope(made.samples, of):8.2%}")
    print(made.sent, made.told)
    growing = ("run memory", "serve memory", "run descriptors", "serve descriptors", "disk of work")
    assert {of: slope(made.samples, of) for of in growing if slope(made.samples, of) >= 0.01} == {}
    assert max(each.figures["largest log"] for each in made.samples) <= LOG_PAGES
    third, last = (kept(made.samples, quarter) for quarter in (2, 3))
    assert last <= 1.25 * third, "what is kept grows by the window, not by what there is"
    assert made.told["accepted"] >= 0.98 * made.told["datagrams"] > 0
    assert not made.told["kernel_drops"]
    assert made.told["requests_answered"] > 0, "accounting"


def kept(samples: list[Sample], quarter: int) -> float:
    """Return by how many bytes what is kept grew over a quarter of the day."""
    size = len(samples) // 4
    part = samples[quarter * size : (quarter + 1) * size]
    return part[-1].figures["disk kept"] - part[0].figures["disk kept"]
