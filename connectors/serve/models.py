"""The service's request and response models, from which its OpenAPI document is generated."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from connectors.lab.simulation.lessons import ROUNDS, Epsilon, Mechanism, Task
from connectors.serve.history.files import ExportFormat
from connectors.serve.history.rows import Granularity

# Parameters and bodies of requests, each with its form and bounds.

Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]


def _dated(day: str) -> str:
    try:
        date.fromisoformat(day)
    except ValueError:
        raise PydanticCustomError("day", "must be a day that there is") from None
    return day


Day = Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(_dated)]
Time = Annotated[str, StringConstraints(min_length=1, max_length=40)]
"""RFC 3339 with a zone."""


class QueryParams(BaseModel):
    """Parameters of a question; one that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class OfAudience(QueryParams):
    """Whose releases."""

    audience: Name


class OfSite(OfAudience):
    """Whose releases, and where."""

    site: Name


class OfRelease(OfSite):
    """One release at one site."""

    release: Name


Nodes = Annotated[str, StringConstraints(max_length=4000)]
_NODES: str = Field(default="", description="building, floor:2, zone:2011, with commas between; none: all.")


class OfUsual(OfRelease):
    """What is usual: of which nodes."""

    nodes: Nodes = _NODES


class OfDays(OfSite):
    """Site-local days, both included."""

    first_day: Day | None = Field(default=None, alias="from")
    last_day: Day | None = Field(default=None, alias="to")


class OfRecords(OfSite):
    """A history: which rows, and how they are given."""

    start: Time | None = Field(default=None, alias="from", description="Rows that end after this time.")
    end: Time | None = Field(default=None, alias="to", description="Rows that end at this time or before.")
    granularity: Granularity = "5min"
    nodes: Nodes = _NODES
    format: Literal["json"] | ExportFormat = "json"
    limit: int = Field(default=10_000, ge=1, le=100_000, description="Rows at once; a file has all.")
    after: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        default=None, description="The 'next' of the rows before."
    )


class OfStream(OfAudience):
    """An audience's releases as they come."""

    after: Annotated[str, StringConstraints(min_length=1, max_length=400)] | None = Field(
        default=None, description="Begin behind this release id; 'start': with the first. Last-Event-ID wins."
    )


class OfCoalition(QueryParams):
    """Audiences that put their releases together."""

    audiences: Annotated[str, StringConstraints(min_length=1, max_length=2000)] = Field(
        description="Names with commas between."
    )


class OfSiteDay(QueryParams):
    """A site's local day."""

    site: Name
    day: Day


class Login(QueryParams):
    """A secret, for a session: of a one-time link, or a token."""

    link: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    token: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None


class Play(QueryParams):
    """How the day is played: what is given changes, the rest stays."""

    speed: float | None = Field(default=None, ge=0.1, le=100_000, description="Times real time.")
    paused: bool | None = None
    at: Time | None = Field(default=None, description="Go to this time; back begins the day anew.")


class OfLesson(QueryParams):
    """A simulated day of a place, released."""

    place: Name = "building"
    mechanism: Mechanism = "laplace"
    epsilon: Epsilon = "1"


class OfRound(QueryParams):
    """A round of the detective's game."""

    round: int = Field(default=0, ge=0, lt=ROUNDS)
    epsilon: Epsilon = "1"


class Answered(OfRound):
    """An answer to one of a round's questions."""

    task: Task
    answer: Annotated[str, StringConstraints(min_length=1, max_length=16)]


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


OUTAGE = "For how long no broker of Kafka has answered; null while one does, and of a store."


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
    outage_seconds: float | None = Field(description=OUTAGE)


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
    outage_seconds: float | None = Field(description=OUTAGE)


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


class ReceivedTraps(BaseModel):
    """Messages of a receiver."""

    received: int
    accepted: int
    kernel_drops: int
    dropped: dict[str, int] = Field(description="By reason.")


class OperatorSite(BaseModel):
    """How a site stands; null is what is not known here: on Kafka, what only the workers' metrics tell."""

    model_config = ConfigDict(extra="allow")

    site: str
    window_end: str | None
    lag_seconds: float | None
    state: Literal["live", "late", "silent"] | None = Field(
        description="Whether windows come, as in 'latest'; none of a site that the policy does not have."
    )
    reached: str | None
    closed: bool | None
    ledger_entries: int | None
    accepted: int | None = Field(description="Accepted observations; of enough access points only.")
    late: int | None = Field(
        description="Observations that came after their window had closed; of enough access points only."
    )
    dropped: dict[str, int] | None = Field(
        description="Other dropped observations, by reason; of enough access points only."
    )
    traps: ReceivedTraps | None = Field(
        description="Messages that the receiver of 'tacet run' got since it began, of all sites; of enough access "
        "points only."
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
    outage_seconds: float | None = Field(description=OUTAGE)


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


# Responses of the lessons.


class Lesson(BaseModel):
    """A simulated day of a place as it is, and as it is released."""

    places: list[str]
    epsilons: list[str]
    mechanisms: list[str]
    place: str
    mechanism: str
    epsilon: str
    timezone: str
    kind: str
    columns: list[str]
    rows: list[list[Any]]
    truth: list[int] = Field(description="True counts, which there are of simulated people only.")
    mean_error: float
    mean_count: float


class LessonSeries(BaseModel):
    """A private series of a question."""

    name: str
    rows: list[list[Any]]


class LessonTask(BaseModel):
    """A question of the detective's game."""

    task: str
    place: str
    limit: int | None
    options: list[str]
    series: list[LessonSeries]


class LessonRound(BaseModel):
    """The questions of a round."""

    round: int
    rounds: int
    epsilon: str
    epsilons: list[str]
    mechanism: str
    timezone: str
    columns: list[str]
    tasks: list[LessonTask]


class LessonTrace(BaseModel):
    """What is behind a series of a question: counts of simulated people."""

    name: str
    truth: list[int]


class LessonScore(BaseModel):
    """What an answer is worth, in points of 100, and what the values alone would have answered."""

    task: str
    answer: str
    truth: str
    off: int
    points: int
    machine: str
    machine_points: int
    traces: list[LessonTrace] = Field(description="True counts, in the order of the question's series.")
