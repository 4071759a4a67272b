"""Two runs that differ in one person differ in released values and in nothing else.

Traps are real datagrams of a controller, taken in by the connector's own ingest under a clock that the test
sets, and given to the embedded runner through its store.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.keys import key_files
from connectors.sources.ingest.ingest import Ingest
from connectors.sources.snmp.sender import Association, encode_associate
from connectors.sources.snmp.traps import decode
from connectors.storage.embedded.reader import read_outbox, read_topic
from connectors.storage.embedded.runner import embedded
from stream.engine.outputs import OutputRecord
from stream.records import MINUTE, SECOND, Heartbeat, Micros
from stream.schemas import AUDIT, LEAKAGE
from tests.support.small_building import ACCESS_POINTS, COUNTS, EVENING, SOURCES, building, mac

POLICY = building(
    tick="10min",
    releases=COUNTS.replace('daily_budget = { board = "10" }', 'daily_budget = { board = "5" }')
    + """
[[release]]
name = "office-day"
query = "attributes"
zones = { kind = "office" }
[release.attributes.arrival]
epsilon = { facilities = "1", public = "0.2" }
sensitive = { after = "20:00" }
[release.attributes.breaks]
epsilon = { facilities = "2" }
sensitive = { above = 30 }
""",
)
VALUES = ("values", "levels", "half_width_95", "levels_half_width_95", "noisy", "levels_noisy", "value", "released")
"""All that may differ: of a count record the values, of an attribute record whether and what is shown."""
START = EVENING + 4 * 60 * MINUTE - 20 * MINUTE
"""Twenty minutes before the site's midnight, so that a whole local day follows."""
END = START + 25 * 60 * MINUTE
POLLED = 5 * SECOND


def traps(*, with_person: bool) -> list[tuple[Micros, str, bytes]]:
    """(receive time, controller, datagram) of a day; the person in question is here, there and in an office."""
    rng = random.Random(4)
    made = []
    for number in range(1, 10):
        time = START + rng.randrange(20 * MINUTE)
        while time < END:
            made.append((time, SOURCES[number % 2], number, rng.choice("abcd")))
            time += rng.randrange(4 * MINUTE, 40 * MINUTE)
    if with_person:
        time = START + MINUTE
        while time < END:
            made.append((time, SOURCES[0], 0, rng.choice("abxdxy")))
            time += rng.randrange(1, 6 * MINUTE)
    datagrams = []
    for time, source, number, zone in sorted(made):
        address, radio = (bytes.fromhex(text.replace(":", "")) for text in (mac(number), ACCESS_POINTS[zone]))
        datagrams.append(
            (time, source, encode_associate(Association(address, radio), community=b"c", uptime=time // 10_000))
        )
    return datagrams


class Noting:
    """Stands between connector and runner: notes when, and at which heartbeat, each record came out."""

    def __init__(self, runner: Any) -> None:
        self.runner = runner
        self.closing: dict[str, tuple[str, int, int]] = {}
        self.now = START
        self.item: Any = None
        self.order: list[str] = []
        fold = runner.partition.process_in_steps

        def noted(*given: Any) -> Iterator[tuple[list[OutputRecord], bool]]:
            for outputs, last in fold(*given):
                self.order += [f"{out.topic} {out.id} {out.timestamp_ms} {out.key!r}" for out in outputs]
                for out in outputs:
                    assert isinstance(self.item, Heartbeat), "windows close at heartbeats only"
                    self.closing[out.id] = (self.item.source, self.item.watermark, self.now)
                yield outputs, last

        runner.partition.process_in_steps = noted

    def take(self, messages: list[Any], now: Micros) -> None:
        self.now = now
        for message in messages:
            self.item = message
            self.runner.process(message, durable=False)


def observed(folder: Path, key: Path, *, with_person: bool) -> tuple[Noting, dict[str, list[Any]]]:
    ingest = Ingest.of_policy(POLICY, key_files.pseudonym_key(key))
    state = ingest.initial(START)
    with embedded(POLICY, key, folder) as runner:
        noting, now = Noting(runner), START
        for time, source, datagram in [*traps(with_person=with_person), (END + 30 * MINUTE, "", b"")]:
            while now + POLLED < time:
                now += POLLED
                noting.take(ingest.poll(state, now), now)
            if datagram:
                ingest.observe(state, time, source, source, decode(datagram).sighting)
        noting.take(ingest.drain(state), now)
    records = {topic: [orjson.loads(value) for value in read_topic(folder, topic)] for topic in (AUDIT, LEAKAGE)}
    for audience in POLICY.audience:
        rows = read_outbox(folder, audience.name, 0)
        assert [seq for seq, _ in rows] == list(range(1, len(rows) + 1))
        records[audience.name] = [orjson.loads(value) for _, value in rows]
    return noting, records


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Noting, dict[str, list[Any]]]]:
    folder = tmp_path_factory.mktemp("shape")
    key_files.create(folder / "key", laboratory=True)
    # A known root: with a few keys the same attributes are withheld in both courses.
    known = orjson.loads((folder / "key").read_bytes()) | {"noise": {"root": "07" * 32}}
    (folder / "key").write_bytes(orjson.dumps(known))
    return [observed(folder / f"with{flag}", folder / "key", with_person=flag) for flag in (False, True)]


def without_values(record: dict[str, Any]) -> dict[str, Any]:
    """A record with values taken out; of lists of zones the names stay."""
    kept = {name: value for name, value in record.items() if name not in VALUES}
    if "attribute" not in record:
        kept["released"] = record["released"]
        for name in VALUES[:4]:
            value = record.get(name)
            kept[name] = _names(value)
    return kept


def _names(value: Any) -> Any:
    return {name: _names(inner) for name, inner in value.items()} if isinstance(value, dict) else value is None


def test_private_records_are_equal_in_everything_but_values(both: Any) -> None:
    (_, without), (_, with_person) = both
    for audience in ("facilities", "public", "board"):
        assert len(without[audience]) > 300
        assert list(map(without_values, without[audience])) == list(map(without_values, with_person[audience]))


def test_the_person_is_in_the_values_so_that_the_comparison_means_something(both: Any) -> None:
    (_, without), (_, with_person) = both
    assert [r.get("values") for r in without["public"]] != [r.get("values") for r in with_person["public"]]
    days = [[r for r in run["facilities"] if "attribute" in r] for _, run in both]
    assert len(days[0]) == len(days[1]) == 4
    assert [r["released"] for r in days[0]] != [r["released"] for r in days[1]]
    assert any(not r["released"] and r.get("reason") == "budget" for r in without["board"])


def test_every_window_closes_at_the_same_input_and_instant_and_everything_comes_in_the_same_order(both: Any) -> None:
    (without, _), (with_person, _) = both
    assert without.closing == with_person.closing
    assert without.order == with_person.order
    assert len(without.order) > 1900


def test_ledger_and_account_say_the_same_but_for_commitments_and_what_was_shown(both: Any) -> None:
    (_, without), (_, with_person) = both
    varies = {"commitment", "hash", "previous", "mac"}
    for one, other in zip(without[AUDIT], with_person[AUDIT], strict=True):
        assert {k: v for k, v in one.items() if k not in varies} == {k: v for k, v in other.items() if k not in varies}
    counts = [[r for r in run[LEAKAGE] if r["kind"] == "counts"] for _, run in both]
    assert counts[0] == counts[1]


def test_no_private_record_holds_anything_of_the_chain(both: Any) -> None:
    _, run = both[1]
    chain = {entry[name] for entry in run[AUDIT] for name in ("hash", "previous", "mac", "commitment")}
    text = orjson.dumps([run[a.name] for a in POLICY.audience]).decode()
    assert not [value for value in list(chain)[:500] if value in text]
