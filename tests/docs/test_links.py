"""Links between documents lead somewhere, and the README stays a page."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest

from tests.support.documents import DOCUMENTS, ROOT


def anchors(text: str) -> set[str]:
    """Return the anchors that a reader's browser makes of the titles."""
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_leads_to_a_file_and_a_title(name: str) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", DOCUMENTS[name]):
        path = (ROOT / name).parent / target if target else ROOT / name
        assert path.exists(), f"{target} of {name}"
        if anchor:
            assert anchor in anchors(path.read_text()), f"{target}#{anchor} of {name}"


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached, new = set[str](), {"README.md"}
    while new:
        reached |= new
        new = {linked for name in new for linked in linked_from(name)} - reached
    assert set(DOCUMENTS) <= reached


def linked_from(name: str) -> set[str]:
    """Return the documents to which a document links."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", DOCUMENTS.get(name, ""))
    folder = (ROOT / name).parent
    return {PurePosixPath((folder / target).resolve().relative_to(ROOT)).as_posix() for target in targets}


def test_the_readme_is_a_page() -> None:
    assert len(DOCUMENTS["README.md"].splitlines()) <= 200


NAMED = re.compile(r"`([A-Za-z_.]+)` (?:in |\()(?:`((?:stream|connectors)/[^`]*\.py)`|\[[^\]]*\]\(([^)#]*\.py)\))")
"""A name in code, and the module that a document says it is in."""


@pytest.mark.parametrize("name", [name for name, text in DOCUMENTS.items() if NAMED.search(text)])
def test_a_module_defines_the_name_for_which_a_document_refers_to_it(name: str) -> None:
    for symbol, path, link in NAMED.findall(" ".join(DOCUMENTS[name].split())):
        module = (ROOT / path if path else (ROOT / name).parent / link).read_text()
        for part in symbol.split("."):
            assert re.search(rf"^\s*(?:async def|def|class)? ?{part}\b", module, flags=re.MULTILINE), (
                f"{symbol} of {name}"
            )
