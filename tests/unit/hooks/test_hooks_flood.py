"""Floods at the door of ``tacet hooks``: what is hostile costs little, and an honest webhook is answered meanwhile."""

from __future__ import annotations

import asyncio
import gc
import select
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import orjson
import pytest
from starlette.types import Message

from connectors.http import limits, server
from connectors.http.limits import AllowedHosts, Bodies, ConnectionLimiter, RequestLimits
from connectors.http.responses import RefusalError
from connectors.sources.cloud import service as hooks_app
from connectors.sources.cloud import verification
from connectors.sources.cloud.decoders import SIGNATURE
from connectors.sources.cloud.processor import ReplayCache, WebhookProcessor
from connectors.sources.cloud.service import ALL_BODIES, LARGEST_BODY, MOST_CONNECTIONS, UNKNOWN_HOOK, application
from connectors.sources.cloud.verification import BAD_SECRET, BAD_SIGNATURE, DEEPEST, MOST_ELEMENTS, TOO_COMPLEX
from tests.support.patience import until
from tests.unit.hooks.cloud_requests import SECRET, hook, now, octets, scanned, signature

PIECE, PIECES, ROOM = 1 << 10, 8, 64 << 10
KNOWN = {"mist": hook("mist"), "meraki": hook("meraki")}


class Kept:
    """An ingest that keeps everything."""

    async def hand_over(self, source: str, rows: object) -> bool:
        return True


@pytest.fixture
async def processor(tmp_path: Path) -> AsyncIterator[WebhookProcessor]:
    replays = ReplayCache(tmp_path / "state")
    yield WebhookProcessor(Kept(), replays, now)
    replays.close()


def guard_of(processor: WebhookProcessor) -> RequestLimits:
    return application(KNOWN.get, processor, AllowedHosts.of((), 80, "http"), now, set())


def client_of(processor: WebhookProcessor) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(guard_of(processor)), base_url="http://localhost")


async def silent() -> Message:
    return await asyncio.Future()


def most_of_a_body() -> Callable[[], Awaitable[Message]]:
    """Return what gives all of a large body but its last octet, and then nothing."""
    left = [PIECE] * (PIECES - 1) + [PIECE - 1]

    async def receive() -> Message:
        await asyncio.sleep(0)
        if not left:
            await silent()
        return {"type": "http.request", "body": bytes(left.pop(0)), "more_body": True}

    return receive


async def read(bodies: Bodies, receive: Callable[[], Awaitable[Message]], client: str) -> int:
    async with bodies.read(receive, client) as body:
        return len(body)


async def test_bodies_that_never_end_stay_within_a_budget_and_an_honest_one_gets_through() -> None:
    bodies, most = Bodies(PIECES * PIECE, ROOM), 0
    hostile = [asyncio.create_task(read(bodies, most_of_a_body(), "hostile")) for _ in range(300)]
    for _ in range(2 * PIECES):
        await asyncio.sleep(0)
        most = max(most, bodies.used)

    async def honest() -> Message:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": bytes(PIECE), "more_body": False}

    assert await read(bodies, honest, "honest") == PIECE
    for _ in range(4 * PIECES):
        await asyncio.sleep(0)
        most = max(most, bodies.used)
    unfinished = [task for task in hostile if not task.done()]
    assert ROOM // 2 < most <= ROOM + PIECE
    assert len(unfinished) <= ROOM // (PIECES * PIECE - 1)
    evicted = [task.exception() for task in hostile if task.done()]
    assert {each.status for each in evicted if isinstance(each, RefusalError)} == {503}
    for task in unfinished:
        task.cancel()
    await asyncio.gather(*hostile, return_exceptions=True)
    assert bodies.used == 0


async def test_a_body_waits_while_all_others_are_complete_and_not_yet_answered() -> None:
    bodies, answered = Bodies(PIECE, PIECE), asyncio.Event()

    def whole() -> Callable[[], Awaitable[Message]]:
        async def receive() -> Message:
            return {"type": "http.request", "body": bytes(PIECE), "more_body": False}

        return receive

    async def answering() -> None:
        async with bodies.read(whole(), "one"):
            await answered.wait()

    first = asyncio.create_task(answering())
    await until(lambda: bodies.used == PIECE)
    second = asyncio.create_task(read(bodies, whole(), "another"))
    await until(lambda: bodies.used > PIECE)
    assert not second.done()
    answered.set()
    assert await second == PIECE
    await first


async def test_a_body_that_is_slow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_WITHIN", 0.05)
    bodies = Bodies(LARGEST_BODY, ALL_BODIES)
    with pytest.raises(RefusalError) as refused:
        await read(bodies, most_of_a_body(), "slow")
    assert (refused.value.status, bodies.used) == (408, 0)


async def answer_to(guard: RequestLimits, method: str, path: str, headers: dict[str, str]) -> int:
    """Return the status of the answer to a head whose body never comes."""
    reported: list[Message] = []

    async def send(message: Message) -> None:
        reported.append(message)

    lines = [(name.encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()]
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": lines, "client": ("192.0.2.1", 4000), "server": ("127.0.0.1", 80),
        "scheme": "http",
    }  # fmt: skip
    async with asyncio.timeout(300):
        await guard(scope, silent, send)
    assert (b"connection", b"close") in reported[0]["headers"]
    return int(reported[0]["status"])


@pytest.mark.parametrize(
    ("method", "path", "given", "status", "reasons"),
    [
        ("POST", "/hooks/other", None, 404, {UNKNOWN_HOOK: 1}),
        ("POST", "/", None, 404, {UNKNOWN_HOOK: 1}),
        ("PUT", "/hooks/mist", "ab" * 32, 405, {}),
        ("GET", "/hooks/meraki", None, 200, {}),
        ("POST", "/hooks/mist", None, 401, {BAD_SIGNATURE: 1}),
        ("POST", "/hooks/mist", "ab" * 31, 401, {BAD_SIGNATURE: 1}),
        ("POST", "/hooks/mist", "xy" * 32, 401, {BAD_SIGNATURE: 1}),
    ],
)
async def test_a_request_with_an_invalid_head_is_answered_before_its_body(
    processor: WebhookProcessor, method: str, path: str, given: str | None, status: int, reasons: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(limits, "BODY_WITHIN", 0.05)  # who reads the body first answers 408
    headers = {"content-length": "2000000"} | ({} if given is None else {SIGNATURE: given})
    assert await answer_to(guard_of(processor), method, path, headers) == status
    assert dict(processor.counts.refused) == reasons


def hostile_body() -> bytes:
    """A body of empty lists, which is costly to parse."""
    return b'{"secret":"not-the-one","data":[' + b"[]," * (LARGEST_BODY // 3 - 20) + b"[]]}"


async def test_hostile_bodies_are_not_parsed_and_a_valid_one_among_them_is_accepted(
    processor: WebhookProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed, threads = list[int](), set[int]()

    def loads(octets: bytes) -> Any:
        parsed.append(len(octets))
        threads.add(threading.get_ident())
        return orjson.loads(octets)

    monkeypatch.setattr(verification, "orjson", SimpleNamespace(loads=loads, JSONDecodeError=orjson.JSONDecodeError))
    hostile, valid = hostile_body(), octets(scanned(now()))
    async with client_of(processor) as client:
        posts = [client.post("/hooks/meraki", content=hostile) for _ in range(28)]
        answers = await asyncio.gather(*posts, client.post("/hooks/meraki", content=valid))
    assert [answer.status_code for answer in answers] == [401] * 28 + [200]
    assert max(parsed) <= len(valid) < len(hostile)
    assert threads
    assert threading.get_ident() not in threads
    assert dict(processor.counts.refused) == {BAD_SECRET: 28}


async def test_requests_are_verified_one_at_a_time_and_their_peers_are_known_until_they_are_answered(
    processor: WebhookProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener closes no connection of a peer whose request is in progress."""
    peers, busy, running = [("192.0.2.1", port) for port in (4000, 4001, 4002)], set[limits.Peer](), 0
    seen = list[tuple[int, set[limits.Peer]]]()

    async def verified(*call: Any) -> verification.VerifiedRequest:
        nonlocal running
        running += 1
        for _ in range(100):  # the other requests come meanwhile
            await asyncio.sleep(0)
        seen.append((running, set(busy)))
        running -= 1
        return verification.verify(*call[1:])

    monkeypatch.setattr(hooks_app, "offload", verified)
    door = application(KNOWN.get, processor, AllowedHosts.of((), 80, "http"), now, busy)

    async def post(peer: limits.Peer) -> int:
        transport = httpx.ASGITransport(door, client=peer)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.post("/hooks/meraki", content=octets(scanned(now() - peer[1])))).status_code

    assert await asyncio.gather(*map(post, peers)) == [200] * 3
    assert seen == [(1, set(peers[done:])) for done in range(3)]
    assert busy == set()


def nested(depth: int) -> bytes:
    return b'{"secret":"' + SECRET + b'","data":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


async def test_a_genuine_document_has_limits_on_nesting_and_elements(processor: WebhookProcessor) -> None:
    many = b'{"secret":"' + SECRET + b'","data":[' + b"0," * MOST_ELEMENTS + b"0]}"
    signed = b"[" * 100_000
    async with client_of(processor) as client:
        for body, status in ((nested(DEEPEST), 200), (nested(DEEPEST + 1), 400), (many, 400)):
            assert (await client.post("/hooks/meraki", content=body)).status_code == status
        answer = await client.post("/hooks/mist", content=signed, headers={SIGNATURE: signature(signed)})
        assert answer.status_code == 400
    assert processor.counts.refused[TOO_COMPLEX] == 2


@pytest.mark.parametrize(
    "text",
    [
        '{"secret": "%s"}', '{"secret"\n:\t"%s"}', '{"name": "secret", "secret": "%s"}',
        '{"data": {"secret": "another-secret-of-octets"}, "secret": "%s"}',
    ],
)  # fmt: skip
def test_a_secret_is_found_wherever_json_may_have_it(text: str) -> None:
    body = (text % SECRET.decode()).encode()
    assert verification.verify(KNOWN["meraki"], body, None, now()).rows == ()


def test_a_secret_is_found_however_json_escapes_it() -> None:
    body = b'{"secret": "' + "".join(f"\\u{octet:04x}" for octet in SECRET).encode() + b'"}'
    assert verification.verify(KNOWN["meraki"], body, None, now()).rows == ()


@pytest.mark.parametrize(
    "body",
    [b'{"name": "%s"}' % SECRET, b'{"secret": "%s-and-more"}' % SECRET, b'{"secret": ["%s"]}' % SECRET,
     b'{"note": "\\"secret\\": \\"%s\\""}' % SECRET, b'{"secret": "' + b"a" * 5000 + b'"}', b'{"secret": "\\x"}'],
)  # fmt: skip
def test_a_secret_elsewhere_does_not_count(body: bytes) -> None:
    with pytest.raises(verification.RefusedError) as refused:
        verification.verify(KNOWN["meraki"], body, None, now())
    assert refused.value.reason == BAD_SECRET


def test_the_door_closes_a_connection_of_the_address_that_has_most() -> None:
    with ConnectionLimiter(socket.AF_INET, socket.SOCK_STREAM) as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        door.most = 3
        inside, outside = [], []
        for host in ("127.0.0.2", "127.0.0.1", "127.0.0.1", "127.0.0.1"):
            outside.append(socket.create_connection(door.getsockname(), timeout=300, source_address=(host, 0)))
            inside.append(door.accept()[0])
        closed, _, _ = select.select(outside, [], [], 300)
        assert [outside.index(each) for each in closed] == [1]
        assert outside[1].recv(1) == b""
        for each in (*inside, *outside):
            each.close()


async def test_a_connection_that_has_ended_leaves_nothing_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEAD_WITHIN", 3600.0)
    bound = server.listening("127.0.0.1", 0)
    made = server.server_of(lambda scope, receive, send: asyncio.sleep(0), None)
    serving = asyncio.create_task(made.serve([bound]))
    await until(lambda: made.started)
    for _ in range(5):
        _, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(b"GET / HTTP/1.1\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    def kept() -> int:
        gc.collect()
        return sum(isinstance(each, server._TimedProtocol) for each in gc.get_objects())

    await until(lambda: not kept())
    made.should_exit = True
    await serving
    bound.close()


def test_connections_and_bodies_fit_into_the_memory_of_a_container() -> None:
    assert MOST_CONNECTIONS * (1 << 20) + ALL_BODIES <= 96 << 20
    assert hooks_app.LARGEST_BODY <= ALL_BODIES
