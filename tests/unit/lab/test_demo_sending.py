"""The demo's controller waits for a slow receiver; a busy machine loses nothing, or the demo says what.

Nothing here depends on how fast the machine is: receivers are as slow as they are told to be, or have a fault.
"""

from __future__ import annotations

import json
import re
import socket
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.cli import demo
from connectors.cli.demo import Demo, missing
from connectors.cli.options import read_policy
from connectors.lab.simulation import policy as simulation_policy
from connectors.lab.simulation import trap_playback
from connectors.lab.simulation.policy import policy_text
from connectors.sources.ingest import receiver
from connectors.sources.ingest.queue import ROOM, Counters
from connectors.storage.embedded.reader import read_outbox
from connectors.storage.embedded.runner import FileSink
from stream.errors import DataError
from stream.lab.simulator.events import Simulation, SimulatorConfig, simulate
from stream.records import Heartbeat
from stream.release.validation import load_policy
from stream.schemas import parse_record
from tests.acceptance.command_line import run

TRAPS = 3 * trap_playback.MOST_QUEUED
FAST = 1e9
"""Times real time: every trap is due at once."""
SMALL = SimulatorConfig(seed=1, zones=4, scale=0.3)
WINDOWS = 288


class SlowReceiver:
    """Queues all that has arrived each time it is looked at, and works off some of it when the sender waits."""

    def __init__(self, steps: int = TRAPS) -> None:
        """``steps``: how often it works before it does nothing any more."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.address = self._socket.getsockname()
        self._counters, self.appended, self._steps = Counters(), 0, steps
        self.most = 0
        """The most that ever waited in the queue."""

    @property
    def counters(self) -> Counters:
        while True:
            try:
                self._socket.recv(64)
            except BlockingIOError:
                break
            self._counters.datagrams += 1
            self._counters.waiting += 1
        self.most = max(self.most, self._counters.waiting)
        return self._counters

    @property
    def idle(self) -> bool:
        return self._counters.waiting == 0

    def work(self) -> None:
        if self._steps > 0:
            self._steps -= 1
            self._counters.waiting = max(0, self._counters.waiting - 1000)

    def close(self) -> None:
        self._socket.close()


class Day:
    """A day whose traps are all due at once."""

    simulation = SimpleNamespace(start=0)

    def __iter__(self) -> Any:
        return (SimpleNamespace(time=0, data=b"trap") for _ in range(TRAPS))


async def played(slow: Any, patience: float = trap_playback.STALL_SECONDS) -> int:
    playing = trap_playback.TrapPlayback(Day(), slow, FAST, slow.work, patience)  # type: ignore[arg-type]
    await playing.run()
    return playing.sent


async def test_no_more_traps_are_sent_than_a_slow_receiver_has_room_for() -> None:
    with closing(SlowReceiver()) as slow:
        assert await played(slow) == TRAPS
        assert slow.most <= trap_playback.MOST_QUEUED + trap_playback.MOST_IN_FLIGHT < ROOM


async def test_the_controller_is_done_when_all_has_been_taken_in_and_not_when_all_has_been_sent() -> None:
    with closing(SlowReceiver()) as slow:
        await played(slow)
        assert (slow.counters.datagrams, slow.counters.waiting) == (TRAPS, 0)


async def test_a_receiver_in_which_nothing_moves_any_more_is_given_up() -> None:
    with closing(SlowReceiver(steps=5)) as slow:
        assert await played(slow, 0.1) < TRAPS


# --- the demo itself, on a small building ------------------------------------------------------------------------


def plain_policy(simulation: Simulation) -> str:
    """Return the demo's policy with the plainest of mechanisms, which take the least time."""
    text = policy_text(simulation).replace('mechanism = "filter"', 'mechanism = "plain"')
    return text.replace('mechanism = "pegasus"', 'mechanism = "laplace"').replace('smoother = "median"\n', "")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play a building of four zones, with a receiver that takes in nothing more once it is told to stop."""
    monkeypatch.setattr(demo, "DAY_SHOWN", SMALL)
    monkeypatch.setattr(simulation_policy, "policy_text", plain_policy)
    monkeypatch.setattr(receiver, "LAST", 0)


def demonstrated(folder: Path, *options: str) -> Any:
    return run("demo", "--dir", folder, "--speed", "5000", "--no-serve", *options)


def test_nothing_is_lost_by_a_receiver_that_is_told_to_stop_when_all_has_been_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every trap is due at once, so that the controller is done long before the receiver."""
    monkeypatch.setattr(trap_playback, "SECOND", FAST * 1e6)
    folder = tmp_path / "d"
    report = demonstrated(folder, "--json").answer
    assert report["missing"] == []
    assert set(report["traps"]["dropped"]) <= {"collapsed"}
    assert report["traps"]["sent"] == report["traps"]["received"] > 1000
    assert all(WINDOWS <= row["released"] <= WINDOWS + 4 for row in report["counts"].values())
    policy, boxes = read_policy(folder / "policy.toml"), dict[str, list[Any]]()
    for audience in ("facilities", "public"):
        boxes[audience] = [parse_record(value) for _, value in read_outbox(folder / "store", audience, 0)]
    offices = sum(zone.kind == "office" for zone in policy.site["dbh"].zones)
    for audience, records in boxes.items():
        counts = report["counts"][audience]
        assert counts["released"] + counts["refused"] == sum("values" in record for record in records)
        for days in report["attributes"][audience].values():
            assert days["shown"] + days["not_shown"] == offices, "an office's day is shown or not"


class LosingSink(FileSink):
    """A fault: from some heartbeat on, nothing that closes a window arrives."""

    beats = 0

    async def append(self, message: Any) -> None:
        """Take a message, or lose it."""
        LosingSink.beats += isinstance(message, Heartbeat)
        if LosingSink.beats < 4000 or not isinstance(message, Heartbeat):
            await super().append(message)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_day_that_is_not_whole_says_what_is_missing_ends_with_1_and_concludes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.setattr(LosingSink, "beats", 0)
    monkeypatch.setattr(demo, "FileSink", LosingSink)
    monkeypatch.setattr(trap_playback, "SECOND", FAST * 1e6)
    monkeypatch.setattr(demo, "serve_here", lambda _: pytest.fail("part of a day must not be served"))
    done = run("demo", "--dir", tmp_path / "d", "--speed", "5000", "--serve", *(["--json"] if as_json else []))
    assert done.code == 1
    if as_json:
        report = json.loads(done.out)
        assert report.keys() == {"traps", "windows", "missing"}
        assert report["windows"] < WINDOWS
        assert report["missing"] == [f"{report['windows']} of 288 windows were released"]
    else:
        assert "of 288 windows were released" in done.out
        for concluded in ("mean", "error", "epsilon", "shown"):
            assert concluded not in done.out


class FailingSink(FileSink):
    """A fault: the disk is full."""

    async def append(self, message: Any) -> None:
        """Take nothing."""
        raise DataError("the disk is full")


def test_a_receiver_that_fails_ends_the_demo_with_its_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "FileSink", FailingSink)
    done = demonstrated(tmp_path / "d")
    assert done.code != 0
    assert "the disk is full" in done.problem


@pytest.mark.parametrize(
    ("counters", "traps", "says"),
    [
        (Counters(datagrams=9, accepted=9), 10, "1 of 10 traps were not sent"),
        (Counters(datagrams=8, accepted=8, kernel_drops=1), 9, "1 of 9 traps that were sent were not received"),
        (Counters(datagrams=9, accepted=2, dropped={"stopping": 7}), 9, ".* traps were dropped .stopping."),
        (Counters(datagrams=9, accepted=5, waiting=4), 9, "4 received traps were not processed"),
    ],
)  # fmt: skip
def test_whatever_is_missing_is_said(counters: Counters, traps: int, says: str) -> None:
    policy = load_policy(policy_text(simulate(SMALL)), "p")
    (output,) = missing(Demo(Path(), policy, counters, traps, min(traps, 9), {"collapsed"}), WINDOWS)
    assert re.match(says, output)


def test_of_a_whole_day_nothing_is_missing() -> None:
    policy = load_policy(policy_text(simulate(SMALL)), "p")
    counters = Counters(datagrams=9, accepted=7, dropped={"collapsed": 2, "stopping": 0})
    assert list(missing(Demo(Path(), policy, counters, 9, 9, {"collapsed"}), WINDOWS)) == []
