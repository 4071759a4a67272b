"""The state of the release stage, its encoding, and the transfer of carried publications between policies.

**Carried publications.** ``sample`` and ``ba`` carry a publication from window to window. It belongs to a mechanism,
its audiences, zones, w, epsilon and tick, whatever the release name (``PublicationKey``). Under a policy in which
all of these are equal, the publication continues. Otherwise it ends, and releases that restart at the site publish
nothing (``waiting``) until the earlier publications lie w windows back, where w is the largest of those that end and
those that start. So no w consecutive windows contain charges of both.

**Older versions.** ``upgraded_stages`` converts states of version 1, which are then adopted as under an accepted
change of policy. Missing facts are filled in so that no guarantee becomes weaker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from fractions import Fraction
from typing import Any

import orjson

from stream.accounting.charges import ChargeHistory, decode_charged, encode_charged
from stream.accounting.day_charges import DayLines, encode_lines
from stream.accounting.ledger import LedgerState, decode_ledger, encode_ledger
from stream.accounting.noise_multisets import encode_tally, pure
from stream.encryption import join_parts, split_parts
from stream.mechanisms.filter.history import Days, StoredWindow
from stream.mechanisms.filter.learning import NightlyState
from stream.mechanisms.grouper import GrouperState
from stream.mechanisms.heatmap import Past
from stream.mechanisms.hierarchy import HierarchyState
from stream.mechanisms.queries import QueryHistory
from stream.mechanisms.sparse_vector import Alarms, Runs
from stream.mechanisms.wevent import Publication, is_publication
from stream.policy.counts import LONGEST_W, CountRelease
from stream.policy.document import PolicyDocument, audiences_of
from stream.policy.fields import decimal_string
from stream.records import DAY, HOUR, Micros
from stream.release.prices import PaidDays, decode_paid, encode_paid
from stream.release.queried_days import QueriedDays, all_zones_asked, decode_asked, encode_asked

# Carried publications.


@dataclass(frozen=True, slots=True)
class PublicationKey:
    """Identifies what a carried publication belongs to."""

    mechanism: str
    audiences: tuple[str, ...]
    zones: tuple[str, ...]
    """In registry order."""
    states: tuple[tuple[str, tuple[str, ...]], ...]
    """Named sets of zones, where these are counted."""
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
        return cls(mechanism, tuple(audiences), tuple(zones), tuple((n, tuple(held)) for n, held in states), *rest)


def owner_of(policy: PolicyDocument, release: CountRelease, site: str) -> PublicationKey:
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
    found = {name: name for name, owner in new.items() if old.get(name) == owner}
    free = [name for name in old if name not in found]
    for name, owner in new.items():
        match = next((held for held in free if old[held] == owner), None)
        if name not in found and match is not None:
            found[name] = match
            free.remove(match)
    return found


def waiting_until(through: Micros, ended: Mapping[str, PublicationKey], begun: Mapping[str, PublicationKey]) -> Micros:
    """Return the end of the last window in which restarting releases publish nothing.

    Args:
        through: end of the latest released window.
        ended: publications that no release continues.
        begun: releases without a publication to continue.
    """
    owners = [*ended.values(), *begun.values()]
    if not owners:
        return through
    return through + (max(owner.w for owner in owners) - 1) * max(owner.tick_length for owner in owners)


CountState = GrouperState | HierarchyState | NightlyState | tuple[NightlyState, ...] | Publication | None
"""State of a count mechanism; None for plain noise."""
QueryState = QueryHistory | Past | Alarms
"""State of a query, or of decisions on released counts."""
RevisionState = StoredWindow | Days
"""State of the revision of an hour's or a day's windows."""
OperatorState = CountState | QueryState | RevisionState


@dataclass(slots=True)
class ReleaseState:
    """The ledger, and the states of the operators that turn counts into values and decisions (restricted)."""

    ledger: LedgerState = field(default_factory=LedgerState)
    operator_states: dict[str, OperatorState] = field(default_factory=dict)
    """State name, such as ``release/epsilon`` -> state of a mechanism, a query or a revision."""
    runs: dict[str, Runs] = field(default_factory=dict)
    """State name -> the sparse-vector runs of a threshold stream."""
    key_day: int = -1
    """Key day of the latest window."""
    asked: QueriedDays = field(default_factory=QueriedDays)
    """Queried days of zones, of the last month."""
    closed: str = ""
    """Latest local day that was released; a date that recurs by a change of time zone is skipped."""
    charged: ChargeHistory = field(default_factory=ChargeHistory)
    """Charges of the count releases of the latest days."""
    through: Micros = -1
    """End of the latest window: windows up to it were charged and are not released again."""
    coverage: dict[str, Fraction] = field(default_factory=dict)
    """The current site-local day -> minimum coverage of its windows so far."""
    carried: dict[str, PublicationKey] = field(default_factory=dict)
    """Release -> key of the publication that it carries."""
    waits: Micros = -1
    """End of the last window in which no release that carries publications may start."""
    paid: PaidDays = field(default_factory=PaidDays)
    """The privacy days that were paid as a whole."""


def encode_release_state(state: ReleaseState, operators: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a state; ``operators`` are the encoded states of operators and runs, by name."""
    head = {"ledger": encode_ledger(state.ledger), "day": state.key_day, "through": state.through}
    head |= {"closed": state.closed}
    coverage = {day: str(least) for day, least in state.coverage.items()}
    carried = {name: owner.document() for name, owner in sorted(state.carried.items())}
    head |= {"asked": encode_asked(state.asked), "charged": encode_charged(state.charged)}
    head |= {"coverage": coverage, "carried": carried, "waits": state.waits}
    return join_parts(head | ({"paid": encode_paid(state.paid)} if state.paid.terms else {}), operators)


def decode_release_state(data: bytes) -> tuple[ReleaseState, dict[str, bytes]]:
    """Return the state without operator states and runs, and these, encoded, by name."""
    head, parts = split_parts(data)
    coverage = {day: Fraction(least) for day, least in head["coverage"].items()}
    ledger = decode_ledger(head["ledger"])
    asked, charged = decode_asked(head["asked"]), decode_charged(head["charged"])
    carried = {name: PublicationKey.of_document(document) for name, document in head["carried"].items()}
    places = (head["day"], asked, head["closed"], charged, head["through"], coverage)
    paid = decode_paid(head.get("paid", {}))
    return ReleaseState(ledger, {}, {}, *places, carried, head["waits"], paid), parts


# Upgrade of states from version 1, run once by ``tacet store upgrade``.


def upgraded_stages(stages: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the states of a site's stages, by name, upgraded from version 1."""
    return {name: _FORMS.get(name, _as_it_is)(data) for name, data in stages.items()}


def _as_it_is(data: bytes) -> bytes:
    return data


def _account(data: bytes) -> bytes:
    """Let a device's day know its edges, and a habit its attribute, but not its zones: it may be of any."""
    body = orjson.loads(data) | {"lines": encode_lines(DayLines()), "days": []}
    body["sums"] = {reader: _sums(*fields) for reader, fields in body["sums"].items()}
    body["tallies"] = {
        reader: [_pure(total), [[*window, _pure(cost)] for *window, cost in latest]]
        for reader, (total, _, latest) in body["sums"].items()
    }
    body["runs"] = {name: _run(*fields) for name, fields in body["runs"].items()}
    body["habits"] = [
        [[], attribute, reader, *fields]
        for name, fields in body["habits"].items()
        for _, attribute, reader in (name.split("/"),)
    ]
    return orjson.dumps(body | {"charged": encode_charged(ChargeHistory())})


def _sums(key_day: int, today: str, total: str, largest: str, recent: list[tuple[int, str]]) -> list[Any]:
    """Count every window of the day so far twice, though only the first ones do, and the one that ended at midnight."""
    so_far = [key_day * DAY, 0, 1, DAY, str(Fraction(today) + Fraction(largest))]
    return [total, largest, [so_far, *([end, 0, 1, 0, cost] for end, cost in recent)]]


def _pure(cost: str) -> dict[str, int]:
    return encode_tally(pure(Fraction(cost)))


def _run(epsilon: str, w: int, key_day: int, today: int, total: int) -> list[Any]:
    return [epsilon, w, total, 0, [[key_day * DAY, 0, today + 1, DAY, 0]]]


def _release(data: bytes) -> bytes:
    """End publications without a key, and block attribute queries of a day that may have been queried already.

    Releases that carry publications wait for the largest w. Charges of counts were not stored. They matter for the
    current local day, which is not queried, since an adopted day is observed only in part.
    """
    head, parts = split_parts(data)
    recent = head["ledger"]["recent"]
    head["ledger"]["recent"] = {name: [[end, 0, 1, nano] for end, nano in rows] for name, rows in recent.items()}
    carries = any(is_publication(part) for part in parts.values())
    waits = head["through"] + LONGEST_W * HOUR if carries else -1
    asked = all_zones_asked(day for days in head["asked"].values() for day in days)
    new = {"asked": encode_asked(asked), "charged": encode_charged(ChargeHistory()), "closed": ""}
    return join_parts(head | new | {"carried": {}, "waits": waits}, parts)


_FORMS: Mapping[str, Callable[[bytes], bytes]] = {"account": _account, "release": _release}
"""Stage -> function that upgrades its state."""
