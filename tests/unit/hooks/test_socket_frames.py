"""Lines of the socket between ``tacet hooks`` and the ingest: each is validated whole."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from connectors.sources.ingest.addresses import LONGEST_NAME
from connectors.sources.ingest.logins import LONGEST_LOGIN
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.ingest_socket.frames import (
    LONGEST_LINE,
    MOST_ID,
    MOST_ROWS,
    Batch,
    FrameError,
    TimedSighting,
    batches,
    decode,
    decode_answer,
    encode_answer,
    encode_batch,
    encode_can_receive,
)

SEEN = Sighting(Kind.ASSOCIATE, bytes.fromhex("a40000000001"), bytes.fromhex("5c521e002065"), b"lobby", session=b"s")
ROW = ["associate", "a40000000001", "5c521e002065", "lobby", 7, "73"]
BATCH: dict[str, Any] = {"id": 1, "source": "cloud:mist", "rows": [ROW]}


def row_with(place: int, value: object) -> dict[str, Any]:
    return BATCH | {"rows": [[value if at == place else each for at, each in enumerate(ROW)]]}


def test_a_batch_is_decoded_as_it_was_encoded() -> None:
    batch = Batch(1, "cloud:mist", (TimedSighting(SEEN, 7),))
    assert encode_batch(batch).endswith(b"\n")
    assert decode(encode_batch(batch)) == batch == decode(orjson.dumps(BATCH))


def test_a_user_name_comes_behind_a_row_and_only_if_there_is_one() -> None:
    batch = Batch(1, "cloud:mist", (TimedSighting(SEEN._replace(user_name="Ännchen".encode()), 7),))
    named = BATCH | {"rows": [[*ROW, "Ännchen".encode().hex()]]}
    assert decode(encode_batch(batch)) == batch == decode(orjson.dumps(named))
    assert "Ännchen" not in repr(batch)


@pytest.mark.parametrize("value", [True, False])
def test_flags_are_decoded_as_they_were_encoded(value: bool) -> None:
    assert decode(encode_can_receive(can_receive=value)) is value
    assert decode_answer(encode_answer(7, kept=value)) == (7, value)


@pytest.mark.parametrize(
    "document",
    [
        [], 1, None, {}, {"hearing": 1}, {"hearing": None}, {"hearing": True, "id": 1}, BATCH | {"more": 1},
        BATCH | {"id": -1}, BATCH | {"id": MOST_ID}, BATCH | {"id": True}, BATCH | {"id": 1.0}, BATCH | {"id": "1"},
        BATCH | {"source": ""}, BATCH | {"source": "a b"}, BATCH | {"source": "x" * 65}, BATCH | {"source": 1},
        BATCH | {"rows": {}}, BATCH | {"rows": [ROW] * (MOST_ROWS + 1)}, BATCH | {"rows": [ROW[:5]]},
        *(BATCH | {"rows": [[*ROW, *more]]} for more in ([1], [None], ["zz"], ["7"], ["61" * 254], ["61", "61"])),
        BATCH | {"rows": ["abcdef"]},
        *(row_with(0, kind) for kind in ("keepalive", "restart", "ignored", "other", 1, None)), row_with(0, []),
        *(row_with(1, device) for device in ("", "a4000000000", "a400000000", "A40000000001", "zz", 1, "a4" * 7)),
        *(row_with(2, radio) for radio in ("5c", "5c521e0020", 1, None)),
        *(row_with(3, name) for name in ("x" * (LONGEST_NAME + 1), 1, None)),
        *(row_with(4, at) for at in (-1, MOST_ID, True, 1.5, "7", None)),
        *(row_with(5, session) for session in ("7", "00" * 33, 1, None)),
        BATCH | {"rows": [["associate", "a40000000001", "", "", 7, ""]]},
    ],
)  # fmt: skip
def test_a_line_with_one_wrong_part_is_refused(document: object) -> None:
    with pytest.raises(FrameError):
        decode(orjson.dumps(document))


@pytest.mark.parametrize("line", [b"", b"{", b'{"id": 1}', b'{"id": 1, "kept": 1}', b'{"id": -1, "kept": true}', b"[]"])
def test_a_wrong_acknowledgement_is_refused(line: bytes) -> None:
    with pytest.raises(FrameError):
        decode_answer(line)


def test_parts_at_their_limits_are_accepted() -> None:
    document = BATCH | {"id": MOST_ID - 1, "source": "x" * 64, "rows": [ROW] * MOST_ROWS}
    decoded = decode(orjson.dumps(document))
    assert isinstance(decoded, Batch)
    assert (decoded.number, len(decoded.rows)) == (MOST_ID - 1, MOST_ROWS)
    assert isinstance(decode(orjson.dumps(row_with(2, ""))), Batch), "a name alone is a place"
    assert isinstance(decode(orjson.dumps(row_with(3, ""))), Batch), "an address alone is a place"


def test_many_rows_become_batches_of_one_line_each() -> None:
    rows = [TimedSighting(SEEN, at) for at in range(2 * MOST_ROWS + 1)]
    made = batches("cloud:mist", rows, 5)
    assert [(each.number, len(each.rows)) for each in made] == [(5, MOST_ROWS), (6, MOST_ROWS), (7, 1)]
    assert [row for each in made for row in each.rows] == rows
    assert batches("cloud:mist", [], 5) == []


def test_no_repr_shows_a_device() -> None:
    row = TimedSighting(SEEN, 7)
    assert repr(row) == "TimedSighting()"
    assert repr(Batch(1, "cloud:mist", (row,))) == "Batch()"


@pytest.mark.parametrize("name", ["\x01" * LONGEST_NAME, "\U0001f4f6" * LONGEST_NAME, "lobby"])
def test_no_line_is_longer_than_the_ingest_reads(name: str) -> None:
    seen = SEEN._replace(name=name.encode(), session=bytes(32), user_name=bytes(LONGEST_LOGIN))
    rows = [TimedSighting(seen, MOST_ID - 1)] * (MOST_ROWS + 1)
    made = batches("x" * 64, rows, MOST_ID - 100)
    assert max(len(encode_batch(each)) for each in made) <= LONGEST_LINE
    assert [row for each in made for row in each.rows] == rows
    assert decode(encode_batch(made[0])) == made[0]
