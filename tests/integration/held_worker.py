"""A worker over the hash-chain engine whose openings a test can hold up.

    python -m tests.integration.held_worker BOOTSTRAP PREFIX SESSION FOLDER [OPEN_TIMEOUT [TASK]]

While FOLDER holds a file ``hold``, an opening makes a file ``opening`` there and waits. ``TASK`` is a task of Faust's
that is cancelled, as by nobody, as soon as there is a file ``cancel``.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from connectors.storage.kafka.worker import PeriodicTask, WorkerConfig, run_worker
from connectors.storage.kafka.writers import EngineTopics
from tests.integration.chain_engine import ChainEngine, Topics


def main() -> int:
    bootstrap, prefix, session, folder, *more = sys.argv[1:]
    logging.basicConfig(level="INFO", format="%(asctime)s %(name)s %(message)s")
    topics, place = Topics.of(prefix), Path(folder)

    async def cancel() -> None:
        if (place / "cancel").exists():
            for task in asyncio.all_tasks():
                if more[1] in task.get_name():
                    task.cancel()

    config = WorkerConfig(
        bootstrap,
        fence=prefix,
        group=prefix,
        topics=EngineTopics(topics.source, topics.snapshot, topics.audit, (topics.private,)),
        session_timeout=float(session),
        open_timeout=float(more[0]) if more else 3600.0,
        checkpoint_every=2.0,
        chores=[PeriodicTask(cancel, 0.1)] if len(more) > 1 else (),
    )

    async def engine(partition: int) -> ChainEngine:
        while (place / "hold").exists():
            (place / "opening").touch()
            await asyncio.sleep(0.02)
        return ChainEngine(topics)

    return run_worker(config, engine)


if __name__ == "__main__":
    sys.exit(main())
