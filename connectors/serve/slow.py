"""Who is slow: a body is read before it takes a place among the answers, an answer is handed over as it is taken."""

from __future__ import annotations

import anyio
from starlette.types import Message, Receive, Send

from connectors.serve.answers import RefusalError

LARGEST_BODY = 64 << 10
"""Bytes of a request's body at most, where nothing larger is awaited."""
BODY_WITHIN = 10.0
"""Seconds within which a body must have come."""
PATIENCE = 30
"""Seconds for which a reader may take nothing of an answer."""
PIECE = 64 << 10
"""Bytes of an answer that are handed over at once."""


class GoneError(Exception):
    """Who asked has gone, or takes nothing."""


async def body_of(receive: Receive, largest: int = LARGEST_BODY) -> bytes:
    """Return a whole body; a length need not be given, nor be true.

    Raises:
        RefusalError: it is too large, or has not come in time.
        GoneError: who asks has gone.
    """
    held, more = bytearray(), True
    try:
        with anyio.fail_after(BODY_WITHIN):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneError
                held += message.get("body", b"")
                more = message.get("more_body", False)
                if len(held) > largest:
                    raise too_large(largest)
    except TimeoutError:
        raise RefusalError(408, "body", f"must come within {BODY_WITHIN:g} s") from None
    return bytes(held)


def too_large(largest: int) -> RefusalError:
    """Return the refusal of a body that is too large."""
    return RefusalError(413, "body", f"must have at most {largest} bytes")


def already(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that has been read, and then what comes."""
    given = False

    async def receiving() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving


def as_taken(send: Send) -> Send:
    """Hand an answer over piece by piece, each when those before are on their way; GoneError where they stay."""

    async def handed(message: Message) -> None:
        try:
            with anyio.fail_after(PATIENCE):
                await send(message)
        except TimeoutError:
            raise GoneError from None

    async def sending(message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        last = max(0, len(body) - 1) // PIECE * PIECE
        for first in range(0, last, PIECE):
            await handed({**message, "body": body[first : first + PIECE], "more_body": True})
        await handed(message if last == 0 else {**message, "body": body[last:], "more_body": more})

    return sending
