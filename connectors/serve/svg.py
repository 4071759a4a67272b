"""SVG drawings, read as geometry: shapes with their transforms, and nothing else of a file.

Only listed elements and attributes are accepted, and all sizes are bounded. Path data is parsed strictly, transformed,
and written again from absolute moves, lines and curves, so that every output character is generated here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from xml.parsers import expat

from stream.errors import DataError

Point = tuple[float, float]


LARGEST = 1e7
"""Larger coordinates are refused."""


_TOKEN = re.compile(r"[\s,]*(?:([MmLlHhVvCcSsQqTtAaZz])|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?))")


_FLAG = re.compile(r"[\s,]*()([01])")
"""A flag of an arc; no separator is needed before the next number."""


_NUMBERS = {"M": 2, "L": 2, "H": 1, "V": 1, "C": 6, "S": 4, "Q": 4, "T": 2, "A": 7, "Z": 0}


class Transform(NamedTuple):
    """An affine map: x' = a x + c y + e, y' = b x + d y + f."""

    a: float = 1.0
    b: float = 0.0
    c: float = 0.0
    d: float = 1.0
    e: float = 0.0
    f: float = 0.0

    def at(self, point: Point) -> Point:
        """Return the image of a point."""
        x, y = point
        return self.a * x + self.c * y + self.e, self.b * x + self.d * y + self.f

    def after(self, inner: Transform) -> Transform:
        """Return the map that applies ``inner`` first, then this one."""
        return Transform(
            self.a * inner.a + self.c * inner.b,
            self.b * inner.a + self.d * inner.b,
            self.a * inner.c + self.c * inner.d,
            self.b * inner.c + self.d * inner.d,
            *self.at((inner.e, inner.f)),
        )


class Segment(NamedTuple):
    """A move (M), line (L), quadratic or cubic curve (Q, C) to the last of its points, or a closing line (Z)."""

    letter: str
    points: tuple[Point, ...] = ()


def parse_path(data: str) -> list[Segment]:
    """Return path data as absolute segments, with arcs as cubic curves.

    Raises:
        DataError: not path data, or a coordinate is beyond ``LARGEST``.
    """
    pen = _Pen()
    for letter, numbers in _commands(data):
        pen.draw(letter, numbers)
    return pen.segments


def polygon(points: list[Point], *, closed: bool) -> list[Segment]:
    """Return the segments through some points."""
    if len(points) < 2:
        raise DataError("a polygon must have at least two points")
    lines = [Segment("M" if i == 0 else "L", (point,)) for i, point in enumerate(points)]
    return [*lines, Segment("Z")] if closed else lines


def ellipse(centre: Point, rx: float, ry: float) -> list[Segment]:
    """Return an ellipse as two arcs."""
    x, y = centre
    return parse_path(f"M{x - rx} {y}A{rx} {ry} 0 1 0 {x + rx} {y}A{rx} {ry} 0 1 0 {x - rx} {y}Z")


def path_data(segments: list[Segment], transform: Transform) -> str:
    """Return path data of the transformed segments, rounded to hundredths."""
    return "".join(
        segment.letter + " ".join(f"{_short(x)} {_short(y)}" for x, y in map(transform.at, segment.points))
        for segment in segments
    )


def hull_points(segments: list[Segment], transform: Transform) -> Iterator[Point]:
    """Yield transformed points whose convex hull contains the shape."""
    for segment in segments:
        yield from map(transform.at, segment.points)


def _short(value: float) -> str:
    if not abs(value) <= LARGEST:
        raise DataError(f"a coordinate must be a number of at most {LARGEST:g}")
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _commands(data: str) -> Iterator[tuple[str, list[float]]]:
    """Yield each command with the number of arguments that it takes; further arguments repeat the command."""
    letter, at = "", 0
    numbers: list[float] = []
    data = data.strip()
    while at < len(data):
        flag = letter in {"A", "a"} and len(numbers) in {3, 4}
        found = (_FLAG if flag else _TOKEN).match(data, at)
        if found is None:
            raise DataError("path data must be commands and numbers")
        at = found.end()
        if found[1]:
            if numbers:
                raise DataError("a path command has too few numbers")
            letter = found[1]
            if letter in "Zz":
                yield letter, []
        else:
            numbers.append(_bounded(found[2]))
        if numbers and (not letter or letter in "Zz"):
            raise DataError("path data must begin with a command")
        if numbers and len(numbers) == _NUMBERS[letter.upper()]:
            yield letter, numbers
            letter, numbers = {"M": "L", "m": "l"}.get(letter, letter), []
    if numbers:
        raise DataError("a path command has too few numbers")


def _bounded(text: str) -> float:
    value = float(text)
    if not abs(value) <= LARGEST:
        raise DataError(f"a coordinate must be a number of at most {LARGEST:g}")
    return value


class _Pen:
    """The current point of a path, and the segments drawn so far."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.here: Point = (0.0, 0.0)
        self.subpath_start: Point = (0.0, 0.0)
        self.control: tuple[str, Point] | None = None
        """The last control point and its kind, for the smooth curves."""

    def draw(self, letter: str, numbers: list[float]) -> None:
        command = letter.upper()
        if not self.segments and command != "M":
            raise DataError("path data must begin with a move")
        if command == "Z":
            self._put("Z", (), self.subpath_start)
        elif command == "A":
            self._arc(numbers, relative=letter.islower())
        elif command in "HV":
            self._put("L", (self._straight(letter, numbers[0]),))
        else:
            self._curve(command, self._absolute(numbers, relative=letter.islower()))

    def _absolute(self, numbers: list[float], *, relative: bool) -> tuple[Point, ...]:
        dx, dy = self.here if relative else (0.0, 0.0)
        return tuple((x + dx, y + dy) for x, y in zip(numbers[::2], numbers[1::2], strict=True))

    def _straight(self, letter: str, value: float) -> Point:
        x, y = self.here
        return {"H": (value, y), "h": (x + value, y), "V": (x, value), "v": (x, y + value)}[letter]

    def _curve(self, command: str, points: tuple[Point, ...]) -> None:
        if command in "ST":
            kind = {"S": "C", "T": "Q"}[command]
            points, command = (self._mirrored(kind), *points), kind
        self._put(command, points)
        if command == "M":
            self.subpath_start = self.here

    def _mirrored(self, kind: str) -> Point:
        if self.control is None or self.control[0] != kind:
            return self.here
        (x, y), (cx, cy) = self.here, self.control[1]
        return 2 * x - cx, 2 * y - cy

    def _put(self, letter: str, points: tuple[Point, ...], to: Point | None = None) -> None:
        self.segments.append(Segment(letter, points))
        self.control = (letter, points[-2]) if letter in "CQ" else None
        self.here = points[-1] if to is None else to

    def _arc(self, numbers: list[float], *, relative: bool) -> None:
        rx, ry, turned, large, sweep, *end = numbers
        (to,) = self._absolute(end, relative=relative)
        if rx == 0 or ry == 0 or to == self.here:
            self._put("L", (to,))
            return
        turn = ArcParameters(math.radians(turned), far=large != sweep, positive=sweep == 1)
        try:
            curves = list(arc_curves(self.here, to, (abs(rx), abs(ry)), turn))
        except ArithmeticError:  # a radius or a distance is so small that its square is 0, or its inverse overflows
            raise DataError("an arc must not be too small for its radii") from None
        for points in curves:
            self._put("C", points)


class ArcParameters(NamedTuple):
    """An arc's parameters: rotation of the ellipse, side of its centre, and direction."""

    angle: float
    """In radians."""
    far: bool
    """Whether the large-arc flag differs from the sweep flag: the sign of the centre."""
    positive: bool
    """Whether angles grow along the arc."""


def arc_curves(start: Point, end: Point, radii: Point, turn: ArcParameters) -> Iterator[tuple[Point, Point, Point]]:
    """Yield an elliptical arc as cubic curves of at most a right angle each.

    Source: W3C, SVG 1.1 (second edition), appendix F.6.5 and F.6.6: from end points to centre.
    """
    cos, sin = math.cos(turn.angle), math.sin(turn.angle)
    (x1, y1), (x2, y2) = start, end
    dx, dy = (x1 - x2) / 2, (y1 - y2) / 2
    px, py = cos * dx + sin * dy, cos * dy - sin * dx
    rx, ry = radii
    grow = max(1.0, math.sqrt((px / rx) ** 2 + (py / ry) ** 2))
    rx, ry = rx * grow, ry * grow
    below = (rx * py) ** 2 + (ry * px) ** 2
    factor = math.sqrt(max(0.0, ((rx * ry) ** 2 - below) / below)) * (1 if turn.far else -1)
    qx, qy = factor * rx * py / ry, -factor * ry * px / rx
    first = math.atan2((py - qy) / ry, (px - qx) / rx)
    last = math.atan2((-py - qy) / ry, (-px - qx) / rx)
    sweep = (last - first) % math.tau if turn.positive else -((first - last) % math.tau)
    middle = cos * qx - sin * qy + (x1 + x2) / 2, sin * qx + cos * qy + (y1 + y2) / 2
    centre = Transform(cos * rx, sin * rx, -sin * ry, cos * ry, *middle)
    pieces = max(1, math.ceil(abs(sweep) / (math.pi / 2) - 1e-9))
    step = sweep / pieces
    pull = 4 / 3 * math.tan(step / 4)
    for i in range(pieces):
        a, b = first + i * step, first + (i + 1) * step
        to = end if i == pieces - 1 else centre.at((math.cos(b), math.sin(b)))
        yield (
            centre.at((math.cos(a) - pull * math.sin(a), math.sin(a) + pull * math.cos(a))),
            centre.at((math.cos(b) + pull * math.sin(b), math.sin(b) - pull * math.cos(b))),
            to,
        )


DEEPEST = 64
"""The maximal depth of nested elements."""


_SVG = "http://www.w3.org/2000/svg"


_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?")


_STEP = re.compile(r"\s*,?\s*(matrix|translate|scale|rotate|skewX|skewY)\s*\(([^()]*)\)\s*")


@dataclass
class Drawing:
    """The shapes and bounds read from a file."""

    viewbox: tuple[float, float, float, float] | None = None
    shapes: list[tuple[str | None, list[Segment], Transform]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Open:
    """An open element: what its children inherit."""

    transform: Transform
    zone: str | None


def read_shapes(data: bytes, zones: frozenset[str], most: int) -> Drawing:
    """Return the shapes of an SVG file, each with its zone.

    Only the elements ``svg``, ``g``, ``path``, ``rect``, ``polygon``, ``polyline``, ``line``, ``circle`` and
    ``ellipse`` are read, and of attributes only ids, geometry and ``transform``. Any other element is dropped with its
    content.

    Raises:
        DataError: not well-formed, not UTF-8, with a document type, nested too deep, or with more than ``most``
            shapes.
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
    """Callbacks of the XML parser."""

    def __init__(self, zones: frozenset[str], most: int) -> None:
        self.zones = zones
        self.most = most
        self.drawing = Drawing()
        self.open: list[_Open] = []
        self.outside = 0
        """The number of open elements since the first dropped one."""

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
    """Return the map of a ``transform`` attribute.

    Raises:
        DataError: not a transform of SVG 1.1.
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
