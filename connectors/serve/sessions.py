"""Sessions of browsers, and the play of a day: what a page changes at the service."""

from __future__ import annotations

from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response

from connectors.serve.answers import RefusalError, answer
from connectors.serve.api import instant
from connectors.serve.playback import Playback
from connectors.serve.questions import Login, Play
from connectors.serve.service import Service, body_of, recognised, service_of, who_asks
from stream.records import SECOND
from stream.schemas import rfc3339


async def session(request: Request) -> Response:
    """Return who asks, and what this service is."""
    service, who = service_of(request), who_asks(request)
    return answer(
        {"roles": sorted(who.roles), "audiences": list(who.audiences), "open": who == service.access.anyone,
         "laboratory": service.laboratory, "version": version("tacet-occupancy"),
         "playback": service.playback is not None}
    )  # fmt: skip


async def begin(request: Request) -> Response:
    """Begin a session for the secret of a link or a token."""
    service, login = service_of(request), await body_of(request, Login)
    if (login.link is None) == (login.token is None):
        raise RefusalError(422, "session", "must be begun with either link or token")
    if login.link is not None:
        link = login.link
        who = recognised(request, lambda: service.access.by_link(link), "link")
        service.link_used()
    else:
        token = login.token or ""
        who = recognised(request, lambda: service.access.by_token(token), "token")
    cookie, held = service.access.begin(who)
    ending = Response(status_code=204, headers={"cache-control": "no-store"})
    ending.set_cookie(
        service.cookie, cookie, max_age=max(0, ((held.expires or 0) - service.clock()) // SECOND), path="/",
        secure=service.names.scheme == "https", httponly=True, samesite="strict",
    )  # fmt: skip
    return ending


async def end(request: Request) -> Response:
    """End the session, and its streams."""
    service, who = service_of(request), who_asks(request)
    service.access.end(who)
    service.streams.sweep()
    ending = Response(status_code=204, headers={"cache-control": "no-store"})
    ending.delete_cookie(
        service.cookie, path="/", secure=service.names.scheme == "https", httponly=True, samesite="strict"
    )
    return ending


async def playback(request: Request) -> Response:
    """Return how the day is being played."""
    who_asks(request)
    return answer(_state(_play_of(service_of(request))))


async def play(request: Request) -> Response:
    """Play otherwise; who goes back begins anew, and open streams end."""
    service = service_of(request)
    who_asks(request)
    playing, asked = _play_of(service), await body_of(request, Play)
    if playing.change(speed=asked.speed, paused=asked.paused, at=instant("at", asked.at)):
        await service.rewound()
    return answer(_state(playing))


def _play_of(service: Service) -> Playback:
    if service.playback is None:
        raise RefusalError(404, "playback", "must be asked of a service that plays a day ('--play')")
    return service.playback


def _state(playing: Playback) -> dict[str, object]:
    at, start, end = (rfc3339(each) for each in (playing.at(), playing.start, playing.end))
    return {"speed": playing.speed, "paused": playing.paused, "at": at, "start": start, "end": end}
