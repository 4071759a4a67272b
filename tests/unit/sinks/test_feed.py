"""What a sink is fed with: at first what is present, then each release once, and on from where it was saved."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from connectors.sinks import feed
from connectors.sinks.feed import deliver_releases
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.order import Release
from tests.support.released_store import count, give


class Fed:
    """A sink that records what it begins with, and what it is given, each as release and value."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.begun: list[tuple[str, int]] = []
        self.given: list[tuple[str, int]] = []

    async def begin(self, record: Release) -> None:
        self.begun.append(_seen(record))

    async def deliver(self, record: Release) -> None:
        self.given.append(_seen(record))

    async def feed(self, *, from_start: bool = False) -> None:
        cursor, begin = Cursor(self._folder / "cursor"), None if from_start else self.begin
        source: Any = {"store": self._folder / "store", "audience": "public"}
        await deliver_releases(source, cursor, self.deliver, begin, until_end=True)


def _seen(record: Release) -> tuple[str, int]:
    return f"{record['site']}/{record['release']}", record["values"]["a"]


async def test_a_new_sink_begins_with_the_newest_count_of_each_site_and_release(tmp_path: Path) -> None:
    """A window that was released late is not the present, and neither is a revised one."""
    give(tmp_path / "store", [
        count(1, {"a": 1}), count(2, {"a": 2}), count(2, {"a": 22}, site="west"), count(2, {"a": 222}, release="other"),
        count(3, {"a": 9}, release="revised") | {"revises": "dbh/occupancy/public/x", "lag": 1}, count(-5, {"a": 7}),
    ])  # fmt: skip
    sink = Fed(tmp_path)
    await sink.feed()
    assert sorted(sink.begun) == [("dbh/occupancy", 2), ("dbh/other", 222), ("west/occupancy", 22)]
    assert sink.given == []
    give(tmp_path / "store", [count(3, {"a": 3})])
    again = Fed(tmp_path)
    await again.feed()
    assert (again.begun, again.given) == ([], [("dbh/occupancy", 3)])


async def test_a_sink_that_begins_at_the_start_is_given_every_release_once(tmp_path: Path) -> None:
    give(tmp_path / "store", [count(n, {"a": n}) for n in (1, 2)])
    sink = Fed(tmp_path)
    for _ in range(2):
        await sink.feed(from_start=True)
    assert sink.given == [("dbh/occupancy", 1), ("dbh/occupancy", 2)]


async def test_a_cursor_is_saved_while_releases_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "SAVE_EVERY", 0.0)
    give(tmp_path / "store", [count(1, {"a": 1})])
    saved = []

    async def deliver(record: Release) -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        saved.append((tmp_path / "cursor").exists())

    source: Any = {"store": tmp_path / "store", "audience": "public"}
    await deliver_releases(source, Cursor(tmp_path / "cursor"), deliver, None, until_end=True)
    assert saved == [True]
