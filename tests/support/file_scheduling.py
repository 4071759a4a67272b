"""Which file of tests a worker runs next, where several run side by side (``-n``, ``--dist loadfile``).

A file that waits for a broker uses a third of a processor. If all workers ran such files at once, the machine would
idle; if one alone did, the others would end long before it. Half of the workers therefore begin with these files, so
that there are as many brokers as these workers, and the other half begins with the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).resolve().parents[2]
_BROKER = re.compile(r"\b(kafka|three_brokers|secured_kafka): (Broker|JavaCluster|SecuredKafka)\b")
"""A parameter of a test or fixture that is one of the broker fixtures."""


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """``loadfile``, with files of tests in an order for each worker."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(self._next(node), last=False)
        super()._assign_work_unit(node)

    def _next(self, node: WorkerController) -> str:
        """Return the file: for this worker, then not a unit test (those are the shortest), then by name."""
        first = self.nodes.index(node) < (len(self.nodes) + 1) // 2
        workqueue: Iterable[str] = self.workqueue
        return min(workqueue, key=lambda file: (waits_for_broker(file) is not first, "/unit/" in file, file))


@cache
def waits_for_broker(file: str) -> bool:
    """Return whether a test of a file asks for a broker."""
    return _BROKER.search((ROOT / file).read_text(encoding="utf-8")) is not None
