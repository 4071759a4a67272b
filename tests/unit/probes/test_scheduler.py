"""The probe scheduler: what is logged of a source, and when its trap path is verified."""

from __future__ import annotations

import structlog

from connectors.sources.probes.methods import ProbeAnswer
from connectors.sources.probes.scheduler import EVERY, ProbeScheduler, TrapPath
from stream.records import MINUTE, Micros
from tests.support.receivers import Hands

PAIR = ("dbh", "10.2.0.5")


class Answers:
    """A method that returns prepared answers."""

    def __init__(self, *answers: ProbeAnswer | None) -> None:
        self._answers = list(answers)

    async def probe(self) -> ProbeAnswer | None:
        return self._answers.pop(0)


async def test_each_result_is_reported_and_only_changes_are_logged() -> None:
    results: list[tuple[Micros, bool]] = []
    method = Answers(None, None, ProbeAnswer(), ProbeAnswer(), None)
    scheduler = ProbeScheduler({PAIR: method}, Hands(), lambda _, at, *, answered: results.append((at, answered)))
    with structlog.testing.capture_logs() as lines:
        for minute in range(5):
            await scheduler.probe_all(minute * MINUTE)
    assert results == [(0, False), (MINUTE, False), (2 * MINUTE, True), (3 * MINUTE, True), (4 * MINUTE, False)]
    assert [line["event"] for line in lines] == ["source_silent", "source_answers", "source_silent"]


async def test_a_falling_uptime_is_logged_as_a_restart() -> None:
    method = Answers(ProbeAnswer(100_000), None, ProbeAnswer(6_000), ProbeAnswer(12_000))
    scheduler = ProbeScheduler({PAIR: method}, Hands(), lambda *_, answered: None)
    with structlog.testing.capture_logs() as lines:
        for minute in range(4):
            await scheduler.probe_all(minute * MINUTE)
    assert [line["event"] for line in lines] == ["source_silent", "source_answers", "source_restarted"]


async def test_a_trap_path_is_provoked_on_the_hour_and_checked_a_minute_later() -> None:
    provoked: list[None] = []
    reported: list[Micros | None] = [None]

    async def provoke() -> None:
        provoked.append(None)

    path = TrapPath(provoke, lambda: reported[0])
    assert await path.step(EVERY - MINUTE) is None, "nothing was provoked"
    for last, proven in [(None, False), (EVERY - 1, False), (EVERY, True), (EVERY + MINUTE, True)]:
        assert await path.step(EVERY) is None
        reported[0] = last
        assert await path.step(EVERY + MINUTE) is proven
        assert await path.step(EVERY + 2 * MINUTE) is None
    assert await path.step(EVERY) is None
    assert await path.step(EVERY + 2 * MINUTE) is None, "a skipped minute proves nothing"
    assert len(provoked) == 5


async def test_a_lost_trap_path_is_logged_once_and_so_is_its_return() -> None:
    reported: list[Micros | None] = [None]

    async def provoke() -> None:
        pass

    hours = 4
    method = Answers(*[ProbeAnswer()] * (2 * hours))
    scheduler = ProbeScheduler(
        {PAIR: method}, Hands(), lambda *_, answered: None, {PAIR: TrapPath(provoke, lambda: reported[0])}
    )
    with structlog.testing.capture_logs() as lines:
        for hour in range(1, hours + 1):
            await scheduler.probe_all(hour * EVERY)
            reported[0] = hour * EVERY if hour > 2 else None
            await scheduler.probe_all(hour * EVERY + MINUTE)
    assert [line["event"] for line in lines] == ["trap_way_lost", "trap_way_found"]
