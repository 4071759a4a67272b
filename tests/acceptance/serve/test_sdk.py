"""The project's own subscribers get the same records from the service as from a store."""

from __future__ import annotations

import random
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import tacet
from connectors.subscribe import service as reading
from stream.schemas import parse_record
from tests.acceptance.serve.services import new_token, records, served, wanted


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FIRST_WAIT", 0.01)


def published(folder: Path, audience: str) -> list[dict[str, Any]]:
    return [parse_record(value) for value in records(folder, audience)]


def test_a_reader_with_a_token_is_given_what_was_published_in_its_order_and_a_frame_of_it(
    folder: Path, tmp_path: Path
) -> None:
    token = new_token(tmp_path / "tokens", "program", "audience:facilities")
    with served(wanted(folder, tokens=tmp_path / "tokens")) as running:
        there: Any = {"url": running.address, "token": token, "audience": "facilities"}
        whole = published(folder, "facilities")
        given = [*tacet.releases(**there, from_start=True, until_end=True)]
        while len(given) < len(whole):  # it is still taking the store in
            given += tacet.releases(**there, after=given[-1]["release_id"] if given else None, from_start=not given,
                                    until_end=True)  # fmt: skip
        assert given == whole
        only = [*tacet.releases(**there, from_start=True, until_end=True, release="archive")]
        assert only == [record for record in whole if record["release"] == "archive"]
        here = tacet.frame(store=folder / "store", audience="facilities")
        assert tacet.frame(**there).equals(here)
        assert tacet.sites(url=running.address, token=token) == tacet.sites(store=folder / "store")
        for wrong in ("nobody", None):
            with pytest.raises(tacet.UsageError, match="serves audience facilities, got 401"):
                next(tacet.releases(**there | {"token": wrong}))
        with pytest.raises(tacet.UsageError, match=r"serves audience public, got 40[03]"):
            next(tacet.releases(**there | {"audience": "public"}))


async def test_a_reader_that_is_killed_again_and_again_has_every_release_once_by_its_id(
    folder: Path, tmp_path: Path
) -> None:
    token = new_token(tmp_path / "tokens", "program", "audience:public")
    chance, seen, names = random.Random(9), list[str](), [r["release_id"] for r in published(folder, "public")]
    with served(wanted(folder, tokens=tmp_path / "tokens")) as running:
        while True:
            cursor = tacet.Cursor(tmp_path / "cursor")
            source = tacet.subscribe(url=running.address, token=token, audience="public", cursor=cursor)
            most = chance.randint(1, 5)
            async with aclosing(source) as releases:
                while most and len(seen) < len(names):
                    seen.append((await anext(releases))["release_id"])
                    most -= 1
            seen.pop()  # it was not come back for
            cursor.save()
            if len(seen) + 1 == len(names):
                break
        cursor = tacet.Cursor(tmp_path / "cursor")
        source = tacet.subscribe(url=running.address, token=token, audience="public", cursor=cursor, until_end=True)
        seen += [release["release_id"] async for release in source]
    assert seen == names
