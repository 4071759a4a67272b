"""The loss by a bound on contributions: init chooses it, plan and show print it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from connectors.cli.main import tacet
from connectors.operations.inventory.contribution import recorded_contribution
from connectors.operations.policy.contribution_loss import Loss, loss_sentence, losses, stays_of
from connectors.sources.recordings.dialect import OWN
from stream.records import MINUTE, Micros
from stream.release.validation import load_policy
from stream.schemas import rfc3339
from tests.support import office
from tests.support.day_policies import change_release, day_release, day_site, visit_site
from tests.support.small_building import (
    EVENING,
    PLAIN,
    SITE,
    Seen,
    access_point,
    building,
    mac,
    policy_text,
    write_csv,
)


def said(*arguments: str | Path) -> str:
    done = CliRunner().invoke(tacet, ["policy", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    (tmp_path / "aps.csv").write_text(office.inventory())
    return tmp_path / "aps.csv"


def written(listed: Path, contribution: str) -> str:
    text = said("init", "--access-points", listed, "--site", office.SITE, "--timezone", "UTC", "--count", "ticks")
    assert 'contribution = "12h"' in text
    return text.replace('contribution = "12h"', f'contribution = "{contribution}"')


def office_losses(text: str) -> list[Loss]:
    policy = load_policy(text, "p")
    stays = stays_of(policy)
    stays[office.SITE].add((each.device, each.time) for each in office.observations(1))
    return losses(policy, stays)


def test_a_bound_of_six_hours_hides_an_office_in_the_afternoon_and_one_of_twelve_nobody(listed: Path) -> None:
    (short,) = office_losses(written(listed, "6h"))
    assert short["bounded_to"] == "6h"
    assert short["at"] is not None
    assert "16:00" <= short["at"] <= "17:00"
    assert short["hidden"] > 0.95
    (long,) = office_losses(written(listed, "12h"))
    assert (long["at"], long["hidden"]) == (None, 0)


@pytest.mark.parametrize(
    ("release", "site", "sites"),
    [
        (day_release(), day_site(), [SITE]),
        (PLAIN, day_site(), []),
        (change_release(), visit_site(more='contribution = "8h"\n'), []),
    ],
    ids=["part of a day", "windows", "changes"],
)
def test_what_counts_a_device_for_a_part_of_its_day_is_bounded(release: str, site: str, sites: list[str]) -> None:
    """Each window that is paid for by itself counts all devices, and changes are bounded by visits."""
    assert list(stays_of(load_policy(policy_text(release, site=site)))) == sites


@pytest.mark.parametrize(
    ("hidden", "share"),
    [
        (0.984, "about 98 %"),
        (0.999, "nearly all"),
        (0.004, "less than 1 %"),
    ],
)  # fmt: skip
def test_the_loss_is_one_plain_sentence(hidden: float, share: str) -> None:
    sentence = (
        f"after 6 h of a day a device is not counted; at 16:00 this hides {share} of the devices of the tried day."
    )
    assert loss_sentence({"site": "s", "bounded_to": "6h", "at": "16:00", "hidden": hidden}) == f"Site s: {sentence}"


def test_that_nobody_is_hidden_is_said_too() -> None:
    sentence = "Site s: after 12 h of a day a device is not counted; on the tried day this hides no device."
    assert loss_sentence({"site": "s", "bounded_to": "12h", "at": None, "hidden": 0.0}) == sentence


def test_a_recording_says_how_long_a_device_has_to_count(tmp_path: Path) -> None:
    """The office's people are there for less than ten hours; 99 of 100 of their days lie within the bound."""
    rows = (f"{rfc3339(each.time)},{each.device},{each.access_point},{office.SITE}" for each in office.observations(1))
    (tmp_path / "day.csv").write_text("\n".join(["time,device,access_point,site", *rows]) + "\n")
    text = said("init", "--from-observations", tmp_path / "day.csv", "--timezone", "UTC", "--count", "ticks")
    (bound,) = re.findall(r'^contribution = "([^"]+)" .*covers 99 % of the recording', text, flags=re.MULTILINE)
    assert bound in ("9h", "570min", "10h", "630min")
    assert office_losses(text)[0]["hidden"] < 0.2


def recorded(folder: Path, ticks: list[int], *, before: Micros = MINUTE) -> str | None:
    """Return the bound that suits a recording of devices, of which each is there at so many ticks of 15 minutes."""
    policy = building(releases=day_release(), site=day_site())
    seen = [
        Seen(EVENING + tick * 15 * MINUTE - before, mac(number), access_point("a"))
        for number, count in enumerate(ticks)
        for tick in range(count)
    ]
    return recorded_contribution(write_csv(folder / "rows.csv", sorted(seen)), policy, OWN)


@pytest.mark.parametrize(
    ("longer", "bound"),
    [(0, "1h"), (2, "1h"), (3, "2h"), (200, "2h")],
    ids=["nobody stays longer", "one of a hundred does", "more than one of a hundred", "everybody"],
)
def test_the_bound_of_a_recording_covers_99_of_100_days_of_devices_in_half_hours(
    tmp_path: Path, longer: int, bound: str
) -> None:
    """Of 200 devices, that are there for 45 minutes or for 105."""
    assert recorded(tmp_path, [7] * longer + [3] * (200 - longer)) == bound


def test_a_recording_of_devices_that_are_there_at_no_tick_has_no_bound(tmp_path: Path) -> None:
    assert recorded(tmp_path, [1], before=-MINUTE) is None


@pytest.mark.parametrize("verb", ["show", "plan"])
def test_show_and_plan_print_the_loss(listed: Path, tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.operations.policy.plan.expected_quality", lambda *_: {})
    monkeypatch.setattr("connectors.operations.policy.comparison.comparable", lambda _: [])
    policy = tmp_path / "p.toml"
    policy.write_text(written(listed, "2h"))
    found = json.loads(said(verb, policy, "--json"))["losses"]
    assert [(each["site"], each["bounded_to"]) for each in found] == [(office.SITE, "2h")]
    assert found[0]["hidden"] > 0.05
    words = " ".join(said(verb, policy).split())
    assert f"at {found[0]['at']} this hides about {100 * found[0]['hidden']:.0f} % of the devices" in words
    assert "after 2 h of a day a device is not counted" in words
