"""Sends a simulated building's datagrams to a receiver, at a multiple of real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from connectors.simulation.traps import TrapSchedule
from connectors.snmp.sender import send


async def send_schedule(
    schedule: TrapSchedule,
    address: tuple[str, int],
    speed: float | None,
    progress: Callable[[int], None] | None = None,
    *,
    foreign: str | None = None,
) -> int:
    """Send a schedule's datagrams to an address; return how many were sent.

    Those of unlisted senders leave from the address ``foreign``, and not at all without one.
    """

    def due() -> Iterator[tuple[int, bytes]]:
        for number, datagram in enumerate(schedule, start=1):
            if progress is not None and number % 256 == 0:
                progress(number)
            if datagram.controller >= 0:
                yield datagram.time - schedule.simulation.start, datagram.data

    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(send(due(), address, speed))]
        if foreign is not None:
            others = ((d.time - schedule.simulation.start, d.data) for d in schedule if d.controller < 0)
            sending.append(group.create_task(send(others, address, speed, source=foreign)))
    return sum(task.result() for task in sending)
