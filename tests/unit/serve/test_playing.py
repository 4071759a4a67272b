"""A day that is played: pausing and another speed go on from where it is; only going back begins anew."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence

import orjson
import pytest

from connectors.http.responses import answer
from connectors.serve import indexer
from connectors.serve.app import page_files
from connectors.serve.history.aggregates import Moments
from connectors.serve.indexer import Indexer, follow_play
from connectors.serve.playback import Playback
from stream.records import HOUR


def playing() -> Playback:
    """Return a play of ten hours on a clock that goes on by a second whenever it is read."""
    return Playback([(hour * HOUR, b"{}") for hour in range(10)], speed=1.0, clock=itertools.count().__next__)


def standing(begin: int) -> Playback:
    """Return a play of a whole day that begins at some hour, on a clock that stands still."""
    return Playback([((begin + hour) * HOUR, b"{}") for hour in range(25)], speed=1.0, clock=lambda: 0.0)


@pytest.mark.parametrize("begin", [0, 20_000 * 24])
def test_a_day_that_is_played_begins_after_nine_of_its_hours(begin: int) -> None:
    play = standing(begin)
    assert (play.start, play.at(), play.end) == (begin * HOUR, (begin + 9) * HOUR, (begin + 24) * HOUR)
    assert len(play.due(100)) == 10


def test_a_position_outside_of_the_day_is_its_nearest_end() -> None:
    for at, reached in ((19 * HOUR, 20 * HOUR), (45 * HOUR, 44 * HOUR)):
        play = standing(20)
        play.change(at=at)
        assert play.at() == reached


def test_a_pause_does_not_move_back() -> None:
    play = playing()
    assert play.change(paused=True) is False
    assert play.at() == play.at()


def test_another_speed_does_not_move_back() -> None:
    assert playing().change(speed=2.0) is False


@pytest.mark.parametrize(("at", "back"), [(0, True), (9 * HOUR, False)])
def test_only_an_earlier_time_moves_back(at: int, back: bool) -> None:
    assert playing().change(at=at) is back


class Adding(Indexer):
    """Moves the play back while it adds the first records, and ends when it has added the next ones."""

    def __init__(self, play: Playback) -> None:
        self.play, self.added = play, list[list[bytes]]()

    async def add(self, records: Sequence[bytes], positions: Mapping[str, int]) -> None:
        self.added.append(list(records))
        if len(self.added) == 2:
            raise asyncio.CancelledError
        assert self.play.change(at=HOUR)


async def test_records_that_were_due_before_a_move_back_are_not_added_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexer, "BATCH", 3)
    play = Playback([(hour * HOUR, b"%d" % hour) for hour in range(10)], speed=1.0, clock=lambda: 0.0)
    play.change(at=9 * HOUR)
    adding = Adding(play)
    with pytest.raises(asyncio.CancelledError):
        await follow_play(play, adding)
    assert adding.added == [[b"0", b"1", b"2"], [b"0", b"1"]]


def test_named_tuples_of_the_history_are_sent_as_lists() -> None:
    assert orjson.loads(answer({"nodes": {"a": [Moments(1.5, 0.5, 3), None]}}).body) == {
        "nodes": {"a": [[1.5, 0.5, 3], None]}
    }


def test_an_object_without_a_json_form_is_an_error() -> None:
    with pytest.raises(TypeError):
        answer({"a": object()})


def test_the_page_is_at_the_root_and_its_files_below_static() -> None:
    files = page_files()
    assert files["/"] is files["/static/index.html"]
    assert set(files) > {"/static/app.js", "/static/theme.css", "/static/vendor/uplot-1.6.32/uPlot.iife.min.js"}
    assert not [path for path in files if path.endswith(("LICENSE", ".md", ".py"))]
