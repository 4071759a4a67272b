"""What bodies of Mist, Meraki and Spaces say, and that nothing else in them is let out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.sources.cloud import decoders
from connectors.sources.cloud.decoders import (
    NO_ACCESS_POINT,
    NO_CLIENT,
    NO_TIME,
    NOT_AN_OBSERVATION,
    NOT_ASSOCIATED,
    Read,
    milliseconds,
    seconds,
    timestamp,
)
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.ingest_socket.frames import Batch, TimedSighting, encode_batch
from stream.records import DAY, SECOND, Micros
from tests.unit.hooks.cloud_requests import (
    CANARIES,
    LOCATION,
    NEXT_RADIO,
    RADIO,
    changed,
    iso,
    join,
    located,
    scanned,
    session,
)

NOON = 20_000 * DAY + 12 * 3600 * SECOND
FIRST, OTHER = bytes.fromhex("3c0000000001"), bytes.fromhex("3c0000000002")
HERE, THERE = (bytes.fromhex(radio.replace(":", "")) for radio in (RADIO, NEXT_RADIO))


def seen(read: Read) -> Sighting:
    assert isinstance(read, TimedSighting)
    return read.sighting


def test_a_join_of_mist_places_the_device_at_its_access_point_when_it_came() -> None:
    (read,) = decoders.read_mist(join(NOON + 250_000))
    assert isinstance(read, TimedSighting)
    assert read.at == NOON + 250_000
    assert read.sighting[:4] == (Kind.ASSOCIATE, FIRST, HERE, b"lobby")


def test_a_session_of_mist_that_went_on_is_at_the_next_access_point() -> None:
    (read,) = decoders.read_mist(session(NOON, NOON - 60 * SECOND, termination_reason=3, next_ap="020000000002"))
    assert seen(read)[:4] == (Kind.ROAM, FIRST, THERE, b"")


@pytest.mark.parametrize("reason", [1, 2])
def test_a_session_of_mist_that_is_over_leaves_the_stay_that_its_join_began(reason: int) -> None:
    (came,) = decoders.read_mist(join(NOON - 60 * SECOND))
    (went,) = decoders.read_mist(session(NOON, NOON - 60 * SECOND, termination_reason=reason))
    (another,) = decoders.read_mist(session(NOON, NOON - 61 * SECOND, termination_reason=reason))
    assert seen(went).kind == Kind.LEAVE
    assert seen(went).session == seen(came).session != b""
    assert seen(another).session != seen(came).session


def test_a_session_of_mist_that_does_not_say_when_it_began_ends_at_its_access_point() -> None:
    (went,) = decoders.read_mist(session(NOON, NOON, connect=None))
    assert (seen(went).kind, seen(went).access_point, seen(went).session) == (Kind.LEAVE, HERE, b"")


def test_merakis_latest_place_of_a_device_is_used() -> None:
    (read,) = decoders.read_meraki(scanned(NOON))
    assert isinstance(read, TimedSighting)
    assert (read.at, read.sighting[:4]) == (NOON, (Kind.RUN, OTHER, HERE, b""))


def test_merakis_strongest_access_point_at_the_latest_place_is_used() -> None:
    received = [{"apMac": RADIO, "rssi": -70}, {"apMac": NEXT_RADIO, "rssi": -50}, {"apMac": "x", "rssi": -1}]
    places = [
        {"time": iso(NOON - 9 * SECOND), "rssiRecords": [{"apMac": RADIO, "rssi": -10}]},
        {"time": iso(NOON), "rssiRecords": received},
    ]
    (read,) = decoders.read_meraki(scanned(NOON - 20 * SECOND, locations=places))
    assert isinstance(read, TimedSighting)
    assert (read.at, read.sighting.access_point) == (NOON, THERE)


@pytest.mark.parametrize("ssid", [None, ""])
def test_devices_that_are_not_associated_are_dropped(ssid: str | None) -> None:
    assert list(decoders.read_meraki(scanned(NOON, ssid=ssid))) == [NOT_ASSOCIATED]
    assert decoders.read_spaces(located(NOON, ssid=ssid)) == NOT_ASSOCIATED


def test_spaces_places_have_a_location_and_sometimes_an_access_point() -> None:
    read = decoders.read_spaces(located(NOON))
    assert isinstance(read, TimedSighting)
    assert (read.at, read.sighting[:4]) == (NOON, (Kind.RUN, OTHER, b"", LOCATION.encode()))
    assert seen(decoders.read_spaces(located(NOON, maxDetectedRssi={"apMacAddress": RADIO}))).access_point == HERE


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda: next(decoders.read_mist({"topic": "device-updowns", "events": [{}]})), NOT_AN_OBSERVATION),
        (lambda: next(decoders.read_mist(join(NOON, mac="ff" * 6))), NO_CLIENT),
        (lambda: next(decoders.read_mist(join(NOON, ap=None, bssid="", ap_name=None))), NO_ACCESS_POINT),
        (lambda: next(decoders.read_mist(join(NOON, connect=None, connect_float=-1, timestamp="soon"))), NO_TIME),
        (lambda: next(decoders.read_meraki(scanned(NOON) | {"type": "BLE"})), NOT_AN_OBSERVATION),
        (lambda: next(decoders.read_meraki(scanned(NOON) | {"version": "2.0"})), NOT_AN_OBSERVATION),
        (lambda: next(decoders.read_meraki(scanned(NOON, latestRecord={"nearestApMac": RADIO}))), NO_TIME),
        (lambda: next(decoders.read_meraki(scanned(NOON, latestRecord=None))), NO_ACCESS_POINT),
        (lambda: decoders.read_spaces({"eventType": "DEVICE_PRESENCE", "devicePresence": {}}), NOT_AN_OBSERVATION),
        (lambda: decoders.read_spaces({"eventType": "IOT_TELEMETRY"}), NOT_AN_OBSERVATION),
        (lambda: decoders.read_spaces({"eventType": "KEEP_ALIVE"}), NOT_AN_OBSERVATION),
        (lambda: decoders.read_spaces(located(NOON, location=None)), NO_ACCESS_POINT),
        (lambda: decoders.read_spaces(located(NOON, device={"macAddress": "00:00:00:00:00:00"})), NO_CLIENT),
        (
            lambda: decoders.read_spaces(
                changed(located(NOON, lastSeen=None), lambda event: event.pop("recordTimestamp"))
            ),
            NO_TIME,
        ),
    ],
)
def test_events_without_a_sighting_give_a_reason(read: Callable[[], Read], reason: str) -> None:
    assert read() == reason


@pytest.mark.parametrize(
    "read",
    [
        lambda: next(decoders.read_mist(join(NOON))),
        lambda: next(decoders.read_meraki(scanned(NOON))),
        lambda: decoders.read_spaces(located(NOON)),
    ],
)
def test_names_of_people_and_networks_stay_in_the_decoder(read: Callable[[], Read]) -> None:
    found = read()
    assert isinstance(found, TimedSighting)
    line = encode_batch(Batch(1, "cloud:mist", (found,)))
    assert not any(canary.encode() in line for canary in CANARIES)
    assert "3c" not in repr(found)
    assert str(NOON) not in repr(found)


@pytest.mark.parametrize(
    ("read", "given", "value"),
    [
        (seconds, (None, 1.5), 1_500_000), (seconds, (True,), None), (seconds, (-1,), None), (seconds, (1e300,), None),
        (seconds, (float("nan"),), None), (seconds, ("x",), None), (milliseconds, ("1500",), 1_500_000),
        (milliseconds, ("9" * 17,), None), (timestamp, ("2024-01-01T00:00:00Z",), 1_704_067_200_000_000),
        (timestamp, ("2024-01-01T00:00:00",), None), (timestamp, ("2024-13-01T00:00:00Z",), None),
        (timestamp, (5,), None), (timestamp, ("9999-12-31T23:59:59-23:59",), None),
    ],
)  # fmt: skip
def test_times_are_read_strictly(read: Callable[..., Micros | None], given: tuple[Any, ...], value: int | None) -> None:
    assert read(*given) == value
