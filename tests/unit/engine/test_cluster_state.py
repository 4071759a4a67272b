"""The state of a cluster: the first writer wins, nothing changes unnoticed, one ingest sends for a source."""

from __future__ import annotations

import pytest

from stream.engine.cluster_state import (
    BEAT,
    SILENT,
    ClusterState,
    Records,
    admit,
    announce,
    claim,
    displaced,
    identity_records,
    refuse_other_counts,
    refuse_superseded,
    sign_of_life,
    withdraw,
)
from stream.errors import DataError, UsageError
from stream.records import SECOND
from stream.release.validation import load_policy
from tests.support.small_building import building, policy_text

OLD = building()
NEW = load_policy(policy_text().replace('public = "0.5"', 'public = "0.6"'))
PAIRS = [("dbh", "10.2.0.5"), ("dbh", "10.2.0.6")]
NOW = 1_000_000 * SECOND


def report(control: ClusterState, records: Records, stamp: int = NOW) -> ClusterState:
    for key, value in records.items():
        control.apply(key, value, stamp)
    return control


def begun() -> ClusterState:
    control = report(ClusterState(), identity_records(ClusterState(), 4, "c1"))
    return report(control, admit(control, OLD, "key", "2", accept=False))


def test_an_ingest_beats_three_times_before_it_counts_as_silent_and_not_all_the_time() -> None:
    assert SECOND <= BEAT <= SILENT // 3


def test_a_clusters_number_of_partitions_is_written_once() -> None:
    control = report(ClusterState(), identity_records(ClusterState(), 4, "c1"))
    assert (control.id, control.partitions) == ("c1", 4)
    assert identity_records(control, 4, "c2") == {}
    with pytest.raises(UsageError, match="partitions: must be 4, as this cluster was begun with, got 8"):
        identity_records(control, 8, "c2")


def test_a_grown_topic_is_named_with_the_way_out() -> None:
    with pytest.raises(UsageError, match=r"topic b: must have 4 partitions .*, has 8; .* 'tacet recover --kafka'"):
        refuse_other_counts(begun(), {"a": 4, "b": 8})


def test_the_first_key_and_the_first_policy_are_the_clusters() -> None:
    control = begun()
    assert admit(control, OLD, "key", "2", accept=False) == {}
    with pytest.raises(UsageError, match="key: must be the one this cluster was begun with"):
        admit(control, OLD, "other", "2", accept=True)
    with pytest.raises(
        UsageError, match=f"policy: must be version {OLD.version}, .*got {NEW.version}; --accept-policy"
    ):
        admit(control, NEW, "key", "2", accept=False)
    with pytest.raises(UsageError, match=r"mechanism version: must be 2, .*got 3; --accept-policy"):
        admit(control, OLD, "key", "3", accept=False)


def changed(control: ClusterState) -> ClusterState:
    """Return the records of a cluster that has gone on to version 3, in the two steps of a change."""
    report(control, announce(control, "key", "3"))
    return report(control, admit(control, OLD, "key", "3", accept=True))


def test_a_mechanism_version_begins_only_where_it_was_announced() -> None:
    """Between the two somebody looks whether a window of the version before is unfinished."""
    control = begun()
    with pytest.raises(
        UsageError, match="must be 2, under which another worker has started meanwhile, got 3; stop all"
    ):
        admit(control, OLD, "key", "3", accept=True)
    assert (changed(control).mechanisms, control.announced) == ("3", None)
    assert control.versions == ("2", "3")


def test_while_a_version_is_announced_no_partition_is_taken_to_work_under_another() -> None:
    control = begun()
    refuse_superseded(control, OLD, "2")
    report(control, announce(control, "key", "3"))
    assert (control.mechanisms, control.versions) == ("2", ("2",))
    with pytest.raises(
        UsageError, match="mechanism version: must be 3, which the cluster has accepted in the meantime, got 2"
    ):
        refuse_superseded(control, OLD, "2")
    changed(control)
    with pytest.raises(UsageError, match="mechanism version: must be 3"):
        refuse_superseded(control, OLD, "2")
    refuse_superseded(control, OLD, "3")


def test_an_announcement_ends_when_it_is_withdrawn_or_a_worker_of_the_version_before_begins() -> None:
    announced = announce(begun(), "key", "3")
    for end in (
        withdraw(report(begun(), announced), "3"),
        admit(report(begun(), announced), OLD, "key", "2", accept=False),
    ):
        assert report(report(begun(), announced), end) == begun()
    assert withdraw(begun(), "3") == {}


def test_nothing_is_announced_by_who_has_another_key_or_the_present_version() -> None:
    assert announce(begun(), "other", "3") == {}
    assert announce(begun(), "key", "2") == {}
    assert announce(ClusterState(), "key", "2") == {}


def test_a_control_record_that_does_not_say_which_versions_have_worked_is_refused() -> None:
    with pytest.raises(DataError, match="control record engine: must be a JSON object of version 1 with the fields"):
        ClusterState().apply("engine", b'{"v":1,"key":"key","mechanisms":"1"}', 0)


def test_every_accepted_policy_is_kept_and_the_last_one_accepted_is_the_present_one() -> None:
    control = begun()
    report(control, admit(control, NEW, "key", "2", accept=True))
    assert control.current() == NEW.version
    assert [each.version for each in control.accepted()] == [OLD.version, NEW.version]
    with pytest.raises(
        UsageError, match=f"must be version {NEW.version}, which the cluster has accepted in the meantime"
    ):
        refuse_superseded(control, OLD, "2")
    report(control, admit(control, OLD, "key", "2", accept=True, again=2))  # and back
    assert [each.version for each in control.accepted()] == [NEW.version, OLD.version]
    refuse_superseded(control, OLD, "2")


def test_consent_to_a_policy_is_given_once_so_that_two_never_displace_each_other_for_ever() -> None:
    """Two supervised workers carry --accept-policy and a policy each: the one that was replaced stays away."""
    control = begun()
    report(control, admit(control, NEW, "key", "2", accept=True))
    output = f"must be version {NEW.version}, accepted as number 2 .*got {OLD.version}; --accept-policy --again 2 lets"
    for again in (None, 1, 3):
        with pytest.raises(UsageError, match=output):
            admit(control, OLD, "key", "2", accept=True, again=again)
    with pytest.raises(UsageError, match="--accept-policy lets the new one begin"):
        admit(control, OLD, "key", "2", accept=False, again=2)
    assert admit(control, NEW, "key", "2", accept=True) == {}


def test_consent_to_a_replaced_policy_is_good_for_one_round_also_where_a_supervisor_repeats_it() -> None:
    control = begun()
    report(control, admit(control, NEW, "key", "2", accept=True))
    report(control, admit(control, OLD, "key", "2", accept=True, again=2))
    assert admit(control, OLD, "key", "2", accept=True, again=2) == {}
    report(control, admit(control, NEW, "key", "2", accept=True, again=3))
    for policy, again in ((OLD, 2), (OLD, 3)):
        with pytest.raises(UsageError, match="accepted as number 4"):
            admit(control, policy, "key", "2", accept=True, again=again)
    assert control.current() == NEW.version


def test_a_source_has_one_ingest_until_that_is_silent() -> None:
    control = ClusterState()
    session, records = claim(control, "a", PAIRS, 100, now=NOW, take_over=False)
    report(control, {**records, **sign_of_life("a")})
    assert session == 100
    with pytest.raises(UsageError, match=r"source 10.2.0.5 of site dbh: another ingest sends for it.*--take-over"):
        claim(control, "b", PAIRS[:1], 200, now=NOW + SILENT - 1, take_over=False)
    assert displaced(control, "a", PAIRS) is None
    after, records = claim(control, "b", PAIRS[:1], 200, now=NOW + SILENT + 1, take_over=False)
    assert after == 200
    assert displaced(report(control, records), "a", PAIRS) == PAIRS[0]


def test_an_ingest_that_ended_well_leaves_its_sources_at_once() -> None:
    control = report(
        ClusterState(), {**claim(ClusterState(), "a", PAIRS, 100, now=NOW, take_over=False)[1], **sign_of_life("a")}
    )
    report(control, sign_of_life("a", alive=False))
    claim(control, "b", PAIRS, 200, now=NOW, take_over=False)


def test_a_source_is_silent_whose_ingest_gives_no_sign_of_life() -> None:
    control = report(
        ClusterState(), {**claim(ClusterState(), "a", PAIRS, 100, now=NOW, take_over=False)[1], **sign_of_life("a")}
    )
    assert control.silent_sources(NOW + SILENT - 1) == {}
    assert control.silent_sources(NOW + SILENT) == {"dbh": len(PAIRS)}
    report(control, sign_of_life("a", alive=False))
    assert control.silent_sources(NOW) == {"dbh": len(PAIRS)}


def test_take_over_displaces_an_ingest_that_lives() -> None:
    control = report(
        ClusterState(), {**claim(ClusterState(), "a", PAIRS, 100, now=NOW, take_over=False)[1], **sign_of_life("a")}
    )
    _, records = claim(control, "b", PAIRS, 200, now=NOW, take_over=True)
    assert displaced(report(control, records), "a", PAIRS) == PAIRS[0]


def test_a_session_is_later_than_any_before_it_also_where_the_clock_went_back() -> None:
    control = report(ClusterState(), claim(ClusterState(), "a", PAIRS, 100, now=NOW, take_over=False)[1])
    assert claim(control, "b", PAIRS, 40, now=NOW, take_over=False)[0] == 101


def test_what_is_no_control_record_is_refused_without_its_content() -> None:
    for value in (b'{"v":2,"secret":1}', b'{"v":1,"secret":1}', b"[]", b"\xff", b"1"):
        with pytest.raises(
            DataError, match=r"^control record policy: must be a JSON object of version 1 with"
        ) as caught:
            ClusterState().apply("policy/x", value, 0)
        assert "secret" not in str(caught.value)
    nothing = ClusterState()
    nothing.apply("strange/x", b"\xff", 0)
    assert nothing == ClusterState()
