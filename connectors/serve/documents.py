"""The service's own description (OpenAPI 3.1): made from the table of operations that also makes its routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from connectors.serve.models import Refusal

PREFIX = "/api/v1"
_REFUSED = {
    "description": "Refused.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
}
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked."""

    method: str
    path: str
    handler: Handler
    answer: type[BaseModel] | None = None
    """None: nothing, status 204."""
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    open: bool = False
    """Whether it is answered without a role."""
    media: tuple[str, ...] = ("application/json",)

    @property
    def summary(self) -> str:
        """What it does, as its handler says."""
        return (self.handler.__doc__ or "").partition("\n")[0]


def document(operations: Iterable[Operation], cookie: str) -> dict[str, Any]:
    """Return the description of some operations, at a service whose sessions have a cookie of this name."""
    operations = list(operations)
    models = {model for op in operations for model in (op.answer, op.query, op.body) if model is not None} | {Refusal}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, schemas = models_json_schema(
        [(model, "validation") for model in ordered], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for op in operations:
        paths.setdefault(op.path, {})[op.method.lower()] = _described(op, schemas["$defs"])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tacet", "version": version("tacet-occupancy"),
            "description": "Private occupancy: released records, their history, and what they promise.",
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


def _described(op: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    path = [_parameter(name, "path", {"type": "string"}, needed=True) for name in _names_in(op.path)]
    query = [] if op.query is None else list(_query(schemas[op.query.__name__]))
    described: dict[str, Any] = {
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


def _answered(op: Operation) -> dict[str, Any]:
    if op.answer is None:
        return {"description": "Done."}
    schema = {"$ref": f"#/components/schemas/{op.answer.__name__}"}
    content = {media: {"schema": schema if media == "application/json" else {}} for media in op.media}
    return {"description": op.summary, "content": content}


def _query(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, held in schema.get("properties", {}).items():
        parameter = _parameter(name, "query", held, needed=name in schema.get("required", []))
        yield parameter | ({"description": held["description"]} if "description" in held else {})


def _parameter(name: str, place: str, schema: dict[str, Any], *, needed: bool) -> dict[str, Any]:
    return {"name": name, "in": place, "required": needed, "schema": schema}


def _names_in(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]
