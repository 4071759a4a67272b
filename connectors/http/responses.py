"""Responses other than figures: refusals in one form, and the headers of every answer."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import orjson
from starlette.responses import Response

_OWN = "default-src 'self'; base-uri 'none'; form-action 'none'; object-src 'none'; frame-ancestors "
POLICY, FRAME_OPTIONS = "content-security-policy", "x-frame-options"
HEADERS = {
    POLICY: f"{_OWN}'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    FRAME_OPTIONS: "DENY",
}
"""Only the service's own scripts, no framing, and no referrer to other origins."""
_SHOWN = 64


def framed_by(origins: Iterable[str]) -> str:
    """Return the content security policy of a page that these origins may embed, and no other."""
    return _OWN + " ".join(origins)


def common_headers(own: Container[str]) -> dict[str, str]:
    """Return the headers that an answer gets besides its own. A policy of its own says who may embed it."""
    left_out = {POLICY, FRAME_OPTIONS} if POLICY in own else set[str]()
    return {name: value for name, value in HEADERS.items() if name not in left_out}


class RefusalError(Exception):
    """A refused request: status, the field, the broken rule, and the value unless it may be secret."""

    def __init__(self, status: int, what: str, rule: str, value: str | None = None, retry: int | None = None) -> None:
        super().__init__(f"{what}: {rule}")
        self.status, self.what, self.rule, self.value, self.retry = status, what, rule, value, retry

    def answer(self) -> Response:
        """Return the refusal as a response."""
        error = {"what": self.what, "rule": self.rule}
        if self.value is not None:
            error["value"] = self.value[:_SHOWN]
        headers = {} if self.retry is None else {"retry-after": str(self.retry)}
        if self.status == 401:
            headers["www-authenticate"] = 'Bearer realm="tacet"'
        return answer({"error": error}, self.status, headers)


def answer(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response that must not be cached."""
    all_headers = {"cache-control": "no-store", **(headers or {})}
    return Response(orjson.dumps(body, default=_listed), status, headers=all_headers, media_type="application/json")


def _listed(value: object) -> list[object]:
    """Return a named tuple as JSON represents tuples."""
    if isinstance(value, tuple):
        return list(value)
    msg = f"cannot encode as JSON: {type(value).__name__}"
    raise TypeError(msg)


def refused(text: str) -> RefusalError:
    """Return the refusal for an error of the project with the text ``what: rule``."""
    what, _, rule = text.partition(": ")
    return RefusalError(400, what, rule) if rule else RefusalError(400, "request", text)
