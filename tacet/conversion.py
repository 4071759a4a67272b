"""Conversions of released JSON objects: to typed records, and to a pandas frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from pydantic import ValidationError

from connectors.subscribe.nodes import NodeValue, counted_in, node_values
from connectors.subscribe.order import Release
from connectors.subscribe.subscriber import Origin, releases
from stream.errors import OPTIONAL, DataError, UsageError
from stream.schemas import AttributeRecord, CountRecord, ForecastRecord, PeopleRecord, ThresholdRecord, parse_time

if TYPE_CHECKING:
    import pandas as pd

PrivateRecord = CountRecord | ThresholdRecord | PeopleRecord | ForecastRecord | AttributeRecord
"""What an audience reads of a window: counts, a query of them, decisions, people, a forecast; or one attribute of a
zone's day."""
_BY_FIELD: dict[str, type[PrivateRecord]] = {
    "attribute": AttributeRecord, "above": ThresholdRecord, "forecast": ForecastRecord,
}  # fmt: skip
"""Field by which a record other than of counts and people is recognised -> its type."""


def typed(release: Mapping[str, Any]) -> PrivateRecord:
    """Return a release as a typed record; fields that this version does not know are dropped.

    Raises:
        DataError: not a private release; the message names the first wrong field, never its value.
    """
    otherwise = PeopleRecord if counted_in(release) == "people" else CountRecord
    model = next((kind for name, kind in _BY_FIELD.items() if name in release), otherwise)
    try:
        return model.model_validate(release)
    except ValidationError as problem:
        place = ".".join(map(str, problem.errors()[0]["loc"]))
        msg = f"record: must be a private release, {place} is missing or wrong"
        raise DataError(msg) from None


COLUMNS = (
    "site", "release", "node", "window_start", "window_end", "value", "low", "high", "half_width", "kind",
    "released", "reason", "revised", "coverage",
    "bounded_to",
)  # fmt: skip
_Key = tuple[str, str, str]
"""Site, release and window end."""


def frame(
    *, since: str | None = None, until: str | None = None, revised: bool = True, **source: Unpack[Origin]
) -> pd.DataFrame:
    """Return an audience's present counts and estimates of people, sorted by site, release, node and window.

    Columns: ``site``, ``release``, ``node`` (``zone:2011``, ``floor:2``, ``building``); ``window_start`` and
    ``window_end`` in UTC; ``value``, and the ends ``low`` and ``high`` of its 95 % band, in devices (NaN if there is
    none); ``half_width``; ``kind`` of the band (``noise`` or ``posterior``; ``people`` for estimates of people, in
    people, with their 90 % band and without a half-width, and ``provisional`` for those whose band promises
    nothing); ``released``, and the ``reason`` if a
    window was denied: it has a row without a value for each node that its release has elsewhere in the frame;
    ``revised``; ``coverage``, a share; ``bounded_to``, for how much of a privacy day a device is counted (``12h``),
    missing if there is no bound.

    Args:
        since: only windows that end after this RFC 3339 time.
        until: only windows that end at this time or before.
        revised: use revised values in place of the first ones, if there are any.
        source: the audience and the source, as in ``subscribe``.

    Raises:
        UsageError: pandas is not installed; a time is malformed; or as for ``subscribe``.
    """
    pandas: Any = _pandas()
    first, last = _time("since", since), _time("until", until)
    records: dict[_Key, Release] = {}
    for record in releases(**source, from_start=True, until_end=True):
        end = parse_time(record["window_end"])
        if "attribute" not in record and (first is None or end > first) and (last is None or end <= last):
            _take(records, record, revised=revised)
    table: pd.DataFrame = pandas.DataFrame(list(_rows(records.values())), columns=list(COLUMNS))
    for name in ("window_start", "window_end"):
        table[name] = pandas.to_datetime(table[name], utc=True)
    for name in ("value", "low", "high", "half_width", "coverage"):
        table[name] = table[name].astype("float64")
    return table.sort_values(["site", "release", "node", "window_end"], ignore_index=True)


def _pandas() -> Any:
    try:
        import pandas  # noqa: ICN001, PLC0415 - only who wants a frame needs it
    except ImportError:
        msg = f"frame: needs pandas; {OPTIONAL}"
        raise UsageError(msg) from None
    return pandas


def _time(name: str, text: str | None) -> int | None:
    try:
        return None if text is None else parse_time(text)
    except ValueError as error:
        msg = f"{name}: {error}, got {text!r}"
        raise UsageError(msg) from None


def _take(records: dict[_Key, Release], record: Release, *, revised: bool) -> None:
    """Store a record under its release and window; a revision, if wanted, replaces the record that it revises."""
    name = record["release"]
    if "revises" in record:
        if not revised:
            return
        name = name.removesuffix("-revised")
    records[record["site"], name, record["window_end"]] = record


def _rows(records: Iterable[Release]) -> Iterator[tuple[Any, ...]]:
    ordered = sorted(records, key=lambda record: not record["released"])  # denied records list no nodes of their own
    nodes: dict[tuple[str, str], dict[str, None]] = {}
    for record in ordered:
        name = record["release"].removesuffix("-revised") if "revises" in record else record["release"]
        values = [*node_values(record)]
        known = nodes.setdefault((record["site"], name), {})
        known |= dict.fromkeys(value.node for value in values)
        yield from (_row(record, name, value.node, value) for value in values)
        if not values:
            yield from (_row(record, name, node, None) for node in known)


def _row(record: Release, name: str, node: str, value: NodeValue | None) -> tuple[Any, ...]:
    numbers = (None, None, None, None) if value is None else value[1:]
    kind = record["half_width_kind"] if numbers[-1] is not None else None
    if value is not None and counted_in(record) == "people":
        kind = "provisional" if "provisional" in record else "people"
    return (
        record["site"], name, node, record["window_start"], record["window_end"], *numbers, kind,
        record["released"], record["reason"], "revises" in record, record["coverage"],
        record.get("bounded_to"),
    )  # fmt: skip
