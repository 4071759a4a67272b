"""Readers of people: nodes, types, frames, MQTT, Prometheus, contracts, topics, and the service's history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from connectors.operations.policy.contracts import asyncapi, contract_files
from connectors.operations.policy.guarantees import guarantee_lines, people_lines
from connectors.serve.history.local_clock import SiteClock
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.history.rows import RowsQuery
from connectors.serve.policy_description import described_releases
from connectors.sinks.mqtt import discovery, messages
from connectors.sinks.prometheus import LatestReleases
from connectors.storage.kafka.topics import topic_names
from connectors.subscribe.nodes import NodeValue, counted_in, node_values
from stream.policy.people import Truth
from stream.schemas import CountRecord, PeopleRecord, private_topic
from tacet import frame, typed
from tests.support.people_models import model_of, small_policy, with_people
from tests.support.released_store import count, give
from tests.support.small_building import SITE


def people(number: int, values: dict[str, tuple[int, int, int]] | None, **more: Any) -> dict[str, Any]:
    """The record of people of the window that ends ``number`` times 5 min after noon."""
    record = count(number, {}, release="occupancy-people")
    for name in ("noise_scale", "half_width_95", "half_width_kind"):
        del record[name]
    parts: dict[str, Any] = {
        name: None if values is None else {zone: band[place] for zone, band in values.items()}
        for place, name in enumerate(("values", "low", "high"))
    }
    return record | parts | {
        "counted": "people", "unknown": {}, "band": 0.9, "of": count(number, {})["release_id"], "model": "m" * 64,
        "mechanism": "filter/people", "spend": "0", "released": values is not None,
        "reason": None if values is not None else "hour",
    } | more  # fmt: skip


def test_nodes_of_people_have_the_stated_band_and_no_half_width() -> None:
    record = people(1, {"a": (7, 4, 11)}) | {
        "levels": {"floor": {"2": 7}, "building": 9}, "levels_low": {"floor": {"2": 4}, "building": 5},
        "levels_high": {"floor": {"2": 11}, "building": 14},
    }  # fmt: skip
    assert [*node_values(record)] == [
        NodeValue("zone:a", 7, 4, 11, None),
        NodeValue("floor:2", 7, 4, 11, None),
        NodeValue("building", 9, 5, 14, None),
    ]
    assert [*node_values(people(1, None))] == []
    assert (counted_in(record), counted_in(count(1, {"a": 1}))) == ("people", "devices")


def test_a_record_of_people_has_its_own_type() -> None:
    assert isinstance(typed(people(1, {"a": (7, 4, 11)})), PeopleRecord)


def test_a_frame_has_people_beside_devices(tmp_path: Path) -> None:
    give(tmp_path, [count(1, {"a": 12}), people(1, {"a": (7, 4, 11)}), count(2, {"a": 12}), people(2, None)])
    table = frame(store=tmp_path, audience="public")
    rows = table[table.release == "occupancy-people"]
    assert rows[["value", "low", "high", "kind"]].iloc[0].tolist() == [7, 4, 11, "people"]
    assert rows.reason.fillna("").tolist() == ["", "hour"]


def test_a_record_of_logins_is_one_of_counts_to_every_reader(tmp_path: Path) -> None:
    """A site that counts logins names them in the field that says people elsewhere."""
    logins = count(1, {"a": 12}, half_width=3) | {"counted": "logins"}
    read = typed(logins)
    assert isinstance(read, CountRecord)
    assert read.counted == "logins"
    table = frame(store=give(tmp_path, [logins]), audience="public")
    assert table[["value", "low", "high", "kind"]].iloc[0].tolist() == [12, 9, 15, "posterior"]
    assert json.loads(messages("t", logins, {})["t/dbh/zone/a/occupancy"])["counted"] == "logins"
    latest = LatestReleases()
    latest.update(logins)
    found = {sample.name for family in latest.collect() for sample in family.samples if "node" in sample.labels}
    assert found == {"tacet_occupancy", "tacet_occupancy_low", "tacet_occupancy_high"}


def test_mqtt_and_home_assistant_say_that_people_are_counted() -> None:
    found = messages("t", people(1, {"a": (7, 4, 11)}), {})
    body = json.loads(found["t/dbh/zone/a/occupancy-people"])
    assert (body["value"], body["low"], body["high"], body["counted"], body["band"]) == (7, 4, 11, "people", 0.9)
    assert "counted" not in json.loads(messages("t", count(1, {"a": 1}), {})["t/dbh/zone/a/occupancy"])
    topics = ["t/dbh/zone/a/occupancy-people", "t/dbh/zone/a/occupancy"]
    units = [
        json.loads(text)["unit_of_measurement"]
        for text in discovery("h", "t", topics, {}, {topics[0]: "people"}).values()
    ]
    assert units == ["people", "devices"]


def test_a_node_that_becomes_unknown_loses_its_number_over_mqtt() -> None:
    stored = messages("t", people(1, {"a": (7, 4, 11), "b": (1, 0, 2)}), {})
    found = messages("t", people(2, {"b": (1, 0, 2)}, unknown={"zone:a": "range", "zone:c": "node"}), stored)
    body = json.loads(found["t/dbh/zone/a/occupancy-people"])
    assert (body["value"], body["low"], body["unknown"]) == (None, None, "range")
    assert "t/dbh/zone/c/occupancy-people" not in found


def test_people_and_devices_are_different_metrics() -> None:
    latest = LatestReleases()
    latest.update(count(1, {"a": 12}))
    latest.update(people(1, {"a": (7, 4, 11)}))
    samples = {
        (sample.name, sample.labels["release"]): sample.value
        for family in latest.collect() for sample in family.samples if "node" in sample.labels
    }  # fmt: skip
    assert samples["tacet_occupancy", "occupancy"] == 12
    assert samples["tacet_people", "occupancy-people"] == 7
    assert (samples["tacet_people_low", "occupancy-people"], samples["tacet_people_high", "occupancy-people"]) == (
        4,
        11,
    )
    assert ("tacet_occupancy", "occupancy-people") not in samples


@pytest.mark.parametrize("record", [people(1, {"a": (7, 4, 11)}), people(1, None)])
def test_records_follow_the_published_schema(record: dict[str, Any]) -> None:
    schema = orjson.loads(contract_files(small_policy())["people-record.schema.json"])
    jsonschema.validate(record, schema)
    assert schema["properties"]["counted"]["const"] == "people"


def test_people_have_a_topic_a_channel_and_terms_for_their_audience_only() -> None:
    policy = with_people(model_of(small_policy()))
    topic = private_topic("facilities", "halls-people")
    assert [name for name in topic_names(policy) if "people" in name] == [topic]
    document = asyncapi(policy)
    channel = document["channels"]["facilities.halls-people"]
    assert channel["messages"]["record"]["$ref"].endswith("people-record")
    assert channel["x-privacy"]["free_with"] == "halls"
    assert channel["x-privacy"]["people"]["truth"] == {"public": True}
    assert [r.release for r in described_releases(policy, "facilities")] == ["halls", "halls-people"]
    assert [r.release for r in described_releases(policy, "public")] == ["halls"]


def test_what_ground_truth_costs_is_among_the_guarantees() -> None:
    paid = with_people(model_of(small_policy(), truth=Truth(public=False, epsilon="0.5")))
    assert "cost epsilon 0.5 for one person at one moment" in guarantee_lines(paid, "facilities")[-1]
    public = with_people(model_of(small_policy()))
    assert "were declared public" in next(people_lines(public))
    assert not [*people_lines(public, "public")]


def test_the_services_history_keeps_the_stated_bands() -> None:
    with_clock = {"dbh": SiteClock("UTC", None)}
    history = ReleaseHistory(None, with_clock)
    given = [count(1, {"a": 12}), people(1, {"a": (7, 4, 11)}), people(2, {"a": (9, 6, 13)}), people(3, None)]
    history.add([orjson.dumps(record) for record in given], {})
    rows = history.rows(RowsQuery("public", "occupancy-people", SITE, "5min"))
    found = [dict(zip(rows.columns, row, strict=True)) for row in rows.rows]
    assert [(row["value"], row["low"], row["high"], row["half_width"]) for row in found] == [
        (7, 4.0, 11.0, None), (9, 6.0, 13.0, None), (None, None, None, None),
    ]  # fmt: skip
    hours = history.rows(RowsQuery("public", "occupancy-people", SITE, "1h"))
    mean = dict(zip(hours.columns, hours.rows[0], strict=True))
    assert (mean["value"], mean["low"], mean["high"]) == (8.0, 5.0, 12.0)
    latest = {row["release"]: row for row in history.latest("public", SITE)["rows"]}
    assert latest["occupancy"]["low"] == 9
