"""The OpenAPI document, and the page at ``/docs`` that shows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from connectors.serve.models import Refusal
from stream.records import JsonObject

_REFUSED = {
    "description": "Refused.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
}
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the API."""

    method: str
    path: str
    handler: Handler
    answer: type[BaseModel] | None = None
    """None: no content, status 204."""
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    open: bool = False
    """Whether it needs no role."""
    media: tuple[str, ...] = ("application/json",)

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (self.handler.__doc__ or "").partition("\n")[0]


def document(operations: Iterable[Operation], cookie: str) -> JsonObject:
    """Return the OpenAPI document of some operations; ``cookie`` is the name of the service's session cookie."""
    operations = list(operations)
    models = {model for op in operations for model in (op.answer, op.query, op.body) if model is not None} | {Refusal}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, schemas = models_json_schema(
        [(model, "validation") for model in ordered], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, JsonObject] = {}
    for op in operations:
        paths.setdefault(op.path, {})[op.method.lower()] = _described(op, schemas["$defs"])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tacet", "version": version("tacet-occupancy"),
            "description": "Private occupancy: released records, their history, and their privacy guarantees.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": cookie},
            },
        },
    }  # fmt: skip


def _described(op: Operation, schemas: JsonObject) -> JsonObject:
    path = [_parameter(name, "path", {"type": "string"}, needed=True) for name in _names_in(op.path)]
    query = [] if op.query is None else list(_query(schemas[op.query.__name__]))
    described: JsonObject = {
        "operationId": op.handler.__name__,
        "summary": op.summary,
        "parameters": path + query,
        "responses": {("204" if op.answer is None else "200"): _answered(op), "default": _REFUSED},
        "security": [] if op.open else [{"token": []}, {"session": []}],
    }
    if op.body is not None:
        schema = {"$ref": f"#/components/schemas/{op.body.__name__}"}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described


def _answered(op: Operation) -> JsonObject:
    if op.answer is None:
        return {"description": "Done."}
    schema = {"$ref": f"#/components/schemas/{op.answer.__name__}"}
    content = {media: {"schema": schema if media == "application/json" else {}} for media in op.media}
    return {"description": op.summary, "content": content}


def _query(schema: JsonObject) -> Iterator[JsonObject]:
    for name, part in schema.get("properties", {}).items():
        parameter = _parameter(name, "query", part, needed=name in schema.get("required", []))
        yield parameter | ({"description": part["description"]} if "description" in part else {})


def _parameter(name: str, place: str, schema: JsonObject, *, needed: bool) -> JsonObject:
    return {"name": name, "in": place, "required": needed, "schema": schema}


def _names_in(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


# --- the page --------------------------------------------------------------------------------------------------------

_REFERENCE = "#/components/schemas/"
_BEGIN = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <meta name="referrer" content="no-referrer">
  <title>HTTP interface · Tacet</title>
  <link rel="icon" href="static/icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="static/theme.css">
  <link rel="stylesheet" href="static/layout.css">
  <link rel="stylesheet" href="static/docs.css">
</head>
<body>
<header class="header">
  <a class="brand" href="./"><img src="static/icon.svg" alt="" width="26" height="26"> Tacet</a>
</header>
<main class="main docs">
<h1>HTTP interface</h1>
<p>Programs send <code>Authorization: Bearer</code> and a token; browsers use the session cookie. Times are RFC 3339. A
refused request returns <a href="#schema-Refusal">Refusal</a>. The same description as
<a href="api/v1/openapi.json">OpenAPI document</a>.</p>
"""


def interface_page(document: JsonObject) -> bytes:
    """Return the page for an OpenAPI document, as HTML; every text is escaped."""
    return "".join(_lines(document)).encode()


def _lines(document: JsonObject) -> Iterator[str]:
    yield _BEGIN
    yield "<h2>Operations</h2>\n"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _operation(method.upper(), path, operation)
    yield "<h2>Schemas</h2>\n"
    for name, schema in document["components"]["schemas"].items():
        yield from _schema(name, schema)
    yield "</main>\n</body>\n</html>\n"


def _operation(method: str, path: str, operation: JsonObject) -> Iterator[str]:
    yield f'<section class="card" id="{escape(operation["operationId"])}">\n'
    yield f"<h3><b>{escape(method)}</b> <code>{escape(path)}</code></h3>\n<p>{escape(operation['summary'])}</p>\n"
    if not operation["security"]:
        yield "<p>No token is needed.</p>\n"
    if operation["parameters"]:
        rows = [
            (f"<code>{escape(each['name'])}</code>", escape(each["in"]), _type(each["schema"]),
             _needed(each["required"]), escape(each.get("description", "")))
            for each in operation["parameters"]
        ]  # fmt: skip
        yield _table("Parameters", ("Name", "In", "Type", "Required", "Description"), rows)
    if body := operation.get("requestBody"):
        yield f"<p>Body: {_media(body['content'])}</p>\n"
    for status, response in operation["responses"].items():
        if status != "default":
            content = response.get("content")
            yield f"<p>Response {escape(status)}: {_media(content) if content else 'no content'}</p>\n"
    yield "</section>\n"


def _schema(name: str, schema: JsonObject) -> Iterator[str]:
    yield f'<section class="card" id="schema-{escape(name)}">\n<h3>{escape(name)}</h3>\n'
    yield f"<p>{escape(schema.get('description', ''))}</p>\n"
    required = schema.get("required", ())
    if fields := schema.get("properties"):
        rows = [
            (f"<code>{escape(field)}</code>", _type(part), _needed(field in required),
             escape(part.get("description", "")))
            for field, part in fields.items()
        ]  # fmt: skip
        yield _table(name, ("Field", "Type", "Required", "Description"), rows)
    yield "</section>\n"


def _table(label: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; the cells are HTML."""
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    begin = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}"><table class="table">'
    return f"{begin}<thead><tr>{names}</tr></thead>\n<tbody>\n{lines}</tbody></table></div>\n"


def _needed(required: bool) -> str:
    return "yes" if required else ""


def _media(content: JsonObject) -> str:
    shown = (
        f"<code>{escape(media)}</code> {_type(part['schema']) if part.get('schema') else ''}".strip()
        for media, part in content.items()
    )
    return ", ".join(shown)


def _type(schema: JsonObject) -> str:
    """Return a schema's type as HTML, with a link where it has a name."""
    if "$ref" in schema:
        name = escape(str(schema["$ref"]).removeprefix(_REFERENCE))
        return f'<a href="#schema-{name}">{name}</a>'
    for several in ("anyOf", "allOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(each) for each in schema[several])
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in values)
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_type(schema['additionalProperties'])}"
    return escape(kind)
