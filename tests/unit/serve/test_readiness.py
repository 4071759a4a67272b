"""When the service of releases is ready: its outboxes exist and its history has answered lately."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectors.monitoring.monitor import Health
from connectors.serve import readiness
from connectors.serve.readiness import ANSWER_VALID_SECONDS, ServiceWatch
from stream.records import SECOND


class FakeMonitor:
    def __init__(self, now: Callable[[], float]) -> None:
        self.health, self.shown = Health(now), dict[Any, float]()
        self.metrics = SimpleNamespace(only=lambda _, values: self.shown.update(values))


class Watched:
    """A watch whose clock, history and brokers a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Path | None, kafka: str | None = None) -> None:
        self.now, self.ends, self.outage = 1000.0, {("public", "dbh"): 5 * SECOND}, None
        monkeypatch.setattr(readiness, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.monitor = cast(Any, FakeMonitor(lambda: self.now))
        history = SimpleNamespace(newest_end=lambda audience, site: self.ends.get((audience, site)))
        service: Any = SimpleNamespace(history=history, outage_seconds=lambda: self.outage)
        config: Any = SimpleNamespace(
            store=store, kafka=kafka, audiences=("public", "board"),
            policy=SimpleNamespace(site={"dbh": None, "lib": None}),
        )  # fmt: skip
        self.watch = ServiceWatch(self.monitor, config, service)

    def poll(self) -> None:
        """Query the history once."""

        async def once() -> None:
            task = asyncio.create_task(self.watch.poll())
            for _ in range(200):
                await asyncio.sleep(0.001)
                if task.done() or self.answered:
                    break
            task.cancel()

        self.answered = False
        before = self.watch._ends

        def ends() -> dict[Any, float]:
            try:
                return before()
            finally:
                self.answered = True

        self.watch._ends = ends  # type: ignore[method-assign]
        asyncio.run(once())
        self.watch._ends = before  # type: ignore[method-assign]

    def checks(self) -> dict[str, bool]:
        self.monitor.health.check()
        return dict(self.monitor.health.checks())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "private").mkdir()
    for audience in ("public", "board"):
        (tmp_path / "private" / f"{audience}.sqlite").touch()
    return tmp_path


def test_no_service_is_ready_before_its_history_has_answered(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Watched(monkeypatch, store).checks() == {"history": False, "outboxes": True}


def test_every_audience_needs_its_outbox(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store / "private" / "board.sqlite").unlink()
    assert not Watched(monkeypatch, store).checks()["outboxes"]


def test_an_answer_is_worth_something_for_a_while(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, store)
    watched.poll()
    assert watched.checks()["history"]
    watched.now += ANSWER_VALID_SECONDS - 0.1
    assert watched.checks()["history"]
    watched.now += 0.2
    assert not watched.checks()["history"]


def test_a_history_that_fails_is_no_answer(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, store)
    watched.ends = None  # type: ignore[assignment]
    watched.poll()
    assert not watched.checks()["history"]


def test_the_newest_window_of_each_site_is_shown(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, store)
    watched.ends |= {("board", "dbh"): 9 * SECOND}
    watched.poll()
    assert watched.monitor.shown == {("dbh",): 9.0}, "of any audience; none of a site without records"


def test_brokers_that_are_away_are_shown_and_the_service_stays_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, None, "broker:9092")
    watched.poll()
    watched.outage = 7.0  # type: ignore[assignment]
    assert watched.checks() == {"history": True, "broker": False}
    assert watched.monitor.health.is_ready()
