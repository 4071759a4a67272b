"""subscribe(url=…): a service's stream, continued by release id after a disconnection."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from connectors.subscribe import service
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.subscriber import subscribe
from stream.errors import UsageError

TOKEN = "not-a-secret-of-anybody"


class Server:
    """Gives one audience's records over HTTP as the service does, and breaks when it is told to."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.records: list[str] = []
        self.asked: list[str | None] = []
        self.chance = chance
        self.busy = 0
        self.url = ""

    async def stream(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"error": {"what": "token", "rule": "must be one that is known"}}, 401)
        if self.busy:
            self.busy -= 1
            return JSONResponse({"error": {"what": "stream", "rule": "one too many"}}, 503)
        after = request.query_params.get("after")
        self.asked.append(after)
        return StreamingResponse(self._events(after), media_type="text/event-stream")

    async def _events(self, after: str | None) -> AsyncIterator[str]:
        if after is None:
            after = self.records[-1] if self.records else "start"
        yield f": a comment\n\nevent: ready\nid: {after}\ndata: {{}}\n\n"
        at = 0 if after == "start" else self.records.index(after) + 1
        while True:
            for name in self.records[at:]:
                if self.chance is not None and self.chance.random() < 0.2:
                    yield (
                        'event: end\ndata: {"why":"stopping"}\n\n'
                        if self.chance.random() < 0.5
                        else f"event: release\nid: {name}"
                    )
                    return
                body = {"release_id": name, "site": name.split("/")[0], "release": "occupancy"}
                yield f"event: release\nid: {name}\ndata: {orjson.dumps(body).decode()}\n\n"
                at += 1
            yield ":\n\n"
            await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    app = Starlette(routes=[Route("/api/v1/stream", server.stream)])
    running = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
    task = asyncio.create_task(running.serve())
    while not running.started:
        await asyncio.sleep(0.01)
    server.url = f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        running.should_exit = running.force_exit = True
        await task


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_WAIT", 0.0)


def names(count: int, first: int = 0) -> list[str]:
    return [f"{site}/occupancy/public/{n}" for n in range(first, first + count) for site in ("east", "west")]


async def read(server: Server, most: int | None = None, **options: Any) -> list[str]:
    found: list[str] = []
    async with aclosing(subscribe(url=server.url, token=TOKEN, audience="public", **options)) as records:
        async for record in records:
            found.append(record["release_id"])
            if len(found) == most:
                break
    return found


async def test_a_stream_is_read_from_its_start_to_what_was_there(tmp_path: Path) -> None:
    async with serving(Server()) as server:
        assert await read(server, from_start=True, until_end=True) == []
        server.records = names(5)
        assert await read(server, from_start=True, until_end=True) == names(5)
        assert await read(server, after=names(5)[6], until_end=True) == names(5)[7:]
        assert await read(server, until_end=True) == [], "without a beginning: what comes next"


async def test_without_a_beginning_comes_what_is_released_from_now_on() -> None:
    async with serving(Server()) as server:
        server.records = names(3)
        reading = asyncio.create_task(read(server, most=4))
        while len(server.asked) < 2:
            await asyncio.sleep(0.01)
        server.records += names(2, first=3)
        assert await reading == names(2, first=3)


async def test_a_stream_that_breaks_again_and_again_is_read_once_whole() -> None:
    async with serving(Server(random.Random(3))) as server:
        server.records, server.busy = names(100), 3
        assert await read(server, from_start=True, until_end=True) == names(100)
        assert len(server.asked) > 20, "it broke"


async def test_a_reader_that_is_killed_thirty_times_has_every_release_once_by_its_id(tmp_path: Path) -> None:
    chance, seen = random.Random(5), list[str]()
    async with serving(Server(chance)) as server:
        for life in range(30):
            server.records += names(1, first=life)
            cursor = Cursor(tmp_path / "cursor")
            most = chance.randint(1, 5)
            came = await read(server, most, cursor=cursor, until_end=True)
            seen += came[:-1] if len(came) == most else came
            cursor.save()
        seen += await read(server, cursor=Cursor(tmp_path / "cursor"), until_end=True)
    assert seen == names(30)


async def test_a_service_that_does_not_know_the_token_is_one_error_that_does_not_show_it() -> None:
    async with serving(Server()) as server:
        with pytest.raises(
            UsageError, match=r"serves audience public, got 401, token: must be one that is known"
        ) as reported:
            [record async for record in subscribe(url=server.url, token="wrong-token", audience="public")]
    assert "wrong-token" not in str(reported.value)


@pytest.mark.parametrize("url", ["occupancy.example.org", "ftp://example.org", "http://", ""])
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="url: must be an address"):
        [record async for record in subscribe(url=url, audience="public")]


async def test_a_token_is_not_sent_in_the_clear_to_another_machine() -> None:
    with pytest.raises(UsageError, match="url: must begin with https"):
        [record async for record in subscribe(url="http://192.0.2.1:8050", token=TOKEN, audience="public")]


async def test_an_answer_other_than_200_is_no_metadata() -> None:
    async with serving(Server()) as server:
        with pytest.raises(
            UsageError, match="url: must be a service that answers, got 401, token: must be one that is"
        ):
            await service.read_json(server.url, "wrong-token", service.STREAM)


async def test_without_its_library_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(UsageError, match="url: needs httpx"):
        await service.read_json("http://127.0.0.1:9", None, service.STREAM)
