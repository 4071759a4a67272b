"""The order of records from several topics."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import orjson

from connectors.storage.kafka.topic_readers import Record
from connectors.subscribe.order import PendingRecords
from stream.records import MINUTE
from stream.schemas import rfc3339


def record(release: str, end: int, offset: int, **more: Any) -> Record:
    """A record of the window of 5 min that ends ``end`` minutes after 1970-01-01."""
    at, start = rfc3339(end * MINUTE), rfc3339((end - 5) * MINUTE)
    body = {"release_id": f"s/{release}/a/{at}", "site": "s", "release": release} | more
    body |= {"window_start": start, "window_end": at}
    return Record(0, offset, b"s", orjson.dumps(body), 0, f"tacet.private.a.{release}.v1")


def test_revised_values_come_with_the_window_that_they_came_with_and_behind_its_first_values() -> None:
    first = [record("r", 5 * n, n) for n in range(1, 6)]
    revised = [record("r-revised", 5 * n, n, revises=f"s/r/a/{n}", lag=4 - n) for n in (1, 2)]
    with closing(PendingRecords()) as waiting:
        waiting.add([*revised, *first])
        given = [(one.release["release"], one.release["window_end"][11:16]) for one in waiting]
    assert given == [
        ("r", "00:05"), ("r", "00:10"), ("r", "00:15"), ("r", "00:20"),
        ("r-revised", "00:05"), ("r-revised", "00:10"), ("r", "00:25"),
    ]  # fmt: skip
