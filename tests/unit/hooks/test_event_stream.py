"""Reading Spaces' Firehose from a server of this machine, over HTTPS: once each, and from where it was."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from connectors.monitoring.monitor import Health
from connectors.sources.cloud import event_stream
from connectors.sources.cloud.config import HooksFile, ReloadingHooks
from connectors.sources.cloud.processor import REPLAYED
from connectors.sources.cloud.service import WebhookConfig, WebhookService
from connectors.sources.cloud.verification import MALFORMED
from stream.records import SECOND
from tests.support.patience import until
from tests.support.receivers import Log
from tests.unit.hooks.cloud_requests import ingesting, located, now, octets

KEY = "a-key-of-sixteen-octets"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of this machine's, with its key beside it."""
    folder = tmp_path_factory.mktemp("firehose")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder / "cert.pem"


class Firehose:
    """A server that gives what is put, one connection after the other, and remembers how it was asked."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.status = "200 OK"
        self.give: asyncio.Queue[bytes | None] = asyncio.Queue()
        """Octets of the body; None: end the connection."""

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(f"HTTP/1.1 {self.status}\r\nConnection: close\r\n\r\n".encode())
            while self.status.startswith("200") and (piece := await self.give.get()) is not None:
                writer.write(piece)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def put(self, *events: object) -> None:
        self.give.put_nowait(b"".join(octets(event) + b"\n" for event in events))


@asynccontextmanager
async def firehose(certificate: Path) -> AsyncIterator[tuple[Firehose, str]]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    made = Firehose()
    server = await asyncio.start_server(made.meet, "127.0.0.1", 0, ssl=context)
    try:
        yield made, f"https://localhost:{server.sockets[0].getsockname()[1]}/api/partners/v1/firehose/events"
    finally:
        server.close()
        made.give.put_nowait(None)


def begun(
    folder: Path, url: str, ca_file: Path | None, stop: asyncio.Event
) -> tuple[WebhookService, asyncio.Task[None]]:
    stream = {"name": "spaces", "system": "spaces", "source": "cloud:spaces", "url": url, "api_key": KEY}
    file = HooksFile.model_validate({"stream": [stream | ({} if ca_file is None else {"ca_file": str(ca_file)})]})
    service = WebhookService(WebhookConfig(file, folder / "socket", folder / "state", None))
    return service, asyncio.create_task(service.run(stop, lambda _: None))


@asynccontextmanager
async def reading(folder: Path, url: str, ca_file: Path | None) -> AsyncIterator[WebhookService]:
    stop = asyncio.Event()
    service, running = begun(folder, url, ca_file, stop)
    try:
        yield service
    finally:
        stop.set()
        await running


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "FIRST_WAIT", 0.05)


async def test_events_are_read_and_a_broken_stream_goes_on_where_it_was(certificate: Path, tmp_path: Path) -> None:
    sink, first = Log(), now() - 2 * SECOND
    async with (
        ingesting(tmp_path / "socket", sink) as receiver,
        firehose(certificate) as (server, url),
        reading(tmp_path, url, certificate) as service,
    ):
        await until(lambda: all(entrance.can_receive for entrance in receiver.listeners))
        server.put({"eventType": "KEEP_ALIVE"}, located(first))
        await until(lambda: service.counts.taken == 2)
        assert f"x-api-key: {KEY}" in server.heads[0].lower()
        assert "fromTimestamp" not in server.heads[0]
        server.give.put_nowait(None)
        await until(lambda: len(server.heads) == 2)
        assert f"fromTimestamp={first // 1000}" in server.heads[1]
        later = located(now(), device={"macAddress": "3c:00:00:00:00:07"})
        whole = octets(located(first)) + b"\nnonsense\n" + octets(later) + b"\n"
        for start in range(0, len(whole), 100):  # in pieces that end anywhere
            server.give.put_nowait(whole[start : start + 100])
        await until(lambda: service.counts.taken == 3)
        assert dict(service.counts.refused) == {REPLAYED: 1, MALFORMED: 1}
        assert service.counts.check()
    assert len(sink.rows) == 2


async def test_while_the_stream_is_broken_the_ingest_confirms_no_coverage(certificate: Path, tmp_path: Path) -> None:
    async with ingesting(tmp_path / "socket", Log()) as receiver, firehose(certificate) as (server, url):
        (entrance,) = receiver.listeners
        async with reading(tmp_path, url, certificate):
            await until(lambda: entrance.can_receive)
            server.status = "503 Service Unavailable"
            server.give.put_nowait(None)
            await until(lambda: not entrance.can_receive)
            server.status = "200 OK"
            await until(lambda: entrance.can_receive)


async def test_events_that_the_ingest_has_not_accepted_are_read_again(certificate: Path, tmp_path: Path) -> None:
    sink = Log()
    async with firehose(certificate) as (server, url), reading(tmp_path, url, certificate) as service:
        event = located(now())
        server.put(event)
        await until(lambda: len(server.heads) == 2)  # not taken: broken off
        assert service.counts.taken == 0
        assert "fromTimestamp" not in server.heads[1]
        server.give.put_nowait(None)  # for the connection that was broken off
        async with ingesting(tmp_path / "socket", sink) as receiver:
            await until(lambda: all(entrance.can_receive for entrance in receiver.listeners))
            server.put(event)
            await until(lambda: service.counts.taken == 1)
    assert len(sink.rows) == 1


async def test_a_server_with_an_unknown_certificate_is_not_read(certificate: Path, tmp_path: Path) -> None:
    async with firehose(certificate) as (server, url), reading(tmp_path, url, None):
        await asyncio.sleep(0.5)
        assert server.heads == []


@asynccontextmanager
async def reading_two(folder: Path, *urls: str, ca_file: Path) -> AsyncIterator[tuple[WebhookService, Path]]:
    """Read several streams by a file of secrets, which may change."""
    tables = [
        f'[[stream]]\nname = "{name}"\nsystem = "spaces"\nsource = "cloud:spaces"\nurl = "{url}"\n'
        f'api_key = "{KEY}-{name}"\nca_file = "{ca_file}"\n'
        for name, url in zip(("one", "other"), urls, strict=True)
    ]
    path = folder / "hooks.toml"
    path.write_text("".join(tables))
    path.chmod(0o600)
    service, stop = (
        WebhookService(WebhookConfig(ReloadingHooks(path), folder / "socket", folder / "state", None)),
        asyncio.Event(),
    )
    running = asyncio.create_task(service.run(stop, lambda _: None))
    try:
        yield service, path
    finally:
        stop.set()
        await running


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
async def test_a_key_that_is_refused_stops_its_stream_alone_and_is_tried_again(
    status: str, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "LOOK_EVERY", 0.05)
    sink = Log()
    async with (
        ingesting(tmp_path / "socket", sink),
        firehose(certificate) as (refusing, first),
        firehose(certificate) as (server, second),
    ):
        refusing.status = status
        with capture_logs() as lines:
            async with reading_two(tmp_path, first, second, ca_file=certificate) as (service, path):
                await until(lambda: service.stream_states == {"one": "refused", "other": "reading"})
                server.put(located(now()))
                await until(lambda: service.counts.taken == 1)
                assert not service.streams_connected
                refusing.status = "200 OK"
                new = path.with_name("new")
                new.write_text(path.read_text().replace(f"{KEY}-one", "another-key-of-octets"))
                new.chmod(0o600)
                new.replace(path)
                await until(lambda: service.stream_states == {"one": "reading", "other": "reading"})
                assert "another-key-of-octets" in refusing.heads[-1]
        assert [line for line in lines if line["event"] == "stream_refused"]
        assert KEY not in str(lines)
    assert len(sink.rows) == 1


async def test_a_stream_whose_key_is_refused_is_tried_again_with_the_same_key(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, sleep = list[float](), asyncio.sleep

    async def noted(seconds: float) -> None:
        waits.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(event_stream, "REFUSED_WAIT", 0.05)
    monkeypatch.setattr(asyncio, "sleep", noted)
    async with firehose(certificate) as (server, url), reading(tmp_path, url, certificate) as service:
        server.status = "401 Unauthorized"
        server.give.put_nowait(None)
        await until(lambda: len(server.heads) > 2)
        server.status = "200 OK"
        await until(lambda: service.streams_connected)
    assert 0.05 in waits, "it is not tried again at once"


async def test_a_compressed_stream_is_not_unpacked(certificate: Path, tmp_path: Path) -> None:
    async with firehose(certificate) as (server, url), reading(tmp_path, url, certificate) as service:
        await until(lambda: service.streams_connected)
        assert "accept-encoding: identity" in server.heads[0].lower()
        server.status = "200 OK\r\nContent-Encoding: gzip"
        server.give.put_nowait(None)
        server.give.put_nowait(gzip.compress(octets(located(now())) + b"\n"))
        await until(lambda: len(server.heads) > 2)
        assert (service.streams_connected, service.counts.requests) == (False, 0)


def test_a_stream_that_is_not_read_keeps_no_webhook_out() -> None:
    """An orchestrator sends nothing to what is not ready."""
    health = Health(lambda: 0.0)
    health.require("ingest", lambda: True)
    health.require("streams", lambda: False, readiness=False)
    health.check()
    assert (health.has_started(), health.is_ready()) == (True, True)
    assert health.checks() == {"ingest": True, "streams": False}


async def test_a_line_without_end_breaks_the_stream_off(certificate: Path, tmp_path: Path) -> None:
    async with firehose(certificate) as (server, url), reading(tmp_path, url, certificate):
        server.give.put_nowait(b"x" * (event_stream.LONGEST_LINE + 1))
        await until(lambda: len(server.heads) == 2)
