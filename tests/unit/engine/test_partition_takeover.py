"""A partition that moves to another worker: its policy, and which entries it adopts."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from connectors.operations.recovery.obstacles import Obstacle, cluster_advice
from connectors.operations.recovery.report import StoredState, of_state
from stream.encoding import encode_message
from stream.engine.continuation import adopted_from
from stream.engine.outputs import OutputRecord, entries_beyond
from stream.engine.partition import PartitionEngine
from stream.engine.ports import LossError
from stream.engine.snapshot import chains, open_snapshot, seal_site, seal_snapshot
from stream.errors import FinalityError, UsageError
from stream.release.stage import MECHANISM_VERSION
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, QUARANTINE, parse_record
from tests.support.hash_chain import verify_chain
from tests.support.later_mechanism_version import LATER, NOW, later
from tests.support.small_building import SITE, building, laboratory, messages, people, policy_text

OLD = building()
NEW = load_policy(policy_text().replace('public = "0.5"', 'public = "0.6"'))
NEWEST = load_policy(policy_text().replace('public = "0.5"', 'public = "0.7"'))
LOG = [encode_message(item) for item in messages(people()[:1500], OLD)]
CUT = len(LOG) // 2
LAST = CUT + 60
"""Where tests stop: several windows after any that was begun."""


def fed(partition: PartitionEngine, first: int, last: int) -> list[OutputRecord]:
    return [out for offset in range(first, last) for out in partition.process(offset, b"s", LOG[offset])]


def entries(emitted: list[OutputRecord]) -> list[bytes]:
    return [out.value for out in emitted if out.topic == AUDIT]


def versions(audit: list[bytes]) -> list[str]:
    """Return the policy versions in the order in which they come, each once for its run."""
    report = [str(parse_record(value)["policy_version"]) for value in audit]
    return [version for place, version in enumerate(report) if place == 0 or report[place - 1] != version]


class Scenario:
    """A worker under the old policy: what it had committed, and what it had begun to publish beyond."""

    def __init__(self) -> None:
        partition = PartitionEngine(OLD, laboratory())
        self.committed = entries(fed(partition, 0, CUT))
        self.snapshot = partition.snapshot(CUT, 0)
        self.end = CUT
        self.begun: list[bytes] = []
        while len(self.begun) < 6:
            self.begun += entries(fed(partition, self.end, self.end + 1))
            self.end += 1


@cache
def scenario() -> Scenario:
    return Scenario()


def taken(policy: Policy, published: list[bytes], *, accepted: list[Policy] | None = None) -> PartitionEngine:
    partition = PartitionEngine(policy, laboratory(), accepted=[OLD, NEW, NEWEST] if accepted is None else accepted)
    assert partition.restore(scenario().snapshot) == CUT
    partition.expect_replay(published)
    return partition


def test_an_accepted_policy_begins_at_once_where_nothing_was_begun_under_the_one_before() -> None:
    partition = taken(NEW, scenario().committed)
    assert versions(entries(fed(partition, CUT, LAST))) == [NEW.version]


@pytest.mark.parametrize("left", range(1, 7))
def test_a_window_begun_under_a_policy_is_finished_under_it_and_only_then_does_the_new_one_begin(left: Any) -> None:
    """However many of the window's entries were published before the crash, the hash chain goes on without a break."""
    assert len(scenario().begun) == 6
    partition = taken(NEW, scenario().committed + scenario().begun[:left])
    after = entries(fed(partition, CUT, LAST))
    assert after[:left] == scenario().begun[:left]
    assert versions(after) == [OLD.version, NEW.version]
    verify_chain([parse_record(value) for value in scenario().committed + after], laboratory().audit)
    whole = [parse_record(value) for value in after]
    ends = {entry["window_end"] for entry in whole if entry["policy_version"] == OLD.version}
    assert ends == {parse_record(value)["window_end"] for value in scenario().begun[:left]}
    assert not ends & {entry["window_end"] for entry in whole if entry["policy_version"] == NEW.version}


def test_a_state_in_the_middle_of_a_window_of_the_old_policy_goes_on_under_it_after_one_more_change_of_owner() -> None:
    first = taken(NEW, scenario().begun)
    out = entries(fed(first, CUT, scenario().end - 1))
    second = PartitionEngine(NEWEST, laboratory(), accepted=[OLD, NEW, NEWEST])
    second.restore(first.snapshot(scenario().end - 1, 0))
    second.expect_replay(scenario().committed + scenario().begun)
    after = out + entries(fed(second, scenario().end - 1, LAST))
    assert after[: len(scenario().begun)] == scenario().begun
    assert versions(after) == [OLD.version, NEWEST.version]
    verify_chain([parse_record(value) for value in scenario().committed + after], laboratory().audit)


@pytest.mark.parametrize(("policy", "adopted"), [(OLD, False), (NEW, True)])
def test_a_state_that_another_policy_has_made_is_adopted(policy: Policy, adopted: bool) -> None:
    assert taken(policy, scenario().committed).adopted() is adopted
    assert not PartitionEngine(policy, laboratory()).adopted()


def test_windows_begun_under_two_policies_are_finished_under_each_in_turn() -> None:
    between = entries(fed(taken(NEW, scenario().begun), CUT, LAST))
    mixed = between[: between.index(next(v for v in between if parse_record(v)["policy_version"] == NEW.version)) + 2]
    after = entries(fed(taken(NEWEST, mixed), CUT, LAST))
    assert after[: len(mixed)] == mixed
    assert versions(after) == [OLD.version, NEW.version, NEWEST.version]


def test_a_window_begun_under_a_policy_that_nobody_kept_stops_with_the_way_out() -> None:
    with pytest.raises(
        UsageError, match=f"policy: {OLD.version} must be known, .*start a worker with that policy .*--again N"
    ):
        PartitionEngine(NEW, laboratory(), accept_policy=True).expect_replay(scenario().begun)


def test_a_window_that_comes_out_otherwise_under_its_own_policy_is_refused() -> None:
    forged = [scenario().begun[0].replace(b'"nano":', b'"nano":1')]
    with pytest.raises(FinalityError):
        fed(taken(NEW, forged), CUT, LAST)


# --- which mechanism version began a window ---------------------------------------------------------------


def of_version(version: str) -> bytes:
    head, sites = open_snapshot(scenario().snapshot)
    sealed = {name: seal_site(name, stages) for name, stages in sites.items()}
    return seal_snapshot(head._replace(mechanisms=version), sealed)


def test_a_window_that_another_mechanism_version_began_stops_before_anything_is_made_again() -> None:
    """Also where its entries would come out equal: they say nothing of the noise."""
    with later():
        partition = PartitionEngine(OLD, laboratory(), accept_policy=True)
        partition.restore(scenario().snapshot)
        partition.expect_replay(scenario().committed)
        with pytest.raises(
            UsageError,
            match=rf"must be {NOW}, under which 6 ledger entries .*start version {NOW} once more.*--accept-policy",
        ):
            partition.expect_replay(scenario().begun)


def test_a_state_that_was_adopted_and_never_used_is_still_of_the_version_that_made_it() -> None:
    head, sites = open_snapshot(of_version(NOW))
    between = head._replace(before="0")
    with later():
        again = adopted_from(seal_snapshot(between, {name: seal_site(name, stages) for name, stages in sites.items()}))
    assert open_snapshot(again)[0].made_by == "0"
    assert open_snapshot(again)[0].mechanisms == LATER


def found(snapshot: bytes | None, beyond: int = 0, *versions: str) -> list[Obstacle]:
    state = StoredState("partition 0", snapshot, beyond, versions=versions or (NOW,))
    return list(of_state(state, cluster_advice()))


def test_recover_names_a_window_that_another_mechanism_version_began() -> None:
    beyond = entries_beyond(
        [*scenario().committed, *scenario().begun, *scenario().begun], chains(scenario().snapshot), OLD.site
    )
    assert (beyond, found(scenario().snapshot, beyond)) == (6, [])
    with later():
        (begun,) = found(scenario().snapshot, beyond)
    assert begun.what == f"partition 0: 6 ledger entries are beyond its state, which mechanism version {NOW} made"
    finish, anew = begun.remedies
    assert f"start mechanism version {NOW} once more" in finish.do
    assert f"released under version {NOW}" in finish.price
    assert "begin a new ledger" in anew.do


def test_recover_offers_no_version_where_two_have_published_beyond_the_state() -> None:
    with later():
        (begun,) = found(scenario().snapshot, 6, NOW, LATER)
    assert [remedy.do.split()[0] for remedy in begun.remedies] == ["put", "begin"]


def test_recover_names_the_consent_with_which_this_version_continues_from_the_one_before() -> None:
    with later():
        (made,) = found(scenario().snapshot)
    assert made.what == f"partition 0: its state was made by mechanism version {NOW}, this is version {LATER}"
    assert ["--accept-policy" in remedy.do for remedy in made.remedies] == [True]


def test_recover_names_a_state_of_a_version_from_which_none_continues() -> None:
    (unknown,) = found(of_version("9"))
    assert unknown.what == (
        f"partition 0: its state was made by mechanism version 9, this is version {MECHANISM_VERSION}, "
        f"which continues only from version {MECHANISM_VERSION}"
    )
    assert [remedy.do.split(",")[0].split(";")[0] for remedy in unknown.remedies] == [
        "'tacet worker' of mechanism version 9",
        "begin a new ledger: keep copies of the audit and private topics for their account",
    ]


def test_recover_names_entries_whose_version_is_unknown() -> None:
    assert found(None, 3, MECHANISM_VERSION) == []
    (alone,) = found(None, 3, MECHANISM_VERSION, LATER)
    assert f"mechanism versions {MECHANISM_VERSION}, {LATER} have worked here" in alone.what
    assert "from a mirror" in alone.remedies[0].do


# --- whose a message is -----------------------------------------------------------------------------------


def test_a_message_of_a_site_of_another_partition_goes_to_quarantine_and_opens_no_books() -> None:
    partition = PartitionEngine(OLD, laboratory(), owns=lambda site: site != SITE)
    emitted = fed(partition, 0, len(LOG))
    assert {out.topic for out in emitted} == {QUARANTINE}
    assert {parse_record(out.value)["reason"] for out in emitted} == {"wrong_partition"}
    assert partition.sites.chains() == {}


# --- whether the log is still the same --------------------------------------------------------------------


def test_the_state_recognises_the_last_message_it_holds_and_no_other() -> None:
    partition = PartitionEngine(OLD, laboratory())
    fed(partition, 0, CUT)
    again = PartitionEngine(OLD, laboratory())
    again.restore(partition.snapshot(CUT, 0))
    assert again.last_read() == CUT - 1
    assert again.recognises(b"s", LOG[CUT - 1])
    assert not again.recognises(b"s", LOG[CUT - 2])
    assert not again.recognises(b"t", LOG[CUT - 1])
    last = again.snapshot(CUT, 0)
    assert LOG[CUT - 1] not in last, "its digest alone is kept"


def test_an_audit_said_to_be_whole_must_hold_every_entry_of_the_state() -> None:
    partition = PartitionEngine(OLD, laboratory())
    audit = entries(fed(partition, 0, CUT))
    partition.expect_replay(audit, complete=True)
    partition.expect_replay([*audit, *scenario().begun], complete=True)
    for lacking in (audit[:-1], audit[1:], [*audit[:3], *audit[4:]], []):
        with pytest.raises(LossError, match="every entry that the state has published"):
            partition.expect_replay(lacking, complete=True)


def test_a_state_that_has_read_nothing_recognises_anything() -> None:
    assert PartitionEngine(OLD, laboratory()).last_read() is None
