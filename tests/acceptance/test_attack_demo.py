"""The documents' figures of attackers, recomputed on the demo's building."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.acceptance.command_line import run
from tests.support.documents import DOCUMENTS

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]
DOCUMENT = DOCUMENTS["docs/measurements.md"]
READ: tuple[dict[str, Any], ...] = (
    {"reads": "counts"},
    {"reads": "ttl", "width": "0.1"},
    {"release": "occupancy", "reads": "noisy", "law": "exact"},
    {"release": "floors", "reads": "noisy", "law": "exact"},
)
"""Columns of the table, behind the prior."""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    made = ("--out", folder / "observations.csv", "--policy-out", folder / "policy.toml")
    assert run("simulate", "--days", "15", "--scale", "0.45", "--always-on", "75", *made).code == 0
    return folder


def files(folder: Path) -> tuple[str | Path, ...]:
    return ("--observations", folder / "observations.csv", "--policy", folder / "policy.toml")


def one(answer: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    (row,) = (each for each in answer["attacks"] if all(each.get(name) == wanted[name] for name in wanted))
    return dict(row)


def cells(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the cells of an attacker's row: shares of right guesses, and people found by the mean span."""
    yield answer["attacker"]
    yield f"{np.mean(answer['people']):.0f}"
    yield f"{one(answer, {'reads': 'nothing'})['success']['share']:.0%}".replace("%", " %")
    for wanted in READ:
        row = one(answer, wanted)
        found = np.sum(row["found"]["by_guess"], axis=1).mean()
        yield f"{row['success']['share']:.0%}, {found:.2f}".replace("%", " %")


def line(cells: Iterator[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def following(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the rows of the table of who is followed."""
    for each in answer["followed"]:
        shares = [each[name]["share"] for name in ("mobility", "alike", "knowing")]
        reported = [f"{share:.0%}".replace("%", " %") for share in shares]
        most = each["believed_at_most"]
        yield line(iter([f"`{each['release']}`", *reported, "-" if most is None else f"{most:.1%}".replace("%", " %")]))


@pytest.mark.parametrize("attacker", ["external", "student", "admin"])
def test_whom_attackers_find_is_what_the_document_says(scenario: Path, attacker: str) -> None:
    out = scenario / attacker
    answer = run("attack", *files(scenario), "--attacker", attacker, "--out", out, "--json").answer
    assert line(cells(answer)) in DOCUMENT
    if attacker == "external":  # the others follow the same people
        assert [row for row in following(answer) if row not in DOCUMENT] == []


def test_what_membership_shows_is_what_the_document_says(scenario: Path) -> None:
    chosen = ("--release", "occupancy", "--release", "office-day", "--json")
    for each in run("attack", "membership", *files(scenario), *chosen).answer["tried"]:
        promise = [f"`{each['release']}`", each["audience"], each["unit"].replace("_", "'s "), f"{each['epsilon']:g}"]
        assert line(iter([*promise, f"{each['shown']:.2f}", f"{each['largest_ratio']:.2f}"])) in DOCUMENT


def test_a_day_that_is_paid_as_a_whole_shows_no_more_than_its_price(scenario: Path) -> None:
    (each,) = run("attack", "membership", *files(scenario), "--release", "floors", "--runs", "100", "--json").answer[
        "tried"
    ]
    assert each["shown"] <= each["epsilon"] == 2.0
    assert 0 < each["largest_ratio"] < 2.5
