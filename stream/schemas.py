"""Topics, keys and the versioned JSON of their records.

Every record is one JSON object with ``v``, its version. Published records are built from the models below, which define
their fields, order and types. The docstrings of the models and fields become descriptions in the published JSON
schemas. Readers skip fields that they do not know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

import orjson
from pydantic import BaseModel, ConfigDict

from stream.errors import DataError
from stream.records import EPOCH, JsonObject, Micros, NoiseKind

OBSERVATIONS = "tacet.observations.v1"
PRESENCE = "tacet.presence.v1"
OCCUPANCY = "tacet.occupancy.v1"
SNAPSHOT = "tacet.snapshot.v1"
LEAKAGE = "tacet.leakage.v1"
AUDIT = "tacet.audit.v1"
HEADS = "tacet.heads.v1"
RESTRICTED = frozenset({PRESENCE, OCCUPANCY})
"""Topics of true stays and counts, whose records are encrypted wherever they are stored."""
QUARANTINE = "tacet.quarantine.v1"
CONTROL = "tacet.control.v1"
METADATA = "tacet.metadata.v1"


def private_topic(audience: str, release: str) -> str:
    """Return the topic on which an audience reads a release."""
    return f"tacet.private.{audience}.{release}.v1"


def is_private(topic: str) -> bool:
    """Return whether a topic is one that an audience reads."""
    return topic.startswith("tacet.private.")


def rfc3339(time: Micros) -> str:
    """Return a time as ``2026-03-02T10:05:00Z``, with a fraction only if it is not 0."""
    text = (EPOCH + timedelta(microseconds=time)).isoformat()
    return text.removesuffix("+00:00") + "Z"


def json_float(value: float | None) -> float | str | None:
    """Return a number for JSON: infinity becomes the string "inf"."""
    return "inf" if value is not None and math.isinf(value) else value


def parse_time(text: str) -> Micros:
    """Return microseconds for an RFC 3339 time with a zone; ValueError otherwise (the value is not shown)."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        msg = "must be an RFC 3339 time with a zone, such as 2026-03-02T10:05:00Z"
        raise ValueError(msg)
    return (moment - EPOCH) // timedelta(microseconds=1)


# --- published records --------------------------------------------------------------------------------


Levels = dict[str, dict[str, int] | int]
"""``floor``: a number by floor; ``building``: one number."""
HourlyLevels = dict[str, dict[str, list[int | None]] | list[int | None]]
"""The same with a number for each of some hours; null where nothing is known."""
LevelScales = dict[str, dict[str, float] | float]
HalfWidthKind = Literal["noise", "posterior"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    def to_bytes(self) -> bytes:
        """Return the canonical JSON bytes: ``v`` first, then the fields that were given, in their order."""
        return orjson.dumps({"v": 1} | self.model_dump(mode="json", exclude_unset=True))


class CountRecord(_Record):
    """One window's private counts for one audience: of devices, or of people where people counters report."""

    release_id: str
    site: str
    audience: str
    release: str
    window_start: str
    window_end: str
    values: dict[str, int] | None
    levels: Levels | None = None
    """Counts of floors and building. This field and ``levels_half_width_95`` exist only if the release has more levels
    than zones."""
    released: bool
    reason: str | None
    mechanism: str
    unit: str = "window"
    """``device_day``: one epsilon pays for a device's whole privacy day. This field, ``noise`` and ``delta`` exist only
    in such releases."""
    noise: NoiseKind = "laplace"
    delta: str = "0"
    counted: str = ""
    """What the numbers count: ``logins``, or ``logins and devices`` that have none. Only in records of sites that count
    logins."""
    bounded_to: str = ""
    """How long a device counts in a privacy day, such as 12h, or how many visits of it, such as ``4 visits``.
    Afterwards it is left out, so more devices may be present than ``values`` count. Only in records of bounded
    counts."""
    epsilon: str
    spend: str
    noise_scale: dict[str, float]
    half_width_95: dict[str, float] | None
    half_width_kind: HalfWidthKind
    levels_half_width_95: Levels | None = None
    levels_noise_scale: LevelScales | None = None
    """Noise of each floor and of the building. Only if levels have noise of their own: if they are filtered, grouped or
    paid by the day."""
    noisy: dict[str, int] | None = None
    """Counts with noise that is independent from window to window; ``values`` are computed from them. This field and
    ``levels_noisy`` exist only with filters and groups, and not in records of revised values."""
    levels_noisy: Levels | None = None
    levels_draws: Levels | None = None
    """Number of noise draws that are summed in each of ``levels_noisy``: 1 if levels have noise of their own."""
    usual: dict[str, float] | None = None
    """Mean of the released values of earlier days. ``values`` are colours, 1 to 10, relative to this mean and to
    ``usual_deviation``. Both fields exist only in heat maps."""
    usual_deviation: dict[str, float] | None = None
    revises: str = ""
    lag: int = 0
    """Number of windows between the first publication of the values, whose ``release_id`` is ``revises``, and this
    revision. Both fields exist only in records of revised values."""
    coverage: float
    policy_version: str
    laboratory: bool


class PeopleRecord(_Record):
    """One window's people for one audience, estimated from a count record of devices. Costs nothing."""

    release_id: str
    site: str
    audience: str
    release: str
    window_start: str
    window_end: str
    counted: Literal["people"]
    """What the numbers count. Records without this field count devices, or people where people counters report."""
    values: dict[str, int] | None
    """Estimated people by zone."""
    low: dict[str, int] | None
    """Lower ends of the bands, by zone."""
    high: dict[str, int] | None
    levels: Levels | None = None
    """Estimated people of floors and building. This field, ``levels_low`` and ``levels_high`` exist only if there is
    an estimate for a floor or the building."""
    levels_low: Levels | None = None
    levels_high: Levels | None = None
    unknown: dict[str, str]
    """Nodes with a count and without an estimate, each with the reason: ``node``, ``hour``, ``range``, ``coverage``,
    ``feed`` or ``expired``."""
    released: bool
    reason: str | None
    """Why there is no estimate at all: the reason of the count record, or that of all nodes; ``unknown`` if those
    differ."""
    band: float
    """Share of the windows of a new day, also of those with people, whose people the band contains; 0 where the model
    is provisional and promises none."""
    provisional: bool = False
    """The model is learnt from a few counts. Only in records of such models."""
    of: str
    """Release id of the count record."""
    model: str
    """Digest of the model."""
    mechanism: str
    epsilon: str
    """Of the count record."""
    spend: str
    coverage: float
    policy_version: str
    laboratory: bool


class ForecastRecord(_Record):
    """Hours to come, for one audience, forecast from its records of counts. Costs nothing."""

    release_id: str
    site: str
    audience: str
    release: str
    window_start: str
    window_end: str
    """End of the last window that the forecast is made from."""
    values: None
    """Always null: a forecast is no count of the window."""
    hours: list[str]
    """Starts of local hours: the rest of the day. The day's first record has the next seven days too."""
    forecast: HourlyLevels
    """Mean count of devices in each hour, as the release counts them."""
    low: HourlyLevels
    """Lower ends of the bands."""
    high: HourlyLevels
    usual: HourlyLevels
    """What is usual in that hour on such a day, whatever this day was like so far."""
    released: bool
    reason: str | None
    """``history`` if too few days have been released for a forecast."""
    band: float
    """Share of the hours of days like those before whose mean the band contains."""
    of: str
    """Release id of the count record."""
    mechanism: str
    epsilon: str
    """Of the count record."""
    spend: str
    coverage: float
    policy_version: str
    laboratory: bool


class AttributeRecord(_Record):
    """One attribute of one zone's day for one audience: the exact value, or nothing."""

    release_id: str
    site: str
    audience: str
    release: str
    window_start: str
    window_end: str
    day: str
    zone: str
    attribute: str
    released: bool
    reason: str | None
    """Why the attribute was not queried; null if it was queried, whether its value is shown or not."""
    value: str | int | float | None = None
    """Only if the value is shown; null if the zone was empty all day."""
    mechanism: str
    epsilon: str
    spend: str
    coverage: float
    policy_version: str
    laboratory: bool

    def showing(self, value: str | int | float | None) -> AttributeRecord:
        """Return the record with its value."""
        return self.model_copy(update={"value": value})


class ThresholdRecord(_Record):
    """One window's decisions for one audience: at which nodes a count is beyond its threshold."""

    release_id: str
    site: str
    audience: str
    release: str
    window_start: str
    window_end: str
    alert: Literal["above", "below"]
    """Whether the alert is for counts above their thresholds, or below."""
    thresholds: dict[str, int]
    """By node (``zone:2011``, ``floor:2``, ``building``), in devices."""
    above: dict[str, bool | None]
    """Whether each node has an alert now; null if it has no answer."""
    denied: dict[str, str]
    """Reason for each node without an answer: ``events``, ``budget`` or ``unbooked``."""
    values: dict[str, int] | None
    """By zone, as in records of counts: 1 if the zone has an alert, otherwise 0."""
    levels: Levels | None = None
    """The same for floors or building. Only if the release decides on these."""
    released: bool
    reason: str | None
    mechanism: str
    unit: str
    counted: str = ""
    """What the counts are of, as in records of counts."""
    bounded_to: str = ""
    """How long a device counts in a privacy day, such as 12h. Afterwards it is left out. Only in decisions on bounded
    counts."""
    epsilon: str
    """Largest price of a device's day; if the release decides on published counts, the epsilon of these."""
    spend: str
    noise_scale: dict[str, float]
    """Noise of one query."""
    half_width_95: dict[str, float] | None
    """Always null: a decision has no band."""
    half_width_kind: HalfWidthKind
    coverage: float
    policy_version: str
    laboratory: bool


RECORD_KINDS = ("count", "people", "forecast", "attribute", "threshold")
"""Kinds of the records of private topics."""


def record_kind(record: Mapping[str, object]) -> str:
    """Return the kind of a private record, one of ``RECORD_KINDS``: each but counts has a field that no other has."""
    if "attribute" in record:
        return "attribute"
    if "above" in record:
        return "threshold"
    if "forecast" in record:
        return "forecast"
    return "people" if "band" in record else "count"


def event_type(kind: str) -> str:
    """Return the type of a record's event (CloudEvents): ``tacet.count.v1``."""
    return f"tacet.{kind}.v1"


class AuditEntry(_Record):
    """One charge, or one denial, in a site's hash chain."""

    sequence: int
    previous: str
    ledger: str
    site: str
    release_id: str
    attempt: int
    audience: str
    release: str
    window_end: str
    epsilon: str
    nano: int
    """The charge in units of 1e-9 epsilon; 0 for a denial."""
    outcome: Literal["released", "budget", "w_budget", "waiting", "factor", "asked", "month", "guard"]
    """``released`` (an attribute may be withheld by its coin), or the reason why it was denied or not queried."""
    policy_version: str
    commitment: str
    """HMAC of the mechanism's input under a key that is destroyed with its day."""
    hash: str
    mac: str
    """HMAC of ``hash`` under the audit key."""
    laboratory: bool


def parse_record(value: bytes) -> JsonObject:
    """Return the JSON object of a published record; DataError if it is not one."""
    try:
        record = orjson.loads(value)
    except orjson.JSONDecodeError:
        record = None
    if not isinstance(record, dict):
        raise DataError("record: must be a JSON object")
    return record
