"""What is published, as contracts that machines read: JSON Schemas of records, and an AsyncAPI document of a policy.

Schemas are made of models: of private records and audit entries those of which records are made, so that they cannot
say anything else; of the account and of sites' metadata those of ``contract_models``. Readers are to skip fields that
they do not know: a later version adds fields, and takes none away. The AsyncAPI document has a channel for each private
topic, and for the account and the metadata, with ``x-privacy``: what its records cost whom. Nothing in either depends
on people, and no address of a site is in them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import orjson
from pydantic import BaseModel

from connectors.reports.contract_models import AccountRecord, SiteMetadata
from connectors.reports.privacy_terms import privacy_terms
from stream.policy.document import Policy
from stream.schemas import LEAKAGE, METADATA, AttributeRecord, AuditEntry, CountRecord, ThresholdRecord, private_topic

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ASYNCAPI = "3.0.0"
VERSION = "1.0.0"
"""Of what contracts say, and how; that of the records is in their ``v`` and in the topics' names."""
MODELS: Mapping[str, type[BaseModel]] = {
    "count-record": CountRecord, "attribute-record": AttributeRecord,
    "threshold-record": ThresholdRecord, "audit-entry": AuditEntry,
    "account-record": AccountRecord, "site-metadata": SiteMetadata,
}  # fmt: skip
"""Name of a schema -> the model of its records."""
_TIMES = ("window_start", "window_end")
_DECIMALS = ("epsilon", "spend", "delta")
_DECIMAL = r"^[0-9]+(\.[0-9]+)?$"
_PRIVATE = ("count-record", "attribute-record", "threshold-record")
_SENT = (*_PRIVATE, "account-record", "site-metadata")
"""Whose topics the AsyncAPI document describes; that of the audit is its auditors' alone."""
_HEADERS = ("content-type", "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "ce_subject")


def contract_files(policy: Policy, audiences: Collection[str] = ()) -> dict[str, bytes]:
    """Return all documents by the names of their files: the schemas, and one AsyncAPI document of the policy.

    Args:
        policy: whose topics are described.
        audiences: only topics of these; all where there are none.
    """
    documents = {f"{name}.schema.json": record_schema(name) for name in MODELS}
    documents["asyncapi.json"] = asyncapi(policy, audiences)
    return {name: orjson.dumps(each, option=orjson.OPT_INDENT_2) + b"\n" for name, each in documents.items()}


# --- schemas ------------------------------------------------------------------------------------------


def record_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a record of ``MODELS``."""
    return {"$schema": DIALECT, "$id": f"tacet:{name}:v1"} | _schema(MODELS[name])


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    made, words = model.model_json_schema(mode="serialization"), _words(model)
    made = _inlined(made, made.get("$defs", {}))
    fields = {name: _field(name, field, words) for name, field in made["properties"].items()}
    version = {"const": 1, "description": "version of the format"}
    return {
        "title": model.__name__,
        "description": inspect.cleandoc(model.__doc__ or ""),
        "type": "object",
        "properties": {"v": version} | fields,
        "required": ["v", *(name for name, field in model.model_fields.items() if field.is_required())],
    }


def _field(name: str, made: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """Return a field's schema with what its type does not say."""
    own: dict[str, Any] = {"description": words[name]} if name in words else {}
    if name in _TIMES:
        own["format"] = "date-time"
    if name in _DECIMALS:
        own["pattern"] = _DECIMAL
    return {**made, **own}


def _inlined(schema: Any, models: Mapping[str, Any]) -> Any:
    """Return a schema with the schemas of other models in the places of references to them, and without titles and
    defaults: what is left out is not there."""
    if isinstance(schema, list):
        return [_inlined(each, models) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = models[schema["$ref"].rpartition("/")[2]] | {k: v for k, v in schema.items() if k != "$ref"}
    if "properties" in schema:  # names of fields, which may be any word
        fields = {name: _inlined(field, models) for name, field in schema["properties"].items()}
        return _inlined({k: v for k, v in schema.items() if k != "properties"}, models) | {"properties": fields}
    return {key: _inlined(each, models) for key, each in schema.items() if key not in {"title", "default", "$defs"}}


def _words(model: type[BaseModel]) -> dict[str, str]:
    """Return what the source says of a model's fields, in the text below each."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)  # noqa: S101
    found = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split()).replace("``", "")
    return found


# --- AsyncAPI -----------------------------------------------------------------------------------------


def asyncapi(policy: Policy, audiences: Collection[str] = ()) -> dict[str, Any]:
    """Return the AsyncAPI document of a policy's topics that are read: what Tacet sends, to whom, at which price.

    That of the account is left out where only some audiences are meant: its readers see every audience's outcomes.
    """
    channels = dict([*_channels(policy, audiences), *_shared_channels(policy, account=not audiences)])
    return {
        "asyncapi": ASYNCAPI,
        "info": {
            "title": "Tacet: private occupancy streams",
            "version": VERSION,
            "description": "Counts and attributes under differential privacy; x-privacy says what each costs whom.",
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": {
            f"send.{name}": {"action": "send", "channel": {"$ref": f"#/channels/{name}"}} for name in channels
        },
        "components": {
            "messages": {name: _message(name) for name in _SENT},
            "messageTraits": {"cloudEvent": {"headers": _event_headers()}},
            "schemas": {name: _schema(MODELS[name]) for name in _SENT},
        },
    }


def _channels(policy: Policy, audiences: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for audience, name, terms in privacy_terms(policy):
        if audiences and audience not in audiences:
            continue
        words = f"Release '{name}' as audience '{audience}' is given it; keyed by site."
        topic, record = private_topic(audience, name), _record_of(terms)
        yield f"{audience}.{name}", _channel(topic, words, record, terms)


def _record_of(terms: Mapping[str, Any]) -> str:
    """Return what the records of a private topic are, by its terms."""
    return _PRIVATE[1 if "attributes" in terms else 2 if "threshold" in terms else 0]


def _shared_channels(policy: Policy, *, account: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the channels of what is no audience's own; nothing on them costs more than what was released."""
    if account:
        readers = [audience.name for audience in policy.audience]
        words = "What all releases of a site together have cost; keyed by site. A window's last record is right."
        yield "account", _channel(LEAKAGE, words, "account-record", {"spend": "0", "read_as": readers})
    words = "What sites and zones are called; keyed by site, of which the newest message counts."
    yield "metadata", _channel(METADATA, words, "site-metadata", {"spend": "0"})


def _channel(topic: str, words: str, record: str, terms: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "address": topic,
        "description": words,
        "messages": {"record": {"$ref": f"#/components/messages/{record}"}},
        "bindings": {"kafka": {"topic": topic, "bindingVersion": "0.5.0"}},
        "x-privacy": terms,
    }


def _message(name: str) -> dict[str, Any]:
    """Return the message of a record; those of private topics are CloudEvents."""
    traits = {"traits": [{"$ref": "#/components/messageTraits/cloudEvent"}]} if name in _PRIVATE else {}
    return {
        "name": name,
        "title": MODELS[name].__name__,
        "contentType": "application/json",
        **traits,
        "payload": {"$ref": f"#/components/schemas/{name}"},
        "bindings": {"kafka": {"key": {"type": "string", "description": "the site"}, "bindingVersion": "0.5.0"}},
    }


def _event_headers() -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in _HEADERS}
    properties["ce_id"]["description"] = "release_id: copies of a record have the same"
    properties["ce_time"]["format"] = "date-time"
    return {"type": "object", "properties": properties, "required": list(_HEADERS)}
