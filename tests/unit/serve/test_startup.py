"""The start of the service: its address, which audiences may be named, and what it reads besides releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connectors.serve.startup import ServeConfig, booked_rooms, check
from stream.errors import UsageError
from tests.unit.serve.test_room import POLICY


def test_a_service_is_reached_from_its_machine_alone_unless_told_otherwise() -> None:
    assert ServeConfig(POLICY, ("public",)).listen == ("127.0.0.1", 8050)


@pytest.mark.parametrize("named", [{"audiences": ("public", "nobody")}, {"opened": "nobody"}])
def test_an_audience_that_the_policy_does_not_have_is_refused_with_those_that_it_has(named: dict[str, Any]) -> None:
    given: dict[str, Any] = {"audiences": ("public",), "store": Path("store")}
    config = ServeConfig(POLICY, **given | named)
    with pytest.raises(UsageError, match=r"must be one of the policy's \(public, staff, desk\), got 'nobody'"):
        check(config)


@pytest.mark.parametrize(
    ("more", "roles"),
    [
        ({}, {"audience:public"}),
        ({"rooms": ("public",)}, {"audience:public", "room:public"}),
        ({"account": True}, {"audience:public", "account"}),
        ({"operator": True}, {"audience:public", "operator"}),
    ],
)  # fmt: skip
def test_the_roles_that_are_served_are_those_of_what_is_asked_for(more: dict[str, Any], roles: set[str]) -> None:
    assert ServeConfig(POLICY, ("public",), **more).roles == roles


def test_without_a_file_of_bookings_no_calendar_is_read() -> None:
    assert booked_rooms(ServeConfig(POLICY, ("public",)), lambda: 0) is None
