"""The service of ``tacet hooks``: HTTP listener, stream readers, one ingest client.

Each hook has a path of its own, behind the same request limits as ``tacet serve``. A request whose head is already
wrong is refused before its body is read. All bodies together have a memory budget. A thread verifies and parses bodies,
one at a time, so that the event loop keeps running.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from connectors.http.limits import AllowedHosts, Bodies, Peer, RequestLimits
from connectors.http.server import Server, Tls, is_loopback, listening, server_of
from connectors.runtime.clock import AnchoredClock, wall_clock
from connectors.runtime.offload import offload
from connectors.runtime.signals import first_to_end
from connectors.sources.cloud.config import Hook, HooksFile, ReloadingHooks, Stream
from connectors.sources.cloud.decoders import SIGNATURE
from connectors.sources.cloud.event_stream import State, StreamReader
from connectors.sources.cloud.processor import REPLAYED, ReplayCache, WebhookCounts, WebhookProcessor
from connectors.sources.cloud.verification import MALFORMED, TOO_COMPLEX, RefusedError, signature_of, verify
from connectors.sources.ingest_socket.client import IngestClient
from stream.errors import UsageError
from stream.records import Micros

LARGEST_BODY = 2 << 20
"""Bytes: enough for a network with some thousand devices."""
ALL_BODIES = 32 << 20
"""Bytes of all bodies together."""
MOST_CONNECTIONS = 64
"""Each may use up to a MiB besides its body: TLS buffers."""
UNKNOWN_HOOK = "unknown_hook"
_PATH = "/hooks/"
_NOT_READ = frozenset({MALFORMED, TOO_COMPLEX})


class _Posts:
    """The application that answers requests."""

    def __init__(
        self,
        hook_of: Callable[[str], Hook | None],
        processor: WebhookProcessor,
        now: Callable[[], Micros],
        busy: set[Peer],
    ) -> None:
        self._hook_of, self._processor, self._now, self._busy = hook_of, processor, now, busy
        self._one_at_a_time = asyncio.Semaphore(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a complete request."""
        peer: Any = tuple(scope["client"] or ("", 0))
        self._busy.add(peer)
        try:
            answer = await self._answer(Request(scope, receive))
            await answer(scope, receive, send)
        finally:
            self._busy.discard(peer)

    def early_answer(self, request: Request) -> Response | None:
        """Answer requests that need no body: another path, another method, an impossible signature."""
        hook = self._hook_of_path(request)
        if hook is None:
            self._processor.refuse(UNKNOWN_HOOK)
            return Response(status_code=404)
        if request.method == "GET" and hook.validator is not None:
            return PlainTextResponse(hook.validator.get_secret_value())
        if request.method != "POST":
            return Response(status_code=405, headers={"allow": "POST"})
        try:
            if hook.system == "mist":
                signature_of(request.headers.get(SIGNATURE))
        except RefusedError as refused:
            return self._refused(refused)
        return None

    def _hook_of_path(self, request: Request) -> Hook | None:
        path: str = request.scope["path"]
        return self._hook_of(path.removeprefix(_PATH)) if path.startswith(_PATH) else None

    def _refused(self, refused: RefusedError) -> Response:
        self._processor.refuse(refused.reason)
        return Response(status_code=400 if refused.reason in _NOT_READ else 401)

    async def _answer(self, request: Request) -> Response:
        hook = self._hook_of_path(request)
        assert hook is not None  # noqa: S101 - early_answer has checked it, and systems do not change
        body, signature = await request.body(), request.headers.get(SIGNATURE)
        try:
            async with self._one_at_a_time:
                verified = await offload(verify, hook, body, signature, self._now())
        except RefusedError as refused:
            return self._refused(refused)
        if await self._processor.process(hook.source, [verified]):
            return Response(status_code=200)
        return Response(status_code=503, headers={"retry-after": "5"})


def application(
    hook_of: Callable[[str], Hook | None],
    processor: WebhookProcessor,
    allowed_hosts: AllowedHosts,
    now: Callable[[], Micros],
    busy: set[Peer],
) -> RequestLimits:
    """Return the application: 200 means that all sightings are durable, or that there is nothing to store.

    Args:
        hook_of: returns a system by its name, with its present secrets.
        processor: processes genuine requests.
        allowed_hosts: host names of the service.
        now: the clock.
        busy: contains the peers with a request in progress.
    """
    posts, bodies = _Posts(hook_of, processor, now, busy), Bodies(LARGEST_BODY, ALL_BODIES)
    return RequestLimits(posts, allowed_hosts, at_once=MOST_CONNECTIONS, bodies=bodies, early_answer=posts.early_answer)


EVERY = 60.0
"""Seconds between two reports of refused requests."""
log = structlog.get_logger("tacet.hooks")


class WebhookListener(NamedTuple):
    """The address and TLS files for systems that send."""

    listen: tuple[str, int]
    names: tuple[str, ...] = ()
    tls: Tls | None = None
    behind_proxy: bool = False


class WebhookConfig(NamedTuple):
    """The systems to receive from and to read, the ingest's socket, and the state file."""

    file: HooksFile | ReloadingHooks
    """The file's content as read once, or its present content."""
    to: Path
    state: Path
    listener: WebhookListener | None

    @property
    def systems(self) -> HooksFile:
        """The file's content."""
        return self.file.content if isinstance(self.file, ReloadingHooks) else self.file

    def hook(self, name: str) -> Hook | None:
        """Return a system that sends, by its name."""
        if isinstance(self.file, ReloadingHooks):
            return self.file.hook(name)
        return next((hook for hook in self.file.hook if hook.name == name), None)


def check(config: WebhookConfig) -> None:
    """Raise UsageError unless the listener matches the configured systems and encrypts what they send."""
    listener = config.listener
    if (listener is None) != (not config.systems.hook):
        raise UsageError("--listen: must be given if the file has a [[hook]], and only then")
    if listener is None:
        return
    outside = not is_loopback(listener.listen[0])
    if outside and listener.tls is None and not listener.behind_proxy:
        msg = (
            f"--tls-cert: must be given with --listen {listener.listen[0]}, or --behind-proxy if a proxy terminates TLS"
        )
        raise UsageError(msg)
    if (outside or listener.behind_proxy) and not listener.names:
        raise UsageError("--name: must be given if other machines send: the host name that they use")


class WebhookService:
    """The service; ``counts`` are the results of everything so far."""

    def __init__(self, config: WebhookConfig) -> None:
        """Set the configuration; UsageError if it is inconsistent, KeyFileError if its state cannot be used."""
        check(config)
        self._config = config
        self.clock = AnchoredClock(wall_clock, lambda: time.monotonic_ns() // 1000)
        self._client, self._replays = IngestClient(config.to), ReplayCache(config.state)
        self._processor = WebhookProcessor(self._client, self._replays, self.clock.now)
        self._readers = {stream.name: self._reader_of(stream) for stream in config.systems.stream}
        self._disconnected_streams = {stream.name for stream in config.systems.stream}

    @property
    def counts(self) -> WebhookCounts:
        """The results of all requests and events, and of their rows."""
        return self._processor.counts

    @property
    def is_connected(self) -> bool:
        """Whether the ingest is connected."""
        return self._client.connected

    @property
    def streams_connected(self) -> bool:
        """Whether every stream is connected."""
        return not self._disconnected_streams

    @property
    def stream_states(self) -> dict[str, State]:
        """The state of each stream."""
        return {name: reader.state for name, reader in self._readers.items()}

    async def run(self, stop: asyncio.Event, announce: Callable[[str], None]) -> None:
        """Receive and read until ``stop`` is set; ``announce`` is called with the address for senders."""
        self._client.report_can_receive(can_receive=not self._disconnected_streams)
        work = [
            self._client.run(),
            self._processor.failed(),
            self._report(),
            self._check_clock(),
            stop.wait(),
            *(reader.run() for reader in self._readers.values()),
        ]
        try:
            if self._config.listener is None:
                await first_to_end(*work)
            else:
                await self._serve(self._config.listener, work, stop, announce)
        finally:
            self._replays.close()

    def _reader_of(self, stream: Stream) -> StreamReader:
        def on_connection(connected: bool) -> None:
            (self._disconnected_streams.discard if connected else self._disconnected_streams.add)(stream.name)
            self._client.report_can_receive(can_receive=not self._disconnected_streams)

        file = self._config.file
        key = partial(file.key, stream.name) if isinstance(file, ReloadingHooks) else None
        return StreamReader(stream, self._processor, self.clock.now, on_connection, key)

    async def _serve(
        self,
        listener: WebhookListener,
        work: list[Coroutine[Any, Any, Any]],
        stop: asyncio.Event,
        announce: Callable[[str], None],
    ) -> None:
        bound, busy = listening(*listener.listen), set[Peer]()
        bound.most, bound.busy = min(bound.most, MOST_CONNECTIONS), busy
        try:
            scheme = "https" if listener.tls is not None or listener.behind_proxy else "http"
            host, port = bound.getsockname()[:2]
            allowed_hosts = AllowedHosts.of(listener.names, port, scheme, behind_proxy=listener.behind_proxy)
            server = server_of(
                application(self._config.hook, self._processor, allowed_hosts, self.clock.now, busy), listener.tls
            )
            for hook in self._config.systems.hook:
                announce(f"{'http' if listener.tls is None else 'https'}://{host}:{port}/hooks/{hook.name}")
            serving = server.serve([bound])
            await first_to_end(_served(server, serving, stop), *work)
        finally:
            bound.close()

    async def _check_clock(self) -> None:
        """Check the clock: a clock step ends the service, because the clock decides which requests are new."""
        while True:
            self.clock.now()
            await asyncio.sleep(1)

    async def _report(self) -> None:
        reported: dict[str, int] = {}
        while True:
            await asyncio.sleep(EVERY)
            for reason, number in self.counts.refused.items():
                new = number - reported.get(reason, 0)
                if new and reason != REPLAYED:
                    reported[reason] = number
                    log.warning("requests_refused", reason=reason, count=10 ** len(str(new - 1)) if new > 1 else 10)


async def _served(server: Server, serving: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    task, stopping = asyncio.create_task(serving), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        stopping.cancel()
        await task
