"""The order of records from several topics."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.storage.kafka.topic_tail import Record
from connectors.subscribe.cursor import Cursor, Delivered
from connectors.subscribe.order import (
    Arrival,
    PendingRecords,
    by_release,
    in_topic_order,
    last_by_partition,
    sort_key,
    unseen,
)
from stream.errors import DataError
from stream.records import MINUTE
from stream.schemas import parse_record, rfc3339


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


def arrived(release: str, end: int, offset: int, **more: Any) -> Arrival:
    one = record(release, end, offset, **more)
    return Arrival(one.topic, one.partition, one.offset, parse_record(one.value))


def names(records: Any) -> list[tuple[str, int]]:
    return [(one.release["release"], one.offset) for one in records]


def test_records_of_a_window_come_attributes_first_then_by_release() -> None:
    together = [arrived("b", 5, 0), arrived("a", 5, 1), arrived("z", 5, 2, attribute="arrival"), arrived("a", 10, 3)]
    assert names(by_release(together)) == [("z", 2), ("a", 1), ("b", 0), ("a", 3)]


def test_a_topic_keeps_its_own_order_where_a_window_came_late() -> None:
    late = [arrived("a", 10, 0), arrived("a", 5, 1), arrived("b", 5, 0)]
    assert names(in_topic_order(late)) == [("a", 0), ("b", 0), ("a", 1)]


@pytest.mark.parametrize("lacks", ["window_end", "site", "release"])
def test_what_is_no_private_release_has_no_place(lacks: str) -> None:
    body = {name: value for name, value in parse_record(record("r", 5, 0).value).items() if name != lacks}
    with pytest.raises(DataError, match="must be a private release"):
        sort_key(body)
    with pytest.raises(DataError, match="must be a private release"):
        sort_key(parse_record(record("r", 5, 0).value) | {"window_end": "soon"})


@pytest.mark.parametrize("body", [{}, {"release_id": 5}])
def test_what_has_no_release_id_is_no_position(body: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="has no release_id"):
        Arrival("topic", 0, 7, body).cursor_entry  # noqa: B018


def test_the_last_record_of_each_partition_is_the_one_with_the_largest_offset() -> None:
    found = last_by_partition([arrived("a", 5, 4), arrived("a", 10, 3), arrived("b", 5, 1)])
    assert {place: last.offset for (place, _), last in found.items()} == {
        "tacet.private.a.a.v1": 4, "tacet.private.a.b.v1": 1,
    }  # fmt: skip


def test_after_a_release_its_own_topic_and_site_are_passed_and_no_other() -> None:
    with closing(PendingRecords()) as waiting:
        waiting.add([record("a", 5, 0), record("a", 10, 1), record("a", 15, 2), record("b", 5, 0)])
        assert waiting.release_at("tacet.private.a.a.v1", 0, 1) == f"s/a/a/{rfc3339(10 * MINUTE)}"
        assert waiting.release_at("tacet.private.a.a.v1", 0, 9) is None
        assert not waiting.forget_up_to("s/a/a/never")
        assert waiting.forget_up_to(f"s/a/a/{rfc3339(10 * MINUTE)}")
        assert names(waiting) == [("b", 0), ("a", 2)]
        assert waiting.last() == {
            ("tacet.private.a.a.v1", 0): Delivered(2, f"s/a/a/{rfc3339(15 * MINUTE)}"),
            ("tacet.private.a.b.v1", 0): Delivered(0, f"s/b/a/{rfc3339(5 * MINUTE)}"),
        }


def test_a_cursor_passes_a_record_only_when_the_next_one_is_asked_for(tmp_path: Path) -> None:
    async def first_two() -> list[str]:
        given = unseen([arrived("a", 5, 0), arrived("a", 10, 1)], cursor)
        one = await anext(given)
        return [one["window_end"], *[each["window_end"] async for each in unseen([arrived("a", 5, 0)], cursor)]]

    cursor = Cursor(tmp_path / "cursor")
    assert asyncio.run(first_two()) == [rfc3339(5 * MINUTE)] * 2, "not confirmed, so it comes again"

    async def all_of(records: list[Arrival]) -> list[int]:
        return [int(each["window_end"][14:16]) async for each in unseen(records, cursor)]

    assert asyncio.run(all_of([arrived("a", 5, 0), arrived("a", 10, 1)])) == [10], "the first one was confirmed"


def test_waiting_records_keep_the_order_of_their_topic_and_go_when_it_is_closed() -> None:
    waiting = PendingRecords()
    waiting.add([record("a", 10, 0), record("a", 5, 1), record("b", 5, 0)])
    assert names(waiting) == [("b", 0), ("a", 0), ("a", 1)]
    waiting.close()
    with pytest.raises(sqlite3.ProgrammingError):
        waiting.last()
