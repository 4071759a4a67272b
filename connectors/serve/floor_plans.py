"""Floor plans: SVG or GeoJSON to shapes of zones and an outline.

Nothing else of a file is passed on.

The operator supplies the plans, but they come from drawing programs and are shown in other people's browsers. A file is
therefore read as geometry: only listed elements and attributes are accepted, all sizes are bounded, and the page
receives numbers, never markup. Scripts, links, styles, texts and images are dropped.

SVG is read in ``svg``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from connectors.serve.svg import Point, Segment, Transform, hull_points, path_data, polygon, read_shapes
from stream.errors import DataError, UsageError
from stream.policy.document import PolicyDocument
from stream.records import JsonObject

LARGEST_FILE = 2 << 20
MOST_SHAPES = 5_000
LONGEST_PLAN = 1_000_000
"""Characters of all path data together."""
WIDTH = 1000.0
"""Of a plan made from GeoJSON, in units of its view box."""

Shape = tuple[str | None, list[Segment], Transform]
"""The zone, or None for the outline; the path; and its transform."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A floor as shapes in one coordinate system, with y pointing down."""

    viewbox: tuple[float, float, float, float]
    """x, y, width, height."""
    zones: Mapping[str, str] = field(default_factory=dict)
    """Zone -> path data."""
    outline: tuple[str, ...] = ()

    def as_json(self) -> JsonObject:
        """Return the plan as JSON for the page."""
        return {"viewbox": list(self.viewbox), "zones": dict(self.zones), "outline": list(self.outline)}


Parse = Callable[[bytes, Collection[str]], Plan]


def read_plans(folder: Path, zones: Mapping[tuple[str, str], Collection[str]]) -> dict[tuple[str, str], Plan]:
    """Read ``folder/<site>/<floor>.svg`` or ``.geojson`` of each (site, floor) that has one.

    Args:
        folder: the folder of plans.
        zones: (site, floor) -> the floor's zones; a shape belongs to a zone if it carries that zone's id.

    Raises:
        UsageError: the folder does not exist.
        DataError: a file breaks a rule; the message names file and rule.
    """
    if not folder.is_dir():
        raise UsageError(f"the folder of plans must be a folder, but {folder} is none")
    found = {}
    for (site, floor), here in zones.items():
        for form, parse in (("svg", parse_svg), ("geojson", parse_geojson)):
            path = folder / site / f"{floor}.{form}"
            if _plain(site) and _plain(f"{floor}.{form}") and path.is_file():
                found[site, floor] = _read(path, parse, here)
                break
    return found


def read_named_plans(policy: PolicyDocument, folder: Path) -> dict[tuple[str, str], Plan]:
    """Return the plans that a policy's files of names give, as (site, floor) -> plan; ``folder`` is the policy's.

    Raises:
        DataError: plans cannot be read, or break a rule; each with file, key, rule and value.
    """
    found, problems = {}, []
    for name, site in policy.site.items():
        if site.names is None:
            continue
        file = folder / site.names.file
        for floor in site.names.floors:
            if floor.plan is None:
                continue
            zones = [zone.id for zone in site.zones if zone.floor == floor.id]
            try:
                found[name, floor.id] = _read(file.parent / floor.plan, _form(floor.plan), zones)
            except OSError as error:
                rule = f"must be a file that can be read ({error.strerror})"
                problems.append(f"{file}: site.{name}.floors (id {floor.id!r}).plan: {rule}, got {floor.plan!r}")
            except DataError as error:
                problems.append(f"{file}: site.{name}.floors (id {floor.id!r}).plan: {error}")
    if problems:
        raise DataError("\n".join(problems))
    return found


def _form(path: str) -> Parse:
    return parse_svg if path.endswith(".svg") else parse_geojson


def _plain(name: str) -> bool:
    """Whether a name is a single path component that leads downwards."""
    return name not in {"", ".", ".."} and Path(name).name == name


def _read(path: Path, parse: Parse, zones: Collection[str]) -> Plan:
    if path.stat().st_size > LARGEST_FILE:
        raise DataError(f"{path}: a plan must have at most {LARGEST_FILE} bytes")
    try:
        return parse(path.read_bytes(), zones)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def parse_svg(data: bytes, zones: Collection[str]) -> Plan:
    """Return the plan of an SVG file; a zone's shape, or group of shapes, has the zone's id as ``data-zone`` or ``id``.

    Raises:
        DataError: not a well-formed SVG without a document type, or beyond a bound.
    """
    drawing = read_shapes(data, frozenset(zones), MOST_SHAPES)
    return _plan(drawing.viewbox, drawing.shapes)


def parse_geojson(data: bytes, zones: Collection[str]) -> Plan:
    """Return the plan of a GeoJSON feature collection; a zone's feature has the zone's id as ``id`` or property
    ``zone``.

    Longitudes and latitudes are projected as seen from above their centre; other coordinates are used as they are, y
    up.

    Raises:
        DataError: not a feature collection of polygons and lines, or beyond a bound.
    """
    try:
        features = json.loads(data)["features"]
        shapes = [shape for feature in features for shape in _feature(feature, frozenset(zones))]
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise DataError("must be a GeoJSON FeatureCollection of polygons and lines") from None
    if len(shapes) > MOST_SHAPES:
        raise DataError(f"a plan must have at most {MOST_SHAPES} shapes")
    points = [point for _, segments in shapes for point in hull_points(segments, Transform())]
    if not points:
        raise DataError("a plan must have a shape")
    place = _placed(points)
    return _plan(None, [(zone, segments, place) for zone, segments in shapes])


def _feature(feature: JsonObject, zones: frozenset[str]) -> list[tuple[str | None, list[Segment]]]:
    properties = feature.get("properties") or {}
    names = [
        str(name) for name in (properties.get("zone"), properties.get("id"), feature.get("id")) if name is not None
    ]
    zone = next((name for name in names if name in zones), None)
    geometry = feature["geometry"]
    kind, places = geometry["type"], geometry["coordinates"]
    if kind == "LineString":
        return [(None, polygon(_points(places), closed=False))]
    if kind not in {"Polygon", "MultiPolygon"}:
        return []
    rings = [ring for part in ([places] if kind == "Polygon" else places) for ring in part]
    return [(zone, [segment for ring in rings for segment in polygon(_points(ring), closed=True)])]


def _points(places: Iterable[Any]) -> list[Point]:
    found = [(float(place[0]), float(place[1])) for place in places]
    if not all(math.isfinite(x) and math.isfinite(y) for x, y in found):
        raise DataError("coordinates must be finite numbers")
    return found


def _placed(points: list[Point]) -> Transform:
    """Return the map from GeoJSON's coordinates into a view box, y pointing down."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    on_earth = all(abs(x) <= 180 for x in xs) and all(abs(y) <= 90 for y in ys)
    narrow = math.cos(math.radians((low + high) / 2)) if on_earth else 1.0
    scale = WIDTH / max((right - left) * narrow, high - low, 1e-12)
    return Transform(scale * narrow, 0.0, 0.0, -scale, -left * scale * narrow, high * scale)


def _plan(viewbox: tuple[float, float, float, float] | None, shapes: list[Shape]) -> Plan:
    zones: dict[str, str] = {}
    outline = []
    length = 0
    for zone, segments, transform in shapes:
        data = path_data(segments, transform)
        length += len(data)
        if length > LONGEST_PLAN:
            raise DataError(f"a plan must have at most {LONGEST_PLAN} characters of path data")
        if zone is None:
            outline.append(data)
        else:
            zones[zone] = zones.get(zone, "") + data
    return Plan(viewbox or _around(shapes), zones, tuple(outline))


def _around(shapes: list[Shape]) -> tuple[float, float, float, float]:
    points = [point for _, segments, transform in shapes for point in hull_points(segments, transform)]
    if not points:
        raise DataError("a plan must have a shape")
    left, top = min(x for x, _ in points), min(y for _, y in points)
    width, height = max(x for x, _ in points) - left, max(y for _, y in points) - top
    edge = 0.01 * max(width, height, 1.0)
    box = (left - edge, top - edge, width + 2 * edge, height + 2 * edge)
    return tuple(round(value, 2) for value in box)  # type: ignore[return-value]
