"""README.md, CONTRIBUTING.md and the documents of docs/, with their blocks of code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in FILES}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code."""

    document: str
    language: str
    """The first word beside the fence; it says whether and how the block is run."""
    scenario: str
    """The other words: what must have been run before it, or what it needs."""
    text: str


def blocks(language: str = r"[a-z]+", document: str | None = None) -> list[Block]:
    """Return the blocks of a language, or all, of one document or of all, in their order."""
    fence = re.compile(rf"^```({language})(?![a-z])([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [
        Block(name, found, scenario.strip(), text)
        for name, whole in DOCUMENTS.items()
        if document in (None, name)
        for found, scenario, text in fence.findall(whole)
    ]


def part(name: str) -> str:
    """Return what stands between <!-- name --> and <!-- /name -->, which only one document may have."""
    (text,) = [text for text in DOCUMENTS.values() if f"<!-- {name} -->" in text]
    return text.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]


def section(document: str, title: str) -> str:
    """Return what stands under a title of the second level."""
    return DOCUMENTS[document].partition(f"\n## {title}\n")[2].partition("\n## ")[0]
