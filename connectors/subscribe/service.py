"""An audience's releases from a 'tacet serve': its stream of server-sent events, begun again where it broke."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from connectors.subscribing.cursor import Cursor
from connectors.subscribing.order import CAUGHT_UP, Release
from stream.errors import TacetError, UsageError
from stream.schemas import parse_record

if TYPE_CHECKING:
    import httpx

STREAM = "/api/v1/stream"
START = "start"
"""In the place of a release id: before the first record."""
SILENCE = 60.0
"""Seconds without even a heartbeat, of which there is one every 15 s, after which a connection is given up."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before a stream that broke is begun again: doubled each time that it gives nothing in between."""
OWN_MACHINE = frozenset({"127.0.0.1", "::1", "localhost"})
"""Hosts to which nothing that is sent leaves the machine."""
_FOR_NOW = frozenset({429, 502, 503, 504})
"""Answers that say: not now."""


class _BrokenError(TacetError):
    """The stream ended, or could not be had for now."""


class _Event(NamedTuple):
    """One server-sent event."""

    kind: str
    id: str
    data: str


async def from_service(
    url: str, audience: str, token: str | None, *, whole: bool, after: str | None, cursor: Cursor | None
) -> AsyncGenerator[Release | None, None]:
    """Yield what the service's stream gives: what is there, then CAUGHT_UP, then what comes.

    ``whole`` begins at the first record that it has, or behind ``after`` or where the cursor stands; else at the
    present end. A release that was yielded is asked for again only where the reader has not come back.
    """
    if cursor is not None:
        cursor.belong_to("url")
        after = cursor.last(audience)
    async with _client(url, token) as client:
        end = await _patiently(client, audience)
        last = (after or START) if whole else end
        if last == end:
            yield CAUGHT_UP
        async for event in _lasting(client, audience, last):
            yield parse_record(event.data.encode())
            if cursor is not None:
                cursor.pass_by(audience, event.id)
            if event.id == end:
                yield CAUGHT_UP


async def read_json(url: str, token: str | None, path: str) -> Any:
    """Return what a service answers under a path; UsageError where it does not let the token in."""
    async with _client(url, token) as client:
        answer = await client.get(path)
        if answer.status_code != 200:
            msg = f"url: must be a service that answers, got {await _reason(answer)}"
            raise UsageError(msg)
        return answer.json()


async def _patiently(client: httpx.AsyncClient, audience: str) -> str:
    """Return the release that a service was given last, START before the first; waits for one that is away."""
    async with aclosing(_events_again(client, audience, None)) as events:
        return (await anext(events)).id


async def _lasting(client: httpx.AsyncClient, audience: str, last: str) -> AsyncIterator[_Event]:
    async with aclosing(_events_again(client, audience, last)) as events:
        async for event in events:
            if event.kind == "release":
                yield event


async def _events_again(client: httpx.AsyncClient, audience: str, last: str | None) -> AsyncGenerator[_Event, None]:
    """Yield a stream's events, and where it breaks those of the one that goes on behind the last release."""
    import httpx  # noqa: PLC0415 - as in _client

    wait = FIRST_WAIT
    while True:
        query = {"audience": audience} | ({} if last is None else {"after": last})
        try:
            async with aclosing(_events(client, query)) as events:
                async for event in events:
                    yield event
                    last, wait = event.id, FIRST_WAIT
        except (httpx.TransportError, _BrokenError):
            pass
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)


def _client(url: str, token: str | None) -> httpx.AsyncClient:
    try:
        import httpx  # noqa: PLC0415 - only who reads from a service needs it
    except ImportError:
        msg = "url: needs httpx; install 'tacet-occupancy[http]'"
        raise UsageError(msg) from None
    _refuse_open_way(url, token)
    headers = {"Accept": "text/event-stream"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=httpx.Timeout(10.0, read=SILENCE))


def _refuse_open_way(url: str, token: str | None) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        msg = "url: must be an address such as https://occupancy.example.org"
        raise UsageError(msg)
    if token is not None and parts.scheme == "http" and parts.hostname not in OWN_MACHINE:
        msg = "url: must begin with https where a token is sent to another machine"
        raise UsageError(msg)


async def _events(client: httpx.AsyncClient, query: dict[str, str]) -> AsyncGenerator[_Event, None]:
    async with client.stream("GET", STREAM, params=query) as answer:
        if answer.status_code in _FOR_NOW:
            raise _BrokenError
        if answer.status_code != 200:
            msg = f"url: must be a service that gives audience {query['audience']}, got {await _reason(answer)}"
            raise UsageError(msg)
        async for event in _parsed(answer.aiter_lines()):
            if event.kind == "end":
                raise _BrokenError
            yield event


async def _reason(answer: httpx.Response) -> str:
    """Return what the service says of an error; no more than that it is one where it does not say."""
    try:
        error = json.loads(await answer.aread())["error"]
        return f"{answer.status_code}, {error['what']}: {error['rule']}"
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code}"


async def _parsed(lines: AsyncIterator[str]) -> AsyncIterator[_Event]:
    """Put lines together to events; lines of comment are heartbeats (HTML Living Standard, 9.2.6)."""
    fields: dict[str, str] = {}
    async for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line:
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and "data" in fields else value
        else:
            if "data" in fields or "event" in fields:
                yield _Event(fields.get("event", "message"), fields.get("id", ""), fields.get("data", ""))
            fields = {}
