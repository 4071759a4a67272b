"""The state of the release stage, and its transfer between policies.

**Carried publications.** ``sample`` and ``ba`` carry a publication from window to window. It belongs to a mechanism,
its audiences, zones, w, epsilon and tick, under any release name (``PublicationKey``). Under a policy in which
all of these are equal, the publication continues. Otherwise it ends, and releases that restart at the site publish
nothing (``waiting``) until the earlier publications are w windows old, where w is the largest of those that end and
those that start. No w consecutive windows therefore contain charges of both.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import astuple, dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from stream.accounting.charge_history import ChargeHistory, Span
from stream.accounting.ledger import LedgerState
from stream.accounting.state_json import decode_history, decode_ledger, encode_history, encode_ledger
from stream.encryption import join_parts, split_parts
from stream.local_time import busiest_month, within_month
from stream.mechanisms.changes.mechanism import DayChanges
from stream.mechanisms.filter.history import BufferedWindows, Days
from stream.mechanisms.filter.learning import LearningState
from stream.mechanisms.grouper import GrouperState
from stream.mechanisms.heatmap import HeatMapState
from stream.mechanisms.hierarchy import HierarchyState
from stream.mechanisms.noisy_alarm import Alarms
from stream.mechanisms.queries import QueryHistory
from stream.mechanisms.sparse_vector import Runs
from stream.mechanisms.wevent import Publication
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument, audiences_of
from stream.policy.fields import decimal_string
from stream.records import Micros, PrivacyDay
from stream.release.forecasts import ForecastState
from stream.release.paid_days import PaidDays, decode_paid, encode_paid
from stream.release.people import FeedState

# Queried days.
#
# All attributes of a zone's local day are queried together, once, for all audiences: the permanent coins belong to the
# one reading for which they were tossed. A day that shares an instant with a queried day is not queried again, whatever
# the release name, rule, policy or time zone of the first query. The live state remembers the days of the last month;
# older ones are read from the ledger.


class LocalDay(NamedTuple):
    """A site-local day in one policy's time zone."""

    local_day: str
    """ISO date."""
    start: Micros
    end: Micros
    """First instant after it."""

    @property
    def span(self) -> Span:
        """Its instants."""
        return self.start, self.end


class ZoneQuery(NamedTuple):
    """The query of one zone's day."""

    attributes: frozenset[str]
    exponent: float
    """ln of the largest factor that the attributes reach by themselves on one of them."""


@dataclass(slots=True)
class QueriedDays:
    """The queried days of zones, of the last month or of all time."""

    days: dict[LocalDay, dict[str, ZoneQuery]] = field(default_factory=dict)

    def note(self, day: LocalDay, zone: str, attribute: str, exponent: float) -> None:
        """Remember that an attribute was queried, whether its value was shown or withheld."""
        self._add(day, zone, ZoneQuery(frozenset([attribute]), exponent))

    def _add(self, day: LocalDay, zone: str, more: ZoneQuery) -> None:
        zones = self.days.setdefault(day, {})
        before = zones.get(zone, more)
        zones[zone] = ZoneQuery(before.attributes | more.attributes, max(before.exponent, more.exponent))

    def zones_of(self, day: LocalDay) -> frozenset[str]:
        """Return the zones that were queried for a day that shares an instant with this one."""
        overlapping = (z for other, z in self.days.items() if other.start < day.end and day.start < other.end)
        return frozenset(zone for zones in overlapping for zone in zones)

    def at(self, instant: Micros) -> dict[LocalDay, dict[str, ZoneQuery]]:
        """Return the queries of the days that contain an instant."""
        return {day: zones for day, zones in self.days.items() if day.start <= instant < day.end}

    def in_month(self, now: str, zones: Container[str], attributes: Container[str]) -> int:
        """Return on how many other days of one month with ``now``, at most, one of these was queried."""
        days = {
            day.local_day
            for day, queries in self.days.items()
            for zone, query in queries.items()
            if zone in zones and any(name in attributes for name in query.attributes)
        }
        return busiest_month(sorted(days - {now}), now)

    def rename(self, now: Mapping[str, Iterable[str]]) -> None:
        """Copy the queries of each zone to every name that the zone has now (``zones_now``)."""
        before, self.days = self.days, {}
        for day, zones in before.items():
            for zone, query in zones.items():
                for name in now.get(zone, (zone,)):
                    self._add(day, name, query)

    def forget(self, now: str) -> None:
        """Drop days that share no month with ``now`` or with a later day."""
        self.days = {day: zones for day, zones in self.days.items() if within_month(day.local_day, now)}


def encode_queried_days(state: QueriedDays) -> list[Any]:
    """Return the JSON form."""
    return [
        [*day, {zone: [sorted(query.attributes), query.exponent] for zone, query in sorted(zones.items())}]
        for day, zones in sorted(state.days.items())
    ]


def decode_queried_days(data: Iterable[Any]) -> QueriedDays:
    """Return the state of its JSON form."""
    days = {
        LocalDay(*day): {zone: ZoneQuery(frozenset(names), exponent) for zone, (names, exponent) in zones.items()}
        for *day, zones in data
    }
    return QueriedDays(days)


# Carried publications.


@dataclass(frozen=True, slots=True)
class PublicationKey:
    """Identifies a carried publication."""

    mechanism: str
    audiences: tuple[str, ...]
    zones: tuple[str, ...]
    """In registry order."""
    states: tuple[tuple[str, tuple[str, ...]], ...]
    """Named sets of zones, if these are counted."""
    epsilon: str
    w: int
    tick_length: Micros

    def document(self) -> list[Any]:
        """Return the JSON form."""
        return list(astuple(self))

    @classmethod
    def of_document(cls, document: list[Any]) -> PublicationKey:
        """Return the key from its JSON form."""
        mechanism, audiences, zones, states, *rest = document
        return cls(mechanism, tuple(audiences), tuple(zones), tuple((name, tuple(of)) for name, of in states), *rest)


def publication_key(policy: PolicyDocument, release: CountRelease, site: str) -> PublicationKey:
    """Return the key of the publications of a w-event release at a site."""
    [epsilon] = set(release.epsilon.values())
    return PublicationKey(
        release.mechanism,
        audiences_of(release),
        tuple(zone.id for zone in policy.zones_of(release, site)),
        tuple(release.states.items()),
        decimal_string(epsilon),
        release.windows_paid,
        policy.site[site].tick,
    )


def continued(old: Mapping[str, PublicationKey], new: Mapping[str, PublicationKey]) -> dict[str, str]:
    """Return, for each release that continues a publication, the name under which it was carried.

    Args:
        old: release -> key, of the carried publications.
        new: release -> key, of the releases that may continue one.
    """
    found = {name: name for name, key in new.items() if old.get(name) == key}
    free = [name for name in old if name not in found]
    for name, key in new.items():
        match = next((other for other in free if old[other] == key), None)
        if name not in found and match is not None:
            found[name] = match
            free.remove(match)
    return found


def blocked_until(
    through: Micros, ended: Mapping[str, PublicationKey], started: Mapping[str, PublicationKey]
) -> Micros:
    """Return the end of the last window in which restarting releases publish nothing.

    Args:
        through: end of the latest released window.
        ended: publications that no release continues.
        started: releases without a publication to continue.
    """
    keys = [*ended.values(), *started.values()]
    if not keys:
        return through
    return through + (max(key.w for key in keys) - 1) * max(key.tick_length for key in keys)


CountState = GrouperState | HierarchyState | LearningState | tuple[LearningState, ...] | Publication | None
"""State of a count mechanism; None for plain noise."""
QueryState = QueryHistory | HeatMapState | Alarms
"""State of a query, or of decisions on released counts."""
RevisionState = BufferedWindows | Days
"""State of the revision of an hour's or a day's windows."""
OperatorState = CountState | QueryState | RevisionState | FeedState | ForecastState | DayChanges


@dataclass(slots=True)
class ReleaseState:
    """The ledger, and the states of the operators that turn counts into values and decisions (restricted)."""

    ledger: LedgerState = field(default_factory=LedgerState)
    operator_states: dict[str, OperatorState] = field(default_factory=dict)
    """State name, such as ``release/epsilon`` -> state of a mechanism, a query, a revision, a stream of people, or a
    forecast."""
    runs: dict[str, Runs] = field(default_factory=dict)
    """State name -> the sparse-vector runs of a threshold stream."""
    key_day: int = -1
    """Key day of the latest window."""
    queried_days: QueriedDays = field(default_factory=QueriedDays)
    """Queried days of zones, of the last month."""
    closed: str = ""
    """Latest local day that was released; a date that recurs by a change of time zone is skipped."""
    charged: ChargeHistory = field(default_factory=ChargeHistory)
    """Charges of the count releases of the latest days."""
    released_until: Micros = -1
    """End of the latest window: windows up to it were charged and are not released again."""
    coverage: dict[str, Fraction] = field(default_factory=dict)
    """The current site-local day -> minimum coverage of its windows so far."""
    publication_keys: dict[str, PublicationKey] = field(default_factory=dict)
    """Release -> key of the publication that it carries."""
    blocked_until: Micros = -1
    """End of the last window in which no release that carries publications may start."""
    paid_days: PaidDays = field(default_factory=PaidDays)
    """The privacy days that were paid as a whole."""
    change_days: dict[str, PrivacyDay] = field(default_factory=dict)
    """Release that counts changes -> the privacy day of its current run, whose sums ``operator_states`` contains."""


def encode_release_state(state: ReleaseState, operators: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a state; ``operators`` are the encoded states of operators and runs, by name."""
    head = {"ledger": encode_ledger(state.ledger), "day": state.key_day, "through": state.released_until}
    head |= {"closed": state.closed}
    coverage = {day: str(least) for day, least in state.coverage.items()}
    carried = {name: key.document() for name, key in sorted(state.publication_keys.items())}
    head |= {"asked": encode_queried_days(state.queried_days), "charged": encode_history(state.charged)}
    head |= {"coverage": coverage, "carried": carried, "waits": state.blocked_until}
    head |= {"paid": encode_paid(state.paid_days)} if state.paid_days.terms else {}
    head |= {"changes": sorted((name, *day) for name, day in state.change_days.items())} if state.change_days else {}
    return join_parts(head, operators)


def decode_release_state(data: bytes) -> tuple[ReleaseState, dict[str, bytes]]:
    """Return the state without operator states and runs, and these, encoded, by name."""
    head, parts = split_parts(data)
    coverage = {day: Fraction(least) for day, least in head["coverage"].items()}
    ledger = decode_ledger(head["ledger"])
    queried, charged = decode_queried_days(head["asked"]), decode_history(head["charged"])
    carried = {name: PublicationKey.of_document(document) for name, document in head["carried"].items()}
    places = (head["day"], queried, head["closed"], charged, head["through"], coverage)
    paid = decode_paid(head.get("paid", {}))
    changes = {name: PrivacyDay(*day) for name, *day in head.get("changes", [])}
    return ReleaseState(ledger, {}, {}, *places, carried, head["waits"], paid, changes), parts
