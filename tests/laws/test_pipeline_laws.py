"""Laws of every stage of the table, and of the whole of it: what comes out depends on the log alone."""

from __future__ import annotations

import hashlib
import random
from dataclasses import fields
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.sources.recordings.observations import ObservationFile
from connectors.sources.recordings.replay import replay
from stream.encoding import encode_message
from stream.encryption import split_parts
from stream.engine.partition import PartitionEngine
from stream.keys import subkey
from stream.local_time import slot_of
from stream.mechanisms.registry import ReleaseContext, count_mechanism, release_counts
from stream.operators import scan
from stream.pipeline import Options, Pipeline, SiteState, Stages
from stream.records import MINUTE, DayClosed, Heartbeat, ObservationBatch, OccupancyWindow, WindowCharges
from stream.schemas import AUDIT, PRESENCE, parse_record
from tests.support.hash_chain import verify_chain
from tests.support.small_building import (
    EVENING,
    SITE,
    Seen,
    access_point,
    building,
    laboratory,
    mac,
    messages,
    outputs_of,
    people,
    run,
    write_csv,
)

POLICY = building(tick="30min")
PINNED_POLICY = building()
SEEN = people()
OPTIONS = Options(presence=True, occupancy=True)
READS = {
    "occupancy": (ObservationBatch, Heartbeat),
    "attributes": (OccupancyWindow,),
    "release": (OccupancyWindow, DayClosed),
    "account": (WindowCharges,),
}
"""What each stage of the table takes, in the order of the table."""


def pipeline() -> Pipeline:
    return Pipeline(POLICY, SITE, laboratory(), OPTIONS)


@pytest.fixture(scope="module")
def plain() -> list[Any]:
    made = pipeline()
    states, outputs = made.initial(), []
    for item in messages(SEEN, POLICY):
        states, more = made.step(states, item)
        outputs += more
    return outputs + made.finish(states)


def inputs_of_stages() -> dict[str, list[Any]]:
    """What each stage of the table is given in one run, in order."""
    made = pipeline()
    given: dict[str, list[Any]] = {}

    def push(state: SiteState, item: Any, start: int) -> None:
        for place, (name, reads) in enumerate(READS.items()):
            if place >= start and isinstance(item, reads):
                given.setdefault(name, []).append(item)
                after, produced = getattr(made.stages, name).step(getattr(state, name), item)
                setattr(state, name, after)
                for each in produced:
                    push(state, each, place + 1)

    state = made.initial()
    for item in messages(SEEN, POLICY):
        push(state, item, 0)
    return given


@pytest.fixture(scope="module")
def given() -> dict[str, list[Any]]:
    return inputs_of_stages()


STAGES = [field.name for field in fields(Stages)]


def operator(name: str) -> Any:
    return getattr(pipeline().stages, name)


def test_every_stage_of_the_table_takes_part_in_this_run(given: Any) -> None:
    assert set(given) == set(STAGES)
    assert list(READS) == STAGES == [field.name for field in fields(SiteState)]
    kinds = {type(item).__name__ for items in given.values() for item in items}
    assert kinds == {"ObservationBatch", "Heartbeat", "OccupancyWindow", "DayClosed", "WindowCharges"}


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_survives_its_byte_form_at_every_step(name: Any, given: Any) -> None:
    straight = scan(operator(name), given[name])[1]
    stage = operator(name)
    data = stage.encode(stage.initial())
    outputs: list[Any] = []
    for item in given[name]:
        stage = operator(name) if len(outputs) % 7 == 0 else stage
        state, made = stage.step(stage.decode(data), item)
        outputs += made
        data = stage.encode(state)
        assert stage.encode(stage.decode(data)) == data
    assert outputs == straight
    assert outputs


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_gives_the_same_in_one_go_and_in_two(name: Any, given: Any) -> None:
    stage, items = operator(name), given[name]
    straight_state, straight = scan(stage, items)
    for cut in (1, len(items) // 3, len(items) - 1):
        state, first = scan(stage, items[:cut])
        state, rest = scan(stage, items[cut:], state)
        assert (first + rest, stage.encode(state)) == (straight, stage.encode(straight_state))


def test_the_whole_table_survives_its_byte_form_after_every_message(plain: Any) -> None:
    made = pipeline()
    data, outputs = made.encode(made.initial()), []
    for item in messages(SEEN, POLICY):
        states, more = made.step(made.decode(data), item)
        outputs += more
        data = made.encode(states)
    assert outputs + made.finish(made.decode(data)) == plain


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.long) for each in range(1, 4))])
def test_cutting_the_log_into_other_batches_changes_nothing(seed: Any, plain: Any) -> None:
    rng = random.Random(seed)
    made = pipeline()
    states, outputs = made.initial(), []
    log = list(messages(SEEN, POLICY, rng))
    assert len(log) > len(list(messages(SEEN, POLICY))) + 100
    for item in log:
        states, more = made.step(states, item)
        outputs += more
    assert outputs + made.finish(states) == plain


def test_a_batch_that_comes_twice_changes_nothing(plain: Any) -> None:
    doubled = [item for item in messages(SEEN, POLICY) for _ in range(2)]
    made = pipeline()
    outputs = run(made, doubled)
    assert outputs == plain[: len(outputs)]
    assert {out.topic for out in plain[len(outputs) :]} <= {PRESENCE}


def test_the_partition_gives_what_the_table_gives(plain: Any) -> None:
    partition = PartitionEngine(POLICY, laboratory(), OPTIONS)
    emitted = []
    for offset, item in enumerate(messages(SEEN, POLICY)):
        emitted += partition.process(offset, None, encode_message(item))
    wanted = [(out.topic, out.value) for out in plain if out.topic != "tacet.presence.v1"]
    assert sorted((out.topic, out.value) for out in emitted if out.topic != "tacet.presence.v1") == sorted(wanted)


def test_a_partition_brought_back_from_its_snapshot_at_any_message_goes_on_alike() -> None:
    log = [encode_message(item) for item in messages(SEEN[:1200], POLICY)]
    straight = PartitionEngine(POLICY, laboratory(), OPTIONS)
    wanted = [out for offset, value in enumerate(log) for out in straight.process(offset, None, value)]
    partition, emitted = PartitionEngine(POLICY, laboratory(), OPTIONS), []
    for offset, value in enumerate(log):
        emitted += partition.process(offset, None, value)
        if offset % 5 == 0:
            snapshot = partition.snapshot(offset + 1, 0)
            partition = PartitionEngine(POLICY, laboratory(), OPTIONS)
            assert partition.restore(snapshot) == offset + 1
            assert partition.snapshot(offset + 1, 0) == snapshot
    assert emitted == wanted


def test_an_audit_entry_comes_before_the_record_that_it_pays_for(plain: Any) -> None:
    charged = set()
    for out in plain:
        if out.topic == AUDIT:
            charged.add(parse_record(out.value)["release_id"])
        elif out.topic.startswith("tacet.private."):
            assert out.id in charged, "published before it was charged"
    partition = PartitionEngine(POLICY, laboratory())
    for offset, item in enumerate(messages(SEEN[:900], POLICY)):
        topics = [out.topic for out in partition.process(offset, None, encode_message(item))]
        assert topics == sorted(topics, key=lambda topic: topic != AUDIT)


def test_replay_gives_the_same_bytes_each_time_and_the_tables_own(tmp_path: Path, plain: Any) -> None:
    file = write_csv(tmp_path / "seen.csv", SEEN)
    trees = []
    for name in ("one", "two"):
        replay(ObservationFile(file, POLICY, bytes(32)), POLICY, laboratory(), tmp_path / name, OPTIONS)
        folder = tmp_path / name
        trees.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert trees[0] == trees[1]
    audit = [out.value for out in plain if out.topic == AUDIT]
    lines = (tmp_path / "one" / "audit.jsonl").read_bytes().splitlines()
    assert lines[: len(lines) // 2] == audit[: len(lines) // 2], "the file's log and the test's differ only at the end"
    verify_chain([parse_record(line) for line in lines], laboratory().audit)


# --- batch form = stream form of the count mechanisms, through the real release stage ---------------------


@pytest.mark.parametrize(
    ("mechanism", "smoother"),
    [("laplace", "median"), ("pegasus", "median"), ("pegasus", "average"), ("pegasus", "james-stein"),
     ("filter", "median")],
)  # fmt: skip
def test_a_table_of_counts_released_in_one_batch_equals_the_stream(mechanism: Any, smoother: Any) -> None:
    policy = building(
        tick="30min",
        releases=f"""
[[release]]
name = "r"
query = "count"
mechanism = "{mechanism}"
smoother = "{smoother}"
zones = {{ kind = "hall" }}
epsilon = {{ facilities = "0.3" }}
""",
    )
    windows = run_windows(policy, SEEN)
    made = [parse_record(out.value) for out in outputs_of(policy, SEEN) if ".private." in out.topic]
    zones = ("a", "b", "c")
    naming = ReleaseContext(SITE, "r", zones, _noise_key, lambda end: slot_of(end, "America/Los_Angeles"), 30 * MINUTE)
    counts = np.array([window.counts[:3] for window in windows], dtype=np.int64)
    times = np.array([window.window_end for window in windows], dtype=np.int64)
    form = count_mechanism(mechanism, epsilon=Fraction("0.3"), max_counts=[80] * 3, smoother=smoother)
    values, widths = release_counts(form, naming, times, counts)
    assert values.tolist() == [[body["values"][zone] for zone in zones] for body in made]
    assert widths.tolist() == [[body["half_width_95"][zone] for zone in zones] for body in made]
    assert counts.max() > 3


def _noise_key(day: int) -> bytes:
    return subkey(laboratory().noise_key(day), "noise")


def run_windows(policy: Any, seen: Any) -> list[OccupancyWindow]:
    stage = Pipeline(policy, SITE, laboratory()).stages.occupancy
    return [out for out in scan(stage, messages(seen, policy))[1] if isinstance(out, OccupancyWindow)]


# --- the same on every machine ------------------------------------------------------------------------


def golden() -> list[Seen]:
    """Sightings without any random generator in them."""
    return [
        Seen(EVENING + minute * MINUTE, mac(n), access_point("abcd"[(n + minute // 60) % 4]))
        for minute in range(0, 240, 5)
        for n in range(1 + minute // 20)
    ]


@cache
def golden_outputs() -> list[Any]:
    return outputs_of(PINNED_POLICY, golden())


PINNED_STATE = "88c05565dfc7b5444a5e1fb5cec5ed60f8ddeee0425dcd30a0c3710d7c2db487"
PINNED = {
    "grouped": ({"a": 0, "b": 3, "c": 38, "d": 13}, "742f2ab8ee52331ba2b5904bf46860568eca257db31845ac18811d5262d673fe"),
    "plain": ({"a": 2, "b": 9, "c": 13, "d": -2}, "9bfb207ea3c86c9c8acb37fbb1995e16976a8ee55941554643d76929a1a08069"),
    "smooth": ({"a": 1, "b": 1, "c": 3}, "94629b067511a33fcbdc86db4ccf6f958e158edd0385a6a130ac6ca607e1fb82"),
    "office-day": {
        "dbh/office-day/facilities/2026-03-03/x/arrival": "09:15",
        "dbh/office-day/facilities/2026-03-03/y/arrival": "09:15",
        "dbh/office-day/facilities/2026-03-03/y/occupancy_level": 0.7,
    },
}


@pytest.mark.pinned
def test_the_state_is_the_same_on_every_machine() -> None:
    made = Pipeline(PINNED_POLICY, SITE, laboratory())
    states = made.initial()
    for item in messages(golden(), PINNED_POLICY):
        states, _ = made.step(states, item)
    data = made.encode(states)
    hashed = hashlib.sha256(data["sense"] + data["attributes"])
    for name, part in sorted(split_parts(data["release"])[1].items()):
        hashed.update(name.encode() + b"\0" + part)
    assert hashed.hexdigest() == PINNED_STATE


@pytest.mark.pinned
@pytest.mark.parametrize("release", ["grouped", "plain", "smooth"])
def test_the_bytes_of_a_release_are_the_same_on_every_machine(release: Any) -> None:
    """All bytes but the policy's version, which a new setting changes and which no value depends on."""
    outputs = [o for o in golden_outputs() if o.topic.endswith(f".{release}.v1")]
    values = [o.value.replace(PINNED_POLICY.version.encode(), b"") for o in outputs]
    record = next(
        parse_record(o.value)
        for o in outputs
        if o.id.endswith("public/2026-03-03T07:30:00Z")
        or (release == "plain" and o.id.endswith("2026-03-03T07:30:00Z"))
    )
    assert (record["values"], hashlib.sha256(b"\n".join(values)).hexdigest()) == PINNED[release]


@pytest.mark.pinned
def test_attributes_shown_are_the_same_on_every_machine() -> None:
    outputs = [o for o in outputs_of(PINNED_POLICY, SEEN, laboratory(5)) if o.topic.endswith(".office-day.v1")]
    shown = {o.id: parse_record(o.value).get("value") for o in outputs if parse_record(o.value)["released"]}
    assert shown == PINNED["office-day"]


def test_a_window_given_to_the_release_stage_again_is_not_released_again(given: Any) -> None:
    stage = operator("release")
    state, first = scan(stage, given["release"][:5])
    state, again = scan(stage, given["release"][:5], state)
    assert first
    assert again == []


def test_days_are_closed_before_the_window_that_closes_them(given: Any) -> None:
    items = given["release"]
    (place,) = [n for n, item in enumerate(items) if isinstance(item, DayClosed)]
    assert items[place + 1].window_end == items[place].window_end
