"""A subscriber continues exactly behind the last delivered record, for every site, release and source."""

from __future__ import annotations

import random
import stat
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.storage.embedded.outboxes import Outboxes, OutboxRecord
from connectors.storage.embedded.reader import read_outbox
from connectors.subscribe.cursor import Cursor, Delivered
from connectors.subscribe.subscriber import releases, subscribe
from stream.errors import UsageError
from stream.records import MINUTE
from stream.schemas import rfc3339

SITES = ("east", "west", "yard")
RELEASES = ("hourly", "occupancy")
WINDOWS = 40


def given(site: str, release: str, number: int) -> OutboxRecord:
    """The record of a site's window of 5 min."""
    start, end = (rfc3339((5 * number - back) * MINUTE) for back in (5, 0))
    name = f"{site}/{release}/board/{end}"
    body = {"release_id": name, "site": site, "release": release, "window_start": start, "window_end": end}
    return OutboxRecord(name, release, site, 5 * number * 60_000, orjson.dumps(body))


def windows(first: int, last: int, sites: tuple[str, ...] = SITES) -> Iterator[OutboxRecord]:
    """What several windows give, as a runner gives it: release by release of one site, then the next site."""
    for number in range(first, last):
        for site in sites:
            for release in reversed(RELEASES):
                yield given(site, release, number)


def fill(folder: Path, records: Iterator[OutboxRecord]) -> list[str]:
    """Put records into an outbox; return their names."""
    with closing(Outboxes(folder / "private")) as boxes:
        stored = [*records]
        boxes.append("board", stored)
    return [record.id for record in stored]


async def read(store: Path, most: int | None = None, **options: Any) -> list[str]:
    """Return the names of at most so many releases; the last one of them was not come back for."""
    names: list[str] = []
    async with aclosing(subscribe(store=store, audience="board", until_end=True, **options)) as records:
        async for record in records:
            names.append(record["release_id"])
            if len(names) == most:
                break
    return names


async def test_a_reader_of_a_store_that_is_killed_a_hundred_times_has_every_release_of_every_site_once(
    tmp_path: Path,
) -> None:
    """It saves before it is killed; what it did not come back for comes again, under the same id."""
    chance, done = random.Random(7), list[str]()
    names: list[str] = []
    for life in range(100):
        if life % 5 == 0:
            names += fill(tmp_path, windows(2 * (life // 5), 2 * (life // 5) + 2))
            names += fill(tmp_path, windows(life, life + 1, ("late-" + str(life // 25),)))
        cursor = Cursor(tmp_path / "cursor")
        most = chance.randint(1, 8)
        seen = await read(tmp_path, most, cursor=cursor)
        done += seen[:-1] if len(seen) == most else seen  # killed: the last one was not come back for
        cursor.save()
    done += await read(tmp_path, cursor=Cursor(tmp_path / "cursor"))
    assert len(done) == len(set(done))
    assert sorted(done) == sorted(set(names))


async def test_going_on_reads_of_a_store_what_is_new_and_not_what_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, windows(0, WINDOWS))
    cursor = Cursor(tmp_path / "cursor")
    assert len(await read(tmp_path, cursor=cursor)) == WINDOWS * len(SITES) * len(RELEASES)
    cursor.save()
    new = fill(tmp_path, windows(WINDOWS, WINDOWS + 1))
    taken: list[int] = []

    def counted(*arguments: Any) -> list[tuple[int, bytes]]:
        rows = read_outbox(*arguments)
        taken.append(len(rows))
        return rows

    monkeypatch.setattr("connectors.subscribe.outbox.read_outbox", counted)
    assert sorted(await read(tmp_path, cursor=Cursor(tmp_path / "cursor"))) == sorted(new)
    assert sum(taken) == len(new)


async def test_positions_of_one_release_say_nothing_of_the_others(tmp_path: Path) -> None:
    names = fill(tmp_path, windows(0, 3))
    cursor = Cursor(tmp_path / "cursor")
    hourly = await read(tmp_path, cursor=cursor, release="hourly")
    assert hourly == [name for name in names if "/hourly/" in name]
    rest = await read(tmp_path, cursor=cursor)
    assert sorted(rest) == sorted(name for name in names if "/occupancy/" in name)
    assert await read(tmp_path, cursor=cursor) == []


async def test_after_a_release_come_those_behind_it_at_its_site_and_all_of_the_others(tmp_path: Path) -> None:
    fill(tmp_path, windows(0, 3, ("east", "west")))
    names = await read(tmp_path, from_start=True)
    passed = [name for name in names if name.startswith("east")][:3]
    assert await read(tmp_path, after=passed[-1]) == [name for name in names if name not in passed]
    with pytest.raises(UsageError, match="--after: must be a release id of this audience that is still kept, got"):
        await read(tmp_path, after="east/occupancy/board/none")


async def test_an_audience_of_which_a_store_has_no_outbox_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, windows(0, 1))
    with pytest.raises(UsageError, match="audience dean: must be an audience of this store"):
        [record async for record in subscribe(store=tmp_path, audience="dean", until_end=True)]


async def test_a_cursor_of_one_source_is_refused_by_another(tmp_path: Path) -> None:
    fill(tmp_path, windows(0, 3))
    cursor = Cursor(tmp_path / "cursor")
    cursor.belong_to("kafka")
    cursor.save()
    with pytest.raises(
        UsageError, match=r"must be a cursor of this kind of source \(store\), got one of another \(kafka\)"
    ):
        await read(tmp_path, cursor=Cursor(tmp_path / "cursor"))


async def test_a_cursor_ahead_of_a_store_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "old", windows(0, 3))
    fill(tmp_path / "new", windows(0, 2))
    cursor = Cursor(tmp_path / "cursor")
    await read(tmp_path / "old", cursor=cursor)
    with pytest.raises(UsageError, match="recreated"):
        await read(tmp_path / "new", cursor=cursor)


def test_a_cursor_is_its_owners_alone_and_is_written_only_when_something_is_new(tmp_path: Path) -> None:
    """A sink keeps what it has published in it."""
    cursor = Cursor(tmp_path / "cursor")
    cursor.notes["retained"] = {"topic": "42"}
    cursor.save()
    first = (tmp_path / "cursor").stat()
    assert stat.S_IMODE(first.st_mode) == 0o600
    cursor.save()
    assert (tmp_path / "cursor").stat().st_ino == first.st_ino
    cursor.advance("topic", 0, "east", Delivered(7, "east/a/b/c"))
    cursor.save()
    assert (tmp_path / "cursor").stat().st_ino != first.st_ino
    again = Cursor(tmp_path / "cursor")
    assert (again.notes, again.is_behind("topic", 0, "east", 7)) == ({"retained": {"topic": "42"}}, False)


async def test_a_cursor_of_a_store_that_was_made_anew_and_has_grown_past_it_is_refused(tmp_path: Path) -> None:
    """It went on from a number at which another release lay, and skipped all before that."""
    fill(tmp_path / "old", windows(0, 3))
    cursor = Cursor(tmp_path / "cursor")
    assert await read(tmp_path / "old", cursor=cursor)
    cursor.save()
    names = fill(tmp_path / "new", windows(3, 9))
    refused = r"must fit topic .* no longer contains the release that was delivered from \d+: it was recreated.*Delete"
    with pytest.raises(UsageError, match=refused):
        await read(tmp_path / "new", cursor=Cursor(tmp_path / "cursor"))
    (tmp_path / "cursor").unlink()
    assert sorted(await read(tmp_path / "new", cursor=Cursor(tmp_path / "cursor"))) == sorted(names)


async def test_what_was_given_and_not_yet_settled_is_recognised_too(tmp_path: Path) -> None:
    """The reader was killed in its first look at the store."""
    fill(tmp_path / "old", windows(0, 3))
    cursor = Cursor(tmp_path / "cursor")
    await read(tmp_path / "old", 5, cursor=cursor)
    cursor.save()
    fill(tmp_path / "new", windows(3, 9))
    with pytest.raises(UsageError, match="it was recreated"):
        await read(tmp_path / "new", cursor=Cursor(tmp_path / "cursor"))


async def test_a_store_that_was_put_back_and_has_the_same_releases_goes_on(tmp_path: Path) -> None:
    fill(tmp_path / "old", windows(0, 3))
    cursor = Cursor(tmp_path / "cursor")
    await read(tmp_path / "old", cursor=cursor)
    names = fill(tmp_path / "new", windows(0, 5))
    assert sorted(await read(tmp_path / "new", cursor=cursor)) == sorted(names[-2 * len(SITES) * len(RELEASES) :])


def test_nothing_is_settled_of_a_partition_of_which_nothing_was_given(tmp_path: Path) -> None:
    """It holds marks of transactions alone: nothing says later whether it is the same partition."""
    cursor = Cursor(tmp_path / "cursor")
    cursor.mark_delivered("topic", 1, 40, None)
    assert cursor.settled("topic", 1) == 0
    cursor.mark_delivered("topic", 1, 40, Delivered(12, "east/a/b/c"))
    cursor.mark_delivered("topic", 1, 60, None)
    assert (cursor.settled("topic", 1), cursor.resume_offset("topic", 1, 10), cursor.last_delivered("topic", 1)) == (
        60, 12, {12: "east/a/b/c"}
    )  # fmt: skip


def test_records_that_were_deleted_before_they_were_given_are_missed(tmp_path: Path) -> None:
    cursor = Cursor(tmp_path / "cursor")
    cursor.mark_delivered("topic", 1, 40, Delivered(39, "east/a/b/c"))
    for first in (0, 39, 40):
        cursor.check_retained("topic", 1, first)
    with pytest.raises(UsageError, match="begins at 43: 3 offsets were deleted before they were delivered"):
        cursor.check_retained("topic", 1, 43)
    Cursor(tmp_path / "another").check_retained("topic", 1, 43)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"v":2,"home":"kafka","next":{},"settled":{},"last":{}}',
        b'{"v":1,"home":"kafka","next":{"t":{"s":[0,7]}},"settled":{},"last":{}}',
        b'{"v":1,"home":"kafka","next":{"t":{"s":[0,7,8]}},"settled":{},"last":{}}',
    ],
)
def test_what_is_no_cursor_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "cursor").write_bytes(text)
    with pytest.raises(UsageError, match="must be a cursor"):
        Cursor(tmp_path / "cursor")


async def test_cursor_and_after_are_not_given_together(tmp_path: Path) -> None:
    fill(tmp_path, windows(0, 1))
    with pytest.raises(UsageError, match="cursor: must not be given with after"):
        await read(tmp_path, cursor=Cursor(tmp_path / "cursor"), after="east/hourly/board/x")


# --- without an event loop -----------------------------------------------------------------------------------


async def test_the_synchronous_form_is_refused_within_an_event_loop(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be called outside of an event loop"):
        releases(store=tmp_path, audience="board")


def test_the_synchronous_form_gives_the_same_releases_and_goes_on_with_the_same_cursor(tmp_path: Path) -> None:
    names = fill(tmp_path, windows(0, 3))
    cursor = Cursor(tmp_path / "cursor")
    with closing(releases(store=tmp_path, audience="board", cursor=cursor)) as first:
        some = [next(first)["release_id"] for _ in range(5)]
    rest = [r["release_id"] for r in releases(store=tmp_path, audience="board", cursor=cursor, until_end=True)]
    assert rest[0] == some[-1], "it was not come back for"
    assert sorted([*some, *rest[1:]]) == sorted(names)


def test_a_wrong_option_of_the_synchronous_form_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="audiense"):
        releases(store=tmp_path, audiense="board")  # type: ignore[call-arg]
