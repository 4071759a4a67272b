"""The end of a cluster's ledger: who may end it, and what the new one records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import orjson
import pytest

from connectors.storage.audit_chains import audit_of, heads_of
from connectors.storage.kafka.key_rotation import oldest_key_day_needed
from stream.accounting.audit import ChainLink, LedgerStart, Start
from stream.encoding import encode_message
from stream.engine.cluster_state import SILENT, ClusterState, admit, announce, claim, identity_records, sign_of_life
from stream.engine.key_rotation import (
    NOBODY,
    EndedLedger,
    end_ledger,
    ledger_start_record,
    refuse_other_key,
    refuse_retired,
    successor,
    take_over,
)
from stream.engine.partition import PartitionEngine
from stream.engine.snapshot import chains, open_snapshot, seal_snapshot, unpack_snapshot
from stream.errors import AuditError, UsageError
from stream.keys import LaboratoryKeys, fingerprint
from stream.records import DAY, SECOND
from stream.release.state import LocalDay, ReleaseState, decode_release_state
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, LEAKAGE
from tests.support.small_building import ATTRIBUTES, COUNTS, SITE, building, laboratory, messages, people, policy_text

NOW = 1_000_000 * SECOND
PAIR = ("dbh", "10.2.0.5")
NEW = LaboratoryKeys(b"n" * 32, "new-ledger", b"a" * 32)
TEXT = policy_text(COUNTS + ATTRIBUTES)


def apply(control: ClusterState, records: Mapping[str, bytes | None]) -> ClusterState:
    for name, value in records.items():
        control.apply(name, value, NOW)
    return control


def begun() -> ClusterState:
    control = apply(ClusterState(), identity_records(ClusterState(), 4, "c1"))
    apply(control, admit(control, building(), "old", "2", accept=False))
    _, claims = claim(control, "i1", [PAIR], 5, now=NOW, take_over=False)
    return apply(control, claims)


# --- who may end it -----------------------------------------------------------------------------------------


def test_from_one_record_on_the_cluster_is_the_new_keys_and_the_old_one_is_refused() -> None:
    control = begun()
    apply(control, end_ledger(control, "old", "new", {"ledger-1"}, now=NOW))
    assert (control.key, control.retired, control.versions) == ("new", ("ledger-1",), ("2",))
    with pytest.raises(UsageError, match="ledger ledger-1 has ended, its key was retired"):
        refuse_retired(control, "ledger-1")
    with pytest.raises(UsageError, match="has ended"):
        refuse_other_key(control, "old", "ledger-1")
    with pytest.raises(UsageError, match="key: must be the one"):
        refuse_other_key(control, "old", "one that left no entries")
    refuse_other_key(control, "new", "ledger-2")
    assert admit(control, building(), "new", "2", accept=False) == {}
    assert end_ledger(control, "old", "new", {"ledger-1"}, now=NOW) == {}, "done again it changes nothing"


def test_what_was_retired_is_never_forgotten_whatever_changes_after_it() -> None:
    control = begun()
    apply(control, end_ledger(control, None, "new", {"ledger-1"}, now=NOW))
    apply(control, end_ledger(control, "new", "third", {"ledger-2", "ledger-1"}, now=NOW))
    assert control.retired == ("ledger-1", "ledger-2")
    apply(control, announce(control, "third", "3"))
    apply(control, admit(control, building(), "third", "3", accept=True))
    assert (control.mechanisms, control.retired) == ("3", ("ledger-1", "ledger-2"))


def test_a_ledger_that_ends_does_not_make_those_that_ended_before_it_good_again() -> None:
    """Each names itself alone: a store of a second key has no entries of the first."""
    control = begun()
    for old, new, ledger in (("old", "new", "z-first"), ("new", "third", "second"), ("third", "fourth", "a-third")):
        apply(control, end_ledger(control, old, new, {ledger}, now=NOW))
    assert control.retired == ("z-first", "second", "a-third")
    for ledger in control.retired:
        with pytest.raises(UsageError, match=f"ledger {ledger} has ended"):
            refuse_retired(control, ledger)


def test_ingests_lose_their_sources_and_one_that_lives_is_waited_for() -> None:
    control = begun()
    apply(control, sign_of_life("i1"))
    with pytest.raises(UsageError, match="ingest: must be stopped before a key is retired, 1 of them"):
        end_ledger(control, "old", "new", (), now=NOW + SILENT - 1)
    apply(control, end_ledger(control, "old", "new", (), now=NOW + SILENT))
    assert control.claims[PAIR].ingest == NOBODY
    session, _ = claim(control, "i2", [PAIR], 1, now=NOW, take_over=False)
    assert session == 6, "sessions never go back"


@pytest.mark.parametrize(("old", "problem"), [("another", "key: must be the one"), (None, "no worker has begun")])
def test_only_the_clusters_own_ledger_can_end(old: str | None, problem: str) -> None:
    control = begun() if old else apply(ClusterState(), identity_records(ClusterState(), 4, "c1"))
    with pytest.raises(UsageError, match=problem):
        end_ledger(control, old, "new", (), now=NOW)


# --- what a new one says of its beginning ---------------------------------------------------------------------


def test_a_beginning_is_read_back_from_its_record_and_cannot_be_forged() -> None:
    made = LedgerStart("l2", 3, {"dbh": Start(ChainLink(7, "ab"), 5)}).signed(b"key")
    control = apply(ClusterState(), ledger_start_record(made))
    assert control.beginnings == {("l2", 3): made}
    made.check_signature(b"key")
    for other in (
        replace(made, ledger="l3"), replace(made, partition=2), replace(made, sites={"dbh": Start(ChainLink(7,
        "ab"), 4)}),
        replace(made, sites={}), replace(made, mac=""),
    ):  # fmt: skip
        with pytest.raises(AuditError, match="must be signed with the audit key"):
            other.check_signature(b"key")


# --- what counts --------------------------------------------------------------------------------------------------


def books(snapshot: bytes) -> ReleaseState:
    return decode_release_state(open_snapshot(snapshot)[1][SITE]["release"])[0]


class Cluster:
    """A partition whose worker saved its state, and was killed behind entries that were never committed."""

    def __init__(self, policy: Policy, saved_at: int, killed_at: int) -> None:
        self.policy = policy
        partition = PartitionEngine(policy, laboratory())
        self.entries: list[dict[str, Any]] = []
        for offset, message in enumerate(messages(people(hours=30, devices=4), policy)):
            if offset == saved_at:
                self.snapshot, self.saved = partition.snapshot(offset, 0), len(self.entries)
            if offset == killed_at:
                break
            made = partition.process(offset, None, encode_message(message))
            self.entries += [orjson.loads(out.value) for out in made if out.topic == AUDIT]
        self.whole = partition.snapshot(killed_at, 0)
        """What the state would be if all had been released."""

    def taken(self, snapshot: bytes | None = None) -> Any:
        left = EndedLedger(self.snapshot if snapshot is None else snapshot, self.entries, [self.policy])
        return take_over(left, NEW, 0, next_offset=99, audit_offset=7)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """Killed a day later, so that attributes of a day are among what was left."""
    made = Cluster(load_policy(TEXT), 40, 358)
    left = made.entries[made.saved :]
    assert {entry["outcome"] for entry in left} >= {"released", "budget"}
    assert any("/" in entry["release_id"].split("/", 3)[3] for entry in left), "attributes too"
    return made


def test_what_was_begun_counts_as_if_all_of_it_had_been_released(cluster: Cluster) -> None:
    """Budgets, charges and days asked are those of a state that has released it all."""
    taken, finished = cluster.taken(), cluster.taken(cluster.whole)
    assert taken.unreleased == len(cluster.entries) - cluster.saved > finished.unreleased == 0
    mine, other = books(taken.snapshot), books(finished.snapshot)
    assert (mine.ledger.sequence, mine.ledger.head) == (other.ledger.sequence, other.ledger.head)
    assert mine.ledger.budgets == other.ledger.budgets
    assert (mine.released_until, mine.closed, mine.charged) == (other.released_until, other.closed, other.charged)
    assert mine.queried_days == other.queried_days
    assert chains(taken.snapshot)[SITE] == (len(cluster.entries), cluster.entries[-1]["hash"])


def test_the_account_goes_on_with_it(cluster: Cluster) -> None:
    taken = cluster.taken()
    reported = [orjson.loads(out.value) for out in taken.accounts if out.topic == LEAKAGE]
    last = [body for body in reported if body["kind"] == "counts"][-1]["audiences"]
    for audience in ("board", "facilities"):
        charged = [e for e in cluster.entries if e["audience"] == audience and e["outcome"] == "released"]
        counts = sum(
            (Fraction(e["epsilon"]) for e in charged if len(e["release_id"].split("/")) == 4), Fraction(0)
        )  # fmt: skip
        assert Fraction(last[audience]["device_total"]) == counts > 0, audience


def test_a_worker_goes_on_behind_it_under_the_new_key_in_the_same_chain(cluster: Cluster) -> None:
    taken = cluster.taken()
    partition = PartitionEngine(cluster.policy, NEW)
    assert partition.restore(taken.snapshot) == 99
    partition.expect_replay([orjson.dumps(entry) for entry in cluster.entries])
    assert not partition.has_unreplayed_entries()
    later = [
        message for message in messages(people(hours=40, devices=4), cluster.policy)
        if getattr(message, "watermark", 0) > books(taken.snapshot).released_until or hasattr(message, "rows")
    ]  # fmt: skip
    made = [
        orjson.loads(out.value)
        for offset, message in enumerate(later)
        for out in partition.process(99 + offset, None, encode_message(message))
        if out.topic == AUDIT
    ]
    entries = [*cluster.entries, *made]
    assert made
    assert {entry["ledger"] for entry in made} == {NEW.ledger}
    assert len({entry["release_id"] for entry in entries}) == len(entries), "nothing is charged twice"
    beginnings = [taken.ledger_start]
    audit_of([heads_of(taken.snapshot)], None, NEW.audit, (), beginnings, NEW.ledger).chains(entries)
    with pytest.raises(AuditError, match="must be signed with the audit key"):
        audit_of([], None, NEW.audit, (), [], NEW.ledger).chains(entries)
    with pytest.raises(AuditError, match=f"ledger {NEW.ledger} knows of"):
        audit_of([], None, None, (), beginnings).chains(cluster.entries[:-1])


def test_a_days_key_goes_on_until_the_new_ledger_has_saved_a_state(cluster: Cluster) -> None:
    assert oldest_key_day_needed([cluster.taken().snapshot], cluster.policy, NEW) is None  # type: ignore[arg-type]


def test_an_unknown_policy_is_refused(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match=r"policy: version .* must be an accepted one"):
        take_over(EndedLedger(cluster.snapshot, cluster.entries, []), NEW, 0, next_offset=0, audit_offset=0)


def test_entries_under_an_unknown_policy_are_refused(cluster: Cluster) -> None:
    *_, last = cluster.entries
    entries = [*cluster.entries[:-1], last | {"policy_version": "unknown"}]
    with pytest.raises(
        UsageError, match=r"policy: version unknown, under which entries of site .* must be an accepted"
    ):
        take_over(EndedLedger(cluster.snapshot, entries, [cluster.policy]), NEW, 0, next_offset=0, audit_offset=0)


def test_a_state_of_another_mechanism_version_has_no_successor(cluster: Cluster) -> None:
    """Its version must end the ledger itself."""
    assert books(successor(cluster.snapshot, NEW)).ledger.budgets == books(cluster.snapshot).ledger.budgets
    head, sites = unpack_snapshot(cluster.snapshot)
    other = seal_snapshot(head._replace(mechanisms="0"), sites)
    with pytest.raises(UsageError, match=r"state: must be of mechanism version .* before its ledger can end, got 0"):
        successor(other, NEW)


def test_a_site_of_which_there_are_entries_and_no_state_counts_as_well(cluster: Cluster) -> None:
    fresh = PartitionEngine(cluster.policy, laboratory()).snapshot(0, 0)
    taken = take_over(EndedLedger(fresh, cluster.entries, [cluster.policy]), NEW, 0, next_offset=0, audit_offset=0)
    state = books(taken.snapshot)
    assert state.ledger.sequence == len(cluster.entries)
    assert fingerprint(NEW) == open_snapshot(taken.snapshot)[0].key
    assert isinstance(next(iter(state.queried_days.days)), LocalDay)
    assert state.released_until > DAY
