"""Decode a released record: a window with its cells, or an attribute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from connectors.records import record_fields
from connectors.records.bands import NoiseDistribution, sum_half_width
from stream.errors import DataError
from stream.policy.mechanisms import names_where
from stream.records import JsonObject, Micros, NoiseKind, ReleaseId
from stream.schemas import parse_record

PLAIN = names_where("plain")
"""The mechanisms whose values are themselves the noisy ones."""
REVISION_RANKS = {"": 0, "1h": 1, "1d": 2}
"""Precedence of a window's records by their revision: the first record, or revised with its hour or day."""
_NOISES: tuple[NoiseKind, ...] = ("laplace", "gaussian")
KINDS = ("noise", "posterior")
"""Kinds of half-widths in records, by index."""


class Series(NamedTuple):
    """Records with the same content for the same windows: those of one release at one site, revised or not."""

    audience: str
    release: str
    site: str
    base: str
    """The release whose values these are; it differs from ``release`` only for revised values."""
    attempt: int
    revision: str
    """``1h`` or ``1d`` for revised values, else empty."""

    @property
    def rank(self) -> int:
        """The precedence among records of one window; the largest rank wins."""
        return 4 * self.attempt + REVISION_RANKS[self.revision]


class Cell(NamedTuple):
    """One node of one window."""

    node: str
    """``zone:2011``, ``floor:2`` or ``building``."""
    value: int
    half_width: float
    """NaN if the value has no band."""
    noisy: int
    """The value with only its noise; ``value`` if that is it, or if none is known."""
    noise: NoiseDistribution | None
    """The law of the noise in ``noisy``, if it is known exactly."""
    spread: float
    """95 % half-width of that noise if it is independent between windows; else NaN."""
    low: float = math.nan
    """Ends of the band of an estimate of people, which are stated; NaN for counts."""
    high: float = math.nan


class Window(NamedTuple):
    """One record of counts."""

    series: Series
    start: Micros
    end: Micros
    released: bool
    kind: int
    """Index in ``KINDS``."""
    coverage: float
    nano: int
    """Its cost, in 1e-9 of an epsilon."""
    by_day: bool
    """Whether a device's whole privacy day is charged at once."""
    bounded: Micros | None
    """For how much of a privacy day a device counts; None if there is no bound."""
    nodes: tuple[str, ...]
    """The nodes of the cells; for a denied window those that it lists."""
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
    """JSON of the value; None if it is withheld."""
    nano: int


def read_record(value: bytes) -> tuple[str, Window | Attribute]:
    """Return the id and content of a private record; DataError if it is not one, or has more than one line."""
    body = parse_record(value)
    if b"\n" in value or b"\r" in value:  # either ends a line of an event stream
        raise DataError("record: must be one line")
    content = decoded(body)
    return body["release_id"], content


def decoded(body: Mapping[str, Any]) -> Window | Attribute:
    """Return the content of a parsed record; DataError if it is not a private record."""
    try:
        identity = ReleaseId.parse(record_fields.name(body["release_id"]))
        if (identity.audience, identity.release, identity.site) != (body["audience"], body["release"], body["site"]):
            raise DataError("record: must have an id of its own site, release and audience")
        return _attribute(body) if "attribute" in body else _window(body, identity)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise DataError("record: must be a private release, but a field is missing or has the wrong type") from None


def _attribute(body: Mapping[str, Any]) -> Attribute:
    shown = orjson.dumps(record_fields.scalar(body["value"])).decode() if "value" in body else None
    reason = body["reason"] if body["reason"] is None else record_fields.name(body["reason"])
    return Attribute(
        body["audience"], body["release"], body["site"], record_fields.time(body["window_end"]),
        record_fields.name(body["day"]),
        record_fields.name(body["zone"]), record_fields.name(body["attribute"]),
        record_fields.truth(body["released"]), reason, shown,
        record_fields.nano(body["spend"]),
    )  # fmt: skip


def _window(body: Mapping[str, Any], identity: ReleaseId) -> Window:
    base = ReleaseId.parse(body["revises"]).release if "revises" in body else identity.release
    revision = identity.where.rpartition("/")[2] if "revises" in body else ""
    if revision not in REVISION_RANKS:
        raise DataError("record: a revision must be that of an hour or of a day")
    cells = () if body["values"] is None else tuple(_people(body) if body.get("counted") == "people" else _cells(body))
    return Window(
        Series(identity.audience, identity.release, identity.site, base, identity.attempt, revision),
        record_fields.time(body["window_start"]), record_fields.time(body["window_end"]),
        record_fields.truth(body["released"]),
        KINDS.index(body.get("half_width_kind", KINDS[0])),
        record_fields.share(body["coverage"]), record_fields.nano(body["spend"]),
        body.get("unit") == "device_day", record_fields.bound(body.get("bounded_to")),
        tuple(cell.node for cell in cells) or _named(body), cells,
    )  # fmt: skip


def _named(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the nodes that a denied record lists: those of its noise."""
    if body.get("counted") == "people":
        return tuple(record_fields.name(node) for node in body["unknown"])
    if "forecast" in body:
        return ()
    scales = body.get("levels_noise_scale") or {}
    floors, building = scales.get("floor", {}), ["building"] if "building" in scales else []
    zones = body["noise_scale"]
    return (*building, *(_node("floor", name) for name in floors), *(_node("zone", name) for name in zones))


def _node(level: str, name: str) -> str:
    return f"{level}:{record_fields.name(name)}"


def _noise_distribution(noise: NoiseKind, scale: Any, draws: Any = 1) -> NoiseDistribution:
    return NoiseDistribution(noise, record_fields.scale(scale), record_fields.draws(draws))


def _cells(body: Mapping[str, Any]) -> Iterator[Cell]:
    noise, plain = _NOISES[_NOISES.index(body.get("noise", "laplace"))], body["mechanism"] in PLAIN
    widths, scales, noisy = body["half_width_95"] or {}, body["noise_scale"], body.get("noisy") or {}
    for name, value in body["values"].items():
        law = _noise_distribution(noise, scales[name])
        yield _cell(_node("zone", name), value, widths.get(name), noisy.get(name), law, plain)
    levels = flat_levels(body.get("levels"))
    widths, scales, noisy = (
        flat_levels(body.get(f"levels_{part}")) for part in ("half_width_95", "noise_scale", "noisy")
    )  # fmt: skip
    draws = flat_levels(body.get("levels_draws"))
    for node, value in levels.items():
        scale = scales.get(node) or next(iter(body["noise_scale"].values()), None)
        own = None if scale is None or node not in noisy else _noise_distribution(noise, scale, draws.get(node, 1))
        yield _cell(node, value, widths.get(node), noisy.get(node), own, plain)


def _people(body: Mapping[str, Any]) -> Iterator[Cell]:
    """Yield the estimates of people of a record, with the bands that it states."""
    ends = [
        {_node("zone", name): end for name, end in body[part].items()} | flat_levels(body.get(levels))
        for part, levels in (("values", "levels"), ("low", "levels_low"), ("high", "levels_high"))
    ]
    values, low, high = ends
    nothing = float("nan")
    for node, released in values.items():
        value = record_fields.count(released)
        yield Cell(
            node, value, nothing, value, None, nothing, record_fields.size(low[node]), record_fields.size(high[node])
        )


def flat_levels(levels: JsonObject | None) -> JsonObject:
    """Return the entries of floors and building by node."""
    levels = levels or {}
    floors = {_node("floor", name): entry for name, entry in (levels.get("floor") or {}).items()}
    return ({"building": levels["building"]} if "building" in levels else {}) | floors


def _cell(node: str, released: Any, width: Any, noisy: Any, law: NoiseDistribution | None, plain: bool) -> Cell:
    value, half_width = record_fields.count(released), float("nan") if width is None else record_fields.size(width)
    if noisy is not None and law is not None:
        return Cell(node, value, half_width, record_fields.count(noisy), law, sum_half_width(law))
    if plain and law is not None and half_width == sum_half_width(law):
        return Cell(node, value, half_width, value, law, half_width)
    return Cell(node, value, half_width, value, None, half_width if plain else float("nan"))
