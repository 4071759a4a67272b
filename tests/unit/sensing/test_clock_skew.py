"""Times in a message against the time at which its log appended it."""

from __future__ import annotations

from typing import Any

import pytest

from stream.records import DAY, MINUTE, Heartbeat, ObservationBatch, Rejected, Row
from stream.sensing.watermark import bounded

NOON = 1_772_452_800_000_000
LATEST = NOON + 5 * MINUTE
AP = "5c:52:1e:00:20:11"


def test_a_heartbeat_more_than_five_minutes_ahead_of_its_stamp_is_rejected() -> None:
    good = Heartbeat("dbh", "c", NOON, LATEST)
    assert bounded(good, NOON) == (good, [])
    assert bounded(Heartbeat("dbh", "c", NOON, LATEST + 1), NOON) == (None, [Rejected("c", "ahead", "watermark")])


def test_rows_more_than_five_minutes_ahead_of_their_stamp_are_rejected_one_by_one() -> None:
    rows = (Row("a", AP, LATEST), Row("b", AP, LATEST + 1), Row("c", AP, NOON - DAY), Row("d", AP, NOON + 35 * DAY))
    taken, rejected = bounded(ObservationBatch("dbh", "c", NOON, 3, rows), NOON)
    assert taken == ObservationBatch("dbh", "c", NOON, 3, (rows[0], rows[2]))
    assert rejected == [Rejected("c", "ahead", "rows[1].time"), Rejected("c", "ahead", "rows[3].time")]


@pytest.mark.parametrize(
    "message", [Heartbeat("dbh", "c", LATEST + 1, NOON), ObservationBatch("dbh", "c", LATEST + 1, 0, ())]
)
def test_a_session_of_the_future_shuts_out_nobody(message: Any) -> None:
    assert bounded(message, NOON) == (None, [Rejected("c", "ahead", "session")])


def test_a_recording_has_no_stamp_and_no_bound() -> None:
    future = Heartbeat("dbh", "c", LATEST + DAY, NOON + 35 * DAY)
    assert bounded(future, None) == (future, [])
