"""Policies whose sites count sessions: their keys, what they refuse, and the form of their documents."""

from __future__ import annotations

from typing import Any

import pytest

from stream.errors import PolicyError
from stream.policy.document import PolicyDocument
from stream.records import HOUR, MINUTE
from stream.release.validation import Policy, load_policy
from tests.support.small_building import SITE, building, policy_text

WITH = 'presence = "sessions"\n'


def sessions(more: str = "", **changes: Any) -> Policy:
    text = policy_text(site=WITH + more, **changes).replace('validity = "10min"\n', "")
    return load_policy(text)


def test_a_site_counts_events_unless_it_says_otherwise() -> None:
    site = building().site[SITE]
    assert (site.presence, site.has_sessions, site.counts_for) == ("events", False, 10 * MINUTE)


@pytest.mark.parametrize(("more", "limit"), [("", 4 * HOUR), ('session_limit = "90min"\n', 90 * MINUTE)])
def test_with_sessions_an_observation_counts_for_the_limit_at_most(more: str, limit: int) -> None:
    site = sessions(more, tick="5min").site[SITE]
    assert (site.counts_for, site.ticks_per_observation) == (limit, limit // (5 * MINUTE))


def test_a_limit_that_is_no_multiple_of_the_tick_counts_at_a_tick_more() -> None:
    assert sessions('session_limit = "61min"\n', tick="15min").site[SITE].ticks_per_observation == 5


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (policy_text(site=WITH), "validity must be given with presence = 'events' only"),
        (policy_text(site='session_limit = "4h"'), "session_limit must be given with presence = 'sessions' only"),
        (policy_text(site='presence = "polls"'), "presence"),
        *(
            (
                policy_text(site=f'{WITH}session_limit = "{limit}"', tick="15min").replace('validity = "10min"\n', ""),
                "session_limit must be whole minutes from 15min to 12h",
            )
            for limit in ("14min", "721min", "5401s")
        ),
    ],
)
def test_what_contradicts_sessions_is_refused_by_name(text: str, rule: str) -> None:
    with pytest.raises(PolicyError, match=rule):
        load_policy(text)


def test_a_document_says_of_events_what_it_always_said_and_of_sessions_only_what_applies() -> None:
    before = building().model_dump(mode="json")["site"][SITE]
    assert before["validity"] == 10 * MINUTE
    assert not before.keys() & {"presence", "session_limit"}
    after = sessions().model_dump(mode="json")["site"][SITE]
    assert (after["presence"], after["session_limit"]) == ("sessions", 4 * HOUR)
    assert "validity" not in after


def test_a_document_gives_the_same_policy_again() -> None:
    policy = sessions('session_limit = "2h"\n')
    assert PolicyDocument.from_document(policy.document()).site == policy.site
