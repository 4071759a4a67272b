"""Messages for invalid values of a policy or a setting.

pydantic finds the errors. This module chooses the words by the kind of error, so that an author of a policy does not
have to know the terms of a library.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]
"""The keys and indices that lead to a value."""
MOST_REPORTED = 5
LONGEST_SHOWN = 60
KIND = 2
"""Index of the part of an error's location, within a release, that names the kind of release; it is not a key."""

_WORDS = {
    "missing": "must be given",
    "literal_error": "must be {expected}",
    "union_tag_invalid": "must be {expected_tags}",
    "union_tag_not_found": "must be given",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} in its list",
    "too_long": "must have at most {max_length} in its list",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "finite_number": "must be a finite number",
}
_KINDS = (
    ("bool", "must be true or false"),
    ("string", "must be text in quotes"),
    ("int", "must be a whole number"),
    ("float", "must be a number"),
    ("tuple", "must be a list"),
    ("list", "must be a list"),
    ("dict", "must be a table"),
    ("model", "must be a table"),
    ("path", "must be a path"),
)
_BARE = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_SHOWN}}}")
"""A key that TOML accepts without quotes; any other key is shown like a value."""
_HEADER = re.compile(r"\s*\[\[\s*(.+?)\s*\]\]\s*(?:#.*)?")


def refusals(
    problems: Sequence[ErrorDetails], model: type[BaseModel], document: Mapping[str, Any], text: str, of: str = "policy"
) -> list[str]:
    """Return a sentence for each of the first problems of a document: key, rule and value.

    ``text`` is the TOML source of ``document``; it gives the lines of tables in lists. ``of`` says what the
    document is.
    """
    return [_sentence(problem, model, document, text, of) for problem in _causes(problems)[:MOST_REPORTED]]


def rule_of(problem: ErrorDetails) -> str:
    """Return the rule that a value broke."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "value_error":
        rule = str(context["error"])
        return f"{rule[0].lower()}{rule[1:]}"
    words = _WORDS.get(kind)
    if words is not None:
        return words.format(**context)
    return next((rule for begin, rule in _KINDS if kind.startswith(begin)), "must have another form")


def shown(value: object) -> str:
    """Return a value for a message, shortened if it is long; an empty text for tables and lists."""
    if isinstance(value, dict | list | tuple | BaseModel):
        return ""
    try:
        text = repr(value) if isinstance(value, str | int | float) else str(value)
    except ValueError:  # Python formats no number of more than 4,300 digits
        text = "a number of thousands of digits"
    return f", got {_cut(text)}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


def _sentence(problem: ErrorDetails, model: type[BaseModel], document: Mapping[str, Any], text: str, of: str) -> str:
    place = problem["loc"]
    where = _place(place, document, text) or of
    if problem["type"] == "extra_forbidden":
        return f"{where}: is no key that a {of} has{_nearest(place, model)}"
    if problem["type"].startswith("union_tag"):
        where = _place((*place, KIND, "query"), document, text)
        value = shown(problem["ctx"]["tag"]) if "tag" in problem["ctx"] else ""
    else:
        value = "" if problem["type"] == "missing" else shown(problem["input"])
    if place[-1:] == ("[key]",):
        where = _place(place[:-1], document, text)
    return f"{where}: {rule_of(problem)}{value}"


def _causes(problems: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Omit the problem that a list is too short if the only reason is that its entries are invalid."""
    return [
        problem
        for problem in problems
        if problem["type"] != "too_short" or not any(_within(other["loc"], problem["loc"]) for other in problems)
    ]


def _within(place: Location, whole: Location) -> bool:
    return len(place) > len(whole) and place[: len(whole)] == whole


# --- where --------------------------------------------------------------------------------------------


def _place(parts: Location, document: Mapping[str, Any], text: str) -> str:
    """Return the key so that a reader finds it: ``site.dbh.zones[3].capacity (id '2065', line 41)``."""
    report, value, known = "", document, []
    for number, part in enumerate(parts):
        if number == KIND and parts[0] == "release":
            continue
        entries, value = value, _entry(value, part)
        if isinstance(part, int):
            known += _known(entries, value, re.sub(r"\[[0-9]+\]", "", report), part, text)
            report += f"[{part}]"
        else:
            key = part if _BARE.fullmatch(part) else _cut(repr(part))
            report += f".{key}" if report else key
    return f"{report} ({', '.join(known)})" if known else report


def _entry(value: Any, part: str | int) -> Any:
    try:
        return value[part]
    except (KeyError, IndexError, TypeError):
        return None


def _known(entries: Any, entry: Any, path: str, number: int, text: str) -> list[str]:
    """Return the name and the line of a table in a list, if they are known."""
    if not isinstance(entry, dict):
        return []
    known = [f"{key} {_cut(repr(entry[key]))}" for key in ("id", "name") if isinstance(entry.get(key), str)][:1]
    lines = [at for at, line in enumerate(text.splitlines(), start=1) if _is_header(line, path)]
    if len(lines) == len(entries):  # otherwise some tables are written in another syntax
        known.append(f"line {lines[number]}")
    return known


def _is_header(line: str, path: str) -> bool:
    header = _HEADER.fullmatch(line)
    return header is not None and re.sub(r"""\s|["']""", "", header[1]) == re.sub(r"""\s|["']""", "", path)


# --- which keys there are -----------------------------------------------------------------------------


def _nearest(place: Location, model: type[BaseModel]) -> str:
    keys = {name for found in _models_at(place[:-1], model) for name in found.model_fields}
    near = difflib.get_close_matches(str(place[-1]).lower(), sorted(keys), n=1)
    if near:
        return f", perhaps {near[0]!r} is meant"
    return f"; these are: {', '.join(sorted(keys))}" if keys else ""


def _models_at(place: Location, model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the possible models of a table at this location."""
    found: list[Any] = [model]
    for number, part in enumerate(place):
        if number == KIND and place[0] == "release":
            found = [model_type for model_type in found if part in _queries(model_type)]
        else:
            found = [step for model_type in found for step in _step(model_type, part)]
    return [model_type for model_type in found if isinstance(model_type, type) and issubclass(model_type, BaseModel)]


def _queries(model: Any) -> tuple[Any, ...]:
    query = model.model_fields.get("query") if isinstance(model, type) and issubclass(model, BaseModel) else None
    return () if query is None else get_args(query.annotation)


def _step(model_type: Any, part: str | int) -> Iterator[Any]:
    """Yield the types of the value at a key or index of a type."""
    if isinstance(model_type, type) and issubclass(model_type, BaseModel):
        if part in model_type.model_fields:
            yield from _unwrapped(model_type.model_fields[str(part)].annotation)
    elif get_origin(model_type) is dict:
        yield from _unwrapped(get_args(model_type)[1])
    elif get_origin(model_type) in {tuple, list} and isinstance(part, int):
        yield from _unwrapped(get_args(model_type)[0])


def _unwrapped(annotation: Any) -> Iterator[Any]:
    """Yield the types of an annotation, without their metadata."""
    if get_origin(annotation) is Annotated:
        yield from _unwrapped(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, UnionType}:
        for each in get_args(annotation):
            yield from _unwrapped(each)
    else:
        yield annotation
