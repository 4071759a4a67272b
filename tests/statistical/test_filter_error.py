"""Error of the released counts on a real building: Wi-Fi clients every five minutes, October 2019."""

import csv
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path

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
    return Slot(minute // 30, minute // 60, (end // DAY + 3) % 7 >= 5)


NAMING = Naming("campus1", "counts", ("building",), lambda day: b"k" * 24 + day.to_bytes(8, "big"), slot)


def building() -> tuple[Ints, Ints]:
    rows = list(csv.reader(TABLE.read_text().splitlines()))[1:]
    times = [int(datetime.fromisoformat(row[0]).replace(tzinfo=UTC).timestamp()) * 1_000_000 for row in rows]
    return np.array(times), np.array([[int(row[1])] for row in rows])


def mean_error(case: tuple[str, str]) -> float:
    name, epsilon = case
    mechanism = count_mechanism(name, epsilon=F(epsilon), max_counts=[CAPACITY])
    times, counts = building()
    values, _ = release_counts(mechanism, NAMING, times, counts)
    return float(np.abs(np.maximum(values, 0) - counts).mean())


GAINS = {"0.05": 2.0, "0.1": 2.0, "0.5": 2.45, "1": 3.0}
CASES = [(name, epsilon) for name in ("filter", "pegasus", "laplace") for epsilon in GAINS]


@pytest.fixture(scope="module")
def errors() -> dict[tuple[str, str], float]:
    """Mean absolute error of each mechanism at each epsilon, negative values taken as 0."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return dict(zip(CASES, pool.map(mean_error, CASES), strict=True))


@pytest.mark.parametrize("epsilon", GAINS)
def test_filter_is_far_better_than_pegasus(epsilon: str, errors: dict[tuple[str, str], float]) -> None:
    assert errors["filter", epsilon] * GAINS[epsilon] <= errors["pegasus", epsilon]


@pytest.mark.parametrize("epsilon", GAINS)
def test_filter_is_never_worse_than_clipped_laplace(epsilon: str, errors: dict[tuple[str, str], float]) -> None:
    assert errors["filter", epsilon] <= 1.02 * errors["laplace", epsilon]
    assert errors["laplace", epsilon] == pytest.approx(1 / np.sinh(float(epsilon)), rel=0.08)
