"""Files on their way: how many at a time, and that a place is free when its file is over, however that came."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from connectors.http.responses import RefusalError
from connectors.serve.access import Principal
from connectors.serve.downloads import Download, Downloads
from connectors.serve.reader_limits import DOWNLOADS
from tests.unit.serve.released_history import MONDAY, TICK, asked, history, window

SCOPE: dict[str, Any] = {"type": "http", "method": "GET", "headers": [], "asgi": {"spec_version": "2.4"}}


def reader(name: str) -> Principal:
    return Principal(name, frozenset(["audience:public"]))


def file(*pieces: bytes) -> Generator[bytes, None, None]:
    yield from pieces


def opened(downloads: Downloads, name: str) -> Download:
    return downloads.open(reader(name), "rows", "csv", file(b"a", b"b"))


async def nobody() -> Message:
    raise AssertionError("a file is sent, not asked for")


async def given(download: Download) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await download(SCOPE, nobody, send)
    return sent


def test_downloads_of_one_reader_are_limited() -> None:
    downloads = Downloads()
    for _ in range(DOWNLOADS.each):
        opened(downloads, "ann")
    with pytest.raises(RefusalError) as refused:
        opened(downloads, "ann")
    assert (refused.value.status, refused.value.retry) == (429, 10)
    opened(downloads, "bob")
    assert len(downloads) == DOWNLOADS.each + 1


def test_a_refused_download_says_when_to_retry() -> None:
    downloads = Downloads()
    for number in range(DOWNLOADS.total):
        opened(downloads, f"reader {number}")
    with pytest.raises(RefusalError) as refused:
        opened(downloads, "another")
    answer = refused.value.answer()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")


def test_readers_without_a_token_are_counted_by_address_and_leave_a_download_to_others() -> None:
    downloads = Downloads()
    anyone = Principal("anyone", frozenset(["audience:public"]))

    def open_from(address: str) -> Download:
        return downloads.open(replace(anyone, address=address), "rows", "csv", file(b"a"))

    for _ in range(DOWNLOADS.each):
        open_from("10.0.0.1")
    with pytest.raises(RefusalError, match="at most 2 of one reader"):
        open_from("10.0.0.1")
    open_from("10.0.0.2")
    with pytest.raises(RefusalError, match="at most 3 without a token"):
        open_from("10.0.0.3")
    opened(downloads, "ann")


async def test_a_sent_file_is_no_longer_counted() -> None:
    downloads = Downloads()
    started, *pieces = await given(opened(downloads, "ann"))
    assert dict(started["headers"])[b"content-disposition"] == b'attachment; filename="rows.csv"'
    assert b"".join(piece["body"] for piece in pieces) == b"ab"
    assert len(downloads) == 0


async def test_the_end_of_one_of_two_files_frees_one_place() -> None:
    downloads = Downloads()
    first, _ = opened(downloads, "ann"), opened(downloads, "ann")
    await given(first)
    assert len(downloads) == 1
    opened(downloads, "ann")
    with pytest.raises(RefusalError):
        opened(downloads, "ann")


async def test_a_closed_connection_frees_its_download_and_deletes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = history()
    kept.add([window(MONDAY + n * TICK, {"2011": n}) for n in range(1, 9)], {})
    before, downloads = set(tmp_path.iterdir()), Downloads()
    lying: list[Path] = []

    async def gone(message: Message) -> None:
        if message["type"] == "http.response.body":
            lying.extend(set(tmp_path.iterdir()) - before)
            raise OSError

    with pytest.raises(Exception, match=r"^$"):
        await downloads.open(reader("ann"), "rows", "parquet", kept.export(asked(), "parquet"))(SCOPE, nobody, gone)
    assert lying, "the file lies outside of memory while it is given"
    assert set(tmp_path.iterdir()) == before
    assert len(downloads) == 0
