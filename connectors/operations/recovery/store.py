"""Diagnosis of a run on a store that cannot continue, and its remedies: each with its price, none forks an audit
chain.

An audit chain forks if two different entries are written under one number: readers of the first could then be given a
contradicting record. Therefore no remedy moves a ledger back; if entries are lost for good, the remedy is a new ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import orjson

from connectors.keys import key_files
from connectors.operations.audit.verification import compare, store_bundle
from connectors.operations.recovery.obstacles import (
    COPY_OF_STORE,
    KEY_COPY,
    NEW_LEDGER,
    REPUBLISH,
    SAME_OBSERVATIONS,
    Finding,
    Remedy,
    left_out,
)
from connectors.runtime.clock import CLOCK_STEP
from connectors.secrets.private_files import check_private_folder
from connectors.storage.audit_chains import Heads, audit_of, heads_of, parse_entries
from connectors.storage.embedded.reader import (
    contradicted,
    outboxes,
    read_identity,
    read_outbox,
    read_policies,
    read_snapshot,
)
from connectors.storage.embedded.rollback_mark import (
    DamagedMarkError,
    bind_again,
    mark_path,
    one_run,
    read_marks,
    read_versions,
)
from connectors.storage.embedded.sqlite_file import StoreError
from connectors.storage.embedded.store import SqliteStore
from stream.accounting.audit import ChainLink, by_release
from stream.engine.snapshot import (
    BEFORE,
    encode_sensing_status,
    is_known,
    mechanism_version,
    open_snapshot,
    sensing_status,
)
from stream.errors import AuditError, DataError, KeyFileError, UsageError
from stream.keys import key_day_of
from stream.policy.document import PolicyDocument
from stream.records import Micros
from stream.release.stage import MECHANISMS
from stream.release.validation import Policy
from stream.schemas import rfc3339


def store_findings(
    folder: Path, key_file: Path | None, policy: Policy | None, now: Micros | None = None
) -> list[Finding]:
    """Return what prevents a run on an embedded store from continuing, as far as store, key, policy and clock show."""
    found = [] if key_file is None else list(_unusable(key_file))
    known = None if found else key_file
    try:
        entries = 0 if known is None else _entries_marked(known)
        if not (folder / "store.sqlite").exists() or (entries and read_snapshot(folder)[0] is None):
            return [*found, _missing_entries(folder, known, entries)]
        found += [*_of_folder(folder), *_broken(folder), *_of_state(folder, policy), *_of_clock(folder, now)]
        if known is not None:
            found += _of_key(folder, known)
    except StoreError as problem:
        return [*found, Finding(str(problem), (COPY_OF_STORE, NEW_LEDGER)), *_of_outboxes(folder)]
    damaged = list(_of_outboxes(folder)) or list(_other_outboxes(folder))
    return [*found, *(damaged or _incomplete(folder))]


def _unusable(key_file: Path) -> Iterator[Finding]:
    """Yield a finding for a key that cannot be read, or whose mark cannot."""
    try:
        key_files.FileKeys(key_file)
    except KeyFileError as problem:
        yield Finding(str(problem), (KEY_COPY, NEW_LEDGER))
        return
    try:
        read_marks(key_file)
    except DamagedMarkError:
        yield _without_mark(key_file, "is damaged")


def _entries_marked(key_file: Path) -> int:
    """Return how many ledger entries the mark of a production key covers; a laboratory key serves many stores."""
    if key_files.is_laboratory(key_file):
        return 0
    return sum(link[0] for sites in read_marks(key_file).values() for link in sites.values())


def _missing_entries(folder: Path, key_file: Path | None, entries: int) -> Finding:
    released = f"; the mark beside the key knows of {entries} ledger entries" if entries else ""
    ways = (COPY_OF_STORE, NEW_LEDGER) if entries or key_file is None else (Remedy("'tacet run' makes it", "none"),)
    return Finding(f"{folder}: there is no store{released}", ways)


def _of_folder(folder: Path) -> Iterator[Finding]:
    for each in (folder, folder / "private"):
        try:
            check_private_folder(each)
        except UsageError as problem:
            yield Finding(str(problem), (Remedy(f"'chmod 700 {each}'", "none"),))


def _of_outboxes(folder: Path) -> Iterator[Finding]:
    """Yield a finding for outboxes that cannot be read."""
    for audience, path in outboxes(folder):
        try:
            read_outbox(folder, audience, 0)
        except StoreError as problem:
            yield _wrong_outbox(audience, path, str(problem))


def _other_outboxes(folder: Path) -> Iterator[Finding]:
    """Yield a finding for outboxes of another store, whose records would contradict this store's."""
    for audience, release_id in contradicted(folder).items():
        path = dict(outboxes(folder))[audience]
        yield _wrong_outbox(audience, path, f"{path}: holds another release {release_id} than the store")


def _incomplete(folder: Path) -> Iterator[Finding]:
    """Yield a finding for each release of which an outbox lacks records that were charged."""
    try:
        missing = by_release(compare(store_bundle(folder, records=True)).missing)
    except AuditError as problem:
        yield Finding(str(problem), (COPY_OF_STORE, NEW_LEDGER))
        return
    for each in missing:
        yield Finding(str(each), (COPY_OF_STORE, REPUBLISH, left_out(each.audience)))


def _wrong_outbox(audience: str, path: Path, what: str) -> Finding:
    return Finding(
        what,
        (
            Remedy(f"put {path} back from a copy", f"what came after the copy is not given to {audience} again"),
            Remedy(
                f"move {path} away; 'tacet run' makes a new one",
                f"what it held is not given to {audience} again, and 'tacet audit verify' goes on to miss it",
            ),
        ),
    )


def _broken(folder: Path) -> Iterator[Finding]:
    try:
        books = store_bundle(folder)
        books.audit().chains(books.entries)
    except AuditError as problem:
        yield Finding(str(problem), (COPY_OF_STORE, NEW_LEDGER))


def _of_state(folder: Path, policy: Policy | None) -> Iterator[Finding]:
    snapshot, _ = read_snapshot(folder)
    if snapshot is None:
        return
    head, sites = open_snapshot(snapshot)
    for site, stages in sorted(sites.items()):
        if sensing_status(stages).suspended:
            yield _closed(site)
    if not is_known(head["mechanisms"]):
        yield _made_by_another(folder, head["mechanisms"])
    elif head["mechanisms"] != MECHANISMS:
        yield Finding(
            f"{folder}: was made by mechanism version {head['mechanisms']}, this is {MECHANISMS}",
            (
                Remedy(
                    "'tacet run --accept-policy'",
                    "groups, filters and the local day at hand begin anew; that day's attributes are not published",
                ),
            ),
        )
    if policy is not None and head["policy"] != policy.version:
        kept = " (kept in the store)" if head["policy"] in _kept_versions(folder) else ""
        yield Finding(
            f"{folder}: was made under policy {head['policy']}{kept}, the one given is {policy.version}",
            (
                Remedy("'tacet run' with the policy of that version", "none"),
                Remedy(
                    "'tacet run --accept-policy'",
                    "groups, filters and the local day at hand begin anew; budgets and account go on",
                ),
            ),
        )


def _made_by_another(folder: Path, version: str) -> Finding:
    return Finding(
        f"{folder}: was made by mechanism version {version}, and this is {MECHANISMS}, which goes on from "
        f"{' and '.join((*BEFORE, MECHANISMS))} only",
        (
            Remedy(
                f"'tacet run' of mechanism version {version}; if that is the older one, 'tacet run --accept-policy' of "
                "each version between",
                "groups, filters and the local day at hand begin anew with each change; budgets and account go on",
            ),
            NEW_LEDGER,
        ),
    )


def _closed(site: str) -> Finding:
    """Return the finding for a closed site, which affects no other site."""
    return Finding(
        f"site {site}: is closed; it would have held more devices than max_devices",
        (
            Remedy(
                f"'tacet recover --store --key-file --policy --reopen {site}', after a look at who sends so many "
                "addresses, or with a policy of a larger max_devices",
                "the windows it missed are released with coverage 0 and charged as any other; everybody counts from "
                "their next observation on",
            ),
        ),
    )


def _of_clock(folder: Path, now: Micros | None) -> Iterator[Finding]:
    """Yield a finding for a store that was made with a clock ahead. It prevents live input, but not recordings."""
    snapshot, _ = read_snapshot(folder)
    if snapshot is None or now is None:
        return
    for site, stages in sorted(open_snapshot(snapshot)[1].items()):
        until = sensing_status(stages).reached
        if now < until - CLOCK_STEP:
            yield Finding(
                f"clock: says {rfc3339(now)}, but site {site} has reached {rfc3339(until)}; 'tacet run --udp' does not "
                "begin before",
                (
                    Remedy("set the clock right, if it is behind", "none"),
                    Remedy("wait until then", "nobody is counted until then, and those windows are not released again"),
                    NEW_LEDGER,
                ),
            )


def _kept_versions(folder: Path) -> set[str]:
    return {PolicyDocument.from_document(document).version for document in read_policies(folder)}


def _of_key(folder: Path, key_file: Path) -> Iterator[Finding]:
    store, marks, bound = read_identity(folder), read_marks(key_file), key_files.store_of(key_file)
    laboratory = key_files.is_laboratory(key_file)
    others = sorted({*marks, *([bound] if bound else [])} - {store})
    if others and not laboratory:
        yield Finding(
            f"{key_file}: belongs to store {others[0]}, this is store {store}",
            (Remedy("give the key of this store, or the store of this key", "none"), NEW_LEDGER),
        )
    elif store in marks:
        yield from _against_mark(folder, key_file, marks[store])
    elif bound is not None and not laboratory:
        yield _without_mark(key_file, "is gone")


def _without_mark(key_file: Path, how: str) -> Finding:
    name = mark_path(key_file).name
    what = f"{mark_path(key_file)}: {how}, so nobody can tell whether the store was set back"
    if key_files.is_laboratory(key_file):
        remove = Remedy(f"remove {name}", "none of its stores is noticed if it was set back before")
        return Finding(what, (Remedy(f"put {name} back from a copy made after the last release", "none"), remove))
    return Finding(
        what,
        (
            Remedy(f"put {name} back from a copy made after the last release", "none"),
            Remedy(
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
        known = held.get(site, ChainLink()).sequence
        if known < entries:
            yield Finding(
                f"site {site}: the store was set back; it knows of {known} ledger entries, the mark of {entries}",
                (COPY_OF_STORE, *_again(snapshot, key_file, published), NEW_LEDGER),
            )
    try:
        books = store_bundle(folder)
        within = {
            site: ChainLink(*link) for site, link in mark.items() if link[0] <= held.get(site, ChainLink()).sequence
        }
        audit_of([], within).chains(books.entries)
    except AuditError as problem:
        yield Finding(f"{problem}: the store is not the one that released", (COPY_OF_STORE, NEW_LEDGER))


def _again(snapshot: bytes | None, key_file: Path, published: str | None) -> tuple[Remedy, ...]:
    """Return the remedy of processing the same observations again, if it is available.

    The key must still have the days that they need, and one mechanism version must have made both the state and all
    that was ``published`` since.
    """
    head, sites = ({}, {}) if snapshot is None else open_snapshot(snapshot)
    due = [orjson.loads(encode_sensing_status(stages))["ticks"][0] for stages in sites.values()]
    held = all(key_files.has_key_day(key_file, key_day_of(tick - 1)) for tick in due if tick is not None)
    versions = {mechanism_version(head) if head else None, published} - {None}
    if not held or len(versions) > 1:
        return ()
    if versions <= {MECHANISMS}:
        return (SAME_OBSERVATIONS,)
    (version,) = versions
    return (
        Remedy(f"with mechanism version {version}, which made them: {SAME_OBSERVATIONS.do}", SAME_OBSERVATIONS.price),
    )


# A lost or damaged mark, rebuilt from heads that were recorded elsewhere.


def rebuild_mark(folder: Path, key_file: Path, heads_file: Path) -> Heads:
    """Rebuild a store's mark, if the store contains every head in the file; return the mark.

    Raises:
        UsageError: the key belongs to another store or has a mark of this one; the file is malformed or names no site
            that has entries.
        AuditError: the store's audit chains are broken or do not contain the heads.
    """
    noted = _read_heads(heads_file)
    keys = key_files.FileKeys(key_file)
    with closing(SqliteStore(folder)) as store, one_run(key_file, folder, laboratory=keys.laboratory):
        known = heads_of(store.snapshot())
        if missing := sorted(site for site, link in known.items() if link.sequence and site not in noted):
            msg = f"{heads_file}: must have the head of every site of the store, lacks {missing[0]}"
            raise UsageError(msg)
        states = {site: link for site, link in known.items() if link.sequence}
        heads = audit_of([states], noted, keys.audit).chains(parse_entries(store.entries()))
        snapshot = store.snapshot()
        bind_again(
            key_file, store.id, heads, MECHANISMS if snapshot is None else mechanism_version(open_snapshot(snapshot)[0])
        )
    return heads


def _read_heads(file: Path) -> Heads:
    try:
        sites = orjson.loads(file.read_bytes())["sites"]
        return {str(site): ChainLink(int(link["sequence"]), str(link["head"])) for site, link in sites.items()}
    except OSError as error:
        msg = f"{file}: cannot be read ({error.strerror})"
        raise UsageError(msg) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        msg = f"{file}: must be what 'tacet audit verify --json' printed"
        raise DataError(msg) from None
