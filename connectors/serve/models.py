"""What the service answers, as models: of them, and of its questions, its description (OpenAPI) is made."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from connectors.serve.contract import Granularity


class Error(BaseModel):
    """Why a request was refused."""

    what: str
    rule: str
    value: str | None = None


class Refusal(BaseModel):
    """A refused request."""

    error: Error


class Session(BaseModel):
    """Who asks, and what this service is."""

    roles: list[str]
    audiences: list[str]
    open: bool = Field(description="Whether anyone sees this, without a token.")
    laboratory: bool = Field(description="Whether what is shown was made with a laboratory key.")
    version: str
    playback: bool


class Zone(BaseModel):
    """A zone of a floor."""

    zone: str
    floor: str
    kind: str
    capacity: int
    metadata: dict[str, Any]


class Floor(BaseModel):
    """A floor."""

    floor: str
    plan: str | None
    zones: list[Zone]


class Site(BaseModel):
    """A building."""

    site: str
    name: str
    timezone: str
    tick_seconds: int
    day_starts: str | None
    working_hours: list[str] | None
    floors: list[Floor]


class Sites(BaseModel):
    """The sites of which the reader gets anything."""

    sites: list[Site]


class Plan(BaseModel):
    """A floor's plan: geometry, never markup."""

    model_config = ConfigDict(extra="allow")

    viewbox: list[float]
    zones: dict[str, str]
    outline: list[str]


class SharedAttribute(BaseModel):
    """An attribute, at what epsilon, and which of its values are never shown."""

    attribute: str
    epsilon: str
    sensitive: dict[str, Any]


class Release(BaseModel):
    """What an audience gets, with its terms."""

    audience: str
    release: str
    sites: list[str]
    query: str
    mechanism: str
    levels: list[str]
    zones: dict[str, list[str]]
    epsilon: str | None
    unit: str
    noise: str | None
    delta: float
    window_seconds: int
    revise: list[str]
    attributes: list[SharedAttribute]
    daily_budget: str | None
    base: str | None = Field(description="The release of whose values a query is answered; none of others.")


class Releases(BaseModel):
    """All releases of the reader's audiences."""

    releases: list[Release]


class Unit(BaseModel):
    """What one privacy unit costs."""

    site: str
    release: str
    unit: str
    words: str
    epsilon: float | str
    delta: float


class Promise(BaseModel):
    """What an audience's releases promise."""

    promise: list[str]
    units: list[Unit]
    not_protected: list[str]


class PolicyPart(BaseModel):
    """Each audience's own part of the policy."""

    audiences: dict[str, Promise]
    version: str


class Records(BaseModel):
    """Rows of a history; ``next`` goes into ``after`` for the rows behind."""

    release: str
    audience: str
    site: str
    timezone: str
    granularity: Granularity
    columns: list[str]
    rows: list[list[Any]]
    next: str | None


class SiteFeed(BaseModel):
    """Whether windows come."""

    site: str
    window_end: str | None
    age_seconds: float | None
    coverage: float | None
    denied: bool
    state: Literal["live", "late", "silent"]


class Latest(BaseModel):
    """The newest value of each node of each release."""

    now: str
    rows: list[dict[str, Any]]
    feed: list[SiteFeed]


class Usual(BaseModel):
    """Mean, deviation and number of released values, by node, class of day and slot."""

    nodes: dict[str, dict[str, list[Any]]]
    slot_seconds: int


class Listed(BaseModel):
    """Rows."""

    rows: list[dict[str, Any]]


class Spends(Listed):
    """What each day's releases have cost, and how many more windows the day at hand pays for."""

    left: dict[str, int | None]


class Figures(BaseModel):
    """Figures by site."""

    sites: dict[str, dict[str, Any]]


class AccountPart(Figures):
    """The newest account of each site, and what is promised to whom."""

    promise: dict[str, list[str]]


class Coalition(Figures):
    """What each privacy unit has cost some audiences together, by site."""

    audiences: list[str]


class Attributes(BaseModel):
    """By ``day/zone/attribute``, what a day's attributes have given away."""

    attributes: dict[str, Any]


class Denied(BaseModel):
    """How many windows of a release were denied to an audience in the site's last seven days, and why."""

    release: str
    audience: str
    reason: str
    windows: int


class OperatorSite(BaseModel):
    """How a site stands; null is what is not known here: on Kafka, what only the workers' metrics tell."""

    model_config = ConfigDict(extra="allow")

    site: str
    window_end: str | None
    lag_seconds: float | None
    reached: str | None
    closed: bool | None
    ledger_entries: int | None
    late: int | None = Field(
        description="Observations that came after their window had closed; of enough access points only."
    )
    rejected_messages: int | None = Field(
        description="Messages and rows that were put aside, of all sites; of enough access points only, and on Kafka "
        "as of a point of the clock's grid of five minutes."
    )
    oldest_key_day: str | None
    policy_version: str | None
    silent_sources: int | None = Field(description="Of how many sources the ingest gives no sign of life; Kafka only.")
    denied: list[Denied]


class OperatorPart(BaseModel):
    """What the services say of themselves, a site a row, and the MiB that the store's disk has free."""

    sites: list[OperatorSite]
    free_mib: int | None


class PlayState(BaseModel):
    """How the day is being played."""

    speed: float
    paused: bool
    at: str
    start: str
    end: str


class Health(BaseModel):
    """That the service answers."""

    status: Literal["ok"]


class Event(BaseModel):
    """A release as its event carries it: the record as it was published."""


class Document(BaseModel):
    """An OpenAPI document."""

    model_config = ConfigDict(extra="allow")

    openapi: str
