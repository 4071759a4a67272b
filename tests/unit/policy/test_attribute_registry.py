"""The registry of attributes: a policy may name exactly the declared ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import get_args

import pytest

from stream.errors import PolicyError
from stream.policy.attributes import ATTRIBUTES, AttributeRelease, DayFacts
from stream.sensing.day_attributes import DayAttributes
from tests.support.small_building import building

DAY = DayFacts(datetime(2026, 3, 2, 8, 5), datetime(2026, 3, 2, 17, 40), 90, 120)  # noqa: DTZ001  (local times)


def test_each_attribute_is_read_off_a_day() -> None:
    read = {name: kind.value(DAY) for name, kind in ATTRIBUTES.items()}
    assert read == {"arrival": "08:05", "departure": "17:40", "breaks": 90, "occupancy_level": 0.75}
    assert ATTRIBUTES["occupancy_level"].value(DAY._replace(working=0)) == 0.0


def test_values_are_local_times_or_numbers_as_declared() -> None:
    for kind in ATTRIBUTES.values():
        assert isinstance(kind.value(DAY), str) == kind.is_time == (kind.tests == {"after", "before"})


def test_a_policy_may_name_what_is_declared_and_a_day_is_asked_all_of_it() -> None:
    names, _ = get_args(AttributeRelease.model_fields["attributes"].annotation)
    assert get_args(names) == tuple(ATTRIBUTES)
    assert DayAttributes(site="dbh", zones=(), timezone="UTC", tick_length=1).attributes == tuple(ATTRIBUTES)


def test_an_attribute_of_which_nobody_knows_what_it_says_of_others_is_released_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    building()
    monkeypatch.setitem(ATTRIBUTES, "arrival", replace(ATTRIBUTES["arrival"], logic=None))
    with pytest.raises(PolicyError, match="arrival must be the only attribute that is released of a zone"):
        building()


def test_two_attributes_of_which_one_does_not_name_the_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    logic = ATTRIBUTES["arrival"].logic
    assert logic is not None
    silent = replace(logic, reach={name: reach for name, reach in logic.reach.items() if name != "occupancy_level"})
    monkeypatch.setitem(ATTRIBUTES, "arrival", replace(ATTRIBUTES["arrival"], logic=silent))
    with pytest.raises(PolicyError, match="arrival must be the only attribute that is released of a zone"):
        building()
