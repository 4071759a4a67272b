"""Up to where a site has been told of."""

from fractions import Fraction

from stream.records import SECOND, Heartbeat
from stream.sensing.watermark import SiteClock, admit, coverage, from_plain, hear, settle, to_plain

SOURCES = ("a", "b")
TIMEOUT = 120 * SECOND


LONGEST = 10**12


def beat(clock: SiteClock, source: str, seconds: float, session: int = 1) -> int | None:
    hear(clock, Heartbeat("site", source, session, int(seconds * SECOND)), LONGEST)
    settle(clock, SOURCES, TIMEOUT)
    return None if clock.watermark is None else clock.watermark // SECOND


def test_watermark_exists_once_every_source_has_been_heard():
    clock = SiteClock()
    assert beat(clock, "a", 1000) is None
    assert beat(clock, "b", 990) == 990


def test_watermark_exists_without_a_silent_source_after_the_timeout():
    clock = SiteClock()
    assert beat(clock, "a", 1000) is None
    assert beat(clock, "a", 1119.999999) is None
    assert beat(clock, "a", 1120) == 1120


def test_watermark_is_the_least_over_sources_within_the_timeout():
    clock = SiteClock()
    beat(clock, "a", 1000)
    beat(clock, "b", 1000)
    assert beat(clock, "a", 1120) == 1000
    assert beat(clock, "a", 1121) == 1121


def test_watermark_never_goes_back_when_a_slow_source_returns():
    clock = SiteClock()
    beat(clock, "a", 1000)
    beat(clock, "b", 1000)
    beat(clock, "a", 1500)
    assert beat(clock, "b", 1490) == 1500
    assert beat(clock, "a", 1505) == 1500
    assert beat(clock, "b", 1501) == 1501


def test_source_does_not_go_back_when_its_heartbeat_does():
    clock = SiteClock()
    beat(clock, "a", 1000)
    assert beat(clock, "b", 1010) == 1000
    beat(clock, "a", 900, session=2)
    assert coverage(clock, SOURCES, 950 * SECOND, 1) == 1
    assert beat(clock, "a", 1005, session=2) == 1005


def test_coverage_is_the_share_of_listed_sources_that_reached_the_tick():
    clock = SiteClock()
    assert coverage(clock, SOURCES, 0, 1) == 0
    beat(clock, "a", 1000)
    beat(clock, "b", 900)
    assert coverage(clock, SOURCES, 950 * SECOND, 1) == Fraction(1, 2)
    assert coverage(clock, SOURCES, 900 * SECOND + 1, 1) == Fraction(1, 2)
    assert coverage(clock, SOURCES, 900 * SECOND, 1) == 1


def test_batches_of_a_session_are_admitted_in_ascending_order_once():
    clock = SiteClock()
    assert admit(clock, "a", 7, 0) is None
    assert admit(clock, "a", 7, 0) == "repeated_batch"
    assert admit(clock, "a", 7, 5) is None
    assert admit(clock, "a", 7, 4) == "repeated_batch"
    assert admit(clock, "b", 3, 0) is None


def test_new_session_counts_its_batches_from_zero_and_silences_the_old_one():
    clock = SiteClock()
    admit(clock, "a", 7, 9)
    assert admit(clock, "a", 8, 0) is None
    assert admit(clock, "a", 7, 10) == "stale_session"
    assert not hear(clock, Heartbeat("site", "a", 7, 10**9), LONGEST)
    assert clock.voices["a"].watermark is None


def test_heartbeat_of_a_new_session_silences_the_old_one():
    clock = SiteClock()
    admit(clock, "a", 7, 9)
    assert hear(clock, Heartbeat("site", "a", 8, 0), LONGEST)
    assert admit(clock, "a", 7, 10) == "stale_session"
    assert admit(clock, "a", 8, 0) is None


def test_clock_survives_its_plain_form():
    clock = SiteClock()
    beat(clock, "b", 900)
    admit(clock, "a", 7, 9)
    assert from_plain(to_plain(clock)) == clock
