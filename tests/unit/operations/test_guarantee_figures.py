"""What ``policy show`` reports as JSON of days, names, sessions, logins and models; and who signs what."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.operations.policy.guarantee_figures import guarantee_figures, sentences_to_sign
from stream.release.validation import load_policy
from tests.support.day_policies import change_release, day_release, day_site, visit_site
from tests.support.small_building import ATTRIBUTES, COUNTS, SITE, policy_text


def reported(releases: str, **parts: str) -> dict[str, Any]:
    return guarantee_figures(load_policy(policy_text(releases, **parts))).to_json()


def test_each_audience_has_a_sentence_to_sign_for_what_is_paid_by_the_day() -> None:
    policy = load_policy(policy_text(COUNTS + day_release(), site=day_site()))
    assert [sum(who in line for line in sentences_to_sign(policy)) for who in ("public", "facilities")] == [1, 1]
    assert len(list(sentences_to_sign(policy))) == 2, "none for all together, none for counts paid by the window"


def test_a_days_noise_has_its_scale_and_each_unit_its_price_at_delta() -> None:
    gaussian, laplace = (
        next(row for row in reported(day_release(noise=noise), site=day_site())["counts"] if row["reader"] == "public")
        for noise in ("gaussian", "laplace")
    )
    assert (gaussian["unit"], gaussian["noise"], laplace["noise"]) == ("device_day", "gaussian", "laplace")
    assert gaussian["tight"]["device_day"]["epsilon"] == pytest.approx(2, abs=1e-2)
    assert laplace["tight"]["device_day"]["epsilon"] <= 2
    assert gaussian["noise_scale"][0] < laplace["noise_scale"][0], "96 windows of a day: Gaussian noise is narrower"
    assert min(gaussian["noise_scale"][0], laplace["noise_scale"][0]) > 1, "a standard deviation, and 1/epsilon"
    for unit in ("device_day_moved", "person_day"):
        assert gaussian["tight"][unit]["epsilon"] > gaussian["tight"]["device_day"]["epsilon"]


def test_a_count_of_changes_says_its_visits_and_its_shift() -> None:
    [row] = [
        each for each in reported(change_release(), tick="30min", site=visit_site(visits=4))["counts"]
        if each["reader"] == "public"
    ]  # fmt: skip
    assert (row["count"], row["noise"], row["visits"]) == ("changes", "gaussian", 4)
    assert "ticks" not in row
    assert 0 < row["shift"] < 1


def test_what_a_guard_never_asks_is_named() -> None:
    [model] = reported(ATTRIBUTES)["models"].values()
    assert sorted([*model["asked"], *model["left_out"]]) == sorted(
        each["attribute"] for each in reported(ATTRIBUTES)["attributes"] if each["reader"] == "facilities"
    )
    strict = ATTRIBUTES.replace('zones = { kind = "office" }', 'zones = { kind = "office" }\ncap = 0.01')
    strict += '[release.model]\njoint = { "00" = 0.25, "01" = 0.25, "10" = 0.25, "11" = 0.25 }\n'
    [model] = reported(strict)["models"].values()
    assert (model["asked"], len(model["left_out"])) == ([], 2)


def test_names_change_daily_after_a_salt_life_or_with_the_privacy_day() -> None:
    assert reported(COUNTS)["pseudonyms"] == "daily"
    assert reported(COUNTS, site=day_site(day_starts="05:00"))["pseudonyms"] == {"day_starts": {SITE: "05:00"}}
    assert reported(COUNTS, head='[pseudonym]\nttl = "1h"\n')["pseudonyms"] == {"ttl_seconds": 3600.0}


def test_what_a_policy_lacks_has_no_field() -> None:
    plain = reported(COUNTS)
    assert not {"people", "sessions", "logins"} & plain.keys()
    logins = reported(day_release(), site=day_site() + 'identity = "login"\nothers = "count"\n')["logins"]
    assert logins[SITE]["others"] == "count"
    assert {each["reader"] for each in logins[SITE]["identities"]} >= {"public", "facilities"}
