"""The public Python interface; it only reads.

It starts, sends and stores nothing.

    from tacet import subscribe

    async for release in subscribe(store=Path("store"), audience="facilities"):
        print(release["window_end"], release["values"])

``subscribe`` yields the JSON object of each record as it was published; ``typed`` converts it to a record with typed
fields. The leakage questions are in :mod:`tacet.leakage`. ``connectors`` and ``stream`` are the implementation: their
modules may move from one version to the next, whereas the names listed here stay.
"""

from __future__ import annotations

from connectors.subscribe.cursor import Cursor
from connectors.subscribe.order import Release
from connectors.subscribe.subscriber import read_metadata, releases, sites, subscribe
from stream.errors import DataError, FinalityError, TacetError, UsageError
from stream.schemas import AttributeRecord, CountRecord, ForecastRecord, PeopleRecord, ThresholdRecord
from tacet.conversion import PrivateRecord, frame, typed

__all__ = [
    "AttributeRecord",
    "CountRecord",
    "Cursor",
    "DataError",
    "FinalityError",
    "ForecastRecord",
    "PeopleRecord",
    "PrivateRecord",
    "Release",
    "TacetError",
    "ThresholdRecord",
    "UsageError",
    "frame",
    "read_metadata",
    "releases",
    "sites",
    "subscribe",
    "typed",
]
