"""What the roles of account reader and operator see."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from connectors.serve.answers import RefusalError, answer
from connectors.serve.questions import OfCoalition, OfSiteDay
from connectors.serve.service import parsed, role, service_of
from connectors.serve.tokens import ACCOUNT, OPERATOR


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
        raise RefusalError(404, "coalition", "must be asked of a service of a store; 'tacet account' has it for Kafka")
    async with service.adding:
        return answer({"audiences": sorted(names), "sites": await service.reading(service.coalition, names)})


async def account_attributes(request: Request) -> Response:
    """Return what a day's attributes have given away, to whom."""
    service, asked = service_of(request), parsed(request, OfSiteDay)
    role(request, ACCOUNT)
    return answer({"attributes": service.account.attributes(asked.site, asked.day)})


async def operator(request: Request) -> Response:
    """Return what the services say of themselves, site by site."""
    service = service_of(request)
    role(request, OPERATOR)
    return answer({"sites": list(service.operator.newest().values())})
