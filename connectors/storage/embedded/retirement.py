"""End a store's ledger; a new store begins with what it spent.

A lost or stolen key cannot be used further, and another key on the same store would draw other noise for windows that
were already released. So a new key gets a new store. It must not get a second budget: sums, habits, queried days and
the account continue from the old ledger and audit log, which are readable without any key. The new store contains no
data about people.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from connectors.keys import key_files
from connectors.keys.key_files import FileKeys
from connectors.storage.audit_chains import audit_of, heads_of, parse_entries
from connectors.storage.embedded.backup import becoming
from connectors.storage.embedded.reader import read_earlier, read_identity, read_policies
from connectors.storage.embedded.rollback_mark import MarkFile, one_run, read_mark
from connectors.storage.embedded.sqlite_file import EARLIER, connect, naming_errors, transaction
from connectors.storage.embedded.store import SqliteStore
from connectors.storage.retirement import LedgerContent
from stream.accounting.audit import ChainLink
from stream.engine.key_rotation import successor
from stream.errors import UsageError
from stream.policy.document import PolicyDocument


class StoreLedger:
    """The ledger of a store that is not running; it continues in a new store (``EndingLedger``)."""

    def __init__(self, folder: Path, new: Path) -> None:
        """``folder`` is the store, ``new`` the folder of the store to create."""
        self._folder, self._new = folder, new
        self._snapshot: bytes | None = None
        self._own: list[bytes] = []
        self._entries: list[bytes] = []
        """Its own entries after those of the ledgers that it continues."""

    @contextmanager
    def exclusive(self, keys: FileKeys, old_key: Path | None) -> Iterator[None]:
        """Lock both keys and keep the store open; UsageError if a run uses one of them."""
        with ExitStack() as stack:
            stack.enter_context(one_run(keys.path, self._new, laboratory=keys.laboratory))
            if old_key is not None:
                stack.enter_context(one_run(old_key, self._folder, laboratory=key_files.is_laboratory(old_key)))
            store = stack.enter_context(closing(SqliteStore(self._folder, ended_for=keys.ledger)))
            self._snapshot = store.snapshot()
            own = list(store.entries())
            self._own, self._entries = own, [*map(bytes, store.earlier()), *own]
            yield

    async def read(self, keys: FileKeys, old_key: Path | None) -> LedgerContent:
        """Verify the chains against the state, and against the old key's mark."""
        del keys
        mark = {}
        if old_key is not None:
            stored = read_mark(old_key, read_identity(self._folder))
            mark = {site: ChainLink(*link) for site, link in stored.items()}
        audit_of([heads_of(self._snapshot)], mark).chains(parse_entries(self._own))
        return LedgerContent(list(parse_entries(self._entries)), resumed=False)

    async def hand_over(self, keys: FileKeys, old: FileKeys | None) -> int:
        """Record in the store that its ledger has ended, and create the new store; every entry was released."""
        del old
        if self._snapshot is None:
            raise UsageError(
                f"{self._folder}: has released nothing, so its key need not be retired; create a new store with the "
                "new key"
            )
        snapshot = successor(self._snapshot, keys)
        path = self._folder / "store.sqlite"
        with closing(connect(path, "")) as store, naming_errors(self._folder), transaction(store):
            store.execute("INSERT OR REPLACE INTO meta VALUES ('ended', ?)", (keys.ledger,))
        if not self._new.exists():
            with becoming(self._new) as folder:
                _begin(folder, snapshot, self._entries, read_policies(self._folder))
        elif [bytes(value) for value in read_earlier(self._new)] != self._entries:
            raise UsageError(f"{self._new}: must not exist yet; no store is overwritten")
        MarkFile(keys.path, read_identity(self._new), laboratory=keys.laboratory)
        return 0


def _begin(folder: Path, snapshot: bytes, entries: list[bytes], policies: list[bytes]) -> None:
    with closing(SqliteStore(folder)) as store:
        store.commit([], snapshot, 0)
        for document in policies:
            store.keep_policy(PolicyDocument.from_document(document).version, document)
    with closing(connect(folder / "store.sqlite", EARLIER)) as database, naming_errors(folder), transaction(database):
        database.executemany("INSERT INTO earlier (value) VALUES (?)", ((entry,) for entry in entries))
