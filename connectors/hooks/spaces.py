"""Cisco Spaces' Firehose: lines of JSON, one event each, of which ``DEVICE_LOCATION_UPDATE`` says who is where; pure.

Its places are Spaces' own, so a zone of the policy names them by their ``locationId``, as it names access points by
name; the address of an access point counts where an event has one. Only who is associated has a network's name. E-mail
addresses, names and positions go no further than here.
"""

from __future__ import annotations

from typing import Any

from connectors.hooks.reading import (
    NOT_AN_OBSERVATION,
    NOT_ASSOCIATED,
    Read,
    address,
    milliseconds,
    name,
    sighted,
    table,
)
from connectors.intake.sighting import Kind
from stream.records import Micros

LOCATION_UPDATE = "DEVICE_LOCATION_UPDATE"


def read(event: dict[str, Any]) -> Read:
    """Return what one event says."""
    if event.get("eventType") != LOCATION_UPDATE:
        return NOT_AN_OBSERVATION
    update = table(event.get("deviceLocationUpdate"))
    if not update.get("ssid"):
        return NOT_ASSOCIATED
    radio = address(table(update.get("maxDetectedRssi")).get("apMacAddress"))
    place = radio, name(table(update.get("location")).get("locationId"))
    at = milliseconds(update.get("lastSeen"), event.get("recordTimestamp"))
    return sighted(Kind.RUN, address(table(update.get("device")).get("macAddress")), place, at)


def recorded(event: dict[str, Any]) -> Micros | None:
    """Return when an event was made: where to go on reading."""
    return milliseconds(event.get("recordTimestamp"))
