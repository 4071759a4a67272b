"""Words that were found unclear do not come back: into code, messages or documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import ROOT

RETIRED = {
    r"way of the data": "data flow",
    r"books first": "charge before publishing",
    r"comes? out anew": "is recomputed",
    r"given out": "published, handed out",
    r"hangs? together": "are jointly distributed",
    r"behind one face": "behind one interface",
    r"has been told of": "how far each source has reported",
    r"waits? for company": "batching delay",
    r"keeps? house|housekeeping": "maintenance",
    r"ordered second": "operator-requested re-release",
    r"retell|retold": "rebuild_account",
    r"fault of (this|the) program": "internal error",
    r"refused by budget": "denied",
    r"told only of|are told of days": "published only for",
    r"\.behind\(\)": "has_unreplayed_entries",
    r"chain of noise|chain engine": "noise chain, hash chain: always with its first word",
    r"(tick|window) is refused|refused (tick|window)": "denied",
    r"\b(oldest|has|from|past)_days?\b": "key_day, local_day",
}
"""Pattern -> what is said instead."""
READ = ("stream", "connectors", "tacet", "docs", "deploy", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")


def texts() -> list[Path]:
    """Return the files in which words are looked for."""
    found = [path for name in READ for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))]
    return [path for path in found if path.suffix in {".py", ".md", ".toml", ".properties", ""} and path.is_file()]


@pytest.mark.parametrize("pattern", RETIRED, ids=list(RETIRED.values()))
def test_a_retired_word_is_not_used(pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}"
        for path in texts()
        if (match := re.search(pattern, path.read_text(errors="ignore"), flags=re.IGNORECASE))
    ]
    assert not found, f"say: {RETIRED[pattern]}"


def test_there_is_something_to_read() -> None:
    assert len(texts()) > 150
