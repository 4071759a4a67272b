"""``tacet doctor``: each finding is fine or wrong; it names no device, stores nothing and delays nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from connectors.cli.main import tacet
from connectors.keys import key_files
from connectors.operations.audit.verification import AuditBundle
from connectors.operations.doctor import checks, live_check
from connectors.operations.doctor.findings import Finding, State, findings_of
from connectors.runtime.clock import CLOCK_STEP
from connectors.sources.ingest.addresses import address_of
from connectors.sources.ingest.listeners import RECEIVE_BUFFER
from connectors.sources.ingest.queue import Counters
from connectors.sources.probes.methods import ProbeAnswer
from connectors.sources.snmp.sender import Association, encode_associate
from connectors.sources.snmp.usm.users import Users
from connectors.storage.embedded.reader import OPERATOR_OUTBOX
from connectors.storage.embedded.rollback_mark import mark_path
from connectors.storage.kafka.topic_settings import TopicSettings, topic_config
from connectors.storage.kafka.topics import topic_names
from stream.errors import PolicyError
from stream.records import DAY, SECOND
from stream.schemas import OBSERVATIONS, SNAPSHOT
from tests.support.patience import until
from tests.support.small_building import COUNTS, access_point, building, mac, people, policy_text, write_csv
from tests.unit.snmp.v3_controller import AUTH, OTHER_ENGINE, PRIVACY, RADIO, Controller, source, user

POLICY = building(releases=COUNTS)
COMMUNITY = b"public"


def states(found: Iterator[Finding] | list[Finding], check: str) -> set[State]:
    return {finding.state for finding in found if finding.check == check}


def text_of(found: list[Finding], state: State) -> str:
    return "\n".join(finding.text for finding in found if finding.state == state)


# --- the machine --------------------------------------------------------------------------------------

CLOCKS: tuple[tuple[tuple[bool, int] | None, State], ...] = (
    (None, "note"), ((False, 0), "note"), ((True, 10_000), "fine"), ((True, 2 * SECOND), "wrong"),
)  # fmt: skip


@pytest.mark.parametrize(("kept", "state"), CLOCKS)
def test_a_clock_is_wrong_that_is_kept_in_step_and_is_off(kept: tuple[bool, int] | None, state: State) -> None:
    assert states(checks.clock(kept), checks.CLOCK) == {state}


@pytest.mark.skipif(not hasattr(os, "uname") or os.uname().sysname != "Linux", reason="adjtimex is Linux's")
def test_the_kernel_is_asked_for_its_clock_without_being_told_anything() -> None:
    kept = checks.kernel_clock()
    assert kept is None or 0 <= kept[1] <= 2**31


@pytest.mark.parametrize(("text", "state"), [(str(RECEIVE_BUFFER), "fine"), ("212992", "wrong"), ("?", "note")])
def test_a_socket_must_be_allowed_to_hold_what_a_receiver_asks_for(tmp_path: Path, text: str, state: State) -> None:
    (tmp_path / "rmem_max").write_text(f"{text}\n")
    assert states(checks.socket_buffer(tmp_path / "rmem_max"), checks.SOCKET) == {state}


@pytest.mark.parametrize(("free", "state"), [(10 << 30, "fine"), (1 << 20, "wrong")])
def test_a_disk_needs_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, state: State) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": free}))
    assert states(checks.disk(tmp_path), checks.DISK) == {state}


def test_versions_are_told_and_what_encrypts_is_there() -> None:
    (finding,) = checks.versions()
    assert finding.state == "fine"
    assert "numpy " in finding.text


# --- key and mark -------------------------------------------------------------------------------------


def test_a_key_that_others_can_read_is_wrong(tmp_path: Path) -> None:
    key_files.create(tmp_path / "key", laboratory=True)
    assert states(checks.key_file(tmp_path / "key", 0), checks.KEY) == {"fine", "note"}
    (tmp_path / "key").chmod(0o640)
    found = checks.key_file(tmp_path / "key", 0)
    assert "chmod 600" in next(found).text


@pytest.mark.parametrize(("days", "state"), [(0, "fine"), (checks.LATE_DAYS, "fine"), (checks.LATE_DAYS + 1, "wrong")])
def test_a_production_key_steps_on(tmp_path: Path, days: int, state: State) -> None:
    key_files.create(tmp_path / "key", laboratory=False, first_day=20_000)
    *_, finding = checks.key_file(tmp_path / "key", (20_000 + days) * DAY)
    assert (finding.state, "2024-10-04" in finding.text) == (state, True)


# --- a store ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with policy, production key and a store that a short run has left."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "policy.toml").write_text(policy_text(releases=COUNTS))
    key_files.create(folder / "key", laboratory=True)
    write_csv(folder / "o.csv", people(hours=13, devices=3))
    done = CliRunner().invoke(
        tacet, ["run", "--policy", f"{folder}/policy.toml", "--key-file", f"{folder}/key", "--store", f"{folder}/store",
                "--observations", f"{folder}/o.csv"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder


def examined(folder: Path, *more: str, **environment: str) -> Result:
    arguments = ["doctor", "--policy", f"{folder}/policy.toml", *more]
    return CliRunner(env=environment).invoke(tacet, arguments)


def everything(folder: Path) -> tuple[str, ...]:
    return "--key-file", f"{folder}/key", "--store", f"{folder}/store"


@pytest.fixture
def machine_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine is like is not asked."""
    for name in ("clock", "socket_buffer", "disk"):
        monkeypatch.setattr(checks, name, lambda *_: iter(()))


@pytest.mark.usefixtures("machine_is_fine")
def test_an_installation_of_which_nothing_is_wrong_ends_with_0(installed: Path) -> None:
    done = examined(installed, *everything(installed), "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["wrong"] == 0
    assert {each["check"] for each in found["findings"]} >= {checks.KEY, checks.MARK, checks.STORE, checks.SITE}


def broken_by_policy(folder: Path) -> None:
    (folder / "policy.toml").write_text(policy_text(releases=COUNTS, site="max_devices = 7"))


def broken_by_mode(folder: Path) -> None:
    (folder / "store").chmod(0o755)


def broken_by_mark(folder: Path) -> None:
    mark_path(folder / "key").write_text(json.dumps({"marks": {}}))


def broken_by_no_store(folder: Path) -> None:
    shutil.rmtree(folder / "store")


@pytest.mark.usefixtures("machine_is_fine")
@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (broken_by_policy, "tacet policy diff"), (broken_by_mode, "chmod 700"), (broken_by_mark, "mark"),
        (broken_by_no_store, "store"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_store_ends_with_1_and_is_named(
    installed: Path, tmp_path: Path, break_it: Callable[[Path], None], says: str
) -> None:
    folder = Path(shutil.copytree(installed, tmp_path / "copy"))
    break_it(folder)
    done = examined(folder, *everything(folder), "--json")
    assert done.exit_code == 1, done.output
    wrong = [each for each in json.loads(done.stdout)["findings"] if each["state"] == "wrong"]
    assert says in "\n".join(f"{each['check']} {each['text']}" for each in wrong)


def test_a_key_or_mark_that_does_not_fit_the_store_is_wrong_as_recover_says(installed: Path, tmp_path: Path) -> None:
    key_files.create(tmp_path / "unused", laboratory=True)
    assert states(checks.serves(installed / "key", installed / "store"), checks.MARK) == {"fine"}
    for key, store, what in (
        (tmp_path / "unused", installed / "store", "is not the key with which store"),
        (installed / "key", tmp_path / "none", "there is no store"),
    ):
        found = list(checks.serves(key, store))
        assert what in text_of(found, "wrong"), found
        assert "'tacet recover' lists the remedies" in text_of(found, "wrong")


def test_a_store_that_does_not_exist_is_named_and_its_disk_is_still_checked(tmp_path: Path) -> None:
    (finding,) = findings_of(checks.STORE, lambda: checks.store(tmp_path / "none", POLICY, 0))
    assert finding.text == f"{tmp_path / 'none'}: must be a store made by 'tacet run'"
    assert "0 MB" in next(iter(checks.disk(tmp_path / "none"))).text


def test_a_store_is_only_read(installed: Path) -> None:
    before = {path: path.read_bytes() for path in installed.rglob("*") if path.is_file()}
    examined(installed, *everything(installed))
    after = {path: path.read_bytes() for path in installed.rglob("*") if path.is_file()}
    assert {path.name for path in after.keys() - before.keys()} <= {"store.sqlite-shm", "store.sqlite-wal"}
    assert all(after[path] == value for path, value in before.items() if not path.name.endswith(("-shm", "-wal")))


@pytest.mark.usefixtures("machine_is_fine")
def test_people_are_given_a_table(installed: Path) -> None:
    assert examined(installed).output.rstrip().endswith("nothing is wrong")


def with_drops(folder: Path, dropped: dict[str, int] | None) -> None:
    """Let the newest figures of the store's run say what its receiver has dropped."""
    with closing(sqlite3.connect(folder / "store" / "private" / f"{OPERATOR_OUTBOX}.sqlite")) as box, box:
        ((seq, value),) = box.execute("SELECT seq, value FROM records ORDER BY seq DESC LIMIT 1").fetchall()
        traps = None if dropped is None else {"received": 9, "accepted": 0, "dropped": dropped, "kernel_drops": 0}
        changed = orjson.dumps(orjson.loads(value) | {"traps": traps})
        box.execute("UPDATE records SET value = ? WHERE seq = ?", (changed, seq))


@pytest.mark.usefixtures("machine_is_fine")
def test_what_the_run_of_a_store_drops_is_wrong(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(installed, tmp_path / "copy")
    with_drops(
        tmp_path / "copy",
        {"bad_community": 7, "collapsed": 90, "no_stay": 3, "duplicate_request": 2, "randomised_address": 5},
    )
    done = examined(tmp_path / "copy", "--store", f"{tmp_path}/copy/store")
    reported = " ".join(done.output.split())
    assert done.exit_code == 1, reported
    assert "7 bad community: the community is not in the file" in reported
    assert "problems: 1" in reported


@pytest.mark.usefixtures("machine_is_fine")
@pytest.mark.parametrize(
    ("dropped", "told"),
    [
        (None, "for the first time with the first window that closes after its start"),
        ({"bad_community": 0}, "lists what the store's run"),
    ],
)
def test_of_a_run_whose_drops_are_not_known_it_is_not_said_that_nothing_is_wrong(
    installed: Path, tmp_path: Path, dropped: dict[str, int] | None, told: str
) -> None:
    shutil.copytree(installed, tmp_path / "copy")
    with_drops(tmp_path / "copy", dropped)
    (tmp_path / "communities").write_bytes(COMMUNITY)
    (tmp_path / "communities").chmod(0o600)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        done = examined(
            tmp_path / "copy", "--udp", f"127.0.0.1:{taken.getsockname()[1]}", "--for", "1s",
            "--store", f"{tmp_path}/copy/store", TACET_SNMP_COMMUNITIES_FILE=str(tmp_path / "communities"),
        )  # fmt: skip
    text = " ".join(done.output.split())
    assert done.exit_code == 0, text
    assert told in text
    assert "nothing is wrong" not in text
    assert "notes to read: " in text


# --- what comes in ------------------------------------------------------------------------------------


def trap(number: int, radio: str, community: bytes = COMMUNITY, *, inform: bool = False) -> bytes:
    client, place = (address_of(text) or b"" for text in (mac(number), radio))
    return encode_associate(Association(client, place), community=community, uptime=number, request_id=number,
                            inform=inform)  # fmt: skip


def _has_heard(ear: live_check.LiveListener, datagrams: int) -> bool:
    return ear.receiver.counters.datagrams >= datagrams


async def heard(
    *datagrams: bytes, answers: list[bytes] | None = None, controller: str = "127.0.0.1"
) -> live_check.LiveCheck:
    """Return what is heard of these datagrams of a controller, each of which is waited for."""
    ear = live_check.LiveListener(POLICY, ("127.0.0.1", 0), [COMMUNITY])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((controller, 0))
        async with ear.receiver:
            for number, datagram in enumerate(datagrams, start=1):
                sender.sendto(datagram, ear.receiver.address)
                await until(partial(_has_heard, ear, number), f"datagram {number}")
        sender.setblocking(False)
        try:
            while answers is not None:
                answers.append(sender.recv(65_536))
        except BlockingIOError:
            pass
    return ear.result()


async def test_what_is_taken_and_dropped_is_told_with_what_to_do() -> None:
    unknown = "02:aa:bb:cc:dd:ee"
    made = await heard(trap(1, access_point("a")), trap(2, access_point("a"), b"wrong"), trap(3, unknown), b"nonsense")
    found = list(live_check.findings(POLICY, made))
    assert "heard: 127.0.0.1" in text_of(found, "fine")
    assert "4 datagrams, 1 accepted" in text_of(found, "fine")
    assert "silent: 127.0.0.2" in text_of(found, "note")
    assert "1 bad community: the community is not in the file" in text_of(found, "wrong")
    assert f"{unknown}: in no zone, 1 trap(s)" in text_of(found, "note")
    assert states(found, live_check.STEP) == set(), "its two clocks go at the same speed"


async def test_a_sender_that_the_policy_does_not_list_is_counted_and_not_heard() -> None:
    made = await heard(trap(1, access_point("a")), controller="127.0.0.3")
    found = list(live_check.findings(POLICY, made))
    assert made.sources == frozenset()
    assert "1 unknown source: the sender is not in 'sources' of the policy" in text_of(found, "wrong")
    assert "silent: 127.0.0.1, 127.0.0.2" in text_of(found, "note")


async def test_whoever_listens_for_no_time_has_heard_nothing() -> None:
    made = await live_check.listen(POLICY, ("127.0.0.1", 0), [COMMUNITY], 0)
    assert (made.counters.datagrams, made.sources) == (0, frozenset())
    assert {finding.state for finding in live_check.findings(POLICY, made)} == {"note"}


async def test_no_device_is_named() -> None:
    made = await heard(trap(1, access_point("a")), trap(2, "02:aa:bb:cc:dd:ee"), trap(3, mac(1)))
    text = repr([*live_check.findings(POLICY, made)])
    assert not any(spelt in text for spelt in ("a4:00", "a400", "A4:00"))


async def test_an_inform_is_heard_and_never_answered() -> None:
    """An answer would tell the controller that what it said is kept, and nothing here is."""
    answers: list[bytes] = []
    made = await heard(trap(1, access_point("a"), inform=True), answers=answers)
    assert (made.counters.accepted, answers) == (1, [])


def test_nothing_of_use_is_wrong_and_nothing_at_all_is_only_noted() -> None:
    useless = Counters(datagrams=5, dropped={"bad_community": 5})
    assert "wrong" in states(
        live_check.findings(POLICY, live_check.LiveCheck(useless, frozenset({"127.0.0.1"}))), live_check.HEARD
    )
    of_no_use = Counters(datagrams=9, dropped={"no_access_point": 6, "unknown_trap": 2, "duplicate_inform": 1})
    found = list(live_check.findings(POLICY, live_check.LiveCheck(of_no_use, frozenset({"127.0.0.1"}))))
    assert "6 no access point: the trap names the device but not its access point" in text_of(found, "note")
    assert "2 unknown trap: of a kind that is not read" in text_of(found, "note")
    assert "duplicate" not in text_of(found, "note")
    assert states(found, live_check.DROPPED) == {"note"}
    nothing = live_check.findings(POLICY, live_check.LiveCheck(Counters(), frozenset()))
    assert {finding.state for finding in nothing} == {"note"}


@pytest.mark.parametrize(("stepped", "expected"), [(CLOCK_STEP, set()), (-CLOCK_STEP - 1, {"wrong"})])
def test_a_clock_that_is_set_meanwhile_is_wrong(stepped: int, expected: set[State]) -> None:
    made = live_check.LiveCheck(Counters(), frozenset(), stepped=stepped)
    assert states(live_check.findings(POLICY, made), live_check.STEP) == expected


@pytest.mark.usefixtures("machine_is_fine")
def test_a_port_that_another_program_has_is_wrong_unless_that_is_the_run_whose_store_is_given(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "communities").write_bytes(COMMUNITY)
    (tmp_path / "communities").chmod(0o600)
    environment = {"TACET_SNMP_COMMUNITIES_FILE": str(tmp_path / "communities")}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = ("--udp", f"127.0.0.1:{taken.getsockname()[1]}", "--for", "1s")
        alone = examined(installed, *port, **environment)
        homed = examined(installed, *port, *everything(installed), **environment)
    assert (alone.exit_code, homed.exit_code) == (1, 0)
    assert "cannot listen at" in " ".join(homed.output.split())


@pytest.mark.parametrize("span", ["0s", "2h", "soon"])
def test_how_long_is_a_duration_of_at_most_an_hour(installed: Path, span: str) -> None:
    assert examined(installed, "--for", span).exit_code == 2


async def heard_v3(*datagrams: bytes) -> list[Finding]:
    """Return what is found of datagrams from a controller of the loopback that speaks SNMPv3."""
    users = Users([user()], [source(address="127.0.0.1")])
    ear = live_check.LiveListener(POLICY, ("127.0.0.1", 0), (), users)
    async with ear.receiver:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number, datagram in enumerate(datagrams, start=1):
                sender.sendto(datagram, ear.receiver.address)
                await until(partial(_has_heard, ear, number), f"datagram {number}")
    return list(live_check.findings(POLICY, ear.result()))


async def test_of_snmpv3_it_is_told_what_would_be_taken_and_what_is_wrong_with_the_rest(tmp_path: Path) -> None:
    now, stranger = time.time_ns() // 1000, Users([user(auth_password="another-password")], [])
    found = await heard_v3(
        Controller().trap(now), Controller(users=stranger).trap(now), Controller(OTHER_ENGINE).trap(now),
        Controller(b"", boots=0, started=now).inform(now, keys=None), trap(1, access_point("a")),
    )  # fmt: skip
    assert "heard: 127.0.0.1" in text_of(found, "fine")
    assert "1 wrong tag: 'auth' or 'auth_password'" in text_of(found, "wrong")
    assert "1 unknown engine: list it under 'engines'" in text_of(found, "wrong")
    assert "1 v3 required: the file that TACET_SNMP_USERS_FILE names" in text_of(found, "wrong")
    assert "1 discovery requests" in text_of(found, "note")
    assert not any(PRIVACY in finding.text or AUTH in finding.text for finding in found)


async def test_a_trap_over_snmpv3_is_read_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its access point is in no zone here, which only a trap that was believed and read can tell."""
    monkeypatch.chdir(tmp_path)
    found = await heard_v3(Controller().trap(time.time_ns() // 1000))
    assert f"{RADIO.hex(':')}: in no zone, 1 trap(s)" in text_of(found, "note")
    assert list(tmp_path.iterdir()) == []


def test_what_only_a_receiver_with_users_can_judge_is_noted() -> None:
    made = live_check.LiveCheck(Counters(datagrams=2, dropped={"unsupported_version": 2}), frozenset({"127.0.0.1"}))
    found = list(live_check.findings(POLICY, made))
    assert "2 of SNMPv3 or another version" in text_of(found, "note")
    assert text_of(found, "wrong") == ""


class Asked:
    """A source that answers, or does not."""

    def __init__(self, answer: ProbeAnswer | None) -> None:
        self._answer = answer

    async def probe(self) -> ProbeAnswer | None:
        return self._answer


async def test_a_controller_that_answers_no_probe_is_wrong() -> None:
    found = await checks.answers({("dbh", "10.2.0.5"): Asked(ProbeAnswer()), ("dbh", "10.2.0.6"): Asked(None)})
    assert [(finding.state, finding.text.split()[0]) for finding in found] == [
        ("fine", "10.2.0.5"), ("wrong", "10.2.0.6")
    ]  # fmt: skip


@pytest.mark.usefixtures("machine_is_fine")
def test_probes_that_the_policy_declares_are_asked(tmp_path: Path) -> None:
    probe = 'probe = [{ source = "127.0.0.1", by = "snmp", port = 9 }]'
    (tmp_path / "policy.toml").write_text(policy_text(releases=COUNTS, site=probe))
    (tmp_path / "community").write_bytes(COMMUNITY)
    (tmp_path / "community").chmod(0o600)
    done = examined(tmp_path, "--json", TACET_SNMP_PROBE_COMMUNITY_FILE=str(tmp_path / "community"))
    assert (done.exit_code, "127.0.0.1 of dbh does not answer" in done.stdout) == (1, True)


# --- topics -------------------------------------------------------------------------------------------

NAMES = topic_names(POLICY)


def held(**more: Any) -> dict[str, TopicSettings]:
    return {name: made(name, {}) for name in NAMES} | more


def made(name: str, settings: dict[str, str], partitions: int = 4) -> TopicSettings:
    return TopicSettings(partitions, topic_config(name) | {"min.insync.replicas": "1"} | settings)


def with_setting(topic: str, key: str, value: str) -> dict[str, TopicSettings]:
    return held(**{topic: made(topic, {key: value})})


def test_topics_as_they_are_made_are_fine() -> None:
    assert {finding.state for finding in checks.topics(NAMES, held())} == {"fine"}


def test_how_long_results_are_kept_is_the_operators_to_say() -> None:
    private = next(name for name in NAMES if name.startswith("tacet.private."))
    assert {finding.state for finding in checks.topics(NAMES, with_setting(private, "retention.ms", "1"))} == {"fine"}


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        ({name: topic for name, topic in held().items() if name != OBSERVATIONS}, "1 missing, such as "),
        (held(**{SNAPSHOT: made(SNAPSHOT, {}, 8)}), "must have equal partitions"),
        (with_setting(OBSERVATIONS, "message.timestamp.type", "CreateTime"),
         "must have message.timestamp.type=LogAppendTime, has CreateTime"),
        (with_setting(OBSERVATIONS, "cleanup.policy", "compact"),
         "must have cleanup.policy=delete, has compact; 'kafka-configs.sh"),
    ],
)  # fmt: skip
def test_a_topic_that_is_not_as_it_should_be_is_wrong(topics: dict[str, TopicSettings], says: str) -> None:
    assert says in text_of(list(checks.topics(NAMES, topics)), "wrong")


def test_a_setting_that_is_merely_unwise_is_a_note() -> None:
    found = list(checks.topics(NAMES, with_setting(SNAPSHOT, "segment.ms", "604800000")))
    assert "must have segment.ms=300000, has 604800000" in text_of(found, "note")
    assert text_of(found, "wrong") == ""


def test_a_record_whose_charge_is_gone_is_named_as_such_with_the_way_on() -> None:
    """An unclean election may take the newest charges away and leave their records."""
    record = {"release_id": "east/occupancy/x", "site": "east", "mechanism": "laplace", "spend": "1"}
    (finding,) = checks.records(AuditBundle([], [], [record]))
    assert (finding.check, finding.state) == (checks.RECORDS, "wrong")
    assert "record east/occupancy/x must have been charged: 'tacet recover' lists the remedies" in finding.text


def test_the_policy_of_a_doctor_has_to_be_a_policy(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("[site]\n")
    assert isinstance(examined(tmp_path).exception, PolicyError)
