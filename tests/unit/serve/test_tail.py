"""The newest releases in memory: what stands behind any of them, and nothing of those that were let go."""

from __future__ import annotations

import pytest

from connectors.serve.event_streams import Tail

RELEASES = [(f"east/occupancy/public/{number}", str(number).encode()) for number in range(10)]


@pytest.mark.parametrize("cuts", [(10,), (1,) * 10, (3, 4, 3)])
def test_the_tail_returns_all_releases_after_one(cuts: tuple[int, ...]) -> None:
    tail, begin = Tail(kept=10), 0
    for length in cuts:
        tail.add(RELEASES[begin : begin + length])
        begin += length
    for place, (name, _) in enumerate(RELEASES):
        assert tail.behind(name) == RELEASES[place + 1 :]


def test_a_dropped_release_is_unknown_to_the_tail() -> None:
    tail = Tail(kept=4)
    tail.add(RELEASES)
    assert [tail.behind(name) for name, _ in RELEASES[:6]] == [None] * 6
    assert [tail.behind(name) for name, _ in RELEASES[6:]] == [RELEASES[place:] for place in (7, 8, 9, 10)]
