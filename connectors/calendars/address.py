"""Fetch a file from an https address that an operator has written down, and from nowhere else.

1. The address has the scheme https and a host, and no user name.
2. The host is resolved once. Every address that it has must be public, unless the operator says that it is an internal
   one; so the owner of a name cannot point it at this machine or its neighbours.
3. The connection goes to the first of those addresses, under the host's certificate. A second look-up, which could
   answer differently, does not take place, and no proxy of the environment is used.
4. One request, without cookies. A redirect is refused, and so is a compressed body: its size would be unknown.
5. Size and time of the whole are limited.

An address may be a secret that opens the calendar to whoever has it, so no message contains one.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from stream.errors import OPTIONAL, DataError, UsageError

if TYPE_CHECKING:
    import httpx

FETCH_SECONDS = 20.0
"""Seconds for a whole fetch: look-up, handshake, answer."""
LONGEST_ADDRESS = 2000
_UNICAST = IPv6Network("2000::/3")
"""The addresses of the IPv6 internet. What is outside reaches own networks, or a gateway turns it into IPv4."""
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host."""


def parsed_address(text: str) -> SplitResult:
    """Return the parts of an address; UsageError if it is none that can be fetched. The message does not show it."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UsageError("address: must be an https address such as https://calendar.example.org/rooms.ics") from None
    if parts.scheme != "https" or not parts.hostname or port == 0 or len(text) > LONGEST_ADDRESS:
        raise UsageError("address: must be an https address such as https://calendar.example.org/rooms.ics")
    if not text.isascii() or not text.isprintable():
        raise UsageError("address: must contain only printable ASCII characters")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise UsageError("address: must have no user name, password or fragment")
    return parts


def is_public(address: str) -> bool:
    """Whether an IP address is public. An IPv6 address that stands for an IPv4 address is judged by that one."""
    try:
        ip: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        mapped = ip.ipv4_mapped
        if mapped is None and (ip not in _UNICAST or ip.sixtofour or ip.teredo):
            return False
        ip = mapped or ip
    return ip.is_global and not ip.is_multicast


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, as the machine resolves it."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(where[0]) for *_, where in found]


async def fetch(
    address: str,
    most: int,
    *,
    internal: bool = False,
    resolved_by: Resolve = resolve,
    tls: ssl.SSLContext | None = None,
) -> bytes:
    """Return what an address answers.

    Args:
        address: of scheme https.
        most: maximum number of bytes.
        internal: whether the host may have an address that is not public; its operator says so.
        resolved_by: the look-up of the host.
        tls: by default the system's authorities are trusted.

    Raises:
        UsageError: the address cannot be fetched, or the optional libraries are not installed.
        DataError: the host is not public, or it does not answer in time and size.
    """
    try:
        import httpx  # noqa: PLC0415 - only who reads from an address needs it
    except ModuleNotFoundError:
        msg = f"address: needs httpx; {OPTIONAL}"
        raise UsageError(msg) from None
    parts = parsed_address(address)
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            target = await _target(parts, resolved_by, internal=internal)
            trusted = tls or ssl.create_default_context()
            async with httpx.AsyncClient(verify=trusted, trust_env=False, timeout=FETCH_SECONDS) as client:
                return await _read(client, parts, target, most)
    except (TimeoutError, httpx.TimeoutException):
        msg = f"address: must answer within {FETCH_SECONDS:g} s"
        raise DataError(msg) from None
    except (httpx.HTTPError, OSError, UnicodeError):
        raise DataError("address: must be reachable, with a valid certificate for its host") from None


async def _target(parts: SplitResult, resolved_by: Resolve, *, internal: bool) -> str:
    assert parts.hostname is not None  # noqa: S101 - parsed_address
    found = await resolved_by(parts.hostname, parts.port or 443)
    if not found:
        raise DataError("address: must have a host name that can be resolved")
    if not internal and not all(map(is_public, found)):
        raise DataError("address: must be on a public host; set 'internal = true' for a host on your own network")
    return found[0]


async def _read(client: httpx.AsyncClient, parts: SplitResult, target: str, most: int) -> bytes:
    host, port = parts.hostname or "", parts.port or 443
    where = f"[{target}]" if ":" in target else target
    request = client.build_request(
        "GET", f"https://{where}:{port}{parts.path or '/'}{'?' + parts.query if parts.query else ''}",
        headers={
            "host": host if port == 443 else f"{host}:{port}",
            "accept": "text/calendar", "accept-encoding": "identity",
        },
        extensions={"sni_hostname": host},
    )  # fmt: skip
    answer = await client.send(request, stream=True, follow_redirects=False)
    try:
        if answer.status_code != 200:
            msg = f"address: must answer 200, answered {answer.status_code}; a redirect is not followed"
            raise DataError(msg)
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise DataError("address: must answer uncompressed")
        content = bytearray()
        async for piece in answer.aiter_raw():
            content += piece
            if len(content) > most:
                msg = f"address: must answer at most {most} bytes"
                raise DataError(msg)
        return bytes(content)
    finally:
        await answer.aclose()
