"""A worker over the hash-chain engine: ``python -m tests.integration.chain_worker BOOTSTRAP PREFIX SESSION``."""

from __future__ import annotations

import logging
import os
import sys

from connectors.storage.kafka.worker import WorkerConfig, run_worker
from connectors.storage.kafka.writers import EngineTopics
from tests.integration.chain_engine import ChainEngine, Topics


def main() -> int:
    bootstrap, prefix, session = sys.argv[1:4]
    logging.basicConfig(level=os.environ.get("LOG", "WARNING"), format="%(asctime)s %(name)s %(message)s")
    topics = Topics.of(prefix)
    config = WorkerConfig(
        bootstrap,
        fence=prefix,
        group=prefix,
        topics=EngineTopics(topics.source, topics.snapshot, topics.audit, (topics.private,)),
        session_timeout=float(session),
        checkpoint_every=2.0,
        accept_loss="--accept-loss" in sys.argv,
    )

    async def engine(partition: int) -> ChainEngine:
        return ChainEngine(topics)

    return run_worker(config, engine)


if __name__ == "__main__":
    sys.exit(main())
