"""A day of a building in minutes: ``run`` with four controllers, and ``serve``, on a clock that goes faster.

The controllers are two of SNMP by community, one of SNMPv3 and one of RADIUS, a quarter of the access points each.
Once a second of the real clock all that is measured is read: metrics of both, resident memory, descriptors, disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from connectors.lab.simulation import policy as simulation_policy
from connectors.lab.simulation.traps import Datagram, trap_schedule
from connectors.sources.snmp.ber import TRAP_V2, tlv
from connectors.sources.snmp.traps import envelope
from connectors.sources.snmp.usm.users import Users
from stream.lab.simulator.events import DAY_SHOWN, Simulation, simulate
from stream.records import HOUR, SECOND, Micros
from tests.acceptance.command_line import tacet
from tests.acceptance.hurried import Hurried
from tests.support.ports import free_port
from tests.unit.radius.accounting_requests import INTERIM, SECRET, request
from tests.unit.snmp.v3_controller import AUTH, ENGINE, PRIVACY, Controller, source, user

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
V3, RADIUS = 2, 3
"""Which of the controllers speaks what; the others send by community."""
COMMUNITY = b"soaking"
WORK = {"observations", "state"}
"""Tables of what is yet to be released."""
UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
_ADDRESS = re.compile(rb"\x04\x06(.{6})", re.DOTALL)


class Sample(NamedTuple):
    """What a second of the real clock has found."""

    hour: float
    """Of the day that is played, since its start."""
    figures: dict[str, float]
    """Bytes and numbers by what they are of."""


@dataclass(slots=True)
class Soak:
    """A folder with all that a day takes, and what it has told."""

    folder: Path
    times: int
    simulation: Simulation
    samples: list[Sample] = field(default_factory=list)
    metrics: dict[str, str] = field(default_factory=dict)
    """The last scrape of each service."""
    sent: int = 0
    told: dict[str, Any] = field(default_factory=dict)
    """What the run said at its end."""


def soak(folder: Path, times: int = 120, hours: int = 24) -> Soak:
    """Play a day at so many times its speed; return what was measured."""
    simulation = simulate(replace(DAY_SHOWN, days=1))
    made = Soak(folder, times, simulation)
    _prepare(made)
    clock = Hurried(times, simulation.start, time.monotonic_ns() + 5 * 10**9)  # when they are up
    with _service(made, clock, "run", *_run_words()) as run, _service(made, clock, "serve", *_serve_words()) as served:
        asyncio.run(_play(made, clock, {"run": run, "serve": served}, hours))
    made.told = json.loads((folder / "run.out").read_text())
    return made


def slope(samples: list[Sample], of: str) -> float:
    """Return by how much of its mean a figure grows over the last half, by least squares."""
    half = [each for each in samples if each.hour >= samples[-1].hour / 2]
    hours, values = np.array([each.hour for each in half]), np.array([each.figures[of] for each in half])
    rise = np.polyfit(hours, values, 1)[0] * (hours[-1] - hours[0])
    return float(rise / values.mean())


def _prepare(made: Soak) -> None:
    folder = made.folder
    (folder / "policy.toml").write_text(simulation_policy.policy_text(made.simulation, HOSTS))
    (folder / "communities").write_bytes(COMMUNITY + b"\n")
    (folder / "users.toml").write_text(
        f'[[user]]\nname = "tacet"\nauth_password = "{AUTH}"\nprivacy_password = "{PRIVACY}"\n'
        f'[[source]]\naddress = "{HOSTS[V3]}"\nengines = ["{ENGINE.hex()}"]\n'
    )
    (folder / "clients.toml").write_text(f'[[client]]\naddress = "{HOSTS[RADIUS]}"\nsecrets = ["{SECRET.decode()}"]\n')
    for name in ("communities", "users.toml", "clients.toml"):
        (folder / name).chmod(0o600)
    first = np.datetime64(made.simulation.start, "us").astype("datetime64[D]")
    tacet("key", "create", folder / "key", "--first-day", str(first))


def _run_words() -> list[str]:
    return [
        "--json",
        "--key-file",
        "key",
        "--udp",
        f"0.0.0.0:{free_port(socket.SOCK_DGRAM)}",
        "--radius",
        f"{HOSTS[RADIUS]}:{free_port(socket.SOCK_DGRAM, HOSTS[RADIUS])}",
    ]


def _serve_words() -> list[str]:
    return ["--audience", "facilities", "--audience", "public", "--account", "--operator", "--index", "index",
            "--listen", f"127.0.0.1:{free_port()}"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Service:
    """A process with the ports that it said."""

    process: subprocess.Popen[str]
    words: list[str]
    metrics: int

    def port(self, option: str) -> int:
        """Return the port behind an option."""
        return int(self.words[self.words.index(option) + 1].rpartition(":")[2])


@contextmanager
def _service(made: Soak, clock: Hurried, verb: str, *words: str) -> Iterator[Service]:
    files = {"SNMP_COMMUNITIES": "communities", "SNMP_USERS": "users.toml", "RADIUS_CLIENTS": "clients.toml"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TACET_")}
    metrics, log = free_port(), made.folder / f"{verb}.log"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.acceptance.hurried", str(clock.times), str(clock.wall), str(clock.origin), verb,
         "--policy", "policy.toml", "--store", "store", *words, "--metrics", f"127.0.0.1:{metrics}"],
        cwd=made.folder, text=True, stdout=(made.folder / f"{verb}.out").open("w"), stderr=log.open("w"),
        env=environment | _of_unit(verb) | {f"TACET_{name}_FILE": file for name, file in files.items()}
        | {"PYTHONFAULTHANDLER": "1", "PYTHONPATH": str(Path(__file__).parents[2]), "TACET_LOG_JSON": "true"},
    )  # fmt: skip
    try:
        _await_answer(f"http://127.0.0.1:{metrics}/livez", process, log)
        yield Service(process, list(words), metrics)
        assert process.poll() is None, log.read_text()[-2000:]
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            code = process.wait(30)
        assert code == 0, log.read_text()[-6000:]
    finally:
        process.kill()


def _of_unit(verb: str) -> dict[str, str]:
    """Return what the environment of a service has by its unit."""
    text = "".join((UNITS / name).read_text() for name in ("tacet-.service.d/hardening.conf", f"tacet-{verb}.service"))
    return dict(re.findall(r"^Environment=(MALLOC_\w+)=(\w+)$", text, re.MULTILINE))


def _await_answer(url: str, process: subprocess.Popen[str], log: Path) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(url, timeout=5).read()
            return
        except OSError:
            assert process.poll() is None, log.read_text()[-2000:]
            time.sleep(0.1)
    raise AssertionError(url)


async def _play(made: Soak, clock: Hurried, services: dict[str, Service], hours: int) -> None:
    sending = asyncio.create_task(_send(made, clock, services["run"], hours))
    while not sending.done():
        await asyncio.sleep(1)
        made.samples.append(await asyncio.to_thread(_sample, made, clock, services))
    await sending


async def _send(made: Soak, clock: Hurried, run: Service, hours: int) -> None:
    """Let each controller say what it has seen, when its time has come."""
    snmp, radius = run.port("--udp"), run.port("--radius")
    v3 = Controller(users=Users([user()], [source(address=HOSTS[V3])]), started=made.simulation.start - 1000 * SECOND)
    socks = []
    for host in HOSTS:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((host, 0))
        sock.setblocking(False)
        socks.append(sock)
    end = made.simulation.start + hours * HOUR
    for datagram in trap_schedule(made.simulation, controllers=len(HOSTS), community=COMMUNITY):
        if datagram.time > end:
            break
        while (wait := datagram.time - clock.now()) > 0:
            await asyncio.sleep(min(wait / 1e6 / clock.times, 0.25))
        sock = socks[datagram.controller]
        if datagram.controller == RADIUS:
            if (output := _accounted(datagram, made.sent)) is not None:
                sock.sendto(output, (HOSTS[RADIUS], radius))
        else:
            data = _wrapped(v3, datagram, clock.now()) if datagram.controller == V3 else datagram.data
            sock.sendto(data, (HOSTS[0], snmp))
        made.sent += 1
    for sock in socks:
        sock.close()


def _wrapped(controller: Controller, datagram: Datagram, now: Micros) -> bytes:
    around = envelope(datagram.data)
    return controller.trap(now, pdu=tlv(TRAP_V2, datagram.data[around.start : around.stop]))


def _accounted(datagram: Datagram, number: int) -> bytes | None:
    """Return the accounting that says the same as an association; None for a keep-alive."""
    found = [mac.hex("-") for mac in _ADDRESS.findall(datagram.data)]
    if len(found) < 2:
        return None
    point, client = found[:2]
    return request(INTERIM, identifier=number % 256, calling=client, called=f"{point}:net", session=f"{number:08X}")


def _sample(made: Soak, clock: Hurried, services: dict[str, Service]) -> Sample:
    figures: dict[str, float] = {}
    for name, service in services.items():
        with urllib.request.urlopen(f"http://127.0.0.1:{service.metrics}/metrics", timeout=30) as answer:
            made.metrics[name] = answer.read().decode()
        process = Path(f"/proc/{service.process.pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        figures[f"{name} memory"] = int(status["VmRSS"].split()[0]) * 1024
        figures[f"{name} descriptors"] = len(list((process / "fd").iterdir()))
    return Sample((clock.now() - made.simulation.start) / HOUR, figures | _disk(made.folder / "store"))


def _disk(store: Path) -> dict[str, float]:
    """Return bytes that are kept for good (what was released, and its books), those of work, and the largest log."""
    kept = work = 0
    for file in store.rglob("*.sqlite"):
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as database:
            for table, size in database.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"):
                if table in WORK:
                    work += size
                else:
                    kept += size
    logs = [file.stat().st_size for file in store.rglob("*-wal")]
    return {"disk kept": kept, "disk of work": work, "largest log": max(logs, default=0)}
