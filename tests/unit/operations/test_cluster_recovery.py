"""What ``recover --kafka`` says, without a broker: the advice names the cluster, never a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.keys import key_files
from connectors.operations.audit.verification import AuditBundle
from connectors.operations.recovery import cluster as of_cluster
from connectors.operations.recovery import report
from connectors.operations.recovery.cluster import ClusterStorage, of_ended
from connectors.operations.recovery.obstacles import Obstacle, cluster_advice, store_advice
from connectors.operations.recovery.report import StoredState, of_state, recovery_report
from stream.engine.cluster_state import ClusterState
from stream.engine.ports import LossError
from stream.engine.snapshot import SnapshotHead, seal_snapshot
from stream.errors import AuditError
from stream.keys import fingerprint
from stream.release.stage import MECHANISM_VERSION
from tests.support.small_building import COUNTS, audit_of, bodies, building, outputs_of, people

HEAD = SnapshotHead(1, 0, "policy", MECHANISM_VERSION, "key", None)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "key", laboratory=False)
    return tmp_path / "key"


def cluster(control: ClusterState, *states: StoredState) -> ClusterStorage:
    return ClusterStorage("nowhere:1", cluster_advice(), control, partitions=states)


def advice_of(obstacles: list[Obstacle]) -> list[str]:
    return [f"{remedy.do}: {remedy.price}" for each in obstacles for remedy in each.remedies]


def test_a_wrong_key_gets_the_advice_for_a_cluster(key: Path) -> None:
    found = recovery_report(cluster(ClusterState(key="another")), key, None)
    assert [each.what for each in found] == [f"{key}: is not the key with which the cluster was begun"]
    assert not any("store" in text or "outbox" in text for text in advice_of(found))
    right, retire, anew = advice_of(found)
    assert "use the key of this cluster" in right
    assert "'tacet key retire --kafka'" in retire
    assert "delete all topics" in anew


@pytest.mark.parametrize(("again", "command"), [
    (None, "'tacet worker --accept-policy' on one worker"),
    (0, "'tacet worker --accept-policy --again 0' on one worker"),
    (3, "'tacet worker --accept-policy --again 3' on one worker"),
])  # fmt: skip
def test_a_policy_that_was_replaced_is_accepted_again_in_place_of_a_numbered_one(
    again: int | None, command: str
) -> None:
    assert cluster_advice(again).accept_policy.do.startswith(command)


@pytest.mark.parametrize(("given", "told"), [("/etc/tacet/key", "/etc/tacet/key"), (None, "FILE")])
def test_advice_names_the_key_file_as_far_as_it_is_known(given: str | None, told: str) -> None:
    of_store, of_a_cluster = store_advice("/srv/store", given), cluster_advice(key_file=given)
    assert f"put a copy of the key file back at {told}, beside its .mark" in of_store.key_copy.do
    assert f"put a copy of the key file back at {told}, with" in of_a_cluster.key_copy.do
    assert f"--store /srv/store --key-file {told} --policy POLICY --reopen east" in of_store.reopen("east")


def test_advice_names_the_policy_as_far_as_it_is_known() -> None:
    named = store_advice("/srv/store", "/etc/tacet/key", "/etc/tacet/policy.toml")
    assert "--key-file /etc/tacet/key --policy /etc/tacet/policy.toml --reopen east" in named.reopen("east")
    unnamed = store_advice("/srv/store", "/etc/tacet/key", None)
    assert "--policy POLICY --reopen east" in unnamed.reopen("east")


def test_an_unreadable_key_file_is_an_obstacle_and_the_topics_are_still_checked(tmp_path: Path) -> None:
    announced = ClusterState(announced="9", mechanisms="1")
    first, second, *_ = recovery_report(cluster(announced), tmp_path / "none", None)
    assert "none" in first.what
    assert "mechanism version 9 was announced" in second.what
    assert not any("store" in text or ".mark" in text for text in advice_of([first]))


def test_the_key_of_an_ended_ledger_is_named(key: Path) -> None:
    keys = key_files.FileKeys(key)
    control = ClusterState(key="another", retired=(keys.ledger,))
    (found,) = report.of_key(cluster(control), key, keys)
    assert f"ledger {keys.ledger}, which has ended" in found.what
    assert [remedy.do for remedy in found.remedies] == ["use the key of the ledger that continues"]


@pytest.mark.parametrize(
    ("bound", "what"),
    [
        ("cluster former", "the key belongs to cluster former, but topic tacet.control.v1 holds those of cluster here"),
        ("0123", "belongs to store 0123, not to a cluster"),
        ("cluster here", None),
        (None, None),
    ],
)
def test_a_key_that_is_bound_elsewhere_is_refused_by_its_storage(
    key: Path, bound: str | None, what: str | None
) -> None:
    if bound is not None:
        key_files.bind(key, bound)
    keys = key_files.FileKeys(key)
    found = list(report.of_key(cluster(ClusterState(id="here", key=fingerprint(keys))), key, keys))
    assert [what in each.what for each in found] == [True] if what is not None else found == []


def test_a_partition_of_an_ended_ledger_has_to_be_taken_over() -> None:
    assert list(of_ended("partition 3", "old", ClusterState(key="old"))) == []
    assert list(of_ended("partition 3", "old", ClusterState())) == []
    (found,) = of_ended("partition 3", "old", ClusterState(key="new"))
    assert "partition 3: its ledger has ended, and the partition has not been taken over" in found.what


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (StoredState("partition 0", None, beyond=3, committed=True), "the audit holds records, but there is no state"),
        (StoredState("partition 0", None, used="topic"), "topic holds records, but audit and snapshot hold none"),
        (StoredState("partition 0", None, deleted="its snapshot was deleted"), "its snapshot was deleted"),
        (StoredState("partition 0", None, beyond=3), None),
        (StoredState("partition 0", None), None),
    ],
)
def test_a_partition_without_a_state(state: StoredState, what: str | None) -> None:
    found = list(of_state(state, cluster_advice()))
    assert [what in each.what for each in found] == [True] if what is not None else found == []


def test_lost_observations_and_entries_of_a_state_are_named() -> None:
    lost = Obstacle("gone", ())
    state = StoredState("partition 0", seal_snapshot(HEAD, {}), lost_entries=True)
    (entries,) = of_state(state, cluster_advice())
    assert "audit records that its state includes are missing" in entries.what
    state = StoredState("partition 0", seal_snapshot(HEAD, {}), lost_observations=lost)
    assert list(of_state(state, cluster_advice())) == [lost]
    without = StoredState("partition 0", None, lost_entries=True)
    assert [each.what for each in of_state(without, cluster_advice())] == [
        "partition 0: its first audit records are missing"
    ]


async def test_an_audit_that_has_lost_its_first_records_is_an_obstacle_and_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def gone(*_: object, **__: object) -> tuple[list[bytes], int]:
        raise LossError("offset 0 is needed")

    async def begin(*_: object) -> dict[int, int]:
        return {0: 18}

    async def deleted(*_: object) -> None:
        raise LossError("its snapshot was deleted")

    for name, value in (("read_range", gone), ("begin_offsets", begin), ("last_snapshot", deleted)):
        monkeypatch.setattr(of_cluster, name, value)
    state, _ = await of_cluster._read_partition("servers", 0, (), of_cluster._Given(None, [], ClusterState()))
    assert state.lost_entries
    assert state.deleted == "its snapshot was deleted"


def test_a_deleted_state_can_be_made_again_from_observations_that_reach_back() -> None:
    (found,) = of_state(StoredState("partition 0", None, committed=True), cluster_advice())
    assert "--accept-loss" in found.remedies[1].do


class Unreadable(ClusterStorage):
    """A cluster whose audit cannot be read."""

    def audit(self, *, records: bool) -> AuditBundle:
        raise AuditError("broken")


def test_the_ledger_is_compared_unless_it_is_already_in_doubt() -> None:
    whole = Unreadable("nowhere:1", cluster_advice(), ClusterState(announced="9"))
    assert [each.what for each in recovery_report(whole, None, None)][1:] == ["broken"]
    lost = StoredState("partition 0", None, used="topic")
    doubtful = Unreadable("nowhere:1", cluster_advice(), ClusterState(), partitions=[lost])
    assert [each.what for each in recovery_report(doubtful, None, None)] == [
        "partition 0: topic holds records, but audit and snapshot hold none"
    ]


class Incomplete(ClusterStorage):
    """A cluster whose ledger is whole, and which has lost the records of one audience."""

    def audit(self, *, records: bool) -> AuditBundle:
        outputs = outputs_of(building(releases=COUNTS), people(hours=1, devices=2))
        kept = [record for record in bodies(outputs, "private") if record["audience"] != "board"]
        return AuditBundle(audit_of(outputs), [], kept if records else None)


def test_lost_records_are_put_back_or_made_again_or_done_without() -> None:
    found = recovery_report(Incomplete("nowhere:1", cluster_advice(), ClusterState()), None, None)
    assert [each.what.partition(" published record(s) of ")[2].partition(" are missing")[0] for each in found] == [
        "release grouped for board", "release plain for board"
    ]  # fmt: skip
    for each in found:
        mirror, again, without = each.remedies
        assert "put the records of the topic back" in mirror.do
        assert "'tacet republish'" in again.do
        assert without.do == "continue without them"
        assert without.price.startswith("board does not receive them again, and 'tacet audit verify' continues to")
        assert not each.ledger_in_doubt


def test_with_an_obstacle_of_a_topic_the_records_are_not_read() -> None:
    grown = Obstacle("topic a: has 8 partitions, the cluster 4", ())
    storage = ClusterStorage("nowhere:1", cluster_advice(), ClusterState(), topics=[grown])
    assert recovery_report(storage, None, None) == [grown]


def test_a_storage_that_has_released_nothing_has_no_wrong_key(key: Path) -> None:
    assert list(report.of_key(cluster(ClusterState()), key, key_files.FileKeys(key))) == []
