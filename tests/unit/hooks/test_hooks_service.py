"""The service on loopback, with an ingest behind it: each request is taken once, or counted as what it is."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from connectors.sources.cloud.config import ReloadingHooks, read_hooks
from connectors.sources.cloud.decoders import SIGNATURE
from connectors.sources.cloud.processor import KEPT, REPLAYED, UNAVAILABLE, ReplayCache, WebhookProcessor
from connectors.sources.cloud.service import (
    UNKNOWN_HOOK,
    WebhookConfig,
    WebhookListener,
    WebhookService,
    check,
)
from connectors.sources.cloud.verification import BAD_SECRET, BAD_SIGNATURE, MALFORMED, OLD, OLDEST, VerifiedRequest
from connectors.sources.ingest_socket.listener import SPAN
from stream.errors import KeyFileError, UsageError
from stream.records import DAY, MINUTE, SECOND, Micros
from tests.support.patience import until, within_patience
from tests.support.receivers import Log
from tests.unit.hooks.cloud_requests import (
    FILE,
    OLD_SECRET,
    RADIO,
    SECRET,
    ingesting,
    join,
    now,
    octets,
    scanned,
    session,
    signature,
)


class Cloud:
    """A system of the cloud, and the service that it sends to."""

    def __init__(self, service: WebhookService, client: httpx.AsyncClient) -> None:
        self.service, self.client = service, client

    async def mist(self, document: object, secret: bytes = SECRET) -> int:
        body = octets(document)
        headers = {SIGNATURE: signature(body, secret)}
        return (await self.client.post("/hooks/mist", content=body, headers=headers)).status_code

    async def meraki(self, document: object) -> int:
        return (await self.client.post("/hooks/meraki", content=octets(document))).status_code

    def refused(self) -> dict[str, int]:
        assert self.service.counts.check()
        return dict(self.service.counts.refused)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Cloud]:
    path = folder / "hooks.toml"
    path.write_text(FILE)
    path.chmod(0o600)
    wanted = WebhookConfig(read_hooks(path), folder / "socket", folder / "state", WebhookListener(("127.0.0.1", 0)))
    service, stop, output = WebhookService(wanted), asyncio.Event(), list[str]()
    running = asyncio.create_task(service.run(stop, output.append))
    try:
        await until(lambda: bool(output) or running.done())
        base = output[0].rpartition("/hooks/")[0]
        async with httpx.AsyncClient(base_url=base, trust_env=False) as client:
            yield Cloud(service, client)
    finally:
        stop.set()
        await running


@asynccontextmanager
async def whole(folder: Path, sink: Log) -> AsyncIterator[Cloud]:
    """A service, and an ingest that it has found."""
    async with ingesting(folder / "socket", sink) as receiver, serving(folder) as cloud:
        await until(lambda: all(entrance.can_receive for entrance in receiver.listeners))
        yield cloud


async def test_sightings_are_durable_before_200(tmp_path: Path) -> None:
    sink = Log()
    async with whole(tmp_path, sink) as cloud:
        sink.gate.clear()
        sent = asyncio.create_task(cloud.mist(join(now())))
        await asyncio.sleep(0.5)
        early = sent.done()
        sink.gate.set()
        assert not early
        assert await sent == 200
        assert [row.access_point for row in sink.rows] == [RADIO]
        assert await cloud.meraki(scanned(now())) == 200
        assert len(sink.rows) == 2


async def test_a_request_that_is_not_genuine_is_refused_and_its_rows_are_not_counted(tmp_path: Path) -> None:
    sink = Log()
    async with whole(tmp_path, sink) as cloud:
        assert await cloud.mist(join(now()), b"another-secret-of-octets") == 401
        assert await cloud.meraki(scanned(now(), b"another-secret-of-octets")) == 401
        assert (await cloud.client.post("/hooks/mist", content=octets(join(now())))).status_code == 401
        assert (await cloud.client.post("/hooks/meraki", content=b"[")).status_code == 401
        assert (await cloud.client.post("/hooks/meraki", content=b'"secret":"' + SECRET + b'"')).status_code == 400
        assert (await cloud.client.post("/hooks/other", content=b"{}")).status_code == 404
        assert cloud.refused() == {BAD_SIGNATURE: 2, BAD_SECRET: 2, MALFORMED: 1, UNKNOWN_HOOK: 1}
    assert not sink.rows


async def test_a_copy_is_answered_and_counted_as_one_after_a_restart_too(tmp_path: Path) -> None:
    sink, first = Log(), now()
    mist, meraki = join(first), scanned(first)
    for copies in (1, 2):
        async with whole(tmp_path, sink) as cloud:
            assert {await cloud.mist(mist), await cloud.meraki(meraki)} == {200}
            assert {await cloud.mist(mist), await cloud.meraki(meraki)} == {200}
            assert cloud.refused() == {REPLAYED: 2 * copies}
    assert len(sink.rows) == 2


async def test_two_copies_at_once_are_one(tmp_path: Path) -> None:
    sink, body = Log(), join(now())
    async with whole(tmp_path, sink) as cloud:
        assert sorted(await asyncio.gather(*(cloud.mist(body) for _ in range(5))))[0] == 200
        assert cloud.refused() == {REPLAYED: 4}
    assert len(sink.rows) == 1


async def test_an_old_request_is_counted_as_old_and_answered(tmp_path: Path) -> None:
    sink = Log()
    async with whole(tmp_path, sink) as cloud:
        assert await cloud.mist(join(now() - OLDEST - 5 * SECOND)) == 200
        assert await cloud.meraki(scanned(now() - DAY)) == 200
        assert cloud.service.counts.dropped == {OLD: 2}
    assert not sink.rows


async def test_where_the_ingest_is_away_the_sender_keeps_what_it_has_and_may_send_it_again(tmp_path: Path) -> None:
    sink, body = Log(), join(now())
    async with serving(tmp_path) as cloud:
        assert await cloud.mist(body) == 503
        assert cloud.refused() == {UNAVAILABLE: 1}
        async with ingesting(tmp_path / "socket", sink) as receiver:
            await until(lambda: all(entrance.can_receive for entrance in receiver.listeners))
            assert await cloud.mist(body) == 200
            assert cloud.service.counts.taken == 1
    assert len(sink.rows) == 1


async def test_a_session_that_is_over_ends_the_stay_that_its_join_began(tmp_path: Path) -> None:
    sink, began = Log(), now()
    async with whole(tmp_path, sink) as cloud:
        assert await cloud.mist(join(began)) == 200
        assert await cloud.mist(session(now(), began)) == 200
    assert [row.access_point for row in sink.rows] == [RADIO, None]


async def test_only_meraki_gets_its_validator(tmp_path: Path) -> None:
    async with serving(tmp_path) as cloud:
        given = await cloud.client.get("/hooks/meraki")
        assert (given.status_code, given.text) == (200, "a-validator")
        assert (await cloud.client.get("/hooks/mist")).status_code == 405


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as cloud:
        body = b" " * (2 * 1024 * 1024 + 1)
        assert (await cloud.client.post("/hooks/meraki", content=body)).status_code == 413
        named = {"host": "another.example.org"}
        assert (await cloud.client.post("/hooks/meraki", content=b"{}", headers=named)).status_code == 400
        assert cloud.service.counts.requests == 0


def test_tags_outlive_what_they_stand_for_and_are_forgotten_then(tmp_path: Path) -> None:
    assert KEPT > OLDEST + SPAN // 6
    replays = ReplayCache(tmp_path / "state")
    replays.keep([b"one"], DAY)
    replays.keep([b"two"], DAY + KEPT)
    assert (replays.knows(b"one"), replays.knows(b"two")) == (True, True)
    replays.keep([b"three"], DAY + KEPT + 1)
    assert not replays.knows(b"one")
    with pytest.raises(KeyFileError, match="one process only"):
        ReplayCache(tmp_path / "state")
    replays.close()
    again = ReplayCache(tmp_path / "state")
    assert [again.knows(tag) for tag in (b"one", b"two", b"three")] == [False, True, True]
    again.close()


def test_a_state_of_something_else_is_refused_and_not_held(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE taken (something)")
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="must be the complete state of 'tacet hooks'"):
        ReplayCache(path)
    with closing(sqlite3.connect(path, timeout=0)) as other:
        assert other.execute("SELECT * FROM taken").fetchall() == []


class Taking:
    """An ingest that takes everything."""

    async def hand_over(self, source: str, rows: object) -> bool:
        return True


class Forgetful:
    """A memory of tags that cannot be written."""

    def knows(self, tag: bytes) -> bool:
        return False

    def keep(self, tags: Iterable[bytes], now: Micros) -> None:
        msg = "disk full"
        raise KeyFileError(msg)


async def test_where_tags_cannot_be_stored_the_service_ends_with_that_error() -> None:
    replays: Any = Forgetful()
    processor = WebhookProcessor(Taking(), replays, now)
    failed = asyncio.create_task(processor.failed())
    with pytest.raises(KeyFileError, match="disk full"):
        await processor.process("cloud:mist", [VerifiedRequest(b"tag", (), Counter())])
    with pytest.raises(KeyFileError, match="disk full"):
        await within_patience(failed, "the error")
    assert processor.counts.taken == 0


def test_a_state_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").touch(0o644)
    with pytest.raises(KeyFileError, match="readable by its owner only"):
        ReplayCache(tmp_path / "state")


async def test_nothing_of_anybody_lies_on_the_disk(tmp_path: Path) -> None:
    sink, body = Log(), join(now())
    async with whole(tmp_path, sink) as cloud:
        assert await cloud.mist(body) == 200
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name.startswith("state"))
    assert len(kept) > 0
    assert not any(
        parse_address in kept for parse_address in (b"3c0000000001", bytes.fromhex("3c0000000001"), b"canary")
    )


@pytest.mark.parametrize(
    ("door", "rule"),
    [
        (None, "--listen: must be given"),
        (WebhookListener(("0.0.0.0", 0), ("a.example.org",)), "--tls-cert: must be given"),
        (WebhookListener(("0.0.0.0", 0), behind_proxy=True), "--name: must be given"),
    ],
)
def test_a_door_that_others_reach_has_tls_and_a_name(door: WebhookListener | None, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "hooks.toml"
    path.write_text(FILE)
    path.chmod(0o600)
    wanted: Any = WebhookConfig(read_hooks(path), tmp_path, tmp_path, door)
    with pytest.raises(UsageError, match=rule):
        check(wanted)


def test_the_spans_of_both_sides_are_one() -> None:
    assert SPAN == OLDEST == 3 * MINUTE


def rewritten(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    new.chmod(0o600)
    new.replace(path)


@pytest.fixture
def systems(tmp_path: Path) -> ReloadingHooks:
    rewritten(tmp_path / "hooks.toml", FILE + STREAM)
    return ReloadingHooks(tmp_path / "hooks.toml")


STREAM = """
[[stream]]
name = "spaces"
system = "spaces"
source = "cloud:spaces"
url = "https://partners.example.org/firehose"
api_key = "the-key-of-the-activation"
"""
NEW = "a-secret-that-is-new-now"


def test_secrets_and_keys_change_while_they_are_used(systems: ReloadingHooks, tmp_path: Path) -> None:
    text = (FILE + STREAM).replace("the-secret-before-that", NEW).replace("the-key-of", "another-key-of")
    rewritten(tmp_path / "hooks.toml", text)
    hook = systems.hook("mist")
    assert hook is not None
    assert hook.octets == (SECRET, NEW.encode())
    assert systems.key("spaces") == "another-key-of-the-activation"
    assert systems.hook("nobody") is None


@pytest.mark.parametrize(
    "text",
    [FILE, FILE.replace("cloud:mist", "cloud:other") + STREAM, STREAM, "", FILE.replace("16-octets", "16") + STREAM],
    ids=["a stream less", "another source", "no hook", "empty", "short"],
)
def test_an_invalid_file_or_one_with_other_systems_changes_nothing(
    systems: ReloadingHooks, tmp_path: Path, text: str
) -> None:
    rewritten(tmp_path / "hooks.toml", text)
    with capture_logs() as lines:
        hook = systems.hook("mist")
    assert hook is not None
    assert hook.octets == (SECRET, OLD_SECRET)
    assert (systems.reads, systems.refusals) == (0, 1)
    assert SECRET.decode() not in str(lines)
