"""What is asked of the service, as models: parameters and bodies, each with its form and bounds."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from connectors.serve.contract import ExportFormat, Granularity
from connectors.simulation.detective import ROUNDS, Task
from connectors.simulation.lessons import Epsilon, Mechanism

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


class Asked(BaseModel):
    """Parameters of a question; one that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class OfAudience(Asked):
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


class OfCoalition(Asked):
    """Audiences that put their releases together."""

    audiences: Annotated[str, StringConstraints(min_length=1, max_length=2000)] = Field(
        description="Names with commas between."
    )


class OfSiteDay(Asked):
    """A site's local day."""

    site: Name
    day: Day


class Login(Asked):
    """A secret, for a session: of a one-time link, or a token."""

    link: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    token: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None


class Play(Asked):
    """How the day is played: what is given changes, the rest stays."""

    speed: float | None = Field(default=None, ge=0.1, le=100_000, description="Times real time.")
    paused: bool | None = None
    at: Time | None = Field(default=None, description="Go to this time; back begins the day anew.")


class OfLesson(Asked):
    """A simulated day of a place, released."""

    place: Name = "building"
    mechanism: Mechanism = "laplace"
    epsilon: Epsilon = "1"


class OfRound(Asked):
    """A round of the detective's game."""

    round: int = Field(default=0, ge=0, lt=ROUNDS)
    epsilon: Epsilon = "1"


class Answered(OfRound):
    """An answer to one of a round's questions."""

    task: Task
    answer: Annotated[str, StringConstraints(min_length=1, max_length=16)]
