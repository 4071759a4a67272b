"""Where systems of the cloud send: one path for each hook, behind the guard of ``tacet serve``."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from connectors.hooks.desk import Desk
from connectors.hooks.hooks_file import Hook
from connectors.hooks.judging import RefusedError, judge
from connectors.hooks.mist import SIGNATURE
from connectors.serve.guard import Guard, Names
from stream.records import Micros

LARGEST_BODY = 2 << 20
"""Bytes: of a network with some thousand devices."""
AT_ONCE = 16
UNKNOWN_HOOK = "unknown_hook"


def application(hook_of: Callable[[str], Hook | None], desk: Desk, names: Names, now: Callable[[], Micros]) -> Guard:
    """Return the application: 200 means that what was said is durable, or that there is nothing to store.

    ``hook_of`` gives a system by its name, with its secrets of now.
    """

    async def asked(request: Request) -> Response:
        hook = hook_of(request.path_params["name"])
        if hook is None:
            desk.refuse(UNKNOWN_HOOK)
            return Response(status_code=404)
        if request.method == "POST":
            return await _posted(hook, request, desk, now())
        if hook.validator is None:
            return Response(status_code=405)
        return PlainTextResponse(hook.validator.get_secret_value())

    route = Route("/hooks/{name}", asked, methods=["GET", "POST"])
    return Guard(Starlette(routes=[route]), names, at_once=AT_ONCE, largest=LARGEST_BODY)


async def _posted(hook: Hook, request: Request, desk: Desk, now: Micros) -> Response:
    try:
        verdict = judge(hook, await request.body(), request.headers.get(SIGNATURE), now)
    except RefusedError as refused:
        desk.refuse(refused.reason)
        return Response(status_code=400 if refused.reason == "malformed" else 401)
    if await desk.take(hook.source, [verdict]):
        return Response(status_code=200)
    return Response(status_code=503, headers={"retry-after": "5"})
