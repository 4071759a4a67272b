"""A mail server of loopback (RFC 5321), with STARTTLS or TLS from the start, and PLAIN credentials."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return the context of a server for localhost, and the file by which clients trust it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mail")])
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(start).not_valid_after(start + dt.timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    trusted, own = folder / "mail.pem", folder / "mail.key"
    trusted.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    own.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, own)
    return context, trusted


@dataclass
class MailServer:
    """What it has taken, and how it answers."""

    context: ssl.SSLContext | None = None
    implicit: bool = False
    credentials: str | None = None
    answers: list[bytes] = field(default_factory=list)
    """Answers to the next mails' senders; then 250."""
    taken: list[tuple[bool, list[str], EmailMessage]] = field(default_factory=list)
    """Whether it came encrypted, its recipients, and the mail."""
    port: int = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        encrypted, to = self.implicit, list[str]()
        known = self.credentials is None

        def say(*lines: bytes) -> None:
            writer.write(b"\r\n".join([*lines, b""]))

        say(b"220 ready")
        while line := await reader.readline():
            word = line.strip().upper()
            if word.startswith(b"EHLO"):
                more = [] if encrypted or self.context is None else [b"250-STARTTLS"]
                say(b"250-localhost", *more, b"250 AUTH PLAIN")
            elif word == b"STARTTLS" and self.context is not None:
                say(b"220 go")
                await writer.drain()
                try:
                    await writer.start_tls(self.context)
                except ssl.SSLError:  # the client does not trust the certificate
                    break
                encrypted = True
            elif word.startswith(b"AUTH PLAIN"):
                known = base64.b64decode(line.split()[2]).decode().split("\0")[1:] == (self.credentials or "").split(
                    ":"
                )
                say(b"235 ok" if known else b"535 no")
            elif word.startswith(b"MAIL"):
                say(self.answers.pop(0) if self.answers else b"250 ok" if known else b"530 log in")
            elif word.startswith(b"RCPT"):
                to.append(line.decode().partition("<")[2].partition(">")[0])
                say(b"250 ok")
            elif word == b"DATA":
                say(b"354 go")
                body = bytearray()
                while (part := await reader.readline()) != b".\r\n":
                    body += part.removeprefix(b".") if part.startswith(b"..") else part
                self.taken.append((encrypted, to, message_from_bytes(bytes(body), policy=policy.default)))
                to = []
                say(b"250 taken")
            elif word == b"QUIT":
                say(b"221 bye")
                break
            else:
                say(b"250 ok")
            await writer.drain()
        writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[MailServer]:
        """Listen on a free port of loopback."""
        context = self.context if self.implicit else None
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        async with server:
            self.port = server.sockets[0].getsockname()[1]
            yield self
