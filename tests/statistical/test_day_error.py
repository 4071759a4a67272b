"""What a device's whole day buys on a real building: ``tacet release`` on Wi-Fi clients every five minutes.

Each run has a key of its own. The mean error of 8,928 windows, of which neighbouring hundreds hang together, varies by
about 2 % from key to key (8.6 against a bound of 9.5, 40 against 30): a false alarm has a probability below 1e-6.
"""

from __future__ import annotations

import csv
import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from connectors.cli import tacet
from tests.statistical.test_filter_error import TABLE

pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not TABLE.exists(), reason=f"no ../shared/data/{TABLE.parent.name} beside the project"),
]
DAY = ("--noise", "gaussian", "--unit", "device_day", "--ticks", "96", "--epsilon", "2", "--delta", "1e-6")
WINDOW = ("--noise", "laplace", "--epsilon", "0.00692")
"""2 / 289: the same epsilon a day without a bound on contributions, added up."""


def write_counts(folder: Path) -> list[int]:
    rows = list(csv.reader(TABLE.read_text().splitlines()))[1:]
    with (folder / "counts.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("time", "zone", "count"))
        writer.writerows((f"{time.replace(' ', 'T')}Z", "building", count) for time, count in rows)
    return [int(count) for _, count in rows]


def released(case: tuple[str, tuple[str, ...]]) -> tuple[float, float]:
    """Return the scale of a day's noise, 0 where a window is paid, and the mean absolute error."""
    folder, options = Path(case[0]), case[1]
    counts, out = write_counts(folder), folder / "out.csv"
    key = folder / "lab.key"
    assert CliRunner().invoke(tacet, ["key", "create", "--laboratory", str(key)]).exit_code == 0
    command = ["release", str(folder / "counts.csv"), "--mechanism", "filter", *options, "--key-file", str(key)]
    made = CliRunner().invoke(tacet, [*command, "--out", str(out), "--json"])
    assert made.exit_code == 0, made.output
    values = [int(row["value"]) for row in csv.DictReader(out.read_text().splitlines())]
    errors = [abs(value - count) for value, count in zip(values, counts, strict=True)]
    return float(orjson.loads(made.stdout).get("noise_scale", 0)), math.fsum(errors) / len(errors)


def test_a_day_at_epsilon_2_errs_three_and_a_half_times_less_than_added_up(tmp_path: Path) -> None:
    cases = [("day", DAY), ("window", WINDOW)]
    for name, _ in cases:
        (tmp_path / name).mkdir()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        (sigma, by_day), (_, by_window) = pool.map(released, [(str(tmp_path / name), how) for name, how in cases])
    assert sigma == pytest.approx(21.9, rel=0.01)
    assert by_day <= 9.5
    assert by_window >= 3.5 * by_day
