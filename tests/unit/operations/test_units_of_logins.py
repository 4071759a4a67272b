"""What is shown of prices and errors says login where logins count, and device where devices do."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from connectors.cli.account import _print_account
from connectors.cli.main import tacet
from connectors.operations.account import login_sites, summary
from connectors.operations.policy.comparison import day_of, unit_of
from connectors.operations.policy.contribution_loss import loss_sentence, losses, simulated_stays
from connectors.operations.policy.guarantees import guarantee_lines, unit_words
from connectors.operations.policy.plan import Target, Targets
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument
from stream.release.validation import Policy, load_policy
from tests.support.day_policies import day_release
from tests.support.small_building import SITE, policy_text

LOGINS = 'day_starts = "04:00"\ncontribution = "8h"\nidentity = "login"\nothers = "count"\n'
DEVICES = 'day_starts = "04:00"\ncontribution = "8h"\n'


def policy(site: str) -> Policy:
    return load_policy(policy_text(day_release(), tick="1h", site=site))


def test_the_unit_is_the_login_with_all_its_devices() -> None:
    assert unit_words(policy(LOGINS)) == {
        "unit": "one login at one site, with all its devices", "have": "have", "devices": "3"
    }  # fmt: skip
    assert guarantee_lines(policy(LOGINS), "public")[0].startswith(
        "The unit is one login at one site, with all its dev"
    )
    assert guarantee_lines(policy(DEVICES), "public")[0].startswith("The unit is one MAC address at one site. A person")


def test_a_policy_with_both_kinds_of_sites_names_both_units() -> None:
    one, other = policy(LOGINS), policy(DEVICES)
    values = dict(one) | {"site": {SITE: one.site[SITE], "annex": other.site[SITE]}}
    both = PolicyDocument.model_construct(**values)
    assert unit_words(both)["unit"] == "one MAC address at one site, or one login with its devices where logins count"


@pytest.mark.parametrize(("site", "unit", "other"), [(LOGINS, "login", "device"), (DEVICES, "device", "login")])
def test_what_a_bound_hides_and_what_is_compared_are_of_that_unit(site: str, unit: str, other: str) -> None:
    valid = policy(site)
    [loss] = losses(valid, simulated_stays(valid))
    sentence = loss_sentence(loss)
    assert f"a {unit} is not counted" in sentence
    assert other not in sentence
    assert unit_of(valid.site[SITE]) == unit
    assert day_of(valid.site[SITE]) == "desks"


@pytest.mark.parametrize(("site", "unit"), [(LOGINS, "login"), (DEVICES, "device")])
def test_a_target_is_paid_by_the_day_of_that_unit(
    site: str, unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (release,) = policy(site).release
    assert isinstance(release, CountRelease)
    found = Targets("version", Fraction(1, 10), [Target(SITE, release, "zone")])
    monkeypatch.setattr("connectors.cli.policy._targets", lambda *_: found)
    path = tmp_path / "policy.toml"
    path.write_text(policy_text(day_release(), tick="1h", site=site))
    done = CliRunner().invoke(tacet, ["policy", "plan", str(path), "--target-error", "10%"])
    assert done.exit_code == 0, done.output
    assert f"a {unit}'s day" in done.stdout


def test_the_account_has_logins_only_where_they_count_under_every_policy(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = policy(LOGINS), policy(DEVICES)
    assert login_sites([one]) == {SITE}
    assert login_sites([one, other]) == frozenset()
    costs = {"device_day": "2", "person_day": "6", "tight": {}}
    last = {"window_end": "2026-03-02T20:00:00Z", "audiences": {"public": costs}, "coalition": {}, "left": {},
            "refused": 0}  # fmt: skip
    record = {"site": SITE, "kind": "counts", **last}
    for logins, unit in ((frozenset({SITE}), "one login"), (frozenset[str](), "one device")):
        _print_account(summary([record], (), logins), all_rows=False)
        assert unit in capsys.readouterr().out
