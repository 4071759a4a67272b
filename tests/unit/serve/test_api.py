"""The API in process, without a server: one history in memory, and each operation's response."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from connectors.http.limits import AllowedHosts
from connectors.serve import api
from connectors.serve.access import ACCOUNT, OPERATOR, Access, audience_role
from connectors.serve.app import application
from connectors.serve.event_streams import Streams
from connectors.serve.history.local_clock import SiteClock
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.service import Service
from stream.records import MINUTE, Micros
from stream.release.validation import load_policy
from stream.schemas import CountRecord, parse_time, rfc3339

TICK = 15 * MINUTE
NOON = parse_time("2026-03-02T12:00:00Z")
POLICY = load_policy("""
[site.east]
timezone = "Europe/Berlin"
tick = "15min"
validity = "30min"
sources = ["127.0.0.1"]
[[site.east.zones]]
id = "hall"
floor = "0"
capacity = 4
access_points = ["02:00:00:00:0e:01"]
[[site.east.zones]]
id = "den"
floor = "1"
capacity = 1
kind = "office"
access_points = ["02:00:00:00:0e:03"]
[[audience]]
name = "facilities"
[[audience]]
name = "public"
[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
zones = { kind = "room" }
epsilon = { facilities = "2", public = "0.5" }
daily_budget = { public = "10" }
[[release]]
name = "offices"
query = "count"
mechanism = "laplace"
zones = { kind = "office" }
epsilon = { facilities = "1" }
""")
ROLES = frozenset([audience_role("public"), ACCOUNT, OPERATOR])
PUBLIC = {"audience": "public", "site": "east"}
FIGURES = dict.fromkeys(("reached", "dropped", "traps", "oldest_key_day", "policy_version")) | {
    "v": 1, "site": "east", "window_end": rfc3339(NOON), "closed": False, "ledger_entries": 3, "accepted": 5, "late": 0,
    "rejected_messages": 1,
}  # fmt: skip
ACCOUNT_RECORD = {
    "v": 1, "site": "east", "window_end": rfc3339(NOON), "kind": "counts", "audiences": {"public": {"device_day": "1"}},
    "refused": [{"release": "occupancy/public", "reason": "budget"}],
}  # fmt: skip


def record(end: Micros, hall: int | None) -> bytes:
    """Return a released window, or a denied one."""
    return CountRecord.model_validate({
        "release_id": f"east/occupancy/public/{rfc3339(end)}", "site": "east", "audience": "public",
        "release": "occupancy", "window_start": rfc3339(end - TICK), "window_end": rfc3339(end),
        "values": None if hall is None else {"hall": hall}, "released": hall is not None,
        "reason": "budget" if hall is None else None, "mechanism": "laplace", "epsilon": "0.5",
        "spend": "0" if hall is None else "0.5", "noise_scale": {"hall": 2.0},
        "half_width_95": None if hall is None else {"hall": 6.0}, "half_width_kind": "noise", "coverage": 1.0,
        "policy_version": "p", "laboratory": True,
    }).to_bytes()  # fmt: skip


class Clock:
    """The wall clock."""

    now = NOON + 2 * TICK

    def __call__(self) -> Micros:
        return self.now


@pytest.fixture
def service() -> Service:
    history = ReleaseHistory(None, {"east": SiteClock("Europe/Berlin")})
    history.add([record(NOON + n * TICK, None if n == -3 else n + 20) for n in range(-20, 1)], {})
    clock = Clock()
    access = Access(ROLES, clock=clock)
    made = Service(POLICY, access, history, Streams(access, history), AllowedHosts.of((), 80, "http"), clock)
    made.account.add([orjson.dumps(ACCOUNT_RECORD)])
    made.operator.add([orjson.dumps(FIGURES)])  # type: ignore[union-attr]
    return made


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that has used a one-time link."""
    transport = httpx.ASGITransport(app=application(service), client=("10.0.0.1", 5))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as made:
        entered = await made.post("/api/v1/session", json={"link": service.access.new_link()})
        assert entered.status_code == 204
        yield made


async def body(client: httpx.AsyncClient, path: str, **parameters: Any) -> Any:
    response = await client.get(path if path.startswith("/") else f"/api/v1/{path}", params=parameters)
    assert response.status_code == 200, response.text
    return response.json()


async def refused(client: httpx.AsyncClient, path: str, **parameters: Any) -> tuple[int, str]:
    response = await client.get(f"/api/v1/{path}", params=parameters)
    return response.status_code, response.json()["error"]["what"]


async def test_the_interface_describes_itself_to_programs_and_as_a_page(client: httpx.AsyncClient) -> None:
    document = await body(client, "openapi.json")
    assert document["openapi"] == "3.1.0"
    assert {"/healthz", "/api/v1/latest", "/api/v1/stream"} < set(document["paths"])
    page = await client.get("/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert all(f"<code>{path}</code>" in page.text for path in document["paths"])


async def test_sites_and_releases_are_those_of_the_readers_audiences(client: httpx.AsyncClient) -> None:
    (site,) = (await body(client, "sites"))["sites"]
    assert (site["site"], site["timezone"], site["tick_seconds"]) == ("east", "Europe/Berlin", 900)
    assert [[zone["zone"] for zone in floor["zones"]] for floor in site["floors"]] == [["hall"]]
    (release,) = (await body(client, "releases"))["releases"]
    assert (release["release"], release["audience"], release["epsilon"]) == ("occupancy", "public", "0.5")
    assert (release["daily_budget"], release["zones"], release["base"]) == ("10", {"east": ["hall"]}, None)
    policy = await body(client, "policy")
    assert list(policy["audiences"]) == ["public"]
    assert {unit["release"] for unit in policy["audiences"]["public"]["units"]} == {"occupancy"}


async def test_guarantees_are_told_in_a_language_that_there_is_else_in_english(client: httpx.AsyncClient) -> None:
    english, german, other = [await body(client, "policy", language=code) for code in ("en", "de", "xx")]
    assert (german["language"], other["language"]) == ("de", "en")
    assert other == english == await body(client, "policy")
    promise = german["audiences"]["public"]
    assert promise["promise"][0].startswith("Die Einheit ist eine MAC-Adresse an einem Standort.")
    assert promise["units"][0]["words"] == "ein Gerät zu einem Zeittakt"
    assert [unit["epsilon"] for unit in promise["units"]] == [
        unit["epsilon"] for unit in english["audiences"]["public"]["units"]
    ]


async def test_records_are_rows_between_two_times_page_by_page(client: httpx.AsyncClient) -> None:
    path = "releases/occupancy/records"
    between = {"from": rfc3339(NOON - 2 * TICK), "to": rfc3339(NOON)}
    rows = await body(client, path, **PUBLIC, **between)
    assert [row[3] for row in rows["rows"]] == [19, 20]
    first = await body(client, path, **PUBLIC, **between, limit=1)
    second = await body(client, path, **PUBLIC, **between, limit=1, after=first["next"])
    assert [row[3] for page in (first, second) for row in page["rows"]] == [19, 20]
    assert await refused(client, path, **PUBLIC, **{"from": between["to"], "to": between["from"]}) == (400, "from")
    assert (await body(client, path, **PUBLIC, nodes="zone:none"))["rows"] == []


async def test_a_file_contains_all_rows(client: httpx.AsyncClient) -> None:
    response = await client.get("/api/v1/releases/occupancy/records", params={**PUBLIC, "format": "csv", "limit": 1})
    assert response.headers["content-disposition"] == 'attachment; filename="occupancy-east-5min.csv"'
    assert len(response.text.splitlines()) == 1 + 21


async def test_a_report_is_a_page_of_the_readers_own_records(client: httpx.AsyncClient) -> None:
    response = await client.get("/api/v1/report", params=PUBLIC | {"month": "2026-03"})
    assert response.headers["content-disposition"] == 'attachment; filename="east-2026-03.html"'
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "20 of 2972 windows were released" in response.text
    assert "made from released figures for public" in response.text.lower()


@pytest.mark.parametrize(
    ("path", "parameters", "expected"),
    [
        ("report", {**PUBLIC, "month": "2026-3"}, (422, "month")),
        ("report", {**PUBLIC, "month": "0000-01"}, (422, "month")),
        ("report", {**PUBLIC, "month": "0001-01"}, (422, "month")),
        ("report", {**PUBLIC, "month": "9999-12"}, (422, "month")),
        ("report", {**PUBLIC, "month": "2026-03", "language": "xx"}, (422, "language")),
        ("report", {**PUBLIC, "site": "west", "month": "2026-03"}, (404, "site")),
        ("report", {**PUBLIC, "audience": "facilities", "month": "2026-03"}, (403, "audience")),
        ("latest", {"audience": "facilities", "site": "east"}, (403, "audience")),
        ("latest", {"audience": "public", "site": "west"}, (404, "site")),
        ("usual", {**PUBLIC, "release": "offices"}, (404, "release")),
        ("releases/offices/records", PUBLIC, (404, "release")),
        ("sites/east/plans/0", {}, (404, "plan")),
        ("playback", {}, (404, "playback")),
        ("stream", {"audience": "public", "after": "x"}, (404, "after")),
        ("account/coalition", {"audiences": "nobody"}, (422, "audiences")),
        ("account/coalition", {"audiences": "public"}, (404, "coalition")),
        ("nothing", {}, (404, "path")),
    ],
)
async def test_what_is_not_there_or_not_for_the_reader_is_refused(
    client: httpx.AsyncClient, path: str, parameters: dict[str, str], expected: tuple[int, str]
) -> None:
    assert await refused(client, path, **parameters) == expected


@pytest.mark.parametrize(
    "path", ["report", "latest", "releases/occupancy/records", "usual", "stream", "spends", "room"]
)
async def test_who_shows_no_valid_token_learns_nothing_about_the_parameters(service: Service, path: str) -> None:
    transport = httpx.ASGITransport(app=application(service), client=("10.0.0.1", 5))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as stranger:
        for headers in ({}, {"authorization": "Bearer tacet_wrong"}):
            answer = await stranger.get(f"/api/v1/{path}", params={"nonsense": "1"}, headers=headers)
            assert answer.status_code == 401


@pytest.mark.parametrize(("age", "state"), [(3 * TICK, "live"), (4 * TICK, "late"), (13 * TICK, "silent")])
async def test_the_newest_window_shows_whether_releases_arrive(
    service: Service, client: httpx.AsyncClient, age: Micros, state: str
) -> None:
    service.clock.now = NOON + POLICY.site["east"].lateness + age  # type: ignore[attr-defined]
    latest = await body(client, "latest", **PUBLIC)
    (feed,) = latest["feed"]
    assert (feed["state"], feed["window_end"], feed["denied"]) == (state, rfc3339(NOON), False)
    assert feed["age_seconds"] == (service.now() - NOON) / 1e6
    (row,) = latest["rows"]
    assert (row["node"], row["value"], row["low"], row["high"]) == ("zone:hall", 20, 14.0, 26.0)
    assert (await body(client, "operator"))["sites"][0]["state"] == state


async def test_spends_are_summed_by_day_and_say_what_is_left(client: httpx.AsyncClient) -> None:
    spends = await body(client, "spends", **PUBLIC)
    assert [(row["windows"], row["denied"], row["spend"]) for row in spends["rows"]] == [(20, 1, "10")]
    assert spends["left"] == {"occupancy": 0}
    assert (await body(client, "spends", **PUBLIC, **{"from": "2026-03-03"}))["left"] == {"occupancy": 20}


async def test_results_are_shared_until_a_record_arrives(service: Service, client: httpx.AsyncClient) -> None:
    assert (await body(client, "latest", **PUBLIC))["rows"][0]["value"] == 20
    service.history.add([record(NOON + TICK, 7)], {})
    assert (await body(client, "latest", **PUBLIC))["rows"][0]["value"] == 20
    service.drop_cache()
    assert (await body(client, "latest", **PUBLIC))["rows"][0]["value"] == 7


async def test_readers_of_the_account_and_operators_see_all_audiences(client: httpx.AsyncClient) -> None:
    account = await body(client, "account")
    assert (account["sites"]["east"], set(account["promise"])) == (ACCOUNT_RECORD, {"facilities", "public"})
    (row,) = (await body(client, "operator"))["sites"]
    assert (row["silent_sources"], row["accepted"], row["lag_seconds"]) == (None, 5, 1800.0)
    assert row["denied"] == [{"release": "occupancy", "audience": "public", "reason": "budget", "windows": 1}]


async def test_operators_see_the_disk_of_the_store_and_the_rest_also_while_the_folder_is_away(
    service: Service, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    service.store = tmp_path
    assert (await body(client, "operator"))["free_mib"] > 0
    service.store = tmp_path / "not mounted"
    status = await body(client, "operator")
    assert status["free_mib"] is None
    assert len(status["sites"]) == 1


async def test_a_session_ends_and_its_cookie_is_only_for_this_service(
    service: Service, client: httpx.AsyncClient
) -> None:
    session = await body(client, "session")
    assert (session["audiences"], session["open"], session["playback"]) == (["public"], False, False)
    (cookie,) = [each for each in client.cookies.jar if each.name == "tacet-80"]
    assert (cookie.path, cookie.has_nonstandard_attr("HttpOnly"), service.cookie) == ("/", True, "tacet-80")
    assert (await client.delete("/api/v1/session")).status_code == 204
    copied = {"cookie": f"{cookie.name}={cookie.value}"}
    assert (await client.get("/api/v1/session", headers=copied)).status_code == 401
    for given in ({}, {"link": "x", "token": "y"}):
        assert (await client.post("/api/v1/session", json=given)).status_code == 422


async def test_page_files_are_compressed_and_not_sent_again(client: httpx.AsyncClient) -> None:
    page = await client.get("/", headers={"accept-encoding": "gzip"})
    assert (page.headers["content-encoding"], page.headers["cache-control"]) == ("gzip", "no-cache")
    plain = await client.get("/static/index.html", headers={"accept-encoding": "identity"})
    assert ("content-encoding" in plain.headers, plain.text) == (False, page.text)
    again = await client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert (await client.post("/api/v1/sites", json={})).status_code == 405
    assert all(name in page.headers for name in ("content-security-policy", "x-content-type-options"))


async def test_an_internal_error_shows_no_details(
    client: httpx.AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(service.history, "latest", fail)
    response = await client.get("/api/v1/latest", params=PUBLIC)
    assert (response.status_code, "secret" in response.text) == (500, False)


def test_a_window_that_is_late_by_less_than_a_tick_more_is_still_live() -> None:
    site = POLICY.site["east"]
    states = [api._progress(site, site.lateness + n * site.tick) for n in (0, 3, 4, 12, 13)]
    assert states == ["live", "live", "late", "late", "silent"]
