"""The run whose crash states are tried: a followed log, a receiver's engine file, a production key and a store.

Each line of the log names a message. For each, the receiver's state is written first, then the store, then the position
in the log; so the run promises three things, and writes to ``reported`` what it has promised.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from unittest.mock import patch

from connectors.secrets.private_files import write_new
from connectors.sources.ingest.followed_logs import TailedFile
from connectors.sources.snmp.usm.engines import Mark
from connectors.sources.snmp.usm.receiver import EngineFile
from connectors.storage.embedded import outboxes
from connectors.storage.embedded.runner import embedded
from stream.records import HOUR, MINUTE, SECOND, Heartbeat, ObservationBatch
from stream.release.validation import Policy, load_policy
from tests.simulation.crash_states import REPORT
from tests.support.small_building import COUNTS, EVENING, messages, people, policy_text

START = EVENING + 18 * HOUR + 20 * MINUTE
"""22:20 UTC, so that the run destroys the keys of a day."""
FOLDERS = ("keys", "stores", "state")
"""The folders of the run, as an operator makes them: none shares the syncs of another."""
ENGINE = b"\x80\x00\x00\x00\x05sender"


@cache
def policy() -> Policy:
    """Return the policy of the run."""
    plain = COUNTS.split('[[release]]\nname = "smooth"', maxsplit=1)[0].split("[[release]]", maxsplit=2)[2]
    return load_policy(policy_text("[[release]]" + plain, tick="30min"))


@cache
def log_messages() -> list[ObservationBatch | Heartbeat]:
    """Return the messages that the lines of the log name."""
    return list(messages(people(devices=3, hours=2.5, start=START), policy(), after=60 * MINUTE))


def prepare(root: Path) -> Path:
    """Make the folder of a run, and the folders in it."""
    for name in FOLDERS:
        (root / name).mkdir(mode=0o700, parents=True)
    return root


def mark(line: int) -> Mark:
    """Return what the receiver stores of a line."""
    return Mark(ENGINE, 1, 1000 + line, line.to_bytes(16))


async def run(root: Path, inputs: Path, report: Callable[[str], None], *, key_made: bool, until: int = -1) -> None:
    """Go on to the end of the recording; end without warning before line ``until``."""
    key, state, log = root / "keys" / "key", root / "state", inputs / "log"
    if not key_made:
        key.unlink(missing_ok=True)
        write_new(key, json.loads((inputs / "key").read_text()))
        report("key")
    with (
        patch.object(outboxes, "SYNC_EVERY", 2),  # few windows are to show what happens after it
        closing(EngineFile(state / "engines")) as engine_file,
        embedded(policy(), key, root / "stores" / "store") as runner,
    ):
        report(f"start {engine_file.start(ENGINE)[1]}")
        engines = engine_file.engines()
        tailed = TailedFile(log, state / "position", 100, lambda line: 1 + int(line))
        await tailed.open()
        report("open")
        written = len(log.read_bytes().splitlines())
        while True:
            if written < len(log_messages()):
                report(f"line {written}")
                with log.open("ab") as file:
                    file.write(b"%d\n" % written)
                written += 1
            pieces, _ = await tailed.read(1)
            if not pieces and written == len(log_messages()):
                break
            for piece in pieces:
                line = int(piece.content or b"")
                if line == until:
                    os._exit(0)
                engines.accept(mark(line), line * SECOND)
                engine_file.keep(engines)
                report(f"received {line}")
                runner.process(log_messages()[line])
                report(f"accepted {line}")
                await tailed.store_positions({piece.part: piece.end})
                report(f"stored {line}")
        await tailed.close()


def main() -> None:
    """Run a process that ends before half of the lines, then one to the end; arguments: root and inputs."""
    root, inputs = Path(sys.argv[1]), Path(sys.argv[2])
    handle = os.open(root / REPORT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def report(said: str) -> None:
        os.write(handle, said.encode() + b"\n")

    child = os.fork()
    if child == 0:
        asyncio.run(run(root, inputs, report, key_made=False, until=len(log_messages()) // 2))
    os.waitpid(child, 0)
    asyncio.run(run(root, inputs, report, key_made=True))


if __name__ == "__main__":
    main()
