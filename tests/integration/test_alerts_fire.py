"""Alerts fire when what they watch is broken: a real Prometheus, real services, intervals a sixtieth of what they are.

Rules that wait for longer than five minutes are left to ``promtool test rules``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from connectors.keys import key_files
from connectors.sources.snmp.sender import Association, encode_associate, send
from connectors.storage.kafka.message_sink import KafkaSink
from connectors.storage.kafka.topic_readers import end_offsets, read_tail
from stream.records import HOUR, SECOND, ObservationBatch, Row
from stream.schemas import OBSERVATIONS, rfc3339
from tests.acceptance.test_kafka_end_to_end import cleared, tacet
from tests.integration.external_programs import Running, program, prometheus
from tests.integration.kafka_brokers import Broker
from tests.integration.metrics_services import Watched, until, watched
from tests.integration.test_alert_rules import FOLDER
from tests.integration.test_prometheus_export import answer
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.small_building import ACCESS_POINTS, EVENING, people, policy_text, write_csv

pytestmark = [pytest.mark.long]
COMMUNITY = b"fish"
UNITS = {"m": 1, "h": 60, "d": 24 * 60}
"""Seconds in place of minutes, hours and days."""
LOWER = (
    ("tacet_lag_seconds > 300", "tacet_lag_seconds > 8"),
    ("[30s]))) > 60", "[30s]))) > 3"),
    ("probe_timestamp_seconds > 600", "probe_timestamp_seconds > 30"),
)
COUNTS = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
zones = { kind = "hall" }
epsilon = { board = "0.5" }
daily_budget = { board = "1" }
"""
OFFICES = """
[[release]]
name = "offices"
query = "count"
mechanism = "laplace"
zones = { kind = "office" }
epsilon = { board = "0.05" }
"""
ASKED = """
[[release]]
name = "office-day"
query = "attributes"
zones = { kind = "office" }
[release.attributes.arrival]
epsilon = { board = "1" }
sensitive = { after = "10:00" }
"""


def hastened_rules() -> str:
    """Return the rules with every interval divided by sixty, and working time all the time."""
    rules = yaml.safe_load((FOLDER / "tacet.rules.yml").read_text())
    for rule in rules["groups"][0]["rules"]:
        expression = re.sub(r" and on \(instance\) .*$", "", rule["expr"])
        expression = re.sub(r"\[(\d+)([mhd])\]", lambda m: f"[{int(m[1]) * UNITS[m[2]]}s]", expression)
        for slow, quick in LOWER:
            expression = expression.replace(slow, quick)
        rule["expr"] = expression
        if "for" in rule:
            rule["for"] = re.sub(r"(\d+)([mh])", lambda m: f"{int(m[1]) * UNITS[m[2]]}s", rule["for"])
    return str(yaml.safe_dump(rules))


class House:
    """A folder with what a service needs, and a clock that can be set."""

    def __init__(self, folder: Path, policy: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "policy.toml").write_text(policy)
        (folder / "communities").write_bytes(COMMUNITY + b"\n")
        (folder / "communities").chmod(0o600)
        key_files.create(folder / "key", laboratory=True)
        self.drift(0)

    def drift(self, seconds: float) -> None:
        """Let the wall clock be ahead by so much."""
        (self.folder / "new").write_text(str(seconds))
        (self.folder / "new").replace(self.folder / "drift")

    def common(self) -> list[str | Path]:
        return ["--policy", self.folder / "policy.toml", "--key-file", self.folder / "key"]

    def running(self, verb: str, *words: str | Path) -> contextlib.AbstractContextManager[Watched]:
        """Start a verb."""
        words_before = [sys.executable, "-m", "tests.integration.hastened", str(self.folder / "drift"), verb]
        names = ("TACET_SNMP_COMMUNITIES_FILE", "TACET_SNMP_PROBE_COMMUNITY_FILE")
        env = dict.fromkeys(names, str(self.folder / "communities"))
        return watched(*self.common(), *words, env=env, program=words_before)

    def live(self) -> contextlib.AbstractContextManager[Watched]:
        """Start a run that takes traps."""
        return self.running("run", "--store", self.folder / "store", "--udp", "127.0.0.1:0")


@contextlib.contextmanager
def scraped(folder: Path, *services: Watched) -> Iterator[Running]:
    """A Prometheus that scrapes services and tries the rules."""
    targets = [f"127.0.0.1:{service.port}" for service in services]
    folder.mkdir()
    server = prometheus(folder, *targets, rules=hastened_rules())
    server.start()
    try:
        until(lambda: all(known(server, target) for target in targets), "never scraped")
        yield server
    finally:
        server.kill()


def known(server: Running, target: str) -> bool:
    with contextlib.suppress(urllib.error.HTTPError):  # until it has read its own log
        url = f"http://127.0.0.1:{server.port}"
        return bool(answer(url, "/api/v1/query", query=f'up{{instance="{target}"}} == 1'))
    return False


def fires(server: Running, alert: str, **labels: str) -> None:
    """Wait until an alert fires."""
    url = f"http://127.0.0.1:{server.port}"
    matching = "".join(f',{name}="{value}"' for name, value in labels.items())
    query = f'ALERTS{{alertname="{alert}",alertstate="firing"{matching}}}'
    until(lambda: bool(answer(url, "/api/v1/query", query=query)), f"{alert} did not fire")


def is_quiet(server: Running, *alerts: str) -> bool:
    url = f"http://127.0.0.1:{server.port}"
    found: list[dict[str, Any]] = answer(url, "/api/v1/query", query='ALERTS{alertstate="firing"}')
    return not {sample["metric"]["alertname"] for sample in found} & set(alerts)


def live_policy(more: str = "") -> str:
    """A building of eight access points that closes at the fourth device, with one source."""
    text = policy_text(COUNTS, tick="1min", site="max_devices = 3").replace('"127.0.0.1", "127.0.0.2"', '"127.0.0.1"')
    room = 'access_points = ["02:00:00:00:00:01"'
    return text.replace(f"{room}]", f'{room}, "02:00:00:00:01:01", "02:00:00:00:01:02"]') + more


def trap(number: int) -> bytes:
    client, radio = bytes.fromhex(f"a45e60{number:06x}"), bytes.fromhex(ACCESS_POINTS["a"].replace(":", ""))
    return encode_associate(Association(client, radio), community=COMMUNITY, uptime=1)


@contextlib.contextmanager
def snmpd(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A controller's agent, as far as its uptime goes, and its port."""
    path, port = program("snmpd", "TACET_REQUIRE_SNMPTRAP"), free_port()
    (folder / "snmpd.conf").write_text(f"rocommunity {COMMUNITY.decode()} 127.0.0.1\n")
    agent = subprocess.Popen(
        [path, "-f", "-Lo", "-C", "-c", folder / "snmpd.conf", "-I", "-smux", f"udp:127.0.0.1:{port}"],
        env={**os.environ, "MIBS": "", "SNMP_PERSISTENT_DIR": str(folder / "kept"), "SNMPCONFPATH": str(folder)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield agent, port
    finally:
        agent.kill()
        agent.wait()


def test_alerts_of_a_feed_fire_when_it_is_broken(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        agent, port = stack.enter_context(snmpd(tmp_path))
        probe = f'[[site.dbh.probe]]\nsource = "127.0.0.1"\nby = "snmp"\nport = {port}\n'
        house = House(tmp_path / "house", live_policy(probe))
        service = stack.enter_context(house.live())
        server = stack.enter_context(scraped(tmp_path / "prometheus", service))
        service.ready()
        until(lambda: service.total("tacet_source_up"), "the source does not answer", service)
        assert is_quiet(server, "TacetClock", "TacetNotReady", "TacetDropped", "TacetSiteClosed", "TacetDown")
        fires(server, "TacetNoTraffic")

        house.drift(3)
        fires(server, "TacetClock")
        house.drift(0)

        (house.folder / "key").chmod(0o644)
        fires(server, "TacetNotReady", check="key")
        (house.folder / "key").chmod(0o600)

        flood(service)
        fires(server, "TacetDropped")

        agent.kill()
        fires(server, "TacetSilentSource", source="127.0.0.1")

        asyncio.run(send([(0, trap(n)) for n in range(6)], ("127.0.0.1", service.udp), None, source="127.0.0.1"))
        fires(server, "TacetSiteClosed", site="dbh")

        house.drift(30)
        fires(server, "TacetClock", error="ClockStepError")
        assert service.process.wait(timeout=PATIENCE) == 1
        fires(server, "TacetDown")


def flood(service: Watched) -> None:
    """Send a stopped process more than its buffer holds."""
    service.process.send_signal(signal.SIGSTOP)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(40_000):
                sender.sendto(b"\x00" * 200, ("127.0.0.1", service.udp))
    finally:
        service.process.send_signal(signal.SIGCONT)


def test_alerts_of_an_engine_that_cannot_begin_fire(tmp_path: Path) -> None:
    """A mark that says of the store's last entry another hash; and a key that belongs to another store."""
    house, other = House(tmp_path / "house", policy_text(COUNTS)), House(tmp_path / "other", policy_text(COUNTS))
    rows = write_csv(tmp_path / "o.csv", people(hours=3, devices=4))
    words: list[str | Path] = ["--store", house.folder / "store", "--observations", rows]
    tacet("run", *map(str, [*house.common(), *words]))
    mark = house.folder / "key.mark"
    text = mark.read_text()
    (head,) = set(re.findall(r'"([0-9a-f]{64})"', text))
    mark.write_text(text.replace(head, "0" * 64))
    (other.folder / "key").unlink()
    key_files.create(other.folder / "key", laboratory=False)
    key_files.bind(other.folder / "key", "0" * 16)
    with house.running("run", *words) as altered, other.live() as stolen:
        with scraped(tmp_path / "prometheus", altered, stolen) as server:
            fires(server, "TacetReplayMismatch")
            fires(server, "TacetStopped", error="KeyFileError")
        assert (altered.process.wait(timeout=PATIENCE), stolen.process.wait(timeout=PATIENCE)) == (1, 2)


def test_alerts_of_refusals_fire_when_a_budget_is_spent_and_when_a_bound_would_be_passed(tmp_path: Path) -> None:
    """Counts of offices are charged a second time until noon; what the afternoon adds would be too much."""
    house = House(tmp_path / "house", policy_text(COUNTS + OFFICES + ASKED))
    noon = EVENING + 16 * HOUR
    seen = people(hours=29, devices=6)
    first = write_csv(tmp_path / "first.csv", [each for each in seen if each.time < noon])
    second = write_csv(tmp_path / "second.csv", [each for each in seen if each.time >= noon])
    common = [*map(str, house.common()), "--store", str(house.folder / "store")]
    tacet("run", *common, "--observations", str(first), "--to", rfc3339(noon))
    tacet("backfill", str(first), *common, "--attempt", "2", "--release", "offices", "--to", rfc3339(noon))
    span = ["--from", rfc3339(noon), "--to", rfc3339(noon + 14 * HOUR), "--speed", "1800"]
    words: list[str | Path] = ["--store", house.folder / "store", "--observations", second, *span]
    with house.running("run", *words) as service, scraped(tmp_path / "prometheus", service) as server:
        fires(server, "TacetRefusedReleases", release="plain", reason="budget")
        fires(server, "TacetLeakageBound", release="office-day", reason="factor")


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("unshare") is None, reason="a small disk needs root and unshare")
def test_the_alert_of_a_full_disk_fires(tmp_path: Path) -> None:
    """The store lies on a disk of its own, of 200 MiB, that something else fills."""
    house = House(tmp_path / "house", live_policy())
    disk = house.folder / "store"
    disk.mkdir(mode=0o700)
    script = (
        f"mount -t tmpfs -o size=200m,mode=700 tmpfs {disk} || exit 9; "
        f"(while [ ! -e {tmp_path}/fill ]; do sleep 0.2; done; head -c 190M /dev/zero > {disk}/full) & "
        'exec "$0" -m tests.integration.hastened "$@"'
    )
    program = ["unshare", "-m", "sh", "-c", script, sys.executable, str(house.folder / "drift"), "run"]
    env = {"TACET_SNMP_COMMUNITIES_FILE": str(house.folder / "communities")}
    words = [*house.common(), "--store", disk, "--udp", "127.0.0.1:0"]
    with watched(*words, env=env, program=program) as service, scraped(tmp_path / "prometheus", service) as server:
        service.ready()
        assert is_quiet(server, "TacetDisk")
        (tmp_path / "fill").touch()
        fires(server, "TacetDisk")


@pytest.mark.kafka
def test_alerts_of_a_log_fire_when_what_is_in_it_is_bad_late_or_missing(kafka: Broker, tmp_path: Path) -> None:
    house = House(tmp_path / "house", live_policy())
    bootstrap = cleared(kafka, house.folder / "policy.toml")
    with house.running("worker", "--kafka", bootstrap) as worker, scraped(tmp_path / "prometheus", worker) as server:
        worker.ready()
        with house.running("ingest", "--kafka", bootstrap, "--udp", "127.0.0.1:0") as ingest:
            ingest.ready()
            until(lambda: worker.total("tacet_window_release_delay_seconds_count"), "no window", worker)
            assert is_quiet(server, "TacetLag", "TacetReleaseDelay", "TacetQuarantine", "TacetLateData")

            asyncio.run(put_bad_and_late(bootstrap))
            fires(server, "TacetQuarantine")
            fires(server, "TacetLateData")

            worker.process.send_signal(signal.SIGSTOP)
            subprocess.run(["sleep", "62"], check=True)  # a window comes to its end meanwhile
            worker.process.send_signal(signal.SIGCONT)
            fires(server, "TacetReleaseDelay")
        fires(server, "TacetLag", site="dbh")  # the ingest is gone


async def put_bad_and_late(bootstrap: str) -> None:
    """Write, in the ingest's own session, rows of an hour ago, and rows that are malformed."""
    ends = await end_offsets(bootstrap, OBSERVATIONS)
    tails = [await read_tail(bootstrap, OBSERVATIONS, partition, 20) for partition in ends]
    session = max(json.loads(value)["session"] for tail in tails for value in tail)
    hour_ago = time.time_ns() // 1000 - HOUR
    sink = KafkaSink(bootstrap)
    await sink.start()
    try:
        for number in range(10**6, 10**6 + 12):
            late = tuple(Row(f"late{n}", ACCESS_POINTS["a"], hour_ago + n * SECOND) for n in range(5))
            malformed = Row("x" * 65, ACCESS_POINTS["a"], hour_ago)
            await sink.append(ObservationBatch("dbh", "127.0.0.1", session, number, (*late, malformed)))
            await asyncio.sleep(1)
    finally:
        await sink.stop()
