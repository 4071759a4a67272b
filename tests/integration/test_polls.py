"""Client tables of net-snmp's own agent, read over SNMPv2c and v3, and what becomes of them.

Debian: ``apt-get install snmpd``. ``TACET_REQUIRE_SNMPTRAP=1`` makes a missing program a failure.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.sources.polls import snmp_walk
from connectors.sources.polls.client_tables import TABLES, AssociatedClient
from connectors.sources.polls.snmp_walk import (
    NO_ANSWER,
    REFUSED,
    CommunityReader,
    PollError,
    Table,
    TableReader,
    UserReader,
)
from connectors.sources.snmp.usm.users import Source, User, Users
from stream.records import SECOND
from tests.acceptance.command_line import POLICY, command, here
from tests.integration import client_tables
from tests.integration.client_tables import CISCO, Cell, cisco, index, write
from tests.support.day_policies import day_release
from tests.support.net_snmp import HOST, snmpd
from tests.support.patience import PATIENCE, waiting_for
from tests.support.ports import free_port
from tests.support.small_building import ACCESS_POINTS, SITE, SOURCES, policy_text

pytestmark = pytest.mark.snmptrap
LAPTOPS = 0x3C00_0000_0000
LOFT, HALL = bytes.fromhex("020000000e02"), bytes.fromhex("020000000e01")
TABLE = TABLES["cisco-lwapp"]
COMMUNITY, ENGINE = "read-only", "80000000010a0b0c"
AUTH, PRIVACY = "auth password", "privacy password"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snmp_walk, "WAIT", 0.5)
    monkeypatch.setattr(snmp_walk, "PACE", 0.0)


@asynccontextmanager
async def agent(folder: Path) -> AsyncIterator[int]:
    """net-snmp's agent, whose table is in ``folder/rows``; its port."""
    answering = f"{sys.executable} {Path(client_tables.__file__).resolve()} {folder / 'rows'}"
    settings = (
        f"rocommunity {COMMUNITY} {HOST}\nexactEngineID 0x{ENGINE}\n"
        f'createUser tacet SHA-256 "{AUTH}" AES "{PRIVACY}"\nrouser tacet priv\n'
        f"pass_persist .{CISCO} {answering}\n"
    )
    async with snmpd(folder, settings) as port:
        yield port


def clients(number: int, status: int = 3) -> Iterator[tuple[bytes, bytes, int]]:
    for each in range(number):
        yield (0x3C00_0000_0000 + each * 7).to_bytes(6, "big"), HALL if each % 2 else LOFT, status


def rows(number: int) -> set[AssociatedClient]:
    return {AssociatedClient(client, radio) for client, radio, _ in clients(number)}


def by_community(port: int, community: str = COMMUNITY) -> CommunityReader:
    return CommunityReader(HOST, port, TABLE, community.encode)


def by_user(port: int, engine: str = ENGINE, **more: Any) -> UserReader:
    passwords = {"auth_password": AUTH, "privacy_password": PRIVACY} | more
    source = Source.model_validate({"address": HOST, "engines": [engine]}, strict=False)
    return UserReader(HOST, port, TABLE, Users([User(name="tacet", **passwords)], [source]), "tacet")


async def read(reader: TableReader) -> Table:
    """Read when the agent is up."""
    async with waiting_for("a whole table"):
        while True:
            try:
                return await reader.read()
            except PollError:
                pass
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("reader_of", [by_community, by_user])
async def test_a_table_is_read_whole_and_only_associated_clients_of_it(reader_of: Any, tmp_path: Path) -> None:
    gone = [((0x4C00_0000_0000 + each).to_bytes(6, "big"), HALL, 6) for each in range(30)]
    write(tmp_path / "rows", cisco([*clients(50), *gone]))
    async with agent(tmp_path) as port:
        reader = reader_of(port)
        table = await read(reader)
        assert set(table.rows) == rows(50)
        write(tmp_path / "rows", cisco(clients(3)))
        assert set((await reader.read()).rows) == rows(3)
        write(tmp_path / "rows", [])
        assert (await reader.read()).rows == []


async def test_forty_thousand_clients_are_read_in_requests_of_twenty(tmp_path: Path) -> None:
    write(tmp_path / "rows", cisco(clients(40_000)))
    async with agent(tmp_path) as port:
        table = await read(by_community(port))
        assert len(table.rows) == 40_000
        assert 2_001 <= table.requests <= 2_010


async def test_who_has_no_key_or_another_engine_gets_and_believes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "rows", cisco(clients(3)))
    async with agent(tmp_path) as port:
        await read(by_community(port))
        for reader, reason in (
            (by_community(port, "wrong"), NO_ANSWER), (by_user(port, auth_password="another password"), NO_ANSWER),
            (by_user(port, privacy_password="another password"), NO_ANSWER),
            (by_user(port, engine="80000000010a0b0d"), REFUSED),
        ):  # fmt: skip
            with pytest.raises(PollError) as reported:
                await reader.read()
            assert reported.value.reason == reason


async def test_an_agent_whose_clock_started_again_is_read(tmp_path: Path) -> None:
    write(tmp_path / "rows", cisco(clients(3)))
    async with agent(tmp_path) as port:
        reader = by_user(port)
        await read(reader)
    async with agent(tmp_path) as port:
        reader._port = port
        assert len((await read(reader)).rows) == 3


async def test_an_agent_that_is_gone_gives_no_part_of_a_table(tmp_path: Path) -> None:
    write(tmp_path / "rows", cisco(clients(3)))
    async with agent(tmp_path) as port:
        await read(by_community(port))
    with pytest.raises(PollError) as reported:
        await by_community(port).read()
    assert reported.value.reason == NO_ANSWER


TIMES = 10
"""The clock of the processes, so that their minutes are over soon; a poll every two of them, a window for each."""


def hurried(verb: str, wall: int, origin: int, *words: str | Path, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.acceptance.hurried", str(TIMES), str(wall), str(origin), verb, *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip


def environment(folder: Path, port: int) -> dict[str, str]:
    """Write a policy that polls the agent, and files of secrets; return the environment that names these."""
    text = re.sub("working_hours = .*", 'tick = "1min"', POLICY.replace('facilities = "2"', 'facilities = "100"'))
    declared = "".join(
        f'[[site.east.{kind}]]\nsource = "{HOST}"\nby = "{by}"\nport = {port}\n{more}\n'
        for kind, by, more in (("probe", "snmp", ""), ("poll", "cisco-lwapp", 'interval = "2min"'))
    )
    (folder / "policy").write_text(text.replace("[[audience]]", declared + "[[audience]]", 1))
    secrets = {
        "TACET_POLLS_FILE": f'[[agent]]\nsource = "{HOST}"\ncommunity = "{COMMUNITY}"\n',
        "TACET_SNMP_PROBE_COMMUNITY_FILE": COMMUNITY,
    }
    for name, content in secrets.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o600)
    return os.environ | {name: str(folder / name) for name in secrets}


async def test_a_table_becomes_released_windows(tmp_path: Path) -> None:
    policy, key, to = tmp_path / "policy", tmp_path / "key", tmp_path / "socket"
    key_files.create(key, laboratory=True)
    write(tmp_path / "rows", cisco(clients(40)))
    async with agent(tmp_path) as port:
        await read(by_community(port))
        env = environment(tmp_path, port)
        wall, origin = time.time_ns() // 1000 // SECOND * SECOND, time.monotonic_ns()
        run = hurried(
            "run", wall, origin, "--policy", policy, "--key-file", key, "--store", tmp_path / "store", "--polls",
            to, "--json", env=env,
        )  # fmt: skip
        poll = hurried("poll", wall, origin, "--policy", policy, "--to", to, env=env)
        try:
            async with waiting_for("counts of the table"):
                while not await asyncio.to_thread(counted, tmp_path / "store"):
                    assert poll.poll() is None, poll.communicate()
                    assert run.poll() is None, run.communicate()
                    await asyncio.sleep(0.5)
        finally:
            for process in (poll, run):
                process.terminate()
            ends = [await asyncio.to_thread(process.communicate, None, PATIENCE) for process in (poll, run)]
    assert (poll.returncode, run.returncode) == (0, 0), ends
    stored = json.loads(ends[1][0].splitlines()[-1])
    assert stored["dropped"] == {}
    assert stored["accepted"] >= 40
    assert stored["accepted"] % 40 == 0


def counted(store: Path) -> bool:
    """Whether a window was released with all devices of the table; 1e-8 says that its noise is not 0."""
    if not (store / "private" / "facilities.sqlite").exists():
        return False
    done = here("subscribe", "--store", store, "--audience", "facilities", "--from-start", "--until-end", "--json")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return {"hall": 20, "loft": 20} in [record["values"] for record in records]


LOGIN = "Agnes.Canary@example.org"
USER_NAME = f"{CISCO}.27"
"""cldcClientUsername"""


def of_logins(folder: Path, port: int) -> dict[str, str]:
    """As ``environment``, for a site that counts the logins of the table."""
    env = environment(folder, port)
    text = (folder / "policy").read_text()
    declared = text[text.index("[[site.east.probe]]") : text.index("[[audience]]")].replace("site.east", f"site.{SITE}")
    days = 'day_starts = "04:00"\ncontribution = "8h"\nidentity = "login"\nothers = "count"\n'
    policy = policy_text(day_release(), tick="1min", site=days).replace(f'"{SOURCES[0]}"', f'"{HOST}"')
    (folder / "policy").write_text(policy.replace("[[audience]]", declared + "[[audience]]", 1))
    return env


def scraped(port: int) -> str:
    try:
        text: str = urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=PATIENCE).read().decode()
    except OSError:
        return ""
    return text


async def test_a_polled_login_is_found_in_nothing_that_is_written(tmp_path: Path) -> None:
    """One at an access point of the policy and one elsewhere; a name that may be cut off, and one of a machine."""
    here_, elsewhere = (bytes.fromhex(each.replace(":", "")) for each in (ACCESS_POINTS["a"], "020000009999"))
    seen = [(LAPTOPS + each).to_bytes(6, "big") for each in range(4)]
    names = (LOGIN, "Agnes.Canary@elsewhere.org", ("agnes.canary." * 3)[:32], "host/agnes.canary")
    cells = cisco((client, elsewhere if number == 1 else here_, 3) for number, client in enumerate(seen))
    users = (Cell(f"{USER_NAME}.{index(client)}", "string", name) for client, name in zip(seen, names, strict=True))
    write(tmp_path / "rows", [*cells, *users])
    key_files.create(tmp_path / "key", laboratory=True)
    ports = free_port(), free_port()
    async with agent(tmp_path) as port:
        env = of_logins(tmp_path, port) | {"TACET_LOG_LEVEL": "debug"}
        policy = tmp_path / "policy"
        dry = await asyncio.to_thread(
            subprocess.run, command(["poll", "--policy", policy, "--dry-run"]), capture_output=True, text=True, env=env,
            check=True, timeout=PATIENCE,
        )  # fmt: skip
        wall, origin = time.time_ns() // 1000 // SECOND * SECOND, time.monotonic_ns()
        run = hurried(
            "run", wall, origin, "--policy", policy, "--key-file", tmp_path / "key", "--store", tmp_path / "store",
            "--polls", tmp_path / "socket", "--metrics", f"{HOST}:{ports[0]}", "--json", env=env,
        )  # fmt: skip
        poll = hurried(
            "poll", wall, origin, "--policy", policy, "--to", tmp_path / "socket", "--metrics", f"{HOST}:{ports[1]}",
            env=env,
        )  # fmt: skip
        shown: list[str] = []
        try:
            async with waiting_for("a poll that was handed over"):
                while not re.search(r"tacet_polls_total\{.*complete.*\} [1-9]", "".join(shown)):
                    assert poll.poll() is None, poll.communicate()
                    assert run.poll() is None, run.communicate()
                    await asyncio.sleep(0.5)
                    shown = [await asyncio.to_thread(scraped, each) for each in ports]
        finally:
            for process in (poll, run):
                process.terminate()
            ends = [await asyncio.to_thread(process.communicate, None, PATIENCE) for process in (poll, run)]
    assert (poll.returncode, run.returncode) == (0, 0), ends
    assert json.loads(ends[1][0].splitlines()[-1])["accepted"] > 0, "the login counts"
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "rows"]
    stored = b"".join(path.read_bytes() for path in written)
    assert b"agnes" not in stored.lower()
    assert "agnes" not in "".join([dry.stdout, dry.stderr, *shown, *(text for end in ends for text in end)]).lower()


async def test_a_dry_run_shows_what_a_poll_takes_and_which_access_points_the_policy_lacks(tmp_path: Path) -> None:
    elsewhere = [((0x4C00_0000_0000 + each).to_bytes(6, "big"), bytes.fromhex("020000000099"), 3) for each in range(5)]
    write(tmp_path / "rows", cisco([*clients(40), *elsewhere]))
    async with agent(tmp_path) as port:
        await read(by_community(port))
        env = environment(tmp_path, port)
        done = await asyncio.to_thread(
            subprocess.run, command(["poll", "--policy", tmp_path / "policy", "--dry-run"]),
            capture_output=True, text=True, env=env, check=True, timeout=PATIENCE,
        )  # fmt: skip
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[:3] == [
        f"{HOST} (east): complete", "45 associated devices", "40 of them at access points of the policy",
    ]  # fmt: skip
    assert lines[3].startswith("3 requests in ")
    assert lines[4] == "the policy lacks 02:00:00:00:00:99"
    assert not re.search("[34]c:00:00", done.stdout)
