"""Requests to a system's HTTPS interface, and tables that come in pages.

1. One request is in flight. Requests are ``spacing`` apart, so that a shared allowance is used to a tenth at most.
2. A request without an answer is sent once more. An answer that asks to wait (429, 503) is obeyed: the request is sent
   again after that time if it is short, and otherwise the poll fails and the next ones are left out for that long.
3. The server proves itself by a certificate that an authority signed, or by the one certificate whose digest is known,
   before any credential is sent.
4. Pages overlap. If a row goes between two requests, all rows behind it move forward; without an overlap one of them
   would be missed because of another. A page that shares no row with the one before it fails the poll. So as long as
   the order of rows is stable, every row that is there throughout is found (``paged``).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from connectors.sources.polls.snmp_walk import MALFORMED, MOST_ROWS, NO_ANSWER, REFUSED, TOO_LONG, PollError
from stream.errors import OPTIONAL, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

ANSWER_WITHIN = 20.0
"""Seconds."""
LARGEST_ANSWER = 32 << 20
"""Octets."""
LONGEST_WAIT = 20.0
"""Seconds for which a poll waits if the system asks it to."""
TRIES = 2
HTTPS_PORT = 443
_BUSY = frozenset({429, 503})
SHIFTED = "shifted"
"""The reason of a poll whose pages did not overlap."""
Query = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Server:
    """The address of an interface and the proof of its identity."""

    url: str
    """``https://host:port``, without a path."""
    fingerprint: str | None = None
    """The SHA-256 of its certificate."""
    ca_file: Path | None = None
    """Certificates that may sign the server's; None: those that the machine trusts."""

    async def context(self) -> ssl.SSLContext:
        """Return the context that accepts this server only; PollError if it shows another certificate.

        PollError, too, if ``ca_file`` cannot be read now: the file may be replaced while the process runs.
        """
        if self.fingerprint is None:
            try:
                return self.verifying()
            except OSError:
                raise PollError(REFUSED) from None
        certificate = await self._certificate()
        if not hmac.compare_digest(hashlib.sha256(certificate).hexdigest(), self.fingerprint):
            raise PollError(REFUSED)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # this certificate itself is what is trusted
        context.load_verify_locations(cadata=certificate)
        return context

    def verifying(self) -> ssl.SSLContext:
        """Return the context that accepts a certificate of the authorities; OSError if ``ca_file`` cannot be read."""
        return ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))

    async def _certificate(self) -> bytes:
        parts = urlsplit(self.url)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                _, writer = await asyncio.open_connection(parts.hostname, parts.port or HTTPS_PORT, ssl=context)
        except OSError:
            raise PollError(NO_ANSWER) from None
        try:
            return writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
        finally:
            writer.close()


class RestSession:
    """Requests to one system."""

    def __init__(self, client: httpx.AsyncClient, spacing: float) -> None:
        """``spacing``: seconds between two requests, at least."""
        self._client, self._spacing, self._next = client, spacing, 0.0
        self.sent = 0
        """Requests so far."""

    async def request(
        self, path: str, query: Query | None = None, *,
        body: object = None, headers: Mapping[str, str] | None = None, method: str = "GET",
    ) -> Any:  # fmt: skip
        """Return the document of an answer; PollError if there is none, or the system refuses."""
        document, _ = await self.request_with_links(path, query, body=body, headers=headers, method=method)
        return document

    async def request_with_links(
        self, path: str, query: Query | None = None, *,
        body: object = None, headers: Mapping[str, str] | None = None, method: str = "GET",
    ) -> tuple[Any, Mapping[str, str]]:  # fmt: skip
        """Return the document of an answer, and its links by their relation (RFC 8288)."""
        content = None if body is None else orjson.dumps(body)
        named = {"accept": "application/json", "accept-encoding": "identity", **(headers or {})}
        if content is not None:
            named["content-type"] = "application/json"
        for last in (False, True):
            await asyncio.sleep(max(0.0, self._next - time.monotonic()))
            self._next = time.monotonic() + self._spacing
            self.sent += 1
            answer = await self._answer(method, path, query, content, named)
            if answer is None and not last:
                continue
            if answer is None:
                raise PollError(NO_ANSWER)
            if answer.status in _BUSY:
                if last or answer.wait > LONGEST_WAIT:
                    raise PollError(REFUSED, answer.wait)
                self._next = time.monotonic() + max(answer.wait, self._spacing)
                continue
            return _document(answer), answer.links
        raise AssertionError

    async def send(self, path: str, query: Query, *, method: str) -> None:
        """Send a request whose answer does not matter."""
        self.sent += 1
        await self._answer(method, path, query, None, {"accept-encoding": "identity"})

    async def _answer(
        self, method: str, path: str, query: Query | None, content: bytes | None,
        headers: Mapping[str, str],
    ) -> _Answer | None:  # fmt: skip
        import httpx  # noqa: PLC0415 - needed only where a system is polled by HTTPS

        try:
            async with (
                asyncio.timeout(ANSWER_WITHIN),
                self._client.stream(method, path, params=query, content=content, headers=dict(headers)) as answer,
            ):
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise PollError(MALFORMED)  # a compressed answer could expand beyond memory
                octets = bytearray()
                async for part in answer.aiter_raw():
                    octets += part
                    if len(octets) > LARGEST_ANSWER:
                        raise PollError(TOO_LONG)
                links = {str(name): str(link.get("url", "")) for name, link in answer.links.items()}
                return _Answer(answer.status_code, bytes(octets), _wait(answer.headers.get("retry-after")), links)
        except (httpx.HTTPError, OSError):
            return None
        except UnicodeEncodeError:  # the system has given a token that no header can contain
            raise PollError(REFUSED) from None


class _Answer(NamedTuple):
    status: int
    octets: bytes
    wait: float
    links: Mapping[str, str]


def _wait(text: str | None) -> float:
    """Return the seconds of a Retry-After; a date counts as a minute, since the clocks may differ."""
    if text is None:
        return 0.0
    return float(min(int(text), 3600)) if text.isdecimal() and len(text) < 10 else 60.0


def _document(answer: _Answer) -> Any:
    if answer.status not in {200, 201}:
        raise PollError(REFUSED)
    try:
        return orjson.loads(answer.octets)
    except orjson.JSONDecodeError:
        raise PollError(MALFORMED) from None


@asynccontextmanager
async def session(server: Server, spacing: float) -> AsyncIterator[RestSession]:
    """Connect to a system for one poll."""
    try:
        import httpx  # noqa: PLC0415 - needed only where a system is polled by HTTPS
    except ImportError:
        msg = f"poll: needs httpx; {OPTIONAL}"
        raise UsageError(msg) from None
    context = await server.context()
    async with httpx.AsyncClient(
        base_url=server.url, verify=context, timeout=ANSWER_WITHIN, follow_redirects=False, trust_env=False
    ) as client:
        yield RestSession(client, spacing)


# --- tables in pages ------------------------------------------------------------------------------------


class Page(NamedTuple):
    """What to request: rows ``start`` to ``start + size``, which is page ``number`` (from 1) of that size."""

    start: int
    size: int

    @property
    def number(self) -> int:
        """The number of the page; ``start`` is a multiple of ``size``."""
        return self.start // self.size + 1


def first_page(largest: int) -> Page:
    """Return the first page of a table."""
    return Page(0, largest)


def following(page: Page, largest: int, *, numbered: bool) -> Page:
    """Return the page behind another one, which overlaps it by a tenth of ``largest`` at least.

    An interface whose pages are ``numbered`` has no page that starts anywhere; another size of the page makes one that
    starts where it is needed. That works up to 200,000 rows for pages of 1,000.
    """
    most = page.start + page.size - largest // 10
    if not numbered:
        return Page(most, largest)
    number = -(-most // largest)
    size = most // number
    return Page(number * size, size)


Rows = list[dict[str, object]]


async def paged(read: Callable[[Page], Awaitable[Rows]], key: str, largest: int, *, numbered: bool) -> Rows:
    """Return the rows of a table that is read in pages of at most ``largest`` rows; a row may come twice.

    ``key`` names the field by which rows are told apart. Raises PollError if two pages share no row, or if the table is
    longer than ``MOST_ROWS``.
    """
    page, found = first_page(largest), Rows()
    before: set[str] | None = None
    while True:
        rows = await read(page)
        keys = {str(row[key]) for row in rows if row.get(key) is not None}
        if before is not None and not before & keys:
            raise PollError(SHIFTED)
        found += rows
        if len(found) > 2 * MOST_ROWS:
            raise PollError(TOO_LONG)
        if len(rows) < page.size:
            return found
        page, before = following(page, largest, numbered=numbered), keys


def rows_of(document: Any, *path: str) -> Rows:
    """Return the list of objects at a place of a document; PollError if there is none."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    if not isinstance(document, list) or not all(isinstance(row, dict) for row in document):
        raise PollError(MALFORMED)
    return document
