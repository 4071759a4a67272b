"""Known values in a running store are found in no backup, no HTTP answer and no command's report.

Key and observations are fixed: what is drawn is the same in every run, so nothing is found by chance.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.keys import key_files
from connectors.sources.recordings.observations import ObservationFile
from connectors.storage.embedded.runner import opened
from stream.encoding import decode_message
from stream.encryption import Kind, unseal
from stream.records import MINUTE, Heartbeat, Message, ObservationBatch
from stream.release.validation import load_policy
from stream.schemas import rfc3339
from tests.acceptance.command_line import run
from tests.acceptance.serve.services import eventually, served, wanted
from tests.acceptance.test_canary import MACS, RELEASES, Needles, day_of_traps
from tests.support.fixed_key import write_fixed_key
from tests.support.small_building import ATTRIBUTES, EVENING, SITE, policy_text, write_csv
from tests.unit.release.test_counter_sites import BEGIN, TICK, text, window
from tests.unit.release.test_counter_sites import SITE as MALL

TEXT = "[restricted]\noccupancy = true\npresence = true\n" + policy_text(RELEASES + ATTRIBUTES, tick="5min")
COUNT = 765_432
COUNTED = text(
    '[[release]]\nname = "plain"\nquery = "count"\nmechanism = "laplace"\nlevels = ["zone", "building"]\n'
    'epsilon = { facilities = "0.001" }\n'
).replace("capacity = 20\n", "capacity = 20\nmax_count = 1000000\n")
AUDIENCES = ("facilities", "public", "board")


def make(folder: Path, policy: str, messages: list[Message], until: int) -> None:
    """Fill a store up to a message; what waits for its window then lies in it, and in its write-ahead log."""
    (folder / "policy.toml").write_text(policy)
    write_fixed_key(folder / "key")
    with opened(load_policy(policy), folder / "key", folder / "store") as (runner, _):
        for message in messages[:until]:
            runner.process(message, durable=False)
        runner.enqueue(messages[until])
        done = run("store", "backup", "--store", folder / "store", "--out", folder / "backup")
        assert done.code == 0, done.problem
        (folder / "running").mkdir()
        for path in sorted(folder.joinpath("store").rglob("*")):
            if path.is_file():
                (folder / "running" / path.name).write_bytes(path.read_bytes())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with people in it, stopped within their hour; a backup of it, and its files as they lay when it ran."""
    folder = tmp_path_factory.mktemp("place")
    file = ObservationFile(write_csv(folder / "seen.csv", day_of_traps()), load_policy(TEXT), bytes.fromhex("a1" * 32))
    messages: list[Message] = list(file.messages())
    late = EVENING + 35 * MINUTE
    inside = next(n for n, m in enumerate(messages) if isinstance(m, ObservationBatch) and m.rows[0].time > late)
    make(folder, TEXT, messages, inside)
    return folder


@pytest.fixture(scope="module")
def needles(place: Path) -> Needles:
    return Needles(place / "key")


def bytes_of(folder: Path) -> bytes:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    assert files
    return b"".join(path.read_bytes() for path in files)


def raw_names(needles: Needles) -> list[bytes]:
    """Return every name of a device, and its key, as bytes too."""
    plain = [form for form in needles.forms if len(form) >= 16 and set(form) <= set("0123456789abcdef")]
    assert len(plain) >= len(MACS)
    return [bytes.fromhex(form) for form in plain if len(form) % 2 == 0]


def assert_nothing_in(data: bytes, needles: Needles) -> None:
    assert needles.found_in(data.decode("latin-1")) == []
    assert [name for name in raw_names(needles) if name in data] == []


# --- files ------------------------------------------------------------------------------------------------------


def test_nothing_is_found_in_the_files_of_a_store_that_runs(place: Path, needles: Needles) -> None:
    names = {path.name for path in (place / "running").iterdir()}
    assert {"store.sqlite", "store.sqlite-wal"} <= names
    assert_nothing_in(bytes_of(place / "running"), needles)


def test_nothing_is_found_in_a_backup_of_it_which_holds_people_all_the_same(place: Path, needles: Needles) -> None:
    assert_nothing_in(bytes_of(place / "backup"), needles)
    assert not [path for path in (place / "backup").rglob("*") if "key" in path.name or "mark" in path.name]
    vault = key_files.FileKeys(place / "key").vault
    with closing(sqlite3.connect(place / "backup" / "store.sqlite")) as store:
        kept = [bytes(value) for (value,) in store.execute("SELECT value FROM observations")]
    stored = [decode_message(unseal(Kind.MESSAGE, value), vault)[0] for value in kept]
    shown = "".join(str(tuple(each.rows)) for each in stored if isinstance(each, ObservationBatch))
    assert needles.found_in(shown), "with the key they are there, so that nothing was passed by"


# --- what answers over HTTP ----------------------------------------------------------------------------------------

VALUES = {
    "audience": ("facilities", "board"), "audiences": ("facilities,public,board",), "site": (SITE,),
    "granularity": ("1h",), "release": ("plain", "office-day"), "name": ("plain",), "day": ("2026-03-02",),
    "place": ("building",), "mechanism": ("pegasus",), "epsilon": ("0.3",), "round": ("1",), "nodes": ("zone:a",),
    "after": ("",), "format": ("csv",),
}  # fmt: skip


def questions(described: dict[str, Any]) -> Iterator[str]:
    """Yield addresses of everything that is asked with GET: with what must be given, and with all that may be."""
    for path, methods in described["paths"].items():
        if "get" not in methods or "stream" in path:
            continue
        given = methods["get"].get("parameters", [])
        for only in (True, False):
            asked = [each for each in given if each.get("required") or not only]
            known = [each for each in asked if each["name"] in VALUES]
            for values in product(*(VALUES[each["name"]] for each in known)):
                address, query = path, []
                for each, value in zip(known, values, strict=True):
                    if each["in"] == "path":
                        address = address.replace("{" + each["name"] + "}", value)
                    else:
                        query.append(f"{each['name']}={value}")
                yield f"{address}?{'&'.join(query)}"


def answers(client: httpx.Client) -> Iterator[tuple[str, httpx.Response]]:
    described = client.get("/api/v1/openapi.json").json()
    for question in dict.fromkeys(questions(described)):
        yield question, client.get(question if question.startswith("/api") else f"/api/v1{question}")
    for page in ("/", "/healthz", "/api/v1/nothing", f"/api/v1/latest?audience=nobody&site={SITE}"):
        yield page, client.get(page)


def test_nothing_is_found_in_any_answer_of_the_service_to_any_role(place: Path, needles: Needles) -> None:
    with (
        served(wanted(place, audiences=AUDIENCES, account=True, operator=True)) as running,
        running.browser() as client,
    ):
        eventually(lambda: client.get(f"/api/v1/latest?audience=facilities&site={SITE}").json().get("nodes", True))
        eventually(lambda: any(row["window_end"] for row in client.get("/api/v1/operator").json()["sites"]))
        good, text = set[str](), []
        for question, answer in answers(client):
            assert answer.status_code < 500, question
            text.append(f"{answer.headers} {answer.text}")
            good |= {question.partition("?")[0]} if answer.status_code == 200 else set()
    assert {"/api/v1/operator", "/api/v1/account", "/api/v1/account/coalition", "/api/v1/latest"} <= good, sorted(good)
    assert len(good) >= 12, sorted(good)
    assert_nothing_in("\n".join([*text, *running.said]).encode(), needles)


# --- what commands say ---------------------------------------------------------------------------------------------


def test_nothing_is_found_in_what_any_command_says_of_the_store(place: Path, needles: Needles, tmp_path: Path) -> None:
    store, key = ("--store", place / "store"), ("--key-file", place / "key")
    policy = ("--policy", place / "policy.toml")
    output = []
    for words in (
        ("status", *store, *policy), ("account", *store),
        ("account", *store, "--coalition", "facilities,board", "--json"),
        ("audit", "verify", *store, *key, "--json"), ("audit", "export", *store, "--out", tmp_path / "books"),
        ("recover", *store, *key, *policy, "--json"), ("doctor", *store, *key, *policy, "--seconds", "1"),
        *(("subscribe", "--audience", name, *store, "--from-start", "--until-end", "--json") for name in AUDIENCES),
        ("store", "restore", place / "backup", "--store", tmp_path / "again", *key),
        ("backfill", place / "seen.csv", *store, *policy, *key, "--from", rfc3339(EVENING), "--to", rfc3339(EVENING)),
    ):  # fmt: skip
        done = run(*words)
        output.append(done.out + done.problem)
    assert any('"window_end"' in text for text in output)
    output.append((tmp_path / "books").read_text())
    assert_nothing_in("\n".join(output).encode(), needles)


# --- counts -----------------------------------------------------------------------------------------------------------


def count_forms() -> list[bytes]:
    return [str(COUNT).encode(), *(struct.pack(form, COUNT) for form in ("<q", ">q", "<i", ">i"))]


def test_a_count_of_a_people_counter_is_in_no_file_and_no_backup(tmp_path: Path) -> None:
    """The count of every zone is one that no noise comes to: a released value hits it with probability 0.0005."""
    messages: list[Message] = []
    for number in range(12):
        messages.append(window(number, COUNT, COUNT + 1, COUNT - 1))
        messages.append(Heartbeat(MALL, messages[-1].source, BEGIN, BEGIN + number * TICK, None))
    make(tmp_path, COUNTED, [*messages, window(12, COUNT, COUNT, COUNT)], len(messages))
    for kept in ("running", "backup"):
        data = bytes_of(tmp_path / kept)
        assert [form for form in count_forms() if form in data] == []
    vault = key_files.FileKeys(tmp_path / "key").vault
    with closing(sqlite3.connect(tmp_path / "backup" / "store.sqlite")) as store:
        kept_values = [bytes(value) for (value,) in store.execute("SELECT value FROM observations")]
    shown = [str(decode_message(unseal(Kind.MESSAGE, value), vault)[0]) for value in kept_values]
    assert any(str(COUNT) in text for text in shown), "it is there, with the key"


def test_the_search_finds_what_lies_in_clear(tmp_path: Path, needles: Needles) -> None:
    for number, form in enumerate([MACS[3], json.dumps({"device": MACS[0].replace(":", "")}), needles.forms[-1]]):
        (tmp_path / str(number)).write_text(f"before {form} behind")
        with pytest.raises(AssertionError):
            assert_nothing_in(bytes_of(tmp_path), needles)
        (tmp_path / str(number)).write_text("nothing")
    (tmp_path / "0").write_bytes(b"\x00" + raw_names(needles)[0] + b"\x01")
    with pytest.raises(AssertionError):
        assert_nothing_in(bytes_of(tmp_path), needles)
