"""A store whose outboxes contain given records, for tests of readers; no engine is needed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from connectors.storage.embedded.outboxes import Outboxes, OutboxRecord
from stream.records import MINUTE, Micros
from stream.schemas import CountRecord, parse_time, rfc3339

NOON = parse_time("2026-03-02T12:00:00Z")


def count(
    number: int, values: dict[str, int] | None, *, site: str = "dbh", release: str = "occupancy", **more: Any
) -> dict[str, Any]:
    """The record of the window that ends ``number`` times 5 min after noon; of None one that was denied."""
    end = NOON + 5 * number * MINUTE
    width = more.pop("half_width", 3)
    record = CountRecord(
        release_id=f"{site}/{release}/public/{rfc3339(end)}", site=site, audience="public", release=release,
        window_start=rfc3339(end - 5 * MINUTE), window_end=rfc3339(end), values=values, released=values is not None,
        reason=None if values is not None else "budget", mechanism="filter", epsilon="0.1",
        spend="0.1" if values is not None else "0", noise_scale=dict.fromkeys(values or {}, 10.0),
        half_width_95=None if values is None else dict.fromkeys(values, width), half_width_kind="posterior",
        coverage=1.0, policy_version="0" * 16, laboratory=True,
    )  # fmt: skip
    return {"v": 1} | record.model_dump(mode="json", exclude_unset=True) | more


def give(store: Path, records: Iterable[dict[str, Any]], audience: str = "public") -> Path:
    """Put records into an audience's outbox, behind what is there."""
    with closing(Outboxes(store / "private")) as boxes:
        boxes.prepare([audience])
        boxes.append(audience, [_given(record) for record in records])
    return store


def _given(record: dict[str, Any]) -> OutboxRecord:
    end: Micros = parse_time(record["window_end"])
    return OutboxRecord(record["release_id"], record["release"], record["site"], end // 1000, orjson.dumps(record))
