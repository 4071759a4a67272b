"""Batches and heartbeats as bytes: columns, encrypted or not, and what is refused."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.keys.data_keys import DataKeys
from stream.encoding import (
    LaterMessageError,
    counted_of,
    decode_message,
    encode_message,
    heartbeat_of,
    later_sender_of,
    sender_of,
)
from stream.encryption import Kind, clear_of, seal, unseal
from stream.errors import KeyFileError
from stream.records import (
    DAY,
    LARGEST_COUNT,
    LATEST,
    Columns,
    CountedWindow,
    Heartbeat,
    ObservationBatch,
    PrivacyDay,
    Rejected,
    Row,
)
from stream.row_encoding import decode_rows, encode_rows

VAULT = DataKeys(20_000, b"k" * 32)
BEGINS = 20_001 * DAY
ROWS = (
    Row("00000000000000aa", "02:00:00:00:00:01", BEGINS + 5),
    Row("ffffffffffffffff", None, BEGINS + 5),
    Row("00000000000000aa", "02:00:00:00:00:02", BEGINS + 7_000_000),
)
BATCH = ObservationBatch("dbh", "10.0.0.1", 7, 3, ROWS)
HEAD = {"v": 1, "site": "dbh", "source": "10.0.0.1", "session": 7, "sequence": 3}

names = st.binary(min_size=8, max_size=8).map(bytes.hex) | st.text(max_size=9)
rows = st.lists(st.builds(Row, names, st.none() | st.text(max_size=64), st.integers(0, LATEST - 1)), max_size=30)


def with_content(content: bytes, head: Any = HEAD) -> bytes:
    """Return a batch whose rows are these bytes, as someone without the key may write one."""
    return seal(Kind.OBSERVATIONS, content, clear=orjson.dumps(head))


@given(rows, st.sampled_from([None, VAULT]))
@example([Row("00", None, 0)], None)
def test_a_batch_comes_back_whatever_its_rows(made: list[Row], vault: DataKeys | None) -> None:
    """A device without a name cannot be told; all else comes back, in columns or not."""
    good = tuple(row for row in made if row.device)
    batch = replace(BATCH, rows=tuple(made), epoch=PrivacyDay(1, 2, 3))
    read, rejected = decode_message(encode_message(batch, vault), vault)
    assert read == replace(batch, rows=good)
    assert [each.place for each in rejected] == [
        f"rows[{number}].device" for number, row in enumerate(made) if not row.device
    ]


def test_rows_of_a_connector_are_columns_and_columns_are_rows() -> None:
    decoded, problems = decode_rows(encode_rows(ROWS))
    assert isinstance(decoded, Columns)
    assert decoded == ROWS
    assert not problems
    assert (len(decoded), decoded[1], decoded[-2:], [*decoded]) == (3, ROWS[1], ROWS[1:], [*ROWS])
    assert (hash(decoded), repr(decoded)) == (hash(ROWS), "Columns(of 3 rows)")
    assert Columns.of(ROWS) == ROWS != Columns.of(ROWS[:2])
    assert Columns.of(()) == ()
    assert Columns.of(ROWS).where([True, False, True]) == (ROWS[0], ROWS[2])


def test_logins_come_back_and_are_never_written_as_json() -> None:
    known = Columns.of(ROWS).with_logins(["00000000000000ee", None, "ffffffffffffffff"])
    read, problems = decode_rows(encode_rows(known))
    assert (read, problems) == (known, [])
    with pytest.raises(ValueError, match="non-hexadecimal"):
        encode_rows(Columns.of(ROWS).with_logins(["anne", None, None]))


def test_a_row_takes_at_most_a_quarter_of_what_it_took_as_json() -> None:
    many = tuple(Row(f"{n:016x}", f"02:00:00:00:00:{n % 64:02x}", BEGINS + n * 1000) for n in range(500))
    sealed = encode_message(replace(BATCH, rows=many), VAULT)
    assert len(sealed) < len(orjson.dumps(many, default=tuple)) / 3


def test_the_form_of_columns_is_pinned() -> None:
    assert encode_rows(ROWS).hex() == (
        "01030000000104" + struct.pack("<q", BEGINS + 5).hex() + "00000000000000aaffffffffffffffff00000000000000aa"
        "000102" + struct.pack("<III", 0, 0, 6_999_995).hex()
        + b'["02:00:00:00:00:01",null,"02:00:00:00:00:02"]'.hex()
    )  # fmt: skip


def test_a_batch_says_in_clear_whose_it_is_and_no_more() -> None:
    sealed = encode_message(replace(BATCH, epoch=PrivacyDay(1, 2, 3)), VAULT)
    assert orjson.loads(clear_of(Kind.OBSERVATIONS, sealed)) == HEAD | {"epoch": [1, 2, 3]}
    assert "epoch" not in orjson.loads(clear_of(Kind.OBSERVATIONS, encode_message(BATCH, VAULT)))
    for row in ROWS:
        assert bytes.fromhex(row.device) not in sealed
        assert (row.access_point or "02:00").encode() not in sealed


def test_a_counted_window_comes_back_and_says_its_counts_to_nobody_without_the_key() -> None:
    window = CountedWindow("dbh", "counters", 7, BEGINS, (("lobby", 4711), ("a", 0)))
    sealed = encode_message(window, VAULT)
    assert decode_message(sealed, VAULT) == (window, [])
    assert unseal_day(sealed) == 20_000, "the window ends with the day"
    assert orjson.loads(clear_of(Kind.OBSERVATIONS, sealed)).keys() == {*HEAD, "kind", "window_end"} - {"sequence"}
    assert len(sealed) == len(encode_message(replace(window, counts=()), VAULT))
    with pytest.raises(KeyFileError, match="is encrypted"):
        decode_message(sealed)
    assert decode_message(sealed, DataKeys(20_001, b"k" * 32))[1] == [Rejected("counters", "key_gone", "message")]


def test_batches_of_few_rows_are_all_of_one_size() -> None:
    sizes = {len(encode_message(replace(BATCH, rows=ROWS[:count]), VAULT)) for count in range(4)}
    assert len(sizes) == 1


def test_rows_are_encrypted_under_the_key_of_the_day_of_the_latest() -> None:
    days = [
        unseal_day(encode_message(replace(BATCH, rows=(*ROWS, Row("0" * 16, None, BEGINS + ahead))), VAULT))
        for ahead in (-3 * DAY, -1, 0, DAY - 1, DAY)
    ]
    assert days == [20_001, 20_001, 20_001, 20_001, 20_002]


def unseal_day(value: bytes) -> int:
    return int.from_bytes(value[10:14])


def test_the_form_of_a_heartbeat_is_pinned() -> None:
    assert sender_of(encode_message(BATCH, VAULT)) == ("dbh", "10.0.0.1", 7)
    beat = Heartbeat("dbh", "10.0.0.1", 7, 9, 8)
    assert (
        encode_message(beat, VAULT)
        == encode_message(beat)
        == (b'{"v":1,"site":"dbh","source":"10.0.0.1","session":7,"kind":"heartbeat","watermark":9,"listened_since":8}')
    )
    assert decode_message(encode_message(beat), VAULT) == (beat, [])


def columns(count: int = 2, table: Any = ("a", "b"), places: bytes = b"\0\1", base: int = 10, width: int = 4) -> bytes:
    times = struct.pack("<2I", 0, 1) if width == 4 else struct.pack("<2q", base, base + 1)
    return struct.pack("<BIBBq", 1, count, 1, width, base) + bytes(16) + places + times + orjson.dumps(table)


@pytest.mark.parametrize(
    ("content", "good", "wrong"),
    [
        (columns(), 2, []),
        (columns(width=8), 2, []),
        (columns(places=b"\0\2"), 1, ["rows[1].access_point"]),
        (columns(places=b"\xff\0"), 1, ["rows[0].access_point"]),
        (columns(table=["a", 5]), 1, ["rows[1].access_point"]),
        (columns(table=[["a"], "b"]), 1, ["rows[0].access_point"]),
        (columns(table=["a" * 65, None]), 1, ["rows[0].access_point"]),
        (columns(base=-1), 0, ["rows[0].time", "rows[1].time"]),
        (columns(base=LATEST - 1), 1, ["rows[1].time"]),
        (columns(base=(1 << 63) - 1), 0, ["rows[0].time", "rows[1].time"]),
        (columns(base=-1, width=8), 1, ["rows[0].time"]),
        (columns(base=LATEST - 1, width=8), 1, ["rows[1].time"]),
        (columns(base=-1, table=[1, "b"]), 0, ["rows[0].access_point", "rows[1].time"]),
        (b"\0" + orjson.dumps([["d", None, 1], ["", None, 1], ["d", 1, 1], ["d", None, True], 5]), 1,
         ["rows[1].device", "rows[2].access_point", "rows[3].time", "rows[4]"]),
    ],
)  # fmt: skip
def test_one_bad_row_loses_only_itself(content: bytes, good: int, wrong: list[str]) -> None:
    batch, rejected = decode_message(with_content(content))
    assert isinstance(batch, ObservationBatch)
    assert len(batch.rows) == len([*batch.rows]) == good
    assert rejected == [Rejected("10.0.0.1", "row", place) for place in wrong]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x01", b"\x02" + columns()[1:], columns()[:-1], columns(count=3), columns(count=2**32 - 1), b"\0[",
        b"\0{}", b"\0null", columns(table={}), columns(table=1), struct.pack("<BIBBq", 1, 0, 3, 4, 0) + b"[]",
        struct.pack("<BIBBq", 1, 0, 1, 5, 0) + b"[]", struct.pack("<BIBBq", 1, 0, 0, 4, 0) + b"[]",
    ],
)  # fmt: skip
def test_what_are_no_rows_loses_its_batch(content: bytes) -> None:
    assert decode_message(with_content(content)) == (None, [Rejected("10.0.0.1", "type", "sequence or rows")])


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (HEAD | {"v": 0}, "version"), (HEAD | {"v": True}, "version"),
        (HEAD | {"v": 100}, "version"), (HEAD | {"site": 1}, "type"), ([], "json"),
        (HEAD | {"session": "7"}, "type"), ({"v": 1}, "json"), (5, "json"), (HEAD | {"v": [1]}, "version"),
    ],
)  # fmt: skip
def test_a_batch_that_does_not_say_whose_it_is_is_refused(head: Any, reason: str) -> None:
    batch, [rejected] = decode_message(with_content(columns(), head))
    assert (batch, rejected.source, rejected.reason) == (None, "unknown", reason)


@pytest.mark.parametrize(
    "value",
    [
        with_content(columns(), HEAD | {"v": 2}), orjson.dumps(HEAD | {"v": 2, "kind": "heartbeat", "watermark": 1}),
        with_content(columns()).replace(b"\x89TACET\x01", b"\x89TACET\x02"),
    ],
)  # fmt: skip
def test_a_message_of_a_version_to_come_is_not_passed_over(value: bytes) -> None:
    """Its rows would be lost; the version that wrote it can read it."""
    with pytest.raises(LaterMessageError, match=r"must be of version 1, got 2") as refused:
        decode_message(value)
    assert refused.value.sender == sender_of(value) == ("dbh", "10.0.0.1", 7)
    assert "upgrade" in str(refused.value)
    assert "'tacet recover'" in str(refused.value)


def without(name: str) -> dict[str, Any]:
    return {field: value for field, value in HEAD.items() if field != name} | {"v": 2}


@pytest.mark.parametrize(
    "value",
    [
        b'{"v":2}', b'{"v":99,"kind":"reading","value":4}',
        *(orjson.dumps(without(name)) for name in ("site", "source", "session")),
        *(with_content(columns(), without(name)) for name in ("site", "source", "session")),
        orjson.dumps(HEAD | {"v": 2, "session": "7"}), orjson.dumps(HEAD | {"v": 2, "session": True}),
        orjson.dumps(HEAD | {"v": 2, "source": 10}), orjson.dumps(HEAD | {"v": 2, "site": None}),
        orjson.dumps([HEAD | {"v": 2}]), b"\x89TACET\x02\x05\x00\x00rest", b"\x89TACET\xff",
        seal(Kind.SITE, b"", clear=orjson.dumps(HEAD)).replace(b"\x89TACET\x01", b"\x89TACET\x02"),
    ],
)  # fmt: skip
def test_what_names_no_site_source_and_session_is_of_no_version_to_come(value: bytes) -> None:
    """A message of another program is refused like any other: it stops nobody."""
    message, [rejected] = decode_message(value)
    assert message is None
    assert rejected.source == "unknown"
    assert sender_of(value) is None


def test_rows_and_counts_outside_an_envelope_are_refused_and_so_is_a_heartbeat_in_one() -> None:
    for body in (HEAD | {"kind": "observations", "rows": []}, HEAD | {"kind": "counts", "window_end": 1, "counts": {}}):
        assert decode_message(orjson.dumps(body)) == (None, [Rejected("unknown", "kind", "kind")])
    beat = with_content(b"", HEAD | {"kind": "heartbeat", "watermark": 1})
    assert decode_message(beat) == (None, [Rejected("unknown", "kind", "kind")])


def counts(content: Any, window_end: object = BEGINS) -> bytes:
    head = HEAD | {"kind": "counts", "window_end": window_end}
    return with_content(orjson.dumps(content), head)


def test_without_a_key_one_can_tell_heartbeats_counted_windows_and_senders_of_a_version_to_come() -> None:
    window, beat = CountedWindow("dbh", "counters", 7, BEGINS, (("lobby", 4711),)), Heartbeat("dbh", "10.0.0.1", 7, 9)
    later = [
        orjson.dumps(HEAD | {"v": 2, "kind": "heartbeat", "watermark": 9}),
        with_content(b"", HEAD | {"v": 2, "kind": "counts", "window_end": BEGINS}),
    ]
    values = [encode_message(each, VAULT) for each in (window, beat, BATCH)] + [*later, b"{}", b"no message"]
    assert [counted_of(value) for value in values] == [("dbh", BEGINS)] + [None] * 6
    assert [heartbeat_of(value) for value in values] == [None, beat] + [None] * 5
    assert [later_sender_of(value) for value in values] == [None] * 3 + [("dbh", "10.0.0.1", 7)] * 2 + [None] * 2
    assert counted_of(counts({}, window_end="1")) is None


@pytest.mark.parametrize("window_end", [-1, LATEST, "1", 1.0, True, None])
def test_counts_of_no_window_are_refused(window_end: object) -> None:
    assert decode_message(counts({"a": 1}, window_end)) == (
        None, [Rejected("10.0.0.1", "type", "window_end or counts")],
    )  # fmt: skip


@pytest.mark.parametrize("content", [[], [["a", 1]], None, 5, "a"])
def test_what_are_no_counts_loses_its_window(content: Any) -> None:
    assert decode_message(counts(content)) == (None, [Rejected("10.0.0.1", "type", "window_end or counts")])


def test_one_bad_count_loses_only_itself_and_the_ends_of_what_is_possible_are_none() -> None:
    bad = {"a": -1, "b": LARGEST_COUNT + 1, "c": "1", "d": 1.0, "e": True, "f": None}
    for end in (0, LATEST - 1):
        window, rejected = decode_message(counts({"y": 0, "z": LARGEST_COUNT} | bad, end))
        assert window == CountedWindow("dbh", "10.0.0.1", 7, end, (("y", 0), ("z", LARGEST_COUNT)))
        assert rejected == [Rejected("10.0.0.1", "row", "counts")] * len(bad)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        *(({"watermark": wrong}, "watermark") for wrong in (-1, LATEST, "1", 1.0, True, None)),
        *(({"listened_since": wrong}, "listened_since") for wrong in (-1, LATEST, "1", 1.0, True)),
    ],
)
def test_a_heartbeat_of_no_time_is_refused(fields: dict[str, Any], place: str) -> None:
    beat = HEAD | {"kind": "heartbeat", "watermark": 1} | fields
    assert decode_message(orjson.dumps(beat)) == (None, [Rejected("10.0.0.1", "type", place)])


def test_a_heartbeat_may_be_of_the_first_and_of_the_last_time_there_is() -> None:
    for time in (0, LATEST - 1):
        beat = Heartbeat("dbh", "10.0.0.1", 7, time, time)
        assert decode_message(encode_message(beat)) == (beat, [])
        assert heartbeat_of(encode_message(beat)) == beat


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        *(({"sequence": wrong}, "sequence or rows") for wrong in ("1", 1.0, True, None)),
        *(({"epoch": wrong}, "epoch") for wrong in (1, "day", [], [1, 2], [1, 2, 3, 4], [1, 2, "3"], [1, 2, True])),
        *(({"epoch": [1, 2, wrong]}, "epoch") for wrong in (LATEST, -LATEST)),
        *(({"identity": wrong}, "identity") for wrong in (1, True, ["login"])),
    ],
)
def test_a_batch_with_a_field_that_cannot_be_is_refused(fields: dict[str, Any], place: str) -> None:
    message = with_content(columns(), HEAD | fields)
    assert decode_message(message) == (None, [Rejected("10.0.0.1", "type", place)])


def test_a_damaged_or_moved_batch_loses_itself_alone() -> None:
    sealed, other = (encode_message(replace(BATCH, sequence=number), VAULT) for number in (3, 4))
    place = len(sealed) - 256 - 13
    moved = other[:place] + sealed[place:]
    flipped = sealed[:-1] + bytes((sealed[-1] ^ 1,))
    for broken in (moved, flipped, sealed[:-1], sealed[:9], sealed[:40]):
        assert decode_message(broken, VAULT) == (None, [Rejected("unknown", "envelope", "message")])


def test_a_batch_under_a_key_that_is_gone_says_so() -> None:
    later = DataKeys(20_003, b"k" * 32)
    assert decode_message(encode_message(BATCH, VAULT), later) == (None, [Rejected("10.0.0.1", "key_gone", "message")])


def test_a_batch_under_another_key_stops_who_reads_it() -> None:
    with pytest.raises(KeyFileError, match="must be the one under which this was encrypted"):
        decode_message(encode_message(BATCH, VAULT), DataKeys(20_000, b"o" * 32))
    with pytest.raises(KeyFileError, match="observations: is encrypted"):
        decode_message(encode_message(BATCH, VAULT))


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_are_more_than_rejected(noise: bytes, columnar: bool) -> None:
    content = columns()[:7] + noise if columnar else noise
    for value in (noise, with_content(content), b"\x89TACET\x01\x05" + noise):
        batch, rejected = decode_message(value, VAULT)
        assert batch is not None or rejected
        assert sender_of(value) is None or isinstance(sender_of(value), tuple)


def test_what_is_inside_is_what_is_decoded() -> None:
    assert unseal(Kind.OBSERVATIONS, encode_message(BATCH, VAULT), VAULT) == encode_rows(ROWS)
