"""Asking a controller's web server for its head: only who has the certificate that is known can answer."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
from contextlib import suppress
from dataclasses import dataclass

from connectors.probes.asking import TRIES, WAIT, Answer

PORT = 443
_STATUS_LINE = b"HTTP/1."


@dataclass(frozen=True, slots=True)
class Head:
    """HTTPS; whatever the server says of the page counts as alive."""

    host: str
    port: int
    name: str | None
    """The name in its certificate, which an authority of this machine's vouches for."""
    fingerprint: str | None
    """Or its certificate's SHA-256."""

    async def ask(self) -> Answer | None:
        """Ask once, for as long as three questions by datagram would take: TCP repeats what is lost by itself."""
        try:
            async with asyncio.timeout(TRIES * WAIT):
                return await self._ask()
        except (OSError, EOFError, ValueError):  # no way to it, another certificate, a line without end
            return None

    async def _ask(self) -> Answer | None:
        name = self.name or self.host
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self._context(), server_hostname=name)
        try:
            if not self._is_known(writer):
                return None
            writer.write(f"HEAD / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            line = await reader.readline()
            return Answer() if line.startswith(_STATUS_LINE) else None
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self.fingerprint is not None:  # the certificate itself is known: who signed it says no more
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _is_known(self, writer: asyncio.StreamWriter) -> bool:
        if self.fingerprint is None:
            return True
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
        return hmac.compare_digest(hashlib.sha256(certificate).hexdigest(), self.fingerprint)
