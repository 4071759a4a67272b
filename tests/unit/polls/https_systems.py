"""Small HTTPS servers that answer as the vendors' published interfaces do; the bodies are made for these tests."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from connectors.sources.polls.rest import Server

CANARIES = ("canary-user", "canary-phone", "10.9.8.7")
"""Names and addresses in the bodies that must not be read."""
RADIOS = ("02-00-00-00-00-01", "02:00:00:00:00:02")


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


Answer = tuple[int, dict[str, str], Any]
Handler = Callable[[Request], Answer]


@dataclass
class System:
    """What a server does, and what it was asked."""

    handle: Handler
    requests: list[Request] = field(default_factory=list)
    server: Server = field(default_factory=lambda: Server(""))


def certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Return a server's context with its own certificate, and the certificate's SHA-256."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "controller")])
    now = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now).not_valid_after(now + dt.timedelta(days=36_500))
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context, hashlib.sha256(made.public_bytes(serialization.Encoding.DER)).hexdigest()


@asynccontextmanager
async def serving(folder: Path, handle: Handler) -> AsyncIterator[System]:
    """Serve on loopback."""
    context, digest = certificate(folder)
    system = System(handle)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                await _answer(system, line, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        system.server = Server(f"https://127.0.0.1:{port}", digest)
        yield system


async def _answer(system: System, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    method, target, _ = line.decode().split()
    headers = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        headers[name.strip().lower()] = value.strip()
    octets = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    asked = Request(method, parts.path, dict(parse_qsl(parts.query)), headers, json.loads(octets) if octets else None)
    system.requests.append(asked)
    status, more, body = system.handle(asked)
    content = json.dumps(body).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in {"content-length": str(len(content)), **more}.items())
    writer.write(f"HTTP/1.1 {status} x\r\n{head}\r\n".encode() + content)
    await writer.drain()


def address(number: int, separator: str = ":") -> str:
    return (0x3C00_0000_0000 + number).to_bytes(6, "big").hex(separator)


def ok(body: Any, **more: str) -> Answer:
    return 200, {name.replace("_", "-"): value for name, value in more.items()}, body


REFUSAL: Answer = (401, {}, {"error": "unauthorised"})


def unifi(clients: list[dict[str, Any]]) -> Handler:
    """UniFi Network's local interface, version 1: pages by offset and limit, at most 200 rows."""
    devices = [{"id": f"ap-{place}", "macAddress": radio, "name": "canary-phone"} for place, radio in enumerate(RADIOS)]

    def handle(asked: Request) -> Answer:
        if asked.headers.get("x-api-key") != "the key of this system":
            return REFUSAL
        table = {"devices": devices, "clients": clients}[asked.path.rpartition("/")[2]]
        offset, limit = int(asked.query["offset"]), int(asked.query["limit"])
        assert limit <= 200
        rows = table[offset : offset + limit]
        return ok({"offset": offset, "limit": limit, "count": len(rows), "totalCount": len(table), "data": rows})

    return handle


def unifi_client(number: int, **more: Any) -> dict[str, Any]:
    return {
        "type": "WIRELESS", "id": f"id-{number}", "name": "canary-phone", "connectedAt": "2026-03-02T10:00:00Z",
        "ipAddress": "10.9.8.7", "macAddress": address(number), "uplinkDeviceId": f"ap-{number % 2}",
        "access": {"type": "DEFAULT"},
    } | more  # fmt: skip


def omada(clients: list[dict[str, Any]]) -> Handler:
    """Omada's Open API: a token by client credentials, pages by number, at most 1,000 rows."""

    def handle(asked: Request) -> Answer:
        if asked.path == "/openapi/authorize/token":
            given = asked.body == {"omadacId": "c1", "client_id": "client", "client_secret": "the secret"}
            assert asked.query == {"grant_type": "client_credentials"}
            if not given:
                return ok({"errorCode": -44106, "msg": "invalid"})
            return ok({"errorCode": 0, "result": {"accessToken": "AT-1", "tokenType": "bearer", "expiresIn": 7200}})
        if asked.headers.get("authorization") != "AccessToken=AT-1":
            return ok({"errorCode": -44113, "msg": "The access token is Invalid"})
        page, size = int(asked.query["page"]), int(asked.query["pageSize"])
        assert 1 <= size <= 1000
        rows = sorted(clients, key=lambda row: str(row["mac"]))[(page - 1) * size : page * size]
        result = {"totalRows": len(clients), "currentPage": page, "currentSize": size, "data": rows}
        return ok({"errorCode": 0, "msg": "Success.", "result": result})

    return handle


def omada_client(number: int, **more: Any) -> dict[str, Any]:
    return {
        "mac": address(number, "-").upper(), "name": "canary-phone", "ip": "10.9.8.7", "connectType": 1,
        "wireless": True, "ssid": "canary-user", "apName": "lobby", "apMac": RADIOS[number % 2], "active": True,
    } | more  # fmt: skip


def smartzone(clients: list[dict[str, Any]]) -> Handler:
    """SmartZone's public API: a service ticket, a query by zone, pages by number."""

    def handle(asked: Request) -> Answer:
        base = "/wsg/api/public/v11_1"
        if asked.path == f"{base}/serviceTicket" and asked.method == "POST":
            if asked.body != {"username": "reader", "password": "the secret"}:
                return REFUSAL
            return ok({"controllerVersion": "6.1.2", "serviceTicket": "ST-1"})
        if asked.query.get("serviceTicket") != "ST-1":
            return REFUSAL
        if asked.method == "DELETE":
            return ok({})
        page, limit = asked.body["page"], asked.body["limit"]
        assert asked.body["filters"] == [{"type": "ZONE", "value": "the/site"}]
        rows = sorted(clients, key=lambda row: str(row["clientMac"]))[(page - 1) * limit : page * limit]
        more = page * limit < len(clients)
        return ok({"totalCount": len(clients), "hasMore": more, "firstIndex": (page - 1) * limit, "list": rows})

    return handle


def smartzone_client(number: int, **more: Any) -> dict[str, Any]:
    return {"clientMac": address(number).upper(), "apMac": RADIOS[number % 2].replace("-", ":")} | more


def mist(clients: list[dict[str, Any]]) -> Handler:
    """Mist: the statistics of a site's clients, in one answer."""

    def handle(asked: Request) -> Answer:
        if asked.headers.get("authorization") != "Token the key of this system":
            return REFUSAL
        if asked.path == "/api/v1/self":
            return ok({"email": "canary-user"})
        return ok(clients[: int(asked.query.get("limit", 100))])

    return handle


def mist_client(number: int, **more: Any) -> dict[str, Any]:
    return {
        "mac": address(number, ":").replace(":", ""), "ap_mac": RADIOS[number % 2].replace("-", "").replace(":", ""),
        "ap_id": "00000000-0000-0000-1000-5c5b350e0000", "last_seen": 1_790_000_000, "username": "canary-user",
        "hostname": "canary-phone", "ip": "10.9.8.7", "idle_time": 3, "band": "5",
    } | more  # fmt: skip


def meraki(clients: list[dict[str, Any]], page: int = 1000) -> Handler:
    """Meraki's dashboard: a cursor in a link, rows by time span."""

    def handle(asked: Request) -> Answer:
        if asked.headers.get("authorization") != "Bearer the key of this system":
            return REFUSAL
        if asked.path == "/api/v1/organizations":
            return ok([{"id": "1", "name": "canary-user"}])
        table = sorted(clients, key=lambda row: str(row["id"]))
        left = [row for row in table if str(row["id"]) > asked.query.get("startingAfter", "")]
        rows, rest = left[:page], left[page:]
        path = f"https://api.meraki.com{asked.path}"
        links = f"<{path}?startingAfter=k0>; rel=first"
        if rest:
            links += f", <{path}?perPage={page}&startingAfter={rows[-1]['id']}>; rel=next"
        return ok(rows, link=links)

    return handle


def meraki_client(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"k{number:06}", "mac": address(number), "description": "canary-phone", "ip": "10.9.8.7",
        "user": "canary-user", "firstSeen": "2026-03-01T10:00:00Z", "lastSeen": "2026-03-02T10:00:00Z",
        "recentDeviceMac": RADIOS[number % 2], "recentDeviceConnection": "Wireless", "status": "Online",
    } | more  # fmt: skip
