"""Known addresses, names, counts and secrets that go in are found in no output.

The same traps go through the live receiver over UDP, a file with bad rows through replay, and broken messages
into quarantine. Everything that anybody but the engine may read is searched: private topics, account, audit,
quarantine, logs, error texts, and what exceptions and keys show of themselves.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.keys.data_keys import DataKeys
from connectors.runtime import logs
from connectors.sources.recordings.observations import ObservationFile, shortfall
from connectors.sources.recordings.replay import replay
from connectors.sources.snmp.ber import IP_ADDRESS, tlv
from connectors.sources.snmp.profiles import ENTERPRISES
from connectors.sources.snmp.sender import (
    Association,
    encode_associate,
    encode_keepalive,
    encode_notification,
    octets,
    send,
    varbind,
)
from connectors.storage.embedded.reader import read_outbox, read_topic
from connectors.storage.embedded.runner import embedded
from stream.encoding import decode_message, encode_message
from stream.engine.partition import PartitionEngine
from stream.errors import TacetError
from stream.keys import subkey
from stream.pipeline import Options, Pipeline
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, MINUTE, ObservationBatch, OccupancyWindow, Published
from stream.release.validation import load_policy
from stream.schemas import AUDIT, LEAKAGE, QUARANTINE, parse_record
from tests.support.patience import PATIENCE
from tests.support.small_building import (
    ACCESS_POINTS,
    EVENING,
    SITE,
    SOURCES,
    Seen,
    building,
    laboratory,
    policy_text,
    write_csv,
)

MACS = [f"a4:5e:60:{n:02x}:ee:{n + 1:02x}" for n in range(40, 77)]
"""37 devices, all in one room, so that the true count is 37 for an hour."""
TRUE_COUNT = 7919
COMMUNITY = b"kanarienvogel"
USER, SSID, ADDRESS = b"agnes.canary", b"Eduroam-Canary", bytes([10, 77, 66, 55])
RELEASES = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
zones = { kind = ["hall", "lobby"] }
levels = ["zone", "building"]
epsilon = { facilities = "0.5", board = "0.25" }
[[release]]
name = "grouped"
query = "count"
mechanism = "pegasus"
zones = { kind = "hall" }
epsilon = { public = "0.5" }
"""
LOOPBACK = policy_text(RELEASES, tick="5min").replace('"127.0.0.1", "127.0.0.2"', '"127.0.0.1"')


def address_forms(address: str) -> list[str]:
    plain = address.replace(":", "")
    raw = bytes.fromhex(plain)
    return [address, plain, address.replace(":", "-"), f"{plain[:4]}.{plain[4:8]}.{plain[8:]}", repr(raw)[2:-1],
            base64.b64encode(raw).decode(), raw.hex(" "), ".".join(map(str, raw))]  # fmt: skip


def secret_forms(secret: bytes) -> list[str]:
    return [secret.hex(), base64.b64encode(secret).decode().rstrip("="), repr(secret)[2:-1]]


class Needles:
    """What must not be found, in every form that might be written."""

    def __init__(self, key_file: Path) -> None:
        document = json.loads(key_file.read_text())
        texts = (document["noise"]["root"], document["audit"], document["pseudonym"], document["data"]["key"])
        root, audit, pseudonym, data = (bytes.fromhex(text) for text in texts)
        keys = key_files.laboratory_keys(key_file)
        names = Pseudonyms.daily(pseudonym)
        self.forms = [form for address in MACS for form in address_forms(address)]
        self.forms += [USER.decode(), SSID.decode(), "10.77.66.55", COMMUNITY.decode()]
        for day in range(EVENING // DAY - 2, EVENING // DAY + 3):
            self.forms += [names.name(bytes.fromhex(address.replace(":", "")), day) for address in MACS]
            for purpose in ("noise", "coins", "commitment"):
                self.forms += secret_forms(subkey(keys.noise_key(day), purpose))
            self.forms += secret_forms(keys.noise_key(day)) + secret_forms(DataKeys(0, data).key_of(day))
        for secret in (root, audit, pseudonym, data):
            self.forms += secret_forms(secret)
        today = time.time_ns() // 1000 // DAY
        for day in (today - 1, today, today + 1):
            self.forms += [names.name(bytes.fromhex(address.replace(":", "")), day) for address in MACS]

    def found_in(self, text: str) -> list[str]:
        low = text.lower()
        return [form for form in self.forms if form.lower() in low]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "key", laboratory=True)
    return tmp_path / "key"


@pytest.fixture
def needles(key: Path) -> Needles:
    return Needles(key)


def given_out(folder: Path) -> str:
    """Everything that a store has for readers, as text."""
    names = [path.stem for path in sorted((folder / "private").glob("*.sqlite"))]
    boxes = [value for name in names for _, value in read_outbox(folder, name, 0)]
    topics = [value for topic in (AUDIT, LEAKAGE, QUARANTINE) for value in read_topic(folder, topic)]
    assert boxes
    return "\n".join(value.decode() for value in boxes + topics)


def test_the_needles_would_be_found(needles: Any, key: Path) -> None:
    """The search is not blind: it finds each kind of secret in what really holds it."""
    assert needles.found_in(key.read_text())
    path = write_csv(key.with_name("o.csv"), day_of_traps())
    file = ObservationFile(path, building(releases=RELEASES), key_files.pseudonym_key(key))
    vault = key_files.FileKeys(key).vault
    batches = [item for item in file.messages() if isinstance(item, ObservationBatch)]
    read = [decode_message(encode_message(item, vault), vault)[0] for item in batches]
    stored = "".join(str(tuple(item.rows)) for item in read if isinstance(item, ObservationBatch))
    assert len(needles.found_in(stored)) >= len(MACS)
    sealed = "".join(encode_message(item, vault).hex() for item in batches)
    assert not needles.found_in(sealed)
    assert needles.found_in((key.with_name("o.csv")).read_text())


def day_of_traps() -> list[Seen]:
    """All devices in one room for an hour; one of them goes on for a day."""
    times = [(EVENING + minute * MINUTE + n, mac) for minute in range(0, 60, 4) for n, mac in enumerate(MACS)]
    seen = [Seen(time, mac, ACCESS_POINTS["a"]) for time, mac in times]
    return seen + [Seen(EVENING + hour * 60 * MINUTE, MACS[0], ACCESS_POINTS["d"]) for hour in range(2, 6)]


# --- live, over UDP ------------------------------------------------------------------------------------------


def datagrams() -> Iterator[tuple[int, bytes]]:
    """Two hours of a controller with a keep-alive each minute; events as well that are no observations."""
    failure = f"{ENTERPRISES}.14179.2.6.3.4"
    extra = varbind(f"{ENTERPRISES}.14179.2.6.2.39.0", octets(USER))
    extra += varbind(f"{ENTERPRISES}.14179.2.1.1.1.2.0", octets(SSID))
    extra += varbind(f"{ENTERPRISES}.14179.2.6.2.43.0", tlv(IP_ADDRESS, ADDRESS))
    for minute in range(125):
        uptime = minute * 6000
        for n, mac in enumerate(MACS if minute % 4 == 0 and minute < 60 else ()):
            client, radio = (bytes.fromhex(text.replace(":", "")) for text in (mac, ACCESS_POINTS["a"]))
            yield (
                minute,
                encode_associate(
                    Association(client, radio, user=USER, address=ADDRESS, name=SSID),
                    community=COMMUNITY,
                    uptime=uptime,
                    request_id=n,
                    inform=n % 9 == 0,
                ),
            )
        client = bytes.fromhex(MACS[0].replace(":", ""))
        unknown = encode_associate(
            Association(client, bytes.fromhex("02ffffffffff"), user=USER), community=COMMUNITY, uptime=uptime
        )
        ignored = encode_notification(failure, extra, community=COMMUNITY, uptime=uptime)
        wrong = encode_associate(Association(client, client, user=USER), community=b"wrong" + USER, uptime=uptime)
        itself = encode_associate(Association(client, client, user=USER, name=USER), community=COMMUNITY, uptime=uptime)
        named = encode_associate(Association(client, b"", user=USER, name=USER), community=COMMUNITY, uptime=uptime)
        traps = (unknown, ignored, wrong, itself, named, unknown[:-7], b"\x30" + USER + client)
        yield from ((minute, trap) for trap in traps)
        yield minute, encode_keepalive(community=COMMUNITY, uptime=uptime)


def test_nothing_of_what_was_sent_over_udp_is_found_in_what_comes_out(tmp_path: Path, key: Path, needles: Any) -> None:
    (tmp_path / "policy.toml").write_text(LOOPBACK)
    (tmp_path / "communities").write_bytes(COMMUNITY + b"\n")
    (tmp_path / "communities").chmod(0o600)
    process = subprocess.Popen(
        [sys.executable, "-m", "connectors", "run", "--policy", str(tmp_path / "policy.toml"),
         "--key-file", str(key), "--store", str(tmp_path / "store"), "--udp", "127.0.0.1:0",
         "--clock", "uptime", "--start", "2026-03-03T04:00:00Z", "--metrics", "127.0.0.1:0"],
        env=os.environ | {"TACET_SNMP_COMMUNITIES_FILE": str(tmp_path / "communities"), "TACET_LOG_LEVEL": "debug"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        report, ports = "", dict[str, int]()
        while len(ports) < 2:
            report += (line := process.stderr.readline())
            if found := re.search(r"\[info *\] (metrics|listening) .*?port.*?(\d{4,5})", line):
                ports[found[1]] = int(found[2])
            assert line
        port = ports["listening"]
        made = list(datagrams())
        asyncio.run(send(made, ("127.0.0.1", port), None, source=SOURCES[0], max_rate=3000))
        patience = time.monotonic() + PATIENCE
        while time.monotonic() < patience and _windows(tmp_path / "store") < 20:
            time.sleep(0.1)
        shown = urllib.request.urlopen(f"http://127.0.0.1:{ports['metrics']}/metrics", timeout=PATIENCE).read().decode()
        process.terminate()
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, err
    text = given_out(tmp_path / "store")
    assert _windows(tmp_path / "store") >= 20
    assert not needles.found_in(text)
    assert not needles.found_in(report + out + err)
    assert "tacet_releases_total" in shown
    assert not needles.found_in(shown)
    assert "unknown access point" in out
    assert [line.split() for line in out.splitlines() if "02:ff:ff" in line] == [["125", "02:ff:ff:ff:ff:ff"]]
    assert "02:ff:ff" not in text + err, "an access point that the policy lacks is told the operator, and nobody else"


def _windows(folder: Path) -> int:
    try:
        return len({parse_record(value)["window_end"] for value in read_topic(folder, AUDIT)})
    except TacetError:
        return 0


# --- a file, with bad rows, through replay and the embedded runner ---------------------------------------------


def test_nothing_of_a_file_with_bad_rows_is_found_in_what_comes_out(
    tmp_path: Path, key: Path, needles: Any, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    logs.configure("debug", json=True)
    caplog.set_level(logging.DEBUG)
    path = write_csv(tmp_path / "o.csv", day_of_traps())
    lines = path.read_text().splitlines()
    at = "2026-03-03T04:00:00Z"
    broken = [
        f"{MACS[1]},{MACS[2]},{MACS[3]},{SITE}",
        f"{at},{MACS[2]}x,{ACCESS_POINTS['a']},{SITE}",
        f"{at},{MACS[2]},{USER.decode()},{SITE}",
        f'"{MACS[3]}',
        f"{at},{MACS[4]},{MACS[4]},{SITE}",
        f"{at},{MACS[4]},{ACCESS_POINTS['a']},{USER.decode()}",
    ]
    path.write_text("\n".join([lines[0], *broken, *lines[1:], *broken]) + "\n")
    policy = building(releases=RELEASES, tick="5min")
    file = ObservationFile(path, policy, key_files.pseudonym_key(key))
    made = replay(file, policy, key_files.laboratory_keys(key), tmp_path / "out", Options())
    report = f"{shortfall(made.tally)!r} {shortfall(made.tally)} {made!r}"
    with embedded(policy, key, tmp_path / "store") as runner:
        for message in ObservationFile(path, policy, key_files.pseudonym_key(key)).messages():
            runner.process(message)
    replayed = "\n".join(p.read_text() for p in (tmp_path / "out").rglob("*.jsonl"))
    assert made.tally.bad == 10
    captured = capfd.readouterr()
    for text in (replayed, given_out(tmp_path / "store"), report, caplog.text, captured.out, captured.err):
        assert not needles.found_in(text)
    assert "line 2: time" in report


# --- a distinctive count ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["laplace", "pegasus", "filter"])
def test_a_true_count_is_in_nothing_but_by_chance(mechanism: Any) -> None:
    """A count of 7919 at a small epsilon: the digits come out far less often than noise would have it by chance.

    A released value is exactly the true one with probability near epsilon / 2 = 0.005, so of 240 values about
    one; a record that holds the true count beside its value would have it every time.
    """
    policy = load_policy(
        policy_text(f'''
[[release]]
name = "r"
query = "count"
mechanism = "{mechanism}"
zones = {{ kind = "hall" }}
levels = ["zone", "building"]
epsilon = {{ board = "0.01" }}
''').replace("capacity = 6", "capacity = 6\nmax_count = 9000")
    )
    made = Pipeline(policy, SITE, laboratory())
    states = made.initial()
    texts: list[str] = []
    for n in range(80 if mechanism != "filter" else 12):
        window = OccupancyWindow(SITE, EVENING + n * policy.site[SITE].tick, (TRUE_COUNT,) * 6, 1)  # type: ignore[arg-type]
        for out in made._publish(states, window):
            assert isinstance(out, Published)
            texts.append(out.value.decode() + out.id)
    hits = sum(len(re.findall(rf"(?<![0-9a-f]){TRUE_COUNT}(?![0-9a-f])", text)) for text in texts)
    allowed = 8 if mechanism != "filter" else 30
    assert hits <= allowed


# --- broken messages and exceptions -------------------------------------------------------------------------


def test_quarantine_and_what_objects_show_of_themselves_hold_no_secret(key: Path, needles: Any) -> None:
    policy = building(releases=RELEASES)
    partition = PartitionEngine(policy, key_files.FileKeys(key))
    body = {"v": 1, "site": SITE, "source": SOURCES[0], "session": 1, "kind": "observations", "sequence": 0}
    row = [MACS[0].replace(":", ""), ACCESS_POINTS["a"], EVENING]
    bad_rows_too = [row, [MACS[5] * 5, *row[1:]], [*row[:2], MACS[6]], MACS[7], {MACS[8]: 1}]
    broken = [
        b"\xff" + MACS[0].encode(), MACS[1].encode(), json.dumps(MACS[:3]).encode(),
        json.dumps(body | {"site": MACS[4]}).encode(),
        json.dumps(body | {"source": USER.decode(), "rows": []}).encode(),
        json.dumps(body | {"rows": bad_rows_too}).encode(),
        json.dumps(body | {"sequence": 1, "rows": [[row[0], "02:ff:ff:ff:ff:01", EVENING]]}).encode(),
        json.dumps(body | {"kind": COMMUNITY.decode(), "rows": []}).encode(), b"", b"{" * 5000,
    ]  # fmt: skip
    emitted = [out for offset, value in enumerate(broken) for out in partition.process(offset, None, value)]
    assert len(emitted) == len(broken)
    assert {out.topic for out in emitted} == {QUARANTINE}
    text = " ".join(f"{out.value.decode()} {out.key.decode()} {out.id}" for out in emitted)
    assert not needles.found_in(text)
    assert "02:ff:ff" not in text
    keys = key_files.FileKeys(key)
    stages = Pipeline(policy, SITE, keys).stages
    report = " ".join(repr(thing) for thing in (keys, keys.keys, partition, stages, stages.release._writer))
    assert not needles.found_in(report)


def test_errors_of_the_state_show_nothing_of_it(key: Path, needles: Any) -> None:
    policy = building(releases=RELEASES)
    partition = PartitionEngine(policy, key_files.laboratory_keys(key))
    file = ObservationFile(write_csv(key.with_name("o.csv"), day_of_traps()), policy, key_files.pseudonym_key(key))
    for offset, item in enumerate(file.messages()):
        partition.process(offset, None, encode_message(item))
    snapshot = partition.snapshot(1, 0)
    report = []
    for cut in range(0, len(snapshot), max(1, len(snapshot) // 40)):
        for damaged in (snapshot[:cut], snapshot[:cut] + b"\x00" + snapshot[cut + 1 :]):
            try:
                PartitionEngine(policy, key_files.laboratory_keys(key)).restore(damaged)
            except Exception as error:
                report.append(f"{error!r} {error}")
    assert report
    assert not needles.found_in(" ".join(report))
