"""The service's request and response models, from which its OpenAPI document is generated."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from connectors.documents.month import FIRST_YEAR, LAST_YEAR, Month
from connectors.lab.simulation.lessons import ROUNDS, Epsilon, Mechanism, Task
from connectors.serve.history.files import ExportFormat
from connectors.serve.history.rows import Granularity
from stream.records import JsonObject

# Parameters and bodies of requests, each with its form and bounds.

Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]


def _dated(day: str) -> str:
    try:
        date.fromisoformat(day)
    except ValueError:
        raise PydanticCustomError("day", "must be an existing day") from None
    return day


def _month(text: str) -> str:
    try:
        Month.parse(text)
    except ValueError:
        raise PydanticCustomError("month", f"must be a month from {FIRST_YEAR} to {LAST_YEAR}") from None
    return text


Day = Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(_dated)]
Time = Annotated[str, StringConstraints(min_length=1, max_length=40)]
"""RFC 3339 with a zone."""


class QueryParams(BaseModel):
    """Parameters of a request. Unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class OfAudience(QueryParams):
    """An audience."""

    audience: Name


class OfSite(OfAudience):
    """An audience and a site."""

    site: Name


class OfRoom(OfAudience):
    """An audience, and a site unless it has only one."""

    site: Name | None = None


class OfRelease(OfSite):
    """One release at one site."""

    release: Name


Nodes = Annotated[str, StringConstraints(max_length=4000)]
_NODES: str = Field(
    default="", description="Nodes separated by commas, such as building,floor:2,zone:2011. Default: all."
)


class OfUsual(OfRelease):
    """A release at one site, and the nodes for which usual values are returned."""

    nodes: Nodes = _NODES


class OfDays(OfSite):
    """A period of site-local days, both ends included."""

    first_day: Day | None = Field(default=None, alias="from")
    last_day: Day | None = Field(default=None, alias="to")


class OfRecords(OfSite):
    """The rows of a history, and their format."""

    start: Time | None = Field(default=None, alias="from", description="Only rows that end after this time (RFC 3339).")
    end: Time | None = Field(
        default=None, alias="to", description="Only rows that end at this time or before (RFC 3339)."
    )
    granularity: Granularity = "5min"
    nodes: Nodes = _NODES
    format: Literal["json"] | ExportFormat = "json"
    limit: int = Field(
        default=10_000,
        ge=1,
        le=100_000,
        description="Maximum number of rows in a JSON response. A file contains all rows.",
    )
    after: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        default=None, description="The 'next' of the previous response."
    )


class OfReport(OfSite):
    """A month's report."""

    month: Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])$"), AfterValidator(_month)] = Field(
        description="YYYY-MM, in the site's time zone."
    )
    language: Annotated[str, StringConstraints(pattern=r"^[a-z]{2}$")] = "en"


class OfBookings(OfSite):
    """The bookings of a site-local day."""

    day: Day | None = Field(default=None, description="Default: today.")


class OfStream(OfAudience):
    """An event stream of an audience's releases."""

    after: Annotated[str, StringConstraints(min_length=1, max_length=400)] | None = Field(
        default=None,
        description="Start after this release id; 'start' means from the first release. The header Last-Event-ID "
        "takes precedence. Default: only new releases.",
    )


class OfCoalition(QueryParams):
    """Audiences that combine their releases."""

    audiences: Annotated[str, StringConstraints(min_length=1, max_length=2000)] = Field(
        description="Names separated by commas."
    )


class OfPolicy(QueryParams):
    """The language of the guarantees."""

    language: Annotated[str, StringConstraints(pattern=r"^[a-z]{2}$")] = Field(
        default="en", description="Guarantees are in English if there is no translation."
    )


class OfSiteDay(QueryParams):
    """A site's local day."""

    site: Name
    day: Day


class Login(QueryParams):
    """The secret of a one-time link, or a token. Exactly one of them starts a session."""

    link: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    token: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None


class Play(QueryParams):
    """Changes of the playback. Absent fields stay as they are."""

    speed: float | None = Field(default=None, ge=0.1, le=100_000, description="Multiple of real time.")
    paused: bool | None = None
    at: Time | None = Field(
        default=None, description="Move to this time (RFC 3339). A move back restarts the playback."
    )


class OfLesson(QueryParams):
    """A simulated day of a place, with mechanism and epsilon of its release."""

    place: Name = "building"
    mechanism: Mechanism = "laplace"
    epsilon: Epsilon = "1"


class OfRound(QueryParams):
    """A round of the detective game."""

    round: int = Field(default=0, ge=0, lt=ROUNDS)
    epsilon: Epsilon = "1"


class Answered(OfRound):
    """An answer to one of a round's questions."""

    task: Task
    answer: Annotated[str, StringConstraints(min_length=1, max_length=16)]


class Error(BaseModel):
    """The reason of a refusal: the field, the rule that it breaks, and its value unless that may be secret."""

    what: str
    rule: str
    value: str | None = None


class Refusal(BaseModel):
    """A refused request."""

    error: Error


class Session(BaseModel):
    """The caller's roles, and what this service offers."""

    roles: list[str]
    audiences: list[str]
    open: bool = Field(description="Whether the caller reads an open audience without a token.")
    laboratory: bool = Field(description="Whether the releases were made with a laboratory key.")
    version: str
    playback: bool
    bookings: list[str] = Field(description="The audiences that bookings are served to.")


class Zone(BaseModel):
    """A zone of a floor."""

    zone: str
    floor: str
    kind: str
    capacity: int
    metadata: JsonObject


class Floor(BaseModel):
    """A floor."""

    floor: str
    name: str = Field(description="For display; the floor itself if no file of names gives one.")
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
    """The sites with releases for the reader."""

    sites: list[Site]


class Plan(BaseModel):
    """A floor's plan as geometry: path data of its zones and of its outline."""

    model_config = ConfigDict(extra="allow")

    viewbox: list[float]
    zones: dict[str, str]
    outline: list[str]


class SharedAttribute(BaseModel):
    """An attribute, its epsilon, and its sensitive values, which are always withheld."""

    attribute: str
    epsilon: str
    sensitive: JsonObject


class ProvisionalPeople(BaseModel):
    """From how little a provisional model of people was learnt, and the last local day on which it holds."""

    counts: int
    days: int
    until: date


class Release(BaseModel):
    """A release for an audience, with its terms."""

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
    base: str | None = Field(
        description="The release from whose values a query or decision is computed; null for other releases."
    )
    provisional: ProvisionalPeople | None = Field(
        default=None, description="Of estimates of people whose model is provisional; null for other releases."
    )


class Releases(BaseModel):
    """All releases of the reader's audiences."""

    releases: list[Release]


class Unit(BaseModel):
    """The cost of one privacy unit."""

    site: str
    release: str
    unit: str
    words: str
    epsilon: float | str
    delta: float


class Promise(BaseModel):
    """The privacy guarantee of an audience's releases."""

    promise: list[str]
    units: list[Unit]
    not_protected: list[str]


class PolicyPart(BaseModel):
    """The privacy guarantees of the reader's audiences, their language, and the policy's version."""

    audiences: dict[str, Promise]
    language: str
    version: str


class Records(BaseModel):
    """Rows of a history. For the following rows, repeat the request with ``next`` as ``after``."""

    release: str
    audience: str
    site: str
    timezone: str
    granularity: Granularity
    columns: list[str]
    rows: list[list[Any]]
    next: str | None


OUTAGE = "Seconds since a Kafka broker last answered; null if one answers, or if a store is served."


class SiteFeed(BaseModel):
    """Whether releases of a site arrive."""

    site: str
    window_end: str | None
    age_seconds: float | None
    coverage: float | None
    denied: bool
    state: Literal["live", "late", "silent"]


class Latest(BaseModel):
    """The newest value of each node of each release."""

    now: str
    rows: list[JsonObject]
    feed: list[SiteFeed]
    outage_seconds: float | None = Field(description=OUTAGE)


class Usual(BaseModel):
    """Mean, standard deviation and number of released values, by node, class of day and slot of the day."""

    nodes: dict[str, dict[str, list[Any]]]
    slot_seconds: int


class Forecast(BaseModel):
    """Usual value, forecast, and the ends of its 90 % band, by node and hour."""

    made_at: str | None = Field(description="End of the last window that the forecast is made from.")
    start: list[str] = Field(description="Starts of hours.")
    nodes: dict[str, dict[str, list[int | None]]]


class Listed(BaseModel):
    """Rows."""

    rows: list[JsonObject]


class Spends(Listed):
    """The cost of each day's releases, and for how many more windows the budget of the current day suffices."""

    left: dict[str, int | None]


class Figures(BaseModel):
    """Figures by site."""

    sites: dict[str, JsonObject]


class AccountPart(Figures):
    """The newest account of each site, and the privacy guarantee of each audience's releases."""

    promise: dict[str, list[str]]
    outage_seconds: float | None = Field(description=OUTAGE)


class Coalition(Figures):
    """The combined cost of some audiences' releases in each privacy unit, by site."""

    audiences: list[str]


class Attributes(BaseModel):
    """What a day's attributes have revealed, by ``day/zone/attribute``."""

    attributes: JsonObject


class Denied(BaseModel):
    """The number of windows of a release that were denied to an audience in the site's last seven days, by reason."""

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
    """The status of a site. On Kafka, fields that only the workers' metrics contain are null."""

    model_config = ConfigDict(extra="allow")

    site: str
    window_end: str | None
    lag_seconds: float | None
    state: Literal["live", "late", "silent"] | None = Field(
        description="Whether releases arrive, as in 'latest'; null for a site that is not in the policy."
    )
    reached: str | None
    closed: bool | None
    ledger_entries: int | None
    accepted: int | None = Field(description="Accepted observations; null below eight access points.")
    late: int | None = Field(
        description="Observations that were dropped because they came too late; null below eight access points."
    )
    dropped: dict[str, int] | None = Field(
        description="Other dropped observations, by reason; null below eight access points."
    )
    traps: ReceivedTraps | None = Field(
        description="Messages that the receiver of 'tacet run' received since it started, for all sites; null below "
        "eight access points."
    )
    rejected_messages: int | None = Field(
        description="Messages and rows in quarantine, for all sites; null below eight access points. On Kafka "
        "the number is updated every five minutes."
    )
    oldest_key_day: str | None
    policy_version: str | None
    silent_sources: int | None = Field(description="Number of sources without a heartbeat from ingest; Kafka only.")
    denied: list[Denied]


class OperatorPart(BaseModel):
    """The status of each site, and the free disk space of the store in MiB."""

    sites: list[OperatorSite]
    free_mib: int | None
    outage_seconds: float | None = Field(description=OUTAGE)


class PlayState(BaseModel):
    """The state of the playback."""

    speed: float
    paused: bool
    at: str
    start: str
    end: str


class Health(BaseModel):
    """The service answers."""

    status: Literal["ok"]


class Event(BaseModel):
    """The data of an event: a released record as it was published."""


class RoomPlace(BaseModel):
    """Whether there is room at a floor or hall."""

    node: str
    name: str
    state: Literal["free", "filling", "full"] | None = Field(
        description="Null if the figures do not tell, or if they are stale."
    )


class RoomPart(BaseModel):
    """Where there is room."""

    site: str
    name: str
    timezone: str
    stale: bool
    window_end: str | None
    places: list[RoomPlace]


class BookedSpan(BaseModel):
    """A booking, and whether its room is probably empty."""

    start: str
    end: str
    whole_days: bool
    empty: float | None = Field(
        description="Probability that the room is empty during the booking so far. Null if it is below 'called', or "
        "if nothing can be said."
    )
    reason: Literal["days", "ahead", "short", "stale", "missing", "unsure"] | None = Field(
        description="Why no probability is given."
    )


class UsedSpan(BaseModel):
    """A span in which a room is in use and not booked."""

    start: str
    end: str
    used: float = Field(description="Probability that it is in use.")


class BookedRoom(BaseModel):
    """A room with a calendar."""

    zone: str
    name: str
    reason: Literal["few", "calendar", "none", "bounded", "law", "noise"] | None = Field(
        description="Why no statement is made about this room."
    )
    half_width: float | None = Field(description="95 % half-width of the noise in the mean of an hour, in devices.")
    minutes: int | None = Field(description="Length of counts that a statement about this room needs.")
    booked: list[BookedSpan]
    unbooked: list[UsedSpan]


class UseAssumptions(BaseModel):
    """What is not in the counts, and the operator states."""

    empty_devices: int = Field(description="An empty room holds at most so many devices on average.")
    used_devices: int = Field(description="A room in use holds at least so many devices on average.")
    empty_share: float = Field(description="At least this share of bookings stays empty.")
    used_share: float = Field(description="A room is in use for at least this share of unbooked hours.")


class BookingsPart(BaseModel):
    """The booked rooms that are probably empty, and the rooms in use that nobody booked."""

    site: str
    timezone: str
    day: str
    stale: bool
    window_end: str | None
    least_capacity: int = Field(description="Seats of the smallest room about which statements are made.")
    assumed: UseAssumptions
    called: float = Field(description="The probability from which a statement is made.")
    rooms: list[BookedRoom]


class MonthPage(BaseModel):
    """A month's report, as an HTML page."""


class Document(BaseModel):
    """An OpenAPI document."""

    model_config = ConfigDict(extra="allow")

    openapi: str


# Responses of the lessons.


class Lesson(BaseModel):
    """A simulated day of a place: its true counts and its released values."""

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
    truth: list[int] = Field(description="True counts. They exist because the people are simulated.")
    mean_error: float
    mean_count: float


class LessonSeries(BaseModel):
    """A released series of a question."""

    name: str
    rows: list[list[Any]]


class LessonTask(BaseModel):
    """A question of the detective game."""

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
    """The true counts of a series: counts of simulated people."""

    name: str
    truth: list[int]


class LessonScore(BaseModel):
    """The score of an answer, at most 100 points, and the answer of a program that sees only the released values."""

    task: str
    answer: str
    truth: str
    off: int
    points: int
    machine: str
    machine_points: int
    traces: list[LessonTrace] = Field(description="True counts, in the order of the question's series.")
