"""A host on loopback that answers over TLS, under a certificate of the name that it is asked for."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "calendar.example.org"
Write = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Host:
    """What it answers, and the requests that it received."""

    answer: bytes | Write
    trusted: ssl.SSLContext
    port: int = 0
    requests: list[str] = field(default_factory=list)


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """Return an answer of HTTP/1.1."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


def contexts(folder: Path, name: str = NAME) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server with a certificate of its own, and one of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    names: list[x509.GeneralName] = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(issuer).issuer_name(issuer).public_key(key.public_key()).serial_number(1)
        .not_valid_before(start).not_valid_after(start + dt.timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    certificate, secret = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    secret.write_bytes(key.private_bytes(*form))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, secret)
    return server, ssl.create_default_context(cafile=str(certificate))


@asynccontextmanager
async def host(folder: Path, answer: bytes | Write, name: str = NAME) -> AsyncIterator[Host]:
    """Run a host."""
    tls, trusted = contexts(folder, name)
    running = Host(answer, trusted)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            running.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            if isinstance(running.answer, bytes):
                writer.write(running.answer)
                await writer.drain()
            else:
                await running.answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort() if writer.is_closing() else writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
