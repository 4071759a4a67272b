"""A record of whoever else could write to an outbox or a topic: taken as what it is, or refused; it never does harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from connectors.records.decoding import read_record
from connectors.serve.event_streams import event
from connectors.serve.indexer import own
from connectors.serve.playback import arrival_time
from stream.errors import DataError
from tests.unit.serve.released_history import MONDAY, TICK, attribute, history, window

LEVELLED = window(MONDAY, {"2011": 3}, mechanism="filter", kind="posterior", more={
    "levels": {"floor": {"2": 3}, "building": 3}, "levels_half_width_95": {"floor": {"2": 4}, "building": 4},
    "noisy": {"2011": 2}, "levels_noisy": {"floor": {"2": 2}, "building": 2},
    "levels_draws": {"floor": {"2": 1}, "building": 1},
})  # fmt: skip
FACT = attribute("2026-03-02", "2065", released=True, value="09:05")
WORDS = "1e999999999"
"""A number that no memory holds, where somebody takes it for one."""
BEYOND: tuple[Any, ...] = (
    None, -1, 10**30, 2**63, 1e308, -1e308, True, "", WORDS, "x\nevent: release", "\u202eevil", "x" * 9999, [], {},
)  # fmt: skip
"""What a field may not hold, but those that are listed beside it."""
PLACES: list[tuple[bytes, str, tuple[Any, ...]]] = [
    (LEVELLED, "release_id", ()), (LEVELLED, "window_end", ()), (LEVELLED, "window_start", ()),
    (LEVELLED, "released", (True,)), (LEVELLED, "spend", ()), (LEVELLED, "coverage", ()),
    (LEVELLED, "half_width_kind", ()), (LEVELLED, "values/2011", (-1,)), (LEVELLED, "noise_scale/2011", ()),
    (LEVELLED, "half_width_95/2011", (None,)), (LEVELLED, "noisy/2011", (None, -1)),
    (LEVELLED, "levels/floor/2", (-1,)), (LEVELLED, "levels/building", (-1,)),
    (LEVELLED, "levels_half_width_95/building", (None,)), (LEVELLED, "levels_noisy/building", (None, -1)),
    (LEVELLED, "levels_draws/building", ()), (FACT, "day", (WORDS,)), (FACT, "zone", (WORDS,)),
    (FACT, "attribute", (WORDS,)), (FACT, "value", (None, -1, WORDS)), (FACT, "spend", ()),
    (FACT, "released", (True,)), (FACT, "reason", (None, WORDS)),
]  # fmt: skip


def changed(record: bytes, place: str, value: Any) -> bytes:
    """Return a record with another value at a place, written as JSON by any other program."""
    body = orjson.loads(record)
    *above, last = place.split("/")
    held = body
    for name in above:
        held = held[name]
    held[last] = "\0"
    return orjson.dumps(body).replace(b'"\\u0000"', str(value).encode() if type(value) is int else orjson.dumps(value))


@pytest.mark.parametrize(("record", "place", "may"), PLACES, ids=[place for _, place, _ in PLACES])
def test_a_record_with_an_invalid_field_is_refused(record: bytes, place: str, may: tuple[Any, ...]) -> None:
    for value in BEYOND:
        if any(value is each or (value == each and type(value) is type(each)) for each in may):
            read_record(changed(record, place, value))
            continue
        with pytest.raises(DataError, match="record: must be"):
            read_record(changed(record, place, value))


@pytest.mark.parametrize("spend", ["1e99999", "1e3", "+1", " 1", "1_000", "0." + "1" * 31, "NaN"])
@pytest.mark.parametrize("record", [LEVELLED, FACT], ids=["counts", "attributes"])
def test_a_charge_is_digits_and_a_point(record: bytes, spend: str) -> None:
    """With an exponent, a few characters would take the memory of a number with as many digits as they please."""
    with pytest.raises(DataError, match="record: must be"):
        read_record(changed(record, "spend", spend))


@pytest.mark.parametrize("node", ["values", "noise_scale"])
@pytest.mark.parametrize("name", ["a\nb", "\u202e", "x" * 9999, ""])
def test_the_name_of_a_node_is_printable(node: str, name: str) -> None:
    body = orjson.loads(window(MONDAY, {"2011": 3}))
    for held in ("noise_scale", "half_width_95", "values"):
        body[held] = {name: 3}
    if node == "noise_scale":  # of a denied window
        body |= {"values": None, "half_width_95": None, "released": False}
    with pytest.raises(DataError, match="record: must be"):
        read_record(orjson.dumps(body))


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_record_of_several_lines_is_refused(end: str) -> None:
    record = LEVELLED.replace(b'{"v":1,', f'{{{end}{end}"v":1,'.encode())
    assert orjson.loads(record) == orjson.loads(LEVELLED)
    assert len(event("release", record, "x").splitlines()) > 4
    with pytest.raises(DataError, match="one line"):
        read_record(record)


def test_a_record_of_another_audience_is_refused_in_a_source() -> None:
    """Else who may write what one audience reads could write what another one does."""
    assert own("public", "outbox:public", [LEVELLED, FACT]) == [LEVELLED, FACT]
    other = window(MONDAY, {"2011": 3}, audience="facilities")
    with pytest.raises(DataError, match="outbox:public: must contain only records of audience public"):
        own("public", "outbox:public", [LEVELLED, other])


@pytest.mark.parametrize("spoil", [
    lambda body: body.pop("window_end"), lambda body: body.update(window_start=3), lambda body: body.update(lag="1"),
])  # fmt: skip
def test_a_record_without_times_is_refused_in_a_playback(spoil: Callable[[dict[str, Any]], Any]) -> None:
    body = orjson.loads(LEVELLED)
    assert arrival_time(LEVELLED) == MONDAY
    spoil(body)
    with pytest.raises(DataError, match="times of its window"):
        arrival_time(orjson.dumps(body))


def test_names_that_are_markup_are_names() -> None:
    """Shown as text wherever they are shown; nothing of them is taken away."""
    kept = history()
    kept.add([window(MONDAY + TICK, {"<img src=x onerror=alert(1)>": 3})], {})
    ((row,),) = (kept.latest("public", "dbh")["rows"],)
    assert row["node"] == "zone:<img src=x onerror=alert(1)>"
