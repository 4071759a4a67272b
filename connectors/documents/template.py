"""Markdown documents from a template, which holds all words of one language and no number.

A template is Markdown. It begins with a head of ``name: text`` lines between two lines ``---``. Below it

| line | becomes |
|---|---|
| ``[table.label] text with {field}`` | one line for each row of the table, with the row's fields; none if it is empty |
| ``[!table] text`` | the text if the table is empty, otherwise nothing |
| ``[?table] text`` | the text if the table has rows, otherwise nothing |
| any other | itself |

In a text of the first form, ``{field}`` is the row's field, and ``{field?one=room;other=rooms}`` the form for its
number by the plural rules of the head's ``language``. A ``Figure`` gets the language's decimal sign; a ``Word`` is a
name in the head, whose text is shown.

A line of the first form is a statement: it holds for as long as its facts do. Its name, ``table.label/key``, stands
behind it in a comment. So a document that a person has completed can be compared with the facts of today.

Values are escaped: nothing in a field is read as Markdown or HTML. What only a person can answer is marked in the
template with ``⟦`` and ``⟧``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from babel import Locale

from stream.errors import DataError

OPEN, CLOSE = "⟦", "⟧"
"""Around what only a person can answer."""
FIGURE = "!figure "
"""Begins a line that stands for a drawing, by its name. In a field the mark is escaped."""
_MARKED = re.compile(f"{OPEN}[^{CLOSE}]*{CLOSE}")
_STATEMENT = re.compile(r"\[([a-z_0-9]+)\.([a-z_0-9]+)\] (.*)")
_IF = re.compile(r"\[([!?])([a-z_0-9]+)\] (.*)")
_FIELD = re.compile(r"\{([a-z_0-9]+)(?:\?([^{}]+))?\}")
_NAME = re.compile(r" ?<!-- ([a-z_0-9]+\.[a-z_0-9]+/[^ >]*) -->")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$])")


class Figure(str):
    """A number with a decimal point, or a text instead of one; only its decimal sign depends on the language."""

    __slots__ = ()


class Word(str):
    """A name in the head of a template; a name that the head lacks is shown as it is."""

    __slots__ = ()


Value = str | Sequence[str]
"""A field: a text, a ``Figure``, a ``Word``, or several of them with spaces between."""


class Row(NamedTuple):
    """A row of a table of facts."""

    key: str
    """Names the row within its table, whatever its facts are."""
    fields: Mapping[str, Value]


Tables = Mapping[str, Sequence[Row]]
"""Name -> rows. A table that a template names must exist, even if it is empty."""


@dataclass(frozen=True, slots=True)
class Template:
    """The words of a document in one language."""

    head: Mapping[str, str]
    lines: tuple[str, ...]

    @staticmethod
    def read(path: Path) -> Template:
        """Read a template file."""
        _, head, body = path.read_text(encoding="utf-8").split("---\n", 2)
        pairs = (line.partition(": ") for line in head.splitlines())
        return Template({name: text for name, _, text in pairs}, tuple(body.splitlines()))

    def fill(self, tables: Tables) -> str:
        """Return the document as Markdown. KeyError if a table or a field is missing."""
        return "\n".join(line for each in self.lines for line in self._filled(each, tables)).strip() + "\n"

    def text(self, name: str, fields: Mapping[str, Value]) -> str:
        """Return a text of the head with its fields, as one line of plain text."""
        return self._with(self.head[name], fields, one_line)

    def shown(self, value: Value) -> str:
        """Return a field as this language shows it."""
        if isinstance(value, Figure):
            return value.replace(".", str(self.locale.number_symbols["latn"]["decimal"]))
        if isinstance(value, Word):
            return self.head.get(value, value)
        return value if isinstance(value, str) else " ".join(self.shown(part) for part in value)

    @property
    def locale(self) -> Locale:
        """The rules of the language."""
        return Locale.parse(self.head["language"])

    def _filled(self, line: str, tables: Tables) -> Iterator[str]:
        if found := _IF.fullmatch(line):
            if bool(tables[found[2]]) is (found[1] == "?"):
                yield found[3]
        elif found := _STATEMENT.fullmatch(line):
            table, label, text = found.groups()
            for key, fields in tables[table]:
                shown = self._with(text, fields, escaped)
                yield _named(shown, f"{table}.{label}/{quote(key, safe='/._').replace('-', '%2D')}")
        else:
            yield line

    def _with(self, text: str, fields: Mapping[str, Value], quoted: Callable[[str], str]) -> str:
        def put(found: re.Match[str]) -> str:
            value, forms = fields[found[1]], found[2]
            return quoted(self.shown(value)) if forms is None else self._plural(str(value), forms)

        return _FIELD.sub(put, text)

    def _plural(self, number: str, forms: str) -> str:
        by_form = dict(form.split("=", 1) for form in forms.split(";"))
        return by_form.get(self.locale.plural_form(Decimal(number)), by_form["other"])


def _named(text: str, name: str) -> str:
    """Return a statement with its name behind it; in the row of a table within the last cell."""
    inside, edge = (text[:-2], " |") if text.endswith(" |") else (text, "")
    return f"{inside} <!-- {name} -->{edge}"


def one_line(value: str) -> str:
    """Return a value without what cannot be printed: no line ends, control characters, or marks that turn a text."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in value).split())


def escaped(value: str) -> str:
    """Return a value as one line of Markdown that shows it as it is."""
    plain = one_line(value).replace(OPEN, "(").replace(CLOSE, ")")
    return _SPECIAL.sub(r"\\\1", plain)


def without_figures(document: str) -> str:
    """Return a document without the lines that stand for drawings."""
    return "\n".join(line for line in document.splitlines() if not line.startswith(FIGURE))


def unnamed(document: str) -> str:
    """Return a document without the names of its statements."""
    return _NAME.sub("", document)


def as_text(document: str) -> str:
    """Return a document as plain text: without names, escapes, emphasis, and blank lines in a row."""
    text = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", unnamed(document).replace("**", ""))
    return re.sub(r"\n{3,}", "\n\n", text)


def statements(document: str) -> dict[str, str]:
    """Return the statements of a document by name."""
    lines = ((_NAME.search(line), line) for line in document.splitlines())
    return {found[1]: _NAME.sub("", line).strip() for found, line in lines if found is not None}


def places_to_fill(document: str) -> int:
    """Return how many marks a person has yet to replace."""
    return len(_MARKED.findall(document))


class Outdated(NamedTuple):
    """A statement that is not true any more, or that a document lacks."""

    name: str
    says: str | None
    """Its text in the document; None if the document lacks it."""
    true: str | None
    """Its text by the facts of today; None if nothing of this name holds."""


def outdated(document: str, today: str) -> list[Outdated]:
    """Return the statements in which a document differs from one that was made today, in the document's order.

    Raises:
        DataError: the document has no statement, so it cannot be compared.
    """
    old, new = statements(document), statements(today)
    if not old:
        raise DataError("must be a Markdown document that this command wrote, with the comments after its statements")
    names = dict.fromkeys([*old, *new])
    return [Outdated(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]
