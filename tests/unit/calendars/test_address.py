"""Addresses of calendars: https, of a public host or one that the operator names, and nothing without a limit."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from connectors.calendars import address
from connectors.calendars.address import fetch, is_public, parsed_address
from stream.errors import DataError, UsageError
from tests.support.documents import ROOT
from tests.support.https_host import NAME, Host, host, response

MOST = 10_000
SECRET = "private-link-0123456789"


@pytest.fixture
async def calendar(tmp_path: Path) -> AsyncIterator[Host]:
    async with host(tmp_path, response(b"BEGIN:VCALENDAR")) as running:
        yield running


async def fetched(running: Host, *, name: str = NAME, internal: bool = True, most: int = MOST) -> bytes:
    """Fetch from a host that resolves to loopback."""

    async def loopback(asked: str, _: int) -> Sequence[str]:
        assert asked == name
        return ["127.0.0.1"]

    url = f"https://{name}:{running.port}/{SECRET}.ics?key=1"
    return await fetch(url, most, internal=internal, resolved_by=loopback, tls=running.trusted)


async def test_an_address_is_asked_once_for_its_file_uncompressed_and_without_cookies(calendar: Host) -> None:
    assert await fetched(calendar) == b"BEGIN:VCALENDAR"
    (request,) = calendar.requests
    first, *headers = request.split("\r\n")
    assert first == f"GET /{SECRET}.ics?key=1 HTTP/1.1"
    named = dict(line.lower().split(": ", 1) for line in headers if line)
    assert (named["host"], named["accept-encoding"]) == (f"{NAME}:{calendar.port}", "identity")
    assert not named.keys() & {"cookie", "authorization", "referer"}


async def test_the_connection_goes_to_the_address_that_was_checked(
    calendar: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second look-up could answer with another address; neither that nor a proxy takes part."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    loop = asyncio.get_running_loop()
    connected = loop.getaddrinfo
    asked: list[object] = []

    async def watched(where: object, *arguments: object, **options: object) -> object:
        asked.append(where)
        return await connected(where, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "getaddrinfo", watched)
    await fetched(calendar)
    assert NAME not in [str(each) for each in asked]


async def test_a_host_that_is_not_public_is_asked_only_if_the_operator_says_so(calendar: Host) -> None:
    with pytest.raises(DataError, match="must be on a public host; set 'internal = true'"):
        await fetched(calendar, internal=False)
    assert calendar.requests == []


async def test_a_host_with_one_address_that_is_not_public_is_refused() -> None:
    async def two(_: str, __: int) -> Sequence[str]:
        return ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(DataError, match="must be on a public host"):
        await fetch(f"https://{NAME}/", MOST, resolved_by=two)


@pytest.mark.parametrize(
    "ip",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:53aa:64c:0:ffff:80ff:fffe", "2001:db8::1", "x",
        "::7f00:1", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1", "200::1", "4000::1",
    ],
)  # fmt: skip
def test_addresses_of_this_machine_its_network_and_those_that_stand_for_them_are_not_public(ip: str) -> None:
    assert not is_public(ip)


@pytest.mark.parametrize("ip", ["93.184.216.34", "2606:4700::1111", "::ffff:93.184.216.34"])
def test_addresses_of_the_internet_are_public(ip: str) -> None:
    assert is_public(ip)


@pytest.mark.parametrize(
    "url",
    [
        "http://calendar.example.org/a", "file:///etc/passwd", "https:///a", "calendar.example.org", "https://a:0/",
        "https://a:99999/", "https://[::1/", f"https://{SECRET}@a/", f"https://u:{SECRET}@a/", f"https://a/#{SECRET}",
        "https://a/" + SECRET * 100, f"https://a/{SECRET}\0", f"https://a/?{SECRET}\x7f", f"https://a/\n{SECRET}",
        f"https://ä/{SECRET}",
    ],
)  # fmt: skip
def test_what_is_no_plain_https_address_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        parsed_address(url)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (response(b"", "302 Found", "Location: https://127.0.0.1/"), "answered 302; a redirect is not followed"),
        (response(b"", "401 Unauthorized"), "must answer 200, answered 401"),
        (response(b"x" * 100, "200 OK", "Content-Encoding: gzip"), "must answer uncompressed"),
        (response(b"x" * (MOST + 1)), f"at most {MOST} bytes"),
        (b"SSH-2.0\r\n", "must be reachable"),
    ],
)
async def test_an_answer_that_is_not_a_small_file_is_refused(calendar: Host, answer: bytes, rule: str) -> None:
    calendar.answer = answer
    with pytest.raises(DataError, match=rule) as refused:
        await fetched(calendar)
    assert SECRET not in str(refused.value)
    assert len(calendar.requests) == 1


async def test_an_endless_answer_ends_at_the_limit(calendar: Host) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 1000)
            await writer.drain()

    calendar.answer = endless
    with pytest.raises(DataError, match=f"at most {MOST} bytes"):
        await fetched(calendar)


async def test_an_answer_that_never_ends_is_given_up_after_the_limit(
    calendar: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time, the whole does not."""
    monkeypatch.setattr(address, "FETCH_SECONDS", 0.3)

    async def slow(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    calendar.answer = slow
    with pytest.raises(DataError, match="must answer within"):
        await fetched(calendar)


async def test_a_certificate_of_another_name_is_refused(tmp_path: Path) -> None:
    async with host(tmp_path, response(b"")) as running:
        with pytest.raises(DataError, match="with a valid certificate"):
            await fetched(running, name="other.example.org")
        assert running.requests == []


async def test_a_host_without_a_name_is_refused() -> None:
    async def unknown(_: str, __: int) -> Sequence[str]:
        raise OSError

    with pytest.raises(DataError, match="must be reachable"):
        await fetch(f"https://{NAME}/", MOST, resolved_by=unknown)


def test_an_address_is_checked_without_the_library_that_fetches_it() -> None:
    without = "import sys; sys.modules['httpx'] = None; from connectors.calendars.address import parsed_address; "
    done = subprocess.run(
        [sys.executable, "-c", f"{without}print(parsed_address('https://calendar.example.org/a').hostname)"],
        env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "calendar.example.org\n"), done.stderr
