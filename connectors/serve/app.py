"""The service put together: the table of operations, the guard before it, and errors that say nothing of data."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import structlog
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from connectors.serve import api, learn, lesson_models, models, questions, reading_books, sessions
from connectors.serve.answers import RefusalError, answer
from connectors.serve.documents import PREFIX, Operation, document
from connectors.serve.files import page, page_files
from connectors.serve.guard import Guard, Rates
from connectors.serve.service import Service, shown_by
from stream.errors import TacetError

_FILES = ("application/json", "text/csv", "application/vnd.apache.parquet")
OPERATIONS = (
    Operation("GET", "/healthz", api.health, models.Health, open=True),
    Operation("GET", f"{PREFIX}/session", sessions.session, models.Session),
    Operation("POST", f"{PREFIX}/session", sessions.begin, body=questions.Login, open=True),
    Operation("DELETE", f"{PREFIX}/session", sessions.end),
    Operation("GET", f"{PREFIX}/sites", api.sites, models.Sites),
    Operation("GET", f"{PREFIX}/sites/{{site}}/plans/{{floor}}", api.plan, models.Plan),
    Operation("GET", f"{PREFIX}/releases", api.releases, models.Releases),
    Operation("GET", f"{PREFIX}/releases/{{release}}/records", api.records, models.Records, questions.OfRecords,
              media=_FILES),
    Operation("GET", f"{PREFIX}/policy", api.policy, models.PolicyPart),
    Operation("GET", f"{PREFIX}/latest", api.latest, models.Latest, questions.OfSite),
    Operation("GET", f"{PREFIX}/usual", api.usual, models.Usual, questions.OfUsual),
    Operation("GET", f"{PREFIX}/attributes", api.attributes, models.Listed, questions.OfDays),
    Operation("GET", f"{PREFIX}/spends", api.spends, models.Spends, questions.OfDays),
    Operation("GET", f"{PREFIX}/stream", api.stream, models.Event, questions.OfStream, media=("text/event-stream",)),
    Operation("GET", f"{PREFIX}/account", reading_books.account, models.AccountPart),
    Operation("GET", f"{PREFIX}/account/coalition", reading_books.account_coalition, models.Coalition,
              questions.OfCoalition),
    Operation("GET", f"{PREFIX}/account/attributes", reading_books.account_attributes, models.Attributes,
              questions.OfSiteDay),
    Operation("GET", f"{PREFIX}/operator", reading_books.operator, models.OperatorPart),
    Operation("GET", f"{PREFIX}/learn/day", learn.learn_day, lesson_models.Lesson, questions.OfLesson),
    Operation("GET", f"{PREFIX}/learn/tasks", learn.learn_tasks, lesson_models.LessonRound, questions.OfRound),
    Operation("POST", f"{PREFIX}/learn/answers", learn.learn_answer, lesson_models.LessonScore,
              body=questions.Answered),
    Operation("GET", f"{PREFIX}/playback", sessions.playback, models.PlayState),
    Operation("POST", f"{PREFIX}/playback", sessions.play, models.PlayState, body=questions.Play),
)  # fmt: skip
"""Everything that can be asked."""


async def description(request: Request) -> Response:
    """Return this description."""
    return answer(request.state.document)


def application(service: Service, rates: Rates | None = None) -> Guard:
    """Return the service as an ASGI application, with the guard before all of it."""
    described = Operation("GET", f"{PREFIX}/openapi.json", description, models.Document, open=True)
    operations = (*OPERATIONS, described)
    router = Router([*_routes(operations), Route("/{path:path}", page, methods=["GET"])])
    answering = ExceptionMiddleware(router, {RefusalError: _refusal, TacetError: _stopped, HTTPException: _unrouted})
    state = {"service": service, "files": page_files(), "document": document(operations, service.cookie)}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        peer = tuple(scope["client"] or ("", 0))
        service.busy.add(peer)
        try:
            await answering(
                {**scope, "state": state, "app": answering}, receive, send
            )  # routes refuse as all else does
        finally:
            service.busy.discard(peer)

    return Guard(app, service.names, rates, partial(shown_by, service))


def _routes(operations: Iterable[Operation]) -> list[Route]:
    return [Route(op.path, op.handler, methods=[op.method]) for op in operations]


async def _refusal(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, RefusalError)  # noqa: S101
    return error.answer()


async def _unrouted(request: Request, error: Exception) -> Response:
    del request
    status = error.status_code if isinstance(error, HTTPException) else 404
    what, rule = (
        ("method", "must be one that this path takes") if status == 405 else ("path", "must be one that there is")
    )
    return RefusalError(status, what, rule).answer()


async def _stopped(request: Request, error: Exception) -> Response:
    del request
    structlog.get_logger("tacet.serve").error("a request failed", error=type(error).__name__)
    return RefusalError(503, "service", "must be set right by its operator; its log says more", retry=30).answer()
