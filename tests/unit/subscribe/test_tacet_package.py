"""The tacet package: a type for every published record; others are refused by field."""

from __future__ import annotations

from typing import Any

import pytest

import tacet
from stream.errors import DataError
from stream.schemas import parse_record
from tacet import AttributeRecord, CountRecord, typed
from tests.support.small_building import bodies, day_outputs


@pytest.fixture(scope="module")
def published() -> list[dict[str, Any]]:
    return bodies(day_outputs(), "private")


def test_each_published_record_is_one_of_two_types(published: list[dict[str, Any]]) -> None:
    records = [typed(record) for record in published]
    assert {type(record) for record in records} == {CountRecord, AttributeRecord}
    for record, typed_record in zip(published, records, strict=True):
        assert parse_record(typed_record.to_bytes()) == record


def test_what_is_no_private_record_is_refused_by_its_field_and_never_by_its_value(
    published: list[dict[str, Any]],
) -> None:
    with pytest.raises(DataError, match="release_id is missing or wrong"):
        typed({})
    wrong = published[0] | {"coverage": "secret"}
    with pytest.raises(DataError, match="coverage is missing or wrong") as refusal:
        typed(wrong)
    assert "secret" not in str(refusal.value)


def test_a_field_that_this_version_does_not_know_is_left_out(published: list[dict[str, Any]]) -> None:
    assert typed(published[0] | {"of_a_later_version": 1}) == typed(published[0])


def test_all_that_is_offered_is_there() -> None:
    assert [name for name in tacet.__all__ if not hasattr(tacet, name)] == []
