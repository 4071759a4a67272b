"""The option ``--site``: which site of a policy a recording belongs to."""

from __future__ import annotations

import pytest

from connectors.cli.options import observed_site
from stream.errors import UsageError
from stream.release.validation import Policy, load_policy

HEAD = """[[audience]]
name = "public"

[[release]]
name = "counts"
query = "count"
mechanism = "laplace"
epsilon = { public = "1" }
"""


def policy(*sites: str, feed: str = "devices") -> Policy:
    """Return a policy with these sites of one zone each; the last one has this feed."""
    text = HEAD
    for number, site in enumerate(sites):
        counted = feed == "counts" and site == sites[-1]
        text += f'[site.{site}]\nfeed = "counts"\n' if counted else f'[site.{site}]\nsources = ["10.0.0.{number}"]\n'
        text += f'[[site.{site}.zones]]\nid = "hall"\nfloor = "1"\ncapacity = 9\n'
        text += "" if counted else f'access_points = ["02:00:00:00:00:0{number}"]\n'
    return load_policy(text)


def test_the_only_site_needs_no_name() -> None:
    assert observed_site(policy("house"), None) == "house"
    assert observed_site(policy("house"), "house") == "house"


def test_a_site_of_several_must_be_named() -> None:
    several = policy("house", "shed")
    assert observed_site(several, "shed") == "shed"
    with pytest.raises(UsageError, match=r"^--site: must name one of the policy's sites \(house, shed\)$"):
        observed_site(several, None)


def test_an_unknown_site_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--site: must be one of the policy's sites \(house\), got 'barn'$"):
        observed_site(policy("house"), "barn")


def test_a_site_of_people_counters_is_refused() -> None:
    counters = policy("house", "arena", feed="counts")
    assert observed_site(counters, "house") == "house"
    with pytest.raises(UsageError, match=r"feed = 'devices'\), got 'arena'$"):
        observed_site(counters, "arena")
