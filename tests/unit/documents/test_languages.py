"""A translation is one file: it has the names, statements and fields of the English one, and the language's rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import connectors
from connectors.documents.template import Figure, Row, Template, Word

PACKAGE = Path(connectors.__file__).parent
ENGLISH = sorted(PACKAGE.rglob("*.en.md"))
OTHERS = sorted(
    other for path in ENGLISH for other in path.parent.glob(path.name.replace(".en.", ".*.")) if other != path
)
STATEMENT, CONDITION, FIELD = r"\[[a-z_0-9]+\.[a-z_0-9]+\]", r"\[[!?][a-z_0-9]+\]", r"\{([a-z_0-9]+)"


def stated(template: Template) -> list[tuple[str, list[str]]]:
    """Return the statements and conditions of a template in their order, with the fields of each."""
    found = (re.match(f"(?:{STATEMENT}|{CONDITION})", line) for line in template.lines)
    return [(each[0], sorted({*re.findall(FIELD, each.string)})) for each in found if each is not None]


def names(template: Template) -> dict[str, set[str]]:
    return {name: {*re.findall(FIELD, text)} for name, text in template.head.items()}


def test_every_document_is_in_german() -> None:
    assert [path.name for path in OTHERS] == [path.name.replace(".en.", ".de.") for path in ENGLISH]
    assert len(OTHERS) == 3


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.name)
def test_a_translation_has_the_statements_fields_and_names_of_the_english_document(path: Path) -> None:
    stem, language, _ = path.name.split(".")
    there, english = Template.read(path), Template.read(path.with_name(f"{stem}.en.md"))
    assert there.head["language"] == language
    assert stated(there) == stated(english)
    assert names(there) == names(english)
    assert len(there.lines) == len(english.lines)
    assert [line.count("⟦") for line in there.lines] == [line.count("⟦") for line in english.lines]
    assert [line.count(" | ") for line in there.lines] == [line.count(" | ") for line in english.lines]


def filled(language: str, line: str, **fields: object) -> str:
    template = Template({"language": language, "above": "über"}, (f"[t.x] {line}",))
    return template.fill({"t": [Row("k", fields)]}).partition(" <!--")[0]  # type: ignore[arg-type]


def test_numbers_follow_the_language_and_names_do_not() -> None:
    assert filled("en", "{a}, {b}", a=Figure("0.5"), b="0.5") == "0.5, 0.5"
    assert filled("de", "{a}, {b}", a=Figure("0.5"), b="0.5") == "0,5, 0.5"
    assert filled("de", "{a}", a=(Word("above"), Figure("1.5"))) == "über 1,5"
    assert filled("de", "{a}", a=Word("unknown")) == "unknown"


def test_plurals_follow_the_language() -> None:
    line = "{n} {n?one=a;few=b;other=c}"
    assert [filled("en", line, n=str(n)) for n in (0, 1, 2, 5)] == ["0 c", "1 a", "2 c", "5 c"]
    assert [filled("pl", line, n=str(n)) for n in (1, 2)] == ["1 a", "2 b"]
