"""Rebuild a store's mark that is missing or damaged, from heads that were recorded elsewhere."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import orjson

from connectors.keys.key_files import FileKeys
from connectors.storage.audit_chains import Heads, audit_of, heads_of, parse_entries
from connectors.storage.embedded.rollback_mark import bind_again, one_run
from connectors.storage.embedded.store import SqliteStore
from stream.accounting.audit import ChainLink
from stream.engine.snapshot import open_snapshot
from stream.errors import DataError, UsageError
from stream.release.stage import MECHANISM_VERSION


def rebuild_mark(folder: Path, key_file: Path, heads_file: Path) -> Heads:
    """Rebuild a store's mark, if the store contains every head in the file; return the mark.

    Raises:
        UsageError: the key belongs to another store or has a mark of this one; the file names no site that has entries.
        DataError: the file is malformed.
        AuditError: the store's audit chains are broken or do not contain the heads.
    """
    recorded = _read_heads(heads_file)
    keys = FileKeys(key_file)
    with closing(SqliteStore(folder)) as store, one_run(key_file, folder, laboratory=keys.laboratory):
        snapshot = store.snapshot()
        known = heads_of(snapshot)
        if missing := sorted(site for site, link in known.items() if link.sequence and site not in recorded):
            msg = f"{heads_file}: must have the head of every site of the store, lacks {missing[0]}"
            raise UsageError(msg)
        states = {site: link for site, link in known.items() if link.sequence}
        heads = audit_of([states], recorded, keys.audit).chains(parse_entries(store.entries()))
        made_by = MECHANISM_VERSION if snapshot is None else open_snapshot(snapshot)[0].made_by
        bind_again(key_file, store.id, heads, made_by)
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
