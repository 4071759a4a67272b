"""Models that estimate people from released counts, and ``[people]``.

A model is a JSON file that ``tacet calibrate`` writes. A policy names it by its digest; the policy then contains the
model itself, so that every reader of the policy has it, and a changed file is refused.

**Estimate** (``PeopleModel.estimate``; whole numbers only, so that it is the same on every machine). All quantities of
people are thousandths. For a node, a released value d and a local hour h:

1. d is replaced by 0 if it is negative. p(d) is interpolated in the node's curve, and multiplied by the factor of h.
2. The standard deviation is s = sqrt(a² + (b d)²), with a and b of the node's level.
3. The band is p / f - q s to f p + q s, with the quantile q of the level; its ends are rounded outwards, and are at
   least 0. f is 1, but in a provisional model.

A **provisional** model is learnt from a few counts, before there are days enough for a band that holds. It promises no
share of windows, and knows nothing any more after its last day.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import date
from itertools import pairwise
from math import isqrt
from typing import Annotated, Any, Literal, NamedTuple

import orjson
from pydantic import Field, StrictBool, StrictInt, ValidationError, model_validator

from stream.errors import TacetError
from stream.policy.counts import CountRelease, Level
from stream.policy.fields import Frozen, Ident, Name, ReadText, decimal_string
from stream.policy.sites import Site
from stream.records import JsonObject

THOUSAND = 1000
LARGEST = 10**9
"""Largest number in a model, in thousandths."""
MOST_KNOTS = 64
BAND = 0.9
"""Probability of a band: the share of windows of a new day that it covers."""
HOURS = 24
MIXED = "unknown"
"""Reason for a window in which nodes have no number for different reasons."""

_Whole = Annotated[StrictInt, Field(ge=0, le=LARGEST)]
_Hour = Annotated[str, Field(pattern="^([0-9]|1[0-9]|2[0-3])$")]


class Band(NamedTuple):
    """An estimate of people: a whole number with its band."""

    value: int
    low: int
    high: int


class NodeCurve(Frozen):
    """What a model knows about one node."""

    curve: tuple[tuple[_Whole, _Whole], ...] = Field(min_length=1, max_length=MOST_KNOTS)
    """Devices and people, in devices and thousandths of people; the first entry is at 0 devices."""
    largest: _Whole
    """Largest released value for which people were counted; larger ones are beyond what the model knows."""
    usual: tuple[_Whole, _Whole]
    """Least and largest mean of a day's released values, in thousandths of devices."""
    days: _Whole
    """Number of days with counts of people at this node."""

    @model_validator(mode="after")
    def _ascending(self) -> NodeCurve:
        if self.curve[0][0] != 0:
            msg = "curve must begin at 0 devices"
            raise ValueError(msg)
        if any(here[0] >= there[0] or here[1] > there[1] for here, there in pairwise(self.curve)):
            msg = "curve must ascend"
            raise ValueError(msg)
        return self

    def people(self, devices: int) -> int:
        """Return thousandths of people for a number of devices, interpolated, rounded down; the last value beyond."""
        for (left, low), (right, high) in pairwise(self.curve):
            if devices < right:
                return low + (high - low) * (devices - left) // (right - left)
        return self.curve[-1][1]


class LevelModel(Frozen):
    """What a model knows about all nodes of a level: hours, and the width of bands."""

    hours: dict[_Hour, _Whole]
    """Local hours in which people were counted, each with the factor of its estimates in thousandths."""
    constant: _Whole
    """a, in thousandths of people."""
    relative: _Whole
    """b, in thousandths of people per device."""
    quantile: _Whole
    """q, in thousandths."""
    coverage: _Whole = THOUSAND
    """Least coverage of the windows in which people were counted, in thousandths."""


class Truth(Frozen):
    """Whose counts of people the model was made from, and what they cost."""

    public: StrictBool
    epsilon: str | None = None
    """Of one person at one moment (a window), if it is not public; it adds to the epsilon of the counts."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Truth:
        if self.public != (self.epsilon is None):
            msg = "truth must be public, or have an epsilon"
            raise ValueError(msg)
        return self


class Check(Frozen):
    """What was found on days that were held back, for one level. Shares are in thousandths, errors too."""

    windows: _Whole
    occupied: _Whole
    """Windows with people."""
    days: _Whole
    covered: _Whole
    """Share of the windows whose people the band contains."""
    covered_occupied: _Whole
    """The same, of windows with people."""
    width: _Whole
    """Mean width of the band, in thousandths of people."""
    width_occupied: _Whole
    error: _Whole
    """Mean error, in thousandths of people."""
    fixed_error: _Whole
    """The same of the best fixed factor."""


class Provisional(Frozen):
    """What a model is made from that is learnt from a few counts, and how long it holds."""

    counts: _Whole
    """Windows with counts of people."""
    days: _Whole
    until: date
    """The last local day on which the model knows anything."""
    factor: Annotated[int, Field(ge=THOUSAND, le=LARGEST)]
    """f, in thousandths."""


class PeopleModel(Frozen):
    """A model of one release for one audience at one site."""

    v: Literal[1]
    site: Ident
    release: Name
    audience: Name
    laboratory: StrictBool
    """Whether its history was made with a laboratory key, or is a file whose origin nothing proves."""
    terms: str = Field(pattern="^[0-9a-f]{64}$")
    """Digest of what gives released values their meaning (``terms_of``)."""
    truth: Truth
    levels: dict[Level, LevelModel] = Field(min_length=1)
    nodes: dict[str, NodeCurve] = Field(min_length=1)
    """By node: ``zone:2011``, ``floor:2``, ``building``."""
    checked: dict[Level, Check] = Field(default={})
    provisional: Provisional | None = None
    """None: the band holds with the probability ``BAND``."""

    @model_validator(mode="after")
    def _levels_of_nodes(self) -> PeopleModel:
        if missing := {level_of(node) for node in self.nodes} - set(self.levels):
            msg = f"levels must have the level of each node, {min(missing)} is missing"
            raise ValueError(msg)
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the model, 64 hexadecimal digits, independent of the file's layout."""
        return hashlib.sha256(orjson.dumps(self._content(), option=orjson.OPT_SORT_KEYS)).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        return json.dumps(self._content(), indent=1).encode() + b"\n"

    def _content(self) -> JsonObject:
        """Return the model as JSON; one that is not provisional does not name the key, and so keeps its digest."""
        return self.model_dump(mode="json", exclude={"provisional"} if self.provisional is None else set())

    @property
    def band(self) -> float:
        """The share of windows of a new day that the band covers; 0 where none is promised."""
        return BAND if self.provisional is None else 0.0

    def has_expired(self, day: date) -> bool:
        """Whether a local day is after the last one on which a provisional model holds."""
        return self.provisional is not None and day > self.provisional.until

    def unknown(self, node: str, devices: int, hour: int, coverage: float) -> str | None:
        """Return why the model knows no number for a released value; None if it knows one.

        ``node``: nobody counted people there. ``hour``: nobody counted people in that hour of the day. ``range``: the
        value is larger than all for which people were counted. ``coverage``: fewer sources than ever then.
        """
        known = self.nodes.get(node)
        if known is None:
            return "node"
        level = self.levels[level_of(node)]
        if str(hour) not in level.hours:
            return "hour"
        if round(coverage * THOUSAND) < level.coverage:
            return "coverage"
        return "range" if devices > known.largest else None

    def estimate(self, node: str, devices: int, hour: int) -> Band:
        """Return people for a released value that is not ``unknown``."""
        level = self.levels[level_of(node)]
        present = max(0, devices)
        people = self.nodes[node].people(present) * level.hours[str(hour)] // THOUSAND
        square = level.constant**2 + (level.relative * present) ** 2
        half = -(-_root(level.quantile**2 * square) // THOUSAND)
        factor = THOUSAND if self.provisional is None else self.provisional.factor
        low, high = people * THOUSAND // factor - half, -(-people * factor // THOUSAND) + half
        low, high = max(0, low) // THOUSAND, -(-high // THOUSAND)
        return Band((people + THOUSAND // 2) // THOUSAND, low, high)

    def is_usual(self, node: str, total: int, windows: int) -> bool:
        """Whether the sum of a day's released values is like those of the days from which the model was made.

        It may be half of the least to twice the largest daily mean, and one device more or less.
        """
        least, most = self.nodes[node].usual
        mean = total * THOUSAND // windows
        return least // 2 - THOUSAND <= mean <= 2 * most + THOUSAND


def _root(square: int) -> int:
    """Return the square root, rounded up."""
    return 1 + isqrt(square - 1) if square else 0


def level_of(node: str) -> Level:
    """Return the level of a node."""
    level = node.partition(":")[0]
    return "zone" if level == "zone" else "floor" if level == "floor" else "building"


_MEANING = {"name", "sources", "zones", "working_hours", "max_devices"}
"""Keys of a site that change no released value, or only which zones it has."""


def terms_of(site: Site, release: CountRelease, audience: str) -> str:
    """Return a digest of all that gives a release's values their meaning: site, mechanism, epsilon, noise and levels.

    A model is of no use for values with other terms. Zones are not part of it, because a model names its nodes.
    """
    counts = release.model_dump(
        mode="json", exclude_defaults=True,
        exclude={"name", "epsilon", "queries", "revise", "daily_budget", "w_budget", "refresh", "zones"},
    )  # fmt: skip
    place = site.model_dump(mode="json", exclude_defaults=True, exclude=_MEANING)
    terms = {"release": counts, "site": place, "epsilon": decimal_string(release.epsilon[audience])}
    return hashlib.sha256(orjson.dumps(terms, option=orjson.OPT_SORT_KEYS)).hexdigest()


# --- the table of a policy ----------------------------------------------------------------------------


class People(Frozen):
    """A model, and the digest by which the policy names it."""

    model: PeopleModel
    digest: str = Field(pattern="^[0-9a-f]{64}$")
    """As ``tacet calibrate`` prints it."""

    @model_validator(mode="after")
    def _digest_is_of_model(self) -> People:
        if self.model.digest != self.digest:
            msg = f"digest must be that of the model, {self.model.digest}, got {self.digest}"
            raise ValueError(msg)
        return self

    @property
    def release_name(self) -> str:
        """The name under which estimates are published."""
        return people_name(self.model.release)


def people_name(release: str) -> str:
    """Return the name under which estimates of people from a count release are published."""
    return f"{release}-people"


class PeopleError(TacetError):
    """The file of a model cannot be used; the message names the key and the rule."""


def attach_people(document: Mapping[str, Any], read: ReadText) -> None:
    """Replace the name of each model's file in the tables ``[people]`` of a policy by the model.

    Args:
        document: the parsed policy; it changes in place.
        read: returns the text of a file.

    Raises:
        PeopleError: a file cannot be read, or is not a model.
    """
    given = document.get("people")
    tables: list[Any] = given if isinstance(given, list) else [given]
    for table in tables:
        name = table.get("model") if isinstance(table, dict) else None
        if not isinstance(name, str):
            continue
        try:
            table["model"] = read_model(read(name)).model_dump(mode="json")
        except ValueError as error:
            msg = f"people.model: {error}, got {name!r}"
            raise PeopleError(msg) from None


def read_model(text: str) -> PeopleModel:
    """Return the model in a file's text; ValueError with the rule that it breaks."""
    try:
        return PeopleModel.model_validate(orjson.loads(text))
    except orjson.JSONDecodeError:
        msg = "file must be JSON that 'tacet calibrate' wrote"
        raise ValueError(msg) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        msg = f"file must be a model that 'tacet calibrate' wrote ({where}: {first['msg']})"
        raise ValueError(msg) from None


def check_people(people: tuple[People, ...], sites: Mapping[str, Site], releases: Mapping[str, CountRelease]) -> None:
    """Raise ValueError unless each model belongs to a site, a count release and an audience with the same terms."""
    for each in people:
        model = each.model
        if model.site not in sites:
            msg = f"people: the model must be of a site of the policy, got '{model.site}'"
            raise ValueError(msg)
        release = releases.get(model.release)
        if release is None or model.audience not in release.epsilon:
            msg = (
                "people: the model must be of a count release and one of its audiences, "
                f"got '{model.release}' and '{model.audience}'"
            )
            raise ValueError(msg)
        if model.terms != terms_of(sites[model.site], release, model.audience):
            msg = (
                f"people: release '{release.name}' must publish as it did when the model was made: the same mechanism, "
                "epsilon, noise, levels, tick, validity and time zone; calibrate again"
            )
            raise ValueError(msg)
        _check_nodes(model, sites[model.site], release)


def _check_nodes(model: PeopleModel, site: Site, release: CountRelease) -> None:
    """Raise ValueError if a node of a model is not published."""
    published = set(published_nodes(site, release))
    if foreign := sorted(set(model.nodes) - published):
        msg = f"people: the model's nodes must be published by release '{release.name}', got '{foreign[0]}'"
        raise ValueError(msg)


def published_nodes(site: Site, release: CountRelease) -> Iterator[str]:
    """Yield the nodes of a release's records at a site."""
    zones = [zone for zone in site.zones if release.zones.covers(zone)]
    if "zone" in release.levels:
        yield from (f"zone:{name}" for name in (release.states or [zone.id for zone in zones]))
    if "floor" in release.levels:
        yield from dict.fromkeys(f"floor:{zone.floor}" for zone in zones)
    if "building" in release.levels:
        yield "building"
