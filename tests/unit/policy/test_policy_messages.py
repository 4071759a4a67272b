"""Messages of refused policies name key, rule and value, in this project's words."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.cli.main import _setting
from stream.errors import PolicyError
from stream.release.validation import load_policy
from stream.settings import Settings

WHOLE: dict[str, Any] = {
    "site": {
        "dbh": {
            "name": "Hall", "timezone": "UTC", "tick": "5min", "validity": "10min", "lateness": "30s",
            "max_devices": 20000, "working_hours": ["08:00", "18:00"], "sources": ["10.2.0.5"],
            "zones": [
                {"id": "a", "floor": "1", "kind": "hall", "capacity": 6, "max_count": 80,
                 "access_points": ["02:00:00:00:00:01"], "access_point_names": ["ap-a"]},
                {"id": "b", "floor": "2", "kind": "office", "capacity": 1,
                 "base_radio": ["24:de:c6:cc:dd:e0/44"], "access_points": ["02:00:00:00:00:02"]},
            ],
        }
    },
    "audience": [{"name": "facilities", "description": "x"}, {"name": "public"}],
    "release": [
        {"name": "occupancy", "query": "count", "mechanism": "laplace", "smoother": "median", "calendar": True,
         "zones": {"kind": "hall"}, "levels": ["zone", "floor"], "shares": {"zone": "0.5", "floor": "0.5"},
         "prune": {"share": "0.1", "below": 3}, "epsilon": {"public": "1"}, "daily_budget": {"public": "100"},
         "refresh": "1d", "w_budget": {"public": "10"},
         "queries": [{"name": "jumps", "kind": "jump", "windows": 2, "threshold": 3}]},
        {"name": "sums", "query": "count", "mechanism": "uniform", "w": 12, "zones": {"ids": ["a"]},
         "states": {"all": ["a"]}, "epsilon": {"public": "1"}},
        {"name": "days", "query": "attributes", "mechanism": "osdprr", "zones": {"floor": "2"}, "absent": "sensitive",
         "attributes": {"arrival": {"epsilon": {"facilities": "1"}, "sensitive": {"after": "10:00"}},
                        "occupancy_level": {"epsilon": {"facilities": "1"}, "sensitive": {"below": 0.3}}},
         "model": {"joint": {"00": 0.25, "01": 0.25, "10": 0.25, "11": 0.25}},
         "cap": 3.0, "guard": "static", "days_per_month": 20, "information_target": 2.0},
    ],
    "privacy": {"devices_per_person": 3, "max_factor": 20.5, "ticks_per_attribute": 12, "w": 12,
                "mobility": {"forward": [[0.9, 0.1], [0.1, 0.9]]},
                "meetings": [{"size": 3, "correlation": 0.5, "presence": 0.1}]},
    "pseudonym": {"ttl": "1h"},
    "restricted": {"presence": False, "occupancy": False},
}  # fmt: skip
"""Every key that a policy can have."""

DAILY = WHOLE | {
    "site": {
        "dbh": WHOLE["site"]["dbh"] | {"day_starts": "04:00", "contribution": "8h", "residents": "ignore"},
    },
    "pseudonym": {},
}
"""The keys that do not go with a salt life."""

WRONG: list[Any] = [
    "x y!", "", "9" * 400, -1, 0, 10**30, -(10**400), 1.5, math.nan, math.inf, True, [], [[]], {}, [1], {"a b": 1},
    [{"a": 1}], date(2026, 3, 2), "24:00",
]  # fmt: skip
LIBRARY = re.compile(
    r"pydantic|[Ii]nput|should|valid (integer|string|number|boolean|dictionary|tuple|list)|greater than|less than|"
    r"not permitted|match pattern|[Ff]ield required|Value error|discriminator|unable|\^|\$|type=|https?:|instance|"
    r"another form|NoneType|Error"
)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(stored)}" for key, stored in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**40:
        return hex(abs(value))
    return {"NaN": "nan", "Infinity": "inf"}.get(json.dumps(value), json.dumps(value))


def text_of(document: dict[str, Any]) -> str:
    return "\n".join(f"{json.dumps(key)} = {toml(value)}" for key, value in document.items())


def places(held: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
    for key, inner in entries:
        yield (*before, key)
        yield from places(inner, (*before, key))


def table_of(document: Any, place: tuple[Any, ...]) -> Any:
    for part in place[:-1]:
        document = document[part]
    return document


def refused(document: dict[str, Any]) -> str | None:
    try:
        assert len(load_policy(text_of(document), "p.toml").version) == 16
    except PolicyError as error:
        return str(error)
    return None


def assert_plain(report: str, place: tuple[Any, ...]) -> None:
    keys = {part for part in place if isinstance(part, str)}
    for line in report.splitlines():
        assert not LIBRARY.search(line), line
        assert re.match(r"p\.toml: \S.*: \S", line), line
    assert any(key in report for key in keys), report


PLACES = list(places(WHOLE))
WHOLES = {place: DAILY if place[:1] == ("site",) else WHOLE for place in [*PLACES, *places(DAILY)]}
"""Each place with a policy that has it."""


def test_the_whole_policy_is_a_good_one() -> None:
    assert refused(WHOLE) is None
    assert refused(DAILY) is None
    assert len(PLACES) > 100


@pytest.mark.parametrize("place", WHOLES, ids=lambda place: ".".join(map(str, place)))
def test_no_wrong_value_of_any_key_is_told_in_a_librarys_words(place: tuple[Any, ...]) -> None:
    refusals = 0
    for wrong in WRONG:
        document = copy.deepcopy(WHOLES[place])
        table_of(document, place)[place[-1]] = wrong
        report = refused(document)
        if report is not None:
            assert_plain(report, place)
            refusals += 1
    assert refusals > 0


@pytest.mark.parametrize("place", [place for place in WHOLES if isinstance(place[-1], str)], ids=str)
def test_a_missing_key_and_one_too_many_are_told_in_plain_words(place: tuple[Any, ...]) -> None:
    document = copy.deepcopy(WHOLES[place])
    table = table_of(document, place)
    value = table.pop(place[-1])
    report = refused(document)
    if report is not None:
        assert_plain(report, (*place, "selects no zone"))
    table[f"{place[-1]} X"] = value
    report = refused(document)
    assert report is not None
    assert_plain(report, place)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        (("site", "dbh", "valdity"), "'validity'"),
        (("site", "dbh", "zones", 0, "acces_points"), "'access_points'"),
        (("release", 0, "epsilons"), "'epsilon'"),
        (("release", 0, "dailybudget"), "'daily_budget'"),
        (("release", 0, "queries", 0, "treshold"), "'threshold'"),
        (("release", 0, "prune", "sharing"), "'share'"),
        (("release", 2, "attribute"), "'attributes'"),
        (("release", 2, "attributes", "arrival", "sensitiv"), "'sensitive'"),
        (("release", 2, "attributes", "arrival", "sensitive", "Before"), "'before'"),
        (("release", 2, "model", "joints"), "'joint'"),
        (("privacy", "maxfactor"), "'max_factor'"),
        (("privacy", "meetings", 0, "corelation"), "'correlation'"),
        (("pseudonyms",), "'pseudonym'"),
    ],
)
def test_an_unknown_key_suggests_the_nearest(key: tuple[Any, ...], near: str) -> None:
    document = copy.deepcopy(WHOLE)
    table_of(document, key)[key[-1]] = "x"
    report = refused(document)
    assert report is not None
    assert report.endswith(f": is no key that a policy has, perhaps {near} is meant")


@pytest.mark.parametrize("key", ["\x1b[31mred", "a\nb", "../../etc", "", "x" * 10_000, "ü", "\u202ex"])
@pytest.mark.parametrize("place", [("site",), ("privacy",), ("release", 0, "epsilon")], ids=str)
def test_a_key_that_is_no_word_is_told_as_a_value_is(place: tuple[Any, ...], key: str) -> None:
    """In quotes, cut where it is long, and without what moves a terminal's cursor."""
    document = copy.deepcopy(WHOLE)
    table = table_of(document, (*place, key))
    table[key] = copy.deepcopy(next(iter(table.values())))
    shown = refused(document)
    assert shown is not None
    for line in shown.splitlines():
        assert re.match(r"p\.toml: \S.*: \S", line), line
        assert line.isprintable()
        assert len(line) < 400


def test_a_time_zone_is_not_whatever_the_machine_is_set_to() -> None:
    document = copy.deepcopy(WHOLE)
    document["site"]["dbh"]["timezone"] = "localtime"
    assert "site.dbh.timezone: must be a time zone name" in str(refused(document))


def test_a_zone_is_named_by_id_and_by_the_line_on_which_it_begins() -> None:
    zone = '[[site.dbh.zones]]\nid = "{0}"\ncapacity = {1}\naccess_points = ["02:00:00:00:00:0{0}"]\n'
    head = '[site.dbh]\nsources = ["10.2.0.5"]\n'
    with pytest.raises(PolicyError) as caught:
        load_policy(head + zone.format(1, 6) + zone.format(2, "'six'"), "p.toml")
    first = str(caught.value).splitlines()[0]
    assert first == "p.toml: site.dbh.zones[1].capacity (id '2', line 7): must be a whole number, got 'six'"


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000, "1" + "0" * 400])
@pytest.mark.parametrize("key", ["max_devices", "capacity", "windows", "threshold", "below", "days_per_month", "cap"])
def test_an_absurd_number_is_refused_as_any_other(key: str, number: str) -> None:
    text = re.sub(rf'"{key}" = [0-9.]+', f'"{key}" = {number}', text_of(WHOLE), count=1)
    assert number in text
    with pytest.raises(PolicyError) as caught:
        load_policy(text, "p.toml")
    assert len(str(caught.value)) < 300
    assert not LIBRARY.search(str(caught.value))


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_no_wrong_setting_is_told_in_a_librarys_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = 0
    for wrong in ("x y!", "", "-1", "9" * 5000, "nan", "[]", "1e999"):
        monkeypatch.setenv(f"TACET_{name.upper()}", wrong)
        try:
            Settings()
        except ValidationError as error:
            report = [_setting(problem) for problem in error.errors()]
            assert len(report) == 1
            assert re.match(rf"TACET_{name.upper()}: must .*, got ", report[0]), report
            assert not LIBRARY.search(report[0]), report
            refusals += 1
    assert refusals or Settings.model_fields[name].annotation in {str | None, Path | None}  # take any text
