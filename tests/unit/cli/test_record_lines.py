"""A record as a line for people: zones, or floors and building; answers without half-widths."""

from typing import Any

import pytest

from connectors.cli.subscribe import one_line

RECORD: dict[str, Any] = {
    "site": "dbh", "release": "r", "window_end": "12:05", "released": True, "spend": "1", "laboratory": False,
    "values": {"101": 4, "102": 0}, "half_width_95": {"101": 3.0, "102": 3.0},
}  # fmt: skip
LEVELS: dict[str, Any] = {
    "values": {}, "half_width_95": {}, "levels": {"floor": {"1": 12, "2": 3}, "building": 15},
    "levels_half_width_95": {"floor": {"1": 5, "2": 4}, "building": 6},
}  # fmt: skip

PEOPLE: dict[str, Any] = {
    "counted": "people", "released": False, "reason": "unknown", "values": None, "low": None, "high": None,
    "unknown": {"floor:1": "node", "building": "hour"},
}  # fmt: skip

DECIDED: dict[str, Any] = {"alert": "above", "above": {"zone:101": True, "zone:102": False}, "denied": {}}
FORECAST: dict[str, Any] = {
    "forecast": {"floor": {"1": [40, 30], "2": [None, 30]}, "building": [42, 60]},
    "low": {"floor": {"1": [31, 20], "2": [None, 20]}, "building": [35, 50]},
    "high": {"floor": {"1": [52, 40], "2": [None, 40]}, "building": [55, 70]},
}
"""No answer for the first hour of floor 2."""


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, "dbh/r  12:05 101 4±3  102 0±3  ε 1"),
        (LEVELS, "dbh/r  12:05 floor 1 12±5  floor 2 3±4  building 15±6  ε 1"),
        ({"half_width_95": None}, "dbh/r  12:05 101 4  102 0  ε 1"),
        ({"released": False, "reason": "budget"}, "dbh/r  12:05 not released: budget  ε 1"),
        ({"values": {}, "half_width_95": {}, "levels": {"floor": {"1": 12}}, "levels_half_width_95": {}},
         "dbh/r  12:05 floor 1 12  ε 1"),
        ({"laboratory": True}, "dbh/r  12:05 101 4±3  102 0±3  ε 1  (laboratory)"),
        (DECIDED, "dbh/r  12:05 above: zone:101  ε 1"),
        (DECIDED | {"above": {"zone:101": False}, "denied": {"zone:102": "events"}},
         "dbh/r  12:05 none above; zone:102 not answered (events)  ε 1"),
        (FORECAST, "dbh/r  12:05 forecast: floor 1 40 (31 to 52)  building 42 (35 to 55)  ε 1"),
        (PEOPLE, "dbh/r  12:05 people: floor:1 not known (node)  building not known (hour)  ε 1"),
        (PEOPLE | {"reason": "budget", "unknown": {}}, "dbh/r  12:05 not released: budget  ε 1"),
    ],
    ids=["zones", "levels alone", "no half-width", "denied", "floors alone", "laboratory", "decided", "none above",
         "forecast", "no people known", "people of a denied window"],
)  # fmt: skip
def test_a_record_is_a_line_for_people(changed: dict[str, Any], line: str) -> None:
    assert one_line(RECORD | changed) == line
