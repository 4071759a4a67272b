"""A small building, its policy and its people, for tests of the core."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from stream.keys import LaboratoryKeys
from stream.pipeline import Options, Pipeline
from stream.policy.document import parse
from stream.policy.privacy_days import PrivacyDays
from stream.records import MINUTE, Heartbeat, Micros, ObservationBatch, Published, Row
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, LEAKAGE, parse_time, rfc3339

SITE = "dbh"
SOURCES = ("127.0.0.1", "127.0.0.2")
ZONES = {"a": "hall", "b": "hall", "c": "hall", "d": "lobby", "x": "office", "y": "office"}
FLOORS = {"a": "1", "b": "1", "c": "2", "d": "2", "x": "2", "y": "2"}
ACCESS_POINTS = {zone: f"02:00:00:00:00:{number:02x}" for number, zone in enumerate(ZONES, start=1)}
EVENING = parse_time("2026-03-02T20:00:00-08:00")
"""A Monday evening at the site, so that a whole local day follows."""

COUNTS = """
[[release]]
name = "grouped"
query = "count"
mechanism = "pegasus"
zones = { kind = ["hall", "lobby"] }
levels = ["zone", "floor", "building"]
epsilon = { facilities = "1", public = "0.1", board = "0.1" }

[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
zones = { kind = ["hall", "lobby"] }
levels = ["zone", "building"]
epsilon = { facilities = "0.5", board = "0.25" }
daily_budget = { board = "10" }

[[release]]
name = "smooth"
query = "count"
mechanism = "filter"
zones = { kind = "hall" }
epsilon = { public = "0.5" }
"""

PLAIN = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
zones = { kind = "hall" }
epsilon = { public = "0.5" }
"""
"""A release that costs little, for tests of what comes before it."""

ATTRIBUTES = """
[[release]]
name = "office-day"
query = "attributes"
zones = { kind = "office" }
[release.attributes.arrival]
epsilon = { facilities = "1", public = "0.2" }
sensitive = { after = "10:00" }
[release.attributes.occupancy_level]
epsilon = { facilities = "1" }
sensitive = { below = 0.3 }
"""


def policy_text(
    releases: str = COUNTS + ATTRIBUTES,
    *,
    tick: str = "15min",
    site: str = "",
    head: str = "",
    sites: Sequence[str] = (SITE,),
) -> str:
    """Return a policy for the building; ``site`` and ``head`` are added to the site's and to the top level."""
    sources = ", ".join(f'"{source}"' for source in SOURCES)
    parts = [head]
    for number, name in enumerate(sites):
        parts.append(
            f'[site.{name}]\ntimezone = "America/Los_Angeles"\ntick = "{tick}"\nvalidity = "10min"\n'
            f'lateness = "30s"\nsources = [{sources}]\n{site}\n'
        )
        for zone, kind in ZONES.items():
            capacity = 1 if kind == "office" else 6
            parts.append(
                f'[[site.{name}.zones]]\nid = "{zone}"\nfloor = "{FLOORS[zone]}"\nkind = "{kind}"\n'
                f'capacity = {capacity}\naccess_points = ["{access_point(zone, number)}"]\n'
            )
    parts += [f'[[audience]]\nname = "{name}"\n' for name in ("facilities", "public", "board")]
    return "".join(parts) + releases


def unchecked(text: str) -> Policy:
    """Return a policy whose guarantees nothing has checked, for tests of charges that the ledger denies at run time."""
    return Policy.model_construct(**dict(parse(text)))


def access_point(zone: str, site: int = 0) -> str:
    """Return the radio address of a zone of the numbered site."""
    return ACCESS_POINTS[zone].replace("02:00", f"02:{site:02x}", 1)


def building(**changes: Any) -> Policy:
    """Return the policy, checked."""
    return load_policy(policy_text(**changes))


def laboratory(seed: int = 1) -> LaboratoryKeys:
    """Return laboratory keys that are the same each time."""
    return LaboratoryKeys(bytes([seed]) * 32, f"ledger{seed}", bytes([seed + 100]) * 32)


class Seen(NamedTuple):
    """A line of a file of observations."""

    time: Micros
    device: str
    """MAC address."""
    access_point: str
    site: str = SITE


def mac(number: int) -> str:
    """Return the address of a person's device."""
    return f"a4:00:00:00:{number // 256:02x}:{number % 256:02x}"


def people(
    seed: int = 1,
    *,
    hours: float = 30,
    devices: int = 25,
    every: Micros = 7 * MINUTE,
    start: Micros = EVENING,
    sites: int = 1,
) -> list[Seen]:
    """Return sightings of people who walk about, in time order; offices belong to the first two of them."""
    rng = random.Random(seed)
    seen = [Seen(start + 1_000, mac(0), access_point("a"))]
    for number in range(devices):
        time, site = start + rng.randrange(60 * MINUTE), rng.randrange(sites)
        zone = rng.choice("abcd")
        while time < start + hours * 60 * MINUTE:
            hour = ((time - EVENING) // (60 * MINUTE) + 20) % 24
            if 8 <= hour < 22:
                if rng.random() < 0.2:
                    zone = rng.choice("abcd")
                at = "xy"[number] if number < 2 and 9 <= hour < 17 else zone
                seen.append(Seen(time, mac(number), access_point(at, site), SITE if not site else f"{SITE}{site}"))
            time += rng.randrange(every // 4, 2 * every)
    return sorted(seen)


def write_csv(path: Path, seen: Iterable[Seen]) -> Path:
    """Write a file of observations."""
    lines = ["time,device,access_point,site"]
    lines += [f"{rfc3339(row.time)},{row.device},{row.access_point},{row.site}" for row in seen]
    path.write_text("\n".join(lines) + "\n")
    return path


def days_of(policy: Policy) -> PrivacyDays | None:
    """Return the site's privacy days, None where it has none."""
    site = policy.site[SITE]
    return None if site.day_starts is None else PrivacyDays(site.day_starts, site.timezone)


def messages(
    seen: Sequence[Seen], policy: Policy, rng: random.Random | None = None, *, after: Micros = 180 * MINUTE
) -> Iterator[ObservationBatch | Heartbeat]:
    """Yield one site's log: heartbeats of both sources at each tick, batches cut at random or at ticks only.

    A device has the same name on all days, also where the site has privacy days.
    """
    tick, days = policy.site[SITE].tick, days_of(policy)
    sequences = dict.fromkeys(SOURCES, 0)
    waiting: dict[str, list[Row]] = {source: [] for source in SOURCES}
    due = -(-seen[0].time // tick) * tick

    def flush(source: str) -> Iterator[ObservationBatch]:
        if waiting[source]:
            epoch = None if days is None else days.at(waiting[source][0].time)
            yield ObservationBatch(SITE, source, 1, sequences[source], tuple(waiting[source]), epoch)
            sequences[source] += 1
            waiting[source] = []

    since = seen[0].time - tick
    yield from (Heartbeat(SITE, source, 1, seen[0].time, since) for source in SOURCES)
    for row in [*seen, Seen(seen[-1].time + after, "", "")]:
        while due < row.time:
            for source in SOURCES:
                yield from flush(source)
                yield Heartbeat(SITE, source, 1, due, since)
            due += tick
        if row.device:
            source = SOURCES[int(row.device[-1], 16) % 2]
            waiting[source].append(Row(row.device.replace(":", "") + "0000", row.access_point, row.time))
            if rng is not None and rng.random() < 0.3:
                yield from flush(source)


def run(pipeline: Pipeline, log: Iterable[ObservationBatch | Heartbeat]) -> list[Any]:
    """Return everything that comes out of a log."""
    states, outputs = pipeline.initial(), []
    for item in log:
        states, made = pipeline.step(states, item)
        outputs += made
    return outputs


def outputs_of(
    policy: Policy, seen: Sequence[Seen], keys: LaboratoryKeys | None = None, **options: Any
) -> list[Published]:
    """Return what a laboratory publishes of these sightings."""
    pipeline = Pipeline(policy, SITE, keys or laboratory(), Options(**options))
    return run(pipeline, messages(seen, policy))


@cache
def day_outputs() -> list[Published]:
    """Return what a laboratory publishes of the people of one day under the whole policy, made once per process."""
    return outputs_of(building(), people())


def bodies(outputs: Iterable[Any], topic: str) -> list[dict[str, Any]]:
    """Return the objects published on a topic, or on all private ones (``private``), in order."""
    return [
        orjson.loads(out.value)
        for out in outputs
        if isinstance(out, Published) and (out.topic == topic or (topic == "private" and "private" in out.topic))
    ]


def audit_of(outputs: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the audit entries, in order."""
    return bodies(outputs, AUDIT)


def account_of(outputs: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the account records, in order."""
    return bodies(outputs, LEAKAGE)
