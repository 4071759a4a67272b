"""Models of people and policies that name them, for tests; and made-up history with counts of people."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stream.policy.counts import CountRelease
from stream.policy.people import NodeCurve, PeopleModel, Truth, terms_of
from stream.records import HOUR, MINUTE
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time, rfc3339
from tests.support.small_building import SITE, policy_text

MONDAY = parse_time("2026-03-02T00:00:00Z")

HALLS = """
[[release]]
name = "halls"
query = "count"
mechanism = "laplace"
zones = { kind = ["hall", "lobby"] }
levels = ["zone", "floor", "building"]
epsilon = { facilities = "1", public = "0.1" }
"""
CURVE = NodeCurve(curve=((0, 0), (10, 8000), (40, 20_000)), largest=40, usual=(0, 40_000), days=20)
LEVEL = {
    "hours": {str(hour): 1000 for hour in range(24)}, "constant": 1000, "relative": 100, "quantile": 2000,
    "coverage": 0,
}  # fmt: skip


def model_of(policy: Policy, *, release: str = "halls", audience: str = "facilities", **changes: Any) -> PeopleModel:
    """Return a model of zones a and b and of the building, for a release of the small building."""
    counts = next(each for each in policy.release if each.name == release)
    assert isinstance(counts, CountRelease)
    fields: dict[str, Any] = {
        "v": 1, "site": SITE, "release": release, "audience": audience, "laboratory": True,
        "terms": terms_of(policy.site[SITE], counts, audience), "truth": Truth(public=True),
        "levels": {"zone": LEVEL, "building": LEVEL},
        "nodes": dict.fromkeys(("zone:a", "zone:b", "building"), CURVE),
    }  # fmt: skip
    return PeopleModel.model_validate(fields | changes)


def provisional_model(policy: Policy, **changes: Any) -> PeopleModel:
    """Return a model of zone a, one person for two devices, learnt from 5 counts on 1 March."""
    level = LEVEL | {"constant": 2000, "relative": 0, "quantile": 1000}
    fields: dict[str, Any] = {
        "levels": {"zone": level},
        "nodes": {"zone:a": NodeCurve(curve=((0, 0), (40, 20_000)), largest=40, usual=(0, 40_000), days=1)},
        "provisional": {"counts": 5, "days": 1, "until": "2026-03-15", "factor": 2500},
    }
    return model_of(policy, **(fields | changes))


def with_people(model: PeopleModel, releases: str = HALLS, *, digest: str | None = None, **text: Any) -> Policy:
    """Return the policy of the small building that names a model."""
    table = f'\n[people]\nmodel = "people.json"\ndigest = "{digest or model.digest}"\n'
    return load_policy(policy_text(releases, **text) + table, read=lambda _: model.to_bytes().decode())


def small_policy(releases: str = HALLS, **text: Any) -> Policy:
    """Return the same policy without people."""
    return load_policy(policy_text(releases, **text))


ONE_ROOM = """
[[audience]]
name = "public"
[site.lab]
sources = ["10.0.0.1"]
[[site.lab.zones]]
id = "room"
capacity = 30
access_points = ["02:00:00:00:00:01"]
[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
epsilon = { public = "1" }
"""


def one_room(folder: Path) -> Path:
    """Write the policy of a site with one room; return its file."""
    path = folder / "policy.toml"
    path.write_text(ONE_ROOM)
    return path


def counted_room(
    folder: Path, *, days: int = 20, ratio: float = 0.5, seed: int = 1, noise: float = 0.0,
    truth: Callable[[float], float] = round,
) -> tuple[Path, Path]:  # fmt: skip
    """Write released history of a room, and counts of the people in it, every half hour from 8 to 18.

    Each day has its own ratio of people to devices, near ``ratio``.

    Returns:
        The files of counts of people, and of history (CSV).
    """
    rng = np.random.default_rng(seed)
    heads, history = ["time,node,people"], ["end,node,value,half_width,kind"]
    for day in range(days):
        own = ratio * rng.uniform(0.85, 1.15)
        for half_hour in range(48):
            end = rfc3339(MONDAY + 24 * HOUR * day + 30 * MINUTE * half_hour)
            devices = int(rng.integers(4, 40)) if 17 <= half_hour <= 35 else 0
            released = devices + round(float(rng.normal(0, noise))) if noise else devices
            history.append(f"{end},zone:room,{released},{1.96 * noise:.3f},noise")
            if 16 <= half_hour <= 36:
                heads.append(f"{end},zone:room,{max(0, truth(own * devices))}")
    people, released_file = folder / "heads.csv", folder / "history.csv"
    people.write_text("\n".join(heads) + "\n")
    released_file.write_text("\n".join(history) + "\n")
    return people, released_file


def document(path: Path) -> dict[str, Any]:
    """Return a JSON file's content."""
    found: dict[str, Any] = orjson.loads(path.read_bytes())
    return found
