"""The vocabulary: what flows between stages.

Times are integer microseconds since 1970-01-01T00:00Z (``Micros``); durations are integer microseconds.
Spends and epsilons are exact: ``Fraction`` inside, decimal strings outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Literal, NamedTuple

from stream.errors import DataError

Micros = int
SECOND: Micros = 1_000_000
MINUTE: Micros = 60 * SECOND
HOUR: Micros = 60 * MINUTE
DAY: Micros = 86_400 * SECOND
LATEST: Micros = 1 << 53
"""No time is this late (the year 2255): every number up to it is exact in any JSON reader."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The instant 0."""
NoiseKind = Literal["laplace", "gaussian"]
"""Law of the noise on a count: discrete Laplace or discrete Gaussian."""


class Row(NamedTuple):
    """One observation: a device at an access point, or (``access_point`` None) the end of its stay."""

    device: str
    """Pseudonym, 16 hexadecimal digits."""
    access_point: str | None
    """Radio address, lower case with colons; None ends the device's open stay at ``time``."""
    time: Micros


class PrivacyDay(NamedTuple):
    """A site's privacy day, (start, end]: the tick at its start is the last of the day before."""

    number: int
    """Days from 1970-01-01 to the site-local date on which it begins."""
    start: Micros
    end: Micros


@dataclass(frozen=True, slots=True)
class ObservationBatch:
    """Up to a thousand observations of one site from one source, in the order the connector saw them."""

    site: str
    source: str
    """The controller, as the policy lists it."""
    session: int
    """The connector's start in microseconds: a restarted connector opens a later session."""
    sequence: int
    """Counts the batches of a (site, source, session) from 0; a number that comes again is a copy."""
    rows: Sequence[Row]
    """A tuple, or columns."""
    epoch: PrivacyDay | None = None
    """The privacy day for which its devices are named and in which all its rows lie; None where names are not by
    such days."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A connector's word that this source sends nothing older than ``watermark`` any more."""

    site: str
    source: str
    session: int
    watermark: Micros
    listened_since: Micros | None = None
    """From when on the connector has listened to this source without a break; None (messages of an earlier
    version) vouches for nothing before ``watermark``."""


LARGEST_COUNT = 1_000_000
"""No counter counts more people at one place: a larger number is a fault."""


@dataclass(frozen=True, slots=True)
class CountedWindow:
    """What counters of people have counted at one tick; restricted: true counts. It closes all windows up to it."""

    site: str
    source: str
    session: int
    window_end: Micros
    counts: tuple[tuple[str, int], ...]
    """Zone and count, at most ``LARGEST_COUNT``; a zone that no counter has told of is left out."""


Observed = ObservationBatch | Heartbeat
"""What a source says of who is where."""
Message = Observed | CountedWindow
"""What the log holds."""


@dataclass(frozen=True, slots=True)
class OccupancyWindow:
    """Distinct devices per declared zone at one tick; restricted: true counts."""

    site: str
    window_end: Micros
    counts: tuple[int, ...]
    """One count a zone, in the order of the site's zone registry."""
    coverage: Fraction
    """Share of the site's sources whose connectors vouch, by their heartbeats, for having listened to all of it."""
    privacy_day: PrivacyDay | None = None
    """The privacy day that holds the tick; None where the site has none."""
    bounded: tuple[int, ...] | None = None
    """Like ``counts``, each device at no more than K ticks of its privacy day, by what that day alone says of it;
    None where the site bounds nothing, or where today's counters have not run on from where they were."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A closed stay: the device was in the zone in [start, end); restricted."""

    site: str
    device: str
    zone: str
    start: Micros
    end: Micros


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row or message that broke a rule; says which and where, never what was in it."""

    source: str
    reason: str
    """One of a fixed set of words, used as a metric label."""
    place: str
    """Field and row, such as ``rows[17].time``."""


@dataclass(frozen=True, slots=True)
class DayAttribute:
    """One attribute of one zone on one site-local day; restricted."""

    site: str
    zone: str
    day: str
    """Site-local date, ISO form."""
    attribute: str
    """Name in the registry (``policy.attributes``)."""
    value: str | int | float | None
    """``HH:MM``, a number, or None when the zone was empty all day."""
    closed: Micros
    """End of the window in which the local day closed."""


@dataclass(frozen=True, slots=True)
class DayClosed:
    """All attributes of a site-local day that has just ended; restricted."""

    site: str
    local_day: str
    """ISO date."""
    window_end: Micros
    attributes: tuple[DayAttribute, ...]


class ZoneDayAttribute(NamedTuple):
    """Which attribute record: of which zone's day."""

    day: str
    """Site-local date, ISO form."""
    zone: str
    attribute: str

    def __str__(self) -> str:
        """Return ``day/zone/attribute``."""
        return "/".join(self)


class ReleaseId(NamedTuple):
    """The name of a published record: ``site/release/audience/where``, with ``#2`` and so on for later attempts."""

    site: str
    release: str
    audience: str
    where: str
    """A window's end as RFC 3339 (of revised values with ``/1h`` or ``/1d`` behind it), or ``day/zone/attribute``."""
    attempt: int = 1

    @classmethod
    def parse(cls, text: str) -> ReleaseId:
        """Return the id of its text; DataError where it is none."""
        name, _, attempt = text.partition("#")
        parts = name.split("/", 3)
        if len(parts) < 4 or not all(parts) or not (attempt or "1").isdecimal():
            raise DataError("release_id: must be site/release/audience and a window, or day/zone/attribute")
        site, release, audience, where = parts
        return cls(site, release, audience, where, int(attempt or 1))

    @property
    def attribute(self) -> ZoneDayAttribute:
        """Which attribute record it names; DataError where it names a window."""
        parts = self.where.split("/")
        if len(parts) != 3:
            raise DataError("release_id: must end with day/zone/attribute")
        return ZoneDayAttribute(*parts)

    def __str__(self) -> str:
        """Return the text that records bear."""
        name = f"{self.site}/{self.release}/{self.audience}/{self.where}"
        return f"{name}#{self.attempt}" if self.attempt > 1 else name


WAITING = "waiting"
"""Why a release is denied that begins anew where what was published, or paid for, before still stands."""
PURE = "pure"
"""Stands in a day's terms for runs of which only the epsilon is known: each is charged as it begins."""


class DayTerms(NamedTuple):
    """What was paid for when a release was paid by the day: the noise of K windows of one device's privacy day."""

    day: int
    """Number of the privacy day."""
    noise: str
    """``laplace`` or ``gaussian``; ``PURE`` of decisions."""
    parameters: tuple[Fraction, ...]
    """Of the noise of each level that is measured: its epsilon per window, or its sigma squared; epsilon of a run."""
    ticks: int
    """K: windows of a day at which one device counts at most; of decisions the runs that are charged now."""


@dataclass(frozen=True, slots=True)
class CountCharge:
    """What one window of a count release cost one audience; holds nothing that its reader does not know."""

    release: str
    audience: str
    mechanism: str
    epsilon: Fraction
    """0 when it was denied."""
    reason: str = ""
    """Why it was denied: ``budget``, ``w_budget``, ``waiting`` or ``factor``."""
    attempt: int = 1
    """Above 1: of an operator-requested re-release, whose noise is its own."""
    w: int = 1
    """Consecutive windows that one epsilon pays for; 1 where each window costs its own."""
    left: int | None = None
    """How many more releases the budget pays today; None without a budget."""
    terms: DayTerms | None = None
    """Where ``epsilon`` pays for the whole of a privacy day, once, however many of its windows are charged with it:
    what for. None where each window, or any w, pay for themselves."""


@dataclass(frozen=True, slots=True)
class AttributeCharge:
    """What one attribute record of a zone's day cost one audience; holds nothing that its reader does not know."""

    release: str
    audience: str
    epsilon: Fraction
    """0 when it was not asked."""
    zone: str
    attribute: str
    day: str
    """Site-local date, ISO form."""
    span: tuple[Micros, Micros] = (0, 0)
    """First instant of the local day, and the first after it."""
    reason: str = ""
    """Why it was not asked: ``asked``, ``factor``, ``month`` or ``guard``."""
    shown: str | int | float | None = None
    """The value, where it was shown."""
    version: str = ""
    """Policy version, where records of several are put together; empty for the account's own."""


Charge = CountCharge | AttributeCharge


@dataclass(frozen=True, slots=True)
class Spent:
    """All charges of one window, or of one day's attributes."""

    site: str
    window_end: Micros
    charges: tuple[Charge, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """A record ready for its topic."""

    topic: str
    key: str
    value: bytes
    time: Micros
    """The window's end: publication time says nothing beyond it."""
    id: str
    """Release id, ledger sequence or window: a second copy has the same id and the same bytes."""
