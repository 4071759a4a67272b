"""Signals that stop a service at any moment, work that ends together, and cancellations that a library has lost."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest

from connectors.runtime.signals import first_to_end, raise_if_cancelled, within
from tests.support.patience import PATIENCE
from tests.support.virtual_loop import run_virtually, virtual_loop

SERVICE = """
import asyncio, os, signal
from connectors.runtime.signals import stop_signals

def send(name):
    os.kill(os.getpid(), getattr(signal, name))

async def told(name):
    async with stop_signals() as stop:
        send(name)
        await stop.wait()

async def told_while_it_ends(name):
    loop = asyncio.get_running_loop()
    remove = loop.remove_signal_handler

    def removing(number):
        removed = remove(number)
        send("SIGTERM")
        return removed

    loop.remove_signal_handler = removing
    await told(name)

async def not_told(name):
    async with stop_signals() as stop:
        assert not stop.is_set()

"""


def service(ending: str) -> tuple[int, str]:
    """Return a process's exit code and what it says once its service has ended."""
    done = subprocess.run(
        [sys.executable, "-c", f"{SERVICE}{ending}\nprint('ended by itself')"],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.strip()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_service_that_is_told_to_stop_ends_by_itself(name: str) -> None:
    assert service(f"asyncio.run(told({name!r}))") == (0, "ended by itself")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_that_comes_again_while_a_service_ends_does_not_interrupt_it(name: str) -> None:
    assert service(f"asyncio.run(told_while_it_ends({name!r}))") == (0, "ended by itself")


def test_after_a_service_that_ended_without_a_signal_the_process_is_stopped_by_one() -> None:
    assert service("asyncio.run(not_told(''))\nsend('SIGTERM')") == (-signal.SIGTERM, "")


# --- work that ends together ----------------------------------------------------------------------------------


class Works:
    """Coroutines, and which of them were cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    async def endless(self, name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise

    async def fails(self) -> None:
        raise LookupError

    async def ends(self) -> None:
        """Do nothing."""


def test_when_one_work_ends_the_others_are_cancelled() -> None:
    works = Works()
    run_virtually(first_to_end(works.endless("first"), works.ends(), works.endless("last")))
    assert sorted(works.cancelled) == ["first", "last"]


def test_the_error_of_the_work_that_ends_first_is_raised_and_the_others_are_cancelled() -> None:
    works = Works()
    with pytest.raises(LookupError):
        run_virtually(first_to_end(works.endless("first"), works.fails()))
    assert works.cancelled == ["first"]


async def after_a_cancellation(lost: Callable[[], Awaitable[object]]) -> bool:
    """Return whether a task ends cancelled that is cancelled in the midst of what loses it."""

    async def work() -> None:
        await lost()
        raise_if_cancelled()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


def test_a_cancellation_that_a_library_answers_with_a_result_ends_the_task_all_the_same() -> None:
    async def loses_it() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    assert run_virtually(after_a_cancellation(loses_it))


def test_a_task_that_nobody_cancels_goes_on() -> None:
    async def work() -> str:
        raise_if_cancelled(LookupError())
        return "went on"

    assert run_virtually(work()) == "went on"


# --- work after the signal ------------------------------------------------------------------------------------


def test_work_that_ends_before_the_signal_leaves_nothing_that_waits_for_it() -> None:
    async def main() -> tuple[bool, int]:
        done = await within(10, Works().ends(), asyncio.Event())
        await asyncio.sleep(0)
        return done, len(asyncio.all_tasks())

    assert run_virtually(main()) == (True, 1)


def test_an_error_of_work_is_raised_whether_the_signal_has_come_or_not() -> None:
    for told in (False, True):
        stop = asyncio.Event()
        if told:
            stop.set()
        with pytest.raises(LookupError):
            run_virtually(within(10, Works().fails(), stop))


@pytest.mark.parametrize(("needs", "done"), [(9.0, True), (11.0, False)])
def test_after_the_signal_work_has_its_time_and_no_more(needs: float, done: bool) -> None:
    async def main() -> tuple[bool, float]:
        stop, begun = asyncio.Event(), virtual_loop().time()
        stop.set()
        return await within(10, asyncio.sleep(needs), stop), virtual_loop().time() - begun

    assert run_virtually(main()) == (done, min(needs, 10.0))
