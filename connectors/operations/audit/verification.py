"""Audit of a ledger: chains, states, rollback marks, and published records.

* ``AuditBundle``: everything that an audit reads, from a store, a cluster or a file.
* Commitments: the HMAC, under its day's key, of what a release read. It can be checked as long as the day's key exists
  and the true counts are stored, which the policy decides by publishing them (restricted).
* Ended ledgers: which key an audit needs if a site's chain continues an earlier ledger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple

from connectors.keys import key_files
from connectors.storage.audit_chains import Heads, audit_of, heads_of, parse_entries
from connectors.storage.embedded.reader import (
    read_earlier,
    read_identity,
    read_policies,
    read_published,
    read_state_and_entries,
    read_topic,
)
from connectors.storage.embedded.rollback_mark import read_mark
from stream.accounting.audit import (
    Audit,
    ChainLink,
    Compared,
    LedgerStart,
    MissingRecords,
    by_release,
    compare_records,
    unreleased,
)
from stream.accounting.ledger import Entry
from stream.accounting.signed_heads import SignedHead
from stream.encryption import Vault
from stream.errors import AuditError, KeyFileError, UsageError
from stream.keys import Keys
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument
from stream.policy.sites import Site
from stream.records import JsonObject, OccupancyWindow
from stream.release.backfill import BackfillStage
from stream.release.validation import Policy, validate
from stream.schemas import OCCUPANCY, parse_record, parse_time


def compare_commitments(
    entries: Iterable[Entry], counted: Iterable[JsonObject], policies: Iterable[PolicyDocument], keys: Keys
) -> int:
    """Return how many commitments were compared; AuditError names the first one that does not match."""
    known = {policy.version: policy for policy in policies}
    windows = {(body["site"], body["window_end"]): body for body in counted}
    groups: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        policy = known.get(entry["policy_version"])
        if policy is not None and entry["attempt"] == 1 and _of_counts(policy, entry["release"]):
            groups[entry["site"], entry["window_end"], entry["policy_version"]].append(entry)
    compared = 0
    validated = {version: validate(known[version]) for version in {version for _, _, version in groups}}
    for (site, end, version), charged in groups.items():
        if (site, end) in windows:
            window = _window(known[version], site, windows[site, end])
            compared += _compare(charged, window, validated[version], keys)
    return compared


def _of_counts(policy: PolicyDocument, release: str) -> bool:
    return any(isinstance(each, CountRelease) and each.name == release for each in policy.release)


def _window(policy: PolicyDocument, site: str, record: JsonObject) -> OccupancyWindow | None:
    """Return the window that was counted; None if it was counted in other zones."""
    place = policy.site.get(site)
    if place is None or {zone.id for zone in place.zones} != set(record["counts"]):
        return None
    return counted_window(place, site, record)


def counted_window(place: Site, site: str, record: JsonObject) -> OccupancyWindow:
    """Return the window of a restricted record of true counts that is about the zones of this site."""
    end, bounded = parse_time(record["window_end"]), record.get("bounded")
    days = place.privacy_days
    return OccupancyWindow(
        site,
        end,
        tuple(record["counts"][zone.id] for zone in place.zones),
        Fraction(1),
        None if days is None else days.at(end),
        None if bounded is None else tuple(bounded[zone.id] for zone in place.zones),
    )


def _compare(entries: Iterable[Entry], window: OccupancyWindow | None, policy: Policy, keys: Keys) -> int:
    if window is None:
        return 0
    try:
        right = BackfillStage(policy, window.site, keys).commitments(window)
    except KeyFileError:
        return 0  # the day's key has been destroyed
    compared = 0
    for entry in entries:
        if entry["release_id"] in right:
            compared += 1
            if right[entry["release_id"]] != entry["commitment"]:
                where = f"audit: site {window.site}: entry {entry['sequence']}"
                msg = f"{where} must have a commitment to the stored counts"
                raise AuditError(msg)
    return compared


Entries = Sequence[Entry]


def keys_of(key_file: Path) -> key_files.FileKeys:
    """Return a file's keys; KeyFileError if they are absent, or were destroyed when they were retired."""
    try:
        return key_files.FileKeys(key_file)
    except KeyFileError as problem:
        if not key_files.is_retired(key_file):
            raise
        msg = f"{problem}; give the key of that ledger, or no key, which still checks chains and records"
        raise KeyFileError(msg) from None


def refuse_retired(ledger: str, earlier: Entries, entries: Entries, beginnings: Iterable[LedgerStart]) -> None:
    """Raise UsageError for the key of a ledger that all sites of this bundle have left.

    ``earlier`` are entries of ledgers that ended in another store, ``entries`` those to be verified.
    """
    last = _last(entries, beginnings)
    own = [entry["window_end"] for entry in (*earlier, *entries) if entry["ledger"] == ledger]
    if not own or ledger in last.values():
        return
    following = " or ".join(f"ledger {each}" for each in sorted(set(last.values()))) or "the ledger"
    msg = (
        f"--key-file: is that of ledger {ledger}, which has ended: its key was retired after the window of {max(own)}; "
        f"give the key of {following}, which continues its budgets, or verify without a key"
    )
    raise UsageError(msg)


def _last(entries: Entries, beginnings: Iterable[LedgerStart]) -> dict[str, str]:
    """Return the current ledger of each site's chain: that of its last entry, or one that begins after it."""
    last = {entry["site"]: (entry["sequence"], entry["ledger"]) for entry in entries}
    for beginning in beginnings:
        for site, start in beginning.sites.items():
            if start.link.sequence > last.get(site, (-1, ""))[0]:
                last[site] = start.link.sequence, beginning.ledger
    return {site: ledger for site, (_, ledger) in last.items()}


def refuse_heads(signed: Sequence[SignedHead], earlier: Entries) -> None:
    """Raise UsageError for signed heads of a ledger that ended in another store, from which this bundle continues."""
    known = {entry["hash"]: entry for entry in earlier}
    for head in reversed(signed):
        for link in head.sites.values():
            if link.head in known:
                entry = known[link.head]
                msg = (
                    f"--heads: head {head.number} of {head.time} is of ledger {entry['ledger']}, which has ended: its "
                    "key was retired; verify these heads with the store of that ledger; the heads of this store are in "
                    "another file"
                )
                raise UsageError(msg)


UNCHECKED = ("signatures", "head against the mark", "commitments")
"""What cannot be checked without key file and mark; commitments need the true counts too."""


def _nothing_counted(vault: Vault | None) -> list[bytes]:
    del vault
    return []


@dataclass(slots=True)
class AuditBundle:
    """What has been published, and what states and marks remember of it."""

    entries: Sequence[Entry]
    states: list[Heads]
    records: Sequence[JsonObject] | None = None
    """The published records, read after the entries; None if they are not compared."""
    policies: list[bytes] = field(default_factory=list)
    counted: Callable[[Vault | None], list[bytes]] = _nothing_counted
    """Returns the published and still stored records of true counts, none without their key (restricted)."""
    earlier: Sequence[Entry] = ()
    """Entries of ended ledgers, whose budgets and account this one continues."""
    beginnings: list[LedgerStart] = field(default_factory=list)
    """The genesis of each ledger that continues the chains of one whose key was retired."""
    states_read: bool = True
    """Whether the states could be read: without them, missing entries at the end cannot be detected."""

    def audit(
        self, mark: Heads | None = None, keys: Keys | None = None, signed: Sequence[SignedHead] = ()
    ) -> Audit:  # fmt: skip
        """Return the expected heads of the audit chains; AuditError if the genesis of the keys' ledger is forged."""
        audit_key, ledger = (None, "") if keys is None else (keys.audit, keys.ledger)
        return audit_of(self.states, mark, audit_key, signed, self.beginnings, ledger)


def store_bundle(folder: Path, *, records: bool = False) -> AuditBundle:
    """Return a store's audit bundle; ``records`` also reads the published records."""
    snapshot, entries = read_state_and_entries(folder)
    published = [parse_record(value) for value in read_published(folder)] if records else None
    return AuditBundle(
        list(parse_entries(entries)), [heads_of(snapshot)], published, policies=read_policies(folder),
        earlier=list(parse_entries(read_earlier(folder))),
        counted=partial(read_topic, folder, OCCUPANCY) if records else _nothing_counted,
    )  # fmt: skip


def merged_policies(stored: Iterable[bytes], others: Iterable[PolicyDocument]) -> list[PolicyDocument]:
    """Return the policies that were stored with the ledger, and other ones."""
    policies = [*map(PolicyDocument.from_document, stored), *others]
    return list({policy.version: policy for policy in reversed(policies)}.values())


def verified(bundle: AuditBundle) -> list[Entry]:
    """Return the entries once audit chains and states match, after those of ledgers that this one continues.

    AuditError names the first break.
    """
    bundle.audit().chains(bundle.entries)
    return [*bundle.earlier, *bundle.entries]


def compare(bundle: AuditBundle) -> Compared:
    """Compare charges with published records; AuditError for one that differs or was never charged."""
    never = unreleased(bundle.beginnings, bundle.entries)
    return (
        Compared(0, []) if bundle.records is None else compare_records(bundle.entries, bundle.records, unreleased=never)
    )


def _unchecked(bundle: AuditBundle, signed: bool, marked: bool, counted: bool) -> list[str]:
    """Return what could not be checked: without the key, without a mark (Kafka has none), without true counts."""
    checked = (signed, marked, signed and counted)
    found = [what for what, done in zip(UNCHECKED, checked, strict=True) if not done]
    found += ["published records"] if bundle.records is None else []
    return found if bundle.states_read else ["head against the state", *found]


class SignedCoverage(NamedTuple):
    """How far signed heads reach; later entries are not signed yet."""

    heads: int
    until: str
    """Time of the last head."""
    later_entries: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The findings of ``tacet audit verify``: those of all checks, or of the checks before the first break."""

    entries: int
    sites: Mapping[str, ChainLink] = field(default_factory=dict)
    """The head of each site's chain."""
    first_break: str | None = None
    records: int = 0
    """Number of published records that were compared with their charges."""
    missing: Sequence[MissingRecords] = ()
    commitments: int = 0
    """Number of commitments that were compared with true counts."""
    unchecked: Sequence[str] = UNCHECKED
    signed: SignedCoverage | None = None
    """None without signed heads."""

    @property
    def ok(self) -> bool:
        """Whether every check that was possible has passed."""
        return self.first_break is None

    def to_json(self) -> JsonObject:
        """Return the object that ``--json`` prints."""
        return {
            "ok": self.ok,
            "entries": self.entries,
            "sites": {site: link._asdict() for site, link in sorted(self.sites.items())},
            "first_break": self.first_break,
            "records": self.records,
            "missing": [each._asdict() for each in self.missing],
            "commitments": self.commitments,
            "unchecked": list(self.unchecked),
            **({} if self.signed is None else {"signed": self.signed._asdict()}),
        }


def _coverage(heads: Heads, last: SignedHead) -> SignedCoverage:
    later = sum(link.sequence - last.sites.get(site, ChainLink()).sequence for site, link in heads.items())
    return SignedCoverage(last.number + 1, last.time, later)


def verify(
    bundle: AuditBundle, store: Path | None, key_file: Path | None, signed: Sequence[SignedHead] = ()
) -> AuditReport:
    """Run every possible check, up to the first break.

    ``signed`` are heads whose signatures have been checked.
    """
    report = AuditReport(len(bundle.entries))
    refuse_heads(signed, bundle.earlier)
    try:
        mark, keys = None, None
        if key_file is not None:
            keys = keys_of(key_file)
            refuse_retired(keys.ledger, bundle.earlier, bundle.entries, bundle.beginnings)
            if store is not None:
                mark = {site: ChainLink(*chain) for site, chain in read_mark(key_file, read_identity(store)).items()}
        heads = bundle.audit(mark, keys, signed).chains(bundle.entries)
        counted = [] if keys is None else [parse_record(value) for value in bundle.counted(keys.vault)]
        unchecked = _unchecked(bundle, keys is not None, mark is not None, bool(counted))
        report = replace(report, sites=heads, unchecked=unchecked)
        compared = compare(bundle)
        report = replace(report, records=compared.records, missing=by_release(compared.missing))
        if keys is not None:
            known = merged_policies(bundle.policies, ())
            own = [entry for entry in bundle.entries if entry["ledger"] == keys.ledger]
            report = replace(report, commitments=compare_commitments(own, counted, known, keys))
        if signed:
            report = replace(report, signed=_coverage(heads, signed[-1]))
        if report.missing:
            raise AuditError(f"audit: {'; '.join(map(str, report.missing))}; 'tacet recover' lists the remedies")
    except AuditError as problem:
        return replace(report, first_break=str(problem))
    return report
