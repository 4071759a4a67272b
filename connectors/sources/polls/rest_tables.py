"""Associated clients of systems with an HTTPS interface.

| system | request | rows that count | pages | spacing |
|---|---|---|---|---|
| UniFi Network | GET /proxy/network/integration/v1/sites/ID/clients | type WIRELESS | overlap | 0.2 s |
| Omada, Open API | GET /openapi/v1/ID/sites/ID/clients | wireless and active | overlap, by address | 0.2 s |
| SmartZone, public API | POST /wsg/api/public/v11_1/query/client | all | overlap, by address | 0.2 s |
| Mist | GET /api/v1/sites/ID/stats/clients | all with an access point | one answer | 7.2 s |
| Meraki | GET /api/v1/networks/ID/clients | Online, Wireless | cursor | 1 s |

The spacing of Mist and Meraki is a tenth of what they allow: 5,000 requests an hour for a token, 10 a second for an
organisation. Names and IP addresses in the answers are not read. User names are read of Mist (``username``) and Meraki
(``user``), for a site that counts logins by them. UniFi's local interface has none, Omada's ``dot1xIdentity`` is about
wired clients, and no published form shows SmartZone's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from connectors.sources.ingest.addresses import NOWHERE, address_of
from connectors.sources.polls.client_tables import AssociatedClient
from connectors.sources.polls.rest import Page, Query, RestSession, Rows, Server, paged, rows_of, session
from connectors.sources.polls.snmp_walk import MALFORMED, MOST_ROWS, REFUSED, TOO_LONG, PollError, Table

UNIFI_PAGE, OMADA_PAGE, SMARTZONE_PAGE, MIST_PAGE, MERAKI_PAGE = 200, 1000, 1000, 1000, 1000
"""Rows of one answer at most."""
MERAKI_SPAN = 300
"""Seconds in which a client of Meraki must have used the network: its list is by time, not by association."""
SMARTZONE = "/wsg/api/public/v11_1"
LOG_OUT_WITHIN = 5.0
"""Seconds for the end of a session whose table could not be read."""
Credentials = Mapping[str, str]
"""What each request carries: headers, or of SmartZone a parameter."""


class RestAccess(NamedTuple):
    """The credentials and the places of one system; its repr hides them."""

    sites: tuple[str, ...]
    """The system's own names of sites, zones or networks."""
    token: str = ""
    user: str = ""
    password: str = ""
    controller: str = ""

    def __repr__(self) -> str:
        """Show nothing."""
        return "RestAccess()"


class Clients(NamedTuple):
    """The rows of one site that count, and where a row says which device it is about; its repr hides them."""

    rows: Rows
    address: str
    """The field with the device's address."""
    place: Callable[[Mapping[str, object]], object]
    """Returns the address of a row's access point."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "Clients()"


class RestSystem(NamedTuple):
    """How one kind of system is read."""

    log_in: Callable[[RestSession, RestAccess], Awaitable[Credentials]]
    read: Callable[[RestSession, RestAccess, str, Credentials], Awaitable[Clients]]
    """Reads one site."""
    spacing: float
    """Seconds between two requests."""
    needs: frozenset[str]
    """The fields of ``RestAccess`` that must be given."""
    log_out: Callable[[RestSession, Credentials], Awaitable[None]] | None = None
    check: str = ""
    """Of a system in the cloud: the path of a request whose answer has the same size whoever is there."""
    user_name: str = ""
    """The field of a row with the user name; empty if there is none."""


class RestReader:
    """The table of one system: the clients of all its sites that are given."""

    def __init__(
        self, system: RestSystem, server: Server, access: Callable[[], RestAccess], *, logins: bool = False
    ) -> None:
        """``access`` returns the present credentials; ``logins``: whether user names are read."""
        self._system, self._server, self._access = system, server, access
        self._user_name = system.user_name if logins else ""

    async def read(self) -> Table:
        """Log in, read each site, and log out, also if a site cannot be read or the poll is cancelled."""
        access = self._access()
        async with session(self._server, self._system.spacing) as rest:
            credentials = await self._system.log_in(rest, access)
            found: dict[tuple[bytes, bytes], AssociatedClient] = {}
            try:
                for site in access.sites:
                    clients = await self._system.read(rest, access, site, credentials)
                    for row in clients_of(clients, self._user_name):
                        found.setdefault((row.client, row.user_name), row)
                await self._log_out(rest, credentials)
            except (PollError, asyncio.CancelledError):  # a poll that reaches its limit is cancelled
                with suppress(PollError, TimeoutError):  # the reading's failure is the reason
                    async with asyncio.timeout(LOG_OUT_WITHIN):
                        await self._log_out(rest, credentials)
                raise
            if len(found) > MOST_ROWS:
                raise PollError(TOO_LONG)
            return Table(list(found.values()), rest.sent)

    async def _log_out(self, rest: RestSession, credentials: Credentials) -> None:
        if self._system.log_out is not None:
            await self._system.log_out(rest, credentials)

    async def check(self) -> bool:
        """Return whether the system answers a request that does not concern clients, with these credentials."""
        access = self._access()
        try:
            async with session(self._server, self._system.spacing) as rest:
                await rest.request(self._system.check, headers=await self._system.log_in(rest, access))
        except PollError:
            return False
        return True


def clients_of(clients: Clients, user_name: str = "") -> list[AssociatedClient]:
    """Return one entry for each device and user name: the first row with an address and an access point decides.

    ``user_name`` names the field to read; if it is empty, none is read.
    """
    found: dict[tuple[bytes, bytes], AssociatedClient] = {}
    for row in clients.rows:
        device, radio = _address(row.get(clients.address)), _address(clients.place(row))
        if device is not None and radio is not None:
            text = row.get(user_name) if user_name else None
            name = text.encode("utf-8", "replace") if isinstance(text, str) else b""
            found.setdefault((device, name), AssociatedClient(device, radio, user_name=name))
    return list(found.values())


def _address(value: object) -> bytes | None:
    address = address_of(value) if isinstance(value, str) else None
    return None if address == NOWHERE else address


def _given(document: Any, *path: str) -> str:
    """Return a text of a document; PollError if there is none."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    if not isinstance(document, str) or not document:
        raise PollError(REFUSED)
    return document


# --- UniFi Network --------------------------------------------------------------------------------------


async def _unifi_key(rest: RestSession, access: RestAccess) -> Credentials:
    del rest
    return {"X-API-KEY": access.token}


async def _read_unifi(rest: RestSession, access: RestAccess, site: str, credentials: Credentials) -> Clients:
    """A client names its access point by the identifier of a device."""
    del access
    base = f"/proxy/network/integration/v1/sites/{quote(site, safe='')}"

    async def devices(page: Page) -> Rows:
        query = {"offset": page.start, "limit": page.size}
        return rows_of(await rest.request(f"{base}/devices", query, headers=credentials), "data")

    async def clients(page: Page) -> Rows:
        query: Query = {"offset": page.start, "limit": page.size, "filter": "type.eq('WIRELESS')"}
        return rows_of(await rest.request(f"{base}/clients", query, headers=credentials), "data")

    radios = {
        str(row.get("id")): row.get("macAddress") for row in await paged(devices, "id", UNIFI_PAGE, numbered=False)
    }
    rows = [row for row in await paged(clients, "id", UNIFI_PAGE, numbered=False) if row.get("type") == "WIRELESS"]
    return Clients(rows, "macAddress", lambda row: radios.get(str(row.get("uplinkDeviceId"))))


# --- Omada ----------------------------------------------------------------------------------------------


async def _omada_token(rest: RestSession, access: RestAccess) -> Credentials:
    body = {"omadacId": access.controller, "client_id": access.user, "client_secret": access.password}
    query = {"grant_type": "client_credentials"}
    document = await rest.request("/openapi/authorize/token", query, body=body, method="POST")
    return {"Authorization": f"AccessToken={_given(document, 'result', 'accessToken')}"}


async def _read_omada(rest: RestSession, access: RestAccess, site: str, credentials: Credentials) -> Clients:
    """A wrong request is answered with status 200 and an error code."""
    path = f"/openapi/v1/{quote(access.controller, safe='')}/sites/{quote(site, safe='')}/clients"

    async def clients(page: Page) -> Rows:
        query: Query = {"page": page.number, "pageSize": page.size, "filters.wireless": "true", "sorts.mac": "asc"}
        document = await rest.request(path, query, headers=credentials)
        if isinstance(document, dict) and document.get("errorCode"):
            raise PollError(REFUSED)
        return rows_of(document, "result", "data")

    rows = await paged(clients, "mac", OMADA_PAGE, numbered=True)
    return Clients(
        [row for row in rows if row.get("wireless") is True and row.get("active") is True],
        "mac", lambda row: row.get("apMac"),
    )  # fmt: skip


# --- SmartZone ------------------------------------------------------------------------------------------


async def _smartzone_ticket(rest: RestSession, access: RestAccess) -> Credentials:
    body = {"username": access.user, "password": access.password}
    document = await rest.request(f"{SMARTZONE}/serviceTicket", body=body, method="POST")
    return {"serviceTicket": _given(document, "serviceTicket")}


async def _leave_smartzone(rest: RestSession, credentials: Credentials) -> None:
    await rest.send(f"{SMARTZONE}/serviceTicket", credentials, method="DELETE")


async def _read_smartzone(rest: RestSession, access: RestAccess, site: str, credentials: Credentials) -> Clients:
    """The site is a zone's identifier."""
    del access

    async def clients(page: Page) -> Rows:
        body = {
            "filters": [{"type": "ZONE", "value": site}], "attributes": ["clientMac", "apMac"],
            "sortInfo": {"sortColumn": "clientMac", "dir": "ASC"}, "page": page.number, "limit": page.size,
        }  # fmt: skip
        return rows_of(await rest.request(f"{SMARTZONE}/query/client", credentials, body=body, method="POST"), "list")

    rows = await paged(clients, "clientMac", SMARTZONE_PAGE, numbered=True)
    return Clients(rows, "clientMac", lambda row: row.get("apMac"))


# --- Mist -----------------------------------------------------------------------------------------------


async def _mist_token(rest: RestSession, access: RestAccess) -> Credentials:
    del rest
    return {"Authorization": f"Token {access.token}"}


async def _read_mist(rest: RestSession, access: RestAccess, site: str, credentials: Credentials) -> Clients:
    """The table comes in one answer; one that is full may be cut, so it is refused."""
    del access
    path = f"/api/v1/sites/{quote(site, safe='')}/stats/clients"
    rows = rows_of(await rest.request(path, {"limit": MIST_PAGE}, headers=credentials))
    if len(rows) >= MIST_PAGE:
        raise PollError(TOO_LONG)
    return Clients(rows, "mac", lambda row: row.get("ap_mac"))


# --- Meraki ---------------------------------------------------------------------------------------------


async def _meraki_key(rest: RestSession, access: RestAccess) -> Credentials:
    del rest
    return {"Authorization": f"Bearer {access.token}"}


async def _read_meraki(rest: RestSession, access: RestAccess, site: str, credentials: Credentials) -> Clients:
    """The site is a network's identifier. The next page is named by a link, which begins behind the last row."""
    del access
    path, found = f"/api/v1/networks/{quote(site, safe='')}/clients", Rows()
    query: dict[str, str | int] = {
        "timespan": MERAKI_SPAN, "perPage": MERAKI_PAGE, "statuses[]": "Online",
        "recentDeviceConnections[]": "Wireless",
    }  # fmt: skip
    seen = set[str]()
    while True:
        document, links = await rest.request_with_links(path, query, headers=credentials)
        found += rows_of(document)
        after = parse_qs(urlsplit(links.get("next", "")).query).get("startingAfter", [""])[0]
        if not after:
            break
        if after in seen:
            raise PollError(MALFORMED)
        if len(found) > MOST_ROWS:
            raise PollError(TOO_LONG)
        seen.add(after)
        query["startingAfter"] = after
    online = [row for row in found if row.get("status") == "Online" and row.get("recentDeviceConnection") == "Wireless"]
    return Clients(online, "mac", lambda row: row.get("recentDeviceMac"))


SYSTEMS: Mapping[str, RestSystem] = {
    "unifi": RestSystem(_unifi_key, _read_unifi, 0.2, frozenset({"token"})),
    "omada": RestSystem(_omada_token, _read_omada, 0.2, frozenset({"controller", "user", "password"})),
    "smartzone": RestSystem(_smartzone_ticket, _read_smartzone, 0.2, frozenset({"user", "password"}), _leave_smartzone),
    "mist": RestSystem(_mist_token, _read_mist, 7.2, frozenset({"token"}), check="/api/v1/self", user_name="username"),
    "meraki": RestSystem(
        _meraki_key, _read_meraki, 1.0, frozenset({"token"}), check="/api/v1/organizations", user_name="user"
    ),
}
"""What ``by`` of a poll may say -> the system."""
