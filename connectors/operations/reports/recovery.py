"""What keeps a run from going on, and the ways out of it: each with its price, and none that forks an audit chain.

An audit chain forks when entries of one number are written twice with different content: whoever has seen the first
ones can then be told something else. So nothing here takes a step back on its own; where entries are gone for
good, the way out is a new ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson

from connectors import keyfile
from connectors.audit_chains import audit_of, heads_of
from connectors.embedded.readings import (
    contradicted,
    outboxes,
    read_identity,
    read_outbox,
    read_policies,
    read_snapshot,
    read_upgrade,
)
from connectors.embedded.rollback_mark import DamagedMarkError, mark_path, read_marks, read_versions
from connectors.embedded.sqlite_file import StoreError
from connectors.intake.clock import CLOCK_STEP
from connectors.key_document import NO_DATA_KEY
from connectors.private_folder import refuse_open
from connectors.reports.books import store_books
from connectors.reports.ways import COPY_OF_STORE, KEY_COPY, NEW_LEDGER, SAME_OBSERVATIONS, Finding, Way
from stream.accounting.audit import Link
from stream.errors import AuditError, KeyFileError, UsageError
from stream.keys import key_day_of
from stream.policy.document import Policy
from stream.records import Micros
from stream.release.stage import MECHANISMS
from stream.runners.site_form import standing_form, standing_of
from stream.runners.snapshot import BEFORE, is_known, made_by, open_snapshot
from stream.schemas import rfc3339


def store_findings(
    folder: Path, key_file: Path | None, policy: Policy | None, now: Micros | None = None
) -> list[Finding]:
    """Return what keeps a run on an embedded store from going on, as far as store, key, policy and clock show."""
    found = [] if key_file is None else list(_unusable(key_file))
    known = None if found else key_file
    try:
        entries = 0 if known is None else _entries_marked(known)
        if not (folder / "store.sqlite").exists() or (entries and read_snapshot(folder)[0] is None):
            return [*found, _lost(folder, known, entries)]
        found += [*_of_folder(folder), *_broken(folder), *_of_state(folder, policy), *_of_clock(folder, now)]
        if known is not None:
            found += [*_of_key(folder, known), *_without_data_key(known)]
    except StoreError as problem:
        return [*found, Finding(str(problem), (COPY_OF_STORE, NEW_LEDGER)), *_of_outboxes(folder)]
    damaged = list(_of_outboxes(folder))
    return [*found, *(damaged or _other_outboxes(folder))]


def _unusable(key_file: Path) -> Iterator[Finding]:
    """A key that cannot be read, or whose mark cannot."""
    try:
        keyfile.FileKeys(key_file)
    except KeyFileError as problem:
        yield Finding(str(problem), (KEY_COPY, NEW_LEDGER))
        return
    try:
        read_marks(key_file)
    except DamagedMarkError:
        yield _without_mark(key_file, "is damaged")


def _without_data_key(key_file: Path) -> Iterator[Finding]:
    if keyfile.FileKeys(key_file).data is None:
        other = "with --from where another file of this key has one"
        yield Finding(f"{key_file}: {NO_DATA_KEY}", (Way(f"'tacet key upgrade {key_file}', {other}", "none"),))


def _entries_marked(key_file: Path) -> int:
    """Return how many ledger entries the mark of a production key knows of; a laboratory's serves many stores."""
    if keyfile.is_laboratory(key_file):
        return 0
    return sum(link[0] for sites in read_marks(key_file).values() for link in sites.values())


def _lost(folder: Path, key_file: Path | None, entries: int) -> Finding:
    released = f"; the mark beside the key knows of {entries} ledger entries" if entries else ""
    ways = (COPY_OF_STORE, NEW_LEDGER) if entries or key_file is None else (Way("'tacet run' makes it", "none"),)
    return Finding(f"{folder}: there is no store{released}", ways)


def _of_folder(folder: Path) -> Iterator[Finding]:
    for each in (folder, folder / "private"):
        try:
            refuse_open(each)
        except UsageError as problem:
            yield Finding(str(problem), (Way(f"'chmod 700 {each}'", "none"),))


def _of_outboxes(folder: Path) -> Iterator[Finding]:
    """Outboxes that cannot be read."""
    for audience, path in outboxes(folder):
        try:
            read_outbox(folder, audience, 0)
        except StoreError as problem:
            yield _wrong_outbox(audience, path, str(problem))


def _other_outboxes(folder: Path) -> Iterator[Finding]:
    """Outboxes of another store: what is in them would contradict what this one gives."""
    for audience, release_id in contradicted(folder).items():
        path = dict(outboxes(folder))[audience]
        yield _wrong_outbox(audience, path, f"{path}: holds another release {release_id} than the store")


def _wrong_outbox(audience: str, path: Path, what: str) -> Finding:
    return Finding(
        what,
        (
            Way(f"put {path} back from a copy", f"what came after the copy is not given to {audience} again"),
            Way(
                f"move {path} away; 'tacet run' makes a new one",
                f"what it held is not given to {audience} again, and 'tacet audit verify' goes on to miss it",
            ),
        ),
    )


def _broken(folder: Path) -> Iterator[Finding]:
    try:
        books = store_books(folder)
        books.audit().chains(books.entries)
    except AuditError as problem:
        yield Finding(str(problem), (COPY_OF_STORE, NEW_LEDGER))


def _of_state(folder: Path, policy: Policy | None) -> Iterator[Finding]:
    snapshot, _ = read_snapshot(folder)
    if snapshot is None:
        return
    head, sites = open_snapshot(snapshot)
    for site, stages in sorted(sites.items()):
        if standing_of(stages).shut:
            yield _closed(site)
    if not is_known(head["mechanisms"]):
        yield _made_by_another(folder, head["mechanisms"])
    elif head["mechanisms"] != MECHANISMS and read_upgrade(folder) != MECHANISMS:
        yield Finding(
            f"{folder}: was made by mechanism version {head['mechanisms']}, this is {MECHANISMS}",
            (
                Way(
                    "'tacet store upgrade --store'",
                    "groups, filters and the local day at hand begin anew; that day's attributes are not published",
                ),
            ),
        )
    if policy is not None and head["policy"] != policy.version:
        kept = " (kept in the store)" if head["policy"] in _kept_versions(folder) else ""
        yield Finding(
            f"{folder}: was made under policy {head['policy']}{kept}, the one given is {policy.version}",
            (
                Way("'tacet run' with the policy of that version", "none"),
                Way(
                    "'tacet run --accept-policy'",
                    "groups, filters and the local day at hand begin anew; budgets and account go on",
                ),
            ),
        )


def _made_by_another(folder: Path, version: str) -> Finding:
    return Finding(
        f"{folder}: was made by mechanism version {version}, and this is {MECHANISMS}, which goes on from "
        f"{', '.join(BEFORE)} and its own only",
        (
            Way(
                f"'tacet run' of mechanism version {version}; if that is the older one, 'tacet store upgrade' and "
                "'tacet run' of each version between",
                "groups, filters and the local day at hand begin anew with each change; budgets and account go on",
            ),
            NEW_LEDGER,
        ),
    )


def _closed(site: str) -> Finding:
    """A site that is closed keeps nothing but itself from going on."""
    return Finding(
        f"site {site}: is closed; it would have held more devices than max_devices",
        (
            Way(
                f"'tacet recover --store --key-file --policy --reopen {site}', after a look at who sends so many "
                "addresses, or with a policy of a larger max_devices",
                "the windows it missed are released with coverage 0 and charged as any other; everybody counts from "
                "their next observation on",
            ),
        ),
    )


def _of_clock(folder: Path, now: Micros | None) -> Iterator[Finding]:
    """A store that was made with a clock ahead; what keeps listening from going on is none for a recording."""
    snapshot, _ = read_snapshot(folder)
    if snapshot is None or now is None:
        return
    for site, stages in sorted(open_snapshot(snapshot)[1].items()):
        until = standing_of(stages).reached
        if now < until - CLOCK_STEP:
            yield Finding(
                f"clock: says {rfc3339(now)}, but site {site} has reached {rfc3339(until)}; 'tacet run --udp' does not "
                "begin before",
                (
                    Way("set the clock right, if it is behind", "none"),
                    Way("wait until then", "nobody is counted until then, and those windows are not released again"),
                    NEW_LEDGER,
                ),
            )


def _kept_versions(folder: Path) -> set[str]:
    return {Policy.from_document(document).version for document in read_policies(folder)}


def _of_key(folder: Path, key_file: Path) -> Iterator[Finding]:
    store, marks, bound = read_identity(folder), read_marks(key_file), keyfile.store_of(key_file)
    laboratory = keyfile.is_laboratory(key_file)
    others = sorted({*marks, *([bound] if bound else [])} - {store})
    if others and not laboratory:
        yield Finding(
            f"{key_file}: belongs to store {others[0]}, this is store {store}",
            (Way("give the key of this store, or the store of this key", "none"), NEW_LEDGER),
        )
    elif store in marks:
        yield from _against_mark(folder, key_file, marks[store])
    elif bound is not None and not laboratory:
        yield _without_mark(key_file, "is gone")


def _without_mark(key_file: Path, how: str) -> Finding:
    name = mark_path(key_file).name
    what = f"{mark_path(key_file)}: {how}, so nobody can tell whether the store was set back"
    if keyfile.is_laboratory(key_file):
        remove = Way(f"remove {name}", "none of its stores is noticed if it was set back before")
        return Finding(what, (Way(f"put {name} back from a copy made after the last release", "none"), remove))
    return Finding(
        what,
        (
            Way(f"put {name} back from a copy made after the last release", "none"),
            Way(
                "'tacet recover --store --key-file --heads FILE', FILE being what 'tacet audit verify --json' "
                "printed of this store, kept elsewhere",
                "what was released after FILE was made and is not in the store might be released again, "
                "differently: the newer FILE is, the less",
            ),
            NEW_LEDGER,
        ),
    )


def _against_mark(folder: Path, key_file: Path, mark: dict[str, tuple[int, str]]) -> Iterator[Finding]:
    snapshot, _ = read_snapshot(folder)
    held, published = heads_of(snapshot), read_versions(key_file).get(read_identity(folder))
    for site, (entries, _) in sorted(mark.items()):
        known = held.get(site, Link()).sequence
        if known < entries:
            yield Finding(
                f"site {site}: the store was set back; it knows of {known} ledger entries, the mark of {entries}",
                (COPY_OF_STORE, *_again(snapshot, key_file, published), NEW_LEDGER),
            )
    try:
        books = store_books(folder)
        within = {site: Link(*link) for site, link in mark.items() if link[0] <= held.get(site, Link()).sequence}
        audit_of([], within).chains(books.entries)
    except AuditError as problem:
        yield Finding(f"{problem}: the store is not the one that released", (COPY_OF_STORE, NEW_LEDGER))


def _again(snapshot: bytes | None, key_file: Path, published: str | None) -> tuple[Way, ...]:
    """Return the way of the same observations, where it is open.

    The key must not have let go of the days that they need, and one mechanism version must have made the state and all
    that was ``published`` since.
    """
    head, sites = ({}, {}) if snapshot is None else open_snapshot(snapshot)
    due = [orjson.loads(standing_form(stages))["ticks"][0] for stages in sites.values()]
    held = all(keyfile.has_key_day(key_file, key_day_of(tick - 1)) for tick in due if tick is not None)
    versions = {made_by(head) if head else None, published} - {None}
    if not held or len(versions) > 1:
        return ()
    if versions <= {MECHANISMS}:
        return (SAME_OBSERVATIONS,)
    (version,) = versions
    return (Way(f"with mechanism version {version}, which made them: {SAME_OBSERVATIONS.do}", SAME_OBSERVATIONS.price),)
