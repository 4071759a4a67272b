"""The ASGI application: page files, OpenAPI document, operations, and limits.

* Page files are read into memory once, so that no path of a request reaches the file system.
* One table of operations makes both the routes and the OpenAPI 3.1 document.
* Error responses contain no data of releases.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from connectors.http.limits import Rates, RequestLimits
from connectors.http.responses import RefusalError, answer, framed_by
from connectors.serve import api, bookings, learn, models, room
from connectors.serve.openapi import Operation, document, interface_page
from connectors.serve.service import Service, rate_limit_key
from stream.errors import TacetError

FOLDER = Path(__file__).parent / "static"
INDEX, ROOM_PAGE = "/static/index.html", "/static/room.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
"""Types of files that are served; others, such as licences, are not."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A page file, ready to send."""

    plain: bytes
    compressed: bytes
    type: str
    tag: str


def page_files(folder: Path = FOLDER) -> dict[str, PageFile]:
    """Return the page's files by path; ``/`` is index.html, ``/room`` is room.html."""
    found = {
        f"/static/{path.relative_to(folder).as_posix()}": _file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in TYPES
    }
    own = {"/": INDEX, "/room": ROOM_PAGE}
    return found | {path: found[file] for path, file in own.items() if file in found}


def _file(path: Path) -> PageFile:
    plain = path.read_bytes()
    tag = f'"{hashlib.sha256(plain).hexdigest()[:32]}"'
    return PageFile(plain, gzip.compress(plain, 9, mtime=0), TYPES[path.suffix], tag)


async def page(request: Request) -> Response:
    """Send a file of the page: compressed if the browser accepts that, and 304 if the browser has it."""
    files: dict[str, PageFile] = request.state.files
    file = files.get(request.scope["path"])
    if file is None:
        raise RefusalError(404, "path", "must exist")
    headers = {"etag": file.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
    embedders = request.state.service.embedders
    if request.scope["path"] == "/room" and embedders:
        headers["content-security-policy"] = framed_by(embedders)
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.compressed, headers=headers | {"content-encoding": "gzip"}, media_type=file.type)
    return Response(file.plain, headers=headers, media_type=file.type)


PREFIX = "/api/v1"
_FILES = ("application/json", "text/csv", "application/vnd.apache.parquet")
OPERATIONS = (
    Operation("GET", "/healthz", api.health, models.Health, open=True),
    Operation("GET", f"{PREFIX}/session", api.session, models.Session),
    Operation("POST", f"{PREFIX}/session", api.begin, body=models.Login, open=True),
    Operation("DELETE", f"{PREFIX}/session", api.end),
    Operation("GET", f"{PREFIX}/sites", api.sites, models.Sites),
    Operation("GET", f"{PREFIX}/sites/{{site}}/plans/{{floor}}", api.plan, models.Plan),
    Operation("GET", f"{PREFIX}/releases", api.releases, models.Releases),
    Operation("GET", f"{PREFIX}/releases/{{release}}/records", api.records, models.Records, models.OfRecords,
              media=_FILES),
    Operation("GET", f"{PREFIX}/room", room.room, models.RoomPart, models.OfRoom),
    Operation("GET", f"{PREFIX}/bookings", bookings.bookings, models.BookingsPart, models.OfBookings),
    Operation("GET", f"{PREFIX}/report", api.report, models.MonthPage, models.OfReport, media=("text/html",)),
    Operation("GET", f"{PREFIX}/policy", api.policy, models.PolicyPart, models.OfPolicy),
    Operation("GET", f"{PREFIX}/latest", api.latest, models.Latest, models.OfSite),
    Operation("GET", f"{PREFIX}/usual", api.usual, models.Usual, models.OfUsual),
    Operation("GET", f"{PREFIX}/forecast", api.forecast, models.Forecast, models.OfRelease),
    Operation("GET", f"{PREFIX}/attributes", api.attributes, models.Listed, models.OfDays),
    Operation("GET", f"{PREFIX}/spends", api.spends, models.Spends, models.OfDays),
    Operation("GET", f"{PREFIX}/stream", api.stream, models.Event, models.OfStream, media=("text/event-stream",)),
    Operation("GET", f"{PREFIX}/account", api.account, models.AccountPart),
    Operation("GET", f"{PREFIX}/account/coalition", api.account_coalition, models.Coalition,
              models.OfCoalition),
    Operation("GET", f"{PREFIX}/account/attributes", api.account_attributes, models.Attributes,
              models.OfSiteDay),
    Operation("GET", f"{PREFIX}/operator", api.operator, models.OperatorPart),
    Operation("GET", f"{PREFIX}/learn/day", learn.learn_day, models.Lesson, models.OfLesson),
    Operation("GET", f"{PREFIX}/learn/tasks", learn.learn_tasks, models.LessonRound, models.OfRound),
    Operation("POST", f"{PREFIX}/learn/answers", learn.learn_answer, models.LessonScore,
              body=models.Answered),
    Operation("GET", f"{PREFIX}/playback", api.playback, models.PlayState),
    Operation("POST", f"{PREFIX}/playback", api.play, models.PlayState, body=models.Play),
)  # fmt: skip
"""All operations of the API."""


async def description(request: Request) -> Response:
    """Return the OpenAPI document of this API."""
    return answer(request.state.document)


async def interface(request: Request) -> Response:
    """Return the OpenAPI document as an HTML page."""
    return Response(request.state.interface, media_type=TYPES[".html"], headers={"cache-control": "no-cache"})


def application(service: Service, rates: Rates | None = None) -> RequestLimits:
    """Return the service as an ASGI application, with the request limits in front of every route."""
    described = Operation("GET", f"{PREFIX}/openapi.json", description, models.Document, open=True)
    operations = (*OPERATIONS, described)
    router = Router([
        *_routes(operations), Route("/docs", interface, methods=["GET"]), Route("/{path:path}", page, methods=["GET"]),
    ])  # fmt: skip
    answering = ExceptionMiddleware(router, {RefusalError: _refusal, TacetError: _stopped, HTTPException: _unrouted})
    described_api = document(operations, service.cookie)
    state = {
        "service": service, "files": page_files(), "document": described_api,
        "interface": interface_page(described_api),
    }  # fmt: skip

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        peer = tuple(scope["client"] or ("", 0))
        service.busy.add(peer)
        try:
            await answering(
                {**scope, "state": state, "app": answering}, receive, send
            )  # unknown routes get the same form of error as all others
        finally:
            service.busy.discard(peer)

    return RequestLimits(
        app, service.allowed_hosts, rates, partial(rate_limit_key, service),
        streams=(f"{PREFIX}/stream",), same_origin="/api/",
    )  # fmt: skip


def _routes(operations: Iterable[Operation]) -> list[Route]:
    return [Route(op.path, op.handler, methods=[op.method]) for op in operations]


async def _refusal(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, RefusalError)  # noqa: S101
    return error.answer()


async def _unrouted(request: Request, error: Exception) -> Response:
    del request
    status = error.status_code if isinstance(error, HTTPException) else 404
    what, rule = ("method", "must be one that this path accepts") if status == 405 else ("path", "must exist")
    return RefusalError(status, what, rule).answer()


async def _stopped(request: Request, error: Exception) -> Response:
    del request
    structlog.get_logger("tacet.serve").error("a request failed", error=type(error).__name__)
    return RefusalError(503, "service", "has an error that its operator must correct; see its log", retry=30).answer()
