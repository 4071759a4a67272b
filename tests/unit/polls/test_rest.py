"""Systems that are polled over HTTPS: associated clients only, whole tables only, and no credential for a stranger."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from connectors.sources.polls import rest, rest_tables
from connectors.sources.polls.client_tables import AssociatedClient
from connectors.sources.polls.rest import SHIFTED, Page, Rows, first_page, following, paged
from connectors.sources.polls.rest_tables import MIST_PAGE, SYSTEMS, Clients, RestAccess, RestReader
from connectors.sources.polls.snmp_walk import MALFORMED, NO_ANSWER, REFUSED, TOO_LONG, PollError
from tests.support.documents import ROOT
from tests.unit.polls.https_systems import (
    REFUSAL,
    Answer,
    Handler,
    Request,
    System,
    address,
    meraki,
    meraki_client,
    mist,
    mist_client,
    ok,
    omada,
    omada_client,
    serving,
    smartzone,
    smartzone_client,
    unifi,
    unifi_client,
)


class Vendor(NamedTuple):
    """A system's server, its rows, and rows that are no associated device."""

    by: str
    system: Callable[[list[dict[str, Any]]], Handler]
    client: Callable[..., dict[str, Any]]
    others: tuple[dict[str, Any], ...]


VENDORS = (
    Vendor("unifi", unifi, unifi_client, ({"type": "WIRED"}, {"uplinkDeviceId": "gone"}, {"macAddress": None})),
    Vendor("omada", omada, omada_client, ({"wireless": False}, {"active": False}, {"apMac": None})),
    Vendor("smartzone", smartzone, smartzone_client, ({"apMac": ""}, {"apMac": "00:00:00:00:00:00"})),
    Vendor("mist", mist, mist_client, ({"ap_mac": None}, {"mac": "no address"})),
    Vendor(
        "meraki", meraki, meraki_client,
        ({"status": "Offline"}, {"recentDeviceConnection": "Wired"}, {"recentDeviceMac": None}),
    ),
)  # fmt: skip
ACCESS = RestAccess(("the/site",), "the key of this system", "reader", "the secret", "c1")
ANY = pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.by)


def access_of(by: str, **more: Any) -> RestAccess:
    return (ACCESS._replace(user="client") if by == "omada" else ACCESS)._replace(**more)


def reader(by: str, system: System, **more: Any) -> RestReader:
    return RestReader(SYSTEMS[by]._replace(spacing=0.0), system.server, lambda: access_of(by, **more))


def expected(numbers: range) -> set[AssociatedClient]:
    return {
        AssociatedClient(bytes.fromhex(address(number).replace(":", "")), bytes((2, 0, 0, 0, 0, 1 + number % 2)))
        for number in numbers
    }


@ANY
async def test_associated_devices_are_read_and_nothing_else(vendor: Vendor, tmp_path: Path) -> None:
    rows = [vendor.client(number) for number in range(7)]
    rows += [vendor.client(100 + place, **other) for place, other in enumerate(vendor.others)]
    async with serving(tmp_path, vendor.system(rows)) as system:
        table = await reader(vendor.by, system).read()
    assert set(table.rows) == expected(range(7))
    assert len(table.rows) == 7


@ANY
async def test_a_table_of_several_pages_is_read_whole(vendor: Vendor, tmp_path: Path) -> None:
    number = MIST_PAGE - 1 if vendor.by == "mist" else 2500
    async with serving(tmp_path, vendor.system([vendor.client(each) for each in range(number)])) as system:
        table = await reader(vendor.by, system).read()
    assert set(table.rows) == expected(range(number))


@ANY
async def test_no_row_takes_another_with_it(vendor: Vendor, tmp_path: Path) -> None:
    rows = [vendor.client(number) for number in range(5)]
    async with serving(tmp_path, vendor.system(rows)) as system:
        whole = set((await reader(vendor.by, system).read()).rows)
        for left_out in range(5):
            rows[:] = [vendor.client(number) for number in range(5) if number != left_out]
            less = set((await reader(vendor.by, system).read()).rows)
            assert whole - less == expected(range(left_out, left_out + 1))


@ANY
async def test_wrong_credentials_end_the_poll(vendor: Vendor, tmp_path: Path) -> None:
    async with serving(tmp_path, vendor.system([])) as system:
        with pytest.raises(PollError) as reported:
            await reader(vendor.by, system, token="another", password="another").read()
    assert reported.value.reason == REFUSED


async def test_an_answer_that_may_be_cut_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, mist([mist_client(number) for number in range(MIST_PAGE)])) as system:
        with pytest.raises(PollError) as reported:
            await reader("mist", system).read()
    assert reported.value.reason == TOO_LONG


async def test_a_token_that_no_header_can_contain_ends_the_poll_and_not_the_process(tmp_path: Path) -> None:
    """The system itself gives the token of Omada."""
    token = {"errorCode": 0, "result": {"accessToken": "ключ"}}
    async with serving(tmp_path, lambda asked: ok(token)) as system:
        with pytest.raises(PollError) as reported:
            await reader("omada", system).read()
    assert reported.value.reason == REFUSED


async def test_certificates_that_went_away_end_the_poll_and_not_the_process(tmp_path: Path) -> None:
    server = rest.Server("https://127.0.0.1:9", None, tmp_path / "gone.pem")
    with pytest.raises(PollError) as reported:
        await server.context()
    assert reported.value.reason == REFUSED


async def test_a_server_with_another_certificate_gets_no_credential(tmp_path: Path) -> None:
    async with serving(tmp_path, mist([])) as system:
        system.server = replace(system.server, fingerprint="ab" * 32)
        with pytest.raises(PollError) as reported:
            await reader("mist", system).read()
        assert reported.value.reason == REFUSED
        system.server = replace(system.server, fingerprint=None)
        with pytest.raises(PollError) as reported:
            await reader("mist", system).read()
        assert reported.value.reason == NO_ANSWER
        assert system.requests == []


@pytest.mark.parametrize(("after", "again"), [("0", True), ("2", False)])
async def test_a_system_that_asks_to_wait_is_obeyed(
    after: str, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "LONGEST_WAIT", 1.0)
    answers = iter([True])

    def handle(asked: Request) -> Answer:
        return (429, {"retry-after": after}, {}) if next(answers, False) else mist([mist_client(1)])(asked)

    async with serving(tmp_path, handle) as system:
        if again:
            assert len((await reader("mist", system).read()).rows) == 1
            return
        with pytest.raises(PollError) as reported:
            await reader("mist", system).read()
        assert (reported.value.reason, reported.value.retry_after) == (REFUSED, 2)
        assert len(system.requests) == 1


@pytest.mark.parametrize("body", [{}, [1], "text", {"data": 3}, None])
async def test_a_body_of_another_form_ends_the_poll(body: Any, tmp_path: Path) -> None:
    async with serving(tmp_path, lambda _: ok(body)) as system:
        with pytest.raises(PollError) as reported:
            await reader("unifi", system).read()
    assert reported.value.reason == MALFORMED


async def test_a_body_beyond_any_table_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "LARGEST_ANSWER", 1000)
    async with serving(tmp_path, mist([mist_client(number) for number in range(50)])) as system:
        with pytest.raises(PollError) as reported:
            await reader("mist", system).read()
    assert reported.value.reason == TOO_LONG


async def test_requests_are_spaced_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    slept = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await slept(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    async with serving(tmp_path, meraki([meraki_client(number) for number in range(25)], page=10)) as system:
        await RestReader(SYSTEMS["meraki"], system.server, lambda: ACCESS).read()
    assert len(waits) == 3
    assert waits[0] == 0.0
    assert all(0.5 < wait <= SYSTEMS["meraki"].spacing for wait in waits[1:])


@pytest.mark.parametrize("by", ["mist", "meraki"])
async def test_a_cloud_answers_a_request_that_does_not_concern_clients(by: str, tmp_path: Path) -> None:
    vendor = next(each for each in VENDORS if each.by == by)
    async with serving(tmp_path, vendor.system([vendor.client(1)])) as system:
        assert await reader(by, system).check()
        assert not await reader(by, system, token="another").check()
        assert len(system.requests) == 2
        assert not any("clients" in query.path for query in system.requests)


@ANY
async def test_user_names_are_read_for_a_site_of_logins_only_and_requests_stay_the_same(
    vendor: Vendor, tmp_path: Path
) -> None:
    rows = [vendor.client(number) for number in range(3)]
    if field := SYSTEMS[vendor.by].user_name:
        rows[1] |= {field: None}
    async with serving(tmp_path, vendor.system(rows)) as system:
        found = []
        for logins in (False, True):
            system.requests.clear()
            made = RestReader(SYSTEMS[vendor.by]._replace(spacing=0.0), system.server, lambda: access_of(vendor.by),
                              logins=logins)  # fmt: skip
            names = [row.user_name for row in (await made.read()).rows]
            found.append((names, [query._replace(headers={}) for query in system.requests]))
    name = b"canary-user" if field else b""
    assert found[0][0] == [b"", b"", b""]
    assert found[1][0] == [name, b"", name]
    assert bool(field) == (vendor.by in {"mist", "meraki"})
    assert found[0][1] == found[1][1]


async def test_a_ticket_of_smartzone_is_given_back(tmp_path: Path) -> None:
    async with serving(tmp_path, smartzone([])) as system:
        await reader("smartzone", system).read()
        assert [(query.method, query.path.rpartition("/")[2]) for query in system.requests] == [
            ("POST", "serviceTicket"), ("POST", "client"), ("DELETE", "serviceTicket"),
        ]  # fmt: skip


async def test_a_ticket_of_smartzone_is_given_back_when_its_clients_cannot_be_read(tmp_path: Path) -> None:
    tickets = smartzone([])

    def handle(asked: Request) -> Answer:
        return ok({"totalCount": 0}) if asked.path.endswith("/query/client") else tickets(asked)

    async with serving(tmp_path, handle) as system:
        with pytest.raises(PollError) as reported:
            await reader("smartzone", system).read()
        assert reported.value.reason == MALFORMED
        assert (system.requests[-1].method, system.requests[-1].path.rpartition("/")[2]) == ("DELETE", "serviceTicket")


async def test_a_reading_that_failed_keeps_its_reason_where_the_ticket_is_refused(tmp_path: Path) -> None:
    tickets = smartzone([])

    def handle(asked: Request) -> Answer:
        if asked.method == "DELETE":
            return REFUSAL
        return ok({"totalCount": 0}) if asked.path.endswith("/query/client") else tickets(asked)

    async with serving(tmp_path, handle) as system:
        with pytest.raises(PollError) as reported:
            await reader("smartzone", system).read()
        assert reported.value.reason == MALFORMED


async def test_a_ticket_of_smartzone_is_given_back_when_the_poll_is_late(tmp_path: Path) -> None:
    tickets, deadline = smartzone([]), asyncio.timeout(None)

    def handle(asked: Request) -> Answer:
        if not asked.path.endswith("/query/client"):
            return tickets(asked)
        deadline.reschedule(asyncio.get_running_loop().time())
        return 503, {"retry-after": "19"}, {}

    async with serving(tmp_path, handle) as system:
        with pytest.raises(TimeoutError):
            async with deadline:
                await reader("smartzone", system).read()
        assert [query.method for query in system.requests] == ["POST", "POST", "DELETE"]


async def test_a_ticket_is_given_back_once_more_when_the_poll_is_late_while_it_is_given_back(tmp_path: Path) -> None:
    tickets, deadline = smartzone([]), asyncio.timeout(None)

    def handle(asked: Request) -> Answer:
        status, headers, body = tickets(asked)
        if asked.method == "DELETE" and not deadline.expired():
            deadline.reschedule(asyncio.get_running_loop().time())
            headers = headers | {"content-length": "9999"}
        return status, headers, body

    async with serving(tmp_path, handle) as system:
        with pytest.raises(TimeoutError):
            async with deadline:
                await reader("smartzone", system).read()
        assert [query.method for query in system.requests] == ["POST", "POST", "DELETE", "DELETE"]


async def test_a_poll_that_is_late_waits_a_moment_only_for_the_end_of_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_tables, "LOG_OUT_WITHIN", 0.05)
    tickets, deadline = smartzone([]), asyncio.timeout(None)

    def handle(asked: Request) -> Answer:
        if asked.path.endswith("/query/client"):
            deadline.reschedule(asyncio.get_running_loop().time())
            return 503, {"retry-after": "19"}, {}
        status, headers, body = tickets(asked)
        unfinished = {"content-length": "9999"} if asked.method == "DELETE" else {}
        return status, headers | unfinished, body

    async with serving(tmp_path, handle) as system:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(15), deadline:
                await reader("smartzone", system).read()
        assert deadline.expired()


# --- pages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbered", [True, False])
def test_pages_overlap_and_where_they_are_numbered_start_at_a_multiple_of_their_size(numbered: bool) -> None:
    page, largest = first_page(1000), 1000
    while page.start < 200_000:
        after = following(page, largest, numbered=numbered)
        assert not numbered or after.start == (after.number - 1) * after.size
        assert after.size <= largest
        assert page.start < after.start <= page.start + page.size - largest // 10
        assert after.start + after.size > page.start + page.size
        page = after


async def test_every_row_that_stays_is_found_while_others_come_and_go() -> None:
    for seed in range(50):
        draw = random.Random(seed)
        stay = {f"s{draw.random()}" for _ in range(900)}
        table = sorted(stay | {f"s{draw.random()}" for _ in range(300)})

        async def read(page: Page, draw: random.Random = draw, table: list[str] = table, stay: Any = stay) -> Rows:
            rows: Rows = [{"mac": name} for name in table[page.start : page.start + page.size]]
            for _ in range(draw.randint(0, 9)):
                leaving = draw.choice(table)
                if leaving not in stay:
                    table.remove(leaving)
                if draw.random() < 0.5:
                    table.append(f"s{draw.random()}")
                    table.sort()
            return rows

        assert stay <= {row["mac"] for row in await paged(read, "mac", 100, numbered=seed % 2 == 0)}


async def test_pages_that_share_no_row_end_the_poll() -> None:
    table = list(range(300))

    async def read(page: Page) -> Rows:
        rows: Rows = [{"mac": number} for number in table[page.start : page.start + page.size]]
        del table[:20]  # more than the overlap
        return rows

    with pytest.raises(PollError) as reported:
        await paged(read, "mac", 100, numbered=True)
    assert reported.value.reason == SHIFTED


def test_nothing_shows_the_rows_of_a_site() -> None:
    assert repr(Clients([{"mac": address(1)}], "mac", lambda row: row["mac"])) == "Clients()"


async def test_rows_without_the_field_by_which_rows_are_told_apart_are_in_no_overlap() -> None:
    async def read(page: Page) -> Rows:
        rows: Rows = [{"mac": f"{page.start}-{number}"} for number in range(page.size - 2)]
        return [{"mac": None}, {}, *rows]

    with pytest.raises(PollError) as reported:
        await paged(read, "mac", 100, numbered=True)
    assert reported.value.reason == SHIFTED


def test_polls_of_other_sources_need_no_library_of_http() -> None:
    program = "import sys; sys.modules['httpx'] = None; import connectors.sources.polls.config"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
