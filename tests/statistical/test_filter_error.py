"""Error of the released counts on a real building: Wi-Fi clients every five minutes, October 2019."""

import csv
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.mechanisms.base import WeekSlot
from stream.mechanisms.exact import Ints
from stream.mechanisms.registry import ReleaseContext, count_mechanism, release_counts
from stream.records import DAY, MINUTE

F = Fraction
TABLE = Path(__file__).parents[3] / "shared/data/lbnl-wifi-counts/campus1_building_device_count.csv"
CAPACITY = 1200
pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not TABLE.exists(), reason=f"no ../shared/data/{TABLE.parent.name} beside the project"),
]


def slot(end: int) -> WeekSlot:
    minute = end // MINUTE % 1440
    return WeekSlot(minute // 30, minute // 60, (end // DAY + 3) % 7 >= 5, (end - 1) // DAY)


NAMING = ReleaseContext("campus1", "counts", ("building",), lambda day: b"k" * 24 + day.to_bytes(8, "big"), slot)


MONTH, FORTNIGHT = 8928, 14 * 288
"""Windows: of the whole recording, and of as much of it as tells whether a promise is kept."""


def building(windows: int = MONTH) -> tuple[Ints, Ints]:
    rows = list(csv.reader(TABLE.read_text().splitlines()))[1 : windows + 1]
    times = [int(datetime.fromisoformat(row[0]).replace(tzinfo=UTC).timestamp()) * 1_000_000 for row in rows]
    return np.array(times), np.array([[int(row[1])] for row in rows])


@cache
def mean_error(name: str, epsilon: str, windows: int) -> float:
    """Mean absolute error of a mechanism, negative values taken as 0."""
    mechanism = count_mechanism(name, epsilon=F(epsilon), max_counts=[CAPACITY])
    times, counts = building(windows)
    values, _ = release_counts(mechanism, NAMING, times, counts)
    return float(np.abs(np.maximum(values, 0) - counts).mean())


GAINS = {"0.05": 2.0, "0.1": 2.0, "0.5": 2.45, "1": 3.0}
EARLY = {"0.1": 2.0, "1": 2.9}
"""Within a fortnight: 2.11 and 3.06 by the key that these tests have, up to 2.2 and 3.2 by others."""


def sampled(early: Mapping[str, float], late: Mapping[str, float], *samples: str) -> list[Any]:
    """Leave all cases but the samples to ``make nightly``: (epsilon, windows, by how many times better)."""
    cases = [(each, windows, gains[each]) for windows, gains in ((FORTNIGHT, early), (MONTH, late)) for each in gains]
    return [
        case if case[:2] in {(each, FORTNIGHT) for each in samples} else pytest.param(*case, marks=pytest.mark.long)
        for case in cases
    ]


CASES = pytest.mark.parametrize(("epsilon", "windows", "gain"), sampled(EARLY, GAINS))
"""All are left to the night: that of epsilon 1 is tried with revised values, in ``test_revised_error.py``."""


@CASES
def test_filter_is_far_better_than_pegasus(epsilon: str, windows: int, gain: float) -> None:
    assert mean_error("filter", epsilon, windows) * gain <= mean_error("pegasus", epsilon, windows)


@CASES
def test_filter_is_never_worse_than_clipped_laplace(epsilon: str, windows: int, gain: float) -> None:
    assert mean_error("filter", epsilon, windows) <= 1.02 * mean_error("laplace", epsilon, windows)


@pytest.mark.parametrize("epsilon", GAINS)
def test_laplace_errs_as_its_law_says(epsilon: str) -> None:
    """Over 8,928 windows by 1 % from key to key, and a little less where it would be negative."""
    assert mean_error("laplace", epsilon, MONTH) == pytest.approx(1 / np.sinh(float(epsilon)), rel=0.08)
