"""Which policies may count changes, what they say of themselves, and which are refused because nothing is proven."""

from __future__ import annotations

import pytest

from stream.errors import PolicyError
from stream.policy.document import PolicyDocument
from stream.records import CHANGES
from stream.release.count_guarantees import count_guarantees
from stream.release.prices import terms_digest
from stream.release.validation import Policy, load_policy
from tests.support.day_policies import change_release, day_release, day_site, shared, visit_site
from tests.support.small_building import SITE, policy_text

LEVELS = shared(zone="0.2", floor="0.3", building="0.5")
CHANGED = change_release(more=LEVELS)


def policy(releases: str = CHANGED, site: str | None = None, tick: str = "5min") -> Policy:
    return load_policy(policy_text(releases, site=visit_site() if site is None else site, tick=tick), "building.toml")


def refusal(releases: str = CHANGED, site: str | None = None) -> str:
    with pytest.raises(PolicyError) as caught:
        policy(releases, site)
    return str(caught.value)


# ---- what is allowed ------------------------------------------------------------------------------------


def test_a_site_needs_no_contribution_where_all_that_is_paid_by_the_day_counts_changes() -> None:
    site = policy().site[SITE]
    assert (site.contribution, site.visits, site.gap_ticks) == (None, 4, 2)


def test_ticks_and_changes_may_be_paid_for_side_by_side() -> None:
    both = policy(CHANGED + day_release("day"), visit_site(more='contribution = "8h"\n'))
    kinds = {guarantee.release: guarantee.terms for guarantee in count_guarantees(both)}
    assert {name: terms.noise for name, terms in kinds.items() if terms} == {"moves": CHANGES, "day": "gaussian"}


def test_a_gap_is_cut_to_whole_ticks() -> None:
    assert policy(site=visit_site(gap="14min")).site[SITE].gap_ticks == 2
    assert policy(site=visit_site(gap="1min")).site[SITE].gap_ticks == 0


def test_defaults_are_not_part_of_a_document_and_other_values_are() -> None:
    default, named = policy(site='day_starts = "04:00"\nresidents = "ignore"\n'), policy()
    assert default.version == named.version
    assert b"visits" not in default.document()
    assert b"gap" not in default.document()
    other = policy(site=visit_site(visits=3))
    assert other.version != default.version
    assert PolicyDocument.from_document(other.document()).site[SITE].visits == 3
    ticks = load_policy(policy_text(day_release("day"), site=day_site()))
    assert b'"count":"ticks"' not in ticks.document()
    assert PolicyDocument.from_document(default.document()).release[0] == default.release[0]


@pytest.mark.parametrize("other", [visit_site(visits=3), visit_site(gap="15min")])
def test_visits_and_gap_are_terms_of_a_day(other: str) -> None:
    one, changed = policy(), policy(site=other)
    (release,) = one.release
    assert terms_digest(one, release, SITE) != terms_digest(changed, release, SITE)  # type: ignore[arg-type]
    ticks = [load_policy(policy_text(CHANGED + day_release("day"), site=f'{site}contribution = "8h"\n', tick="5min"))
             for site in (visit_site(), other)]  # fmt: skip
    assert len({terms_digest(each, each.release[1], SITE) for each in ticks}) == 1  # type: ignore[arg-type]


# ---- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (CHANGED.replace('unit = "device_day"\n', ""), "count = 'changes' must be used with unit = 'device_day'"),
        (CHANGED.replace("gaussian", "laplace"), "count = 'changes' must be used with noise = 'gaussian', got laplace"),
        (CHANGED.replace('"filter"', '"plain"'), "count = 'changes' must be used with filter, got laplace"),
        (CHANGED.replace(LEVELS, 'levels = ["zone", "building"]\n'), "levels other than zone must have shares"),
        (CHANGED + 'revise = ["1h"]\n', "revise must be '1d' with count = 'changes'"),
        (
            CHANGED + 'queries = [{ name = "heat", kind = "heatmap", windows = 4 }]\n',
            "queries must not be used with count = 'changes'",
        ),
        (CHANGED + 'zones = { kind = "hall" }\n', "zones must all be in a release with count = 'changes'"),
        (CHANGED.replace('"changes"', '"visits"'), "must be 'ticks' or 'changes', got 'visits'"),
        (
            CHANGED.replace(LEVELS, "") + '[[release]]\nname = "free"\nquery = "threshold"\ncounts = "moves"\n'
            'miss = "0.05"\naudience = ["public"]\nthreshold = 5\n',
            "counts must not be a release with count = 'changes', got 'moves'",
        ),
        (
            CHANGED + '[[release]]\nname = "runs"\nquery = "threshold"\nthreshold = 5\nevents = 1\nunit = "run"\n'
            'epsilon = { public = "9" }\ndaily_budget = { public = "1000" }\n',
            "epsilon needs day_starts and contribution at site 'dbh'",
        ),
        (CHANGED + day_release("day"), "site.dbh.contribution must be given with count = 'ticks'"),
    ],
)  # fmt: skip
def test_what_is_not_proven_is_refused(changed: str, told: str) -> None:
    assert told in refusal(changed)


@pytest.mark.parametrize(
    ("site", "told"),
    [
        (visit_site().replace("ignore", "count"), "residents must be 'ignore' with count = 'changes'"),
        ("", "site.dbh.day_starts must be given with unit = 'device_day'"),
        (visit_site(visits=9), "visits: must be at most 8, got 9"),
        (visit_site(visits=0), "visits: must be at least 1, got 0"),
        (visit_site(gap="121min"), "gap must be at most 2h, got 7260 s"),
    ],
)
def test_a_site_that_does_not_bound_visits_is_refused(site: str, told: str) -> None:
    assert told in refusal(site=site)


@pytest.mark.parametrize("key", ["visits = 3\n", 'gap = "15min"\n'])
def test_a_bound_of_visits_that_nothing_uses_is_refused(key: str) -> None:
    told = refusal(day_release("day"), day_site(residents="ignore") + key)
    assert f"site.dbh.{key.split(maxsplit=1)[0]}: must be used with a release that has count = 'changes'" in told


def test_zones_alone_may_be_a_part_of_a_site() -> None:
    assert policy(change_release(more='zones = { kind = "hall" }\n')).release
