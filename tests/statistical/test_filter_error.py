"""Error of the released counts on a real building: Wi-Fi clients every five minutes, October 2019."""

import csv
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.mechanisms.counts import Naming, count_mechanism, release_counts
from stream.mechanisms.filter_calendar import Slot
from stream.mechanisms.noise import Ints
from stream.records import DAY, MINUTE

F = Fraction
TABLE = Path(__file__).parents[3] / "shared/data/lbnl-wifi-counts/campus1_building_device_count.csv"
CAPACITY = 1200
pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not TABLE.exists(), reason=f"no ../shared/data/{TABLE.parent.name} beside the project"),
]


def slot(end: int) -> Slot:
    minute = end // MINUTE % 1440
    return Slot(minute // 30, minute // 60, (end // DAY + 3) % 7 >= 5, (end - 1) // DAY)


NAMING = Naming("campus1", "counts", ("building",), lambda day: b"k" * 24 + day.to_bytes(8, "big"), slot)


def building() -> tuple[Ints, Ints]:
    rows = list(csv.reader(TABLE.read_text().splitlines()))[1:]
    times = [int(datetime.fromisoformat(row[0]).replace(tzinfo=UTC).timestamp()) * 1_000_000 for row in rows]
    return np.array(times), np.array([[int(row[1])] for row in rows])


@cache
def mean_error(name: str, epsilon: str) -> float:
    """Mean absolute error of a mechanism, negative values taken as 0."""
    mechanism = count_mechanism(name, epsilon=F(epsilon), max_counts=[CAPACITY])
    times, counts = building()
    values, _ = release_counts(mechanism, NAMING, times, counts)
    return float(np.abs(np.maximum(values, 0) - counts).mean())


def sampled(case: str, *samples: str) -> Any:
    """Leave all cases but the samples to ``make nightly``."""
    return case if case in samples else pytest.param(case, marks=pytest.mark.long)


GAINS = {"0.05": 2.0, "0.1": 2.0, "0.5": 2.45, "1": 3.0}
EPSILONS = [sampled(each, "0.1", "1") for each in GAINS]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_filter_is_far_better_than_pegasus(epsilon: str) -> None:
    assert mean_error("filter", epsilon) * GAINS[epsilon] <= mean_error("pegasus", epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_filter_is_never_worse_than_clipped_laplace(epsilon: str) -> None:
    assert mean_error("filter", epsilon) <= 1.02 * mean_error("laplace", epsilon)
    assert mean_error("laplace", epsilon) == pytest.approx(1 / np.sinh(float(epsilon)), rel=0.08)
