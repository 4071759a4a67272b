"""A stand-in for the service that serves the page and answers from a made-up month of a building.

What the page does with a late feed, a denied window, a value below zero or a lost line is tried here, where each can
be had at once. That page and service fit together is tried on a real store.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import orjson
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import connectors.serve
from connectors.serve.learn import answer_result
from connectors.serve.models import Answered, BookingsPart
from tests.acceptance.page.books import attribute_releases, told

STATIC = Path(connectors.serve.__file__).parent / "static"
CSP = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
ZONE = ZoneInfo("America/Los_Angeles")
NOW = datetime(2018, 2, 1, 22, 35, tzinfo=UTC)
"""A Thursday, 14:35 at the site."""
STEPS = {"5min": 300, "15min": 900, "1h": 3600, "1d": 86_400}
COLUMNS = (
    "start",
    "end",
    "node",
    "value",
    "low",
    "high",
    "half_width",
    "kind",
    "windows",
    "denied",
    "revised",
    "coverage",
    "bounded_to",
)
KINDS = ("classroom", "office", "open", "corridor", "classroom")
CAPACITIES = {"classroom": 60, "office": 1, "open": 24, "corridor": 12}
SITE_KEYS = {"site": "dbh", "timezone": "America/Los_Angeles"}


@dataclass
class Scene:
    """What the service says; a test changes it while the page looks on."""

    now: datetime = NOW
    feed: dict[str, Any] = field(default_factory=dict)
    """Fields of the feed that differ from a healthy one."""
    outage: float | None = None
    """Seconds for which no broker has answered."""
    usual: bool = True
    """Whether usual is known."""
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Fields of single nodes' newest rows."""
    audiences: tuple[str, ...] = ("facilities", "public")
    more_roles: tuple[str, ...] = ()
    """Roles that are no audience: account, operator."""
    bare: bool = False
    """Whether nothing has been told yet of attributes, spends, the account and to operators."""
    denied: int = 0
    """Windows denied today."""
    cluster: bool = False
    """Whether the operator's figures are those of Kafka's topics."""
    closed: bool = False
    """Whether the engine has shut the site."""
    few: bool = False
    """Whether the site has too few access points for figures that depend on people."""
    bounded_to: str | None = None
    """For how long of a day a device counts in every release; None: for as long as it is there."""
    signed: bool = True
    plan: dict[str, Any] | None = None
    """The plan of floor 2."""
    heat: bool = False
    """Whether there is a heat map, whose rooms have the ten colours in turn."""
    colours: dict[str, int | None] = field(default_factory=dict)
    """Colours of single rooms; None: it has none yet."""
    people: dict[str, tuple[int, int, int]] | None = None
    """Estimates of people with their bands, by node; None: nobody has counted people."""
    forecast: bool | None = None
    """Whether the hours to come are forecast already; None: no release is."""
    alerts: dict[str, int] | None = None
    """What a threshold stream says of rooms: 1 where an alert lasts; None: there is no stream."""
    bookings: tuple[str, ...] = ()
    """The readers to whom bookings are shown."""
    split: bool = False
    """Whether facilities get rooms in one release and sums in another, as 'policy init' makes them."""
    order: tuple[str, ...] = ()
    """The floors from the bottom up, if not by their names."""
    lag: str = "live"
    """How the newest window of the engine stands."""
    zones_a_floor: int = 10
    stream_open: asyncio.Event = field(default_factory=asyncio.Event)
    released: list[str] = field(default_factory=list)
    """Release ids, as they are sent."""
    asked: list[str] = field(default_factory=list)
    """Addresses asked for, in order."""
    since: list[str | None] = field(default_factory=list)
    """The Last-Event-ID of each stream that was opened."""
    ended: str = ""
    """Why streams end: "revoked", "rewound" or "stopping"."""

    def zones(self) -> list[dict[str, Any]]:
        """Return the zones of the building."""
        kinds = [(f, i, KINDS[(f + i) % len(KINDS)]) for f in range(1, 7) for i in range(1, self.zones_a_floor + 1)]
        return [
            {"zone": f"{f}{i:03}", "floor": str(f), "kind": kind, "capacity": CAPACITIES[kind], "metadata": {}}
            for f, i, kind in kinds
        ]

    def counted(self) -> list[dict[str, Any]]:
        """Return the zones that facilities' release counts: all but offices."""
        return [zone for zone in self.zones() if zone["kind"] != "office"]


def busy(local: datetime) -> float:
    """Return the share of its people that the building holds at a local time."""
    hour = local.hour + local.minute / 60
    share = math.exp(-(((hour - 13.2) / 3.6) ** 4)) if 6 < hour < 21 else 0.0
    return share * (0.12 if local.weekday() > 4 else 1.0)


def weight(scene: Scene, node: str) -> float:
    """Return how many people a node has when it is busy."""
    return weight_of(scene.zones_a_floor, node)


@cache
def weight_of(zones_a_floor: int, node: str) -> float:
    scene = Scene(zones_a_floor=zones_a_floor)
    level, _, name = node.partition(":")
    inside = [
        z for z in scene.counted()
        if level == "building" or (level == "floor" and z["floor"] == name) or (level == "zone" and z["zone"] == name)
    ]  # fmt: skip
    return math.fsum(z["capacity"] * (0.1 + random.Random(z["zone"]).random() * 0.4) for z in inside)


def noise_of(node: str) -> float:
    """Return the deviation of the noise on one window."""
    return {"building": 9.0, "floor": 4.0}.get(node.partition(":")[0], 1.6)


def row(scene: Scene, node: str, end: datetime, seconds: int) -> dict[str, Any]:
    """Return a released row of a node, noise and all."""
    return row_of(scene.zones_a_floor, node, end, seconds) | {"bounded_to": scene.bounded_to}


@cache
def row_of(zones_a_floor: int, node: str, end: datetime, seconds: int) -> dict[str, Any]:
    noise = noise_of(node) / math.sqrt(max(1, seconds // 300))
    moment = end - timedelta(seconds=seconds / 2)
    drawn = random.Random(f"{node}{end.isoformat()}{seconds}").gauss(0, 1)
    value: float = weight_of(zones_a_floor, node) * busy(moment.astimezone(ZONE)) + noise * drawn
    value = round(value) if seconds == 300 else round(value, 2)
    half = round(1.96 * noise, 2)
    start = end - timedelta(seconds=seconds)
    return dict(zip(COLUMNS, (
        stamp(start), stamp(end), node, value, round(value - half, 2), round(value + half, 2), half,
        "noise", seconds // 300, 0, 0, 1.0, None,
    ), strict=True))  # fmt: skip


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def usual_slots(scene: Scene, node: str) -> dict[str, list[list[float]]]:
    """Return mean, deviation and number of each quarter of an hour, by class of day."""
    return usual_of(weight(scene, node), noise_of(node))


@cache
def usual_of(largest: float, noise: float) -> dict[str, list[list[float]]]:
    found = {}
    for name, day in {"workday": 29, "saturday": 27, "sunday": 28}.items():
        quarters = [datetime(2018, 1, day, tzinfo=ZONE) + timedelta(minutes=15 * i) for i in range(96)]
        means = [largest * busy(quarter) for quarter in quarters]
        found[name] = [[round(mean, 2), round(math.hypot(noise, 0.15 * mean), 2), 20] for mean in means]
    return found


def nodes(scene: Scene, release: str) -> list[str]:
    floors = [f"floor:{f}" for f in sorted({zone["floor"] for zone in scene.counted()})]
    rooms = [f"zone:{zone['zone']}" for zone in scene.counted()] if release in {"occupancy", "rooms"} else []
    return rooms if release == "rooms" else ["building", *floors, *rooms]


def split(release: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a release of rooms and one of sums in the place of one of both."""
    return [
        release | {"release": "sums", "levels": ["floor", "building"]},
        release | {"release": "rooms", "levels": ["zone"]},
    ]


def releases(scene: Scene) -> list[dict[str, Any]]:
    both = {"facilities": ("occupancy", ["zone", "floor", "building"]), "public": ("floors", ["floor", "building"])}
    counts = [
        {
            "audience": audience, "release": both[audience][0], "sites": ["dbh"],
            "query": "count", "mechanism": "laplace",
            "levels": both[audience][1], "zones": {"dbh": [zone["zone"] for zone in scene.counted()]}, "epsilon": "1",
            "unit": "window", "noise": "laplace", "delta": None, "window_seconds": 300, "revise": [], "attributes": [],
            "daily_budget": None, "base": None,
        }
        for audience in scene.audiences
    ]  # fmt: skip
    if scene.split:
        counts = [*split(counts[0]), *counts[1:]]
    if scene.heat:
        counts.append(counts[0] | {"release": "heat", "query": "heatmap", "base": "occupancy"})
    if scene.people is not None:
        counts.append(counts[0] | {"release": "occupancy-people", "query": "people", "base": "occupancy"})
    if scene.forecast is not None:
        counts.append(counts[0] | {"release": "occupancy-forecast", "query": "forecast", "base": "occupancy"})
    if scene.alerts is not None:
        counts.append(counts[0] | {"release": "crowded", "query": "threshold", "mechanism": "sparse-vector"})
    return [*counts, *attribute_releases(scene)]


def forecast(scene: Scene) -> dict[str, Any]:
    """Return a forecast of eight days: today a sixth more than usual, each band a quarter wide on either side."""
    midnight = scene.now.astimezone(ZONE).replace(hour=0, minute=0, second=0)
    hour = scene.now.astimezone(ZONE).hour
    starts = [midnight + timedelta(hours=each) for each in range(hour + 1, 8 * 24)]
    found: dict[str, dict[str, list[int | None]]] = {}
    for node in ("building", *(f"floor:{floor}" for floor in range(1, 7))):
        usual = [round(weight(scene, node) * busy(start)) for start in starts]
        value = [
            each * 7 // 6 if start.day == midnight.day else each for each, start in zip(usual, starts, strict=True)
        ]
        parts = {"usual": usual, "value": value, "low": [3 * each // 4 for each in value],
                 "high": [5 * each // 4 + 1 for each in value]}  # fmt: skip
        found[node] = {name: [*part] if scene.forecast else [None] * len(part) for name, part in parts.items()}
    return {"made_at": stamp(scene.now), "start": [stamp(start.astimezone(UTC)) for start in starts], "nodes": found}


def latest(scene: Scene, audience: str) -> dict[str, Any]:
    """Return the newest row of every node."""
    release = "occupancy" if audience == "facilities" else "floors"
    local = scene.now.astimezone(ZONE)
    name = {5: "saturday", 6: "sunday"}.get(local.weekday(), "workday")
    found = []
    for node in nodes(scene, release):
        source = release if not scene.split else "rooms" if node.startswith("zone:") else "sums"
        newest = row(scene, node, scene.now, 300) | {"release": source, "usual": None, "likely_empty": None}
        if scene.usual:
            slot = usual_slots(scene, node)[name][(local.hour * 60 + local.minute) // 15]
            newest["usual"] = {"mean": slot[0], "deviation": slot[1], "class": name, "n": slot[2]}
        newest["likely_empty"] = round(1 / (1 + math.exp(min(50, 1.6 * newest["value"] - 2))), 3)
        found.append(newest | scene.rows.get(node, {}))
    if scene.heat and audience == "facilities":
        rooms = [each for each in found if each["node"].startswith("zone:")]
        found += [
            each
            | {
                "release": "heat",
                "usual": None,
                "half_width": None,
                "low": None,
                "high": None,
                "kind": None,
                "value": scene.colours.get(each["node"], i % 10 + 1),
            }
            for i, each in enumerate(rooms)
        ]
    if audience == "facilities":
        people = scene.people or {}
        estimated = {"release": "occupancy-people", "usual": None, "half_width": None, "kind": None}
        found += [
            each | estimated | dict(zip(("value", "low", "high"), people[each["node"]], strict=True))
            for each in found if each["node"] in people and each["release"] == "occupancy"
        ]  # fmt: skip
        reported = {"release": "crowded", "usual": None, "half_width": None, "low": None, "high": None, "kind": None}
        counted = {each["node"]: each for each in found if each["release"] == "occupancy"}
        found += [counted[node] | reported | {"value": value} for node, value in (scene.alerts or {}).items()]
    columns = [*COLUMNS, "release", "usual", "likely_empty"]
    feed = {
        "site": "dbh",
        "window_end": stamp(scene.now),
        "age_seconds": 42,
        "coverage": 1.0,
        "denied": False,
        "state": "live",
    }
    return {
        "now": stamp(scene.now), "columns": columns, "rows": [[each[name] for name in columns] for each in found],
        "feed": [feed | scene.feed], "outage_seconds": scene.outage,
    }  # fmt: skip


def booked_day(scene: Scene, day: str) -> dict[str, Any]:
    """Return a day with each statement, and with each reason why none is made."""

    def span(start: int, end: int) -> dict[str, Any]:
        midnight = datetime.combine(date.fromisoformat(day), time(), ZONE)
        return {
            name: stamp((midnight + timedelta(hours=at)).astimezone(UTC))
            for name, at in (("start", start), ("end", end))
        }

    def booked(start: int, end: int, empty: float | None = None, reason: str | None = None) -> dict[str, Any]:
        return span(start, end) | {"whole_days": reason == "days", "empty": empty, "reason": reason}

    def room(zone: str, **more: Any) -> dict[str, Any]:
        silent: dict[str, Any] = {"reason": None, "half_width": 0.84, "minutes": 20, "booked": [], "unbooked": []}
        return {"zone": zone, "name": zone} | silent | more

    why_not = ("ahead", "short", "missing", "unsure", "days")
    rooms = [
        room("2001", name="Blue room", booked=[booked(9, 10, 0.97), booked(11, 12, None, "unsure")]),
        room("2003", booked=[booked(10, 12, 0.82), *(booked(13, 14, None, reason) for reason in why_not)]),
        room("2005", name="Large seminar room with a view of the park", unbooked=[span(9, 10) | {"used": 0.99}]),
        *(
            room(f"300{at}", reason=reason, minutes=None, half_width=6.41 if reason == "noise" else None)
            for at, reason in enumerate(("few", "calendar", "none", "bounded", "law", "noise"))
        ),
    ]  # fmt: skip
    assumed = {"empty_devices": 1, "used_devices": 3, "empty_share": 0.1, "used_share": 0.05}
    return BookingsPart.model_validate({
        **SITE_KEYS, "day": day, "stale": "state" in scene.feed, "window_end": stamp(scene.now), "least_capacity": 6,
        "assumed": assumed, "called": 0.8, "rooms": [] if scene.bare else rooms,
    }).model_dump()  # fmt: skip


def records(scene: Scene, query: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows that a question of records asks for."""
    seconds = STEPS[query.get("granularity", "5min")]
    asked = (query.get("nodes") or "building").split(",")
    start = max(datetime.fromisoformat(query["from"]), scene.now - timedelta(days=60))
    until = min(datetime.fromisoformat(query["to"]), scene.now)
    if seconds == 86_400:
        first = start.astimezone(ZONE).replace(hour=0, minute=0, second=0)
        ends = [(first + timedelta(days=i)).astimezone(UTC) for i in range(1, 62)]
    else:
        first_end = datetime.fromtimestamp((int(start.timestamp()) // seconds + 1) * seconds, UTC)
        ends = [
            first_end + timedelta(seconds=i * seconds)
            for i in range(int((until - first_end).total_seconds()) // seconds + 1)
        ]
    for end in ends:
        for node in asked:
            if start < end <= until:
                yield row(scene, node, end, seconds)


def application(scene: Scene) -> Starlette:
    """Return the stand-in; every request is written into ``scene.asked``."""

    def answer(body: Any, status: int = 200) -> Response:
        return Response(
            orjson.dumps(body), status, media_type="application/json", headers={"Content-Security-Policy": CSP}
        )

    async def page(request: Request) -> Response:
        del request
        return FileResponse(STATIC / "index.html", headers={"Content-Security-Policy": CSP})

    async def session(request: Request) -> Response:
        if request.method == "POST":
            scene.signed = orjson.loads(await request.body()) in ({"token": "right"}, {"link": "right"})
            return Response(status_code=204) if scene.signed else refused()
        if request.method == "DELETE":
            scene.signed = False
            return Response(status_code=204)
        if not scene.signed:
            return refused()
        roles = [*(f"audience:{name}" for name in scene.audiences), *scene.more_roles]
        return answer({
            "roles": roles, "audiences": list(scene.audiences), "open": False, "laboratory": True,
            "version": "0.1.0", "playback": False, "bookings": list(scene.bookings),
        })  # fmt: skip

    def refused() -> Response:
        return answer({"error": {"what": "no session", "rule": "sign in with a token", "value": ""}}, 401)

    async def sites(request: Request) -> Response:
        del request
        floors = scene.order or sorted({zone["floor"] for zone in scene.zones()})
        drawn = "/api/v1/sites/dbh/plans/2" if scene.plan else None
        return answer({"sites": [SITE_KEYS | {
            "name": "Donald Bren Hall", "tick_seconds": 300, "day_starts": "04:00", "working_hours": ["08:00", "18:00"],
            "floors": [
                {"floor": floor, "plan": drawn if floor == "2" else None,
                 "zones": [zone for zone in scene.zones() if zone["floor"] == floor]}
                for floor in floors
            ],
        }] if scene.audiences else []})  # fmt: skip

    async def of_api(request: Request) -> Response:
        scene.asked.append(request.url.path)
        query = request.query_params
        found: Any = {"error": {"what": "no such thing", "rule": "see openapi.json"}}
        match request.path_params["rest"].split("/"):
            case ["releases"]:
                found = {"releases": releases(scene)}
            case ["latest"]:
                found = latest(scene, query["audience"])
            case ["sites", "dbh", "plans", "2"]:
                found = scene.plan
            case ["forecast"]:
                found = forecast(scene)
            case ["usual"]:
                shown = nodes(scene, query["release"]) if scene.usual else []
                found = {"nodes": {node: usual_slots(scene, node) for node in shown}, "slot_seconds": 900}
            case ["bookings"]:
                found = booked_day(scene, query.get("day") or "2018-02-01")
            case ["releases", release, "records"]:
                return of_records(release, query)
            case [*path]:
                found = told("/".join(path), scene, query) or found
        return answer(found, 404 if "error" in found else 200)

    def of_records(release: str, query: Any) -> Response:
        found = list(records(scene, query))
        if query.get("format") == "csv":
            lines = [",".join(COLUMNS), *(",".join(str(each[name]) for name in COLUMNS) for each in found)]
            headers = {"Content-Disposition": 'attachment; filename="tacet.csv"'}
            return Response("\r\n".join(lines), media_type="text/csv", headers=headers)
        return answer({
            "release": release, "audience": query["audience"], "granularity": query.get("granularity"), **SITE_KEYS,
            "columns": COLUMNS, "rows": [[each[name] for name in COLUMNS] for each in found], "next": None,
        })  # fmt: skip

    async def learnt(request: Request) -> Response:
        return answer(answer_result(Answered.model_validate(orjson.loads(await request.body()))).model_dump())

    async def stream(request: Request) -> Response:
        scene.since.append(request.headers.get("last-event-id") or request.query_params.get("after"))

        async def events() -> AsyncIterator[str]:
            scene.stream_open.set()
            yield "event: ready\ndata: {}\n\n"
            sent = len(scene.released)
            while scene.stream_open.is_set() and not scene.ended:
                for name in scene.released[sent:]:
                    yield f'event: release\nid: {name}\ndata: {{"site":"dbh","window_end":"{stamp(scene.now)}"}}\n\n'
                sent = len(scene.released)
                await asyncio.sleep(0.02)
            if scene.ended:
                yield f'event: end\ndata: {{"why":"{scene.ended}"}}\n\n'

        return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return Starlette(
        routes=[
            Route("/", page),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/api/v1/session", session, methods=["GET", "POST", "DELETE"]),
            Route("/api/v1/sites", sites),
            Route("/api/v1/stream", stream),
            Route("/api/v1/learn/answers", learnt, methods=["POST"]),
            Route("/api/v1/{rest:path}", of_api),
        ],
        middleware=[Middleware(GZipMiddleware)],
    )
