"""What a released record tells a history: a window with its cells, or an attribute of a day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from connectors.serve import fields
from connectors.serve.bands import Law, sum_half_width
from stream.errors import DataError
from stream.records import Micros, NoiseKind, ReleaseId
from stream.schemas import parse_record

PLAIN = "laplace"
"""The mechanism whose values are the noisy ones."""
REVISION_RANKS = {"": 0, "1h": 1, "1d": 2}
"""What a record of a window is, the one that knows most last: its first one, or revised with its hour or day."""
_NOISES: tuple[NoiseKind, ...] = ("laplace", "gaussian")
KINDS = ("noise", "posterior")
"""What half-widths of records are, by the number that stands for it."""


class Series(NamedTuple):
    """Records that say the same of the same windows: those of one release at one site, revised or not."""

    audience: str
    release: str
    site: str
    base: str
    """The release whose values these are: another one only where they are revised."""
    attempt: int
    revision: str
    """``1h`` or ``1d`` of revised values, else empty."""

    @property
    def rank(self) -> int:
        """Which of several records of a window is to be believed: that of the largest rank."""
        return 4 * self.attempt + REVISION_RANKS[self.revision]


class Cell(NamedTuple):
    """One node of one window."""

    node: str
    """``zone:2011``, ``floor:2`` or ``building``."""
    value: int
    half_width: float
    """NaN where the value has no band."""
    noisy: int
    """The value with its noise alone; ``value`` where that is it, or where none is known."""
    law: Law | None
    """Of the noise in ``noisy``, where it is known exactly."""
    spread: float
    """95 % half-width of that noise, which is independent from window to window; NaN where it is not."""


class Window(NamedTuple):
    """One record of counts."""

    series: Series
    start: Micros
    end: Micros
    released: bool
    kind: int
    """Place in ``KINDS``."""
    coverage: float
    nano: int
    """What it cost, in 1e-9 of an epsilon."""
    by_day: bool
    """Whether a device's whole privacy day is paid at once."""
    nodes: tuple[str, ...]
    """Those of the cells; of a denied window those that it names."""
    cells: tuple[Cell, ...]


class Attribute(NamedTuple):
    """One record of an attribute."""

    audience: str
    release: str
    site: str
    end: Micros
    day: str
    zone: str
    attribute: str
    released: bool
    reason: str | None
    value: str | None
    """JSON of the value; None where none is shown."""
    nano: int


def read_record(value: bytes) -> tuple[str, Window | Attribute]:
    """Return the id of a private record and what it says; DataError where it is none, or more than one line."""
    body = parse_record(value)
    if b"\n" in value or b"\r" in value:  # an event stream ends its lines by either
        raise DataError("record: must be one line")
    try:
        identity = ReleaseId.parse(fields.name(body["release_id"]))
        if (identity.audience, identity.release, identity.site) != (body["audience"], body["release"], body["site"]):
            raise DataError("record: must be named by its own site, release and audience")
        told = _attribute(body) if "attribute" in body else _window(body, identity)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise DataError("record: must be a private release, a field is missing or of another type") from None
    return body["release_id"], told


def _attribute(body: Mapping[str, Any]) -> Attribute:
    shown = orjson.dumps(fields.scalar(body["value"])).decode() if "value" in body else None
    reason = body["reason"] if body["reason"] is None else fields.name(body["reason"])
    return Attribute(
        body["audience"], body["release"], body["site"], fields.time(body["window_end"]), fields.name(body["day"]),
        fields.name(body["zone"]), fields.name(body["attribute"]), fields.truth(body["released"]), reason, shown,
        fields.nano(body["spend"]),
    )  # fmt: skip


def _window(body: Mapping[str, Any], identity: ReleaseId) -> Window:
    base = ReleaseId.parse(body["revises"]).release if "revises" in body else identity.release
    revision = identity.where.rpartition("/")[2] if "revises" in body else ""
    if revision not in REVISION_RANKS:
        raise DataError("record: must be revised with its hour or its day")
    cells = () if body["values"] is None else tuple(_cells(body))
    return Window(
        Series(identity.audience, identity.release, identity.site, base, identity.attempt, revision),
        fields.time(body["window_start"]), fields.time(body["window_end"]), fields.truth(body["released"]),
        KINDS.index(body["half_width_kind"]), fields.share(body["coverage"]), fields.nano(body["spend"]),
        body.get("unit") == "device_day", tuple(cell.node for cell in cells) or _named(body), cells,
    )  # fmt: skip


def _named(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the nodes that a denied record names: those of its noise."""
    scales = body.get("levels_noise_scale") or {}
    floors, building = scales.get("floor", {}), ["building"] if "building" in scales else []
    zones = body["noise_scale"]
    return (*building, *(_node("floor", name) for name in floors), *(_node("zone", name) for name in zones))


def _node(level: str, name: str) -> str:
    return f"{level}:{fields.name(name)}"


def _law(noise: NoiseKind, scale: Any, draws: Any = 1) -> Law:
    return Law(noise, fields.scale(scale), fields.draws(draws))


def _cells(body: Mapping[str, Any]) -> Iterator[Cell]:
    noise, plain = _NOISES[_NOISES.index(body.get("noise", "laplace"))], body["mechanism"] == PLAIN
    widths, scales, noisy = body["half_width_95"] or {}, body["noise_scale"], body.get("noisy") or {}
    for name, value in body["values"].items():
        law = _law(noise, scales[name])
        yield _cell(_node("zone", name), value, widths.get(name), noisy.get(name), law, plain)
    levels = _flat(body.get("levels"))
    widths, scales, noisy = (
        _flat(body.get(f"levels_{part}")) for part in ("half_width_95", "noise_scale", "noisy")
    )  # fmt: skip
    draws = _flat(body.get("levels_draws"))
    for node, value in levels.items():
        scale = scales.get(node) or next(iter(body["noise_scale"].values()), None)
        own = None if scale is None or node not in noisy else _law(noise, scale, draws.get(node, 1))
        yield _cell(node, value, widths.get(node), noisy.get(node), own, plain)


def _flat(levels: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entries of floors and building by node."""
    levels = levels or {}
    floors = {_node("floor", name): entry for name, entry in (levels.get("floor") or {}).items()}
    return ({"building": levels["building"]} if "building" in levels else {}) | floors


def _cell(node: str, told: Any, width: Any, noisy: Any, law: Law | None, plain: bool) -> Cell:
    value, half_width = fields.count(told), float("nan") if width is None else fields.size(width)
    if noisy is not None and law is not None:
        return Cell(node, value, half_width, fields.count(noisy), law, sum_half_width(law))
    if plain and law is not None and half_width == sum_half_width(law):
        return Cell(node, value, half_width, value, law, half_width)
    return Cell(node, value, half_width, value, None, half_width if plain else float("nan"))
