"""An audience's releases from a ``tacet serve``, with reconnection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from connectors.storage.site_metadata import FloorEntry, SiteMetadata
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.order import Mark, Release
from stream.errors import OPTIONAL, TacetError, UsageError
from stream.records import JsonObject
from stream.schemas import parse_record

if TYPE_CHECKING:
    import httpx


STREAM = "/api/v1/stream"
START = "start"
"""Replaces a release id: before the first record."""
SILENCE = 60.0
"""Seconds without a heartbeat, of which there is one every 15 s, after which a connection is closed."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before reconnecting a broken stream, doubled each time that it yields nothing in between."""
OWN_MACHINE = frozenset({"127.0.0.1", "::1", "localhost"})
"""Hosts for which traffic does not leave the machine."""
_FOR_NOW = frozenset({429, 502, 503, 504})
"""Statuses that mean temporarily unavailable."""


class _BrokenError(TacetError):
    """The stream ended or is unavailable for now."""


class _Event(NamedTuple):
    """One server-sent event."""

    kind: str
    id: str
    data: str


async def from_service(
    url: str, audience: str, token: str | None, *, whole: bool, after: str | None, cursor: Cursor | None
) -> AsyncGenerator[Release | Mark, None]:
    """Yield the stream of the service: the stored releases, then ``CAUGHT_UP``, then new ones.

    ``whole`` starts at its first record, or after ``after``, or at the cursor; otherwise at the present end. A release
    that was yielded is requested again only if the reader did not return for the next one.
    """
    if cursor is not None:
        cursor.belong_to("url")
        after = cursor.last(audience)
    async with _client(url, token) as client:
        end = await _newest_with_retry(client, audience)
        last = (after or START) if whole else end
        if last == end:
            yield Mark.CAUGHT_UP
        async for event in _lasting(client, audience, last):
            yield parse_record(event.data.encode())
            if cursor is not None:
                cursor.pass_by(audience, event.id)
            if event.id == end:
                yield Mark.CAUGHT_UP


async def read_json(url: str, token: str | None, path: str) -> Any:
    """Return the service's JSON under a path; UsageError if it does not accept the token."""
    async with _client(url, token) as client:
        answer = await client.get(path)
        if answer.status_code != 200:
            msg = f"url: must be a service that answers, got {await _reason(answer)}"
            raise UsageError(msg)
        return answer.json()


async def _newest_with_retry(client: httpx.AsyncClient, audience: str) -> str:
    """Return the newest release of a service, START before the first; retries while the service is unavailable."""
    async with aclosing(_events_with_reconnect(client, audience, None)) as events:
        return (await anext(events)).id


async def _lasting(client: httpx.AsyncClient, audience: str, last: str) -> AsyncIterator[_Event]:
    async with aclosing(_events_with_reconnect(client, audience, last)) as events:
        async for event in events:
            if event.kind == "release":
                yield event


async def _events_with_reconnect(
    client: httpx.AsyncClient, audience: str, last: str | None
) -> AsyncGenerator[_Event, None]:
    """Yield a stream's events; after a break, reconnect and resume after the last release."""
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
        msg = f"url: needs httpx; {OPTIONAL}"
        raise UsageError(msg) from None
    _require_encryption(url, token)
    headers = {"Accept": "text/event-stream"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=httpx.Timeout(10.0, read=SILENCE))


def _require_encryption(url: str, token: str | None) -> None:
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
            msg = f"url: must be a service that serves audience {query['audience']}, got {await _reason(answer)}"
            raise UsageError(msg)
        async for event in _parsed(answer.aiter_lines()):
            if event.kind == "end":
                raise _BrokenError
            yield event


async def _reason(answer: httpx.Response) -> str:
    """Return the service's error message, or a general one."""
    try:
        error = json.loads(await answer.aread())["error"]
        return f"{answer.status_code}, {error['what']}: {error['rule']}"
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code}"


async def _parsed(lines: AsyncIterator[str]) -> AsyncIterator[_Event]:
    """Assemble lines into events; comment lines are heartbeats (HTML Living Standard, 9.2.6)."""
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


async def sites_of_service(url: str, token: str | None) -> dict[str, SiteMetadata]:
    """Return the metadata of each site that the service shows, by its name, in the form of the other sources."""
    answer = await read_json(url, token, "/api/v1/sites")
    return {site["site"]: _site(site) for site in answer["sites"]}


def _site(site: JsonObject) -> SiteMetadata:
    flat: SiteMetadata = {
        "v": 1,
        "site": site["site"],
        "name": site["name"],
        "timezone": site["timezone"],
        "tick_seconds": site["tick_seconds"],
        "zones": [zone for floor in site["floors"] for zone in floor["zones"]],
    }
    floors: list[FloorEntry] = [{"floor": floor["floor"], "name": floor["name"]} for floor in site["floors"]]
    if any(floor["name"] != floor["floor"] for floor in floors):
        flat["floors"] = floors
    return flat
