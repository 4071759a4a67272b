"""A restart is told by an uptime that falls, and not by one that begins again after 497 days."""

import pytest

from connectors.sources.probes.scheduler import LEEWAY, TICKS, WRAP, has_restarted
from stream.records import MINUTE, SECOND

MINUTE_TICKS = 60 * TICKS
LONG = 1_000 * MINUTE_TICKS


@pytest.mark.parametrize(
    ("last", "uptime", "restarted"),
    [
        (LONG, LONG + MINUTE_TICKS, False),
        (LONG, LONG + MINUTE_TICKS - 500, False),
        (LONG, LONG + 2 * MINUTE_TICKS, False),
        (LONG, 0, True),
        (LONG, MINUTE_TICKS, True),
        (LONG, LONG - 1, True),
        (3_000, 2_000, True),
        (WRAP - 1_000, MINUTE_TICKS - 1_000, False),
        (WRAP - MINUTE_TICKS, 0, False),
        (WRAP - 1, 0, False),
        (WRAP - 1, MINUTE_TICKS + LEEWAY, True),
        (WRAP - 1, LONG, True),
        (WRAP - LEEWAY - MINUTE_TICKS - 1, 100, True),
    ],
)
def test_a_minute_later(last: int, uptime: int, restarted: bool) -> None:
    assert has_restarted((0, last), (MINUTE, uptime)) is restarted


def test_a_restart_between_probes_shows_in_an_uptime_that_is_too_short() -> None:
    hour = 3_600
    assert has_restarted((0, 500), (hour * SECOND, hour // 2 * TICKS))
    assert not has_restarted((0, 500), (hour * SECOND, 500 + hour * TICKS))
