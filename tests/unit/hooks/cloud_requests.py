"""What tests of cloud systems share: bodies as the systems send them, signatures, and an ingest behind its socket."""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from connectors.runtime.clock import AnchoredClock
from connectors.sources.cloud.config import Hook
from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.ingest_socket.listener import SocketListener
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import MINUTE, SECOND, Micros
from tests.support.receivers import Hands, Log

SECRET, OLD_SECRET = b"a-secret-of-16-octets", b"the-secret-before-that"
DEVICE, SECOND_DEVICE = "3c0000000001", "3c:00:00:00:00:02"
RADIO, NEXT_RADIO, LOCATION = "02:00:00:00:00:01", "02:00:00:00:00:02", "location-1ae3"
MIST, MERAKI, SPACES = "cloud:mist", "cloud:meraki", "cloud:spaces"
CANARIES = ("canary-user", "canary-net", "canary-phone", "canary@example.org")
"""Names in the bodies that no decoder may let out."""
FILE = """
[[hook]]
name = "mist"
system = "mist"
source = "cloud:mist"
secrets = ["a-secret-of-16-octets", "the-secret-before-that"]

[[hook]]
name = "meraki"
system = "meraki"
source = "cloud:meraki"
secrets = ["a-secret-of-16-octets", "the-secret-before-that"]
validator = "a-validator"
"""


def hook(system: str = "mist") -> Hook:
    secrets = [SECRET.decode(), OLD_SECRET.decode()]
    more = {"validator": "a-validator"} if system == "meraki" else {}
    return Hook.model_validate(
        {"name": system, "system": system, "source": f"cloud:{system}", "secrets": secrets, **more}
    )


def now() -> Micros:
    return time.time_ns() // 1000


def join(at: Micros, **more: Any) -> dict[str, Any]:
    """Return a body of Mist's topic client-join, as its documentation of the interface has it."""
    event = {
        "ap": RADIO.replace(":", ""), "ap_name": "lobby", "band": "5", "bssid": "020000000011",
        "connect": at // SECOND, "connect_float": at / SECOND, "mac": DEVICE,
        "org_id": "a97c1b22-a4e9-411e-9bfd-d8695a0f9e61", "rssi": -61.0,
        "site_id": "441a1214-6928-442a-8e92-e1d34b8ec6a6",
        "site_name": "hq", "ssid": "canary-net", "timestamp": at / SECOND, "version": 2.0,
        "wlan_id": "00001a84-0000-0000-0000-000000000000", "username": "canary-user",
    }  # fmt: skip
    return {"topic": "client-join", "events": [event | more]}


def session(at: Micros, began: Micros, **more: Any) -> dict[str, Any]:
    """Return a body of Mist's topic client-sessions: a stay that is over."""
    body = join(began)
    event = body["events"][0] | {
        "client_family": "canary-phone", "client_manufacture": "Acme", "client_model": "8+", "client_os": "18.5",
        "disconnect": at // SECOND, "disconnect_float": at / SECOND, "duration": (at - began) / SECOND,
        "next_ap": "000000000000", "termination_reason": 1, "timestamp": at / SECOND,
    }  # fmt: skip
    return {"topic": "client-sessions", "events": [event | more]}


def iso(at: Micros) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).isoformat().replace("+00:00", "Z")


def scanned(at: Micros, secret: bytes = SECRET, **more: Any) -> dict[str, Any]:
    """Return a body of Meraki's Scanning API, version 3."""
    observation: dict[str, Any] = {
        "locations": [], "ipv4": "10.0.0.9", "ipv6": None, "ssid": "canary-net", "os": "iOS",
        "clientMac": SECOND_DEVICE, "name": "canary-phone", "userId": "canary-user", "manufacturer": "Acme",
        "latestRecord": {"time": iso(at), "nearestApMac": RADIO, "nearestApRssi": "-61"},
    }  # fmt: skip
    return {
        "version": "3.0", "secret": secret.decode(), "type": "WiFi",
        "data": {"networkId": "N_1", "observations": [observation | more]},
    }  # fmt: skip


def located(at: Micros, **more: Any) -> dict[str, Any]:
    """Return an event of Cisco Spaces' Firehose."""
    update = {
        "device": {"deviceId": "dev-1", "userId": "canary-user", "email": "canary@example.org",
                   "macAddress": SECOND_DEVICE},
        "location": {"locationId": LOCATION, "name": "Lobby"}, "ssid": "canary-net", "rawUserId": "canary-user",
        "visitId": "visit-1", "lastSeen": at // 1000, "mapId": "map-1", "xPos": 1.0, "yPos": 2.0,
    }  # fmt: skip
    return {
        "recordUid": f"evt-{at}", "recordTimestamp": str(at // 1000), "spacesTenantId": "tenant", "eventType":
        "DEVICE_LOCATION_UPDATE", "deviceLocationUpdate": update | more,
    }  # fmt: skip


def octets(document: object) -> bytes:
    return json.dumps(document).encode()


def signature(body: bytes, secret: bytes = SECRET) -> str:
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


def changed(document: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    other = copy.deepcopy(document)
    change(other)
    return other


def house() -> Ingest:
    limits = SiteLimits((MIST, MERAKI, SPACES), 10 * MINUTE, 1000, Pseudonyms.daily(bytes(32)), 30 * SECOND)
    return Ingest(
        access_points={RADIO: ("dbh", "lobby"), NEXT_RADIO: ("dbh", "hall")},
        sites={"dbh": limits},
        aliases={LOCATION: RADIO},
    )


@asynccontextmanager
async def ingesting(
    socket: Path, sink: Log, clock: AnchoredClock | None = None, **more: Any
) -> AsyncIterator[Receiver]:
    """An ingest that listens at a socket."""
    entrance = SocketListener(socket, (MIST, MERAKI, SPACES))
    async with Receiver([entrance], ingest=house(), sink=sink, clock=clock or Hands(), **more) as receiver:
        yield receiver
