"""Which sources and starts a subscriber takes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from connectors.subscribe import subscriber
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.order import Mark
from connectors.subscribe.subscriber import releases, sites, subscribe
from stream.errors import UsageError

RECORDS = [{"release": "a", "n": 1}, {"release": "b", "n": 2}, Mark.CAUGHT_UP, {"release": "a", "n": 3}]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """How the outbox is read; it has two records, and a third one comes."""
    found: list[dict[str, Any]] = []

    async def outbox(store: Path, audience: str, release: str | None, *, whole: bool, cursor: Any) -> Any:
        found.append({"audience": audience, "release": release, "whole": whole})
        for record in RECORDS:
            yield record

    monkeypatch.setattr(subscriber, "from_outbox", outbox)
    return found


@pytest.mark.parametrize(
    "homes", [{}, {"store": Path("s"), "kafka": "b:9092"}, {"kafka": "b:9092", "url": "https://x"}]
)
def test_one_source_is_given(homes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="either a store, Kafka's bootstrap servers or the URL"):
        list(releases(audience="public", **homes))


def test_a_start_is_set_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cursor: must not be given with after"):
        list(releases(audience="public", store=tmp_path, after="s/r/public/x", cursor=Cursor(tmp_path / "c")))


def test_one_release_is_picked_and_the_end_is_that_of_now(asked: list[dict[str, Any]]) -> None:
    def given(**more: Any) -> list[int]:
        return [record["n"] for record in releases(audience="public", store=Path("s"), **more)]

    assert given() == [1, 2, 3]
    assert given(until_end=True) == [1, 2]
    assert given(release="a", until_end=True) == [1]
    assert given(release="a") == [1, 3]


def test_records_that_exist_are_read_only_where_a_start_is_given(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    for more in ({}, {"from_start": True}, {"cursor": Cursor(tmp_path / "c")}):
        list(releases(audience="public", store=Path("s"), **more))
    assert [call["whole"] for call in asked] == [False, True, True]


@pytest.mark.parametrize("call", [lambda: releases(audience="public"), lambda: sites(store=Path("s"))])
def test_within_an_event_loop_the_other_form_is_named(call: Any) -> None:
    async def within() -> None:
        call()

    with pytest.raises(UsageError, match="must be called outside of an event loop"):
        asyncio.run(within())


def test_a_subscription_that_is_left_closes_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    async def outbox(*_: Any, **__: Any) -> Any:
        try:
            for record in RECORDS:
                yield record
        finally:
            ended.append(True)

    monkeypatch.setattr(subscriber, "from_outbox", outbox)

    async def first() -> None:
        given = subscribe(audience="public", store=Path("s"))
        await anext(given)
        await given.aclose()

    asyncio.run(first())
    assert ended == [True]


def test_programs_without_an_event_loop_get_the_same_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read_metadata(**home: Any) -> dict[str, Any]:
        return {"hall": home}

    monkeypatch.setattr(subscriber, "read_metadata", read_metadata)
    found: dict[str, Any] = {**sites(store=Path("s"))}
    assert found == {"hall": {"store": Path("s")}}
