"""The vocabulary: the items that flow between stages.

Times are integer microseconds since 1970-01-01T00:00Z (``Micros``); durations are integer microseconds.
Spends and epsilons are exact: ``Fraction`` inside, decimal strings outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from itertools import compress
from typing import Any, Literal, NamedTuple, overload

from stream.errors import DataError

Micros = int
SECOND: Micros = 1_000_000
MINUTE: Micros = 60 * SECOND
HOUR: Micros = 60 * MINUTE
DAY: Micros = 86_400 * SECOND
LONGEST_DAY: Micros = DAY + HOUR
"""A local day on which clocks are set back by an hour."""
LATEST: Micros = 1 << 53
"""All times are before this (the year 2255); every number up to it is exact in any JSON reader."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The instant 0."""
NoiseKind = Literal["laplace", "gaussian"]
"""Law of the noise on a count: discrete Laplace or discrete Gaussian."""
JsonObject = dict[str, Any]
"""A JSON object where it is read or written. Who reads it checks its fields."""


LEFT = "-"
"""Mark before an access point's address where a device leaves it."""


class Row(NamedTuple):
    """One observation: a device at an access point, or the end of its stay."""

    device: str
    """Pseudonym, 16 hexadecimal digits."""
    access_point: str | None
    """Radio address, lower case with colons. With ``LEFT`` before it, the device's stay ends at ``time`` if it is at
    that access point; None ends its stay wherever it is."""
    time: Micros

    @property
    def is_sighting(self) -> bool:
        """Whether the device is at the access point, and does not leave."""
        return self.access_point is not None and not self.access_point.startswith(LEFT)


class Columns(Sequence[Row]):
    """Rows of a batch, stored by column; as a sequence it yields ``Row`` objects, without logins."""

    __slots__ = ("devices", "logins", "places", "table", "times")

    def __init__(
        self, devices: Sequence[str], places: Sequence[int], table: Sequence[str | None], times: Sequence[Micros],
        logins: Sequence[str | None] | None = None,
    ) -> None:  # fmt: skip
        """The columns must have the same length; ``places`` are indices into ``table``.

        ``logins`` are pseudonyms, None for a row whose message bore none; without the column, the site counts devices.
        """
        self.devices, self.places, self.table, self.times, self.logins = devices, places, table, times, logins

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Columns:
        """Return rows by column; columns are returned unchanged."""
        if isinstance(rows, Columns):
            return rows
        if not rows:
            return cls((), (), (), ())
        devices, points, times = zip(*rows, strict=True)
        number = {point: place for place, point in enumerate(dict.fromkeys(points))}
        return cls(devices, [*map(number.__getitem__, points)], tuple(number), times)

    def with_logins(self, logins: Sequence[str | None]) -> Columns:
        """Return the rows with the login of each, a pseudonym or None."""
        return Columns(self.devices, self.places, self.table, self.times, logins)

    def where(self, keep: Iterable[object]) -> Columns:
        """Return the rows for which ``keep`` is true."""
        chosen = list(keep)
        devices, places, times = (
            compress(self.devices, chosen),
            compress(self.places, chosen),
            compress(self.times, chosen),
        )
        logins = None if self.logins is None else [*compress(self.logins, chosen)]
        return Columns([*devices], [*places], self.table, [*times], logins)

    def login(self, place: int) -> str | None:
        """Return the login of a row; None if it has none."""
        return None if self.logins is None else self.logins[place]

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, place: int | slice) -> Row | tuple[Row, ...]:
        if isinstance(place, slice):
            return tuple(self)[place]
        return Row(self.devices[place], self.table[self.places[place]], self.times[place])

    def __iter__(self) -> Iterator[Row]:
        return map(Row, self.devices, map(self.table.__getitem__, self.places), self.times)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Columns | tuple):
            return NotImplemented
        logins = other.logins if isinstance(other, Columns) else None
        return tuple(self) == tuple(other) and _listed(self.logins) == _listed(logins)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Columns(of {len(self)} rows)"


def _listed(logins: Sequence[str | None] | None) -> list[str | None] | None:
    return None if logins is None else list(logins)


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
    """A tuple, or columns; where the site counts logins, columns with the login of each row."""
    epoch: PrivacyDay | None = None
    """The privacy day for which its devices are named and in which all its rows lie; None where names are not by
    such days."""
    identity: str | None = None
    """What the logins of its rows follow from (``policy.sites.Site.login_terms``); None where its site counts
    devices."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A connector's statement that this source sends nothing older than ``watermark`` any more."""

    site: str
    source: str
    session: int
    watermark: Micros
    listened_since: Micros | None = None
    """Since when the connector has listened to this source without a break; None if it is unknown; then
    the heartbeat covers no time before ``watermark``."""


LARGEST_COUNT = 1_000_000
"""Largest count of a people counter at one place; a larger number is an error."""


@dataclass(frozen=True, slots=True)
class CountedWindow:
    """The counts of people counters at one tick; it closes all windows up to that tick. Restricted: true counts."""

    site: str
    source: str
    session: int
    window_end: Micros
    counts: tuple[tuple[str, int], ...]
    """Zone and count, at most ``LARGEST_COUNT``; a zone for which no counter reported is left out."""


Observed = ObservationBatch | Heartbeat
"""The messages of a source that reports devices."""
Message = Observed | CountedWindow
"""A message of the log."""


class LevelCounts(NamedTuple):
    """Counts of the nodes of each level, counted separately; restricted."""

    zone: tuple[int, ...]
    """One count a zone, in the order of the site's zone registry."""
    floor: tuple[int, ...]
    """One count a floor, sorted by name."""
    building: tuple[int, ...]
    """One count."""


@dataclass(frozen=True, slots=True)
class OccupancyWindow:
    """Distinct devices per declared zone at one tick; restricted: true counts."""

    site: str
    window_end: Micros
    counts: tuple[int, ...]
    """One count a zone, in the order of the site's zone registry."""
    coverage: Fraction
    """Share of the site's sources whose connectors, by their heartbeats, listened throughout the window."""
    privacy_day: PrivacyDay | None = None
    """The privacy day of the tick; None if the site has no privacy days."""
    bounded: tuple[int, ...] | None = None
    """Like ``counts``, but each device counts at no more than K ticks of its privacy day, by the data of that day
    alone; None if the site does not bound counts by ticks, or if the run of today's counters was interrupted."""
    by_visits: LevelCounts | None = None
    """The counts of each level, of devices that make a bounded number of visits per privacy day and level; None if no
    release counts changes, or if the run of today's counters was interrupted."""


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
    """A row or message that broke a rule; it names the rule and the place, never the content."""

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
    """The key of an attribute record."""

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
        """Return the id that a text represents; DataError if it is not an id."""
        name, _, attempt = text.partition("#")
        parts = name.split("/", 3)
        if len(parts) < 4 or not all(parts) or not (attempt or "1").isdecimal():
            raise DataError("release_id: must be site/release/audience and a window, or day/zone/attribute")
        site, release, audience, where = parts
        return cls(site, release, audience, where, int(attempt or 1))

    @property
    def attribute(self) -> ZoneDayAttribute:
        """The key of the attribute record that it names; DataError if it names a window."""
        parts = self.where.split("/")
        if len(parts) != 3:
            raise DataError("release_id: must end with day/zone/attribute")
        return ZoneDayAttribute(*parts)

    def __str__(self) -> str:
        """Return the text that records contain."""
        name = f"{self.site}/{self.release}/{self.audience}/{self.where}"
        return f"{name}#{self.attempt}" if self.attempt > 1 else name


WAITING = "waiting"
"""Reason for a denial: a release that restarts must wait until its earlier publication or payment has ended."""
PURE = "pure"
"""Noise in ``DayTerms`` for runs of which only the epsilon is known; each is charged when it begins."""


CHANGES = "changes"
"""Noise in ``DayTerms`` on the changes of a day's counts instead of on the counts of its windows."""


class DayTerms(NamedTuple):
    """The terms of a payment per device day: the noise of K windows of one device's privacy day."""

    day: PrivacyDay
    noise: str
    """``laplace`` or ``gaussian``; ``CHANGES``; ``PURE`` for decisions."""
    parameters: tuple[Fraction, ...]
    """For the noise of each measured level its epsilon per window, or its sigma squared; for changes the squared shift
    of a day, mu²; for decisions epsilon per run."""
    ticks: int
    """K: windows of a day at which one device counts at most; for changes how often its counts change in a day, at
    most; for decisions the number of runs charged now."""


@dataclass(frozen=True, slots=True)
class CountCharge:
    """The charge of one window of a count release to one audience; contains nothing that its readers do not know."""

    release: str
    audience: str
    mechanism: str
    epsilon: Fraction
    """ε of a count release, of which the ledger may charge a part (``CountRelease.charge``); the charge of a threshold
    stream. 0 when it was denied."""
    reason: str = ""
    """Why it was denied: ``budget``, ``w_budget``, ``waiting`` or ``factor``."""
    attempt: int = 1
    """Above 1: an operator-requested re-release, which has noise of its own."""
    w: int = 1
    """Consecutive windows that one epsilon pays for; 1 if each window is paid separately."""
    left: int | None = None
    """How many more releases the budget pays today; None without a budget."""
    terms: DayTerms | None = None
    """The terms, if ``epsilon`` pays once for a whole privacy day, however many of its windows are charged with it.
    None if each window, or any w windows, are paid separately."""


@dataclass(frozen=True, slots=True)
class AttributeCharge:
    """The charge of one attribute record to one audience, for the account; contains nothing that its readers do not
    know."""

    release: str
    audience: str
    epsilon: Fraction
    """What the ledger charges for the record; 0 if the attribute was not queried."""
    zone: str
    attribute: str
    day: str
    """Site-local date, ISO form."""
    span: tuple[Micros, Micros] = (0, 0)
    """First instant of the local day, and the first after it."""
    reason: str = ""
    """Why it was not queried: ``asked``, ``factor``, ``month`` or ``guard``."""
    shown: str | int | float | None = None
    """The value, if it was published."""
    version: str = ""
    """Policy version, if records of several versions are combined; empty for that of the account."""


Charge = CountCharge | AttributeCharge


@dataclass(frozen=True, slots=True)
class WindowCharges:
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
    """The window's end, so that the time of publication reveals nothing more."""
    id: str
    """Release id, ledger sequence or window: a second copy has the same id and the same bytes."""
