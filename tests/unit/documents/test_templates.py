"""A template's words and facts: nothing of a fact becomes Markdown or HTML, and every statement has a name."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from connectors.documents.page import printable
from connectors.documents.template import Row, Template, escaped, outdated, places_to_fill, statements, unnamed
from stream.errors import DataError
from tests.support.hostile_names import HOSTILE_NAMES, as_shown

HEAD = {"language": "en", "title": "A title", "notice": 'Draft, "no" advice'}
LINES = ("# Title", "[rooms.size] * {name} holds {people}.", "[!rooms] * None.", "[?rooms] Some.", "⟦who⟧ acts")
HOSTILE = [
    '<script>alert("1")</script>', "[x](javascript:alert(1))", "**bold**", "a | b", "<!-- rooms.size/b -->",
    "&lt;b&gt;", "`code`", "![i](http://x/y)", "$x$", "~~gone~~", "\\*", "# head", "a\nb\tc", "⟦me⟧",
    *HOSTILE_NAMES,
]  # fmt: skip


def rooms(**people: str) -> dict[str, list[Row]]:
    return {"rooms": [Row(key, {"name": key, "people": number}) for key, number in people.items()]}


def filled(**people: str) -> str:
    return Template(HEAD, LINES).fill(rooms(**people))


class _Parts(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page.partition("<main>")[2].partition("</main>")[0])

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_statement_is_written_for_each_row() -> None:
    text = filled(a="4", b="60")
    assert statements(text) == {"rooms.size/a": "* a holds 4.", "rooms.size/b": "* b holds 60."}
    assert "None." not in text
    assert "Some." in text


def test_an_empty_table_has_words_of_its_own() -> None:
    assert unnamed(filled()) == "# Title\n* None.\n⟦who⟧ acts\n"


def test_marks_for_a_person_are_counted() -> None:
    assert places_to_fill(filled(a="4")) == 1
    assert places_to_fill(filled(a="4").replace("⟦who⟧", "Ms Roe")) == 0


def test_a_field_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError):
        Template(HEAD, ("[rooms.size] {colour}",)).fill(rooms(a="4"))
    with pytest.raises(KeyError):
        Template(HEAD, ("[colours.all] x",)).fill(rooms(a="4"))


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_is_shown_as_it_is(value: str) -> None:
    page = _Parts(printable(Template(HEAD, ("[rooms.size] {name} holds {people}.",)).fill(rooms(a=value)), HEAD))
    assert page.tags == ["p"]
    assert page.text.strip() == f"a holds {as_shown(value).replace('⟦', '(').replace('⟧', ')')}."


def test_a_value_forges_no_statement() -> None:
    assert list(statements(filled(a="<!-- rooms.size/b -->"))) == ["rooms.size/a"]
    assert "\n" not in escaped("a\n[rooms.size] b")


def test_the_row_of_a_table_keeps_its_cells() -> None:
    text = Template(HEAD, ("| a | b |", "|---|---|", "[rooms.row] | {name} | {people} |")).fill(rooms(x="1 | 2"))
    assert _Parts(printable(text, HEAD)).tags.count("td") == 2


def test_the_page_holds_the_notice_for_screen_and_print_and_loads_nothing() -> None:
    page = printable("# A\n\n⟦who⟧", HEAD)
    assert '<p class="notice">Draft, &quot;no&quot; advice</p>' in page
    assert 'content: "Draft, \\"no\\" advice"' in page
    assert "default-src 'none'" in page
    assert "<mark>who</mark>" in page


def test_a_drawing_stands_where_the_document_names_it() -> None:
    page = printable("# A\n\n!figure one\n\nB", HEAD, {"one": "<svg></svg>"}, "p { color: red }")
    assert '</h1>\n<figure tabindex="0"><svg></svg></figure>\n<p>B</p>' in page
    assert "p { color: red }" in page.partition("</style>")[0]


def test_a_document_is_compared_with_the_facts_of_today() -> None:
    before = filled(a="4", b="60").replace("⟦who⟧", "Ms Roe")
    assert outdated(before, filled(a="4", b="60")) == []
    assert outdated(before, filled(a="5", c="7")) == [
        ("rooms.size/a", "* a holds 4.", "* a holds 5."),
        ("rooms.size/b", "* b holds 60.", None),
        ("rooms.size/c", None, "* c holds 7."),
    ]


def test_a_document_without_statements_is_refused() -> None:
    with pytest.raises(DataError, match="comments"):
        outdated("# Anything", filled(a="4"))


def test_a_template_file_has_a_head(tmp_path: Path) -> None:
    (tmp_path / "t.md").write_text("---\nlanguage: en\ntitle: A: b\n---\n# T\n\n---\n\nB\n")
    template = Template.read(tmp_path / "t.md")
    assert template == Template({"language": "en", "title": "A: b"}, ("# T", "", "---", "", "B")), "a rule is no end"


def test_a_text_of_the_head_is_one_line_without_markup() -> None:
    template = Template(HEAD | {"subject": "{name}: {people} in it"}, ())
    assert template.text("subject", {"name": "a | b", "people": ("4", "5")}) == "a | b: 4 5 in it"
    assert "\n" not in template.text("subject", {"name": "a\nb", "people": "4"})


def test_html_in_a_completed_document_is_shown() -> None:
    assert "<b>" not in printable("# A\n\n<b>x</b>\n\n<img src=x>", HEAD).partition("<main>")[2]
