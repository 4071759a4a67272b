"""The promise of a policy that pays by the day, in figures and as a sentence to sign."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from stream.errors import PolicyError
from stream.release.count_guarantees import count_guarantees
from stream.release.validation import load_policy
from tests.acceptance.command_line import run
from tests.unit.release.test_day_releases import RELEASE, SITE

ATTRIBUTES = """
[[release]]
name = "office"
query = "attributes"
zones = { ids = "101" }
[release.attributes.arrival]
epsilon = { facilities = "0.5" }
sensitive = { after = "10:00" }
"""


def shown(folder: Path, text: str, *options: str) -> str:
    path = folder / "policy.toml"
    path.write_text(text)
    done = run("policy", "show", str(path), *options)
    assert done.code == 0, done.problem
    return done.out


def test_a_reader_can_sign_what_a_day_costs(tmp_path: Path) -> None:
    """sigma for 96 ticks at epsilon 2; 2.93 is a day replaced by another, of 192 counts."""
    lines = " ".join(shown(tmp_path, SITE + RELEASE).split())
    assert (
        "day for public: everything that is published of one device's day, from 04:00 to 04:00, of which it counts for "
        "at most 8 h, costs epsilon 2 where that day is added or removed, 2.93 where any part of it is changed, with "
        "delta 1e-06 for each device and day: 0.03 for 1,000 devices over 30 days." in lines
    )
    assert "day, laplace public 21.86 2 2.93 6.87" in lines
    assert "day, laplace all 11.7 4 5.93" in lines


def test_laplace_keeps_its_price_without_a_delta(tmp_path: Path) -> None:
    lines = " ".join(shown(tmp_path, SITE + RELEASE.replace('"gaussian"', '"laplace"')).split())
    assert "costs epsilon 2 where that day is added or removed, 4 where any part of it is changed." in lines


def test_json_has_each_unit_with_its_delta(tmp_path: Path) -> None:
    report = orjson.loads(shown(tmp_path, SITE + RELEASE, "--json"))
    [public] = [row for row in report["counts"] if row["reader"] == "public"]
    assert public["epsilon"]["device_day"] == "inf"
    assert public["tight"]["device_day"] == {"epsilon": pytest.approx(2, abs=0.01), "delta": 1e-6}
    assert public["tight"]["device_day"]["epsilon"] <= 2
    assert (public["unit"], public["noise"], public["ticks"], public["delta"]) == (
        "device_day", "gaussian", 96, "0.000001",
    )  # fmt: skip


def test_whoever_is_told_less_than_a_day_is_told_the_price_of_a_day_replaced() -> None:
    [public] = [p for p in count_guarantees(load_policy(SITE + RELEASE)) if p.reader == "public"]
    moved = public.tight["device_day_moved"]
    assert {public.tight[unit] for unit in ("presence_tuple", "observation", "observation_moved")} == {moved}
    assert public.tight["device_w_event"] > moved


@pytest.mark.parametrize("where", ["gaussian", "laplace"])
def test_counts_of_a_day_over_a_zone_with_attributes_are_bounded_or_refused(where: str) -> None:
    text: Any = SITE + RELEASE.replace('"gaussian"', f'"{where}"') + ATTRIBUTES
    with pytest.raises(PolicyError, match="its odds factor together with the counts of the same zones"):
        load_policy(text)


def test_a_probability_with_which_the_factor_may_fail_lets_gaussian_counts_stand_beside_attributes(
    tmp_path: Path,
) -> None:
    """Both readers' days, changed, for three devices: a small epsilon, or the factor is passed all the same."""
    small = RELEASE.replace('"2"', '"0.1"').replace('"4"', '"0.1"')
    text = SITE + small + ATTRIBUTES + '[privacy]\nfactor_delta = "0.001"\nmax_factor = 30.0\n'
    load_policy(text)
    output = " ".join(shown(tmp_path, text).split())
    assert "may fail with probability 0.001 for each charged day of each release" in output
    refused = text.replace("max_factor = 30.0", "max_factor = 2.0")
    with pytest.raises(PolicyError, match=r"at most privacy\.max_factor"):
        load_policy(refused)
