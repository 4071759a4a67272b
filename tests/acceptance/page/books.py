"""Answers of the stand-in service: attributes, spending, the account, and figures for operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from connectors.serve import learn
from connectors.serve.ledger_views import NOT_IN_TOPICS
from connectors.serve.models import OfLesson, OfRound

if TYPE_CHECKING:
    from tests.acceptance.page.recorded import Scene

DAYS = ("2018-01-30", "2018-01-31")
TERMS = {"arrival": ("1", {"after": "10:00"}), "occupancy_level": ("0.5", {"below": 0.3})}
OUTCOMES: dict[str, list[Any]] = {
    "arrival": ["08:55", None, "09:10", "month"],
    "occupancy_level": [None, 0.42, None, 0.8],
}
"""By attribute, of each office in turn: a value that is shown, None where it is withheld, why it was not asked."""
UNITS = {"presence_tuple": "one device at one tick", "device_day": "one device, one day"}


def attribute_releases(scene: Scene) -> list[dict[str, Any]]:
    """Return the release of attributes that facilities get."""
    terms = [{"attribute": name, "epsilon": each[0], "sensitive": each[1]} for name, each in TERMS.items()]
    return [
        {
            "audience": "facilities", "release": "office-day", "sites": ["dbh"], "query": "attributes",
            "mechanism": "osdprr", "levels": ["zone"], "zones": {"dbh": offices(scene)}, "epsilon": None,
            "unit": "zone_day", "noise": None, "delta": 0.0, "window_seconds": 300, "revise": [], "attributes": terms,
            "daily_budget": None, "base": None,
        }
        for audience in scene.audiences
        if audience == "facilities"
    ]  # fmt: skip


def offices(scene: Scene) -> list[str]:
    return [zone["zone"] for zone in scene.zones() if zone["kind"] == "office"]


def told(path: str, scene: Scene, query: Any) -> dict[str, Any] | None:
    """Return what is answered at a path; None where there is nothing."""
    answers: dict[str, Callable[[], dict[str, Any]]] = {
        "attributes": lambda: {"rows": [] if scene.bare else attribute_rows(scene)},
        "policy": lambda: {
            "version": "0123456789abcdef",
            "language": "en",
            "audiences": {a: promise(a) for a in scene.audiences},
        },
        "spends": lambda: {
            "rows": [] if scene.bare else spend_rows(scene),
            "left": {"occupancy": 94, "floors": None},
        },
        "account": lambda: {"promise": {}, "sites": {} if scene.bare else {"dbh": account(scene)}},
        "account/coalition": lambda: {
            "audiences": query["audiences"].split(","),
            "sites": {"dbh": cost(len(query["audiences"]))},
        },
        "account/attributes": lambda: {"attributes": leakage() if query["day"] == "2018-01-31" else {}},
        "operator": lambda: {"free_mib": 51200, "sites": [] if scene.bare else [figures(scene)]},
    }
    answers |= {
        "learn/day": lambda: learn.lesson_day(OfLesson.model_validate(dict(query))).model_dump(),
        "learn/tasks": lambda: learn.round_questions(OfRound.model_validate(dict(query))).model_dump(),
    }
    return answers[path]() if path in answers else None


def attribute_rows(scene: Scene) -> list[dict[str, Any]]:
    rows = []
    for day in DAYS:
        for number, zone in enumerate(offices(scene)):
            for name, outcomes in OUTCOMES.items():
                outcome = outcomes[(number + DAYS.index(day)) % len(outcomes)]
                shown = outcome is not None and outcome != "month"
                row = {"day": day, "zone": zone, "attribute": name, "release": "office-day", "released": shown}
                rows.append(row | ({"reason": None, "value": outcome} if shown else {"reason": outcome}))
    return rows


def promise(audience: str) -> dict[str, Any]:
    """Return what an audience is promised: facilities by the window, public by the day."""
    release, delta = ("occupancy", 0.0) if audience == "facilities" else ("floors", 1e-6)
    epsilons = (
        {"presence_tuple": 1.0, "device_day": 292.0} if not delta else {"presence_tuple": 2.97, "device_day": 2.0}
    )
    return {
        "promise": [
            "The unit is one MAC address at one site.",
            f"{release}: what is published of a device is bounded.",
        ],
        "not_protected": ["Many windows add up."],
        "units": [
            {"site": "dbh", "release": release, "unit": unit, "words": words, "epsilon": epsilons[unit], "delta": delta}
            for unit, words in UNITS.items()
        ],
    }


def spend_rows(scene: Scene) -> list[dict[str, Any]]:
    rows = [{"day": day, "release": "occupancy", "windows": 288, "denied": 0, "spend": "288"} for day in DAYS]
    return [*rows, rows[0] | {"day": "2018-02-01", "windows": 190, "denied": scene.denied, "spend": "190"}]


def cost(epsilon: float) -> dict[str, Any]:
    tight = {"device_day": {"epsilon": epsilon / 2, "delta": 1e-6}}
    return {"presence_tuple": "1", "device_day": f"{epsilon:g}", "tight": tight}


def account(scene: Scene) -> dict[str, Any]:
    units = {name: cost(244) for name in scene.audiences or ("facilities", "public")}
    return {
        "site": "dbh",
        "window_end": "2018-02-01T22:35:00Z",
        "kind": "counts",
        "audiences": units,
        "coalition": cost(246),
    }


def leakage() -> dict[str, Any]:
    withheld = {"facilities": 2.718281828, "all": 2.718281828}
    shown = {"facilities": 0.0, "all": 0.0}
    arrival = {"theorem_1": withheld, "bound": withheld, "with_counts": {"facilities": 12.18, "all": "inf"}}
    return {
        "2018-01-31/1004/arrival": arrival,
        "2018-01-31/1004/occupancy_level": {"theorem_1": shown, "bound": shown, "with_counts": shown},
    }  # fmt: skip


def figures(scene: Scene) -> dict[str, Any]:
    """Return what the engine notes of a site."""
    return {
        "v": 1, "site": "dbh", "window_end": "2018-02-01T22:35:00Z", "lag_seconds": 120.0,
        "reached": "2018-02-01T22:35:59Z",
        "closed": scene.closed, "ledger_entries": 1234, "rejected_messages": None if scene.few else 2,
        "oldest_key_day": "2018-01-31T00:00:00Z", "policy_version": "0123456789abcdef",
        "late": None if scene.few else 12, "accepted": None if scene.few else 34567, "state": scene.lag,
        "dropped": None if scene.few else {"unknown_access_point": 7, "ahead": 1},
        "traps": None if scene.few else {
            "received": 40000, "accepted": 34567, "kernel_drops": 3, "dropped": {"stopping": 5430},
        },
        "silent_sources": 1 if scene.cluster else None,
        "denied": denied(scene) if scene.denied else [],
    } | (dict.fromkeys(NOT_IN_TOPICS) if scene.cluster else {})  # fmt: skip


def denied(scene: Scene) -> list[dict[str, Any]]:
    names = ("release", "audience", "reason", "windows")
    rows = [("floors", "public", "budget", scene.denied), ("occupancy", "facilities", "guard", 1)]
    return [dict(zip(names, row, strict=True)) for row in rows]
