"""Caches learn nothing: answers about releases have no validator by which they could be compared."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from connectors.serve import access
from connectors.serve.access import Token, digest_of, matching
from stream.records import HOUR
from tests.acceptance.serve.services import FIRST, make_store, served, wanted

ASKED = (
    "/api/v1/session", "/api/v1/sites", "/api/v1/releases", "/api/v1/policy?audience={0}",
    "/api/v1/latest?audience={0}&site=east&release=occupancy", "/api/v1/openapi.json", "/healthz",
    "/api/v1/releases/occupancy/records?audience={0}&site=east",
    "/api/v1/spends?audience={0}&site=east&release=occupancy",
)  # fmt: skip
LATER = "Mon, 01 Jan 2035 00:00:00 GMT"
VALIDATORS = ("etag", "last-modified", "content-md5", "digest", "repr-digest", "age")


@pytest.mark.parametrize("audience", ["facilities", "public"])
@pytest.mark.parametrize("path", ASKED)
def test_an_answer_of_the_interface_has_no_tag_and_is_not_kept(browser: httpx.Client, path: str, audience: str) -> None:
    answer = browser.get(path.format(audience), headers={"if-none-match": "*", "if-modified-since": LATER})
    assert answer.status_code != 304
    assert not [name for name in VALIDATORS if name in answer.headers]
    assert answer.headers["cache-control"] == "no-store"


def test_a_tag_of_a_page_file_says_nothing_of_releases(folder: Path, tmp_path: Path) -> None:
    """The same for another store, for whoever asks."""
    make_store(tmp_path, last=FIRST + HOUR)
    tags = []
    for where in (folder, tmp_path):
        with served(wanted(where)) as running, running.browser() as browser, running.client() as nobody:
            tags += [
                {path: who.get(path).headers.get("etag") for path in ("/", "/page.js")} for who in (browser, nobody)
            ]
    assert tags[0]["/"]
    assert all(each == tags[0] for each in tags)


@pytest.mark.parametrize("which", [None, 0, 2, 4])
def test_a_secret_is_compared_with_every_token_whichever_it_is(
    which: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:

    stored = [Token(f"t{n}", frozenset(), 9, digest_of(f"secret {n}")) for n in range(5)]
    compared: list[str] = []

    def comparing(one: str, other: str) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr(access, "compare_digest", comparing)
    found = matching(stored, "none" if which is None else f"secret {which}", 1)
    assert (found is None) == (which is None)
    assert compared == [token.digest for token in stored]
