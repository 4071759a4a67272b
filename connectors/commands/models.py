"""A question's model: one JSON object in a file or on standard input, read strictly, and its answer printed.

A key given twice, a literal that is no number, an unknown or a missing entry are refused by name, with exit code 2.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
import orjson

from stream.errors import UsageError
from stream.schemas import json_float

Model = dict[str, Any]
Answer = dict[str, Any]

#: A direction that is not known may be left out or written as null.
_MAY_BE_NULL = ("backward", "forward")

MODEL = click.argument("model", metavar="FILE|-", type=click.Path(allow_dash=True, dir_okay=False))
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class ModelError(click.ClickException):
    """The model cannot be used; the message names the entry and the rule."""

    exit_code = 2


def _refuse(message: str) -> NoReturn:
    raise ModelError(message)


def _read(path: str) -> Model:
    """Return the JSON object in a file, or on standard input for ``-``."""
    try:
        text = click.get_text_stream("stdin").read() if path == "-" else Path(path).read_text("utf-8")
        model = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_Literal, parse_int=_integer, parse_float=_decimal
        )
    except (OSError, UnicodeDecodeError) as error:
        _refuse(f"{path}: cannot be read: {error}")
    except RecursionError:
        _refuse(f"{path}: is nested too deeply")
    except json.JSONDecodeError as error:
        _refuse(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}")
    if not isinstance(model, dict):
        _refuse(f"{path}: must be one JSON object")
    return model


def _unique(pairs: list[tuple[str, Any]]) -> Model:
    found: Model = {}
    for key, value in pairs:
        if key in found:
            _refuse(f"{_quoted(key)} is given twice")
        found[key] = value
    return found


class _Literal(str):
    """A literal that is no number (NaN, Infinity) or that no double holds: refused where it stands, by name."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _integer(literal: str) -> int | _Literal:
    return int(literal) if len(literal) < sys.float_info.max_10_exp else _Literal(literal)


def _decimal(literal: str) -> float | _Literal:
    value = float(literal)
    return _Literal(literal) if math.isinf(value) else value


def _quoted(key: str) -> str:
    """Return a key as it stands in JSON, shortened: no control character reaches the screen."""
    return json.dumps(key if len(key) <= 60 else f"{key[:57]}...")


def answer_of(
    ask: Callable[..., Answer],
    path: str,
    required: tuple[str, ...],
    optional: tuple[str, ...] = (),
    **options: object,
) -> Answer:
    """Call a question with the fields of the model; refuse unknown and missing ones by name."""
    fields = (*required, *optional)
    model = _read(path)
    for key in model:
        if key not in fields:
            _refuse(f"{path}: unknown entry {_quoted(key)}; known are {', '.join(fields)}")
        if model[key] is None and key not in _MAY_BE_NULL:
            _refuse(f'{path}: the entry "{key}" must not be null')
    missing = [name for name in required if name not in model]
    if missing:
        _refuse(f'{path}: the entry "{missing[0]}" is missing')
    try:
        return ask(**model, **options)
    except UsageError as error:
        raise ModelError(f"{path}: {error}") from None


def _plain(value: Any) -> Any:
    """Return an answer with infinities as the string "inf"."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return json_float(value) if isinstance(value, float) else value


def print_json(answer: Answer) -> None:
    """Print an answer as one line of JSON."""
    click.echo(orjson.dumps(_plain(answer)).decode())
