"""A mark that is gone or damaged, made anew from heads that were noted elsewhere."""

from __future__ import annotations

from pathlib import Path

import orjson

from connectors import keyfile
from connectors.audit_chains import Heads, audit_of, heads_of, parse_entries
from connectors.embedded.rollback_mark import bind_again
from connectors.embedded.store import SqliteStore
from stream.accounting.audit import Link
from stream.errors import DataError, UsageError
from stream.release.stage import MECHANISMS
from stream.runners.snapshot import made_by, open_snapshot


def rebuild_mark(folder: Path, key_file: Path, heads_file: Path) -> Heads:
    """Write the mark of a store anew, if the store holds every head that was noted elsewhere; return the mark.

    Raises:
        UsageError: the key belongs to another store or has a mark of this one; the file is none or names no site
            that has entries.
        AuditError: the store's audit chains are broken or do not hold the heads.
    """
    noted = _read_heads(heads_file)
    store = SqliteStore(folder)
    try:
        known = heads_of(store.snapshot())
        if missing := sorted(site for site, link in known.items() if link.sequence and site not in noted):
            msg = f"{heads_file}: must have the head of every site of the store, lacks {missing[0]}"
            raise UsageError(msg)
        states = {site: link for site, link in known.items() if link.sequence}
        heads = audit_of([states], noted, keyfile.FileKeys(key_file).audit).chains(parse_entries(store.entries()))
        snapshot = store.snapshot()
        bind_again(key_file, store.id, heads, MECHANISMS if snapshot is None else made_by(open_snapshot(snapshot)[0]))
    finally:
        store.close()
    return heads


def _read_heads(file: Path) -> Heads:
    try:
        sites = orjson.loads(file.read_bytes())["sites"]
        return {str(site): Link(int(link["sequence"]), str(link["head"])) for site, link in sites.items()}
    except OSError as error:
        msg = f"{file}: cannot be read ({error.strerror})"
        raise UsageError(msg) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        msg = f"{file}: must be what 'tacet audit verify --json' printed"
        raise DataError(msg) from None
