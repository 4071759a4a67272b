"""SVG path data as absolute moves, lines and curves: parsed strictly, transformed, and written anew.

What leaves here was written here, digit by digit, so that nothing of a plan's file but its geometry comes further.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from stream.errors import DataError

Point = tuple[float, float]
LARGEST = 1e7
"""Coordinates beyond this are refused."""
_TOKEN = re.compile(r"[\s,]*(?:([MmLlHhVvCcSsQqTtAaZz])|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?))")
_FLAG = re.compile(r"[\s,]*()([01])")
"""Of an arc; nothing needs to stand between it and the next number."""
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
        """Return where a point comes to lie."""
        x, y = point
        return self.a * x + self.c * y + self.e, self.b * x + self.d * y + self.f

    def after(self, inner: Transform) -> Transform:
        """Return the map that does ``inner`` first, then this one."""
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
    """Return path data as absolute segments; arcs as cubic curves.

    Raises:
        DataError: it is not path data, or a coordinate is beyond ``LARGEST``.
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


def written(segments: list[Segment], transform: Transform) -> str:
    """Return path data of the transformed segments, rounded to hundredths."""
    return "".join(
        segment.letter + " ".join(f"{_short(x)} {_short(y)}" for x, y in map(transform.at, segment.points))
        for segment in segments
    )


def reach(segments: list[Segment], transform: Transform) -> Iterator[Point]:
    """Yield the transformed points that hold the shape within their hull."""
    for segment in segments:
        yield from map(transform.at, segment.points)


def _short(value: float) -> str:
    if not abs(value) <= LARGEST:
        raise DataError(f"a coordinate must be a number of at most {LARGEST:g}")
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _commands(data: str) -> Iterator[tuple[str, list[float]]]:
    """Yield each command with as many numbers as it takes; repeated numbers repeat the command."""
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
    """Where a path has come to, and what it has drawn."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.here: Point = (0.0, 0.0)
        self.begun: Point = (0.0, 0.0)
        self.control: tuple[str, Point] | None = None
        """The last control point, for the smooth curves, and of which kind."""

    def draw(self, letter: str, numbers: list[float]) -> None:
        command = letter.upper()
        if not self.segments and command != "M":
            raise DataError("path data must begin with a move")
        if command == "Z":
            self._put("Z", (), self.begun)
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
            self.begun = self.here

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
        turn = Turn(math.radians(turned), far=large != sweep, positive=sweep == 1)
        for points in arc_curves(self.here, to, (abs(rx), abs(ry)), turn):
            self._put("C", points)


class Turn(NamedTuple):
    """How an ellipse is turned, on which side its centre is, and which way an arc goes along it."""

    angle: float
    """In radians."""
    far: bool
    """Whether the large-arc flag differs from the sweep flag: the sign of the centre."""
    positive: bool
    """Whether angles grow along the arc."""


def arc_curves(start: Point, end: Point, radii: Point, turn: Turn) -> Iterator[tuple[Point, Point, Point]]:
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
