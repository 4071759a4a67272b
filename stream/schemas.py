"""Topics, keys and the versioned JSON of their records.

Every record is one JSON object with ``v``, its version. Published records are built from the models below, which define
their fields, order and types. The docstrings of the models and fields become descriptions in the published JSON
schemas. Readers skip fields that they do not know.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict

from stream.errors import DataError
from stream.records import EPOCH, Micros, NoiseKind

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
LevelScales = dict[str, dict[str, float] | float]
HalfWidthKind = Literal["noise", "posterior"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    def to_bytes(self) -> bytes:
        """Return the canonical JSON bytes: ``v`` first, then the fields that were given, in their order."""
        return orjson.dumps({"v": 1} | self.model_dump(mode="json", exclude_unset=True))


class CountRecord(_Record):
    """One window's private counts for one audience."""

    release_id: str
    site: str
    audience: str
    release: str
    window_start: str
    window_end: str
    values: dict[str, int] | None
    levels: Levels | None = None
    """With ``levels_half_width_95``: of releases that ask for more than zones; others do not have these fields."""
    released: bool
    reason: str | None
    mechanism: str
    unit: str = "window"
    """With ``noise`` and ``delta``: of releases that are paid by the day; others do not have these fields."""
    noise: NoiseKind = "laplace"
    delta: str = "0"
    bounded_to: str = ""
    """Of bounded counts: for how long of a privacy day a device is counted, such as 12h; later it is left out, so that
    more devices may be there than values say. Other records do not have this field."""
    epsilon: str
    spend: str
    noise_scale: dict[str, float]
    half_width_95: dict[str, float] | None
    half_width_kind: HalfWidthKind
    levels_half_width_95: Levels | None = None
    levels_noise_scale: LevelScales | None = None
    """Of levels filtered, grouped or paid by the day, which have noise of their own; others do not have this field."""
    noisy: dict[str, int] | None = None
    """With ``levels_noisy``: of filters and groups, what ``values`` are made of: counts with noise that is independent
    from window to window. Other records, and those of revised values, do not have these fields."""
    levels_noisy: Levels | None = None
    levels_draws: Levels | None = None
    """How many of the names' draws are summed in ``levels_noisy``; of levels with noise of their own there is one."""
    usual: dict[str, float] | None = None
    """With ``usual_deviation``: of heat maps, the mean and the deviation of released values of earlier days by which
    ``values`` are colours, 1 to 10; others do not have these fields."""
    usual_deviation: dict[str, float] | None = None
    revises: str = ""
    lag: int = 0
    """Of revised values whose record said them first, and how many windows ago; others do not have these fields."""
    coverage: float
    policy_version: str
    laboratory: bool

    def of_day(self, noise: NoiseKind, delta: str) -> CountRecord:
        """Return the record of a release that is paid by the day: epsilon is a device's whole day's, at ``delta``."""
        return self.model_copy(update={"unit": "device_day", "noise": noise, "delta": delta})

    def bounded(self, bounded_to: str | None) -> CountRecord:
        """Return the record with the bound of its counts, where they have one."""
        return self if bounded_to is None else self.model_copy(update={"bounded_to": bounded_to})

    def with_levels(self, levels: Levels | None, half_widths: Levels | None, scales: LevelScales | None) -> CountRecord:
        """Return the record with floors and building, or with nulls for them, and with scales of their own noise."""
        own = {"levels_noise_scale": scales} if scales else {}
        return self.model_copy(update={"levels": levels, "levels_half_width_95": half_widths} | own)

    def with_noisy(self, noisy: dict[str, int] | None, levels: Levels | None, draws: Levels) -> CountRecord:
        """Return the record with noisy values, or with nulls for them; of levels only where it has any."""
        given: dict[str, Any] = {"noisy": noisy}
        if "levels" in self.model_fields_set:
            given |= {"levels_noisy": levels} | ({"levels_draws": draws} if draws else {})
        return self.model_copy(update=given)


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
    """Why it was not asked; null when it was, whether its value is shown or not."""
    value: str | int | float | None = None
    """Only of a record whose value is shown; null there for an empty zone."""
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
    """Whether counts above their threshold are alerted of, or below."""
    thresholds: dict[str, int]
    """By node (``zone:2011``, ``floor:2``, ``building``), in devices."""
    above: dict[str, bool | None]
    """By node: whether an alert lasts; null where it has no answer."""
    denied: dict[str, str]
    """Of nodes without an answer, why: ``events``, ``budget`` or ``unbooked``."""
    values: dict[str, int] | None
    """By zone, as records of counts have them: 1 where an alert lasts, 0 where none does."""
    levels: Levels | None = None
    """The same of floors or building, of a stream about these; others do not have this field."""
    released: bool
    reason: str | None
    mechanism: str
    unit: str
    bounded_to: str = ""
    """Of decisions on bounded counts: for how long of a privacy day a device is counted, such as 12h; later it is left
    out. Other records do not have this field."""
    epsilon: str
    """The most that a device's day costs; of what is decided on counts, theirs."""
    spend: str
    noise_scale: dict[str, float]
    """Of one question."""
    half_width_95: dict[str, float] | None
    """Null: an answer has no band."""
    half_width_kind: HalfWidthKind
    coverage: float
    policy_version: str
    laboratory: bool


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
    """What was charged, in 1e-9 of an epsilon; 0 for a denial."""
    outcome: Literal["released", "budget", "w_budget", "waiting", "factor", "asked", "month", "guard"]
    """What became of it: released (shown or withheld by its coin), or why it was denied or not asked."""
    policy_version: str
    commitment: str
    """HMAC of the mechanism's input under a key that is destroyed with its day."""
    hash: str
    mac: str
    """HMAC of ``hash`` under the audit key."""
    laboratory: bool


def parse_record(value: bytes) -> dict[str, Any]:
    """Return the JSON object of a published record; DataError if it is not one."""
    try:
        record = orjson.loads(value)
    except orjson.JSONDecodeError:
        record = None
    if not isinstance(record, dict):
        raise DataError("record: must be a JSON object")
    return record
