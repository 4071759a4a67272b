"""Event streams: every release once, in the published order and bytes, across disconnections."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message

from connectors.http.limits import client_of
from connectors.http.responses import RefusalError
from connectors.serve.access import Access, Principal, TokenFile
from connectors.serve.event_streams import Streams
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.reader_limits import STREAMS
from stream.records import HOUR
from stream.schemas import parse_record
from tests.acceptance.serve.services import (
    FIRST,
    Served,
    complete,
    events,
    eventually,
    make_store,
    new_token,
    parsed,
    records,
    served,
    wanted,
)
from tests.support.patience import PATIENCE, within_patience


def ids(values: list[bytes]) -> list[str]:
    return [parse_record(value)["release_id"] for value in values]


def test_a_stream_from_the_start_gives_what_was_published_byte_for_byte_in_its_order(
    browser: httpx.Client, folder: Path
) -> None:
    for audience in ("facilities", "public"):
        published = records(folder, audience)
        given = events(browser, audience, "start", len(published))
        assert [value for _, value in given] == published
        assert [identity for identity, _ in given] == ids(published)


@pytest.mark.parametrize("header", [False, True])
def test_a_stream_goes_on_behind_the_release_that_is_named(browser: httpx.Client, folder: Path, header: bool) -> None:
    published = records(folder, "public")
    for place in (0, 1, 17, len(published) - 2):
        given = events(browser, "public", ids(published)[place], len(published) - place - 1, header=header)
        assert [value for _, value in given] == published[place + 1 :]


def test_a_stream_without_a_place_begins_at_the_present_and_says_where_that_is(
    browser: httpx.Client, folder: Path
) -> None:
    """So that who loses the connection before the first release goes on where they began."""
    with browser.stream("GET", "/api/v1/stream", params={"audience": "public"}) as answer:
        first = next(parsed(answer.iter_lines()))
    assert first == ("ready", ids(records(folder, "public"))[-1], "{}")


@pytest.mark.parametrize(
    "after", ["nobody", "east/occupancy/facilities/2026-03-02T10:00:00Z", "east/occupancy/public/x"]
)
def test_a_place_that_is_no_release_of_the_audience_is_refused(browser: httpx.Client, after: str) -> None:
    answer = browser.get("/api/v1/stream", params={"audience": "public", "after": after})
    assert answer.status_code == 404
    assert answer.json()["error"]["what"] == "after"


def test_what_is_released_while_a_stream_is_open_comes_on_it(tmp_path: Path) -> None:
    make_store(tmp_path, last=FIRST + HOUR)
    with served(wanted(tmp_path)) as running, running.browser() as client:
        before = len(records(tmp_path, "public"))
        came: list[bytes] = []
        wake = threading.Thread(target=lambda: make_store(tmp_path, last=FIRST + 2 * HOUR, apart=True))
        with client.stream("GET", "/api/v1/stream", params={"audience": "public", "after": "start"}) as answer:
            wake.start()
            for name, _, data in parsed(answer.iter_lines()):
                came += [data.encode()] if name == "release" else []
                if len(came) == before + 4:
                    break
        wake.join()
        assert came == records(tmp_path, "public")


def test_a_restarted_service_goes_on_where_a_reader_was(tmp_path: Path, folder: Path) -> None:
    index = tmp_path / "index"
    index.mkdir(mode=0o700)
    query = wanted(folder, index=index / "history")
    published = records(folder, "facilities")
    with served(query) as running, running.browser() as client:
        last, _ = events(client, "facilities", "start", 40)[-1]
    with served(query) as running, running.browser() as client:
        assert [v for _, v in events(client, "facilities", last, len(published) - 40)] == published[40:]


def killed_at_random(folder: Path, times: int, seed: int) -> None:
    """Read a stream with connections that break off anywhere, and compare what was read with what was published."""
    rng, published = random.Random(seed), records(folder, "facilities")
    breaks = sorted(rng.sample(range(len(published)), times))
    read: list[tuple[str, bytes]] = []
    with served(wanted(folder)) as running, running.browser() as client:
        for place in breaks:
            read += events(client, "facilities", read[-1][0] if read else "start", place - len(read) or 1)
        read += events(client, "facilities", read[-1][0], len(published) - len(read))
    assert [value for _, value in read] == published
    assert len({identity for identity, _ in read}) == len(published)


def test_a_reader_that_is_killed_at_random_reads_every_release_once(folder: Path) -> None:
    killed_at_random(folder, 5, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_reader_that_is_killed_a_hundred_times_reads_every_release_once(folder: Path, seed: int) -> None:
    killed_at_random(folder, 100, seed)


def test_a_revoked_token_ends_its_open_streams_and_lets_nobody_in_again(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    kept, gone = (new_token(file, name, "audience:public") for name in ("kept", "gone"))
    with served(wanted(folder, tokens=file)) as running:
        ended: list[str] = []
        reader = threading.Thread(target=lambda: ended.extend(until_the_end(running, gone)))
        reader.start()
        eventually(lambda: "ready" in ended)
        TokenFile(file).revoke("gone")
        reader.join(PATIENCE)
        assert ended[-1] == '{"why":"revoked"}'
        for token, status in ((gone, 401), (kept, 200)):
            with running.client(token) as client:
                assert client.get("/api/v1/sites").status_code == status


def until_the_end(running: Served, token: str) -> Iterator[str]:
    """Yield what a stream says of itself until it ends."""
    with running.client(token) as client, client.stream("GET", "/api/v1/stream?audience=public") as answer:
        for name, _, data in parsed(answer.iter_lines()):
            yield data if name == "end" else name


def test_streams_end_when_the_service_stops_and_say_so(folder: Path) -> None:
    with ExitStack() as reading:
        with served(wanted(folder)) as running:
            client = reading.enter_context(running.browser())
            complete(client, folder, "public")
            answer = reading.enter_context(client.stream("GET", "/api/v1/stream?audience=public"))
            lines = parsed(answer.iter_lines())
            assert next(lines)[0] == "ready"
        *_, (name, _, data) = lines
        assert (name, data) == ("end", '{"why":"stopping"}')


def test_more_streams_than_one_reader_may_have_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.serve.event_streams.STREAMS", STREAMS._replace(each=2))
    with served(wanted(folder)) as running, running.browser() as client, ExitStack() as reading:
        stored = [reading.enter_context(client.stream("GET", "/api/v1/stream?audience=public")) for _ in "12"]
        events = [parsed(answer.iter_lines()) for answer in stored]
        assert [next(each)[0] for each in events] == ["ready", "ready"]
        refused = client.get("/api/v1/stream?audience=public")
        assert refused.status_code == 429
        stored[0].close()
        eventually(lambda: opens(client))


def test_one_address_cannot_use_up_the_streams_of_all_who_show_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.serve.event_streams.STREAMS", STREAMS._replace(each=2))
    with served(wanted(folder, opened="public")) as running, ExitStack() as reading:
        ways = [httpx.HTTPTransport(local_address=f"127.0.0.{host}") for host in (2, 3)]
        one, other = (reading.enter_context(running.client(transport=way)) for way in ways)
        stored = [reading.enter_context(one.stream("GET", "/api/v1/stream?audience=public")) for _ in "12"]
        streams = [parsed(answer.iter_lines()) for answer in stored]
        assert [next(each)[0] for each in streams] == ["ready", "ready"]
        assert one.get("/api/v1/stream?audience=public").status_code == 429
        assert opens(other)


async def test_who_shows_nothing_leaves_streams_to_those_with_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.serve.event_streams.STREAMS", STREAMS._replace(without_token=3))
    access = Access(frozenset(["audience:public"]), clock=lambda: 0, opened="audience:public")
    streams = Streams(access, ReleaseHistory(None, {}))
    for number in range(3):
        streams.open(anyone(access, f"10.0.0.{number}"), "public", "start")
    with pytest.raises(RefusalError, match="at most 3 without a token") as refused:
        streams.open(anyone(access, "10.0.0.9"), "public", "start")
    assert refused.value.status == 503
    streams.open(Principal("ann", frozenset(["audience:public"])), "public", "start")


def anyone(access: Access, address: str) -> Principal:
    found = access.anyone(address)
    assert found is not None
    assert access.holds(found)
    return found


@pytest.mark.parametrize(
    ("address", "reader"),
    [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
     ("2001:db8:1:2::", "2001:db8:1:2::/64"), ("", ""), ("unknown", "unknown")],
)  # fmt: skip
def test_a_machine_with_a_whole_network_of_addresses_is_one_reader(address: str, reader: str) -> None:
    scope = {"type": "http", "headers": [], "client": (address, 1)}
    assert client_of(Request(scope), behind_proxy=False) == reader
    proxied = {"type": "http", "headers": [(b"x-forwarded-for", f"1.2.3.4, {address}".encode())], "client": ("::1", 1)}
    assert client_of(Request(proxied), behind_proxy=True) == reader


def opens(client: httpx.Client) -> bool:
    with client.stream("GET", "/api/v1/stream?audience=public") as answer:
        return answer.status_code == 200


async def test_streams_that_are_asked_for_at_one_time_are_bounded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.serve.event_streams.STREAMS", STREAMS._replace(each=2))
    who = Principal("ann", frozenset(["audience:public"]))
    streams = Streams(Access(who.roles, clock=lambda: 0), ReleaseHistory(None, {}))
    for _ in "12":
        streams.open(who, "public", "start")
    with pytest.raises(RefusalError, match="at most 2 of one reader"):
        streams.open(who, "public", "start")
    assert len(streams) == 2


async def test_a_stream_that_never_began_leaves_its_place() -> None:
    """Its reader has gone before the head was sent."""
    who = Principal("ann", frozenset(["audience:public"]))
    streams = Streams(Access(who.roles, clock=lambda: 0), ReleaseHistory(None, {}))

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def never(message: Message) -> None:
        await asyncio.Event().wait()

    stream = streams.open(who, "public", "start")
    await within_patience(stream({"type": "http", "method": "GET"}, gone, never), "the stream of a reader who went")
    assert len(streams) == 0
