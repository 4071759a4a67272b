"""``tacet`` in a process that stops itself just before its nth record for a topic: a zombie in the making.

``STOP_AT=TOPIC:N python -m tests.integration.stopping_worker worker …``; SIGCONT lets it go on.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from aiokafka import AIOKafkaProducer

from connectors.cli.main import main


def stop_at(topic: str, number: int) -> None:
    """Make every producer of this process count what is sent to a topic."""
    sent, send = 0, AIOKafkaProducer.send

    async def stopping(self: AIOKafkaProducer, name: str, *arguments: Any, **options: Any) -> Any:
        nonlocal sent
        sent += name == topic
        if name == topic and sent == number:
            os.kill(os.getpid(), signal.SIGSTOP)
        return await send(self, name, *arguments, **options)

    AIOKafkaProducer.send = stopping


if __name__ == "__main__":
    where, _, count = os.environ["STOP_AT"].rpartition(":")
    stop_at(where, int(count))
    main()
