"""What is published over MQTT: the latest of each node with its band; a denied window takes values away."""

from __future__ import annotations

import json

from connectors.sinks.mqtt import discovery, messages, site_topic
from tests.support.released_store import count


def test_each_node_has_a_topic_with_its_value_its_band_and_its_window() -> None:
    record = count(1, {"2011": 7, "atrium": 0}) | {
        "levels": {"floor": {"2": 7}, "building": 8}, "levels_half_width_95": {"floor": {"2": 3}, "building": 4},
    }  # fmt: skip
    found = {topic: json.loads(body) for topic, body in messages("tacet/public", record, {}).items()}
    assert {topic: (body["value"], body["low"], body["high"]) for topic, body in found.items()} == {
        "tacet/public/dbh/zone/2011/occupancy": (7, 4, 10),
        "tacet/public/dbh/zone/atrium/occupancy": (0, 0, 3),
        "tacet/public/dbh/floor/2/occupancy": (7, 4, 10),
        "tacet/public/dbh/building/occupancy": (8, 4, 12),
    }
    body = found["tacet/public/dbh/building/occupancy"]
    assert (body["kind"], body["window_end"], body["release_id"]) == (
        "posterior", record["window_end"], record["release_id"],
    )  # fmt: skip


def test_a_denied_window_takes_the_value_from_every_node_of_its_release_and_of_no_other() -> None:
    stored = messages("t", count(1, {"a": 1, "b": 2}), {}) | messages("t", count(1, {"a": 1}, release="other"), {})
    stored |= messages("t", count(1, {"a": 1}, site="west"), {})
    found = messages("t", count(2, None), stored)
    assert sorted(found) == ["t/dbh/zone/a/occupancy", "t/dbh/zone/b/occupancy"]
    for text in found.values():
        body = json.loads(text)
        assert (body["value"], body["low"], body["released"], body["reason"]) == (None, None, False, "budget")


def test_home_assistant_is_told_that_devices_are_counted_and_not_people() -> None:
    (text,) = discovery("h", "t", ["t/dbh/building/occupancy"], {}).values()
    assert json.loads(text)["unit_of_measurement"] == "devices"


def test_home_assistant_is_told_where_a_sensor_reads_value_band_and_availability() -> None:
    ((topic, text),) = discovery("homeassistant", "tacet/public", ["tacet/public/dbh/zone/2.1/occupancy"], {}).items()
    assert topic == "homeassistant/sensor/tacet-public-dbh-zone-2_d1-occupancy/config"
    body = json.loads(text)
    assert body["state_topic"] == body["json_attributes_topic"] == "tacet/public/dbh/zone/2.1/occupancy"
    assert body["availability_topic"] == "tacet/public/status"
    assert body["value_template"] == "{{ value_json.value }}"


def test_names_that_differ_give_sensors_that_differ() -> None:
    ends = ("a.b/r", "a_b/r", "a-b/r", "a__b/r", "a_.b/r", "a._b/r", "a/b-r", "a/b.r", "a_/hb-r", "a_h/b-r")
    found = discovery("h", "t", [f"t/dbh/zone/{end}" for end in ends], {})
    assert len(found) == len(ends)
    assert all(set(topic.split("/")[2]) <= set("abdhtrzone-_") for topic in found)


def test_the_metadata_of_a_site_have_a_topic_beside_its_values() -> None:
    assert site_topic("tacet/public", "dbh") == "tacet/public/dbh/metadata"
