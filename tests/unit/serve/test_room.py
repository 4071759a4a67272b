"""Where there is room: states from bands alone, for screens that may see nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.http.limits import AllowedHosts
from connectors.serve.access import PREFIX, Access, TokenFile, audience_role, digest_of, room_role
from connectors.serve.app import application
from connectors.serve.event_streams import Streams
from connectors.serve.history.local_clock import SiteClock
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.room import Share, places_of, state_of
from connectors.serve.service import Service
from connectors.serve.startup import ServeConfig, check
from stream.errors import UsageError
from stream.records import DAY, MINUTE, Micros
from stream.release.validation import Policy, load_policy
from stream.schemas import CountRecord, parse_time, rfc3339
from tests.support.people_models import model_of, provisional_model, small_policy, with_people
from tests.support.small_building import SITE

TICK = 15 * MINUTE
NOON = parse_time("2026-03-02T12:00:00Z")
POLICY_TEXT = """
[site.east]
name = "East wing"
tick = "15min"
validity = "30min"
sources = ["127.0.0.1"]
[[site.east.zones]]
id = "hall"
floor = "0"
kind = "hall"
capacity = 100
access_points = ["02:00:00:00:0e:01"]
metadata = { name = "Great hall" }
[[site.east.zones]]
id = "101"
floor = "1"
capacity = 40
access_points = ["02:00:00:00:0e:02"]
[[site.east.zones]]
id = "102"
floor = "1"
kind = "office"
capacity = 1
access_points = ["02:00:00:00:0e:03"]
[[audience]]
name = "public"
public = true
[[audience]]
name = "staff"
public = true
[[audience]]
name = "desk"
[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
zones = { kind = ["hall", "room"] }
levels = ["zone", "floor", "building"]
epsilon = { public = "1", staff = "1", desk = "1" }
[[release]]
name = "days"
query = "attributes"
zones = { kind = "office" }
[release.attributes.arrival]
epsilon = { staff = "0.2" }
sensitive = { after = "10:00" }
"""
POLICY = load_policy(POLICY_TEXT)


@pytest.mark.parametrize(
    ("bands", "state"),
    [
        ([(0.0, 0.3)], "free"),
        ([(0.55, 0.8)], "filling"),
        ([(0.86, 1.4)], "full"),
        ([(0.4, 0.6)], None),
        ([(0.0, 2.0)], None),
        ([(0.3, 0.48), (0.4, 0.54)], "free"),
        ([(0.3, 0.48), (0.4, 0.56)], None),
        ([(0.86, 1.0), (0.81, 0.9)], "full"),
        ([(0.86, 1.0), (0.79, 0.9)], None),
        ([(0.86, 1.0), (0.6, 0.8)], "filling"),
        ([(0.3, 0.48), None], None),
        ([(0.3, 0.48), None, (0.4, 0.54)], None),
        ([None, (0.3, 0.4)], "free"),
        ([], None),
    ],
)
def test_a_state_needs_the_whole_band_and_ends_a_little_beyond_its_limit(
    bands: list[tuple[float, float] | None], state: str | None
) -> None:
    assert state_of(None if band is None else Share(*band) for band in bands) == state


def test_floors_and_halls_are_shown_the_highest_first() -> None:
    assert [(place.node, place.name, place.capacity) for place in places_of(POLICY, "east", "public")] == [
        ("floor:1", "1", 40), ("floor:0", "0", 100), ("zone:hall", "Great hall", 100),
    ]  # fmt: skip


def test_a_place_is_told_of_by_people_where_its_site_has_a_model_that_is_not_provisional() -> None:
    sites: dict[str, Any] = {"sites": (SITE, "annex")}
    counted = small_policy(**sites)
    told = with_people(model_of(counted), **sites)
    provisional = with_people(provisional_model(counted), **sites)

    def releases(policy: Policy, site: str) -> set[str]:
        return {place.release for place in places_of(policy, site, "facilities")}

    assert releases(told, SITE) == {"halls-people"}
    assert releases(told, "annex") == releases(provisional, SITE) == releases(counted, SITE) == {"halls"}


def record(end: Micros, hall: int | None, room: int = 2, **more: Any) -> bytes:
    values = None if hall is None else {"hall": hall, "101": room}
    width = dict.fromkeys(("hall", "101"), 4)
    return CountRecord.model_validate({
        "release_id": f"east/occupancy/public/{rfc3339(end)}", "site": "east", "audience": "public",
        "release": "occupancy", "window_start": rfc3339(end - TICK), "window_end": rfc3339(end), "values": values,
        "levels": None if hall is None else {"floor": {"0": hall, "1": room}, "building": hall + room},
        "levels_half_width_95": None if hall is None else {"floor": {"0": 4, "1": 4}, "building": 6},
        "released": hall is not None, "reason": None if hall is not None else "budget", "mechanism": "laplace",
        "epsilon": "1", "spend": "1" if hall is not None else "0", "noise_scale": dict.fromkeys(("hall", "101"), 1.0),
        "half_width_95": None if hall is None else width, "half_width_kind": "noise", "coverage": 1.0,
        "policy_version": "p", "laboratory": True, **more,
    }).to_bytes()  # fmt: skip


class Clock:
    now = NOON + TICK

    def __call__(self) -> Micros:
        return self.now


class Ground:
    def __init__(self, folder: Path, port: int = 80, policy: str = POLICY_TEXT, **options: Any) -> None:
        self.clock, self.tokens = Clock(), TokenFile(folder / "tokens")
        self.screen = self.tokens.add("lobby", [room_role("public")], NOON + DAY)
        self.reader = self.tokens.add("reader", [audience_role("public")], NOON + DAY)
        roles = frozenset([audience_role("public"), room_role("public")])
        self.history = ReleaseHistory(None, {"east": SiteClock("UTC")})
        access = Access(roles, clock=self.clock, tokens=self.tokens)
        given = {"rooms": frozenset(["public"])} | options
        self.service = Service(
            load_policy(policy),
            access,
            self.history,
            Streams(access, self.history),
            AllowedHosts.of((), port, "http"),
            self.clock,
            **given,
        )
        transport = httpx.ASGITransport(app=application(self.service), client=("10.0.0.1", 5))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def get(self, path: str, token: str | None = None) -> httpx.Response:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return await self.client.get(path, headers=headers)

    async def states(self) -> dict[str, Any]:
        response = await self.get("/api/v1/room?audience=public", self.screen)
        assert response.status_code == 200, response.text
        return {place["node"]: place["state"] for place in response.json()["places"]}


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    made = Ground(tmp_path)
    made.history.add([record(NOON - TICK, 20), record(NOON, 95)], {})
    yield made
    await made.client.aclose()


async def test_states_and_names_are_told_and_no_figure(ground: Ground) -> None:
    response = await ground.get("/api/v1/room?audience=public&site=east", ground.screen)
    body = response.json()
    assert (body["name"], body["stale"], body["window_end"]) == ("East wing", False, rfc3339(NOON))
    assert body["places"] == [
        {"node": "floor:1", "name": "1", "state": "free"}, {"node": "floor:0", "name": "0", "state": "full"},
        {"node": "zone:hall", "name": "Great hall", "state": "full"},
    ]  # fmt: skip
    assert "95" not in response.text


async def test_stale_figures_give_no_state(ground: Ground) -> None:
    ground.clock.now = NOON + 4 * TICK
    assert set((await ground.states()).values()) == {None}
    assert (await ground.get("/api/v1/room?audience=public", ground.screen)).json()["stale"]


@pytest.mark.parametrize("more", [{"coverage": 0.5}, {"bounded_to": "6h"}])
async def test_what_may_hide_people_is_not_said_to_be_free(tmp_path: Path, more: dict[str, Any]) -> None:
    ground = Ground(tmp_path)
    ground.history.add([record(NOON, 95, **more)], {})
    states = await ground.states()
    assert states["floor:1"] is None
    assert states["floor:0"] == ("full" if "bounded_to" in more else None)


async def test_a_denied_window_gives_no_state(ground: Ground) -> None:
    ground.history.add([record(NOON + TICK, None)], {})
    assert set((await ground.states()).values()) == {None}


async def test_a_screen_sees_nothing_else(ground: Ground) -> None:
    for path in ("sites", "releases", "session", "latest?audience=public&site=east", "policy", "playback",
                 "releases/occupancy/records?audience=public&site=east", "learn/tasks?round=1&epsilon=1"):  # fmt: skip
        assert (await ground.get(f"/api/v1/{path}", ground.screen)).status_code == 403, path
    begun = await ground.client.post("/api/v1/session", json={"token": ground.screen})
    assert begun.status_code == 403
    assert "set-cookie" not in begun.headers


async def test_a_screen_of_a_room_page_that_is_not_served_sees_nothing(ground: Ground) -> None:
    other = ground.tokens.add("other", [room_role("staff")], NOON + DAY)
    assert (await ground.get("/api/v1/room?audience=staff", other)).status_code == 404
    for path in ("session", "sites", "learn/tasks?seed=1", "playback"):
        assert (await ground.get(f"/api/v1/{path}", other)).status_code == 403, path
    begun = await ground.client.post("/api/v1/session", json={"token": other})
    assert begun.status_code == 403


async def test_a_screens_token_is_revoked_and_expires(ground: Ground) -> None:
    path = "/api/v1/room?audience=public"
    ground.clock.now = NOON + DAY
    assert (await ground.get(path, ground.screen)).status_code == 401
    ground.clock.now = NOON
    assert (await ground.get(path, ground.screen)).status_code == 200
    ground.tokens.revoke("lobby")
    assert (await ground.get(path, ground.screen)).status_code == 401


def changed(secret: str) -> list[str]:
    """Return what somebody may make of a link's token by hand."""
    middle = len(secret) // 2
    other = "A" if secret[middle] != "A" else "B"
    return [
        f"{secret[:middle]}{other}{secret[middle + 1:]}", secret[:-1], f"{secret}A", secret.upper(),
        secret[len(PREFIX):], PREFIX, digest_of(secret), f"{secret}&expires=2099-01-01T00:00:00Z", "é",
    ]  # fmt: skip


async def test_a_forged_link_opens_nothing(ground: Ground) -> None:
    for forged in changed(ground.screen):
        headers = {b"authorization": f"Bearer {forged}".encode()}
        response = await ground.client.get("/api/v1/room?audience=public", headers=headers)
        assert response.status_code in {400, 401}, forged
    for query in ("audience=staff", "audience=desk", "audience=nobody", "audience=public&site=west", "site=east"):
        response = await ground.get(f"/api/v1/room?{query}", ground.screen)
        assert response.status_code in {400, 403, 404, 422}, query


async def test_a_links_expiry_is_in_the_services_file_not_in_the_link(ground: Ground) -> None:
    short = ground.tokens.add("open-day", [room_role("public")], NOON + 2 * TICK)
    path = "/api/v1/room?audience=public"
    assert (await ground.get(path, short)).status_code == 200
    assert (await ground.get(f"{path}&expires=2099-01-01T00:00:00Z", short)).status_code == 422
    ground.clock.now = NOON + 2 * TICK
    assert (await ground.get(path, short)).status_code == 401
    assert (await ground.get(path, ground.screen)).status_code == 200


async def test_readers_see_it_too_and_nobody_without_a_token(ground: Ground) -> None:
    path = "/api/v1/room?audience=public"
    assert (await ground.get(path, ground.reader)).status_code == 200
    assert (await ground.get(path)).status_code == 401
    assert (await ground.get("/api/v1/room?audience=staff", ground.screen)).status_code == 403


async def test_only_listed_origins_embed_this_page_and_no_other(tmp_path: Path) -> None:
    ground = Ground(tmp_path, embedders=("https://intranet.example.org",))
    policies = {path: (await ground.get(path)).headers for path in ("/room", "/", "/static/room.html", "/healthz")}
    assert "frame-ancestors https://intranet.example.org" in policies["/room"]["content-security-policy"]
    assert "x-frame-options" not in policies["/room"]
    for path in ("/", "/static/room.html", "/healthz"):
        assert policies[path]["content-security-policy"].endswith("frame-ancestors 'none'"), path
        assert policies[path]["x-frame-options"] == "DENY"


async def test_without_a_list_nobody_embeds_it(ground: Ground) -> None:
    headers = (await ground.get("/room")).headers
    assert headers["content-security-policy"].endswith("frame-ancestors 'none'")
    assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"rooms": ("staff",)}, "counts only"),
        ({"opened": "staff"}, "counts only"),
        ({"rooms": ("nobody",)}, "served"),
        ({"rooms": ("desk",)}, r"--room: must be an audience that the policy makes public .*public = true.*'desk'"),
        ({"opened": "desk"}, r"--open: must be an audience that the policy makes public .*public = true.*'desk'"),
        ({"rooms": ("public",), "embedders": ("https://*.example.org",)}, "origin"),
        ({"rooms": ("public",), "embedders": ("https://a.org/path",)}, "origin"),
        ({"rooms": ("public",), "embedders": ("http://a.org",)}, "origin"),
        ({"rooms": ("public",), "embedders": ("https://a.org; script-src *",)}, "origin"),
        ({"embedders": ("https://a.org",)}, "--room"),
    ],
)
def test_what_the_service_shows_is_checked(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        check(ServeConfig(POLICY, ("public", "staff", "desk"), Path("store"), **options))


def test_a_right_configuration_is_served() -> None:
    check(ServeConfig(POLICY, ("public",), Path("store"), rooms=("public",), embedders=("https://a.org:8443",)))
