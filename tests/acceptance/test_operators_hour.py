"""From a controller's list of access points to what people read, by the commands of the guide.

Event time is the controllers' uptime, so that windows close without anybody waiting for them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from connectors.sources.ingest.addresses import address_of
from connectors.sources.snmp.sender import Association, encode_associate, encode_keepalive
from tests.acceptance.command_line import command, here, run
from tests.support.documents import ROOT
from tests.support.patience import PATIENCE

COMMUNITY = b"operators"
LIST = ROOT / "docs/examples/inventory/cisco-9800.csv"
COLUMNS = "ap=Radio MAC,name=AP Name,floor=Location"
START = "2026-03-02T08:00:00Z"
PEOPLE, MINUTES = 30, 31


def traps(radio: bytes) -> Iterator[bytes]:
    """Yield half an hour of a controller: everybody is heard every five minutes, and it is every minute."""
    for minute in range(MINUTES + 1):
        uptime = minute * 6000
        if minute % 5 == 1:
            for number in range(PEOPLE):
                seen = Association(bytes([0xA4, 0, 0, 0, 0, number]), radio)
                yield encode_associate(seen, community=COMMUNITY, uptime=uptime, request_id=minute * 100 + number)
        yield encode_keepalive(community=COMMUNITY, uptime=uptime)


def address_in(log: Path) -> tuple[str, int]:
    """Return where a run listens, as its log says."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = re.search(
            r'"event": ?"listening".*?"port": ?(\d+)|"port": ?(\d+).*?"event": ?"listening"', log.read_text()
        )
        if found is not None:
            return "127.0.0.1", int(found[1] or found[2])
        time.sleep(0.02)
    raise AssertionError(log.read_text())


def released(store: Path) -> list[dict[str, object]]:
    done = here("subscribe", "--store", store, "--audience", "public", "--from-start", "--until-end", "--json")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_from_a_controllers_list_to_what_people_read(tmp_path: Path) -> None:
    policy, key, store, log = (tmp_path / name for name in ("building.toml", "key", "store", "log"))
    made = ("--access-points", LIST, "--columns", COLUMNS, "--controllers", "127.0.0.1", "--timezone", "Europe/Berlin")
    here("policy", "init", *made, "--out", policy)
    here("policy", "check", policy)
    here("key", "create", key, "--laboratory")
    (tmp_path / "communities").write_bytes(COMMUNITY)
    (tmp_path / "communities").chmod(0o600)
    listening = command(["run", "--udp", "127.0.0.1:0", "--policy", policy, "--key-file", key, "--store", store,
                   "--clock", "uptime", "--start", START, "--json"])  # fmt: skip
    environment = os.environ | {"TACET_SNMP_COMMUNITIES_FILE": str(tmp_path / "communities"), "TACET_LOG_JSON": "1"}
    with log.open("w") as written:
        process = subprocess.Popen(listening, stdout=subprocess.PIPE, stderr=written, env=environment, text=True)
    try:
        address = address_in(log)
        sent = list(traps(address_of("a4b2.3902.2010") or b""))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for datagram in sent:
                sender.sendto(datagram, address)
    finally:
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=PATIENCE)
    received = json.loads(printed)
    assert (received["datagrams"], received["unknown_access_points"]) == (len(sent), {})
    records = [record for record in released(store) if record["released"]]
    assert [record["window_end"] for record in records] == [f"2026-03-02T08:{n:02d}:00Z" for n in range(0, 31, 5)]
    assert {record["unit"] for record in records} == {"device_day"}
    reported = run("doctor", "--policy", policy, "--key-file", key, "--store", store, "--json")
    findings = json.loads(reported.out)["findings"]
    assert {each["state"] for each in findings if each["check"] in {"store", "site", "key file", "mark"}} == {
        "fine",
        "note",
    }
