"""A Faust task that ends by itself is noticed; a slow opening is waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import mode
import pytest

from connectors.storage.kafka.worker import WorkerClients
from stream.runners.faust_app import LOOKS, TaskWatch, create_app
from tests.support.virtual_loop import run_virtually


def test_faust_waits_for_an_opening_for_as_long_as_it_takes() -> None:
    """mode takes a wait that ran out for a service that was told to stop: then Faust opens nothing any more."""

    async def main() -> list[str]:
        task_manager: Any = object()
        app = create_app(
            brokers="127.0.0.1:9", group="g", source="s", task_manager=task_manager, clients=WorkerClients()
        )
        done: list[str] = []

        async def opening() -> None:
            await asyncio.sleep(10 * app.conf.broker_request_timeout)
            done.append("opened")

        await app.tables.recovery._wait(opening(), timeout=app.conf.broker_request_timeout)
        return done

    assert run_virtually(main()) == ["opened"]


class Clerk(mode.Service):  # type: ignore[misc]
    """A service with one task, that ends as it is told."""

    def __post_init__(self) -> None:
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @mode.Service.task  # type: ignore[untyped-decorator]
    async def _work(self) -> None:
        await self.told


class Office(mode.Service):  # type: ignore[misc]
    """A service that has another one."""

    def __post_init__(self) -> None:
        self.clerk = Clerk(beacon=self.beacon)

    def on_init_dependencies(self) -> list[Any]:
        return [self.clerk]


@pytest.fixture
async def office() -> Any:
    made = Office()
    await made.start()
    await asyncio.sleep(0)
    yield made
    await made.stop()


async def looked(watch: TaskWatch) -> list[str]:
    """Look for as often as it takes to be sure; return what has ended then."""
    for _ in range(LOOKS - 1):
        assert watch.ended() == [], "a service that has just been started has no tasks yet"
        await asyncio.sleep(0)
    return watch.ended()


async def test_tasks_that_live_are_no_matter(office: Office) -> None:
    assert await looked(TaskWatch(office)) == []


@pytest.mark.parametrize("end", ["returns", "is cancelled"])
async def test_a_task_that_ends_while_its_service_goes_on_is_named(office: Office, end: str) -> None:
    if end == "returns":
        office.clerk.told.set_result(None)
    else:
        office.clerk.told.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert await looked(TaskWatch(office)) == ["Clerk._work"]
    assert not office.crashed, "mode has noticed nothing"


async def test_what_ends_because_its_service_stops_or_begins_anew_is_no_matter(office: Office) -> None:
    watch = TaskWatch(office)
    await office.clerk.stop()
    assert await looked(watch) == []
    office.clerk.service_reset()
    assert await looked(watch) == []
    office.clerk.told = asyncio.get_running_loop().create_future()
    await office.clerk.start()
    assert await looked(watch) == []
    office.clerk.told.set_result(None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert await looked(watch) == ["Clerk._work"]
