"""Webhooks after Standard Webhooks (standardwebhooks.com): signed over id, time and body; tried until taken."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import stamina
from standardwebhooks import Webhook

from connectors.sinks.occasions import Event, Occasion
from connectors.subscriber import Release
from connectors.subscribing.service import OWN_MACHINE
from stream.errors import UsageError

PREFIX = "whsec_"
TIMEOUT = 15.0
"""Seconds within which a receiver has to answer."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 300.0
"""Seconds before a receiver that is away is tried again: doubled each time, and some of them left to chance."""
_LATER = frozenset({408, 425, 429})
"""Refusals that say: not now. Like errors of the receiver's own (5xx) they are tried again."""


class _NotNowError(Exception):
    """The receiver is away, or busy."""


class WebhookSink:
    """Reports releases to one receiver, each event under its own id, until the receiver has taken it."""

    def __init__(
        self,
        url: str,
        secrets: Callable[[], Sequence[str]],
        occasion: Occasion,
        notes: dict[str, Any],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Take the receiver and what gives its secrets (``whsec_…``); UsageError where one of them is none.

        Secrets are asked for anew for each attempt. While one is being changed there are two, and each signs.
        """
        parts = urlsplit(url)
        if not parts.hostname or (parts.scheme != "https" and parts.hostname not in OWN_MACHINE):
            msg = "--to: must be an address that begins with https, or one of this machine"
            raise UsageError(msg)
        self._url, self._secrets = url, secrets
        _signers(secrets())
        self._occasion, self._notes, self._now = occasion, notes, now
        self._client = httpx.AsyncClient(timeout=TIMEOUT)

    async def begin(self, record: Release) -> None:
        """Take what is known at the beginning: changes and crossings are reported from there."""
        self._occasion.note(record, self._notes)

    async def deliver(self, record: Release) -> None:
        """Report a record, if there is an occasion; return when the receiver has taken it.

        Raises:
            UsageError: the receiver refuses it for good (4xx).
        """
        for event in self._occasion.events(record, self._notes):
            async for attempt in stamina.retry_context(
                on=(_NotNowError, httpx.TransportError), attempts=None, timeout=None,
                wait_initial=FIRST_WAIT, wait_max=LONGEST_WAIT, wait_jitter=FIRST_WAIT,
            ):  # fmt: skip
                with attempt:
                    await self._post(event)
        self._occasion.note(record, self._notes)

    async def _post(self, event: Event) -> None:
        body = orjson.dumps({"type": event.type, "timestamp": event.time, "data": event.data})
        answer = await self._client.post(self._url, content=body, headers=self._headers(event.id, body))
        if answer.is_success:
            return
        if answer.status_code in _LATER or answer.status_code >= 500:
            raise _NotNowError
        msg = f"--to: must take what is reported, answered {answer.status_code}"
        raise UsageError(msg)

    def _headers(self, identity: str, body: bytes) -> dict[str, str]:
        """Sign id, present time and body; an id has no full stop, which parts the three."""
        identity = identity.replace("%", "%25").replace(".", "%2E")
        moment = datetime.fromtimestamp(int(self._now()), UTC)
        return {
            "content-type": "application/json",
            "webhook-id": identity,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": " ".join(signer.sign(identity, moment, body.decode()) for signer in self._signers()),
        }

    def _signers(self) -> list[Webhook]:
        """Return who signs now; while secrets are none, as amid an edit of their file, nothing is sent."""
        try:
            return _signers(self._secrets())
        except UsageError:
            raise _NotNowError from None

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
        msg = f"--secret-file: must hold {PREFIX} and 24 to 64 random bytes in base64"
        raise UsageError(msg)
    return Webhook(key)
