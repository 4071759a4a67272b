"""A released record with fields that have types, from the JSON object that ``subscribe`` yields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from stream.errors import DataError
from stream.schemas import AttributeRecord, CountRecord, ThresholdRecord

PrivateRecord = CountRecord | ThresholdRecord | AttributeRecord
"""What an audience reads of a window: counts, a query of them, decisions; or one attribute of a zone's day."""


def typed(release: Mapping[str, Any]) -> PrivateRecord:
    """Return a release as the record it is; fields that this version does not know are left out.

    Raises:
        DataError: it is no private release; the message names the first field that is wrong, never its value.
    """
    model = AttributeRecord if "attribute" in release else ThresholdRecord if "above" in release else CountRecord
    try:
        return model.model_validate(release)
    except ValidationError as problem:
        place = ".".join(map(str, problem.errors()[0]["loc"]))
        msg = f"record: must be a private release, {place} is missing or wrong"
        raise DataError(msg) from None
