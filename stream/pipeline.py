"""The table of stages: read this file first.

    observations ──► sense ──► window ──► attributes ──► day
    (batches,                    │                        │
     heartbeats)                 └───────► release ◄──────┘ ──► private records, audit entries
                                              │
                                              └─► spent ──► account ──► leakage records

One site is one pipeline, and everything about it happens here in one order: an item goes through the
stages from left to right, and each output of a stage goes through the stages after it before the next
output does. So what comes out depends on the log alone, never on how it was cut into messages. The Faust
agents, the embedded runner, replay and the tests drive this same table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from stream.accounting.account import Account
from stream.keys import Keys
from stream.operators import Operator
from stream.policy.document import AttributeRelease, Policy
from stream.policy.sites import zones_now
from stream.records import (
    DayClosed,
    Heartbeat,
    Micros,
    ObservationBatch,
    OccupancyWindow,
    Published,
    Rejected,
    Spent,
    Stay,
)
from stream.release.account_stage import account_stage
from stream.release.stage import Releases
from stream.schemas import OCCUPANCY, PRESENCE, rfc3339
from stream.sensing.attributes import DayAttributes
from stream.sensing.occupancy import Sense
from stream.sensing.stamp import AHEAD


@dataclass(frozen=True, slots=True)
class Stage:
    """One row of the table."""

    name: str
    reads: tuple[type, ...]
    operator: Operator[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """What a runner may ask for beyond the policy."""

    attempt: int = 1
    """Above 1 this is an operator-requested re-release: charged again, with fresh noise and its own ids."""
    presence: bool = False
    occupancy: bool = False
    """Also publish true presence or counts (restricted)."""
    first_window: Micros | None = None
    last_window: Micros | None = None


DEFAULTS = Options()
RADIOS = "radios"
"""Names, beside the stages' states, the radios of the zones that these are about."""

Output = Published | Rejected
States = dict[str, Any]


class Pipeline:
    """All stages of one site, with the policy and the keys they were built from."""

    def __init__(self, policy: Policy, site: str, keys: Keys, options: Options = Options()) -> None:
        self.site = site
        self._site = policy.site[site]
        self._tick = self._site.tick
        self._zones = tuple(zone.id for zone in policy.site[site].zones)
        self._presence = options.presence or policy.restricted.presence
        self._occupancy = options.occupancy or policy.restricted.occupancy
        self.table = table(policy, site, keys, options, keep_presence=self._presence)
        self._days = any(isinstance(r, AttributeRelease) and policy.zones_of(r, site) for r in policy.release)
        self._sense: Sense = self.table[0].operator  # type: ignore[assignment]

    def initial(self) -> States:
        """Return the state of every stage before the first message."""
        return {stage.name: stage.operator.initial() for stage in self.table}

    def step(self, states: States, item: ObservationBatch | Heartbeat) -> tuple[States, list[Output]]:
        """Fold one message of the log into the site; return the next states and what to publish, in order."""
        return states, [output for part, _ in self.steps(states, item) for output in part]

    def steps(self, states: States, item: ObservationBatch | Heartbeat) -> Iterator[tuple[list[Output], bool]]:
        """Fold one message into the states, which change in place, in steps of a bounded number of windows.

        Yields what each step publishes and whether it is the last; see ``Sense.steps`` for beginning again.
        """
        for produced, last in self._sense.steps(states["sense"], item):
            outputs: list[Output] = []
            for each in produced:
                self._push(states, each, 1, outputs)
            yield outputs, last

    def _push(self, states: States, item: Any, start: int, outputs: list[Output]) -> None:
        self._collect(item, outputs)
        for place in range(start, len(self.table)):
            stage = self.table[place]
            if isinstance(item, stage.reads):
                states[stage.name], produced = stage.operator.step(states[stage.name], item)
                for each in produced:
                    self._push(states, each, place + 1, outputs)

    def _collect(self, item: Any, outputs: list[Output]) -> None:
        if isinstance(item, Published | Rejected):
            outputs.append(item)
        elif isinstance(item, Stay) and self._presence:
            outputs.append(_stay_record(item))
        elif isinstance(item, OccupancyWindow) and self._occupancy:
            outputs.append(_occupancy_record(item, self._zones))

    def finish(self, states: States) -> list[Output]:
        """Return, at the end of a log that is complete, the stays not yet put out (where stays are kept)."""
        if not self._presence:
            return []
        return [_stay_record(stay) for stay in self._sense.remaining_stays(states["sense"])]

    def lose(self, states: States) -> None:
        """Take note that part of the log is gone: no source vouches for what lies before its next heartbeat."""
        states["sense"] = self._sense.lose(states["sense"])

    def shut(self, states: States) -> bool:
        """Whether the site has shut at ``max_devices``."""
        return bool(states["sense"].shut)

    def reopen(self, states: States) -> None:
        """Let a shut site go on; windows that it missed have coverage 0."""
        states["sense"] = self._sense.reopen(states["sense"])

    def encode(self, states: States) -> dict[str, bytes]:
        """Return each stage's state in its byte form, and the radios of the zones that it is about."""
        stages = {stage.name: stage.operator.encode(states[stage.name]) for stage in self.table}
        return stages | {RADIOS: orjson.dumps(self._site.radios)}

    def decode(self, data: dict[str, bytes]) -> States:
        """Return the states whose byte forms these are."""
        return {stage.name: stage.operator.decode(data[stage.name]) for stage in self.table}

    def adopt(self, data: dict[str, bytes]) -> States:
        """Return the states with which a new policy goes on from an old one's.

        Presence and books go on, and know a zone whose id has changed by its radios; groups, filters and the local day
        at hand begin anew, and so does a publication that is carried from window to window, unless it belongs to the
        same as before. Where the tick has changed, the next window is the first of the new grid, and what waits for it
        is sorted anew.
        """
        states = self.initial()
        now = zones_now(orjson.loads(data.get(RADIOS, b"{}")), self._site.zones)
        for stage in self.table:
            if isinstance(stage.operator, Releases):
                states[stage.name] = stage.operator.adopt(data[stage.name], now)
            elif isinstance(stage.operator, Sense | Account):
                states[stage.name] = stage.operator.decode(data[stage.name])
        states["account"].rename(now)
        states["sense"] = self._sense.regrid(states["sense"])
        return states

    def oldest_start(self, states: States) -> Micros | None:
        """Return the start of the oldest window or local day not yet released; None before the first."""
        next_tick = states["sense"].next_tick
        if next_tick is None:
            return None
        window: Micros = next_tick - self._tick
        day = states["attributes"]
        return min(window, day.start) if self._days and day.day is not None else window


def table(policy: Policy, site_id: str, keys: Keys, options: Options, *, keep_presence: bool) -> tuple[Stage, ...]:
    """Return the stages of one site, in the order in which items meet them."""
    site = policy.site[site_id]
    sense = Sense(
        site=site_id,
        zones=tuple(zone.id for zone in site.zones),
        access_points={radio: zone.id for zone in site.zones for radio in zone.radios},
        sources=site.sources,
        tick=site.tick,
        validity=site.validity,
        lateness=site.lateness,
        max_devices=site.max_devices,
        ahead=max(AHEAD, site.tick),  # a file's heartbeats come once a tick
        keep_presence=keep_presence,
        first_window=options.first_window,
        last_window=options.last_window,
    )
    wanted = [release for release in policy.release if isinstance(release, AttributeRelease)]
    covered = {zone.id for release in wanted for zone in policy.zones_of(release, site_id)}
    attributes = DayAttributes(
        site=site_id,
        zones=tuple((zone.id, index) for index, zone in enumerate(site.zones) if zone.id in covered),
        timezone=site.timezone,
        tick=site.tick,
        working_hours=site.working_hours,
        attributes=tuple(sorted({name for release in wanted for name in release.attributes})),
    )
    account = account_stage(policy, site_id, laboratory=keys.laboratory)
    return (
        Stage("sense", (ObservationBatch, Heartbeat), sense),
        Stage("attributes", (OccupancyWindow,), attributes),
        Stage("release", (OccupancyWindow, DayClosed), Releases(policy, site_id, keys, options.attempt)),
        Stage("account", (Spent,), account),
    )


def _stay_record(stay: Stay) -> Published:
    body = {
        "v": 1, "site": stay.site, "device": stay.device, "zone": stay.zone,
        "start": rfc3339(stay.start), "end": rfc3339(stay.end),
    }  # fmt: skip
    return Published(PRESENCE, stay.site, orjson.dumps(body), stay.end, "")


def _occupancy_record(window: OccupancyWindow, zones: tuple[str, ...]) -> Published:
    end = rfc3339(window.window_end)
    body = {
        "v": 1, "site": window.site, "window_end": end,
        "counts": dict(zip(zones, window.counts, strict=True)), "coverage": float(window.coverage),
    }  # fmt: skip
    return Published(OCCUPANCY, window.site, orjson.dumps(body), window.window_end, f"{window.site}/{end}")
