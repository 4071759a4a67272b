"""Ticks or changes: which releases could pay for either, and what is told of both."""

from __future__ import annotations

import pytest

from connectors.operations.policy.comparison import Preferred, comparable, comparison, day_of, preferred
from connectors.operations.policy.quality import is_passed_through
from stream.policy.counts import CountRelease
from stream.records import MINUTE
from stream.release.validation import Policy, load_policy
from tests.support.day_policies import day_release, shared, visit_site
from tests.support.small_building import PLAIN, SITE, policy_text

HALF = shared(floor="0.5", building="0.5")
HALLS = 'zones = { kind = "hall" }\n'
BOTH = visit_site(more='contribution = "8h"\n')
"""A site that bounds both: for how long a device counts, and how many visits it has."""


def policy(releases: str, site: str = BOTH) -> Policy:
    return load_policy(policy_text(releases, tick="30min", site=site))


@pytest.mark.parametrize(
    ("releases", "could"),
    [
        (day_release(mechanism="filter"), True),
        (day_release(mechanism="filter", more=HALF), True),
        (day_release(mechanism="filter", more=HALLS), True),
        (day_release(mechanism="filter", more=HALLS + HALF), False),
        (day_release(mechanism="filter", more='levels = ["zone", "building"]\n'), False),
        (day_release(mechanism="laplace", noise="laplace"), False),
        (PLAIN, False),
    ],
    ids=["zones", "floors and building", "some zones", "sums of some zones", "zones and sums", "laplace", "by window"],
)
def test_what_pays_for_a_day_of_zones_or_of_whole_sums_could_pay_for_ticks_or_changes(
    releases: str, could: bool
) -> None:
    found = [(site, release.name, audience) for site, release, audience in comparable(policy(releases))]
    assert found == ([(SITE, "day", audience) for audience in ("facilities", "public")] if could else [])


def test_each_level_is_compared_for_each_audience_and_the_smaller_error_is_better() -> None:
    tried = list[None]()
    rows = comparison(policy(day_release(mechanism="filter", more=HALF)), lambda: tried.append(None))
    assert [(row["audience"], row["level"]) for row in rows] == [
        ("facilities", "floor"), ("facilities", "building"), ("public", "floor"), ("public", "building")
    ]  # fmt: skip
    assert len(tried) == 4, "two audiences, ticks and changes"
    for row in rows:
        assert (row["site"], row["release"], row["day"], row["unit"]) == (SITE, "day", "desks", "device")
        assert row["better"] == ("ticks" if row["ticks"] <= row["changes"] else "changes")
        assert row["mean"] > 0


def test_who_wants_ticks_gets_them_at_every_level_and_the_usual_gap() -> None:
    given = policy(day_release(mechanism="filter", more=HALF))
    (release,) = given.release
    assert isinstance(release, CountRelease)
    assert preferred(given, SITE, release, "ticks") == Preferred({"floor": "ticks", "building": "ticks"}, 10 * MINUTE)


def test_where_people_stay_at_desks_changes_need_no_gap() -> None:
    given = policy(day_release(mechanism="filter", more=HALF))
    (release,) = given.release
    assert isinstance(release, CountRelease)
    assert preferred(given, SITE, release, "changes") == Preferred({"floor": "changes", "building": "changes"}, 0)


@pytest.mark.parametrize(
    ("kinds", "day"),
    [
        (("hall", "lobby", "office"), "desks"),
        (("classroom", "lobby", "office"), "simulated"),
        (("hall", "corridor", "office"), "simulated"),
        (("open", "open", "open"), "simulated"),
    ],
)
def test_one_kind_of_zone_that_people_pass_through_makes_a_site_of_coming_and_going(
    kinds: tuple[str, str, str], day: str
) -> None:
    text = policy_text(PLAIN)
    for former, kind in zip(("hall", "lobby", "office"), kinds, strict=True):
        text = text.replace(f'kind = "{former}"\ncapacity', f'kind = "{kind}"\ncapacity')
    site = load_policy(text.replace(HALLS, "")).site[SITE]
    assert {zone.kind for zone in site.zones} == set(kinds)
    assert (day_of(site), is_passed_through(site)) == (day, day == "simulated")
