"""The webhook sink: events according to Standard Webhooks (standardwebhooks.com), retried until the receiver accepts
them.

A message is signed over id, time and body. A trigger (``triggers``) decides which records cause events.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx
import orjson
import stamina
from standardwebhooks import Webhook

from connectors.runtime.retries import log_error_kinds_only
from connectors.sinks.feed import Notes
from connectors.sinks.triggers import Event, Trigger
from connectors.subscribe.order import Release
from connectors.subscribe.service import OWN_MACHINE
from stream.errors import UsageError

PREFIX = "whsec_"
TIMEOUT = 15.0
"""Seconds within which a receiver must answer."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 300.0
"""Seconds before a retry, doubled each time, with random jitter."""
_LATER = frozenset({408, 425, 429})
"""Statuses that mean a temporary refusal. Like the receiver's own errors (5xx) they are retried."""


log_error_kinds_only()


class _ReceiverBusyError(Exception):
    """The receiver is unavailable or busy."""


class WebhookSink:
    """Reports releases to one receiver, each event under its own id, until the receiver accepts it."""

    def __init__(
        self,
        url: str,
        secrets: Callable[[], Sequence[str]],
        trigger: Trigger,
        notes: Notes,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Store the receiver and the source of its secrets (``whsec_…``); UsageError if one of them is malformed.

        Secrets are read again for each attempt. During a change there are two, and both sign.
        """
        parts = urlsplit(url)
        if not parts.hostname or (parts.scheme != "https" and parts.hostname not in OWN_MACHINE):
            msg = "--to: must be an address that begins with https, or one of this machine"
            raise UsageError(msg)
        self._url, self._secrets = url, secrets
        _signers(secrets())
        self._trigger, self._notes, self._now = trigger, notes, now
        self._client = httpx.AsyncClient(timeout=TIMEOUT)

    async def begin(self, record: Release) -> None:
        """Store the initial values, from which changes and crossings are reported."""
        self._trigger.note(record, self._notes)

    async def deliver(self, record: Release) -> None:
        """Report a record if it causes an event; return when the receiver has accepted it.

        Raises:
            UsageError: the receiver rejects it permanently (4xx).
        """
        for event in self._trigger.events(record, self._notes):
            async for attempt in stamina.retry_context(
                on=(_ReceiverBusyError, httpx.TransportError), attempts=None, timeout=None,
                wait_initial=FIRST_WAIT, wait_max=LONGEST_WAIT, wait_jitter=FIRST_WAIT,
            ):  # fmt: skip
                with attempt:
                    await self._post(event)
        self._trigger.note(record, self._notes)

    async def _post(self, event: Event) -> None:
        body = orjson.dumps({"type": event.type, "timestamp": event.time, "data": event.data})
        status = await self._status_of(body, self._headers(event.id, body))
        if 200 <= status < 300:
            return
        if status in _LATER or status >= 500:
            raise _ReceiverBusyError
        msg = f"--to: must accept reports, but answered {status}"
        raise UsageError(msg)

    async def _status_of(self, body: bytes, headers: dict[str, str]) -> int:
        """Send, and return the response's status. The body is not read, because it may be endless or malicious."""
        try:
            async with (
                asyncio.timeout(TIMEOUT),
                self._client.stream("POST", self._url, content=body, headers=headers) as answer,
            ):
                return answer.status_code
        except TimeoutError:
            raise _ReceiverBusyError from None

    def _headers(self, identity: str, body: bytes) -> dict[str, str]:
        """Sign id, current time and body; an id contains no full stop, which separates the three."""
        identity = identity.replace("%", "%25").replace(".", "%2E")
        moment = datetime.fromtimestamp(int(self._now()), UTC)
        return {
            "content-type": "application/json",
            "webhook-id": identity,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": " ".join(signer.sign(identity, moment, body.decode()) for signer in self._signers()),
        }

    def _signers(self) -> list[Webhook]:
        """Return the current signers. While the secrets are malformed, as during an edit of their file, nothing is
        sent."""
        try:
            return _signers(self._secrets())
        except UsageError:
            raise _ReceiverBusyError from None

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()


def _signers(secrets: Sequence[str]) -> list[Webhook]:
    return [_signer(secret) for secret in secrets]


def _signer(secret: str) -> Webhook:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
    except ValueError:
        key = b""
    if not 24 <= len(key) <= 64:
        msg = f"--secret-file: must contain {PREFIX} and 24 to 64 random bytes in base64"
        raise UsageError(msg)
    return Webhook(key)
