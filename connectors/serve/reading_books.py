"""What the roles of account reader and operator see."""

from __future__ import annotations

import shutil

from starlette.requests import Request
from starlette.responses import Response

from connectors.serve.answers import RefusalError, answer
from connectors.serve.questions import OfCoalition, OfSiteDay
from connectors.serve.service import parsed, role, service_of
from connectors.serve.tokens import ACCOUNT, OPERATOR
from stream.records import SECOND, Micros
from stream.schemas import parse_time


async def account(request: Request) -> Response:
    """Return each site's account as it stands, and what is promised to each audience."""
    service = service_of(request)
    role(request, ACCOUNT)
    names = [audience.name for audience in service.policy.audience]
    promise = {name: (await service.promised_to(name))["promise"] for name in names}
    return answer({"sites": service.account.newest(), "promise": promise})


async def account_coalition(request: Request) -> Response:
    """Return what some audiences have been told together, site by site, in every privacy unit."""
    service, asked = service_of(request), parsed(request, OfCoalition)
    role(request, ACCOUNT)
    names = frozenset(asked.audiences.split(","))
    if not names <= {audience.name for audience in service.policy.audience}:
        raise RefusalError(422, "audiences", "must be names of the policy's audiences, with commas between")
    if service.coalition is None:
        raise RefusalError(404, "coalition", "must be asked of a service of the account")
    async with service.adding:
        return answer({"audiences": sorted(names), "sites": await service.reading(service.coalition, names)})


async def account_attributes(request: Request) -> Response:
    """Return what a day's attributes have given away, to whom."""
    service, asked = service_of(request), parsed(request, OfSiteDay)
    role(request, ACCOUNT)
    return answer({"attributes": service.account.attributes(asked.site, asked.day)})


async def operator(request: Request) -> Response:
    """Return what the services say of themselves, site by site, and what the books have denied."""
    service = service_of(request)
    role(request, OPERATOR)
    rows = [
        {"silent_sources": None} | row
        | {"lag_seconds": _lag(service.now(), row["window_end"]), "denied": service.account.denials.of(site)}
        for site, row in service.operator.newest().items()
    ]  # fmt: skip
    free = None if service.store is None else shutil.disk_usage(service.store).free >> 20
    return answer({"sites": rows, "free_mib": free})


def _lag(now: Micros, window_end: str | None) -> float | None:
    """Return for how many seconds no window has been released; None before the first."""
    return None if window_end is None else max(0, now - parse_time(window_end)) / SECOND
