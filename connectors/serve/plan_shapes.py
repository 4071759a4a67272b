"""The shapes of an SVG drawing: elements and attributes by a list of what is allowed, all others left out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from connectors.serve.plan_paths import LARGEST, Point, Segment, Transform, ellipse, parse_path, polygon
from stream.errors import DataError

DEEPEST = 64
"""Elements within each other."""
_SVG = "http://www.w3.org/2000/svg"
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?")
_STEP = re.compile(r"\s*,?\s*(matrix|translate|scale|rotate|skewX|skewY)\s*\(([^()]*)\)\s*")


@dataclass
class Drawing:
    """What is taken from a file."""

    viewbox: tuple[float, float, float, float] | None = None
    shapes: list[tuple[str | None, list[Segment], Transform]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Open:
    """An element that is open: what holds for its children."""

    transform: Transform
    zone: str | None


def drawn_shapes(data: bytes, zones: frozenset[str], most: int) -> Drawing:
    """Return the shapes of an SVG file, each with its zone.

    Of elements only ``svg``, ``g``, ``path``, ``rect``, ``polygon``, ``polyline``, ``line``, ``circle`` and ``ellipse``
    are read, of attributes only ids, geometry and ``transform``; any other element is left out with all that it holds.

    Raises:
        DataError: not well-formed, not UTF-8, with a document type, too deep, or with more than ``most`` shapes.
    """
    reader = _Reader(zones, most)
    parser = expat.ParserCreate("utf-8", namespace_separator=" ")
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = reader.refuse_doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError:
        raise DataError("must be well-formed SVG in UTF-8") from None
    return reader.drawing


class _Reader:
    """What the parser calls."""

    def __init__(self, zones: frozenset[str], most: int) -> None:
        self.zones = zones
        self.most = most
        self.drawing = Drawing()
        self.open: list[_Open] = []
        self.outside = 0
        """How many elements are open from the first that is left out."""

    def refuse_doctype(self, *_: Any) -> None:
        raise DataError("must have no document type: it could define entities")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        space, _, element = name.rpartition(" ")
        if not self.open and not self.outside and (space, element) != (_SVG, "svg"):
            raise DataError("must be an svg element of the SVG namespace")
        if len(self.open) + self.outside >= DEEPEST:
            raise DataError(f"elements must be at most {DEEPEST} deep")
        if self.outside or space != _SVG or element not in {"svg", "g", *_SHAPES}:
            self.outside += 1
            return
        above = self.open[-1] if self.open else _Open(Transform(), None)
        here = _Open(
            above.transform.after(transform_of(attributes.get("transform", ""))), self._zone(attributes) or above.zone
        )
        if not self.open:
            self.drawing.viewbox = _viewbox(attributes)
        self.open.append(here)
        if element in _SHAPES:
            self._shape(_SHAPES[element](attributes), here)

    def end(self, name: str) -> None:
        del name
        if self.outside:
            self.outside -= 1
        else:
            self.open.pop()

    def _zone(self, attributes: Mapping[str, str]) -> str | None:
        return next((name for key in ("data-zone", "id") if (name := attributes.get(key)) in self.zones), None)

    def _shape(self, segments: list[Segment], here: _Open) -> None:
        if len(self.drawing.shapes) >= self.most:
            raise DataError(f"a plan must have at most {self.most} shapes")
        if segments:
            self.drawing.shapes.append((here.zone, segments, here.transform))


def _viewbox(attributes: Mapping[str, str]) -> tuple[float, float, float, float] | None:
    if "viewBox" in attributes:
        found = _numbers(attributes["viewBox"])
        if len(found) != 4 or found[2] <= 0 or found[3] <= 0:
            raise DataError("viewBox must be x, y, width and height, the last two above 0")
        return found[0], found[1], found[2], found[3]
    return None


def transform_of(text: str) -> Transform:
    """Return the map that a ``transform`` attribute means.

    Raises:
        DataError: it is none of SVG 1.1's.
    """
    made, at = Transform(), 0
    while at < len(text.rstrip()):
        found = _STEP.match(text, at)
        if found is None:
            raise DataError("transform must be of matrix, translate, scale, rotate, skewX and skewY")
        made = made.after(_step(found[1], _numbers(found[2])))
        at = found.end()
    return made


def _step(name: str, n: list[float]) -> Transform:
    allowed = {"matrix": (6,), "translate": (1, 2), "scale": (1, 2), "rotate": (1, 3), "skewX": (1,), "skewY": (1,)}
    if len(n) not in allowed[name]:
        raise DataError(f"{name} must have {' or '.join(map(str, allowed[name]))} numbers")
    if name == "matrix":
        return Transform(*n)
    if name == "translate":
        return Transform(e=n[0], f=n[1] if len(n) == 2 else 0.0)
    if name == "scale":
        return Transform(a=n[0], d=n[-1])
    angle = math.radians(n[0])
    if name == "skewX":
        return Transform(c=math.tan(angle))
    if name == "skewY":
        return Transform(b=math.tan(angle))
    x, y = (n[1], n[2]) if len(n) == 3 else (0.0, 0.0)
    turn = Transform(math.cos(angle), math.sin(angle), -math.sin(angle), math.cos(angle))
    return Transform(e=x, f=y).after(turn).after(Transform(e=-x, f=-y))


def _numbers(text: str) -> list[float]:
    found = _NUMBER.findall(text)
    if _NUMBER.sub("", text).strip(" \t\r\n,"):
        raise DataError("a list of numbers must hold numbers")
    values = [float(number) for number in found]
    if not all(abs(value) <= LARGEST for value in values):
        raise DataError(f"a coordinate must be a number of at most {LARGEST:g}")
    return values


def _length(attributes: Mapping[str, str], name: str) -> float:
    text = attributes.get(name, "0").strip()
    values = _numbers(text.removesuffix("px"))
    if len(values) != 1:
        raise DataError(f"{name} must be one number, without a unit or in px")
    return values[0]


def _path(attributes: Mapping[str, str]) -> list[Segment]:
    return parse_path(attributes.get("d", ""))


def _rect(attributes: Mapping[str, str]) -> list[Segment]:
    x, y, width, height = (_length(attributes, name) for name in ("x", "y", "width", "height"))
    if width <= 0 or height <= 0:
        return []
    return polygon([(x, y), (x + width, y), (x + width, y + height), (x, y + height)], closed=True)


def _pairs(attributes: Mapping[str, str]) -> list[Point]:
    values = _numbers(attributes.get("points", ""))
    if len(values) % 2 or len(values) < 4:
        raise DataError("points must be pairs of numbers, two at least")
    return list(zip(values[::2], values[1::2], strict=True))


def _line(attributes: Mapping[str, str]) -> list[Segment]:
    ends = [(_length(attributes, f"x{i}"), _length(attributes, f"y{i}")) for i in (1, 2)]
    return polygon(ends, closed=False)


def _round(attributes: Mapping[str, str], *radii: str) -> list[Segment]:
    rx, ry = _length(attributes, radii[0]), _length(attributes, radii[-1])
    return ellipse((_length(attributes, "cx"), _length(attributes, "cy")), rx, ry) if rx > 0 and ry > 0 else []


_SHAPES: dict[str, Callable[[Mapping[str, str]], list[Segment]]] = {
    "path": _path,
    "rect": _rect,
    "polygon": lambda attributes: polygon(_pairs(attributes), closed=True),
    "polyline": lambda attributes: polygon(_pairs(attributes), closed=False),
    "line": _line,
    "circle": lambda attributes: _round(attributes, "r"),
    "ellipse": lambda attributes: _round(attributes, "rx", "ry"),
}
