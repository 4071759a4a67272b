"""``tacet release``: the noise that its options buy, and what it says of a table."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from connectors.cli.release import ReleaseCost, noise_of_table
from stream.mechanisms.noise_parameters import NoiseParameter, laplace_noise
from stream.release.prices import DayPrice
from tests.acceptance.command_line import here, run

COUNTS = """\
time,zone,count
2026-03-02T10:00:00Z,hall,4
2026-03-02T10:00:00Z,loft,0
2026-03-02T10:05:00Z,hall,5
2026-03-02T10:05:00Z,loft,1
2026-03-02T10:10:00Z,hall,3
2026-03-02T10:10:00Z,loft,2
"""
WORDS = ("--mechanism", "laplace", "--epsilon", "1")


@pytest.mark.parametrize(("given", "delta"), [(None, Fraction(1, 10**6)), ("1e-9", Fraction(1, 10**9))])
def test_a_day_with_gaussian_noise_has_the_delta_that_is_given_or_a_millionth(
    given: str | None, delta: Fraction
) -> None:
    noise = noise_of_table(ReleaseCost("filter", "2", "gaussian", "device_day", 96, given))
    assert noise == NoiseParameter("gaussian", DayPrice("gaussian", Fraction(2), delta, 96).parameters[0])


def test_a_window_has_laplace_noise_of_its_epsilon() -> None:
    assert noise_of_table(ReleaseCost("laplace", "0.5", "laplace", "window", None, None)) == laplace_noise(
        Fraction(1, 2)
    )


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--mechanism", "laplace", "--epsilon", "much"), "--epsilon: "),
        (("--mechanism", "pegasus", "--epsilon", "0.00001"), "--epsilon: must be at least 0.00005 with pegasus"),
        (("--mechanism", "filter", "--epsilon", "2", "--unit", "device_day", "--ticks", "96", "--noise", "gaussian",
          "--delta", "none"), "--delta: "),
        (("--mechanism", "ba", "--epsilon", "1"), "'ba' is not one of"),
    ],
)  # fmt: skip
def test_a_price_that_is_none_is_refused_with_its_option(tmp_path: Path, words: tuple[str, ...], rule: str) -> None:
    done = run("release", tmp_path / "counts.csv", *words, "--key-file", "key", "--out", tmp_path / "out.csv")
    assert (done.code, rule in done.problem, "internal" in done.problem) == (2, True, False), done.problem


def test_the_released_table_is_counted_for_people_and_for_programs(tmp_path: Path) -> None:
    here("key", "create", tmp_path / "key", "--laboratory")
    (tmp_path / "counts.csv").write_text(COUNTS)
    words = ("release", tmp_path / "counts.csv", *WORDS, "--key-file", tmp_path / "key", "--out")
    assert run(*words, tmp_path / "one.csv").out == f"3 windows of 2 zone(s) → {tmp_path / 'one.csv'}\n"
    answer = run(*words, tmp_path / "two.csv", "--json").answer
    assert answer == {"rows": 6, "zones": 2, "windows": 3, "bad": 0, "left_out": 0, "laboratory": True}
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
