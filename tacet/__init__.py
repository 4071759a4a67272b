"""Tacet for programs: what a subscriber imports, and nothing that starts, sends or keeps anything.

    from tacet import subscribe

    async for release in subscribe(store=Path("store"), audience="facilities"):
        print(release["window_end"], release["values"])

``subscribe`` yields the JSON object of each record as it was published; ``typed`` gives it fields with types. The
leakage questions are in :mod:`tacet.leakage`. ``connectors`` and ``stream`` are how all this is made: their modules
may be moved from one version to the next, what is listed here stays.
"""

from __future__ import annotations

from connectors.subscriber import read_metadata, releases, sites, subscribe
from connectors.subscribing.cursor import Cursor
from connectors.subscribing.order import Release
from stream.errors import DataError, FinalityError, TacetError, UsageError
from stream.schemas import AttributeRecord, CountRecord, ThresholdRecord
from tacet.frames import frame
from tacet.typed_records import PrivateRecord, typed

__all__ = [
    "AttributeRecord",
    "CountRecord",
    "Cursor",
    "DataError",
    "FinalityError",
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
