"""What is published over MQTT: one retained message for each node of a release, and what Home Assistant makes of it.

``tacet/public/dbh/zone/2011/occupancy`` holds the newest window of zone 2011; floors are ``…/floor/2/…``, the building
``…/building/…``. A window that was denied takes the value away from every node that its release has shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from connectors.nodes import node_values
from connectors.subscriber import Release

OF_THE_RECORD = ("window_start", "window_end", "released", "reason", "coverage", "release_id", "laboratory")
_ESCAPED = str.maketrans({"_": "__", ".": "_d", "-": "_h", "/": "-"})
"""A topic as Home Assistant takes names: letters, digits, _ and -; different ones stay different."""


def status_topic(prefix: str) -> str:
    """Return where a sink says whether it is there: ``online`` or ``offline``."""
    return f"{prefix}/status"


def messages(prefix: str, record: Release, retained: Mapping[str, str]) -> dict[str, str]:
    """Return the retained messages of a count record, by topic.

    ``retained`` are those of before: a denied window names no nodes, so its release's are found there.
    """
    said = {name: record[name] for name in OF_THE_RECORD}
    kind = record["half_width_kind"]
    found = {
        f"{prefix}/{record['site']}/{value.node.replace(':', '/')}/{record['release']}": {
            "value": value.value, "low": value.low, "high": value.high, "half_width": value.half_width, "kind": kind,
        }
        for value in node_values(record)
    }  # fmt: skip
    if not record["released"]:
        nothing = dict.fromkeys(("value", "low", "high", "half_width", "kind"))
        own = (topic for topic in retained if _is_of(topic, prefix, record))
        found = dict.fromkeys(own, nothing)
    return {topic: orjson.dumps(body | said).decode() for topic, body in found.items()}


def _is_of(topic: str, prefix: str, record: Release) -> bool:
    return topic.startswith(f"{prefix}/{record['site']}/") and topic.endswith(f"/{record['release']}")


def site_topic(prefix: str, site: str) -> str:
    """Return where a site's metadata is."""
    return f"{prefix}/{site}/metadata"


def discovery(base: str, prefix: str, topics: Iterable[str], sites: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Return the retained messages that make a sensor of each topic in Home Assistant, below ``base``.

    ``sites`` are the sites' metadata, of which sensors get their names.
    """
    return dict(_sensor(base, prefix, topic, sites) for topic in topics)


def _sensor(base: str, prefix: str, topic: str, sites: Mapping[str, dict[str, Any]]) -> tuple[str, str]:
    site, *node, release = topic.removeprefix(f"{prefix}/").split("/")
    name, device = topic.translate(_ESCAPED), f"{prefix}/{site}".translate(_ESCAPED)
    known = sites.get(site, {})
    body: dict[str, Any] = {
        "name": f"{_title(node, known)} {release}",
        "unique_id": name,
        "state_topic": topic,
        "value_template": "{{ value_json.value }}",
        "json_attributes_topic": topic,
        "unit_of_measurement": "devices",
        "state_class": "measurement",
        "icon": "mdi:account-group",
        "availability_topic": status_topic(prefix),
        "device": {"identifiers": [device], "name": known.get("name", site), "manufacturer": "Tacet"},
        "origin": {"name": "Tacet"},
    }
    return f"{base}/sensor/{name}/config", orjson.dumps(body).decode()


def _title(node: list[str], site: dict[str, Any]) -> str:
    """Return what people call a node: a zone's name, where it has one."""
    names = {zone["zone"]: zone["metadata"].get("name") for zone in site.get("zones", ())}
    return (names.get(node[-1]) if node[0] == "zone" else None) or " ".join(node)
