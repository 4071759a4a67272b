"""The connector's clock goes with the monotonic one, and notices that the wall clock was set."""

from __future__ import annotations

import pytest

from connectors.runtime.clock import CLOCK_STEP, AnchoredClock, ClockStepError, wall_clock
from stream.records import SECOND


def test_the_wall_clock_is_the_systems_in_whole_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.runtime.clock.time.time_ns", lambda: 1_700_000_000_123_456_789)
    assert wall_clock() == 1_700_000_000_123_456


class Clocks:
    """A wall clock and a monotonic one."""

    wall, monotonic = 1_000 * SECOND, 7 * SECOND

    def anchored(self) -> AnchoredClock:
        return AnchoredClock(lambda: self.wall, lambda: self.monotonic)


def test_time_is_the_wall_clocks_at_the_start_and_the_monotonic_time_since() -> None:
    clocks = Clocks()
    clock = clocks.anchored()
    assert (clock.now(), clock.wall_ahead()) == (1_000 * SECOND, 0)
    clocks.monotonic += 3 * SECOND
    clocks.wall += 5 * SECOND
    assert (clock.now(), clock.wall_ahead()) == (1_003 * SECOND, 2 * SECOND)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_wall_clock_that_was_set_by_more_than_five_seconds_is_an_error(sign: int) -> None:
    clocks = Clocks()
    clock = clocks.anchored()
    clocks.wall += sign * CLOCK_STEP
    assert clock.now() == 1_000 * SECOND
    clocks.wall += sign
    with pytest.raises(ClockStepError, match="must agree with the wall clock within 5 s"):
        clock.now()
