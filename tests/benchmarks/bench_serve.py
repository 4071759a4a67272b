"""Event streams and history queries at once, of a simulated day that plays: what is lost, and how long answers take.

The service runs in a process of its own; all clients are in this one. The day's 292 windows come in as many seconds as
the run has, so that streams have work; the streams of four readers, and queries at a steady rate, each as one would ask
it from the page.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from connectors.runtime.clock import wall_clock
from connectors.serve.access import TokenFile
from connectors.storage.embedded.reader import read_outbox
from stream.records import DAY
from stream.schemas import parse_record
from tests.benchmarks.shared import Figure, quick, tell

STREAMS, RATE, SECONDS = 200, 50, 90
READERS = 4
PLAYED = 0.625
"""Share of the day that is still to come when a play begins."""
GOAL = 1.0
QUESTIONS = (
    "/api/v1/latest?audience={audience}&site=dbh",
    "/api/v1/releases/{release}/records?audience={audience}&site=dbh&granularity=1h",
    "/api/v1/releases/{release}/records?audience={audience}&site=dbh&granularity=5min&nodes=building",
    "/api/v1/releases/{release}/records?audience={audience}&site=dbh&granularity=15min&nodes=floor:2",
    "/api/v1/usual?audience={audience}&site=dbh&release={release}",
)
RELEASES = {"facilities": "occupancy", "public": "floors"}


@asynccontextmanager
async def service(folder: Path, seconds: float) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve a demo's day so that it ends with the run; give the address and tokens."""
    tokens = [TokenFile(folder / "tokens").add(f"r{n}", ["audience:facilities", "audience:public"], wall_clock() + DAY)
              for n in range(READERS)]  # fmt: skip
    started = subprocess.Popen(
        [sys.executable, "-u", "-m", "connectors", "serve", "--store", folder / "store", "--policy",
         folder / "policy.toml", "--audience", "facilities", "--audience", "public", "--tokens", folder / "tokens",
         "--listen", "127.0.0.1:0", "--play", str(DAY / 1e6 * PLAYED / seconds)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert started.stdout is not None
        (address,) = re.findall(r"http://[^/]+", started.stdout.readline())
        async with httpx.AsyncClient(base_url=address) as client:
            while True:
                try:
                    await client.get("/healthz")
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
        yield address, tokens
    finally:
        started.terminate()
        started.wait()


async def reader(client: httpx.AsyncClient, audience: str, until: str) -> list[str]:
    """Read a stream from its start to a release, and return the ids that came."""
    ids: list[str] = []
    path = f"/api/v1/stream?audience={audience}&after=start"
    async with client.stream("GET", path, timeout=httpx.Timeout(60)) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line.startswith("id: ") and line != "id: start":
                ids.append(line[4:])
            if ids and ids[-1] == until:
                break
    return ids


async def asking(client: httpx.AsyncClient, seconds: float, taken: list[float], statuses: list[int]) -> None:
    """Ask at a steady rate, whether or not answers have come, and note how long each took."""

    async def ask(question: str) -> None:
        began = time.perf_counter()
        answer = await client.get(question, timeout=httpx.Timeout(60))
        taken.append(time.perf_counter() - began)
        statuses.append(answer.status_code)

    async with asyncio.TaskGroup() as query:
        begun = time.perf_counter()
        for number in range(round(seconds * RATE)):
            await asyncio.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
            audience = ("facilities", "public")[number % 2]
            question = QUESTIONS[number % len(QUESTIONS)].format(audience=audience, release=RELEASES[audience])
            query.create_task(ask(question))


async def measured(folder: Path, streams: int, seconds: float) -> list[Figure]:
    """Run streams and queries side by side, and return what became of them."""
    wanted = {name: [value for _, value in read_outbox(folder / "store", name, 0)] for name in RELEASES}
    ids = {name: {parse_record(value)["release_id"] for value in values} for name, values in wanted.items()}
    last = {name: parse_record(max(values, key=lambda v: parse_record(v)["window_end"]))["release_id"]
            for name, values in wanted.items()}  # fmt: skip
    taken: list[float] = []
    statuses: list[int] = []
    limits = httpx.Limits(max_connections=None)
    async with service(folder, seconds) as (address, tokens):
        clients = [
            httpx.AsyncClient(base_url=address, limits=limits, headers={"authorization": f"Bearer {token}"})
            for token in tokens
        ]
        names = [("facilities", "public")[number % 2] for number in range(streams)]
        reading = [reader(clients[n % READERS], name, last[name]) for n, name in enumerate(names)]
        query = asyncio.create_task(asking(clients[0], seconds, taken, statuses))
        read = await asyncio.gather(*reading)
        await query
        for client in clients:
            await client.aclose()
    lost = sum(len(ids[name] - set(got)) for name, got in zip(names, read, strict=True))
    twice = sum(len(got) - len(set(got)) for got in read)
    taken.sort()
    p99 = taken[int(len(taken) * 0.99)]
    refused = sum(status != 200 for status in statuses)
    return [
        Figure("releases lost", lost, "of them", "0", lost == 0, f"by {streams} event streams"),
        Figure("releases twice", twice, "of them", "0", twice == 0),
        Figure("queries not answered", refused, "of them", "0", refused == 0, f"of {len(taken)}, {RATE} a second"),
        Figure("half of the answers within", taken[len(taken) // 2], "s"),
        Figure("99 of 100 answers within", p99, "s", f"<= {GOAL:g}", p99 <= GOAL),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "demo"
        command = [sys.executable, "-m", "connectors", "demo", "--json", "--dir", str(folder)]
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        tell(asyncio.run(measured(folder, STREAMS, 20 if quick() else SECONDS)))


if __name__ == "__main__":
    main()
