"""A second run whose crash states are tried: what follows a store, keeps a list, or copies a store.

For each release of a store, a subscriber's cursor, the state of ``tacet hooks``, the opt-outs and the service's index
are written; then the store is backed up and restored. What the run has promised by then goes to ``reported``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import aclosing, closing
from pathlib import Path
from unittest.mock import patch

from connectors.keys import opt_outs
from connectors.serve.history import index
from connectors.serve.history.release_history import ReleaseHistory
from connectors.sources.cloud.processor import ReplayCache
from connectors.storage.embedded.backup import back_up, restore
from connectors.storage.embedded.reader import read_outbox
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.order import Mark
from connectors.subscribe.outbox import from_outbox
from stream.records import SECOND
from tests.simulation.crash_states import REPORT
from tests.simulation.recorded_run import START

FOLDERS = ("state", "index", "backups")
"""The folders of the run, as an operator makes them: none shares the syncs of another."""
STORE = Path("stores/store")
INDEX = Path("index/history.duckdb")
AUDIENCE = "facilities"
KEY = b"k" * 32
"""The key of the opt-outs."""


def name(number: int) -> bytes:
    """Return the tag of a request that was accepted, whose device is left out from then on."""
    return number.to_bytes(16)


def releases(inputs: Path) -> list[tuple[int, bytes]]:
    """Return place and bytes of the releases that are followed."""
    return read_outbox(inputs / STORE, AUDIENCE, 0)


def history(root: Path) -> ReleaseHistory:
    """Open the service's index."""
    return ReleaseHistory(root / INDEX, {})


async def run(root: Path, inputs: Path, report: Callable[[str], None], *, until: int = -1) -> None:
    """Go on to the end of the store; end without warning before release ``until``."""
    rows, state, number = releases(inputs), root / "state", 0
    cursor = Cursor(state / "cursor")
    with closing(ReplayCache(state / "hooks")) as taken, closing(history(root)) as indexed:
        report("open")
        async with aclosing(from_outbox(inputs / STORE, AUDIENCE, None, whole=True, cursor=cursor)) as feed:
            async for record in feed:
                cursor.save()
                report(f"saved {number}")
                if record is Mark.CAUGHT_UP:
                    break
                assert isinstance(record, dict)
                number = 1 + next(at for at, (_, value) in enumerate(rows) if record["release_id"].encode() in value)
                if number == until:
                    os._exit(0)
                report(f"given {number}")
                taken.keep([name(number)], START + number * SECOND)
                report(f"taken {number}")
                opt_outs.add(state / "opt-outs", KEY, [name(number)], START + number * SECOND)
                report(f"out {number}")
                place, value = rows[number - 1]
                indexed.add([value], {AUDIENCE: place})
                report(f"indexed {number}")
        known = {body for _, body in indexed.since(AUDIENCE, "start", len(rows))}
        for place, value in rows:
            if value not in known:
                indexed.add([value], {AUDIENCE: place})
    for target, make in (("copy", _back_up), ("again", _restore)):
        if not (root / "backups" / target).exists():
            make(root / "backups", inputs)
        report(target)


def _back_up(backups: Path, inputs: Path) -> None:
    back_up(inputs / STORE, backups / "copy")


def _restore(backups: Path, inputs: Path) -> None:
    restore(backups / "copy", backups / "again", inputs / "keys" / "key", accept_loss=False)


def main() -> None:
    """Run a process that ends before half of the releases, then one to the end; arguments: root and inputs."""
    root, inputs = Path(sys.argv[1]), Path(sys.argv[2])
    handle = os.open(root / REPORT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def report(said: str) -> None:
        os.write(handle, said.encode() + b"\n")

    with patch.dict(index.CONFIGURATION, {"threads": 1, "checkpoint_threshold": "4kB"}):  # several checkpoints
        child = os.fork()
        if child == 0:
            asyncio.run(run(root, inputs, report, until=len(releases(inputs)) // 2))
        os.waitpid(child, 0)
        asyncio.run(run(root, inputs, report))


if __name__ == "__main__":
    main()
