"""The state on which a cluster agrees, and the rules for changing it.

    cluster                   {id, partitions}          written once, before anything else
    engine                    {key, mechanisms,         written by the first worker: key and mechanism version;
                               versions, announced,     all versions so far, and one that is about to begin;
                               retired}                 ledgers of this cluster whose keys were retired
    ledger/LEDGER/PARTITION   {sites, mac}              where a ledger begins that follows a retired one
    policy/VERSION            {order, document}         every accepted policy; the highest order is the current one
    source/SITE/SOURCE        {ingest, session}         which ingest sends for a source
    ingest/ID                 {}                        heartbeat of an ingest; its time is the record's time

A process changes these records only after it has read all earlier ones and while it fences every other writer. The
heartbeat of an ingest is written by that ingest alone. The functions here are pure: they return the records to write,
or raise an error with the reason for the refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import orjson

from stream.accounting.audit import LedgerStart
from stream.errors import DataError, UsageError
from stream.policy.document import PolicyDocument
from stream.records import SECOND, JsonObject, Micros

Key = TypeVar("Key")
Value = TypeVar("Value")

BEAT: Micros = 5 * SECOND
"""Interval of an ingest's heartbeats."""
SILENT: Micros = 15 * SECOND
"""An ingest's sources are free after this time without a heartbeat."""

Records = Mapping[str, bytes | None]
"""The records to write, by key; None deletes a record."""
Pair = tuple[str, str]
"""(site, source)."""
KINDS = ("cluster", "engine", "ledger", "policy", "source", "ingest")
"""The kinds of records; other records are ignored."""
OTHER_KEY = "key: must be the one this cluster was begun with; another key would give other pseudonyms and other noise"


class Claim(NamedTuple):
    """The ingest that sends for a source."""

    ingest: str
    session: Micros


class Accepted(NamedTuple):
    """A policy that the cluster has accepted."""

    order: int
    document: bytes


@dataclass(slots=True)
class ClusterState:
    """The current state of all records."""

    id: str | None = None
    partitions: int | None = None
    """Partitions of every topic but the control topic."""
    key: str | None = None
    """Fingerprint of the key file."""
    mechanisms: str | None = None
    versions: tuple[str, ...] = ()
    """All mechanism versions under which the cluster has worked, the current one last."""
    announced: str | None = None
    """The mechanism version that is announced; no partition is opened under another one until it is admitted."""
    retired: tuple[str, ...] = ()
    """Ids of the ledgers whose keys were retired."""
    beginnings: dict[tuple[str, int], LedgerStart] = field(default_factory=dict)
    """(ledger, partition) -> start of the ledger, if it follows another one."""
    policies: dict[str, Accepted] = field(default_factory=dict)
    claims: dict[Pair, Claim] = field(default_factory=dict)
    beats: dict[str, Micros] = field(default_factory=dict)
    """Ingest -> time of its last heartbeat, by the broker's clock."""

    def apply(self, key: str, value: bytes | None, stamp: Micros) -> None:
        """Apply one record, in the order of the log; DataError if it lacks a field of its kind."""
        kind, _, name = key.partition("/")
        if kind not in KINDS:
            return
        try:
            self._apply(kind, name, _body(value), stamp)
        except (ValueError, KeyError, TypeError):
            msg = f"control record {kind}: must be a JSON object of version 1 with the fields of its kind"
            raise DataError(msg) from None

    def _apply(self, kind: str, name: str, body: JsonObject | None, stamp: Micros) -> None:
        match kind:
            case "cluster":
                self.id, self.partitions = (None, None) if body is None else (body["id"], body["partitions"])
            case "engine":
                self.key, self.mechanisms = (None, None) if body is None else (body["key"], body["mechanisms"])
                self.versions = () if body is None else tuple(body["versions"])
                self.announced = None if body is None else body.get("announced")
                self.retired = () if body is None else tuple(body.get("retired", ()))
            case "ledger":
                ledger, _, number = name.partition("/")
                start = None if body is None else LedgerStart.of_document(ledger, int(number), body)
                _apply(self.beginnings, (ledger, int(number)), start)
            case "policy":
                accepted = None if body is None else Accepted(body["order"], orjson.dumps(body["document"]))
                _apply(self.policies, name, accepted)
            case "source":
                site, _, source = name.partition("/")
                _apply(self.claims, (site, source), None if body is None else Claim(body["ingest"], body["session"]))
            case "ingest":
                _apply(self.beats, name, None if body is None else stamp)

    def current(self) -> str | None:
        """Return the version of the current policy; None before the first."""
        return max(self.policies, key=lambda version: self.policies[version].order, default=None)

    def silent_sources(self, now: Micros) -> dict[str, int]:
        """Return for each site how many sources have an ingest without heartbeats; ``now`` is the broker's clock."""
        alive = {ingest for ingest, beat in self.beats.items() if beat > now - SILENT}
        silent = [site for (site, _), claim in self.claims.items() if claim.ingest not in alive]
        return {site: silent.count(site) for site in dict.fromkeys(silent)}

    def accepted(self) -> list[PolicyDocument]:
        """Return all accepted policies, in the order of acceptance."""
        ordered = sorted(self.policies.values(), key=lambda accepted: accepted.order)
        return [PolicyDocument.from_document(accepted.document) for accepted in ordered]


def _body(value: bytes | None) -> JsonObject | None:
    if value is None:
        return None
    body = dict(orjson.loads(value))
    if body["v"] != 1:
        raise ValueError
    return body


def _apply(records: dict[Key, Value], key: Key, value: Value | None) -> None:
    if value is None:
        records.pop(key, None)
    else:
        records[key] = value


def record(**fields: object) -> bytes:
    """Return the value of a record with these fields."""
    return orjson.dumps({"v": 1} | fields)


# --- rules --------------------------------------------------------------------------------------------------


def identity_records(control: ClusterState, partitions: int, new_id: str) -> Records:
    """Create the cluster's identity, once; UsageError if it has another number of partitions."""
    if control.partitions is None:
        return {"cluster": record(id=new_id, partitions=partitions)}
    if control.partitions != partitions:
        msg = f"partitions: must be {control.partitions}, as this cluster was begun with, got {partitions}"
        raise UsageError(msg)
    return {}


def refuse_other_counts(control: ClusterState, counts: Mapping[str, int]) -> None:
    """Raise UsageError if a topic does not have the cluster's number of partitions."""
    for topic, count in sorted(counts.items()):
        if control.partitions is not None and count != control.partitions:
            msg = (
                f"topic {topic}: must have {control.partitions} partitions like the whole cluster, has {count}; sites "
                "would lie on other partitions than their state and ledger: 'tacet recover --kafka' lists the remedies"
            )
            raise UsageError(msg)


def admit(
    control: ClusterState, policy: PolicyDocument, key: str, mechanisms: str, *, accept: bool, again: int | None = None
) -> Records:
    """Admit a worker; the key and policy of the first one become the cluster's.

    A policy is accepted once. A policy that another has replaced begins again only if ``again`` is the order of the
    current policy, which no later start can use again. This prevents two policies from replacing each other endlessly.

    Raises:
        UsageError: another key or mechanism version, or another policy that was not accepted, or was replaced.
    """
    if control.key not in (None, key):
        raise UsageError(OTHER_KEY)
    records: dict[str, bytes | None] = {}
    if control.mechanisms not in (None, mechanisms):
        _refuse_unannounced(control, mechanisms, accept=accept)
    if control.mechanisms != mechanisms or control.announced is not None:
        versions = [*(each for each in control.versions if each != mechanisms), mechanisms]
        records["engine"] = engine_record(control, key, versions)
    current = control.current()
    if current is not None and current != policy.version and not accept:
        msg = (
            f"policy: must be version {current}, under which this cluster works, got {policy.version}; "
            "--accept-policy lets the new one begin with the next window"
        )
        raise UsageError(msg)
    if current != policy.version:
        order = 0 if current is None else control.policies[current].order
        if policy.version in control.policies and again != order:
            msg = (
                f"policy: must be version {current}, accepted as number {order} in place of the one given, got "
                f"{policy.version}; --accept-policy --again {order} lets that begin once more"
            )
            raise UsageError(msg)
        records[f"policy/{policy.version}"] = record(order=order + 1, document=orjson.loads(policy.document()))
    return records


def engine_record(control: ClusterState, key: str | None, versions: Sequence[str], **more: object) -> bytes:
    """Return the ``engine`` record for these versions; it always keeps the retired ledgers."""
    retired = {"retired": control.retired} if control.retired else {}
    return record(key=key, mechanisms=versions[-1], versions=versions, **(retired | more))


def _refuse_unannounced(control: ClusterState, mechanisms: str, *, accept: bool) -> None:
    if not accept:
        msg = (
            f"mechanism version: must be {control.mechanisms}, under which this cluster works, got {mechanisms}; "
            "--accept-policy lets it begin with the next window"
        )
        raise UsageError(msg)
    if control.announced != mechanisms:
        msg = (
            f"mechanism version: must be {control.mechanisms}, under which another worker has started meanwhile, got "
            f"{mechanisms}; stop all workers of that version first"
        )
        raise UsageError(msg)


def announce(control: ClusterState, key: str, mechanisms: str) -> Records:
    """Announce that a mechanism version is about to begin; workers of another version then give partitions back.

    Windows that began under the former version can be finished only by that version. The announcement ends with
    ``admit`` of either version, or with ``withdraw``.
    """
    if control.key != key or control.mechanisms in (None, mechanisms):
        return {}
    return {"engine": engine_record(control, key, control.versions, announced=mechanisms)}


def withdraw(control: ClusterState, mechanisms: str) -> Records:
    """Withdraw an announcement."""
    if control.announced != mechanisms:
        return {}
    return {"engine": engine_record(control, control.key, control.versions)}


def refuse_superseded(control: ClusterState, policy: PolicyDocument, mechanisms: str) -> None:
    """Raise UsageError if another policy or mechanism version was accepted or announced since a worker began."""
    present = control.announced or control.mechanisms
    if present not in (None, mechanisms):
        msg = f"mechanism version: must be {present}, which the cluster has accepted in the meantime, got {mechanisms}"
        raise UsageError(msg)
    current = control.current()
    if current is not None and current != policy.version:
        msg = f"policy: must be version {current}, which the cluster has accepted in the meantime, got {policy.version}"
        raise UsageError(msg)


class SourceTakenError(UsageError):
    """Another ingest sends for a source: it is alive, or was until a moment ago."""


def claim(
    control: ClusterState, ingest: str, pairs: Iterable[Pair], session: Micros, *, now: Micros, take_over: bool,
    fixed: bool = False,
) -> tuple[Micros, Records]:  # fmt: skip
    """Claim sources for an ingest; return its session, which is later than any before, and the records of the claims.

    ``now`` is the broker's clock. A ``fixed`` session is that of a recording and may be repeated.

    Raises:
        SourceTakenError: another ingest sends for one of the sources and may not be replaced.
        UsageError: a fixed session is too old.
    """
    pairs = list(pairs)
    for site, source in pairs:
        claimed = control.claims.get((site, source))
        other = None if claimed is None or claimed.ingest == ingest else claimed.ingest
        alive = other is not None and control.beats.get(other, -SILENT) > now - SILENT
        if alive and not take_over:
            msg = (
                f"source {source} of site {site}: another ingest sends for it; stop that one, or let this one take "
                "its place with --take-over"
            )
            raise SourceTakenError(msg)
    newest = max((control.claims[pair].session for pair in pairs if pair in control.claims), default=-1)
    if fixed and session < newest:
        msg = "recording: must not begin before what its sources sent last; all of it would be dropped"
        raise UsageError(msg)
    session = session if fixed else max(session, newest + 1)
    return session, {f"source/{site}/{source}": record(ingest=ingest, session=session) for site, source in pairs}


def displaced(control: ClusterState, ingest: str, pairs: Iterable[Pair]) -> Pair | None:
    """Return a source that another ingest has claimed since; None if all of them still belong to this ingest."""
    return next((pair for pair in pairs if pair in control.claims and control.claims[pair].ingest != ingest), None)


def sign_of_life(ingest: str, *, alive: bool = True) -> Records:
    """Return the record that an ingest writes every ``BEAT``, or at its end."""
    return {f"ingest/{ingest}": record() if alive else None}
