"""The service of ``tacet hooks``: an HTTP listener for systems that send, readers of event streams, one ingest client.

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

from connectors.http.limits import Bodies, Names, Peer, RequestLimits
from connectors.http.server import Server, Tls, is_loopback, listening, server_of
from connectors.runtime.clock import AnchoredClock, wall_clock
from connectors.runtime.signals import first_to_end
from connectors.sources.cloud.config import Hook, HooksFile, HooksNow, Stream
from connectors.sources.cloud.decoders import SIGNATURE
from connectors.sources.cloud.event_stream import Puller, State
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
        self, hook_of: Callable[[str], Hook | None], desk: WebhookProcessor, now: Callable[[], Micros], busy: set[Peer]
    ) -> None:
        self._hook_of, self._desk, self._now, self._busy = hook_of, desk, now, busy
        self._one_at_a_time = asyncio.Semaphore(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a complete request."""
        peer: Any = tuple(scope["client"] or ("", 0))
        self._busy.add(peer)
        try:
            answer = await self._posted(Request(scope, receive))
            await answer(scope, receive, send)
        finally:
            self._busy.discard(peer)

    def ahead(self, request: Request) -> Response | None:
        """Answer requests that need no body: another path, another method, an impossible signature."""
        hook = self._hook_of_path(request)
        if hook is None:
            self._desk.refuse(UNKNOWN_HOOK)
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
        self._desk.refuse(refused.reason)
        return Response(status_code=400 if refused.reason in _NOT_READ else 401)

    async def _posted(self, request: Request) -> Response:
        hook = self._hook_of_path(request)
        assert hook is not None  # noqa: S101 - ahead has checked it, and systems do not change
        body, signature = await request.body(), request.headers.get(SIGNATURE)
        try:
            async with self._one_at_a_time:
                verdict = await asyncio.to_thread(verify, hook, body, signature, self._now())
        except RefusedError as refused:
            return self._refused(refused)
        if await self._desk.process(hook.source, [verdict]):
            return Response(status_code=200)
        return Response(status_code=503, headers={"retry-after": "5"})


def application(
    hook_of: Callable[[str], Hook | None],
    desk: WebhookProcessor,
    names: Names,
    now: Callable[[], Micros],
    busy: set[Peer],
) -> RequestLimits:
    """Return the application: 200 means that all sightings are durable, or that there is nothing to store.

    Args:
        hook_of: returns a system by its name, with its present secrets.
        desk: processes genuine requests.
        names: host names of the service.
        now: the clock.
        busy: contains the peers with a request in progress.
    """
    posts, bodies = _Posts(hook_of, desk, now, busy), Bodies(LARGEST_BODY, ALL_BODIES)
    return RequestLimits(posts, names, at_once=MOST_CONNECTIONS, bodies=bodies, ahead=posts.ahead)


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

    file: HooksFile | HooksNow
    """The file's content as read once, or its present content."""
    to: Path
    state: Path
    listener: WebhookListener | None

    @property
    def systems(self) -> HooksFile:
        """The file's content."""
        return self.file.content if isinstance(self.file, HooksNow) else self.file

    def hook(self, name: str) -> Hook | None:
        """Return a system that sends, by its name."""
        if isinstance(self.file, HooksNow):
            return self.file.hook(name)
        return next((hook for hook in self.file.hook if hook.name == name), None)


def check(wanted: WebhookConfig) -> None:
    """Raise UsageError unless the listener matches the configured systems and encrypts what they send."""
    door = wanted.listener
    if (door is None) != (not wanted.systems.hook):
        raise UsageError("--listen: must be given where the file has a [[hook]], and only there")
    if door is None:
        return
    outside = not is_loopback(door.listen[0])
    if outside and door.tls is None and not door.behind_proxy:
        msg = f"--tls-cert: must be given with --listen {door.listen[0]}, or --behind-proxy where a proxy has TLS"
        raise UsageError(msg)
    if (outside or door.behind_proxy) and not door.names:
        raise UsageError("--name: must be given where others send, as they know it")


class WebhookService:
    """The service; ``counts`` are the results of everything so far."""

    def __init__(self, wanted: WebhookConfig) -> None:
        """Set the configuration; UsageError if it is inconsistent, KeyFileError if its state cannot be used."""
        check(wanted)
        self._config = wanted
        self.clock = AnchoredClock(wall_clock, lambda: time.monotonic_ns() // 1000)
        self._link, self._replays = IngestClient(wanted.to), ReplayCache(wanted.state)
        self._processor = WebhookProcessor(self._link, self._replays, self.clock.now)
        self._readers = {stream.name: self._puller(stream) for stream in wanted.systems.stream}
        self._deaf = {stream.name for stream in wanted.systems.stream}

    @property
    def counts(self) -> WebhookCounts:
        """The results of all requests and events, and of their rows."""
        return self._processor.counts

    @property
    def is_connected(self) -> bool:
        """Whether the ingest is connected."""
        return self._link.connected

    @property
    def hears(self) -> bool:
        """Whether every stream is connected."""
        return not self._deaf

    @property
    def stream_states(self) -> dict[str, State]:
        """The state of each stream."""
        return {name: reader.state for name, reader in self._readers.items()}

    async def run(self, stop: asyncio.Event, say: Callable[[str], None]) -> None:
        """Receive and read until ``stop`` is set; ``say`` is called with the address for senders."""
        self._link.report_hearing(hearing=not self._deaf)
        work = [
            self._link.run(),
            self._processor.failed(),
            self._report(),
            self._run_on(),
            stop.wait(),
            *(reader.run() for reader in self._readers.values()),
        ]
        try:
            if self._config.listener is None:
                await first_to_end(*work)
            else:
                await self._serve(self._config.listener, work, stop, say)
        finally:
            self._replays.close()

    def _puller(self, stream: Stream) -> Puller:
        def hearing(heard: bool) -> None:
            (self._deaf.discard if heard else self._deaf.add)(stream.name)
            self._link.report_hearing(hearing=not self._deaf)

        file = self._config.file
        key = partial(file.key, stream.name) if isinstance(file, HooksNow) else None
        return Puller(stream, self._processor, self.clock.now, hearing, key)

    async def _serve(
        self,
        door: WebhookListener,
        work: list[Coroutine[Any, Any, Any]],
        stop: asyncio.Event,
        say: Callable[[str], None],
    ) -> None:
        bound, busy = listening(*door.listen), set[Peer]()
        bound.most, bound.busy = min(bound.most, MOST_CONNECTIONS), busy
        try:
            scheme = "https" if door.tls is not None or door.behind_proxy else "http"
            host, port = bound.getsockname()[:2]
            names = Names.of(door.names, port, scheme, behind_proxy=door.behind_proxy)
            server = server_of(application(self._config.hook, self._processor, names, self.clock.now, busy), door.tls)
            for hook in self._config.systems.hook:
                say(f"{'http' if door.tls is None else 'https'}://{host}:{port}/hooks/{hook.name}")
            serving = server.serve([bound])
            await first_to_end(_served(server, serving, stop), *work)
        finally:
            bound.close()

    async def _run_on(self) -> None:
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
