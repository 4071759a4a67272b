"""Conversion of the JSON object that ``subscribe`` yields to a record with typed fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from stream.errors import DataError
from stream.schemas import AttributeRecord, CountRecord, ThresholdRecord

PrivateRecord = CountRecord | ThresholdRecord | AttributeRecord
"""What an audience reads of a window: counts, a query of them, decisions; or one attribute of a zone's day."""


def typed(release: Mapping[str, Any]) -> PrivateRecord:
    """Return a release as a typed record; fields that this version does not know are dropped.

    Raises:
        DataError: not a private release; the message names the first wrong field, never its value.
    """
    model = AttributeRecord if "attribute" in release else ThresholdRecord if "above" in release else CountRecord
    try:
        return model.model_validate(release)
    except ValidationError as problem:
        place = ".".join(map(str, problem.errors()[0]["loc"]))
        msg = f"record: must be a private release, {place} is missing or wrong"
        raise DataError(msg) from None
