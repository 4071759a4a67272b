"""One partition: what a snapshot restores, what is refused, and what is never published."""

from __future__ import annotations

from functools import cache
from typing import Any

import orjson
import pytest

from stream.encoding import decode_message, encode_message
from stream.encryption import Kind, clear_of, seal
from stream.engine import continuation as module
from stream.engine.outputs import OutputRecord
from stream.engine.partition import Counters, PartitionEngine
from stream.engine.site_engines import OverflowPolicy
from stream.errors import FinalityError, LaterVersionError, UsageError
from stream.keys import ForwardKeys, LaboratoryKeys, key_day_of
from stream.records import DAY, MINUTE, SECOND, Heartbeat, ObservationBatch, Row
from stream.release.stage import MECHANISM_VERSION
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, QUARANTINE, parse_record, parse_time
from tests.support.hash_chain import verify_chain
from tests.support.small_building import (
    ATTRIBUTES,
    COUNTS,
    EVENING,
    PLAIN,
    SITE,
    SOURCES,
    Seen,
    access_point,
    building,
    laboratory,
    mac,
    messages,
    people,
    policy_text,
)

POLICY = building()
CHEAP = building(releases=PLAIN)
"""For what does not depend on what is released."""
SEEN = people()[:1500]
LOG = [encode_message(item) for item in messages(SEEN, POLICY)]
CUT = len(LOG) * 2 // 3


def fed(partition: PartitionEngine, log: list[bytes], first: int = 0) -> list[OutputRecord]:
    return [out for offset, value in enumerate(log, first) for out in partition.process(offset, None, value)]


def audit(emitted: list[OutputRecord]) -> list[bytes]:
    return [out.value for out in emitted if out.topic == AUDIT]


@cache
def straight_by_message() -> list[list[OutputRecord]]:
    """What one engine emits of each message of the whole log."""
    partition = PartitionEngine(POLICY, laboratory())
    return [list(partition.process(offset, None, value)) for offset, value in enumerate(LOG)]


@cache
def straight() -> list[OutputRecord]:
    """What one engine emits of the whole log."""
    return [out for emitted in straight_by_message() for out in emitted]


def end_of(entry: bytes) -> int:
    return parse_time(parse_record(entry)["window_end"])


@pytest.fixture(scope="module")
def snapshot() -> bytes:
    partition = PartitionEngine(POLICY, laboratory())
    fed(partition, LOG[:CUT])
    return partition.snapshot(CUT, 17)


def restored(snapshot: bytes) -> PartitionEngine:
    partition = PartitionEngine(POLICY, laboratory())
    partition.restore(snapshot)
    return partition


@pytest.fixture(scope="module")
def continued(snapshot: bytes) -> list[OutputRecord]:
    """What comes of the thirty messages after the snapshot."""
    return fed(restored(snapshot), LOG[CUT : CUT + 30], CUT)


def test_of_each_message_the_charges_come_before_the_records_they_pay_for() -> None:
    closed = 0
    for emitted in straight_by_message()[:CUT]:
        topics = [out.topic == AUDIT for out in emitted]
        assert topics == sorted(topics, reverse=True)
        closed += any(topics) and not all(topics)
    assert closed > 10


# --- restart -------------------------------------------------------------------------------------------


def test_a_snapshot_brings_back_position_and_state(snapshot: Any) -> None:
    partition = PartitionEngine(POLICY, laboratory())
    assert partition.restore(snapshot) == CUT
    assert partition.audit_offset() == 17
    rest = fed(partition, LOG[CUT:], CUT)
    assert rest == straight()[-len(rest) :]
    assert len(rest) > 100


def test_no_snapshot_is_a_beginning() -> None:
    partition = PartitionEngine(POLICY, laboratory())
    assert partition.audit_offset() == 0
    fed(partition, LOG[:50])
    assert partition.restore(None) is None
    assert partition.sites.chains() == {}
    assert partition.audit_offset() == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [('public = "0.5"', 'public = "0.6"'), ('board = "10"', 'board = "11"'), ('lateness = "30s"', 'lateness = "31s"'),
     ('after = "10:00"', 'after = "11:00"'), ('mechanism = "filter"', 'mechanism = "laplace"')],
)  # fmt: skip
def test_a_changed_policy_is_refused_with_both_versions(snapshot: Any, old: Any, new: Any) -> None:
    assert old in policy_text()
    other = load_policy(policy_text().replace(old, new))
    with pytest.raises(UsageError, match=f"version {POLICY.version}.*got {other.version}; --accept-policy"):
        PartitionEngine(other, laboratory()).restore(snapshot)


def test_another_mechanism_version_is_refused(snapshot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MECHANISM_VERSION", "other")
    monkeypatch.setattr(module, "BEFORE", (MECHANISM_VERSION,))
    with pytest.raises(
        UsageError, match=rf"mechanism version: must be {MECHANISM_VERSION}, .*got other; --accept-policy"
    ):
        PartitionEngine(POLICY, laboratory()).restore(snapshot)


def test_a_mechanism_version_from_which_none_can_go_on_is_refused_whatever_is_accepted(
    snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MECHANISM_VERSION", "other")
    with pytest.raises(
        UsageError, match=f"must be other to continue from, got {MECHANISM_VERSION}; 'tacet recover' lists"
    ):
        PartitionEngine(POLICY, laboratory(), accept_policy=True).restore(snapshot)


@pytest.mark.parametrize(
    "keys", [laboratory(2), LaboratoryKeys(bytes([1]) * 32, "other", bytes([101]) * 32),
             ForwardKeys(0, bytes(32), "ledger1", bytes([102]) * 32)],
)  # fmt: skip
def test_another_key_is_refused(snapshot: Any, keys: Any) -> None:
    with pytest.raises(UsageError, match="key: must be the one this state was made with"):
        PartitionEngine(POLICY, keys, accept_policy=True).restore(snapshot)


def test_an_accepted_policy_goes_on_with_the_books(snapshot: Any) -> None:
    other = load_policy(policy_text().replace('public = "0.5"', 'public = "0.6"'))
    partition = PartitionEngine(other, laboratory(), accept_policy=True)
    assert partition.restore(snapshot) == CUT
    before = audit([out for emitted in straight_by_message()[:CUT] for out in emitted])
    after = audit(fed(partition, LOG[CUT:], CUT))
    entries = [parse_record(value) for value in before + after]
    verify_chain(entries, laboratory().audit)
    ids = [entry["release_id"] for entry in entries]
    assert len(ids) == len(set(ids)), "no window is released again under the new policy"
    assert {entry["policy_version"] for entry in entries[len(before) :]} == {other.version}
    board = [entry["nano"] for entry in entries if entry["audience"] == "board" and entry["release"] == "plain"]
    assert board.count(0) > 0, "what was spent before counts: the budget of the day runs out all the same"
    assert sum(nano for nano in board if nano) <= 2 * 10 * 10**9


def test_an_accepted_policy_that_takes_a_site_out_keeps_its_books() -> None:
    two = building(sites=(SITE, "dbh1"))
    partition = PartitionEngine(two, laboratory())
    one_more = [encode_message(item) for item in messages_of("dbh1", two)]
    fed(partition, LOG[: CUT // 2] + one_more)
    chains = partition.sites.chains()
    assert chains["dbh1"][0] > 10
    without = PartitionEngine(POLICY, laboratory(), accept_policy=True)
    without.restore(partition.snapshot(9, 0))
    assert without.sites.chains() == chains
    again = PartitionEngine(two, laboratory(), accept_policy=True)
    again.restore(without.snapshot(10, 0))
    assert again.sites.chains() == chains


def test_a_site_that_comes_back_begins_with_the_next_window_and_owes_none_in_between() -> None:
    """The keys of the days on which no policy had it are gone, and nobody asked for its windows."""
    two, keys = building(sites=(SITE, "dbh1")), ForwardKeys(key_day_of(EVENING), bytes(32), "ledger", bytes(32))
    partition = PartitionEngine(two, keys)
    before = audit(fed(partition, [encode_message(item) for item in messages_of("dbh1", two)]))
    without = PartitionEngine(POLICY, keys, accept_policy=True)
    without.restore(partition.snapshot(9, 0))
    later = keys.from_key_day(key_day_of(EVENING) + 5)
    again = PartitionEngine(two, later, accept_policy=True)
    again.restore(without.snapshot(10, 0))
    assert again.sites.oldest_key_day_needed() is None, "nothing is forgotten before it is known where it goes on"
    back = [encode_message(item) for item in messages_of("dbh1", two, after=5 * DAY)]
    after = audit(fed(again, back))
    assert end_of(after[0]) == EVENING + 5 * DAY
    assert len(after) == len(before)
    verify_chain([parse_record(value) for value in before + after], keys.audit)


def messages_of(site: str, policy: Policy, *, after: int = 0) -> list[ObservationBatch | Heartbeat]:
    tick = policy.site[site].tick
    first = -(-EVENING // tick) * tick + after
    return [Heartbeat(site, source, 1, first + n * tick, first) for n in range(8) for source in SOURCES]


def test_an_accepted_policy_with_another_tick_goes_on_at_its_grid() -> None:
    """From 15 to 30 minutes: the next window is the first of the new grid after the last one released."""
    for cut in range(40, 56, 3):
        partition = PartitionEngine(CHEAP, laboratory())
        before = fed(partition, LOG[:cut])
        other = building(releases=PLAIN, tick="30min")
        changed = PartitionEngine(other, laboratory(), accept_policy=True)
        changed.restore(partition.snapshot(cut, 0))
        after = fed(changed, LOG[cut:], cut)
        ends = [sorted({end_of(value) for value in audit(part)}) for part in (before, after)]
        assert all(end % (30 * MINUTE) == 0 for end in ends[1])
        assert not ends[0] or ends[1][0] > ends[0][-1]
        assert len(ends[1]) > 10


def test_a_loss_gives_windows_of_coverage_0_until_the_next_heartbeat(snapshot: Any) -> None:
    partition = PartitionEngine(POLICY, laboratory())
    partition.restore(snapshot)
    assert partition.last_read() is not None
    partition.resume_after_loss(CUT + 40)
    assert partition.last_read() is None, "the log may hold another message at that offset"
    rest = fed(partition, LOG[CUT + 40 :], CUT + 40)
    coverage = [parse_record(out.value)["coverage"] for out in rest if out.topic == "tacet.private.public.smooth.v1"]
    assert coverage[0] == 0
    assert coverage[-1] == 1
    assert sorted(coverage) == coverage


# --- finality --------------------------------------------------------------------------------------------


def test_entries_that_come_out_again_alike_are_let_out(snapshot: Any) -> None:
    partition = PartitionEngine(POLICY, laboratory())
    partition.restore(snapshot)
    rest = [
        value for value in audit(straight()) if parse_record(value)["sequence"] >= partition.sites.chains()[SITE][0]
    ]
    partition.expect_replay(audit(straight())[:3] + rest[:20])
    assert partition.has_unreplayed_entries()
    emitted = fed(partition, LOG[CUT:], CUT)
    assert audit(emitted) == rest
    assert not partition.has_unreplayed_entries()


def changed_log() -> list[bytes]:
    """The same log, but one person more in every batch after the snapshot."""
    log = []
    for value in LOG[CUT:]:
        message, _ = decode_message(value)
        assert message is not None
        if isinstance(message, ObservationBatch):
            row = Row("f" * 16, access_point("a"), message.rows[-1].time)
            message = ObservationBatch(SITE, message.source, message.session, message.sequence, (*message.rows, row))
        log.append(encode_message(message))
    return log


def test_other_observations_for_a_published_window_let_nothing_out(snapshot: Any) -> None:
    partition = PartitionEngine(POLICY, laboratory())
    partition.restore(snapshot)
    first = partition.sites.chains()[SITE][0]
    partition.expect_replay(audit(straight()))
    made: list[OutputRecord] = []
    with pytest.raises(FinalityError, match=r"site dbh: ledger entry \d+ was published and would now differ"):  # noqa: PT012
        for offset, value in enumerate(changed_log(), CUT):
            made += partition.process(offset, None, value)
    published = {parse_record(value)["sequence"]: value for value in audit(straight())}
    assert all(published[parse_record(value)["sequence"]] == value for value in audit(made))
    assert all(parse_record(value)["sequence"] >= first for value in audit(made))


def test_entries_that_no_state_belongs_to_are_no_reason_to_begin_a_new_ledger() -> None:
    """The topic of snapshots was made anew and the log reaches back to noon only: what to put back is said first."""
    partition = PartitionEngine(POLICY, laboratory())
    partition.restore(None)
    partition.expect_replay(audit(straight()))
    lost = r"entry 0 was published and would now differ; nothing is released; no state is saved .* put them back"
    with pytest.raises(FinalityError, match=lost) as refused:
        fed(partition, LOG[CUT:], CUT)
    assert "only a new ledger" not in str(refused.value)


def test_two_different_published_entries_of_one_number_are_refused(snapshot: Any) -> None:
    partition = PartitionEngine(POLICY, laboratory())
    partition.restore(snapshot)
    number = partition.sites.chains()[SITE][0]
    one, other = (orjson.dumps({"site": SITE, "sequence": number, "nano": nano}) for nano in (1, 2))
    with pytest.raises(FinalityError):
        partition.expect_replay([one, other])


# --- keys -----------------------------------------------------------------------------------------------


def test_the_oldest_key_day_needed_is_that_of_the_local_day_while_attributes_wait_for_it() -> None:
    with_days, without = building(releases=PLAIN + ATTRIBUTES), CHEAP
    needed = []
    for policy in (with_days, without):
        partition = PartitionEngine(policy, laboratory())
        assert partition.sites.oldest_key_day_needed() is None
        days = []
        for offset, item in enumerate(messages(SEEN, policy)):
            if any(out.checkpoint for out in partition.process(offset, None, encode_message(item))):
                day = partition.sites.oldest_key_day_needed()
                assert day is not None
                days.append(day)
        assert days == sorted(days)
        needed.append(days[-1])
    assert needed == [key_day_of(parse_time("2026-03-03T08:00:00Z")), key_day_of(parse_time("2026-03-04T00:00:00Z"))]


# --- what breaks a rule ------------------------------------------------------------------------------------

SECRET = "a4:5e:60:c0:ff:ee"


HEAD = b'{"v":1,"site":"dbh","source":"127.0.0.1","session":1,"kind":"heartbeat","watermark":5}'
UNREADABLE = [
    (b"", "json"),
    (b"\xff\xfe", "json"),
    (b"[1]", "json"),
    (b'"x"', "json"),
    (b"null", "json"),
    (b"{}", "json"),
    (b'{"v":2}', "version"),
    (HEAD.replace(b'"session":1', b'"session":"1"'), "type"),
    (HEAD.replace(b"heartbeat", SECRET.encode()), "kind"),
    (HEAD.replace(b":5}", b":1.5}"), "type"),
    (HEAD.replace(b":5}", b":-5}"), "type"),
    (HEAD.replace(b":5}", b":99999999999999999}"), "type"),
    (HEAD.replace(b"heartbeat", b"observations").replace(b'"watermark":5', b'"sequence":0,"rows":[]'), "kind"),
    (HEAD.replace(b"heartbeat", b"counts").replace(b'"watermark":5', b'"window_end":0,"counts":{}'), "kind"),
    (HEAD.replace(b"dbh", SECRET.encode()), "unknown_site"),
    (HEAD.replace(b"127.0.0.1", SECRET.encode()), "unknown_source"),
]


@pytest.mark.parametrize(("value", "reason"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_cannot_be_read_goes_to_quarantine_and_the_stream_goes_on(
    snapshot: bytes, continued: list[OutputRecord], value: bytes, reason: str
) -> None:
    partition = restored(snapshot)
    [out] = partition.process(CUT, None, value)
    body = parse_record(out.value)
    assert (out.topic, body["reason"]) == (QUARANTINE, reason)
    assert set(body) == {"v", "source", "reason", "place", "length", "digest"}
    assert body["length"] % 64 == 0
    assert 0 <= body["length"] - len(value) < 64
    assert SECRET not in out.value.decode() + out.key.decode() + out.id
    assert not out.checkpoint
    assert fed(partition, LOG[CUT : CUT + 30], CUT + 1) == continued
    assert any(out.topic == AUDIT for out in continued)


def test_a_bad_row_loses_only_itself_and_is_named_by_place() -> None:
    row = ["0" * 16, access_point("a"), EVENING + SECOND]
    bad = [
        ["", row[1], row[2]],
        [SECRET * 9, row[1], row[2]],
        [row[0], 5, row[2]],
        [row[0], row[1], "now"],
        [1],
        SECRET,
    ]
    head = clear_of(Kind.OBSERVATIONS, encode_message(ObservationBatch(SITE, SOURCES[0], 1, 0, ())))
    partition = PartitionEngine(POLICY, laboratory())
    rows = b"\0" + orjson.dumps([row, *bad, row])
    emitted = partition.process(0, None, seal(Kind.OBSERVATIONS, rows, clear=head))
    places = [parse_record(out.value)["place"] for out in emitted]
    assert places == ["rows[1].device", "rows[2].device", "rows[3].access_point", "rows[4].time", "rows[5]", "rows[6]"]
    assert SECRET not in b"".join(out.value for out in emitted).decode()
    assert partition.counters == Counters(messages=1, rows=2, rejected=6, windows=0)


def test_rows_at_unknown_access_points_or_far_ahead_are_quarantined_without_their_content() -> None:
    partition = PartitionEngine(POLICY, laboratory())
    fed(partition, [encode_message(Heartbeat(SITE, source, 1, EVENING, 0)) for source in SOURCES])
    rows = (Row("0" * 16, "02:de:ad:be:ef:00", EVENING), Row("1" * 16, access_point("a"), EVENING + DAY))
    emitted = partition.process(2, None, encode_message(ObservationBatch(SITE, SOURCES[0], 1, 0, rows)))
    report = [parse_record(out.value) for out in emitted]
    assert [(body["reason"], body["place"]) for body in report] == [
        ("unknown_access_point", "rows[0].access_point"), ("ahead", "rows[1].time"),
    ]  # fmt: skip
    assert "02:de:ad" not in b"".join(out.value for out in emitted).decode()


def test_quarantine_has_the_time_of_the_sites_and_none_before_any_has_come_anywhere() -> None:
    partition = PartitionEngine(POLICY, laboratory())
    assert [out.timestamp_ms for out in partition.process(0, None, b"{}")] == [0]
    fed(partition, [encode_message(Heartbeat(SITE, source, 1, EVENING, 0)) for source in SOURCES])
    assert [out.timestamp_ms for out in partition.process(2, None, b"{}")] == [EVENING // 1000]


def test_the_digest_of_a_quarantined_message_is_keyed() -> None:
    values = [
        parse_record(PartitionEngine(POLICY, laboratory(seed)).process(0, None, b"{}")[0].value) for seed in (1, 2)
    ]
    assert values[0]["digest"] != values[1]["digest"]


# --- sense, as the pipeline sets it up ----------------------------------------------------------------------


def test_late_rows_are_dropped_and_counted_and_change_nothing() -> None:
    partition = PartitionEngine(CHEAP, laboratory())
    late = ObservationBatch(SITE, SOURCES[0], 2, 0, (Row("f" * 16, access_point("a"), SEEN[0].time),))
    wanted = fed(PartitionEngine(CHEAP, laboratory()), LOG)
    last = len(LOG) - 1
    emitted = fed(partition, LOG[:last]) + partition.process(last, None, encode_message(late))
    assert emitted == wanted[: len(emitted)]
    assert len(emitted) > 100
    counters = partition.sites.sensing()[SITE].counters
    assert counters["late"] == 1
    assert counters["rows"] == counters["accepted"] + counters["late"] == len(SEEN) + 1


def test_windows_come_in_order_without_a_gap_from_the_first_tick_on() -> None:
    ends = [end_of(value) for value in audit(straight())]
    tick = POLICY.site[SITE].tick
    windows = sorted(set(ends))
    assert ends == sorted(ends)
    assert windows == list(range(-(-SEEN[0].time // tick) * tick, windows[-1] + 1, tick))


def test_a_site_with_more_devices_than_it_may_hold_shuts_for_good_with_an_alarm_and_others_go_on() -> None:
    two = building(site="max_devices = 5", sites=(SITE, "dbh1"))
    report: list[str] = []
    partition = PartitionEngine(two, laboratory(), overflow=OverflowPolicy(report.append))
    made = fed(partition, [encode_message(item) for item in messages(SEEN, two)])
    assert partition.sites.suspended_sites() == report == [SITE]
    [stop] = [parse_record(out.value) for out in made if out.topic == QUARANTINE]
    assert (stop["reason"], stop["place"]) == ("site_shut", "site")
    snapshot = partition.snapshot(7, 0)

    again = PartitionEngine(two, laboratory(), overflow=OverflowPolicy(report.append))
    again.restore(snapshot)
    assert report == [SITE, SITE]
    later = [encode_message(Heartbeat(SITE, source, 1, SEEN[-1].time + DAY, 0)) for source in SOURCES]
    assert fed(again, later) == []
    assert audit(fed(again, [encode_message(item) for item in messages_of("dbh1", two)]))


# --- messages of a version to come -----------------------------------------------------------------------

SESSION = 1
"""Of the sources in the log."""


def of_a_version_to_come(**fields: Any) -> bytes:
    return orjson.dumps({"v": 2, "site": SITE, "source": SOURCES[0], "session": SESSION} | fields)


@pytest.mark.parametrize("session", [SESSION, SESSION + 1, SEEN[CUT].time])
def test_a_message_of_a_version_to_come_stops_the_partition_and_nothing_of_it_is_taken(
    snapshot: bytes, session: int
) -> None:
    partition = PartitionEngine(POLICY, laboratory())
    partition.restore(snapshot)
    with pytest.raises(LaterVersionError, match=f"source {SOURCES[0]} of site {SITE}"):
        partition.process(CUT, None, of_a_version_to_come(session=session), SEEN[CUT].time)
    assert partition.snapshot(CUT, 17) == snapshot


@pytest.mark.parametrize(
    "value",
    [
        b'{"v":2}', of_a_version_to_come(site="elsewhere"), of_a_version_to_come(source="192.0.2.77"),
        of_a_version_to_come(session=SESSION - 1), of_a_version_to_come(session=SEEN[CUT].time + DAY),
        of_a_version_to_come(session=-1),
    ],
)  # fmt: skip
def test_a_message_that_names_no_sender_of_the_policy_is_quarantined_and_the_partition_goes_on(
    snapshot: bytes, continued: list[OutputRecord], value: bytes
) -> None:
    """One foreign message stopped a partition for good."""
    partition = restored(snapshot)
    [refused] = partition.process(CUT, None, value, SEEN[CUT].time)
    assert (refused.topic, parse_record(refused.value)["reason"]) == (QUARANTINE, "version")
    assert fed(partition, LOG[CUT : CUT + 30], CUT + 1) == continued


def test_a_site_that_lies_on_another_partition_sends_no_version_to_come_here() -> None:
    partition = PartitionEngine(POLICY, laboratory(), owns=lambda site: False)
    [refused] = partition.process(0, None, of_a_version_to_come())
    assert parse_record(refused.value)["reason"] == "version"


def test_a_shut_site_goes_on_when_it_is_reopened_and_nobody_vouches_for_what_it_missed() -> None:
    small = building(site="max_devices = 5", releases=COUNTS)
    partition = PartitionEngine(small, laboratory())
    fed(partition, [encode_message(item) for item in messages(SEEN, small)])
    reached = partition.sites.watermarks()[SITE]
    assert reached is not None
    with pytest.raises(UsageError, match="site 'elsewhere': must be one that has shut"):
        partition.sites.resume("elsewhere")
    partition.sites.resume(SITE)
    assert partition.sites.suspended_sites() == []
    tick = small.site[SITE].tick
    beats = [Heartbeat(SITE, s, 1, reached + n * tick, 0) for n in range(1, 6) for s in SOURCES]
    made = fed(partition, [encode_message(beat) for beat in beats])
    shares = [parse_record(out.value)["coverage"] for out in made if out.topic == "tacet.private.board.plain.v1"]
    assert shares
    assert shares == sorted(shares)
    assert {shares[0], shares[-1]} == {0.0, 1.0}


@pytest.mark.parametrize(("reopen", "shut"), [(SITE, []), ("dbh1", [SITE])])
def test_a_start_reopens_a_shut_site_that_it_names_and_raises_the_alarm_for_any_other(
    reopen: str, shut: list[str]
) -> None:
    two = building(site="max_devices = 5", sites=(SITE, "dbh1"), releases=COUNTS)
    partition = PartitionEngine(two, laboratory())
    fed(partition, [encode_message(item) for item in messages(SEEN, two)])

    report: list[str] = []
    again = PartitionEngine(two, laboratory(), overflow=OverflowPolicy(report.append, frozenset({reopen})))
    again.restore(partition.snapshot(7, 0))
    assert again.sites.suspended_sites() == report == shut


@pytest.mark.parametrize("tick", ["5min", "15min", "1h"])
def test_no_row_between_two_ticks_is_taken_to_be_ahead_of_its_time(tick: Any) -> None:
    policy = building(tick=tick, releases=PLAIN)
    partition = PartitionEngine(policy, laboratory())
    fed(partition, [encode_message(item) for item in messages(SEEN, policy)])
    counters = partition.sites.sensing()[SITE].counters
    assert counters["accepted"] == counters["rows"] == len(SEEN)


def test_a_beginning_with_one_person_is_no_different_from_one_with_many() -> None:
    one = [Seen(EVENING + 1_000, mac(0), access_point("a")), SEEN[-1]]
    alone = fed(PartitionEngine(POLICY, laboratory()), [encode_message(item) for item in messages(one, POLICY)])
    ids = [[parse_record(value)["release_id"] for value in audit(emitted)] for emitted in (alone, straight())]
    assert ids[0] == ids[1]
