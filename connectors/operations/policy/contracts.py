"""Machine-readable contracts: JSON Schemas of records, and an AsyncAPI document.

Schemas are generated from models: for private records and audit entries from the models that make the records, so that
the two cannot differ; for the account and sites' metadata from the models in this module, against which tests check the
records. Readers must skip unknown fields: a later version adds fields and removes none. The AsyncAPI document has a
channel for each private topic, and for the account and the metadata, with ``x-privacy``: what its records cost which
privacy unit. Neither document depends on people or contains an address of a site.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.policy.document import Release
from stream.policy.fields import decimal_string
from stream.policy.people import People
from stream.policy.thresholds import ThresholdRelease
from stream.records import SECOND, JsonObject
from stream.release.forecasts import BAND as FORECAST_BAND
from stream.release.prices import RunPrice
from stream.release.validation import Policy
from stream.schemas import (
    LEAKAGE,
    METADATA,
    RECORD_KINDS,
    AttributeRecord,
    AuditEntry,
    CountRecord,
    ForecastRecord,
    PeopleRecord,
    ThresholdRecord,
    event_type,
    private_topic,
)

# Models of the topics that belong to no audience: the account and the metadata of sites and zones.

Epsilon = Annotated[str, Field(pattern=r"^([0-9]+(\.[0-9]+)?|inf)$")]
"""A decimal string; ``inf`` where there is no bound."""
Factor = float | Literal["inf"] | None
Factors = dict[str, Factor]
"""By reader."""


class _Described(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class Tight(_Described):
    """An epsilon that holds together with its delta."""

    epsilon: float | None
    """Null where there is none."""
    delta: float


class Units(_Described):
    """What each privacy unit has cost a reader, in epsilons."""

    presence_tuple: Epsilon
    """One device at one tick, there or not."""
    tuple_moved: Epsilon
    observation: Epsilon
    """One trap, there or not."""
    observation_moved: Epsilon
    device_w_event: Epsilon
    """One device over the last w windows."""
    device_w_event_moved: Epsilon
    person_w_event: Epsilon
    device_day: Epsilon
    """One device's day so far."""
    device_day_moved: Epsilon
    person_day: Epsilon
    device_total: Epsilon
    """Since the ledger began."""
    person_total: Epsilon
    tight: dict[str, Tight]
    """By unit, of those that add over time or have no epsilon without a delta."""
    temporal: float | Literal["inf"] = 0.0
    """Only where the policy says how people move."""
    meeting: float | Literal["inf"] = 0.0
    """Only where the policy says who meets whom."""


class Refused(_Described):
    """What was denied or not asked just now."""

    release: str
    """Release and audience, with a slash between."""
    reason: str
    attribute: str = ""
    """Only of attributes."""


class Odds(_Described):
    """What an attribute of a zone's day has given away: posterior odds over prior odds, by reader."""

    theorem_1: Factors
    bound: Factors
    exact: Factors = {}
    """Only under a declared model; null where it calls the outcomes impossible."""
    with_counts: Factors


class Habit(_Described):
    """The odds factor of somebody whose value was sensitive on each day so far."""

    days: int
    factor: Factor


class Information(_Described):
    """Bits that a release gives about a zone's day on average."""

    bits: float
    target: float = 0.0
    """Only where the policy names one."""


class AccountRecord(_Described):
    """What all releases of a site together have cost, after one of them."""

    site: str
    window_end: str
    kind: Literal["counts", "attributes"]
    audiences: dict[str, Units]
    coalition: Units | None
    """All audiences together."""
    left: dict[str, int]
    """By release and audience with a daily budget: how many windows more it pays."""
    refused: list[Refused]
    attributes: dict[str, Odds]
    """By day, zone and attribute, with slashes between; empty after counts."""
    habit: dict[str, dict[str, Habit]] = {}
    """After attributes: by release and attribute, then by reader."""
    information: dict[str, dict[str, Information]] = {}
    """After attributes with a model: by release, then by reader."""
    policy_version: str
    laboratory: bool


class ZoneMetadata(_Described):
    """A zone, and what building systems call it."""

    zone: str
    floor: str
    kind: str
    capacity: int
    metadata: JsonObject
    """Names of the policy's own: name, brick, rec, bacnet and others."""


class FloorMetadata(_Described):
    """A floor."""

    floor: str
    name: str


class SiteMetadata(_Described):
    """A site and its zones; no address, and nothing that depends on people. The newest message of a site counts."""

    site: str
    name: str
    timezone: str
    tick_seconds: int
    zones: list[ZoneMetadata]
    floors: list[FloorMetadata] | None = None
    """All floors from the bottom up; absent where no file of names lists them."""


# The costs of each private topic's records according to the policy: the ``x-privacy`` of a contract.

PrivacyTerms = JsonObject


def privacy_terms(policy: Policy) -> Iterator[tuple[str, str, PrivacyTerms]]:
    """Yield (audience, name of the topic's release, costs) of each private topic, in the policy's order.

    Prices are decimal strings. ``unit`` is what one epsilon pays for: ``window``, any ``w_windows``, ``device_day``, or
    ``zone_day`` of each attribute. ``free_with`` marks what is computed from released values only.
    """
    for release in policy.release:
        if isinstance(release, AttributeRelease):
            yield from _attribute_topics(policy, release)
        elif isinstance(release, CountRelease):
            yield from _count_topics(policy, release)
        else:
            yield from ((who, release.name, _decided(policy, release, who)) for who in release.audiences)


def _sites(policy: Policy, release: Release) -> dict[str, dict[str, int | str]]:
    return {
        name: {"tick_seconds": site.tick // SECOND, "window_seconds": site.tick // SECOND, "timezone": site.timezone}
        for name, site in policy.site.items()
        if policy.zones_of(release, name)
    }


def _attribute_topics(policy: Policy, release: AttributeRelease) -> Iterator[tuple[str, str, PrivacyTerms]]:
    for audience in dict.fromkeys(name for each in release.attributes.values() for name in each.epsilon):
        yield audience, release.name, {
            "unit": "zone_day", "mechanism": release.mechanism, "delta": "0", "sites": _sites(policy, release),
            "absent": release.absent,
            "attributes": {
                name: {
                    "epsilon": decimal_string(each.epsilon[audience]),
                    "sensitive": each.sensitive.model_dump(exclude_none=True),
                }
                for name, each in release.attributes.items() if audience in each.epsilon
            },
        }  # fmt: skip


def _count_topics(policy: Policy, release: CountRelease) -> Iterator[tuple[str, str, PrivacyTerms]]:
    for audience, epsilon in release.epsilon.items():
        terms = _count_terms(policy, release, audience, epsilon)
        yield audience, release.name, terms
        free = terms | {"free_with": release.name}
        if release.revise:
            yield audience, release.revised_name, free | {"revised": list(release.revise)}
        for query in release.queries:
            yield audience, query.name, free | {"query": query.model_dump(exclude_none=True, exclude={"name"})}
        for people in policy.people_of(release, audience):
            yield audience, people.release_name, free | {"people": _people_terms(people)}
        for forecast in policy.forecasts_of(release, audience)[:1]:
            yield audience, forecast.release_name, free | {"forecast": {"band": FORECAST_BAND}}


def _people_terms(people: People) -> JsonObject:
    """Return what a stream of people is computed by, and what its ground truth cost."""
    truth = people.model.truth
    cost = {"public": True} if truth.public else {"unit": "one person at one window", "epsilon": truth.epsilon}
    terms = {"model": people.digest, "band": people.model.band, "truth": cost}
    given = people.model.provisional
    return terms if given is None else terms | {"provisional": given.model_dump(mode="json")}


def _count_terms(policy: Policy, release: CountRelease, audience: str, epsilon: Fraction) -> PrivacyTerms:
    unit = "device_day" if release.by_day else "w_windows" if release.w else "window"
    sites = _sites(policy, release)
    terms: PrivacyTerms = {
        "unit": unit, "epsilon": decimal_string(epsilon), "delta": _delta(policy, release),
        "mechanism": release.mechanism, "noise": release.noise, "levels": list(release.levels_up),
        "sites": sites,
    }  # fmt: skip
    if release.by_changes:
        terms["count"] = release.count
    if release.by_day:
        terms |= _bounds(policy, sites, changes=release.by_changes)
    if release.w:
        terms["w"] = release.w
    if audience in release.daily_budget:
        terms["budget"] = {"days": release.refresh_days, "epsilon": decimal_string(release.daily_budget[audience])}
    return terms


def _decided(policy: Policy, release: ThresholdRelease, audience: str) -> PrivacyTerms:
    """Return the terms of decisions: the cost of a run and the maximal cost of a day, or the counts that make them
    free."""
    sites = _sites(policy, release)
    terms = {"alert": release.alert, "level": release.level, "miss": decimal_string(release.miss)}
    counts_release = next((r for r in policy.release if r.name == release.counts and isinstance(r, CountRelease)), None)
    if counts_release is not None:
        counts = _count_terms(policy, counts_release, audience, counts_release.epsilon[audience])
        return counts | {"free_with": counts_release.name, "threshold": terms | {"sites": sites}}
    prices = {site: RunPrice.of(policy, release, site) for site in sites}
    return {
        "unit": "device_day", "mechanism": release.mechanism, "delta": "0", "sites": sites,
        "epsilon": decimal_string(max(price.day for price in prices.values())), "threshold": terms,
        "runs": {
            site: {"epsilon": decimal_string(price.run), "most_a_day": price.most} for site, price in prices.items()
        },
    } | _bounds(policy, prices)  # fmt: skip


def _bounds(policy: Policy, sites: Iterable[str], *, changes: bool = False) -> PrivacyTerms:
    """Return for how much of a privacy day a device is counted, by site; nothing for sites without a bound."""
    texts = {site: policy.site[site].bound_text(changes=changes) for site in sites}
    bounds = {site: bound for site, bound in texts.items() if bound is not None}
    return {"bounded_to": bounds} if bounds else {}


def _delta(policy: Policy, release: CountRelease) -> str:
    """Return the delta with which epsilon holds; 0 for Laplace noise, whose epsilon is pure."""
    if release.noise == "laplace":
        return "0"
    return decimal_string(release.delta or policy.privacy.delta)


DIALECT = "https://json-schema.org/draft/2020-12/schema"
ASYNCAPI = "3.0.0"
VERSION = "1.0.0"
"""Of what contracts say, and how; that of the records is in their ``v`` and in the topics' names."""
MODELS: Mapping[str, type[BaseModel]] = {
    "count-record": CountRecord, "attribute-record": AttributeRecord,
    "threshold-record": ThresholdRecord, "people-record": PeopleRecord, "forecast-record": ForecastRecord,
    "audit-entry": AuditEntry,
    "account-record": AccountRecord, "site-metadata": SiteMetadata,
}  # fmt: skip
"""Name of a schema -> the model of its records."""
_TIMES = ("window_start", "window_end")
_DECIMALS = ("epsilon", "spend", "delta")
_DECIMAL = r"^[0-9]+(\.[0-9]+)?$"
_PRIVATE = ("count-record", "attribute-record", "threshold-record", "people-record", "forecast-record")
_SENT = (*_PRIVATE, "account-record", "site-metadata")
"""Whose topics the AsyncAPI document describes; that of the audit is its auditors' alone."""
_HEADERS = ("content-type", "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "ce_subject")


def contract_files(policy: Policy, audiences: Collection[str] = ()) -> dict[str, bytes]:
    """Return all documents by file name: the schemas, and one AsyncAPI document of the policy.

    Args:
        policy: the policy whose topics are described.
        audiences: only the topics of these; all if empty.
    """
    documents = {f"{name}.schema.json": record_schema(name) for name in MODELS}
    documents["asyncapi.json"] = asyncapi(policy, audiences)
    return {name: orjson.dumps(each, option=orjson.OPT_INDENT_2) + b"\n" for name, each in documents.items()}


# --- schemas ------------------------------------------------------------------------------------------


def record_schema(name: str) -> JsonObject:
    """Return the JSON Schema (2020-12) of a record of ``MODELS``."""
    return {"$schema": DIALECT, "$id": f"tacet:{name}:v1"} | _schema(MODELS[name])


def _schema(model: type[BaseModel]) -> JsonObject:
    schema, words = model.model_json_schema(mode="serialization"), _words(model)
    schema = _inlined(schema, schema.get("$defs", {}))
    fields = {name: _field(name, field, words) for name, field in schema["properties"].items()}
    version = {"const": 1, "description": "version of the format"}
    return {
        "title": model.__name__,
        "description": inspect.cleandoc(model.__doc__ or ""),
        "type": "object",
        "properties": {"v": version} | fields,
        "required": ["v", *(name for name, field in model.model_fields.items() if field.is_required())],
    }


def _field(name: str, schema: JsonObject, words: Mapping[str, str]) -> JsonObject:
    """Return a field's schema, with its description and constraints that the type does not express."""
    own: JsonObject = {"description": words[name]} if name in words else {}
    if name in _TIMES:
        own["format"] = "date-time"
    if name in _DECIMALS:
        own["pattern"] = _DECIMAL
    return {**schema, **own}


def _inlined(schema: Any, models: JsonObject) -> Any:
    """Return a schema in which references to other models are replaced by their schemas, without titles and
    defaults: absent fields are omitted in records."""
    if isinstance(schema, list):
        return [_inlined(each, models) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = models[schema["$ref"].rpartition("/")[2]] | {k: v for k, v in schema.items() if k != "$ref"}
    if "properties" in schema:  # names of fields, which may equal keywords
        fields = {name: _inlined(field, models) for name, field in schema["properties"].items()}
        return _inlined({k: v for k, v in schema.items() if k != "properties"}, models) | {"properties": fields}
    return {key: _inlined(each, models) for key, each in schema.items() if key not in {"title", "default", "$defs"}}


def _words(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of a model's fields, read from its source."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)  # noqa: S101
    found = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split()).replace("``", "")
    return found


# --- AsyncAPI -----------------------------------------------------------------------------------------


def asyncapi(policy: Policy, audiences: Collection[str] = ()) -> JsonObject:
    """Return the AsyncAPI document of a policy's readable topics: messages, audiences and prices.

    The account is left out if only some audiences are selected: its readers see every audience's outcomes.
    """
    channels = dict([*_channels(policy, audiences), *_shared_channels(policy, account=not audiences)])
    return {
        "asyncapi": ASYNCAPI,
        "info": {
            "title": "Tacet: private occupancy streams",
            "version": VERSION,
            "description": "Counts of devices, people estimated from them, and attributes, under differential privacy; "
            "x-privacy states what each topic costs each audience.",
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


def _channels(policy: Policy, audiences: Collection[str]) -> Iterator[tuple[str, JsonObject]]:
    for audience, name, terms in privacy_terms(policy):
        if audiences and audience not in audiences:
            continue
        words = f"Release '{name}' for audience '{audience}'; keyed by site."
        topic, record = private_topic(audience, name), _record_of(terms)
        yield f"{audience}.{name}", _channel(topic, words, record, terms)


def _record_of(terms: PrivacyTerms) -> str:
    """Return the kind of a private topic's records, by its terms."""
    kinds = ("attributes", "threshold", "people", "forecast")
    return _PRIVATE[next((place for place, kind in enumerate(kinds, 1) if kind in terms), 0)]


def _shared_channels(policy: Policy, *, account: bool) -> Iterator[tuple[str, JsonObject]]:
    """Yield the channels that belong to no audience; reading them costs nothing beyond the releases."""
    if account:
        readers = [audience.name for audience in policy.audience]
        words = "What all releases of a site together have cost; keyed by site. The last record of a window is valid."
        yield "account", _channel(LEAKAGE, words, "account-record", {"spend": "0", "read_as": readers})
    words = "Names of sites and zones; keyed by site. The newest message of a site is valid."
    yield "metadata", _channel(METADATA, words, "site-metadata", {"spend": "0"})


def _channel(topic: str, words: str, record: str, terms: PrivacyTerms) -> JsonObject:
    return {
        "address": topic,
        "description": words,
        "messages": {"record": {"$ref": f"#/components/messages/{record}"}},
        "bindings": {"kafka": {"topic": topic, "bindingVersion": "0.5.0"}},
        "x-privacy": terms,
    }


def _message(name: str) -> JsonObject:
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


def _event_headers() -> JsonObject:
    properties: dict[str, JsonObject] = {name: {"type": "string"} for name in _HEADERS}
    properties["ce_id"]["description"] = "release_id: copies of a record have the same"
    properties["ce_type"]["enum"] = [event_type(kind) for kind in RECORD_KINDS]
    properties["ce_time"]["format"] = "date-time"
    return {"type": "object", "properties": properties, "required": list(_HEADERS)}
