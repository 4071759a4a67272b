"""Floor plans: what is drawn of them, what never comes through, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.serve.floor_plans import (
    LARGEST_FILE,
    MOST_SHAPES,
    Plan,
    parse_geojson,
    parse_svg,
    read_named_plans,
    read_plans,
)
from connectors.serve.svg import Transform, parse_path, path_data, transform_of
from stream.errors import DataError, UsageError
from tests.support.small_building import building

ZONES = ("2011", "2065")
ALLOWED = re.compile(r"(?:[MLCQ](?:-?\d+(?:\.\d{1,2})? ?)+|Z)*")
"""What path data may look like when it leaves: absolute commands, plain numbers."""


def svg(inside: str, attributes: str = 'viewBox="0 0 100 50"') -> bytes:
    return f'<svg xmlns="http://www.w3.org/2000/svg" {attributes}>{inside}</svg>'.encode()


def plan_of(inside: str, attributes: str = 'viewBox="0 0 100 50"') -> Plan:
    return parse_svg(svg(inside, attributes), ZONES)


def path(data: str, transform: Transform = Transform()) -> str:  # noqa: B008
    return path_data(parse_path(data), transform)


# --- what is drawn ---------------------------------------------------------------------------------------------------


def test_a_shape_with_a_zones_id_is_that_zones_and_others_are_the_outline() -> None:
    plan = plan_of(
        '<rect id="2011" x="1" y="2" width="3" height="4"/><path d="M0 0L100 0"/><path id="9999" d="M0 1L1 1"/>'
    )
    assert plan == Plan((0, 0, 100, 50), {"2011": "M1 2L4 2L4 6L1 6Z"}, ("M0 0L100 0", "M0 1L1 1"))


def test_data_zone_goes_before_id_and_holds_for_a_group() -> None:
    group = '<g data-zone="2011"><path d="M0 0L1 0"/><path id="x" d="M2 0L3 0"/></g>'
    plan = plan_of(group + '<path id="2011" data-zone="2065" d="M5 5L6 6"/>')
    assert plan.zones == {"2011": "M0 0L1 0M2 0L3 0", "2065": "M5 5L6 6"}


@pytest.mark.parametrize(
    ("element", "drawn"),
    [
        ('<polygon points="0,0 4,0 4,3"/>', "M0 0L4 0L4 3Z"),
        ('<polyline points="0 0 4 0 4 3"/>', "M0 0L4 0L4 3"),
        ('<line x1="1" y1="2" x2="3px" y2="4"/>', "M1 2L3 4"),
        ('<rect width="0" height="4"/>', None),
        ('<circle cx="5" cy="5" r="2"/>', "M3 5C3 6.1 3.9 7 5 7C6.1 7 7 6.1 7 5C7 3.9 6.1 3 5 3C3.9 3 3 3.9 3 5Z"),
    ],
)
def test_every_allowed_element_becomes_a_path(element: str, drawn: str | None) -> None:
    assert plan_of(element).outline == (() if drawn is None else (drawn,))


@pytest.mark.parametrize(
    ("data", "drawn"),
    [
        ("m1 1 l2 0 0,2z m5 5 h1 v-1", "M1 1L3 1L3 3ZM6 6L7 6L7 5"),
        ("M0 0 10 0 10-10.5.5", None),
        ("M0 0 10 0 10-10.5", "M0 0L10 0L10 -10.5"),
        ("M0 0C1 1 2 1 3 0S5-1 6 0", "M0 0C1 1 2 1 3 0C4 -1 5 -1 6 0"),
        ("M0 0Q1 1 2 0T4 0", "M0 0Q1 1 2 0Q3 -1 4 0"),
        ("M0 0T4 0", "M0 0Q0 0 4 0"),
        ("M0 0a1 1 0 012 0", "M0 0C0 -0.55 0.45 -1 1 -1C1.55 -1 2 -0.55 2 0"),
        ("M0 0A0 1 0 0 1 2 0", "M0 0L2 0"),
        ("M1e1 0L-0 .001", "M10 0L0 0"),
    ],
)
def test_path_data_is_rewritten_in_absolute_commands(data: str, drawn: str | None) -> None:
    if drawn is None:
        with pytest.raises(DataError):
            parse_path(data)
    else:
        assert path(data) == drawn


def test_transforms_of_groups_and_shapes_are_applied_to_the_points() -> None:
    plan = plan_of('<g transform="translate(10 20)"><path transform="scale(2) rotate(90)" d="M1 0L2 0"/></g>')
    assert plan.outline == ("M10 22L10 24",)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("matrix(1 2 3 4 5 6)", (1 + 3 + 5, 2 + 4 + 6)),
        ("translate(3)", (4, 1)),
        ("scale(2,3)", (2, 3)),
        ("rotate(90, 1, 0)", (0, 0)),
        ("skewX(45)", (2, 1)),
        ("skewY(45)", (1, 2)),
    ],
)
def test_every_transform_moves_a_point_as_svg_says(text: str, at: tuple[float, float]) -> None:
    assert transform_of(text).at((1, 1)) == pytest.approx(at)


def test_without_a_view_box_the_plan_is_framed_by_its_shapes() -> None:
    assert plan_of('<rect x="10" y="10" width="100" height="50"/>', "").viewbox == (9, 9, 102, 52)


def feature(geometry: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "Feature", "properties": {}, "geometry": geometry} | more


def collection(*features: dict[str, Any]) -> bytes:
    return json.dumps({"type": "FeatureCollection", "features": list(features)}).encode()


SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [500, 0], [500, 250], [0, 250], [0, 0]]]}


def test_a_geojson_polygon_is_drawn_with_y_pointing_down() -> None:
    plan = parse_geojson(collection(feature(SQUARE, properties={"zone": "2011"})), ZONES)
    assert plan.zones == {"2011": "M0 500L1000 500L1000 0L0 0L0 500Z"}
    assert plan.viewbox == (-10, -10, 1020, 520)


def test_longitudes_are_narrowed_by_their_latitude() -> None:
    """At 60 degrees north a degree of longitude is half as long as one of latitude."""
    ring = [[10, 59.5], [11, 59.5], [11, 60.5], [10, 60.5], [10, 59.5]]
    plan = parse_geojson(collection(feature({"type": "Polygon", "coordinates": [ring]}, id="2065")), ZONES)
    assert plan.zones["2065"] == "M0 1000L500 1000L500 0L0 0L0 1000Z"


def test_lines_and_unknown_features_are_outline_and_points_are_left_out() -> None:
    line = feature({"type": "LineString", "coordinates": [[0, 0], [200, 0]]}, id="2011")
    point = feature({"type": "Point", "coordinates": [0, 0]})
    plan = parse_geojson(collection(line, point, feature(SQUARE)), ZONES)
    assert not plan.zones
    assert len(plan.outline) == 2


# --- what never comes through ----------------------------------------------------------------------------------------

HOSTILE = """<script>alert(1)</script><style>@import "http://elsewhere/"</style><a href="http://elsewhere/">
<path id="2065" d="M0 0L9 9"/></a><image href="http://elsewhere/x.png"/><use href="#2011"/>
<foreignObject><body xmlns="http://www.w3.org/1999/xhtml"><script>alert(2)</script></body></foreignObject>
<path id="2011" d="M0 0L1 1" onclick="alert(3)" style="fill:url(http://elsewhere/)"/><text>Smith's office</text>
<x:path xmlns:x="http://elsewhere/" d="M0 0L8 8"/>"""


def test_scripts_links_styles_texts_pictures_and_other_languages_are_left_out_with_all_they_hold() -> None:
    plan = plan_of(HOSTILE)
    assert plan == Plan((0, 0, 100, 50), {"2011": "M0 0L1 1"})


@given(st.text(alphabet="MmLlHhVvCcSsQqTtAaZz0123456789.,-+eE \n<>\"'&;", max_size=40))
def test_whatever_path_data_a_file_has_only_commands_and_numbers_leave(data: str) -> None:
    try:
        drawn = path(data)
    except DataError:
        return
    assert ALLOWED.fullmatch(drawn), drawn


@given(st.binary(max_size=200))
def test_any_bytes_are_a_plan_or_refused(data: bytes) -> None:
    for parse in (parse_svg, parse_geojson):
        for text in (data, svg(data.decode("latin-1"))):
            try:
                parse(text, ZONES)
            except DataError:
                continue


# --- what is refused -------------------------------------------------------------------------------------------------

REFUSED = {
    "a document type": b'<!DOCTYPE svg [<!ENTITY a "b">]>' + svg(""),
    "a document type in another encoding": '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE svg><svg/>'.encode(
        "utf-16"
    ),
    "no svg": b"<html/>",
    "svg of no namespace": b"<svg/>",
    "not well-formed": svg("<g>"),
    "too deep": svg("<g>" * 70 + "</g>" * 70),
    "too deep in what is left out": svg("<x>" * 70 + "</x>" * 70),
    "too many shapes": svg('<path d="M0 0L1 1"/>' * (MOST_SHAPES + 1)),
    "too long paths": svg('<path d="M' + " 1234567 1234567" * 70_000 + '"/>', ""),
    "a view box of three": svg("", 'viewBox="0 0 1"'),
    "an empty view box": svg("", 'viewBox="0 0 0 1"'),
    "a path that is none": svg('<path d="M0 0L1"/>'),
    "a path that begins with a line": svg('<path d="L0 0"/>'),
    "a number after closing": svg('<path d="M0 0Z1"/>'),
    "a number that is none": svg('<path d="M0 0LNaN 1"/>'),
    "a number too large": svg('<path d="M0 0L1e300 1"/>'),
    "an arc of a tiny radius": svg('<path d="M0 0A1e-200 1 0 0 0 5 5"/>'),
    "an arc over a tiny distance": svg('<path d="M0 0A1 1 0 0 0 1e-200 0"/>'),
    "moved too far": svg('<path transform="scale(1e6)" d="M0 0L1e6 1"/>'),
    "a transform that is none": svg('<path transform="url(#a)" d="M0 0L1 1"/>'),
    "a transform of too many": svg('<path transform="scale(1 2 3)" d="M0 0L1 1"/>'),
    "odd points": svg('<polygon points="1 2 3"/>'),
    "a length in metres": svg('<rect width="3m" height="1"/>'),
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_an_svg_beyond_the_rules_is_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        parse_svg(data, ZONES)


@pytest.mark.parametrize(
    "data",
    [
        b"{", b"[]", b'{"features": [{}]}', b'{"features": []}', b"[" * 100_000,
        collection(feature({"type": "Polygon", "coordinates": [[[0, "x"]]]})),
        b'{"features":[{"geometry":{"type":"LineString","coordinates":[[NaN,0],[1,1]]}}]}',
        b'{"features":[{"geometry":{"type":"LineString","coordinates":[[1e400,0],[1,1]]}}]}',
        collection(*[feature(SQUARE)] * (MOST_SHAPES + 1)),
        b'{"features":["a text"]}',
        b'{"features":[{"properties":[1],"geometry":{"type":"LineString","coordinates":[[0,0],[1,1]]}}]}',
        b'{"features":[{"geometry":{"type":"LineString","coordinates":[[' + b"9" * 400 + b',0],[1,1]]}}]}',
    ],
    ids=lambda data: data[:30].decode(),
)  # fmt: skip
def test_a_geojson_beyond_the_rules_is_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        parse_geojson(data, ZONES)


# --- files -----------------------------------------------------------------------------------------------------------


def test_plans_are_found_by_site_and_floor(tmp_path: Path) -> None:
    (tmp_path / "dbh").mkdir()
    (tmp_path / "dbh" / "2.svg").write_bytes(svg('<path id="2011" d="M0 0L1 1"/>'))
    (tmp_path / "dbh" / "3.geojson").write_bytes(collection(feature(SQUARE, id="3001")))
    found = read_plans(tmp_path, {("dbh", "2"): ["2011"], ("dbh", "3"): ["3001"], ("dbh", "4"): []})
    assert {key: list(plan.zones) for key, plan in found.items()} == {("dbh", "2"): ["2011"], ("dbh", "3"): ["3001"]}
    assert found["dbh", "2"].as_json() == {"viewbox": [0, 0, 100, 50], "zones": {"2011": "M0 0L1 1"}, "outline": []}


def test_a_floors_name_leads_to_no_file_outside_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "plans" / "dbh").mkdir(parents=True)
    (tmp_path / "secret.svg").write_bytes(svg(""))
    for site, floor in (("dbh", "../../secret"), ("..", "secret"), ("dbh", f"{tmp_path}/secret"), ("", "../secret")):
        assert read_plans(tmp_path / "plans", {(site, floor): []}) == {}


def test_a_refusal_names_file_and_rule(tmp_path: Path) -> None:
    (tmp_path / "dbh").mkdir()
    (tmp_path / "dbh" / "2.svg").write_bytes(b"<svg/>")
    with pytest.raises(DataError, match=r"dbh/2\.svg: must be an svg element"):
        read_plans(tmp_path, {("dbh", "2"): []})


def test_a_file_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "dbh").mkdir()
    (tmp_path / "dbh" / "2.svg").write_bytes(svg("") + b" " * LARGEST_FILE)
    with pytest.raises(DataError, match="at most"):
        read_plans(tmp_path, {("dbh", "2"): []})


@pytest.mark.parametrize(("size", "well"), [(2 * 1024 * 1024, True), (2 * 1024 * 1024 + 1, False)])
def test_a_plan_has_at_most_2_mib(tmp_path: Path, size: int, well: bool) -> None:
    (tmp_path / "dbh").mkdir()
    (tmp_path / "dbh" / "2.svg").write_bytes(svg('<path id="2011" d="M0 0L1 1"/>').ljust(size))
    if well:
        assert list(read_plans(tmp_path, {("dbh", "2"): ["2011"]})["dbh", "2"].zones) == ["2011"]
    else:
        with pytest.raises(DataError, match="a plan must have at most 2097152 bytes"):
            read_plans(tmp_path, {("dbh", "2"): ["2011"]})


def test_a_policy_without_files_of_names_gives_no_plans(tmp_path: Path) -> None:
    assert read_named_plans(building(), tmp_path) == {}


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="folder"):
        read_plans(tmp_path / "none", {})
