"""Conversion of the JSON object that ``subscribe`` yields to a record with typed fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from stream.errors import DataError
from stream.schemas import AttributeRecord, CountRecord, PeopleRecord, ThresholdRecord

PrivateRecord = CountRecord | ThresholdRecord | PeopleRecord | AttributeRecord
"""What an audience reads of a window: counts, a query of them, decisions, people; or one attribute of a zone's day."""
_BY_FIELD: dict[str, type[PrivateRecord]] = {
    "attribute": AttributeRecord, "above": ThresholdRecord, "counted": PeopleRecord,
}  # fmt: skip
"""Field by which a record other than of counts is recognised -> its type."""


def typed(release: Mapping[str, Any]) -> PrivateRecord:
    """Return a release as a typed record; fields that this version does not know are dropped.

    Raises:
        DataError: not a private release; the message names the first wrong field, never its value.
    """
    model = next((kind for name, kind in _BY_FIELD.items() if name in release), CountRecord)
    try:
        return model.model_validate(release)
    except ValidationError as problem:
        place = ".".join(map(str, problem.errors()[0]["loc"]))
        msg = f"record: must be a private release, {place} is missing or wrong"
        raise DataError(msg) from None
