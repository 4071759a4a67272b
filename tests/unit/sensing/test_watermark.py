"""How far each source has reported, and who listened when."""

from fractions import Fraction

import pytest

from stream.records import SECOND, Heartbeat
from stream.sensing.watermark import (
    SiteClock,
    admit,
    coverage,
    from_plain,
    mark_data_loss,
    record_heartbeat,
    remove_intervals,
    to_plain,
    update_watermark,
)

SOURCES = ("a", "b")
THREE = (*SOURCES, "c")
TIMEOUT = 120 * SECOND


def beat(
    clock: SiteClock, source: str, seconds: float, session: int = 1, since: float | None = 0,
    sources: tuple[str, ...] = SOURCES,
) -> int | None:  # fmt: skip
    listened = None if since is None else int(since * SECOND)
    record_heartbeat(clock, Heartbeat("site", source, session, int(seconds * SECOND), listened))
    update_watermark(clock, sources, TIMEOUT)
    return None if clock.watermark is None else clock.watermark // SECOND


def covered(clock: SiteClock, start: float, end: float) -> Fraction:
    return coverage(clock, SOURCES, int(start * SECOND), int(end * SECOND))


def test_watermark_exists_once_every_source_has_been_heard() -> None:
    clock = SiteClock()
    assert beat(clock, "a", 1000) is None
    assert beat(clock, "b", 990) == 990


def test_watermark_exists_without_a_silent_source_after_the_timeout() -> None:
    clock = SiteClock()
    assert beat(clock, "a", 1000) is None
    assert beat(clock, "a", 1119.999999) is None
    assert beat(clock, "a", 1120) == 1120


def test_watermark_is_the_least_over_sources_within_the_timeout() -> None:
    clock = SiteClock()
    beat(clock, "a", 1000)
    beat(clock, "b", 1000)
    assert beat(clock, "a", 1120) == 1000
    assert beat(clock, "a", 1121) == 1121


@pytest.mark.parametrize("fast", ["a", "b"])
def test_a_source_that_is_left_out_leaves_the_watermark_to_the_slowest_of_the_rest(fast: str) -> None:
    """Three sources, of which c has stopped: the site waits for the other two, not for the fastest alone."""
    clock, slow = SiteClock(), "b" if fast == "a" else "a"
    for source in THREE:
        assert beat(clock, source, 1000, sources=THREE) in {None, 1000}
    assert beat(clock, slow, 1100, sources=THREE) == 1000
    assert beat(clock, fast, 1121, sources=THREE) == 1100, "c is more than two minutes behind, the slow one is not"
    assert beat(clock, fast, 1200, sources=THREE) == 1100
    assert beat(clock, slow, 1150, sources=THREE) == 1150
    assert beat(clock, "c", 1190, sources=THREE) == 1150
    assert beat(clock, slow, 1195, sources=THREE) == 1190, "c reports again, and is waited for again"


def test_watermark_never_goes_back_when_a_slow_source_returns() -> None:
    clock = SiteClock()
    beat(clock, "a", 1000)
    beat(clock, "b", 1000)
    beat(clock, "a", 1500)
    assert beat(clock, "b", 1490) == 1500
    assert beat(clock, "a", 1505) == 1500
    assert beat(clock, "b", 1501) == 1501


def test_source_does_not_go_back_when_its_heartbeat_does() -> None:
    clock = SiteClock()
    beat(clock, "a", 1000)
    assert beat(clock, "b", 1010) == 1000
    beat(clock, "a", 900, session=2)
    assert covered(clock, 949, 950) == 1
    assert beat(clock, "a", 1005, session=2) == 1005


def test_coverage_is_the_share_of_listed_sources_that_reached_the_tick() -> None:
    clock = SiteClock()
    assert covered(clock, 0, 1) == 0
    beat(clock, "a", 1000)
    beat(clock, "b", 900)
    assert covered(clock, 600, 950) == Fraction(1, 2)
    assert covered(clock, 600, 900.000001) == Fraction(1, 2)
    assert covered(clock, 600, 900) == 1


def test_the_latest_64_intervals_of_a_source_are_remembered() -> None:
    clock = SiteClock()
    for number in range(65):
        beat(clock, "a", 10 * number + 5, since=10 * number)
    assert [covered(clock, start, start + 5) for start in (0, 10)] == [0, Fraction(1, 2)]


@pytest.mark.parametrize("since", [100, 101])
def test_who_has_not_listened_before_its_heartbeat_has_no_interval(since: int) -> None:
    clock = SiteClock()
    beat(clock, "a", 100, since=since)
    assert clock.progress["a"].listened == []


def test_a_source_vouches_for_a_window_only_if_it_listened_from_its_start_on() -> None:
    clock = SiteClock()
    for source, since in (("a", 600), ("b", 600.000001)):
        beat(clock, source, 900, since=since)
    assert covered(clock, 600, 900) == Fraction(1, 2)
    assert covered(clock, 601, 900) == 1


def test_a_source_vouches_for_no_window_in_which_it_did_not_listen() -> None:
    clock = SiteClock()
    for source in SOURCES:
        beat(clock, source, 700, since=0)
        beat(clock, source, 1600, since=900)  # 200 s not listened to
    for start, end, share in ((400, 700, 1), (400, 700.1, 0), (899.9, 1000, 0), (900, 1600, 1), (600, 1600, 0)):
        assert covered(clock, start, end) == share


def test_a_break_between_heartbeats_alone_takes_nothing_from_who_listened_all_along() -> None:
    clock = SiteClock()
    for source in SOURCES:
        beat(clock, source, 700, since=100)
        beat(clock, source, 1600, since=100)
    assert covered(clock, 600, 1200) == 1


def test_a_heartbeat_that_does_not_say_since_when_covers_no_time_before_itself() -> None:
    clock = SiteClock()
    for seconds in range(600, 1000, 5):
        for source in SOURCES:
            beat(clock, source, seconds, since=None)
    assert covered(clock, 700, 701) == 0


def test_a_new_session_vouches_for_what_the_old_one_had_listened_to_and_for_its_own() -> None:
    clock = SiteClock()
    for source in SOURCES:
        beat(clock, source, 1000, since=0)
        beat(clock, source, 1300, session=2, since=999)
    assert covered(clock, 600, 1200) == 1


def test_after_a_loss_every_source_vouches_only_from_its_own_next_heartbeat_on() -> None:
    clock = SiteClock()
    for source in SOURCES:
        beat(clock, source, 1000, since=0)
    mark_data_loss(clock, SOURCES)
    assert covered(clock, 600, 900) == 0
    beat(clock, "a", 1200, since=0)
    beat(clock, "b", 1500, since=0)
    for source in SOURCES:
        beat(clock, source, 2000, since=0)
    assert covered(clock, 1100, 1400) == 0
    assert covered(clock, 1200, 1500) == Fraction(1, 2)
    assert covered(clock, 1500, 1800) == 1


def test_a_source_first_heard_after_a_loss_does_not_vouch_for_what_was_lost() -> None:
    clock = SiteClock()
    mark_data_loss(clock, SOURCES)
    for source in SOURCES:
        beat(clock, source, 1000, since=0)
        beat(clock, source, 2000, since=0)
    assert covered(clock, 600, 900) == 0
    assert covered(clock, 1000, 1300) == 1


def test_what_no_window_to_come_needs_is_let_go() -> None:
    clock = SiteClock()
    beat(clock, "a", 700, since=0)
    beat(clock, "a", 1600, since=900)
    remove_intervals(clock, 900 * SECOND)
    assert clock.progress["a"].listened == [(900 * SECOND, 1600 * SECOND)]


def test_batches_of_a_session_are_admitted_in_ascending_order_once() -> None:
    clock = SiteClock()
    assert admit(clock, "a", 7, 0) is None
    assert admit(clock, "a", 7, 0) == "repeated_batch"
    assert admit(clock, "a", 7, 5) is None
    assert admit(clock, "a", 7, 4) == "repeated_batch"
    assert admit(clock, "b", 3, 0) is None


def test_new_session_counts_its_batches_from_zero_and_silences_the_old_one() -> None:
    clock = SiteClock()
    admit(clock, "a", 7, 9)
    assert admit(clock, "a", 8, 0) is None
    assert admit(clock, "a", 7, 10) == "stale_session"
    assert not record_heartbeat(clock, Heartbeat("site", "a", 7, 10**9, 0))
    assert clock.progress["a"].watermark is None


def test_heartbeat_of_a_new_session_silences_the_old_one() -> None:
    clock = SiteClock()
    admit(clock, "a", 7, 9)
    assert record_heartbeat(clock, Heartbeat("site", "a", 8, 0, 0))
    assert admit(clock, "a", 7, 10) == "stale_session"
    assert admit(clock, "a", 8, 0) is None


def test_clock_survives_its_plain_form() -> None:
    clock = SiteClock()
    beat(clock, "b", 900)
    admit(clock, "a", 7, 9)
    mark_data_loss(clock, ("b",))
    assert from_plain(to_plain(clock)) == clock
