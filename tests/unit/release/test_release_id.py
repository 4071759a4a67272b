"""A release id is written and read in one place."""

from __future__ import annotations

import pytest

from stream.errors import DataError
from stream.records import ReleaseId, ZoneDayAttribute

WINDOW = "dbh/occupancy/public/2026-03-02T08:05:00Z"
DAY = "dbh/office-day/board/2026-03-02/2065/arrival"


@pytest.mark.parametrize("text", [WINDOW, f"{WINDOW}#2", f"{WINDOW}#17", DAY])
def test_what_is_read_is_what_was_written(text: str) -> None:
    assert str(ReleaseId.parse(text)) == text


def test_its_parts_have_names() -> None:
    assert ReleaseId.parse(f"{WINDOW}#2") == ReleaseId("dbh", "occupancy", "public", "2026-03-02T08:05:00Z", 2)
    assert ReleaseId.parse(DAY).attribute == ZoneDayAttribute("2026-03-02", "2065", "arrival")


@pytest.mark.parametrize("text", ["", "dbh/occupancy/public", "dbh//public/now", f"{WINDOW}#two", "a/b/c/#2"])
def test_what_is_no_release_id_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="release_id"):
        ReleaseId.parse(text)


def test_an_attribute_is_written_by_day_zone_and_name() -> None:
    assert str(ReleaseId.parse(DAY).attribute) == "2026-03-02/2065/arrival"


def test_a_window_is_no_attribute() -> None:
    with pytest.raises(DataError, match="day/zone/attribute"):
        ReleaseId.parse(WINDOW).attribute  # noqa: B018
