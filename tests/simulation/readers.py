"""Who reads released records: a subscriber, the service, and a reader of the service's event stream.

All run the product's code: ``subscriber`` what ``connectors/cli/subscribe.py`` does, ``service`` what
``connectors/serve/startup.py`` does without an HTTP server. The reader calls the service's application in its process.
What they were given outlives their processes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
from aiokafka.errors import KafkaError
from cramjam import zstd
from sse_starlette import sse
from starlette.types import ASGIApp

from connectors.cli.subscribe import SAVE_EVERY
from connectors.http.limits import AllowedHosts
from connectors.runtime.clock import wall_clock
from connectors.runtime.signals import first_to_end
from connectors.serve.app import PREFIX as API
from connectors.serve.app import application
from connectors.serve.startup import ServeConfig, feeds, open_service
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.subscriber import subscribe
from stream.errors import TacetError, UsageError
from tests.simulation.checker import Life
from tests.simulation.occupancy import GLOBALS as GLOBALS_OF_ALL
from tests.simulation.occupancy import POLICY, SITES

AUDIENCE = "public"
PORT = 8050
EVENTS = 7
"""After how many events the connection of an event stream breaks."""
AGAIN = 1.0
"""Seconds until a reader whose event stream has ended opens another one."""
GLOBALS: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    **GLOBALS_OF_ALL, sse.__name__: lambda: {"_thread_state": threading.local()}
}  # fmt: skip
"""What the service's process has for itself."""


def stopped(program: str, failure: Exception, code: int) -> int:
    """Say why a program ends, as the command line does."""
    logging.getLogger("connectors.cli").error("%s stopped: %s: %s", program, type(failure).__name__, failure)
    return code


@dataclass
class Reading:
    """What a subscriber was given."""

    cursor: Path | None
    """The file of its cursor; None if it begins at the first record with each start."""
    lives: list[Life] = field(default_factory=list)
    """One for each start of its process."""

    def given(self) -> int:
        """Return how many records it has got, each counted once."""
        return len({text for life in self.lives for text in life.given})

    def forget(self) -> None:
        """Begin as for the first time."""
        self.lives = []
        if self.cursor is not None:
            self.cursor.unlink(missing_ok=True)


async def subscriber(bootstrap: str, reading: Reading) -> int:
    """Subscribe as ``tacet subscribe`` does, until SIGTERM takes the place of an interrupt; return the exit code."""
    task, life = asyncio.current_task(), Life()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        cursor = None if reading.cursor is None else Cursor(reading.cursor)
    except UsageError as error:
        return stopped("subscriber", error, 2)
    reading.lives.append(life)
    code = 0
    try:
        await _follow(bootstrap, cursor, life)
    except asyncio.CancelledError:
        task.uncancel()
    except UsageError as error:
        code = stopped("subscriber", error, 2)
    except (TacetError, KafkaError, OSError) as error:
        code = stopped("subscriber", error, 1)
    try:
        if cursor is not None:
            cursor.save()
            life.saved = len(life.given)
    except OSError as error:
        code = stopped("subscriber", error, 1)
    return code


async def _follow(bootstrap: str, cursor: Cursor | None, life: Life) -> None:
    saved = time.monotonic()
    async for record in subscribe(audience=AUDIENCE, kafka=bootstrap, cursor=cursor, from_start=cursor is None):
        life.given.append(json.dumps(record, sort_keys=True))
        if cursor is not None and time.monotonic() - saved > SAVE_EVERY:
            cursor.save()
            saved, life.saved = time.monotonic(), len(life.given) - 1  # the one at hand may come again


@dataclass
class Browsing:
    """What a reader of the service's event stream was given, and how the service answered."""

    lives: list[Life] = field(default_factory=list)
    """One for each connection."""
    last: str | None = None
    """The id of the last event, from which the next connection goes on."""
    refused: list[str] = field(default_factory=list)
    """Answers that no request should get."""

    def given(self) -> int:
        """Return how many releases have come, each counted once."""
        return len({text for life in self.lives for text in life.given})

    def forget(self) -> None:
        """Begin as for the first time."""
        self.lives, self.last = [], None

    async def read(self, app: ASGIApp) -> None:
        """Follow the event stream; each connection breaks after a few events, and the next one goes on behind them."""
        while True:
            code, _ = await _get(app, f"{API}/latest?audience={AUDIENCE}&site={SITES[0]}")
            self._note("latest", code)
            life = Life()
            self.lives.append(life)
            broken, waiting = asyncio.Event(), bytearray()

            def take(data: bytes, life: Life = life, broken: asyncio.Event = broken, left: bytearray = waiting) -> None:
                left.extend(data)
                while b"\n\n" in left and not broken.is_set():
                    text, _, rest = bytes(left).partition(b"\n\n")
                    left[:] = rest
                    self._event(text.decode(), life)
                    if len(life.given) >= EVENTS:
                        broken.set()

            resumed = [(b"last-event-id", self.last.encode())] if self.last else []
            code, _ = await _get(app, f"{API}/stream?audience={AUDIENCE}&after=start", resumed, take, broken)
            self._note("stream", code)
            await asyncio.sleep(AGAIN)

    def _event(self, text: str, life: Life) -> None:
        fields = dict(line.partition(": ")[::2] for line in text.splitlines() if not line.startswith(":"))
        if fields.get("event") == "release":
            life.given.append(json.dumps(json.loads(fields["data"]), sort_keys=True))
            life.saved, self.last = len(life.given), fields["id"]

    def _note(self, what: str, code: int) -> None:
        if code not in (200, 503):
            self.refused.append(f"answer: {what} is answered with {code}")


async def _get(
    app: ASGIApp, path: str, headers: Sequence[tuple[bytes, bytes]] = (),
    take: Callable[[bytes], None] = lambda _: None, broken: asyncio.Event | None = None,
) -> tuple[int, bytes]:  # fmt: skip
    """Send a request to an application; return the status and the body. ``broken`` breaks the connection."""
    place, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": place, "raw_path": place.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", f"localhost:{PORT}".encode()), *headers], "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", PORT),
    }  # fmt: skip
    requests = [{"type": "http.request", "body": b"", "more_body": False}]
    body, status = bytearray(), 0

    async def receive() -> Any:
        if not requests:
            await (broken or asyncio.Event()).wait()
            return {"type": "http.disconnect"}
        return requests.pop()

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)
        body.extend(message.get("body", b""))
        take(message.get("body", b""))

    await app(scope, receive, send)
    return status, bytes(body)


class ServiceFiles:
    """The service's index, which a killed process leaves as it is; databases are closed at the end of the world."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts = 0
        self._open: list[Any] = []

    def next(self) -> Path:
        """Return the index for the next process: what the one before has written, in a file of its own.

        One operating-system process holds all simulated ones, and DuckDB opens a file only once in it.
        """
        former, self._starts = self._path(), self._starts + 1
        self._path().parent.mkdir(mode=0o700)
        for name in ("index", "index.wal"):
            if (former.parent / name).exists():
                shutil.copy2(former.parent / name, self._path().parent / name)
        return self._path()

    def forget(self) -> None:
        """Let the next process begin without an index."""
        shutil.rmtree(self._path().parent)

    def _path(self) -> Path:
        return self._folder / f"service-{self._starts}" / "index"

    def opened(self, history: Any) -> None:
        """Remember a database, to close it at the end."""
        self._open.append(history)

    def count(self) -> int:
        """Return how many records the open index holds; 0 if none is open."""
        if not self._open:
            return 0
        with suppress(TacetError), self._open[-1]._index.reading() as cursor:
            ((count,),) = cursor.execute("SELECT count(*) FROM record").fetchall()
            return int(count)
        return 0

    def close(self) -> None:
        """Close every database."""
        for history in self._open:
            history.close()

    def records(self) -> Iterator[tuple[str, bytes, dict[str, int]]]:
        """Yield id, bytes and values by zone of what the last process has written, in the order of the index."""
        with duckdb.connect(str(self._path()), read_only=True) as database:
            cells = database.execute(
                "SELECT site, finish, name, value FROM cell JOIN series USING (series) JOIN node USING (node)"
            ).fetchall()
            rows = database.execute("SELECT id, finish, body FROM record ORDER BY seq").fetchall()
        values: dict[tuple[str, int], dict[str, int]] = {}
        for site, finish, node, value in cells:
            values.setdefault((site, finish), {})[node.removeprefix("zone:")] = value
        for name, finish, body in rows:
            yield name, bytes(zstd.decompress(body)), values.get((name.partition("/")[0], finish), {})


async def service(bootstrap: str, files: ServiceFiles, browsing: Browsing) -> int:
    """Follow the cluster and answer a reader as ``tacet serve`` does, until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    config = ServeConfig(POLICY, (AUDIENCE,), kafka=bootstrap, index=files.next(), opened=AUDIENCE)
    try:
        with open_service(config, wall_clock, AllowedHosts.of((), PORT, "http")) as opened:
            files.opened(opened.history)
            await first_to_end(stop.wait(), browsing.read(application(opened)), *feeds(config, opened))
    except UsageError as error:
        return stopped("service", error, 2)
    except (TacetError, KafkaError, OSError) as error:
        return stopped("service", error, 1)
    return 0
