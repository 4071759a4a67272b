"""How far counts of devices are from the devices in the building, by what a source tells about people who sit still.

The table of docs/measurements.md: one simulated building and its visits, three assumptions about how often a device
that stays is heard, and four ways to count. Messages go through the connector's core and the engine, as they do in
``tacet ingest`` and a worker. Machines are left out. ``python -m tests.statistical.test_presence_error`` prints the
table.

Everything is fixed, so a run says what the one before said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.sighting import Kind, Message, Sighting
from connectors.sources.polls.client_tables import AssociatedClient
from connectors.sources.polls.departures import Departures
from connectors.sources.polls.schedule import PollGrid
from stream.lab.simulator.events import DAY_SHOWN, Simulation, simulate
from stream.lab.simulator.radio import DISASSOCIATES, IDLE_TIMEOUT, Heard, Ints
from stream.lab.simulator.visits import DeviceClass, Visits
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import HOUR, MINUTE, SECOND, Micros, OccupancyWindow
from stream.sensing.occupancy import OccupancyOperator
from tests.support.documents import DOCUMENTS
from tests.support.simulated_truth import occupancy

SITE, SOURCE = "dbh", "10.2.0.5"
TICK, VALIDITY, SESSION_LIMIT, LATENESS = 5 * MINUTE, 10 * MINUTE, 4 * HOUR, 30 * SECOND
ASSUMPTIONS = {
    Heard.OFTEN: "every few minutes",
    Heard.SELDOM: "about every half hour",
    Heard.ROAMS: "only when it roams",
}
EVENTS, ENDED, SESSIONS, POLLS = "events", "events with disassociation", "sessions", "polls"
WAYS = (EVENTS, ENDED, SESSIONS, POLLS)


Told = tuple[Micros, Sighting]
"""When a sighting came, and the sighting."""


@cache
def building(heard: Heard) -> Simulation:
    """Return the demo's day."""
    return simulate(replace(DAY_SHOWN, heard=heard))


def people(run: Simulation) -> Visits:
    """Return the visits of people's devices."""
    return run.visits.select(run.device_class[run.visits.device] != DeviceClass.STATIC)


def octets(address: str) -> bytes:
    return bytes.fromhex(address.replace(":", ""))


# --- what each source tells ---------------------------------------------------------------------------------------


def messages(run: Simulation, *, departures: bool) -> list[Told]:
    """Return a controller's messages; an end names the session of the association before it, as accounting does."""
    radios, clients = [octets(each) for each in run.building.access_points], [octets(each) for each in run.devices]
    rows = [(row, Kind.ASSOCIATE) for row in zip(run.time, run.device, run.access_point, strict=True)]
    rows += [(row, Kind.LEAVE) for row in zip(*run.departures, strict=True) if departures]
    told, sessions = list[Told](), dict[int, int]()
    for (time, device, point), kind in sorted(rows, key=lambda row: (row[0][0], row[1])):
        if run.device_class[device] == DeviceClass.STATIC:
            continue
        session = sessions.setdefault(int(device), 0)
        told.append((int(time), Sighting(kind, clients[device], radios[point], session=b"%d" % session)))
        sessions[int(device)] += kind is Kind.LEAVE
    return told


def polled(run: Simulation) -> list[Told]:
    """Return what polls of the client table pass on. Who leaves in silence stays in it until the idle timeout."""
    radios, clients = [octets(each) for each in run.building.access_points], [octets(each) for each in run.devices]
    visits, departures, told = people(run), Departures(), list[Told]()
    silent = np.random.default_rng(1).random(len(visits.end)) >= DISASSOCIATES
    forgotten = visits.end + np.where(silent, round(IDLE_TIMEOUT * SECOND), 0)
    grid, now = PollGrid.of_source(SITE, SOURCE, 5 * MINUTE), run.start
    while now < run.end:
        times = grid.next_poll(now)
        there = np.flatnonzero((visits.start <= times.start) & (times.start < forgotten))
        # A device has one row: that of its latest visit.
        rows = {
            visits.device[at]: AssociatedClient(clients[visits.device[at]], radios[visits.zone[at]])
            for at in there[np.argsort(visits.start[there], kind="stable")].tolist()
        }
        passed_on, known = departures.follow(rows.values(), times.hand_over)
        departures.accept(known)
        told += [(at, sighting) for sighting, at in passed_on]
        now = times.start
    return told


# --- counts -------------------------------------------------------------------------------------------------------


def counts(run: Simulation, told: Iterable[Told], *, sessions: bool) -> Ints:
    """Return the counts of the building at all ticks of the day."""
    place, limit = run.building, SESSION_LIMIT if sessions else VALIDITY
    points = {radio: (SITE, zone) for radio, zone in zip(place.access_points, place.zones, strict=True)}
    limits = SiteLimits((SOURCE,), limit, 20_000, Pseudonyms.daily(bytes(32)), LATENESS, sessions=sessions)
    connector = Ingest(access_points=points, sites={SITE: limits})
    engine = OccupancyOperator(
        site=SITE, zones=place.zones, access_points={radio: zone for radio, (_, zone) in points.items()},
        sources=(SOURCE,), tick_length=TICK, validity=limit, lateness=LATENESS, max_devices=20_000, sessions=sessions,
    )  # fmt: skip
    held, state, found = connector.initial(run.start - MINUTE), engine.initial(), dict[Micros, int]()

    def take(sent: Iterable[Message]) -> None:
        nonlocal state
        for message in sent:
            state, outputs = engine.step(state, message)
            found.update({out.window_end: sum(out.counts) for out in outputs if isinstance(out, OccupancyWindow)})

    for time, sighting in told:
        take(connector.poll(held, time))
        connector.observe(held, time, SOURCE, SOURCE, sighting)
    take(connector.poll(held, run.end + 2 * TICK))
    return np.array([found[tick] for tick in ticks(run).tolist()])


def ticks(run: Simulation) -> Ints:
    return np.arange(run.start + TICK, run.end + 1, TICK)


def truth(run: Simulation) -> Ints:
    """Return the devices in the building at all ticks."""
    there: Ints = occupancy(people(run), ticks(run), len(run.building.zones)).sum(axis=1)
    return there


@cache
def counted(heard: Heard, way: str) -> Ints:
    """Return the counts of one way to count under one assumption."""
    run = building(heard)
    told = polled(run) if way == POLLS else messages(run, departures=way != EVENTS)
    return counts(run, told, sessions=way == SESSIONS)


class Errors(NamedTuple):
    """Of the devices present, as shares of their mean."""

    mean: float
    """Mean absolute error."""
    bias: float
    """Mean error; below 0 where too few are counted."""


def errors(heard: Heard, way: str) -> Errors:
    there = truth(building(heard))
    difference = counted(heard, way) - there
    return Errors(float(np.abs(difference).mean() / there.mean()), float(difference.mean() / there.mean()))


def row(heard: Heard) -> str:
    """Return a row of the document."""
    cells = (f"{100 * each.mean:.0f} % ({100 * each.bias:+.0f} %)" for way in WAYS for each in [errors(heard, way)])
    return f"| {ASSUMPTIONS[heard]} | {' | '.join(cells)} |"


@pytest.mark.parametrize(
    "heard", [pytest.param(each, marks=[] if each is Heard.SELDOM else [pytest.mark.long]) for each in Heard]
)
def test_the_document_has_the_error_of_each_way_to_count(heard: Heard) -> None:
    (shown,) = [
        line for line in DOCUMENTS["docs/measurements.md"].splitlines() if line.startswith(f"| {ASSUMPTIONS[heard]} ")
    ]
    figures, measured = (list(map(int, re.findall(r"[-+]?\d+(?= %)", text))) for text in (shown, row(heard)))
    assert len(figures) == 2 * len(WAYS)
    assert figures == pytest.approx(measured, abs=1), "another machine's arithmetic may round otherwise"


def test_sessions_and_polls_see_people_who_sit_still_and_events_do_not() -> None:
    events, ended, sessions, polls = (errors(Heard.SELDOM, way) for way in WAYS)
    assert events.bias < -0.5
    assert ended.bias < -0.5
    assert 0 < sessions.bias < 0.2, "who leaves in silence counts until the idle timeout, or the session limit"
    assert 0 < polls.bias < 0.15, "two polls must lack a device"


if __name__ == "__main__":
    print(f"| a device that stays is heard | {' | '.join(WAYS)} |")
    print("|---|" + "---|" * len(WAYS))
    for each in Heard:
        print(row(each))
