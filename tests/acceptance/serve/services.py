"""A scenario for the service: a store of a simulated day's traffic, and the real service on a socket of loopback."""

from __future__ import annotations

import asyncio
import inspect
import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from connectors.cli.options import read_policy
from connectors.keys import key_files
from connectors.runtime.clock import wall_clock
from connectors.serve.access import TokenFile
from connectors.serve.startup import ServeConfig, serve
from connectors.storage.embedded.reader import read_outbox
from stream.records import DAY, HOUR, MINUTE, Micros
from stream.schemas import parse_time, rfc3339
from tests.acceptance.command_line import here, tacet
from tests.support.patience import PATIENCE, within_patience

AUDIENCES = ("facilities", "public")
"""Seconds after which something that should have come has not come."""

POLICY = """
[site.east]
name = "East wing"
timezone = "Europe/Berlin"
tick = "15min"
validity = "30min"
sources = ["127.0.0.1"]
working_hours = ["00:00", "24:00"]
[[site.east.zones]]
id = "hall"
floor = "0"
kind = "open"
capacity = 4
access_points = ["02:00:00:00:0e:01"]
[[site.east.zones]]
id = "loft"
floor = "1"
kind = "open"
capacity = 4
access_points = ["02:00:00:00:0e:02"]
[[site.east.zones]]
id = "den"
floor = "1"
kind = "office"
capacity = 1
access_points = ["02:00:00:00:0e:03"]

[site.west]
tick = "15min"
validity = "30min"
sources = ["127.0.0.1"]
[[site.west.zones]]
id = "cellar"
kind = "archive"
capacity = 4
access_points = ["02:00:00:00:0f:01"]

[[audience]]
name = "facilities"
[[audience]]
name = "public"
public = true

[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
zones = { kind = "open" }
levels = ["zone", "floor", "building"]
epsilon = { facilities = "2", public = "0.5" }
daily_budget = { public = "100" }

[[release]]
name = "archive"
query = "count"
mechanism = "laplace"
zones = { kind = "archive" }
epsilon = { facilities = "1" }

[[release]]
name = "office-day"
query = "attributes"
zones = { kind = "office" }
[release.attributes.arrival]
epsilon = { facilities = "1" }
sensitive = { after = "10:00" }
"""
FIRST = parse_time("2026-03-01T23:00:00Z")
"""Midnight in Berlin."""
LAST = FIRST + DAY + HOUR
ACCESS_POINTS = ("02:00:00:00:0e:01", "02:00:00:00:0e:02", "02:00:00:00:0e:03", "02:00:00:00:0f:01")
SITES = {place: "west" if place.endswith("0f:01") else "east" for place in ACCESS_POINTS}
DEVICES = tuple(f"00:00:5e:00:53:{number:02x}" for number in range(12))


def observations(*, without: str | None = None, last: Micros = LAST) -> str:
    """Return a day of a few people as a file; the same day but for one device, where that is left out."""
    rng, rows = random.Random(5), ["time,device,access_point,site"]
    seen = []
    for device in DEVICES:
        at = FIRST + rng.randrange(6 * HOUR)
        while at < FIRST + 23 * HOUR:
            seen.append((at, device, rng.choice(ACCESS_POINTS)))
            at += rng.randrange(3 * MINUTE, 90 * MINUTE)
    rows += [
        f"{rfc3339(at)},{device},{place},{SITES[place]}"
        for at, device, place in sorted(seen)
        if device != without and at < last
    ]
    return "\n".join(rows) + "\n"


def make_store(
    folder: Path, *, last: Micros = LAST, without: str | None = None, policy: str = POLICY, apart: bool = False
) -> Path:
    """Run the pipeline over the day and return the folder with policy, key and store.

    ``apart`` is for threads other than the main one, and beside a browser: the run gets a process of its own.
    """
    (folder / "policy.toml").write_text(policy)
    (folder / "day.csv").write_text(observations(without=without, last=last))
    if not (folder / "key").exists():
        key_files.create(folder / "key", laboratory=True)
    (tacet if apart else here)(
        "run", "--policy", folder / "policy.toml", "--key-file", folder / "key", "--store", folder / "store",
        "--observations", folder / "day.csv", "--from", rfc3339(FIRST), "--to", rfc3339(last),
    )  # fmt: skip
    return folder


def wanted(folder: Path, **more: Any) -> ServeConfig:
    """Return what is served of a folder: all audiences on a free port of loopback, unless otherwise said."""
    usual: dict[str, Any] = {"listen": ("127.0.0.1", 0), "store": folder / "store", "audiences": AUDIENCES}
    return ServeConfig(read_policy(folder / "policy.toml"), **usual | more)


def records(folder: Path, audience: str) -> list[bytes]:
    """Return what an audience was given, as it was given."""
    return [value for _, value in read_outbox(folder / "store", audience, 0)]


@dataclass
class Served:
    """A service that runs, in a thread of its own."""

    said: list[str] = field(default_factory=list)
    problem: BaseException | None = None

    @property
    def address(self) -> str:
        """Where it is."""
        return str(re.findall(r"https?://[^/]+", self.said[0])[0])

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def cookie(self) -> str:
        """The name of its sessions' cookie."""
        return f"tacet-{self.port}"

    def link(self) -> str:
        """The secret of the newest link."""
        return str(re.findall(r"#link=(\S+)", self.said[-1])[0])

    def client(self, token: str | None = None, **more: Any) -> httpx.Client:
        """Return who asks, with a token or as nobody."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.address, headers=headers, timeout=PATIENCE, **more)

    @contextmanager
    def browser(self) -> Iterator[httpx.Client]:
        """Give who has come by the link."""
        with self.client() as client:
            assert client.post("/api/v1/session", json={"link": self.link()}).status_code == 204
            yield client

    def raw(self, data: bytes) -> bytes:
        """Send bytes, and return all that comes back until the connection ends."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            parts = []
            while part := connection.recv(1 << 16):
                parts.append(part)
        return b"".join(parts)


@contextmanager
def served(asked: ServeConfig, clock: Any = wall_clock) -> Iterator[Served]:
    """Serve until the end of the block."""
    made, ready = Served(), threading.Event()
    stopping: list[Any] = []

    async def main() -> None:
        stop = asyncio.Event()
        stopping.extend((asyncio.get_running_loop(), stop))

        def say(line: str) -> None:
            made.said.append(line)
            ready.set()

        await serve(asked, clock, stop, say)

    def body() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            made.problem = error
        ready.set()

    thread = threading.Thread(target=body)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        if made.said:
            eventually(lambda: listens(made.port))
        yield made
    finally:
        if stopping and thread.is_alive():
            stopping[0].call_soon_threadsafe(stopping[1].set)
        thread.join(PATIENCE)
        assert not thread.is_alive()
    if made.problem is not None:
        raise made.problem


def listens(port: int) -> bool:
    """Whether somebody does."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ends(asked: ServeConfig) -> None:
    """Serve until the service ends of itself, and raise what ended it."""

    async def main() -> None:
        await within_patience(serve(asked, wall_clock, asyncio.Event(), lambda line: None), "the service to end")

    asyncio.run(main())


def eventually(holds: Any) -> None:
    """Wait until something holds."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            if holds():
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < until, f"waited {PATIENCE:.0f} s for {inspect.getsource(holds).strip()}"
        time.sleep(0.02)


def complete(client: httpx.Client, folder: Path, audience: str) -> None:
    """Wait until the service has taken in all that an audience was given."""
    last = records(folder, audience)
    eventually(lambda: len(events(client, audience, "start", len(last))) == len(last))


def events(
    client: httpx.Client, audience: str, after: str | None, count: int, *, header: bool = False
) -> list[tuple[str, bytes]]:
    """Return the next releases of a stream, as (id, record)."""
    given: dict[str, Any] = {"params": {"audience": audience}}
    if after is not None and header:
        given["headers"] = {"last-event-id": after}
    elif after is not None:
        given["params"]["after"] = after
    with client.stream("GET", "/api/v1/stream", **given) as answer:
        assert answer.status_code == 200, answer.read()
        found = []
        for name, identity, data in parsed(answer.iter_lines()):
            if name == "release":
                found.append((identity, data.encode()))
            if len(found) == count:
                break
    return found


def parsed(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, id, data) of events, comments left out."""
    event = {"event": "", "id": "", "data": ""}
    for line in lines:
        if not line:
            if event["event"]:
                yield event["event"], event["id"], event["data"]
            event = {"event": "", "id": "", "data": ""}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value


def new_token(file: Path, name: str, *roles: str, span: Micros = DAY) -> str:
    """Make a token and return its secret."""
    return TokenFile(file).add(name, roles, wall_clock() + span)
