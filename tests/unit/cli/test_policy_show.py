"""``policy show``: every promise, declared model and budget, in words, within 100 columns."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from connectors.cli.policy import policy as policy_verbs
from connectors.cli.policy_tables import print_guarantees
from connectors.operations.policy.guarantees import forecast_lines, guarantee_lines
from stream.accounting.adversaries import Knowledge
from stream.policy.fields import decimal_string
from stream.release.attribute_guarantees import attribute_guarantees
from stream.release.count_guarantees import count_guarantees
from stream.release.validation import load_policy
from tests.support.day_policies import change_release, day_release, day_site, visit_site
from tests.support.forecasts import with_forecast
from tests.support.small_building import ATTRIBUTES, COUNTS, policy_text

MODEL = """
[release.model]
cuts = { arrival = ["09:00", "10:01"] }
joint = { "00" = 0.05, "01" = 0.35, "10" = 0.10, "11" = 0.30, "20" = 0.12, "21" = 0.08 }
"""
MODELLED = ATTRIBUTES.replace('kind = "office" }', 'kind = "office" }\ninformation_target = 0.5') + MODEL
PRIVACY = """
[privacy]
w = 24
mobility = { forward = [[0.9, 0.1], [0.2, 0.8]] }
meetings = [{ size = 3, correlation = 0.5, presence = 0.3 }]
"""
BUDGETED = """
[[release]]
name = "entrance"
query = "count"
mechanism = "ba"
w = 12
zones = { kind = "lobby" }
epsilon = { public = "1.2" }
daily_budget = { public = "9.6" }

[[release]]
name = "halls"
query = "count"
mechanism = "laplace"
zones = { kind = "hall" }
epsilon = { facilities = "0.5", public = "0.5" }
daily_budget = { facilities = "70" }
w_budget = { facilities = "6" }
refresh = "7d"
"""


def shown(tmp_path: Path, text: Any) -> Any:
    """Return the lines that the command prints on a terminal of 100 columns."""
    (tmp_path / "policy.toml").write_text(text)
    done = CliRunner(env={"COLUMNS": "100"}).invoke(policy_verbs, ["show", str(tmp_path / "policy.toml")])
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 100
    return [" ".join(line.split()) for line in done.output.splitlines()]


@pytest.mark.parametrize("head", ["", PRIVACY])
def test_every_count_release_tells_its_epsilon_in_every_unit(tmp_path: Path, head: Any) -> None:
    """Whoever is elsewhere instead costs twice as much in every unit, which is said once."""
    text = policy_text(COUNTS, head=head)
    lines, policy = shown(tmp_path, text), load_policy(text)
    units = ("presence_tuple", "observation", "device_w_event", "person_w_event", "device_day", "person_day")
    for p in count_guarantees(policy):
        assert (
            " ".join([f"{p.release}, {p.mechanism}", p.reader, *(decimal_string(p.units[u]) for u in units)]) in lines
        )
        for unit in ("tuple", "observation", "device_w_event", "device_day"):
            plain = p.units["presence_tuple" if unit == "tuple" else unit]
            assert p.units[f"{unit}_moved"] == 2 * plain
    heads = " ".join(lines)
    assert f"{policy.privacy.w} windows" in heads
    assert "Moving it elsewhere costs twice the epsilon." in heads
    assert "in a column of its own" not in heads


def test_a_policy_of_whole_days_says_where_the_price_of_a_change_is_printed(tmp_path: Path) -> None:
    """Twice the epsilon is not the price of a day of which a part is changed: 3.83 where the day costs 2."""
    text = " ".join(shown(tmp_path, policy_text(change_release(), site=visit_site())))
    assert "Moving it elsewhere" not in text
    assert "what it costs to change any part of them is in a column of its own." in text
    assert "any part of" in text
    assert "Budgets:" not in text, "its windows are not paid for one by one"
    assert "by at most a factor exp(epsilon), and by delta where noise is gaussian. For whole days" in text


def test_whole_days_tell_the_scale_of_their_noise(tmp_path: Path) -> None:
    """Of gaussian noise the deviation, of which the price knows the square."""
    ticks, changes = policy_text(day_release(), site=day_site()), policy_text(change_release(), site=visit_site())
    for text in (ticks, changes):
        policy, lines = load_policy(text), shown(tmp_path, text)
        assert lines[0] == f"Policy {policy.version}"
        for p in count_guarantees(policy):
            assert p.terms is not None
            scale = p.scales[0] if text == changes else math.sqrt(p.terms.parameters[0])
            assert any(line.startswith(f"{p.release}, {p.mechanism} {p.reader} {scale:.4g} ") for line in lines)


def test_budgets_tell_what_they_pay_for_how_long_and_over_how_many_windows(tmp_path: Path) -> None:
    lines = shown(tmp_path, policy_text(BUDGETED, head=PRIVACY))
    assert "entrance, w = 12 public 0.1 9.6 each day none" in lines
    assert "halls facilities 0.5 70 every 7 days 6" in lines
    assert "halls public 0.5 none none" in lines
    assert "release audience window budget restarts windows" in lines
    assert "halls: audiences with the same epsilon get the same windows: all of them or none." in lines


def test_declared_models_of_moves_and_meetings_are_told_with_what_they_leak(tmp_path: Path) -> None:
    lines = shown(tmp_path, policy_text(BUDGETED, head=PRIVACY))
    assert "0 0.9 0.1" in lines
    assert "1 0.2 0.8" in lines
    assert any("(privacy.meetings): 3 people" in line and "0.3, correlation 0.5" in line for line in lines)
    knowledge = Knowledge.of(load_policy(policy_text(BUDGETED, head=PRIVACY)).privacy)
    assert f"dbh/entrance public 1.2 {knowledge.temporal(1.2):.4g} {knowledge.meeting(1.2):.4g}" in lines
    assert not any("privacy.mobility" in line for line in shown(tmp_path, policy_text(BUDGETED)))


def test_a_declared_model_of_a_day_is_told_in_words_with_its_target_and_its_exact_factors(tmp_path: Path) -> None:
    text = policy_text(MODELLED)
    lines = shown(tmp_path, text)
    for line in (
        "before 09:00 other 0.35", "from 09:00, before 10:01 sensitive 0.1", "from 10:01 (sensitive) sensitive 0.12",
    ):  # fmt: skip
        assert line in lines
    rule = "office-day: sensitive values are arrival after 10:00, occupancy_level below 0.3; a day on which nobody is"
    assert f"{rule} present is sensitive, too." in " ".join(lines)
    assert any("bits about a zone's day on average (information_target 0.5)" in line for line in lines)
    exceeded = []
    for a in attribute_guarantees(load_policy(text)):
        assert a.exact is not None
        exceeded.append(a.exact > a.factor)
        report = " ".join(f"{value:.4g}" for value in (a.factor, a.exact, a.with_counts))
        assert any(line.startswith(f"{a.attribute} {a.reader}") and report in line for line in lines)
    assert any(exceeded)


def test_without_a_model_nothing_is_said_to_hold_under_one(tmp_path: Path) -> None:
    lines = shown(tmp_path, policy_text(ATTRIBUTES))
    assert "attribute reader epsilon alone counts 5 days 20 days" in lines
    assert not any("model.joint" in line or "with model" in line for line in lines)


def test_a_large_model_is_cut_off_and_says_so(tmp_path: Path) -> None:
    digits = [f"{a}{b}" for a in range(3) for b in range(10)]
    joint = ", ".join(f'"{pattern}" = {1 / 30!r}' for pattern in digits)
    cuts = '{ arrival = ["09:00", "10:01"], occupancy_level = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9] }'
    text = ATTRIBUTES + f"[release.model]\ncuts = {cuts}\njoint = {{ {joint} }}\n"
    lines = shown(tmp_path, policy_text(text))
    assert sum(line.endswith(" 0.03333") for line in lines) == 16
    assert "and 14 more 0.4667" in lines
    matrix = ", ".join(str([0.1] * 10) for _ in range(10))
    lines = shown(tmp_path, policy_text(COUNTS, head=f"[privacy]\nmobility = {{ forward = [{matrix}] }}\n"))
    assert "10 states, see --json" in lines


def test_restricted_topics_are_not_passed_over(tmp_path: Path) -> None:
    lines = shown(tmp_path, policy_text(COUNTS, head="[restricted]\noccupancy = true\n"))
    assert any(line.startswith("Restricted topics contain the true counts") for line in lines)


def test_units_have_the_words_of_the_account(tmp_path: Path) -> None:
    assert "tuple" not in " ".join(shown(tmp_path, policy_text(COUNTS)))


def test_what_is_revised_is_named_with_its_topic_and_price(tmp_path: Path) -> None:
    text = policy_text(releases=COUNTS.replace('mechanism = "filter"', 'mechanism = "filter"\nrevise = ["1h", "1d"]'))
    output = " ".join(shown(tmp_path, text))
    assert (
        "smooth: revised an hour after each hour and at the end of each day, published as smooth-revised, "
        "at no further cost" in output
    )
    assert "revised" not in " ".join(shown(tmp_path, policy_text(releases=COUNTS)))


def test_a_forecast_is_named_as_free(capsys: pytest.CaptureFixture[str]) -> None:
    policy = with_forecast()
    print_guarantees(policy, [])
    said = " ".join(capsys.readouterr().out.split())
    assert "halls-forecast for facilities at dbh: computed from the values that release halls has published" in said
    assert next(forecast_lines(policy)) in guarantee_lines(policy, "facilities")
    assert not [*forecast_lines(policy, "public")]


def test_a_key_in_use_elsewhere_is_shown_as_not_protected(tmp_path: Path) -> None:
    text = " ".join(shown(tmp_path, policy_text(COUNTS)))
    assert "Not protected: a production key that is used twice." in text
    assert "Tacet cannot detect a copy on another host or in a second cluster" in text


def test_addresses_that_change_and_opt_outs_are_told_where_they_matter(tmp_path: Path) -> None:
    plain, strict = (
        " ".join(shown(tmp_path, policy_text(COUNTS, site=site)))
        for site in ("", 'randomised = "ignore"\nopt_out = "list"\n')
    )
    assert "Not protected: devices that change their address count as another device" in plain
    assert "change their address" not in strict
    assert "devices whose owners opted out count nowhere" in strict
    assert "opted out" not in plain
