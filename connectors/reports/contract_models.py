"""What stands on the topics that are no audience's own, as models: the account, and what sites and zones are called.

The records themselves are made elsewhere; contracts are made of these models, and tests hold the records to them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Epsilon = Annotated[str, Field(pattern=r"^([0-9]+(\.[0-9]+)?|inf)$")]
"""A decimal string; ``inf`` where there is no bound."""
Factor = float | Literal["inf"] | None
Factors = dict[str, Factor]
"""By reader."""


class _Described(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class Tight(_Described):
    """An epsilon that holds together with its delta."""

    epsilon: float | None
    """Null where there is none."""
    delta: float


class Units(_Described):
    """What each privacy unit has cost a reader, in epsilons."""

    presence_tuple: Epsilon
    """One device at one tick, there or not."""
    tuple_moved: Epsilon
    observation: Epsilon
    """One trap, there or not."""
    observation_moved: Epsilon
    device_w_event: Epsilon
    """One device over the last w windows."""
    device_w_event_moved: Epsilon
    person_w_event: Epsilon
    device_day: Epsilon
    """One device's day so far."""
    device_day_moved: Epsilon
    person_day: Epsilon
    device_total: Epsilon
    """Since the ledger began."""
    person_total: Epsilon
    tight: dict[str, Tight] = {}
    """By unit, of those that add over time or have no epsilon without a delta; records of 0.1.0 do not have it."""
    temporal: float | Literal["inf"] = 0.0
    """Only where the policy says how people move."""
    meeting: float | Literal["inf"] = 0.0
    """Only where the policy says who meets whom."""


class Refused(_Described):
    """What was denied or not asked just now."""

    release: str
    """Release and audience, with a slash between."""
    reason: str
    attribute: str = ""
    """Only of attributes."""


class Odds(_Described):
    """What an attribute of a zone's day has given away: posterior odds over prior odds, by reader."""

    theorem_1: Factors
    bound: Factors
    exact: Factors = {}
    """Only under a declared model; null where it calls the outcomes impossible."""
    with_counts: Factors


class Habit(_Described):
    """What is given away of somebody whose value was sensitive on each day so far."""

    days: int
    factor: Factor


class Information(_Described):
    """Bits that a release gives about a zone's day on average."""

    bits: float
    target: float = 0.0
    """Only where the policy names one."""


class AccountRecord(_Described):
    """What all releases of a site together have cost, after one of them."""

    site: str
    window_end: str
    kind: Literal["counts", "attributes"]
    audiences: dict[str, Units]
    coalition: Units | None
    """All audiences together."""
    left: dict[str, int]
    """By release and audience with a daily budget: how many windows more it pays."""
    refused: list[Refused]
    attributes: dict[str, Odds]
    """By day, zone and attribute, with slashes between; empty after counts."""
    habit: dict[str, dict[str, Habit]] = {}
    """After attributes: by release and attribute, then by reader."""
    information: dict[str, dict[str, Information]] = {}
    """After attributes with a model: by release, then by reader."""
    policy_version: str
    laboratory: bool


class ZoneMetadata(_Described):
    """A zone, and what building systems call it."""

    zone: str
    floor: str
    kind: str
    capacity: int
    metadata: dict[str, Any]
    """Names of the policy's own: name, brick, rec, bacnet and others."""


class SiteMetadata(_Described):
    """A site and its zones; no address, and nothing that depends on people. The newest message of a site counts."""

    site: str
    name: str
    timezone: str
    tick_seconds: int
    zones: list[ZoneMetadata]
